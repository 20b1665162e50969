"""The Transformer of 2017: an encoder and a decoder that translate.

T tokens in the batch, H hidden size, V vocabulary, N hypotheses, L tokens of each.

Source: Vaswani et al. 2017, "Attention is all you need". The encoder is BERT's `Encoder` with other
settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from filbert.batch import PackedBatch, pack, split
from filbert.checkpoints.weights import save_tensors
from filbert.errors import FormatError
from filbert.files import read_json, write_json
from filbert.lineage.beam_search import ALPHA, BEAM, beam_search
from filbert.lineage.decoder import DecoderLayer, Memory
from filbert.model.attention import AttentionPlan
from filbert.model.config import EncoderConfig
from filbert.model.cpu import linear
from filbert.model.encoder import Encoder
from filbert.text.tokenizer import Tokenizer

KIND = "transformer-2017"
# The base model of table 3 as settings of `EncoderConfig`. Dropout is on the embeddings and on the
# output of every sublayer (section 5.4).
BASE: dict[str, Any] = {
    "num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8,
    "intermediate_size": 2048, "hidden_act": "relu", "layer_norm_eps": 1e-6,
    "max_position_embeddings": 256, "embedding_scaled": True, "embedding_norm": False,
    "type_vocab_size": 0, "pooler": None, "hidden_dropout": 0.1, "attention_dropout": 0.0,
}  # fmt: skip


def sinusoids(length: int, width: int) -> Tensor:
    """Return the table of positions, float32 (length, width).

    Source: section 3.5. Element 2i is sin(p / 10000^(2i / width)), element 2i + 1 its cosine.
    """
    places = torch.arange(length, dtype=torch.float64)[:, None]
    angles = places / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width].float()


class Transformer(nn.Module):
    """Encoder, decoder, and one table of words for source, target and output (section 3.4).

    Args:
        settings: `vocab_size`, and what is different from `BASE`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = BASE | settings
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
        table = sinusoids(config.positions.rows, config.hidden_size)
        assert self.encoder.embeddings.position is not None
        self.encoder.embeddings.position.weight = nn.Parameter(table, requires_grad=False)

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


@dataclass(frozen=True, eq=False)
class Translator:
    """A Transformer and the tokenizer of both languages; `load` reads one."""

    model: Transformer
    tokenizer: Tokenizer

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.encoder.embeddings.word.weight.device

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text between start and end; a source has no start."""
        limit = self.model.encoder.config.positions.rows
        (encoding,) = self.tokenizer.encode([text], max_length=limit)
        return list(map(int, encoding.input_ids))

    @torch.inference_mode()
    def translate(
        self, texts: Sequence[str], *, beam: int = BEAM, alpha: float = ALPHA, batch: int = 64
    ) -> list[str]:
        """Translate texts, which are cut at the model's longest source.

        Args:
            texts: In the source language.
            beam, alpha: See `beam_search`; a beam of 1 is greedy search.
            batch: Texts that are searched at a time.
        """
        self.model.eval()
        ids = [self.ids(text)[1:] for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(ids[place]))
        found = [""] * len(texts)
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            best = self._search([ids[place] for place in chosen], beam, alpha)
            for place, text in zip(chosen, best, strict=True):
                found[place] = self.tokenizer.decode(text)
        return found

    def _search(self, sources: list[list[int]], beam: int, alpha: float) -> list[list[int]]:
        model, source = self.model, pack(sources).to(self.device)
        parts = split(model.encoder(source), source)

        def next_token(ids_NL: Tensor, numbers_N: Tensor) -> Tensor:
            numbers = numbers_N.tolist()
            repeated = pack([sources[number] for number in numbers]).to(self.device)
            memory = Memory(torch.cat([parts[number] for number in numbers]), repeated)
            hidden = model.decode(pack(ids_NL.tolist()).to(self.device), memory)
            last = hidden[ids_NL.shape[1] - 1 :: ids_NL.shape[1]]
            return model.logits(last).log_softmax(-1)

        # Section 6.1: 50 tokens more than the source.
        most = min(source.max_seqlen + 50, model.encoder.config.positions.rows - 1)
        first, last = self.ids("")
        return beam_search(
            next_token, len(sources), start=first, end=last, most=most, beam=beam, alpha=alpha
        )

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the files of the tokenizer."""
        write_json(folder / "config.json", {"kind": KIND, **self.model.settings})
        tensors = {name: t.detach().cpu() for name, t in self.model.state_dict().items()}
        save_tensors(tensors, folder / "model.safetensors")
        self.tokenizer.save(folder)


def load(folder: str | Path, *, device: str = "cpu") -> Translator:
    """Read a folder that `filbert pretrain transformer-small` wrote.

    Raises:
        InputError, FormatError: There is no such folder, or it is of another kind.
    """
    content = read_json(Path(folder) / "config.json")
    if content.pop("kind", None) != KIND:
        raise FormatError(
            f"{folder} is no Transformer of 2017. Give a folder that "
            "`filbert pretrain transformer-small` wrote."
        )
    model = Transformer(**content)
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return Translator(model.to(device).eval(), Tokenizer.load(folder))
