"""Trains the Transformer of 2017 on pairs of texts: filbert pretrain transformer-small.

T tokens of the targets, V vocabulary. Source: Vaswani et al. 2017, section 5.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.batch import PackedBatch, pack
from filbert.data.records import read_rows
from filbert.errors import InputError
from filbert.files import replace_folder, write_json
from filbert.lineage.pretraining import read_options
from filbert.lineage.transformer import BASE, Transformer, Translator
from filbert.text.learning import LearnOptions, learn
from filbert.train.log import RunLog
from filbert.train.options import flat
from filbert.train.pretrain_options import PretrainOptions

# Section 5.4.
SMOOTHING = 0.1
# Most entries of the vocabulary; the paper has 37,000, for 4.5 million pairs.
VOCABULARY = 4_000
# Options that are settings of the model, and those that the training reads.
_SETTINGS = {
    "num_hidden_layers": "num_hidden_layers", "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads", "intermediate_size": "intermediate_size",
    "max_length": "max_position_embeddings", "dropout": "hidden_dropout",
}  # fmt: skip
_READ = {
    *_SETTINGS, "objective", "corpus", "dev", "dev_rows", "max_tokens", "lr", "warmup", "epochs",
    "steps", "beta1", "beta2", "eps", "out", "overwrite", "seed", "device",
}  # fmt: skip

Pair: TypeAlias = tuple[str, str]
Ids: TypeAlias = list[int]


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Train a Transformer on pairs and write a folder for `filbert.lineage.transformer.load`.

    The folder also has metrics.jsonl, with the loss of each step, and run.json, which is returned.
    """
    read_options(options, _READ)
    train, dev = splits(options)
    translator = new_translator(train, options)
    with replace_folder(Path(options.run.out)) as folder:
        begun = time.monotonic()
        with RunLog(folder) as log:
            steps = train_model(translator.model, encode_pairs(translator, train), options, log)
        facts = {
            "steps": steps,
            "seconds": time.monotonic() - begun,
            "parameters": sum(weights.numel() for weights in translator.model.parameters()),
            "pairs": {"train": len(train), "dev": len(dev)},
            "metrics": {"dev": measure(translator, dev)},
        }
        translator.save(folder)
        write_json(folder / "run.json", facts)
    return facts


def splits(options: PretrainOptions) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs to train on, and at most `dev_rows` to measure on.

    If there is no file of these, a tenth is drawn; pairs with their targets are not trained on.
    """
    train, rows = _read_pairs(options.data.corpus or ()), options.data.dev_rows
    if options.data.dev:
        return train, _read_pairs(options.data.dev)[:rows]
    drawn = random.Random(options.run.seed).sample(train, min(rows, len(train) // 10))
    targets = {target for _, target in drawn}
    others = [pair for pair in train if pair[1] not in targets]
    if not drawn or not others:
        raise InputError("There are too few pairs to hold some out. Give more, or --dev FILE.")
    return others, drawn


def _read_pairs(paths: Sequence[str]) -> list[Pair]:
    """Read the first two columns of tables: text and translation."""
    pairs = []
    for row in (row for path in paths for row in read_rows(path)):
        texts = [str(value or "").strip() for value in list(row.values.values())[:2]]
        if len(texts) < 2 or not all(texts):
            raise InputError(
                f"{row.where}: the first two columns must be a text and its translation. Fill "
                "them in, or drop the row."
            )
        pairs.append((texts[0], texts[1]))
    return pairs


def new_translator(pairs: Sequence[Pair], options: PretrainOptions) -> Translator:
    """Learn byte pairs of both languages (section 5.1), and create a model with drawn weights."""
    learned = LearnOptions(kind="bytebpe", size=VOCABULARY, cased=True)
    tokenizer = learn(lambda: map(list, pairs), learned).tokenizer
    given = flat(options)
    settings = {key: given[name] for name, key in _SETTINGS.items() if given[name] is not None}
    torch.manual_seed(options.run.seed)
    model = Transformer(vocab_size=tokenizer.vocab_size, **settings)
    return Translator(model.to(options.run.device or "cpu"), tokenizer)


def learning_rate(step: int, *, width: int, warmup: int) -> float:
    """Return the rate of a step, which counts from 1. Section 5.3, equation 3."""
    return math.pow(width, -0.5) * min(math.pow(step, -0.5), step * math.pow(warmup, -1.5))


def smoothed_loss(logits_TV: Tensor, labels_T: Tensor) -> Tensor:
    """Return the mean cross-entropy with smoothed labels.

    A label has the probability 0.9 + 0.1 / V and every other entry 0.1 / V: Szegedy et al. 2016,
    section 7, which the paper cites. (tensor2tensor divides the 0.1 by the V - 1 others.)
    """
    return F.cross_entropy(logits_TV, labels_T, label_smoothing=SMOOTHING)


def batches(sizes: Sequence[int], max_tokens: int, draw: random.Random) -> list[list[int]]:
    """Divide rows of similar size into batches of at most `max_tokens`, in a drawn order.

    A row that is larger is a batch of its own. Section 5.1.
    """
    order = sorted(draw.sample(range(len(sizes)), len(sizes)), key=sizes.__getitem__)
    divided: list[list[int]] = []
    for row in order:
        if not divided or sizes[row] * (len(divided[-1]) + 1) > max_tokens:
            divided.append([])
        divided[-1].append(row)
    return draw.sample(divided, len(divided))


def train_model(
    model: torch.nn.Module, rows: Sequence[tuple[Ids, Ids]], options: PretrainOptions, log: RunLog
) -> int:
    """Train a model that returns logits (T, V) in place, and return the number of steps."""
    chosen, sizes = options.train, [max(map(len, row)) for row in rows]
    draw, max_tokens = random.Random(options.run.seed), chosen.max_tokens or 2_048
    queue = batches(sizes, max_tokens, draw)
    steps = chosen.steps or math.ceil(len(queue) * (chosen.epochs or 1))
    warmup = max(1, int(chosen.warmup * steps))
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    adam = torch.optim.Adam(trained, betas=(chosen.beta1, chosen.beta2), eps=chosen.eps or 1e-9)
    width, device = options.model.hidden_size or BASE["hidden_size"], trained[0].device
    log.start(steps)
    model.train()
    for step in range(1, steps + 1):
        begun = time.monotonic()
        queue = queue or batches(sizes, max_tokens, draw)
        source, target, labels = to_batch([rows[row] for row in queue.pop()], device)
        rate = (chosen.lr or 1.0) * learning_rate(step, width=width, warmup=warmup)
        adam.param_groups[0]["lr"] = rate
        loss = smoothed_loss(model(source, target), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        adam.zero_grad()
        speed = len(labels) / (time.monotonic() - begun)
        log.step(step, step=step, loss=float(loss.detach()), lr=rate, tokens_per_second=speed)
    return steps


def encode_pairs(translator: Translator, pairs: Sequence[Pair]) -> list[tuple[Ids, Ids]]:
    """Return the ids of sources, with the end, and of targets, with start and end."""
    return [(translator.ids(source)[1:], translator.ids(target)) for source, target in pairs]


def to_batch(
    rows: Sequence[tuple[Ids, Ids]], device: torch.device
) -> tuple[PackedBatch, PackedBatch, Tensor]:
    """Return sources, targets without their last token, and the token after each, int64 (T,)."""
    source = pack([source for source, _ in rows])
    target = pack([target[:-1] for _, target in rows])
    labels = torch.tensor([token for _, target in rows for token in target[1:]])
    return source.to(device), target.to(device), labels.to(device)


@torch.inference_mode()
def measure(translator: Translator, pairs: Sequence[Pair]) -> dict[str, float]:
    """Return the loss per token without smoothing, exact match and, with sacrebleu, BLEU."""
    model = translator.model.eval()
    rows = sorted(encode_pairs(translator, pairs), key=lambda row: len(row[0]))
    loss = count = 0.0
    for first in range(0, len(rows), 64):
        source, target, labels = to_batch(rows[first : first + 64], translator.device)
        loss += float(F.cross_entropy(model(source, target), labels, reduction="sum"))
        count += len(labels)
    targets = [target for _, target in pairs]
    texts = translator.translate([source for source, _ in pairs])
    right = sum(text == target for text, target in zip(texts, targets, strict=True))
    metrics = {"loss": loss / count, "exact_match": right / len(pairs)}
    if find_spec("sacrebleu"):
        from sacrebleu import corpus_bleu

        metrics["bleu"] = corpus_bleu(texts, [targets]).score
    return metrics
