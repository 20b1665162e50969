"""A pre-training run: read the model and the corpus, train, measure and save.

Everything is read and checked before the run folder is made. Only the token shards of a text
corpus are written earlier.
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

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import (
    for_pretraining,
    fresh_checkpoint,
    grow_vocabulary,
    replaced_model,
)
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.blocks import default_workers
from filbert.data.build import Progress, build_corpus
from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader, fixed_examples
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, InputError
from filbert.inference.forward import default_max_tokens
from filbert.inference.masked_text import measure
from filbert.losses.student import Student, own_weights
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.model.replaced import ReplacedTokenModel
from filbert.tasks.distillation import LayerDistillation
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.text.extend import add_entries
from filbert.text.tokenizer import Tokenizer
from filbert.train.course import Course, Phase, num_steps
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.facts import begun, ended, story_of
from filbert.train.folder import already_finished, check_out, recorded, settle_precision
from filbert.train.log import RunLog, say
from filbert.train.options import TrainOptions
from filbert.train.prepare import fingerprint
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.save import save_pretrained
from filbert.train.trainable import freeze
from filbert.train.trainer import Outcome, max_tokens_of, train

# Default interval of evaluations and saved states: a twentieth of the run, at most 1,000 steps.
_EVALUATIONS = 20
_MOST_STEPS = 1_000
_PRINT_SECONDS = 10.0
# Up to this number of bytes, one process is faster than starting worker processes.
_ONE_PROCESS_BYTES = 2**22


@dataclass
class Job:
    """A run on raw text that is ready to begin.

    Attributes:
        options: Of the run.
        sources: Tokenizer, corpora and checkpoint.
        task: The objective.
        model: The trained module, on the device.
        phases: Loaders and their shares of the run.
        course: Schedule of phases, steps and learning rates.
        dev: Held-out sequences of the length of the first phase, with masks.
        precision: Number format of the matrix products.
        fingerprint: Hash of everything that determines the result.
        figures: Computes metrics of a model on `dev` with a precision.
        command: The verb.
        source: The model to start from, as the user named it.
        facts: Returns further entries of run.json; called on the first rank only.
    """

    options: PretrainOptions | DistillOptions
    sources: Sources
    task: Pretraining | ReplacedTokens | LayerDistillation
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

    @property
    def checkpoint(self) -> Checkpoint:
        """Description and starting weights of the model."""
        return self.sources.checkpoint

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of model and corpus."""
        return self.sources.tokenizer


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Pre-train on raw text, evaluate on held-out text and save the model.

    Returns:
        The content of run.json; under torchrun on the first process, {} on the others.

    Raises:
        InputError, ConfigError, FormatError: Before training begins.
        RunError: Training cannot continue.
        Interrupted: Ctrl-C or SIGTERM; the state is saved.
    """
    started = datetime.now(timezone.utc), time.perf_counter()
    with start(options.distributed, options.device) as parallel:
        if parallel.is_first:
            check_out(Path(options.out), overwrite=options.overwrite, resume=options.resume)
        return carry_out(prepare(options, parallel), parallel, started)


def carry_out(job: Job, parallel: Parallel, started: tuple[datetime, float]) -> dict[str, Any]:
    """Train, evaluate and save a prepared run.

    Args:
        job: The run.
        parallel: The group of processes.
        started: Start of the run, as a date and as a value of `time.perf_counter`.

    Returns:
        As `pretrain`.
    """
    options, sources = job.options, job.sources
    finished = already_finished(options, job.fingerprint, parallel)
    if finished is not None:
        return finished if parallel.is_first else {}
    if not parallel.is_first:
        _learn(job, parallel, None)
        return {}
    # Projections to the width of a teacher are not saved.
    kept = job.model.model if isinstance(job.model, Student) else job.model
    run = opening(job, kept, started=started[0], parallel=parallel)
    for line in announcement(job, run):
        say(line)
    with recorded(options.out, run, resume=options.resume) as folder:
        outcome, metrics = _learn(job, parallel, folder)
        run |= ended(outcome, metrics, time.perf_counter() - started[1])
        run["tokens"] = outcome.num_tokens
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
        InputError, ConfigError, FormatError: An input or an option is wrong.
    """
    task = ReplacedTokens() if options.objective == "replaced" else Pretraining(pair=options.pair)
    precision = settle_precision(options, parallel)
    torch.manual_seed(options.seed)
    sources = read_sources(options, task.head_kind, parallel)
    model = sources.build()
    freeze(model, options.freeze)
    phases = _phases(options, sources.corpus, sources.tokenizer, parallel.device)
    dev: list[Example] = []
    if sources.dev is not None:
        # The same masks for every mask rate, so that runs can be compared.
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
    """Create the schedule; the evaluation interval does not depend on the length of an epoch."""
    interval = max(1, min(_MOST_STEPS, num_steps(phases[0].loader, options) // _EVALUATIONS))
    return Course(phases, options, interval=interval)


def _phases(
    options: PretrainOptions, corpus: Corpus, tokenizer: Tokenizer, device: torch.device
) -> list[Phase]:
    """Create one phase, or one of short and one of long sequences.

    Source: Devlin et al. 2019, appendix A.2.
    """
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
        # A seed of its own, so that the order of the rows differs from the first phase.
        seed=options.seed + 1,
    )
    return [Phase(first, 1.0 - options.second_share), Phase(second, options.second_share)]


def _learn(
    job: Job, parallel: Parallel, folder: Path | None
) -> tuple[Outcome, dict[str, dict[str, float]]]:
    """Train, then compute metrics on held-out text in float32, on the first rank only."""
    options = job.options
    states = Path(parallel.broadcast(str(folder))) / "state"
    # Under FSDP each rank holds a part of the weights, so a whole copy is used for evaluation.
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
            course=job.course,
            options=options,
            run=options,
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
    """Return the lines that are printed before the run starts."""
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


def opening(job: Job, model: Trainable, *, started: datetime, parallel: Parallel) -> dict[str, Any]:
    """Return run.json as it is before the first step; `model` is the one that will be saved."""
    data = {"train": _corpus_facts(job.sources.corpus)}
    if job.sources.dev is not None:
        data["dev"] = _corpus_facts(job.sources.dev)
    run = begun(job, model, out=job.options.out, started=started, parallel=parallel)
    return run | {"data": data, "fingerprint": job.fingerprint} | job.facts()


def _corpus_facts(corpus: Corpus) -> dict[str, Any]:
    return {
        "path": str(corpus.folder.name),
        "sha256": corpus.digest,
        "documents": corpus.num_documents,
        "sentences": corpus.num_sentences,
        "tokens": corpus.num_tokens,
        "inputs": [
            {"path": Path(entry["path"]).name, "sha256": entry["sha256"], "bytes": entry["bytes"]}
            for entry in corpus.manifest.get("inputs", ())
        ],
    }


@dataclasses.dataclass(frozen=True)
class Sources:
    """The inputs of a run, created by `read_sources`.

    Attributes:
        tokenizer: Used by corpus and model.
        corpus: Training text.
        dev: Held-out text, or None.
        checkpoint: Description and starting weights of the model.
        generator_share: Relative width of the ELECTRA generator; None for other objectives.
        generator: The generator to continue from; None for a new one.
    """

    tokenizer: Tokenizer
    corpus: Corpus
    dev: Corpus | None
    checkpoint: Checkpoint
    generator_share: float | None = None
    generator: Checkpoint | None = None

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the corpora by split."""
        found = {"train": self.corpus.digest}
        return found | ({"dev": self.dev.digest} if self.dev is not None else {})

    def build(self) -> Model | ReplacedTokenModel:
        """Build the model on the CPU; new weights are drawn from the default generator of torch."""
        if self.generator_share is None:
            return self.checkpoint.build()
        return replaced_model(self.checkpoint, share=self.generator_share, generator=self.generator)


def read_sources(options: PretrainOptions, head: str, parallel: Parallel) -> Sources:
    """Read tokenizer, corpora and model; text is written as token shards next to the run folder.

    Raises:
        InputError, ConfigError, FormatError: An input or an option is wrong.
    """
    assert options.corpus
    sizes = options.sizes()
    is_default = options.family == PretrainOptions.family
    described = [*sizes, *([] if is_default else ["family"])]
    # These checks come first, because reading the text may take long.
    if options.model is not None and described:
        raise ConfigError(
            f"{', '.join(described)} describe a new model, but {options.model} is to be continued. "
            f"Leave out one or the other."
        )
    check_paths(*options.corpus, *(options.dev or ()))
    continued = None if options.model is None else find_model(options.model)
    tokenizer = _tokenizer(options, continued)
    rows_from: dict[int, tuple[int, ...]] = {}
    if options.new_tokens is not None:
        tokenizer, rows_from, notes = add_entries(tokenizer, _entries(options.new_tokens))
        for note in notes:
            say(f"vocabulary: {note}")
    checkpoint = _checkpoint(options, head, tokenizer, continued, rows_from)
    generator = None
    if head == "discriminator":
        checkpoint, generator = _with_generator(checkpoint, continued)
        if generator is not None and rows_from:
            generator = grow_vocabulary(generator, tokenizer.vocab_size, rows_from)
        if generator is not None and options.dropout is not None:
            generator = _with_dropout(generator, options.dropout)
    corpus = open_corpus("train", options.corpus, tokenizer, options.out, parallel)
    dev = None
    if options.dev:
        dev = open_corpus("dev", options.dev, tokenizer, options.out, parallel)
    share = options.generator_share if head == "discriminator" else None
    return Sources(tokenizer, corpus, dev, checkpoint, share, generator)


def _checkpoint(
    options: PretrainOptions,
    head: str,
    tokenizer: Tokenizer,
    continued: Path | None,
    rows_from: dict[int, tuple[int, ...]],
) -> Checkpoint:
    """Create a new model, or read the one to continue, with rows for new vocabulary entries."""
    longest = max(options.max_length, options.second_length or 0)
    if continued is None:
        checkpoint = fresh_checkpoint(
            options.family,
            vocab_size=tokenizer.vocab_size,
            head=head,
            pad_id=tokenizer.pad_id,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            **options.sizes(),
        )
    else:
        checkpoint = for_pretraining(read_checkpoint(continued), head)
        if rows_from:
            checkpoint = grow_vocabulary(checkpoint, tokenizer.vocab_size, rows_from)
    config = checkpoint.config
    if options.dropout is not None:
        checkpoint = _with_dropout(checkpoint, options.dropout)
    for note in tokenizer.check_fits(
        config.vocab_size, config.embeddings.token_types, Path("the model")
    ):
        say(note)
    if longest > config.max_tokens_per_sequence:
        raise ConfigError(
            f"Sequences of {longest} tokens; the model's position table ends at "
            f"{config.max_tokens_per_sequence}. Lower max_length or second_length."
        )
    return checkpoint


def _with_dropout(checkpoint: Checkpoint, rate: float) -> Checkpoint:
    return dataclasses.replace(checkpoint, config=checkpoint.config.with_dropout(rate))


def _with_generator(
    checkpoint: Checkpoint, continued: Path | None
) -> tuple[Checkpoint, Checkpoint | None]:
    """Return the generator that the model folder contains; without one, add a note."""
    if continued is not None and (continued / "generator" / "config.json").is_file():
        return checkpoint, huggingface.read(continued / "generator")
    notes = (*checkpoint.notes, "new generator, drawn at random.")
    return dataclasses.replace(checkpoint, notes=notes), None


def _tokenizer(options: PretrainOptions, continued: Path | None) -> Tokenizer:
    """Read the named tokenizer, else that of the model, else that of the corpus."""
    assert options.corpus
    if options.tokenizer is not None:
        file = Path(options.tokenizer)
        if file.is_file():  # a vocab.txt alone
            return Tokenizer.load(file)
        return read_tokenizer(find_model(options.tokenizer, tokenizer_only=True))
    if continued is not None:
        return read_tokenizer(continued)
    if _is_shards(options.corpus):
        return Tokenizer.load(Path(options.corpus[0]) / "tokenizer")
    raise ConfigError(
        "Which vocabulary? Name one with --tokenizer (`filbert vocab` learns one), or give a "
        "corpus that `filbert corpus` made."
    )


def _is_shards(paths: tuple[str, ...]) -> bool:
    return len(paths) == 1 and (Path(paths[0]) / "manifest.json").is_file()


def check_paths(*paths: str) -> None:
    """Check that files exist.

    Raises:
        InputError: A file is missing.
    """
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path}: there is no such file. Name a text file or a corpus.")


def open_corpus(
    name: str, paths: tuple[str, ...], tokenizer: Tokenizer, out: str | None, parallel: Parallel
) -> Corpus:
    """Open token shards, or create them from text, next to the run folder `out`.

    Raises:
        InputError, ConfigError: A folder is no corpus, or was made with another vocabulary.
    """
    if _is_shards(paths):
        corpus = Corpus.open(paths[0])
        if corpus.manifest["tokenizer"] != tokenizer.fingerprint:
            raise ConfigError(
                f"{paths[0]} was made with another vocabulary. Make it again with "
                f"`filbert corpus ... --tokenizer`, or give its own."
            )
        return corpus
    for path in paths:
        if _is_shards((path,)):
            raise ConfigError(
                f"{path} is a corpus, and corpora are not joined with each other or with text. "
                "Make one of all the text: filbert corpus FILE ... --out DIR."
            )
        if Path(path).is_dir():
            raise InputError(
                f"{path} is a folder, but not one that `filbert corpus` made: it has no "
                f"manifest.json. Name text files, or make the corpus first."
            )
    run = Path(out or "runs/pretrain").absolute()
    folder = run.with_name(f"{run.name}.shards") / f"{name}-{tokenizer.fingerprint[:12]}"
    if parallel.is_first:
        say(f"{name}: token shards in {folder.parent.name}/{folder.name}")
        size = sum(Path(path).stat().st_size for path in paths)
        build_corpus(
            paths,
            tokenizer,
            folder,
            workers=default_workers() if size > _ONE_PROCESS_BYTES else 1,
            overwrite=True,  # replaces the shards of an earlier attempt
            on_progress=_progress_printer(name),
        )
    parallel.barrier()
    return Corpus.open(folder)


def _progress_printer(name: str) -> Callable[[Progress], None]:
    """Return a callback that prints the progress of tokenisation every ten seconds."""
    printed = 0.0

    def show(progress: Progress) -> None:
        nonlocal printed
        if progress.seconds >= printed + _PRINT_SECONDS:
            printed = progress.seconds
            say(
                f"{name}: {progress.num_bytes / 1e6:,.0f} MB, "
                f"{progress.num_tokens / 1e6:,.1f} M tokens, "
                f"{progress.num_bytes / 1e6 / progress.seconds:,.1f} MB/s"
            )

    return show


def _entries(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the list of new tokens cannot be read: {error}.") from error
    return [line.strip() for line in lines if line.strip()]
