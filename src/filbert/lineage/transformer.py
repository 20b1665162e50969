"""The Transformer of 2017: an encoder and a decoder that translate.

T tokens in the batch, S sequences, L tokens of the longest, H hidden size, A heads, D head size,
V vocabulary, B hypotheses of a source, N = S * B.

Source: Vaswani et al. 2017, "Attention is all you need". The encoder is BERT's `Encoder` with other
settings, and a layer of the decoder is BERT's `Layer`, which also attends to the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from filbert.batch import PackedBatch, pack, split
from filbert.checkpoints.weights import save_tensors
from filbert.errors import FormatError
from filbert.files import read_json, write_json
from filbert.model.attention import AttentionPlan
from filbert.model.config import EncoderConfig
from filbert.model.cpu import dense, dropout, linear
from filbert.model.encoder import Encoder, Layer, new_norm
from filbert.text.tokenizer import Tokenizer

KIND = "transformer-2017"
# The base model of table 3 as settings of `EncoderConfig`, and a feed-forward network four times
# as wide. Dropout is on the embeddings and the output of every sublayer (section 5.4).
BASE: dict[str, Any] = {
    "num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "hidden_act": "relu",
    "layer_norm_eps": 1e-6, "max_position_embeddings": 256, "embedding_scaled": True,
    "embedding_norm": False, "type_vocab_size": 0, "pooler": None, "hidden_dropout": 0.1,
    "attention_dropout": 0.0,
}  # fmt: skip
# Section 6.1: hypotheses of a beam, and the exponent of the length penalty.
BEAM, ALPHA = 4, 0.6


def sinusoids(length: int, width: int) -> Tensor:
    """Return the table of positions, float32 (length, width).

    Source: section 3.5. Element 2i is sin(p / 10000^(2i / width)), element 2i + 1 its cosine.
    """
    places = torch.arange(length, dtype=torch.float64)[:, None]
    angles = places / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width].float()


class Memory(NamedTuple):
    """The source as the decoder attends to it: the encoder's output and its batch."""

    hidden_TH: Tensor
    batch: PackedBatch


class CrossAttention(nn.Module):
    """Attention whose queries are of the target and whose keys and values are of the source."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, width = config.attention.heads, config.hidden_size
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden_TH: Tensor, batch: PackedBatch, memory: Memory) -> Tensor:
        """Compute the sublayer's output, (T, H)."""
        query, key, value = self.operands(hidden_TH, memory)
        mixed_SALD = F.scaled_dot_product_attention(
            padded(query, batch).transpose(1, 2),
            padded(key, memory.batch).transpose(1, 2),
            padded(value, memory.batch).transpose(1, 2),
            attn_mask=is_token(memory.batch)[:, None, None, :],
        )
        return dense(mixed_SALD.transpose(1, 2)[is_token(batch)].flatten(1), self.out)

    def operands(self, hidden_TH: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of all tokens, (T, A, D) each."""
        key, value = dense(memory.hidden_TH, self.key_value).chunk(2, -1)
        parts = (dense(hidden_TH, self.query), key, value)
        query, key, value = (part.reshape(len(part), self.heads, -1) for part in parts)
        return query, key, value


def is_token(batch: PackedBatch) -> Tensor:
    """Return which places of the padded batch are tokens, bool (S, L)."""
    lengths = torch.tensor(batch.lengths, device=batch.input_ids.device)
    return torch.arange(batch.max_seqlen, device=lengths.device) < lengths[:, None]


def padded(rows_T: Tensor, batch: PackedBatch) -> Tensor:
    """Lay out packed rows, (T, ...), as (S, L, ...) with zeros after each sequence."""
    return pad_sequence(list(split(rows_T, batch)), batch_first=True)


class DecoderLayer(Layer):
    """Causal self-attention, attention to the source, feed-forward network. Section 3.1."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__(config, index)
        self.cross = CrossAttention(config)
        self.cross_norm = new_norm(config.hidden_size, config)

    def forward(  # type: ignore[override]
        self, hidden_TH: Tensor, plan: AttentionPlan, memory: Memory
    ) -> Tensor:
        """Compute the layer's output, (T, H)."""
        hidden = self.attended(hidden_TH, plan)
        mixed = self.cross(hidden, plan.batch, memory)
        hidden = self.cross_norm(hidden + dropout(mixed, self.config.dropout.hidden, self.training))
        return self.norm(hidden + self._feed_forward(hidden))  # type: ignore[no-any-return]

    def attended(self, hidden_TH: Tensor, plan: AttentionPlan) -> Tensor:
        """Compute the first sublayer, (T, H): what the queries to the source are made of."""
        mixed = self._attention(hidden_TH, plan, None)
        return self.attention_norm(hidden_TH + mixed)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Encoder, decoder, and one table of words for source, target and output (section 3.4).

    `settings` are `vocab_size`, and what is different from `BASE`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = BASE | settings
        self.settings.setdefault("intermediate_size", 4 * self.settings["hidden_size"])
        config = EncoderConfig.of(**self.settings)
        self.encoder = Encoder(config)
        causal, numbers = config.changed(causal=True), range(config.num_hidden_layers)
        self.decoder = nn.ModuleList(DecoderLayer(causal, number) for number in numbers)
        for name, weights in self.named_parameters():
            if weights.dim() == 2:
                nn.init.xavier_uniform_(weights)
            elif name.endswith("bias"):
                nn.init.zeros_(weights)
        # Deviation 1 after the factor sqrt(H).
        nn.init.normal_(self.encoder.embeddings.word.weight, std=config.hidden_size**-0.5)
        positions = self.encoder.get_parameter("embeddings.position.weight").requires_grad_(False)
        positions.copy_(sinusoids(*positions.shape))

    @property
    def layers(self) -> list[DecoderLayer]:
        """The layers of the decoder."""
        return cast("list[DecoderLayer]", list(self.decoder))

    def forward(self, source: PackedBatch, target: PackedBatch) -> Tensor:
        """Compute the logits of the token after each token of the target, (T, V)."""
        return self.logits(self.decode(target, Memory(self.encoder(source), source)))

    def decode(self, target: PackedBatch, memory: Memory) -> Tensor:
        """Compute the decoder's output, (T, H), for one target of each source."""
        hidden, plan = self.encoder.embeddings(target), AttentionPlan(target, causal=True)
        for layer in self.layers:
            hidden = layer(hidden, plan, memory)
        return hidden  # type: ignore[no-any-return]

    def logits(self, hidden_TH: Tensor) -> Tensor:
        """Compute the logits, (T, V), with the table of words."""
        return linear(hidden_TH, self.encoder.embeddings.word.weight, None)


def beam_search(
    next_token: Callable[[Tensor, Tensor], Tensor],
    count: int,
    *,
    start: int,
    end: int,
    most: int,
    beam: int = BEAM,
    alpha: float = ALPHA,
) -> list[list[int]]:
    """Return the best token ids of each of `count` sources, without start and end.

    A text's score is its log-probability, with its end, divided by `penalty`.

    Args:
        next_token: Returns the log-probabilities (N, V) of the token after ids, int64 (N, L), which
            begin with `start`; they are of the sources with the numbers int64 (N,).
        start, end: Ids before and after a text.
        most: Longest text, its end included.
        beam: Hypotheses of a source that are continued.
        alpha: Exponent of the penalty; 0 for none.
    """
    best_score, best = torch.full((count,), -math.inf), [[end]] * count
    # The sources that are still searched, their hypotheses and the log-probabilities of these.
    sources = torch.arange(count)
    ids_SBL, total_SB = torch.full((count, 1, 1), start), torch.zeros(count, 1)
    for length in range(1, most + 1):
        next_NV = next_token(ids_SBL.flatten(0, 1), sources.repeat_interleave(total_SB.shape[1]))
        next_SBV = total_SB[..., None] + next_NV.float().cpu().view(*total_SB.shape, -1)
        ended_S, at_S = next_SBV[..., end].max(1)
        ended_S = ended_S / penalty(length, alpha)
        for row in (ended_S > best_score[sources]).nonzero().flatten().tolist():
            best_score[sources[row]] = ended_S[row]
            best[sources[row]] = ids_SBL[row, at_S[row], 1:].tolist()
        next_SBV[..., end] = -math.inf
        total_SB, at_SB = next_SBV.flatten(1).topk(min(beam, next_SBV[0].numel()))
        at_SB, token_SB = at_SB // next_SBV.shape[-1], at_SB % next_SBV.shape[-1]
        ids_SBL = ids_SBL.gather(1, at_SB[..., None].expand(-1, -1, length))
        ids_SBL = torch.cat((ids_SBL, token_SB[..., None]), -1)
        # No continuation has a better score than its log-probability now over the last penalty.
        alive = total_SB[:, 0] / penalty(most, alpha) > best_score[sources]
        sources, ids_SBL, total_SB = sources[alive], ids_SBL[alive], total_SB[alive]
        if not len(sources):
            break
    return best


def penalty(length: int, alpha: float) -> float:
    """Return what the log-probability of a text is divided by. Wu et al. 2016, equation 14."""
    return math.pow((5 + length) / 6, alpha)


@dataclass(frozen=True, eq=False)
class Translator:
    """A Transformer and the tokenizer of both languages; `load` reads one."""

    model: Transformer
    tokenizer: Tokenizer

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.encoder.embeddings.word.weight.device

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text between start and end; a source has no start."""
        limit = self.model.encoder.config.positions.rows
        (encoding,) = self.tokenizer.encode([text], max_length=limit)
        return list(map(int, encoding.input_ids))

    @torch.inference_mode()
    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts, which are cut at the model's longest source."""
        self.model.eval()
        ids = [self.ids(text)[1:] for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(ids[place]))
        translations = [""] * len(texts)
        for first in range(0, len(order), 64):
            chosen = order[first : first + 64]
            best = self._search([ids[place] for place in chosen])
            for place, text in zip(chosen, best, strict=True):
                translations[place] = self.tokenizer.decode(text)
        return translations

    def _search(self, sources: list[list[int]]) -> list[list[int]]:
        model, source = self.model, pack(sources).to(self.device)
        parts = split(model.encoder(source), source)

        def next_token(ids_NL: Tensor, numbers_N: Tensor) -> Tensor:
            numbers = numbers_N.tolist()
            repeated = pack([sources[number] for number in numbers]).to(self.device)
            memory = Memory(torch.cat([parts[number] for number in numbers]), repeated)
            hidden = model.decode(pack(ids_NL.tolist()).to(self.device), memory)
            return model.logits(hidden[ids_NL.shape[1] - 1 :: ids_NL.shape[1]]).log_softmax(-1)

        # Section 6.1: 50 tokens more than the source.
        most = min(source.max_seqlen + 50, model.encoder.config.positions.rows - 1)
        first, last = self.ids("")
        return beam_search(next_token, len(sources), start=first, end=last, most=most)

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the files of the tokenizer."""
        write_json(folder / "config.json", {"model_type": KIND, **self.model.settings})
        tensors = {name: t.detach().cpu() for name, t in self.model.state_dict().items()}
        save_tensors(tensors, folder / "model.safetensors")
        self.tokenizer.save(folder)


def load(folder: str | Path, *, device: str = "cpu") -> Translator:
    """Read a folder that `filbert pretrain transformer-small` wrote.

    Raises:
        InputError, FormatError: There is no such folder, or it is of another kind.
    """
    content = read_json(Path(folder) / "config.json")
    if content.pop("model_type", None) != KIND:
        raise FormatError(
            f"{folder} is no Transformer of 2017. Give a folder that "
            "`filbert pretrain transformer-small` wrote."
        )
    model = Transformer(**content)
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return Translator(model.to(device).eval(), Tokenizer.load(folder))
