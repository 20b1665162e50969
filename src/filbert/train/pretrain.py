"""One pre-training run, from text or token shards to a run folder.

Nothing is written before everything was read and checked, but for the shards of a text corpus.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader, fixed_examples
from filbert.data.shards import Corpus
from filbert.errors import InputError
from filbert.masked_text import measure
from filbert.model.replaced import ReplacedTokenModel
from filbert.model.student import Student, own_weights
from filbert.speed.execution import default_max_tokens
from filbert.speed.precision import Precision
from filbert.tasks.distillation import PretrainingDistillation
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.text.tokenizer import Tokenizer
from filbert.train.course import Course, Phase, num_steps
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.folder import already_finished, check_out, recorded, settle_precision
from filbert.train.log import RunLog, say
from filbert.train.options import TrainOptions
from filbert.train.prepare import fingerprint
from filbert.train.pretrain_facts import closing, opening
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.pretrain_save import save_pretrained
from filbert.train.pretrain_sources import Sources, read_sources
from filbert.train.story import story_of
from filbert.train.trainable import freeze
from filbert.train.trainer import Outcome, max_tokens_of, train

# Between two evaluations, and saved states, where nothing else is said: a twentieth of the run, but
# no more than so many steps.
_EVALUATIONS = 20
_MOST_STEPS = 1_000


@dataclass
class Job:
    """A run that is ready to begin.

    Attributes:
        sources: tokenizer, corpus and checkpoint.
        task: the objective.
        model: encoder and head, on the device.
        phases: loaders and their shares of the run.
        course: when which of them, and at which learning rate.
        dev: held-out sequences of the first phase's length, with masks.
        precision: of the matrix products.
        fingerprint: of all that decides what the run computes.
        figures: of a model on `dev`, at a precision.
        command: the verb.
        source: the model that it starts from, as the user named it.
        facts: for run.json, worked out by the first rank alone.
    """

    options: PretrainOptions | DistillOptions
    sources: Sources
    task: Pretraining | ReplacedTokens | PretrainingDistillation
    model: Trainable
    phases: list[Phase]
    course: Course
    dev: list[Example]
    precision: Precision
    fingerprint: str
    figures: Callable[[Trainable, Precision], dict[str, float]]
    command: str = "pretrain"
    source: str | None = None
    facts: Callable[[], dict[str, Any]] = dict


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Learn from raw text, measure on held-out text, save.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: before training begins.
        RunError: training could not go on.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    assert options.out is not None
    started = datetime.now(timezone.utc), time.perf_counter()
    with start(options.distributed, options.device) as parallel:
        if parallel.is_first:
            check_out(Path(options.out), overwrite=options.overwrite, resume=options.resume)
        return carry_out(prepare(options, parallel), parallel, started)


def carry_out(job: Job, parallel: Parallel, started: tuple[datetime, float]) -> dict[str, Any]:
    """Train, measure and save what was prepared; returns as `pretrain`.

    Args:
        job: ready to begin.
        parallel: the other ranks.
        started: when the run was, and the clock then.
    """
    options, sources = job.options, job.sources
    assert options.out is not None
    finished = already_finished(options, options.out, job.fingerprint, parallel)
    if finished is not None:
        return finished if parallel.is_first else {}
    if not parallel.is_first:
        _learn(job, parallel, None)
        return {}
    # Projections to a teacher's width are no part of what is kept.
    kept = job.model.model if isinstance(job.model, Student) else job.model
    run = opening(
        job.command, options, job.source, sources, kept, started[0], job.precision, parallel
    )
    run |= {"fingerprint": job.fingerprint} | job.facts()
    for line in announcement(job, run):
        say(line)
    with recorded(options.out, run, resume=options.resume) as folder:
        outcome, metrics = _learn(job, parallel, folder)
        run |= closing(outcome, metrics, time.perf_counter() - started[1])
        save_pretrained(
            folder / "model",
            own_weights(outcome.weights),
            sources.tokenizer,
            sources.checkpoint,
            story_of(run) | {"family": run["model"]["family"]},
            generator=job.model.generator.config
            if isinstance(job.model, ReplacedTokenModel)
            else None,
        )
    return run


def prepare(options: PretrainOptions, parallel: Parallel) -> Job:
    """Read and check everything.

    Raises:
        InputError, ConfigError, FormatError: what is wrong.
    """
    task = ReplacedTokens() if options.objective == "replaced" else Pretraining(pair=options.pair)
    precision = settle_precision(options, options.out, parallel)
    torch.manual_seed(options.seed)
    sources = read_sources(options, task.head_kind, parallel)
    model = sources.build()
    freeze(model, options.freeze)
    phases = _phases(options, sources.corpus, sources.tokenizer, parallel.device)
    dev: list[Example] = []
    if sources.dev is not None:
        # Runs with other rates can be compared by it.
        asked = dataclasses.replace(options, mask_rate=options.dev_mask_rate, mask_rarity=0.0)
        dev = fixed_examples(sources.dev, sources.tokenizer, asked, limit=options.dev_rows)
        if not any(len(example.target.labels) for example in dev):
            raise InputError(
                f"{', '.join(options.dev or ())}: nothing in the held-out rows can be masked. "
                f"Give more text, or a higher --dev-mask-rate."
            )
    mark = fingerprint(options, model, sources.digests)
    model = model.to(parallel.device)

    def figures(model: Trainable, precision: Precision) -> dict[str, float]:
        most = default_max_tokens(parallel.device)
        return measure(model, task, dev, max_tokens=most, precision=precision)

    return Job(
        options,
        sources,
        task,
        model,
        phases,
        course_of(phases, options),
        dev,
        precision,
        mark,
        figures,
        source=options.model,
    )


def course_of(phases: list[Phase], options: TrainOptions) -> Course:
    """The course of a run whose epoch may take days, or a single step."""
    interval = max(1, min(_MOST_STEPS, num_steps(phases[0].loader, options) // _EVALUATIONS))
    return Course(phases, options, interval=interval)


def _phases(
    options: PretrainOptions, corpus: Corpus, tokenizer: Tokenizer, device: torch.device
) -> list[Phase]:
    """One phase, or short sequences first and long ones after. Devlin et al. 2019, appendix A.2."""
    max_tokens = max_tokens_of(options, device)
    first = PretrainLoader(
        corpus,
        tokenizer,
        options,
        batch_size=options.batch_size,
        max_tokens=max_tokens,
        seed=options.seed,
        batch_start=options.batch_start,
        batch_warmup=options.batch_warmup,
    )
    if options.second_length is None:
        return [Phase(first)]
    ratio = options.second_length / options.max_length
    longer = dataclasses.replace(
        options,
        max_length=options.second_length,
        max_predictions=options.max_predictions and round(options.max_predictions * ratio),
    )
    second = PretrainLoader(
        corpus,
        tokenizer,
        longer,
        batch_size=options.second_batch_size or max(1, round(options.batch_size / ratio)),
        max_tokens=max_tokens,
        # Not the rows of the first phase once more in the same order.
        seed=options.seed + 1,
    )
    return [Phase(first, 1.0 - options.second_share), Phase(second, options.second_share)]


def _learn(
    job: Job, parallel: Parallel, folder: Path | None
) -> tuple[Outcome, dict[str, dict[str, float]]]:
    """Train, then measure the held-out text in float32; the figures are those of the first rank."""
    options = job.options
    states = Path(parallel.broadcast(str(folder))) / "state"
    # What is measured; a spread model cannot be, since its parts are elsewhere.
    whole = copy.deepcopy(job.model) if parallel.kind == "fsdp" else job.model

    def evaluate(weights: dict[str, Tensor]) -> dict[str, Any]:
        if whole is not job.model:
            whole.load_state_dict(weights)
        return job.figures(whole, job.precision)

    with RunLog(
        folder,
        tensorboard=options.tensorboard,
        resume=options.resume,
        quiet=not parallel.is_first,
    ) as log:
        outcome = train(
            job.model,
            job.task,
            job.course,
            options,
            precision=job.precision,
            evaluate=evaluate if job.dev else None,
            log=log,
            parallel=parallel,
            keep_best=False,
            states=states,
            fingerprint=job.fingerprint,
        )
    if not parallel.is_first or not job.dev:
        return outcome, {}
    whole.load_state_dict(outcome.weights)
    return outcome, {"dev": job.figures(whole, Precision("float32", "final figures"))}


def announcement(job: Job, run: dict[str, Any]) -> list[str]:
    """What a user should know before a run starts."""
    corpus = job.sources.corpus
    lines = [
        f"corpus: {corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens",
        f"model: {run['model']['family']}, {run['model']['parameters']:,} parameters",
    ]
    lines += [f"model: {note}" for note in job.sources.checkpoint.notes]
    for phase in job.phases:
        loader = phase.loader
        assert isinstance(loader, PretrainLoader)
        lines.append(
            f"phase: {phase.share:.0%} of {job.course.length}, {loader.batch_size} rows of up to "
            f"{loader.instances.options.max_length} tokens"
        )
    lines.append(f"precision: {run['precision']} ({run['precision_reason']})")
    if run["device"]["processes"] > 1:
        lines.append(f"processes: {run['device']['processes']} ({job.options.distributed})")
    if not job.dev:
        lines.append("dev: no held-out text, so nothing but the training loss is measured")
    return lines
