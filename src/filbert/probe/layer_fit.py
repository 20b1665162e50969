"""One head on frozen hidden states: trained, its best epoch chosen on dev, calibrated, measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from filbert.data.examples import Example, collate
from filbert.data.loader import Loader, by_length
from filbert.errors import RunError
from filbert.probe.layer_choices import Choice
from filbert.probe.layer_heads import LayerHead
from filbert.probe.layer_states import LayerStates
from filbert.speed.precision import Precision
from filbert.tasks.base import Targets, Task
from filbert.train.distributed import Parallel
from filbert.train.options import TrainOptions
from filbert.train.prepare import Split
from filbert.train.progress import FALLING
from filbert.train.schedule import rate_at_step
from filbert.train.step import accumulate

# Peak learning rate of the few numbers that mix layers: they have some units to go, whatever the
# size of the head above them.
_MIXING_RATE = 0.03
_FLOAT32 = Precision("float32", "heads are small")


@dataclass(frozen=True)
class Fitted:
    """What one head came to.

    Attributes:
        metrics: by split, dev first, as a fine-tuning run has them.
        weights: shares of the layers in a weighted sum; None for other choices.
        factor: what stands before the sum; None likewise.
        epochs: that were trained.
        best_epoch: the one whose weights count, from 1.
        num_parameters: that learnt.
        seconds: all this took.
    """

    metrics: dict[str, dict[str, Any]]
    weights: list[float] | None
    factor: float | None
    epochs: int
    best_epoch: int
    num_parameters: int
    seconds: float


def fit_head(
    new_head: Callable[[], LayerHead],
    choice: Choice,
    states: LayerStates,
    splits: Mapping[str, Split],
    task: Task,
    options: TrainOptions,
    *,
    device: torch.device,
    max_tokens: int,
) -> Fitted:
    """Train a head drawn from `options.seed`.

    Args:
        new_head: draws it from torch's default generator.
        choice: which states it reads.
        states: of the examples of all splits.
        splits: train and dev, maybe test.
        task: gives targets, losses, predictions and metrics.
        options: of the training.
        device: where the head learns.
        max_tokens: per micro-batch.

    Raises:
        RunError: the loss is not finite any more.
    """
    clock = time.perf_counter()
    torch.manual_seed(options.seed)
    head = new_head().to(device)
    parallel = Parallel(0, 1, device, "single")
    examples = splits["train"].examples
    loader = Loader(
        examples, batch_size=options.batch_size, max_tokens=max_tokens, seed=options.seed
    )
    mixing = [p for name, p in head.named_parameters() if name.startswith("mixture.")]
    others = [p for name, p in head.named_parameters() if not name.startswith("mixture.")]
    groups = [{"params": others, "share": 1.0}]
    if mixing:
        groups.append({"params": mixing, "share": _MIXING_RATE / options.lr})
    optimizer = torch.optim.AdamW(
        groups,
        weight_decay=options.weight_decay,
        betas=(options.beta1, options.beta2),
        eps=options.epsilon,
    )

    def forward(some: Sequence[Example], targets: Targets) -> Tensor:
        rows, batch = states.of(some, choice).to(device), collate(some).to(device)
        return head(rows, batch, targets.at)  # type: ignore[no-any-return]

    metric = options.metric or task.selection_metric
    epochs, each = math.ceil(options.epochs), loader.steps_per_epoch
    best, best_epoch, kept = (-math.inf, -math.inf), 0, head.state_dict()
    epoch = 0
    while epoch < epochs and not (options.patience and epoch - best_epoch >= options.patience):
        head.train()
        for step in range(epoch * each, (epoch + 1) * each):
            found = accumulate(
                forward,
                head,
                task,
                loader.step(step),
                parallel=parallel,
                precision=_FLOAT32,
                seed=(options.seed, step + 1),
                stand_in=loader.stand_in,
            )
            norm = parallel.clip(head, options.clip)
            if not math.isfinite(norm):
                raise RunError(
                    f"{choice.title}, seed {options.seed}, step {step + 1}: the gradient is not "
                    f"finite (loss {found.loss:.4g}). Try a lower --lr."
                )
            rate = rate_at_step(
                options.schedule, step, steps=epochs * each, warmup=options.warmup, peak=options.lr
            )
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        epoch += 1
        dev = splits["dev"]
        outputs = outputs_of(head, choice, states, dev.examples, max_tokens)
        figures = task.metrics(dev.gold, task.decode(outputs, dev.examples))
        # Where the metric stands still, as F1 does while every tag is O, the loss may still fall.
        value = (goodness(figures, metric), -mean_loss(task, outputs, dev.examples))
        if value > best or not best_epoch:
            best, best_epoch = value, epoch
            kept = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    head.load_state_dict(kept)
    mixture = head.mixture
    is_sum = mixture.way == "sum"
    return Fitted(
        metrics=_measure(head, choice, states, splits, task, max_tokens),
        weights=mixture.weights_K().tolist() if is_sum else None,
        factor=mixture.factor.item() if is_sum else None,
        epochs=epoch,
        best_epoch=best_epoch,
        num_parameters=sum(p.numel() for p in head.parameters()),
        seconds=time.perf_counter() - clock,
    )


def outputs_of(
    head: LayerHead,
    choice: Choice,
    states: LayerStates,
    examples: Sequence[Example],
    max_tokens: int,
) -> list[Tensor]:
    """The head's output of every example, in order, float32 on the host, as `Task.decode` wants."""
    head.eval()
    device = head.out.weight.device
    outputs: list[Tensor] = [torch.empty(0)] * len(examples)
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        some = [examples[i] for i in indices]
        batch = collate(some).to(device)
        with torch.inference_mode():
            logits = head(states.of(some, choice).to(device), batch).float().cpu()
        pieces = logits.split(list(batch.lengths)) if head.per_token else logits.unbind(0)
        for index, piece in zip(indices, pieces, strict=True):
            outputs[index] = piece
    return outputs


def mean_loss(task: Task, outputs: Sequence[Tensor], examples: Sequence[Example]) -> float:
    """The task's loss of outputs as `outputs_of` gives them, per word or row."""
    targets = task.targets(examples)
    if targets.at is None:
        logits = torch.stack(list(outputs))
    else:
        logits = torch.cat(list(outputs))[targets.at]
    count = task.count(targets)
    assert not isinstance(count, tuple)
    return float(task.loss(logits, targets)) / (count or 1.0)


def goodness(metrics: Mapping[str, Any], metric: str) -> float:
    """A metric turned so that more is better; where it is not defined, the loss, or the worst."""
    found = metrics.get(metric)
    if found is None:
        metric, found = "loss", metrics.get("loss")
    value = -math.inf if found is None else float(found)
    return -value if metric in FALLING and found is not None else value


def _measure(
    head: LayerHead,
    choice: Choice,
    states: LayerStates,
    splits: Mapping[str, Split],
    task: Task,
    max_tokens: int,
) -> dict[str, dict[str, Any]]:
    """Figures of dev and test, with thresholds from dev as a fine-tuned model gets them."""
    outputs = {
        name: outputs_of(head, choice, states, split.examples, max_tokens)
        for name, split in splits.items()
        if name != "train"
    }
    dev = splits["dev"]
    task = task.calibrate(dev.gold, outputs["dev"], dev.examples)
    return {
        name: task.metrics(splits[name].gold, task.decode(found, splits[name].examples))
        for name, found in outputs.items()
    }
