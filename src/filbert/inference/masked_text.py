"""How well a model fills masks in held-out text: the same sequences and masks at every time.

K masked tokens, S sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.batch import PackedBatch
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.data.build import build_corpus
from filbert.data.examples import Example
from filbert.data.instances import fixed_examples
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import Corpus, CorpusOptions
from filbert.errors import InputError
from filbert.inference.fill import masked_lm_part
from filbert.inference.forward import device_of, forward
from filbert.losses.cross_entropy import cross_entropy
from filbert.model.heads import Model, PretrainingHead
from filbert.model.precision import Precision
from filbert.tasks.base import Objective, Targets
from filbert.tasks.pretraining import Pretraining

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

# Of masked-word logits on the host: 128 MB at 30,522 entries.
_MOST_ROWS = 1_024

# Sums over batches, from which the metrics are made.
_SUMS = (
    "masked", "mlm_loss", "mlm_right", "pairs", "pair_loss", "pair_right", "tokens",
    "replaced_loss", "replaced_right",
)  # fmt: skip

# Tokens per batch where the model draws samples: the same for every run and device.
_SAMPLED_TOKENS = 4_096


def text_metrics(
    predictor: Predictor, path: str, text_column: str = "text", max_length: int | None = None
) -> dict[str, float]:
    """Measure a model on a text file, with 15 % of the tokens masked as in BERT, always the same.

    Args:
        predictor: With a masked-LM head, or one for pairs too; otherwise it is a ConfigError.
        path: Text with a blank line between documents, or rows with a `text_column`.
        max_length: Tokens per row, special tokens included; those of the model's pre-training when
            not given.
    """
    model, checkpoint, tokenizer = predictor.model, predictor.checkpoint, predictor.tokenizer
    masked_lm_part(model)
    assert isinstance(model, Model)
    if max_length is None:
        # Positions after those that were trained have vectors that say nothing.
        trained = pretraining_of(checkpoint).get("max_length")
        longest = predictor.max_length
        max_length = min(longest, trained) if isinstance(trained, int) else longest
    task = Pretraining(pair=_pair_of(model, checkpoint))
    asked = ObjectiveOptions(pair=task.pair, max_length=max_length)
    with tempfile.TemporaryDirectory() as spare:
        place = Path(spare) / "text"
        build_corpus([path], tokenizer, place, options=CorpusOptions(text_column=text_column))
        examples = fixed_examples(Corpus.open(place), tokenizer, asked)
    if not any(len(example.target.labels) for example in examples):
        raise InputError(f"{path}: nothing in it can be masked. Give more text.")
    return measure(
        model, task, examples, max_tokens=predictor.max_tokens, precision=predictor.precision
    )


def pretraining_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return "max_length" and "pair" of a model's pre-training from filbert.json, or neither.

    They are options of the run that wrote the model; `shrink` copies them to the smaller model.
    """
    provenance = checkpoint.filbert or {}
    is_own_run = provenance.get("command") in ("pretrain", "distill")
    options = provenance.get("options" if is_own_run else "pretrained")
    options = options if isinstance(options, dict) else {}
    return {key: options[key] for key in ("max_length", "pair") if options.get(key) is not None}


def _pair_of(model: Model, checkpoint: Checkpoint) -> str:
    """Return the pair task of a pre-training head: its run's, otherwise its family's."""
    if not isinstance(model.head, PretrainingHead):
        return "none"
    pair = pretraining_of(checkpoint).get("pair")
    return pair if pair in ("nsp", "sop") else "sop" if checkpoint.family == "albert" else "nsp"


def measure(
    model: nn.Module,
    task: Objective,
    examples: Sequence[Example],
    *,
    max_tokens: int | None = None,
    precision: Precision,
) -> dict[str, float]:
    """Return the metrics of held-out sequences.

    Returns:
        mlm_loss (nats a masked token), mlm_accuracy, perplexity, and where there are pairs
        nsp_accuracy or sop_accuracy with nsp_loss or sop_loss; of replaced tokens replaced_loss and
        replaced_accuracy.
    """
    device = device_of(model)
    was_training = model.training
    # The samples of a batch are drawn together, so they depend on what else is in it.
    draws = bool(examples) and task.targets(examples[:1]).are_seen

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        targets = task.targets(chosen).to(device)
        if draws:
            torch.manual_seed(0)
        output = model(batch, targets.at, *((targets.values,) if draws else ()))
        sums = _sums(*((output,) if isinstance(output, Tensor) else output), targets=targets)
        return (torch.tensor([sums.get(name, 0.0) for name in _SUMS], dtype=torch.float64),)

    totals = np.zeros(len(_SUMS))
    for _, (sums,) in forward(
        model,
        examples,
        read,
        max_tokens=_SAMPLED_TOKENS if draws else max_tokens,
        precision=precision,
        one_at_a_time=draws,
    ):
        totals += sums.numpy()
    model.train(was_training)
    return _metrics(dict(zip(_SUMS, totals.tolist(), strict=True)), task)


def _sums(masked_KV: Tensor, *others: Tensor, targets: Targets) -> dict[str, float]:
    """Return the sums of a batch, by the names in `_SUMS`.

    Args:
        others: Logits of the pairs; or of replaced tokens, and which of them were replaced.
    """
    sums = {"masked": len(targets.values), "mlm_loss": 0.0, "mlm_right": 0}
    for start in range(0, len(masked_KV), _MOST_ROWS):
        part = slice(start, start + _MOST_ROWS)
        logits, labels = masked_KV[part], targets.values[part]
        sums["mlm_loss"] += float(cross_entropy(logits, labels))
        sums["mlm_right"] += int((logits.argmax(-1) == labels).sum())
    if targets.pair is not None:
        pairs = others[0]
        sums |= {"pairs": len(pairs), "pair_loss": float(cross_entropy(pairs, targets.pair))}
        sums["pair_right"] = int((pairs.argmax(-1) == targets.pair).sum())
    elif others:
        logits, is_replaced = others[0].float(), others[1]
        loss = F.binary_cross_entropy_with_logits(logits, is_replaced.float(), reduction="sum")
        sums |= {"tokens": len(logits), "replaced_loss": float(loss)}
        sums["replaced_right"] = int(((logits > 0) == is_replaced).sum())
    return sums


def _metrics(sums: dict[str, float], task: Objective) -> dict[str, float]:
    loss = sums["mlm_loss"] / max(sums["masked"], 1)
    metrics = {
        "mlm_loss": loss,
        "mlm_accuracy": sums["mlm_right"] / max(sums["masked"], 1),
        # A fresh model may be so wrong that the power overflows.
        "perplexity": math.exp(min(loss, 700.0)),
    }
    if sums["pairs"]:
        name = task.spec.loss_names[1].removesuffix("_loss")
        metrics[f"{name}_loss"] = sums["pair_loss"] / sums["pairs"]
        metrics[f"{name}_accuracy"] = sums["pair_right"] / sums["pairs"]
    if sums["tokens"]:
        metrics["replaced_loss"] = sums["replaced_loss"] / sums["tokens"]
        metrics["replaced_accuracy"] = sums["replaced_right"] / sums["tokens"]
    return metrics
