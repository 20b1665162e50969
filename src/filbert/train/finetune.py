"""One fine-tuning run, from files to a run folder.

Nothing is written before everything was read and checked.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert import predict
from filbert.data.examples import Example
from filbert.data.loader import Loader
from filbert.data.records import Row, file_digest
from filbert.errors import ConfigError, InputError
from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.files import write_atomically
from filbert.formats.hub import find_model
from filbert.speed.precision import Precision, choose_precision, default_device
from filbert.tasks.base import Task, task_class
from filbert.text.tokenizer import Tokenizer
from filbert.train.facts import Split, closing, label_names, opening, write_json
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.options import FinetuneOptions
from filbert.train.save import save_model
from filbert.train.trainer import MAX_TOKENS_CPU, MAX_TOKENS_CUDA, num_steps, train


def prepare(
    name: str, path: str, rows: list[Row], task: Task, tokenizer: Tokenizer, max_length: int
) -> Split:
    """Check every label, tokenise every text."""
    gold = [task.gold(row) for row in rows]
    examples: list[Example] = []
    with progress_bar() as bar:
        shown = bar.add_task(f"tokenise {name}", total=len(rows))
        for chunk in predict.chunks(rows, lambda row: len(row.values["text"])):
            made = task.examples(chunk, tokenizer, max_length=max_length, with_targets=True)
            start = len(examples)
            examples += [dataclasses.replace(e, row=e.row + start) for e in made]
            bar.update(shown, advance=len(chunk))
    return Split(name, path, rows, gold, examples, file_digest(path))


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse an output folder that holds something.

    Raises:
        ConfigError: it holds a run and `overwrite` is off, or it holds something that is no run.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the run folder to make.")
    if not any(out.iterdir()):
        return
    if not (out / "run.json").is_file():
        raise ConfigError(f"{out} is not empty and holds no run; name a new folder with --out.")
    if not overwrite:
        raise ConfigError(
            f"{out} already holds a run. Name another --out, or replace it with --overwrite."
        )


def finetune(options: FinetuneOptions) -> dict[str, Any]:
    """Train, choose, calibrate, measure, save.

    Returns:
        The content of run.json.

    Raises:
        InputError, ConfigError, FormatError: before anything is written.
        RunError: training could not go on.
    """
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    out = Path(options.out)
    check_out(out, options.overwrite)
    task = task_class(options.task).from_options(options.task_options())
    named = {"train": options.train, "dev": options.dev, "test": options.test}
    paths = {name: path for name, path in named.items() if path}
    all_rows: dict[str, list[Row]] = {}
    for name, path in paths.items():
        all_rows[name] = list(options.columns().read(path))
        if name == "train":
            task = task.fit_labels(all_rows[name])

    device = torch.device(options.device) if options.device else default_device()
    precision = choose_precision(options.precision, device)
    torch.manual_seed(options.seed)
    checkpoint, tokenizer, max_length = load_for_task(options, task)
    model = checkpoint.build().to(device)
    splits = {
        name: prepare(name, paths[name], rows, task, tokenizer, max_length)
        for name, rows in all_rows.items()
    }
    loader = Loader(
        splits["train"].examples,
        batch_size=options.batch_size,
        max_tokens=options.max_tokens
        or (MAX_TOKENS_CUDA if device.type == "cuda" else MAX_TOKENS_CPU),
        seed=options.seed,
    )

    make_run_folder(out, options.overwrite)
    run = opening(options, task, checkpoint, model, splits, max_length, started, precision, device)
    write_json(out / "run.json", run | {"status": "running"})
    steps = num_steps(loader, options)
    for line in _announcement(splits, loader, steps, precision, max_length, checkpoint):
        say(line)

    def scored(split: Split) -> tuple[Tensor, Callable[[Task], dict[str, Any]]]:
        output = predict.run_task(
            model,
            task,
            split.examples,
            max_tokens=predict.MAX_TOKENS_CUDA if device.type == "cuda" else predict.MAX_TOKENS_CPU,
            precision=precision,
        )
        return output, lambda judge: judge.metrics(split.gold, judge.decode(output, split.examples))

    dev = splits.get("dev")
    with RunLog(out, tensorboard=options.tensorboard) as log:
        outcome = train(
            model,
            task,
            loader,
            options,
            precision=precision,
            evaluate=None if dev is None else lambda: scored(dev)[1](task),
            log=log,
        )
    fitted = task
    results: dict[str, Tensor] = {n: scored(s)[0] for n, s in splits.items() if n != "train"}
    if dev is not None:
        fitted = task.calibrate(dev.gold, results["dev"])
    metrics = {}
    for name, output in results.items():
        predictions = fitted.decode(output, splits[name].examples)
        metrics[name] = fitted.metrics(splits[name].gold, predictions)
        _write_predictions(out / "predictions" / f"{name}.jsonl", splits[name], fitted, predictions)
    run |= closing(outcome, fitted, metrics, time.perf_counter() - clock)
    story = {
        "task": fitted.to_dict(),
        "max_length": max_length,
        **{
            key: run[key]
            for key in ("filbert", "options", "versions", "data", "metrics", "precision")
        },
    }
    save_model(out / "model", model, tokenizer, checkpoint, fitted, story)
    write_json(out / "run.json", run)
    return run


def load_for_task(options: FinetuneOptions, task: Task) -> tuple[Checkpoint, Tokenizer, int]:
    """The encoder to start from with a fresh head, its tokenizer, the length to cut texts at."""
    folder = find_model(options.model)
    tokenizer = Tokenizer.load(folder)
    checkpoint = huggingface.read(folder)
    predict.check_vocabulary(tokenizer, checkpoint.config.vocab_size, folder)
    positions = checkpoint.config.max_tokens_per_sequence
    if options.max_length is not None and not 3 <= options.max_length <= positions:
        raise ConfigError(
            f"max_length {options.max_length} is not in 3..{positions}, what this model serves."
        )
    max_length = options.max_length or min(tokenizer.max_length or positions, positions)
    if options.dropout is not None:
        changed = dataclasses.replace(
            checkpoint.config, hidden_dropout=options.dropout, attention_dropout=options.dropout
        )
        checkpoint = dataclasses.replace(checkpoint, config=changed)
    checkpoint = with_new_head(
        checkpoint,
        task.head_kind,
        num_labels=task.num_labels,
        labels=task.labels,
        problem_type=task.problem_type,
    )
    return checkpoint, tokenizer, max_length


def make_run_folder(out: Path, overwrite: bool) -> None:
    """An empty run folder; an earlier run is removed when `overwrite` says so."""
    if overwrite and (out / "run.json").is_file():
        shutil.rmtree(out)
    try:
        (out / "predictions").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The run folder {out} cannot be made: {error.strerror}.") from error


def _announcement(
    splits: dict[str, Split],
    loader: Loader,
    steps: int,
    precision: Precision,
    max_length: int,
    checkpoint: Checkpoint,
) -> list[str]:
    """What a user should know before a run starts."""
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in splits.items())
    lines = [f"rows: {sizes}; {steps:,} steps of {loader.batch_size} rows"]
    lines += [f"model: {note}" for note in checkpoint.notes]
    lines.append(f"precision: {precision.name} ({precision.reason})")
    for name, split in splits.items():
        cut = sum(example.truncated for example in split.examples)
        if cut:
            share = cut / len(split.rows)
            lines.append(
                f"truncation: {cut:,} of {len(split.rows):,} {name} rows ({share:.1%}) are longer "
                f"than {max_length} tokens and were cut"
            )
    if "dev" not in splits:
        lines.append("dev: none given, so no best step is chosen and no threshold is fitted")
    return lines


def _write_predictions(
    path: Path, split: Split, task: Task, predictions: Sequence[dict[str, Any]]
) -> None:
    """One JSON object a row, without its text."""
    lines = [
        json.dumps({"row": i, "line": row.line, "gold": label_names(task, gold)} | prediction)
        for i, (row, gold, prediction) in enumerate(
            zip(split.rows, split.gold, predictions, strict=True)
        )
    ]
    write_atomically(path, "\n".join(lines) + "\n")
