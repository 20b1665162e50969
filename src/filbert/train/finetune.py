"""One fine-tuning run, from files to a run folder.

Nothing is written before everything was read and checked.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert import predict
from filbert.data.chunks import characters_in, chunks
from filbert.data.columns import text_of
from filbert.data.examples import Example
from filbert.data.loader import Loader
from filbert.data.records import Row, file_digest
from filbert.errors import ConfigError
from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.files import write_atomically
from filbert.formats.hub import find_model
from filbert.model.heads import Model
from filbert.speed.precision import Precision, choose_device, choose_precision
from filbert.tasks.base import Task, task_class
from filbert.text.tokenizer import Tokenizer
from filbert.train.facts import Split, closing, label_names, opening, write_json
from filbert.train.folder import check_out, run_folder
from filbert.train.log import RunLog, progress_bar, say
from filbert.train.options import FinetuneOptions
from filbert.train.save import save_model
from filbert.train.trainer import MAX_TOKENS_CPU, MAX_TOKENS_CUDA, Outcome, num_steps, train


def prepare(
    name: str, path: str, rows: list[Row], task: Task, tokenizer: Tokenizer, max_length: int
) -> Split:
    """Check every label, tokenise every text."""
    gold = [task.gold(row) for row in rows]
    examples: list[Example] = []
    with progress_bar() as bar:
        shown = bar.add_task(f"tokenise {name}", total=len(rows))
        for chunk in chunks(rows, lambda row: characters_in(text_of(row))):
            made = task.examples(chunk, tokenizer, max_length=max_length, with_targets=True)
            start = len(examples)
            examples += [dataclasses.replace(e, row=e.row + start) for e in made]
            bar.update(shown, advance=len(chunk))
    return Split(name, path, rows, gold, examples, file_digest(path))


def finetune(options: FinetuneOptions) -> dict[str, Any]:
    """Train, choose, calibrate, measure, save.

    Returns:
        The content of run.json.

    Raises:
        InputError, ConfigError, FormatError: before anything is written.
        RunError: training could not go on.
    """
    started, clock = datetime.now(timezone.utc), time.perf_counter()
    out = Path(options.out).absolute()
    check_out(out, options.overwrite)
    task = task_class(options.task).from_options(options.task_options())
    named = {"train": options.train, "dev": options.dev, "test": options.test}
    paths = {name: path for name, path in named.items() if path}
    all_rows: dict[str, list[Row]] = {}
    for name, path in paths.items():
        all_rows[name] = list(options.columns().read(path))
        if name == "train":
            task = task.fit_labels(all_rows[name])
    if options.metric is not None and options.metric not in task.metric_names:
        raise ConfigError(f"metric {options.metric!r} is not one of {list(task.metric_names)}.")

    device = choose_device(options.device)
    precision = choose_precision(options.precision, device)
    torch.manual_seed(options.seed)
    checkpoint, tokenizer, max_length = load_for_task(options, task)
    model = checkpoint.build().to(device)
    tokenising = time.perf_counter()
    splits = {
        name: prepare(name, paths[name], rows, task, tokenizer, max_length)
        for name, rows in all_rows.items()
    }
    tokenising = time.perf_counter() - tokenising
    loader = Loader(
        splits["train"].examples,
        batch_size=options.batch_size,
        max_tokens=options.max_tokens
        or (MAX_TOKENS_CUDA if device.type == "cuda" else MAX_TOKENS_CPU),
        seed=options.seed,
    )

    run = opening(options, task, checkpoint, model, splits, max_length, started, precision, device)
    run["tokenise_seconds"] = tokenising
    for line in _announcement(splits, loader, num_steps(loader, options), run, checkpoint):
        say(line)
    with run_folder(out) as folder:
        write_json(folder / "run.json", run | {"status": "running"})
        try:
            outcome, fitted, outputs = _learn(
                model, task, loader, splits, options, precision, folder
            )
            metrics = {}
            for name, output in outputs.items():
                predictions = fitted.decode(output, splits[name].examples)
                metrics[name] = fitted.metrics(splits[name].gold, predictions)
                to = folder / "predictions" / f"{name}.jsonl"
                _write_predictions(to, splits[name], fitted, predictions)
            run |= closing(outcome, fitted, metrics, time.perf_counter() - clock)
            told = ("filbert", "options", "versions", "data", "metrics", "precision")
            story = {key: run[key] for key in told}
            story |= {"task": fitted.to_dict(), "max_length": max_length}
            save_model(folder / "model", model, tokenizer, checkpoint, fitted, story)
        except BaseException as error:
            stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            write_json(folder / "run.json", run | {"status": stopped})
            raise
        write_json(folder / "run.json", run)
    return run


def _learn(
    model: Model,
    task: Task,
    loader: Loader,
    splits: dict[str, Split],
    options: FinetuneOptions,
    precision: Precision,
    folder: Path,
) -> tuple[Outcome, Task, dict[str, Tensor]]:
    """Train, then run dev and test through the chosen weights and calibrate on dev."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    max_tokens = predict.MAX_TOKENS_CUDA if on_gpu else predict.MAX_TOKENS_CPU

    def outputs_of(split: Split, precision: Precision = precision) -> Tensor:
        return predict.run_task(model, split.examples, max_tokens=max_tokens, precision=precision)

    def evaluate() -> dict[str, Any]:
        dev = splits["dev"]
        return task.metrics(dev.gold, task.decode(outputs_of(dev), dev.examples))

    with RunLog(folder, tensorboard=options.tensorboard) as log:
        outcome = train(
            model,
            task,
            loader,
            options,
            precision=precision,
            evaluate=evaluate if "dev" in splits else None,
            log=log,
        )
    # The last word is in float32, as `predict` and `evaluate` will speak.
    exact = Precision("float32", "final figures")
    outputs = {n: outputs_of(split, exact) for n, split in splits.items() if n != "train"}
    if "dev" in splits:
        task = task.calibrate(splits["dev"].gold, outputs["dev"])
    return outcome, task, outputs


def load_for_task(options: FinetuneOptions, task: Task) -> tuple[Checkpoint, Tokenizer, int]:
    """The encoder to start from with a fresh head, its tokenizer, the length to cut texts at."""
    folder = find_model(options.model)
    tokenizer = Tokenizer.load(folder)
    checkpoint = huggingface.read(folder)
    config = checkpoint.config
    for note in tokenizer.check_fits(config.vocab_size, config.type_vocab_size, folder):
        say(note)
    positions = config.max_tokens_per_sequence
    max_length = predict.check_max_length(options.max_length, checkpoint.config)
    max_length = max_length or min(tokenizer.max_length or positions, positions)
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


def _announcement(
    splits: dict[str, Split],
    loader: Loader,
    steps: int,
    run: dict[str, Any],
    checkpoint: Checkpoint,
) -> list[str]:
    """What a user should know before a run starts."""
    sizes = ", ".join(f"{len(split.rows):,} {name}" for name, split in splits.items())
    lines = [f"rows: {sizes}; {steps:,} steps of {loader.batch_size} rows"]
    lines += [f"model: {note}" for note in checkpoint.notes]
    lines.append(f"precision: {run['precision']} ({run['precision_reason']})")
    max_length = run["data"]["train"]["max_length"]
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
