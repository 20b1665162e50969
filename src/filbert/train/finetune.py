"""A fine-tuning run, from files to a run folder.

Everything is read and checked before anything is written.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from filbert.data.loader import Loader
from filbert.train.course import Course, Phase
from filbert.train.distributed import Parallel
from filbert.train.folder import settle_precision
from filbert.train.options import FinetuneOptions
from filbert.train.prepare import build, fingerprint, load_for_task, read_splits, tokenise
from filbert.train.task_run import Job, run_task
from filbert.train.trainable import freeze
from filbert.train.trainer import max_tokens_of


def finetune(options: FinetuneOptions, *, prints_findings: bool = True) -> dict[str, Any]:
    """Train, select the best step, calibrate, measure and save.

    Args:
        options: Of the run.
        prints_findings: Whether findings on the data are printed; run.json has them in any case.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before anything is written.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    return run_task(options.run, lambda parallel: _prepare(options, parallel, prints_findings))


def _prepare(options: FinetuneOptions, parallel: Parallel, prints_findings: bool) -> Job:
    """Read and check everything."""
    task, all_rows = read_splits(options)
    precision = settle_precision(options.run, parallel)
    torch.manual_seed(options.run.seed)
    checkpoint, tokenizer, max_length = load_for_task(options, task)
    model = build(checkpoint, task, options.model.reinit_layers)
    is_frozen = freeze(model, options.train.freeze)
    clock = time.perf_counter()
    splits, took = {}, {}
    for name, rows in all_rows.items():
        started, cpu = time.perf_counter(), time.process_time()
        splits[name] = tokenise(
            name, getattr(options.data, name), rows, task, tokenizer, max_length
        )
        if name == "train":
            took["train_tokenise_seconds"] = time.perf_counter() - started
            took["training_cpu_seconds"] = time.process_time() - cpu
    tokenising = time.perf_counter() - clock
    loader = Loader(
        splits["train"].examples,
        batch_size=options.train.batch_size,
        max_tokens=max_tokens_of(options.train, parallel.device),
        seed=options.run.seed,
    )
    mark = fingerprint(options, model, {name: split.digest for name, split in splits.items()})
    model = model.to(parallel.device)
    return Job(
        options=options,
        train=options.train,
        run=options.run,
        command="finetune",
        source=options.model.name,
        task_name=options.task.name,
        task=task,
        objective=task,
        splits=splits,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        max_length=max_length,
        model=model,
        trained=model,
        is_frozen=is_frozen,
        loader=loader,
        course=Course([Phase(loader)], options.train),
        precision=precision,
        fingerprint=mark,
        tokenise_seconds=tokenising,
        took=took,
        prints_findings=prints_findings,
    )
