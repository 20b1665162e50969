"""XLNet: attention in two streams, and pre-training on raw text by filbert pretrain xlnet-small.

N or S rows of T tokens, K of them targets, H hidden size, A heads of size D, V vocabulary.

Source: Yang et al. 2019, sections 2.2 and 2.3; zihangdai/xlnet, data_utils.py and modeling.py.
Rows are of one length, one segment and without memory: token types change nothing then, because a
score that is the same for all keys does not change the probabilities.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.documents import Document, read_documents
from filbert.errors import InputError
from filbert.files import replace_folder, write_json
from filbert.lineage.pretraining import read_options, train_steps
from filbert.model.config import EncoderConfig
from filbert.model.cpu import activate
from filbert.model.distances import sinusoids
from filbert.model.encoder import Encoder, Layer, initialize
from filbert.text.learning import LearnOptions, learn
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import bert_template
from filbert.train.pretrain_options import PretrainOptions

# One of six tokens is predicted, in spans of one to five tokens: sections 2.3 and 3.1.
SHARE, LONGEST_SPAN = 1 / 6, 5
# Entries of a vocabulary that is learned; the paper has 32,000.
VOCABULARY = 8_000
_MOST_HELD_OUT = 500
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
_READ = (
    *_SIZES, "objective", "corpus", "tokenizer", "max_length", "dropout", "batch_size", "lr",
    "warmup", "epochs", "steps", "time", "out", "overwrite", "seed",
)  # fmt: skip


def draw_order(is_special: Sequence[bool], draw: random.Random) -> list[int]:
    """Return the place of each token in the order of prediction; -1 for those that are not.

    A sixth of the tokens is predicted, in spans, and in a random order of the tokens. Special
    tokens are context of all. The authors' code has them in the order, and draws each span from a
    window of six times its length.
    """
    wanted = max(1, round(len(is_special) * SHARE))
    targets: set[int] = set()
    candidates = [at for at, special in enumerate(is_special) if not special]
    while len(targets) < min(wanted, len(candidates)):
        first, length = draw.choice(candidates), draw.randint(1, LONGEST_SPAN)
        span = [at for at in range(first, first + length) if at in candidates]
        targets.update(span[: wanted - len(targets)])
    places = [-1] * len(is_special)
    for place, at in enumerate(draw.sample(sorted(targets), len(targets))):
        places[at] = place
    return places


def unseen_keys(places_ST: Tensor) -> Tensor:
    """Return which keys a query must not see, bool (S, T, T), from the order of prediction.

    Nothing that is not predicted sees a target. A target sees those before it in the order, and in
    the query stream not itself.
    """
    keys = places_ST[:, None, :]
    return (keys >= 0) & (keys >= places_ST[:, :, None])


class TwoStreams(nn.Module):
    """An encoder of the XLNet family that predicts the targets of permuted orders.

    The encoder's word table is the output's too.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.start = nn.Parameter(cast("Tensor", encoder.embeddings.unseen).clone())
        self.bias = nn.Parameter(torch.zeros(encoder.config.vocab_size))

    def forward(self, ids_ST: Tensor, unseen_STT: Tensor, targets_SK: Tensor) -> Tensor:
        """Return the scores of the targets, (S, K, V); see `unseen_keys` for `unseen_STT`."""
        config, length = self.encoder.config, ids_ST.shape[1]
        rows = torch.arange(len(ids_ST))[:, None]
        behind = torch.arange(length)[:, None] - torch.arange(length)
        # A token attends to itself in the stream of contents, but not in that of queries.
        content_unseen = unseen_STT & (behind != 0)
        drop = nn.Dropout(config.dropout.hidden).train(self.training)
        content = drop(self.encoder.embeddings.word(ids_ST))
        query = drop(self.start.expand(*targets_SK.shape, -1))
        distances = torch.arange(length - 1, -length, -1)
        sines_PH = drop(sinusoids(distances, config.hidden_size).to(content.dtype))
        columns = length - 1 - behind
        for index in range(config.num_hidden_layers):
            layer = self.encoder.layer(index)
            assert isinstance(layer, Layer)
            key, value = (_heads(layer, content, part) for part in (1, 2))
            mixed = _attend(
                layer, _heads(layer, query, 0), key, value, sines_PH,
                columns[targets_SK], unseen_STT[rows, targets_SK],
            )  # fmt: skip
            query = _rest(layer, query, mixed, drop)
            everywhere = columns.expand(len(ids_ST), -1, -1)
            own = _heads(layer, content, 0)
            mixed = _attend(layer, own, key, value, sines_PH, everywhere, content_unseen)
            content = _rest(layer, content, mixed, drop)
        return F.linear(drop(query), self.encoder.embeddings.word.weight, self.bias)


def _heads(layer: Layer, hidden_SLH: Tensor, part: int) -> Tensor:
    """Return queries (part 0), keys (1) or values (2), (S, A, L, D)."""
    rows = F.linear(hidden_SLH, layer.qkv.weight.chunk(3)[part])
    return rows.view(*rows.shape[:2], layer.num_heads, -1).transpose(1, 2)


def _attend(
    layer: Layer,
    query_SALD: Tensor,
    key_SATD: Tensor,
    value_SATD: Tensor,
    sines_PH: Tensor,
    columns_SLT: Tensor,
    unseen_SLT: Tensor,
) -> Tensor:
    """Return the mixed values of all heads, (S, L, A D)."""
    relative, size = layer.relative, query_SALD.shape[-1]
    assert relative is not None
    by_distance = relative.project(sines_PH).view(-1, layer.num_heads, size).permute(1, 2, 0)
    scores = (query_SALD + relative.content_bias[:, None]) @ key_SATD.mT
    wide = (query_SALD + relative.position_bias[:, None]) @ by_distance
    scores = scores + wide.gather(-1, columns_SLT[:, None].expand_as(scores))
    scores = (scores / math.sqrt(size)).masked_fill(unseen_SLT[:, None], -1e30)
    weights = F.dropout(scores.softmax(-1), layer.config.dropout.attention, layer.training)
    return (weights @ value_SATD).transpose(1, 2).flatten(2)


def _rest(layer: Layer, hidden_SLH: Tensor, mixed_SLN: Tensor, drop: nn.Module) -> Tensor:
    """Return the layer's output for the mixed values of its attention."""
    hidden = layer.attention_norm(hidden_SLH + drop(layer.attention_out(mixed_SLN)))
    wide = drop(activate(layer.up(hidden), layer.config.feed_forward.activation))
    return layer.norm(hidden + drop(layer.down(wide)))  # type: ignore[no-any-return]


def target_loss(logits_SKV: Tensor, ids_ST: Tensor, targets_SK: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the targets: equation 3."""
    return F.cross_entropy(logits_SKV.mT, ids_ST.gather(1, targets_SK))


# Training


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Train on raw text and write an XLNet folder, which `finetune` and other tools read.

    The folder also has metrics.jsonl, with the loss of each step, and run.json, which is returned.
    """
    given = read_options(options, _READ)
    documents = list(read_documents(given["corpus"]))
    tokenizer = _tokenizer(documents, options)
    rows, is_special = _rows(documents, tokenizer, given["max_length"])
    held, size = min(_MOST_HELD_OUT, len(rows) // 20), given["batch_size"]
    if not held or len(rows) - held < size:
        raise InputError(
            f"The text has {len(rows):,} rows of {given['max_length']} tokens, too few for a batch "
            f"of {size} and a held-out part. Give more text, or a smaller --batch-size."
        )
    torch.manual_seed(options.run.seed)
    sizes = {name: given[name] for name in _SIZES if given[name] is not None}
    dropout = {"hidden_dropout": given["dropout"], "attention_dropout": given["dropout"]}
    constants = {**FAMILIES["xlnet"].constants, **dropout}
    config = EncoderConfig.of(vocab_size=tokenizer.vocab_size, pooler=None, **constants, **sizes)
    encoder = Encoder(config)
    initialize(encoder, config.initializer_range)
    model, draw = TwoStreams(encoder), random.Random(options.run.seed)
    batches = _losses(model, rows[held:], is_special, size, draw)
    with replace_folder(Path(options.run.out)) as folder:
        facts = train_steps(model, batches, options, folder, per_epoch=len(rows) // size)
        cast("Tensor", encoder.embeddings.unseen).copy_(model.start.detach())
        facts |= {
            "rows": {"train": len(rows) - held, "dev": held},
            "metrics": {"dev": _measure(model, rows[:held], is_special)},
        }
        state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        marks = {"pad_token_id": tokenizer.pad_id}
        checkpoint = Checkpoint(config, "xlnet", state, extra=marks)
        huggingface.write(checkpoint, folder)
        huggingface.write_tokenizer(tokenizer, checkpoint, folder)
        write_json(folder / "run.json", facts)
    return facts


def _tokenizer(documents: Sequence[Document], options: PretrainOptions) -> Tokenizer:
    """Read the named tokenizer, or learn unigram pieces; CLS is the last token of a text."""
    if options.data.tokenizer is not None:
        tokenizer = read_tokenizer(find_model(options.data.tokenizer))
    else:
        learned = learn(lambda: map(list, documents), LearnOptions(kind="unigram", size=VOCABULARY))
        tokenizer = learned.tokenizer
    vocabulary, convention = tokenizer.vocabulary, huggingface.CONVENTIONS["XLNetTokenizer"]
    backend = vocabulary.backend
    backend.post_processor = bert_template(backend, vocabulary.specials, convention)
    return Tokenizer(replace(vocabulary, convention=convention))


def _rows(
    documents: Sequence[Document], tokenizer: Tokenizer, length: int
) -> tuple[Tensor, list[bool]]:
    """Return rows of tokens, SEP and CLS, int64 (N, T), and which of their places are special."""
    lines = [line for document in documents for line in document]
    ids = [number for e in tokenizer.encode(lines) for number in e.input_ids.tolist()[:-2]]
    count = len(ids) // (length - 2)
    body = torch.tensor(ids[: count * (length - 2)], dtype=torch.int64).view(count, length - 2)
    marks = torch.tensor([[tokenizer.sep_id, tokenizer.cls_id]]).expand(count, 2)
    return torch.cat((body, marks), 1), [False] * (length - 2) + [True, True]


def _losses(
    model: TwoStreams, rows: Tensor, is_special: list[bool], size: int, draw: random.Random
) -> Iterator[tuple[Tensor, int]]:
    """Yield the mean loss of each batch and its number of targets, without end."""
    order: list[int] = []
    while True:
        order = order if len(order) >= size else draw.sample(range(len(rows)), len(rows))
        part, order = order[:size], order[size:]
        places = torch.tensor([draw_order(is_special, draw) for _ in part])
        # All rows have as many targets.
        targets = (places >= 0).nonzero()[:, 1].view(len(part), -1)
        ids = rows[part]
        yield target_loss(model(ids, unseen_keys(places), targets), ids, targets), targets.numel()


@torch.inference_mode()
def _measure(model: TwoStreams, rows: Tensor, is_special: list[bool]) -> dict[str, float]:
    """Return the loss of held-out rows in fixed orders, and its perplexity."""
    model.eval()
    size = min(16, len(rows))
    batches = _losses(model, rows, is_special, size, random.Random(0))
    losses = [float(next(batches)[0]) for _ in range(len(rows) // size)]
    loss = sum(losses) / len(losses)
    return {"loss": loss, "perplexity": math.exp(loss)}
