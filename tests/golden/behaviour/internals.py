"""The only part of the record that imports modules inside filbert: edit it when they move.

Run as a script, it is one process of two that share a step's gradient.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np


def command_line(arguments: Sequence[str]) -> int:
    """Run one command in this process and return its exit status."""
    from filbert.cli.main import run

    return run(arguments)


@contextmanager
def cheap() -> Iterator[None]:
    """One thread, no plots, and comparisons in this process: most of the time of tiny runs."""
    from unittest import mock

    import torch

    from filbert.compare.contestants import run_contestant
    from filbert.errors import FilbertError

    def run_here(run: Any, **_: Any) -> tuple[str, str | None]:
        run.write()
        try:
            run_contestant(run)
        except FilbertError as error:
            return "failed", str(error)
        return "finished", None

    def undrawn(_: Any, path: Path) -> None:
        path.write_bytes(b"\x89PNG")

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with (
        mock.patch("filbert.report.plots.write_png", undrawn),
        mock.patch("filbert.compare.study.run_child", run_here),
    ):
        yield
    torch.set_num_threads(threads)


class Killed(BaseException):
    """Ends a run as a kill does: nothing catches it."""


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """A training run that begins here ends when its optimiser step `step`, from 1, begins."""
    from unittest import mock

    from filbert.train import loop

    real, calls = loop.accumulate, iter(range(1, step))

    def dies(*arguments: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise Killed
        return real(*arguments, **options)

    with mock.patch.object(loop, "accumulate", dies), suppress(Killed):
        yield


def logits(folder: Path, items: Sequence[Any]) -> list[np.ndarray]:
    """The head's output of each item: (labels,), or (tokens, labels) where the head reads tokens.

    An item is what `predict` takes; without a task, a text.
    """
    import filbert
    from filbert.inference.forward import run_model
    from filbert.tasks.rows import row_of_value

    model = filbert.load(folder)
    if model.task is None:
        examples = model.text_examples(items)
    else:
        examples = model.row_examples(
            [row_of_value(model.task, item, i) for i, item in enumerate(items)]
        )
    found = run_model(model.model, examples, max_tokens=model.max_tokens, precision=model.precision)
    return [output.numpy() for output in found]


def masked_rows(corpus: Path, limit: int, **objective: Any) -> list[dict[str, Any]]:
    """Rows that the corpus reader makes for pre-training: ids after masking, and what is wanted."""
    from filbert.data.instances import ObjectiveOptions, PretrainLoader, fixed_examples
    from filbert.data.shards import TOKENIZER, Corpus
    from filbert.text.tokenizer import Tokenizer

    opened, tokenizer = Corpus.open(corpus), Tokenizer.load(corpus / TOKENIZER)
    options = ObjectiveOptions(**objective)
    loader = PretrainLoader(opened, tokenizer, options, batch_size=4, max_tokens=64, seed=3)
    second_epoch = [e for batch in loader.step(loader.steps_per_epoch) for e in batch]
    return [
        {
            "row": example.row,
            "ids": example.input_ids.tolist(),
            "types": example.token_type_ids.tolist(),
            "positions": example.target.positions.tolist(),
            "labels": example.target.labels.tolist(),
            "pair": example.target.pair,
        }
        for example in [*fixed_examples(opened, tokenizer, options, limit=limit), *second_epoch]
    ]


def gradient(folder: Path, rows: Path, micro_batches: int) -> dict[str, np.ndarray]:
    """The gradient of one optimiser step, and its loss, in this process or as one of several.

    Args:
        folder: a classification model.
        rows: a file of labelled rows, all of which make the step.
        micro_batches: into which the rows of a process are cut; the last are smaller.
    """
    import filbert
    from filbert.checkpoints.opening import read_checkpoint
    from filbert.data.columns import ColumnNames
    from filbert.model.precision import Precision
    from filbert.tasks.rows import read_task_rows
    from filbert.train.distributed import start
    from filbert.train.step import accumulate, model_forward

    predictor, model = filbert.load(folder), read_checkpoint(folder).build().train()
    task = predictor.task
    read = list(read_task_rows(task, rows, ColumnNames()))
    examples = task.examples(read, predictor.tokenizer, max_length=64, with_targets=True)
    with start("cpu") as parallel:
        mine = examples[parallel.rank :: parallel.world]
        size = -(-len(mine) // micro_batches)
        wrapped = parallel.wrap(model)
        step = accumulate(
            model_forward(wrapped, parallel.device),
            wrapped,
            task,
            [mine[i * size : (i + 1) * size] for i in range(micro_batches)],
            parallel=parallel,
            precision=Precision("float32", "exact"),
            seed=(0, 1),
            stand_in=examples[:1],
        )
        found = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    return found | {"loss": np.array([step.loss])}


def gradient_of_two(folder: Path, rows: Path, out: Path) -> dict[str, np.ndarray]:
    """The same of two processes, two micro-batches each, as the first of them has it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    command = [sys.executable, __file__, str(folder), str(rows), str(out)]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | where | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"},
        )
        for rank in "01"
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    return dict(np.load(out))


if __name__ == "__main__":
    found = gradient(Path(sys.argv[1]), Path(sys.argv[2]), 2)
    if os.environ["RANK"] == "0":
        np.savez(sys.argv[3], **found)
