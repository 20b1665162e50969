"""Which layer knows the task: heads on several choices of a frozen encoder's layers, side by side.

Source: Devlin et al. 2019, section 5.3: "feature-based approach with BERT", table 7.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import ConfigError
from filbert.probe.layer_choices import Choice, chosen
from filbert.probe.layer_fit import Fitted, fit_head
from filbert.probe.layer_heads import LayerHead
from filbert.probe.layer_options import LayersOptions
from filbert.probe.layer_states import LayerStates, compute_states
from filbert.speed.execution import default_max_tokens
from filbert.speed.precision import choose_device, choose_precision
from filbert.tasks.base import Task, task_class
from filbert.train.finetune import finetune
from filbert.train.log import progress_bar, say
from filbert.train.prepare import Split, build, load_for_task, read_splits, tokenise


def compare_layers(options: LayersOptions) -> dict[str, Any]:
    """Train the heads and, if asked for, the whole model; nothing is written.

    Returns:
        `model`, `task`, `metric`, `head`, `rows` by split, `notes`; `choices`: for each its name,
        title, layers and way, the width of its features, the parameters of a head and `seeds`, one
        entry each with all metrics by split; `dev` and, where there are such rows, `test`: mean,
        deviation (sample standard deviation) and values of the metric. Of weighted sums also
        `weights`, the mean over the seeds. `finetuned` is such an entry too, or None.

    Raises:
        InputError, ConfigError, FormatError: before anything is computed.
        RunError: a head's loss is not finite any more.
    """
    device = choose_device(options.device)
    precision = choose_precision(options.precision, device)
    options = options.settled()
    rows = options.rows()
    if task_class(options.task).from_options(rows, rows).head_kind not in ("sequence", "tokens"):
        raise ConfigError(
            f"The task {options.task!r} is not one of classification, tagging and regression, "
            f"whose heads are a linear layer and so can be compared by layer."
        )
    task, all_rows = read_splits(rows)
    checkpoint, tokenizer, max_length = load_for_task(rows, task)
    config = checkpoint.config
    choices = chosen(config.num_hidden_layers, options.only, each=options.each)
    splits = {
        name: tokenise(name, getattr(rows, name), some, task, tokenizer, max_length)
        for name, some in all_rows.items()
    }
    notes = _notes(splits, task, max_length, choices, config.num_hidden_layers)
    for note in notes:
        say(note)
    max_tokens = default_max_tokens(device)
    states = _states(checkpoint, task, options, splits, choices, device)
    found = []
    for choice in choices:
        fits = _fits(choice, states, splits, task, options, checkpoint, device, max_tokens)
        entry = choice.to_dict() | {"size": choice.size(config.hidden_size)}
        found.append(entry | _summary(fits, _metric(options, task)))
        figures = found[-1]["dev"]
        say(f"{choice.title}: {_metric(options, task)} {_shown(figures)}")
    return {
        "model": options.model,
        "family": checkpoint.family,
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "task": options.task,
        "metric": _metric(options, task),
        "head": _head_words(options, config.hidden_size),
        "rows": {name: len(split.rows) for name, split in splits.items()},
        "digests": {name: split.digest for name, split in splits.items()},
        "max_length": max_length,
        "precision": precision.name,
        "options": asdict(options),
        "notes": notes,
        "choices": found,
        "finetuned": _finetuned(options, task) if options.finetune else None,
    }


def _metric(options: LayersOptions, task: Task) -> str:
    return options.metric or task.selection_metric


def _head_words(options: LayersOptions, hidden_size: int) -> str:
    if options.head == "linear":
        return "linear"
    layers = "layer" if options.depth == 1 else "layers"
    width = options.width or hidden_size
    return f"BiLSTM, {options.depth} {layers} of {width} units in each direction"


def _notes(
    splits: Mapping[str, Split],
    task: Task,
    max_length: int,
    choices: Sequence[Choice],
    num_layers: int,
) -> list[str]:
    notes = []
    for name, split in splits.items():
        cut = len({e.row for e in split.examples if e.truncated}) if not task.windows else 0
        if cut:
            notes.append(
                f"truncation: {cut:,} of {len(split.rows):,} {name} rows are longer than "
                f"{max_length} tokens and were cut"
            )
    if num_layers <= 4 and any(choice.way != "one" for choice in choices):
        notes.append(
            f"the model has {num_layers} layers, so choices that would repeat another are left out"
        )
    return notes


def _states(
    checkpoint: Checkpoint,
    task: Task,
    options: LayersOptions,
    splits: Mapping[str, Split],
    choices: Sequence[Choice],
    device: torch.device,
) -> LayerStates:
    """Hidden states of all rows in all layers that any choice reads."""
    model = build(checkpoint, task, options.training(options.seed)).to(device)
    examples = [example for split in splits.values() for example in split.examples]
    layers = {layer for choice in choices for layer in range(choice.first, choice.behind)}
    with progress_bar() as bar:
        shown = bar.add_task("hidden states", total=len(examples))
        states = compute_states(
            model,
            examples,
            sorted(layers),
            max_tokens=default_max_tokens(device),
            precision=choose_precision(options.precision, device),
            on_batch=lambda count: bar.update(shown, advance=count),
        )
    size = 4 * states.rows_TKH.numel()
    say(f"hidden states of {len(examples):,} sequences computed once, {size / 2**20:,.0f} MiB")
    return states


def _fits(
    choice: Choice,
    states: LayerStates,
    splits: Mapping[str, Split],
    task: Task,
    options: LayersOptions,
    checkpoint: Checkpoint,
    device: torch.device,
    max_tokens: int,
) -> dict[int, Fitted]:
    """A head for every seed."""
    config = checkpoint.config
    assert task.num_labels is not None
    num_labels = task.num_labels

    def new_head() -> LayerHead:
        return LayerHead(
            choice,
            hidden_size=config.hidden_size,
            num_labels=num_labels,
            per_token=task.head_kind == "tokens",
            width=(options.width or config.hidden_size) if options.head == "bilstm" else None,
            depth=options.depth,
            pooling=options.pooling,
            causal=config.causal,
            dropped=options.head_dropout,
        )

    seeds = range(options.seed, options.seed + options.seeds)
    with progress_bar() as bar:
        shown = bar.add_task(choice.title, total=len(seeds))
        fits = {}
        for seed in seeds:
            fits[seed] = fit_head(
                new_head,
                choice,
                states,
                splits,
                task,
                options.training(seed),
                device=device,
                max_tokens=max_tokens,
            )
            bar.update(shown, advance=1)
    return fits


def _summary(fits: Mapping[int, Fitted], metric: str) -> dict[str, Any]:
    first = next(iter(fits.values()))
    summary: dict[str, Any] = {"parameters": first.num_parameters}
    for split in first.metrics:
        summary[split] = spread([fit.metrics[split][metric] for fit in fits.values()])
    weights = [fit.weights for fit in fits.values() if fit.weights is not None]
    if weights:
        summary["weights"] = [statistics.fmean(column) for column in zip(*weights, strict=True)]
    summary["seeds"] = [{"seed": seed, **asdict(fit)} for seed, fit in fits.items()]
    return summary


def spread(values: Sequence[float | None]) -> dict[str, Any]:
    """Mean and sample standard deviation; None where a value is missing or there is but one."""
    there = [float(value) for value in values if value is not None]
    whole = len(there) == len(values)
    return {
        "mean": statistics.fmean(there) if whole else None,
        "deviation": statistics.stdev(there) if whole and len(there) > 1 else None,
        "values": list(values),
    }


def _shown(figures: Mapping[str, Any]) -> str:
    if figures["mean"] is None:
        return "undefined"
    return f"{figures['mean']:.4f}"


def _finetuned(options: LayersOptions, task: Task) -> dict[str, Any]:
    """The whole model trained as often, in folders that are thrown away."""
    metric = _metric(options, task)
    runs: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        for seed in range(options.seed, options.seed + options.seeds):
            say(f"fine-tuning: seed {seed}")
            runs[seed] = finetune(options.rows(seed=seed, out=str(Path(place) / str(seed))))
    first = next(iter(runs.values()))
    entry: dict[str, Any] = {"name": "finetuned", "title": "fine-tuning of the whole model"}
    entry["parameters"] = first["model"]["trained"]
    for split in first["metrics"]:
        entry[split] = spread([run["metrics"][split][metric] for run in runs.values()])
    entry["seeds"] = [
        {"seed": seed, "metrics": run["metrics"], "seconds": run.get("seconds")}
        for seed, run in runs.items()
    ]
    return entry
