"""A pre-training run: read the model and the corpus, train, measure and save.

Everything is read and checked before the run folder is made. Only the token shards of a text
corpus are written earlier. Distillation on raw text prepares a run of its own (distill_text.py).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import (
    for_pretraining,
    fresh_checkpoint,
    replaced_model,
    split_replaced,
)
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.build import build_corpus
from filbert.data.examples import Example
from filbert.data.instances import PretrainLoader, fixed_examples
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, InputError
from filbert.inference.masked_text import measure
from filbert.losses.student import Student
from filbert.model.precision import Precision
from filbert.model.replaced import ReplacedTokenModel
from filbert.tasks.distillation import LayerDistillation
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.text.tokenizer import Tokenizer
from filbert.train.base_model import freeze, with_dropout, with_embeddings
from filbert.train.distill_options import DistillOptions
from filbert.train.distributed import Parallel, Trainable, start
from filbert.train.log import progress_bar, say
from filbert.train.loop import Training, max_tokens_of
from filbert.train.model_folder import save_model
from filbert.train.options import RunOptions, chosen_value
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.provenance import begun, copied, ended, fingerprint
from filbert.train.run_folder import already_finished, check_out, folder_of_all, settle_precision
from filbert.train.schedule import Phase, Schedule

# Default interval of evaluations and saved states: a twentieth of the run, at most 1,000 steps.
_EVALUATIONS = 20
_MOST_STEPS = 1_000


@dataclass(frozen=True)
class TextRun:
    """A run on raw text that is ready to begin.

    Attributes:
        corpora: "train", and "dev" if there is held-out text.
        fingerprint: Hash of everything that determines the result.
        measure: Computes metrics of held-out text with a precision; None without such text.
        more: Further entries of run.json.
    """

    command: str
    options: PretrainOptions | DistillOptions
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    corpora: dict[str, Corpus]
    task: Pretraining | ReplacedTokens | LayerDistillation
    model: Trainable
    phases: list[Phase]
    precision: Precision
    fingerprint: str
    measure: Callable[[Precision], dict[str, float]] | None
    more: dict[str, Any] = field(default_factory=dict)


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Pre-train on raw text, evaluate on held-out text and save the model.

    Returns and raises as `finetune`.
    """
    return run_on_text(options.run, partial(prepare, options))


def run_on_text(options: RunOptions, prepare: Callable[[Parallel], TextRun]) -> dict[str, Any]:
    """Prepare, train, evaluate and save a run; returns and raises as `pretrain`."""
    clock = time.perf_counter()
    with start(options.device) as parallel:
        if parallel.is_first:
            check_out(options)
        job = prepare(parallel)
        finished = already_finished(options, job.fingerprint, parallel)
        if finished is not None:
            return finished
        schedule = Schedule(job.phases, job.options.train)
        # It does not depend on the length of an epoch.
        schedule.interval = max(1, min(_MOST_STEPS, (schedule.steps or 0) // _EVALUATIONS))
        run: dict[str, Any] = {}
        # Projections to the width of a teacher are not saved.
        model = job.model.model if isinstance(job.model, Student) else job.model
        if parallel.is_first:
            run = begun(job, model, clock=clock, parallel=parallel)
            run["data"] = {name: _describe(corpus) for name, corpus in job.corpora.items()}
            run |= {"fingerprint": job.fingerprint} | job.more
            _announce(job, schedule, run)
        with folder_of_all(options, run, parallel) as folder:
            progress = Training(
                model=job.model,
                task=job.task,
                schedule=schedule,
                run=options,
                precision=job.precision,
                parallel=parallel,
                folder=folder,
                fingerprint=job.fingerprint,
                evaluate=partial(job.measure, job.precision) if job.measure else None,
                keep_best=False,
            ).train()
            if parallel.is_first:
                exact = Precision("float32", "final metrics")
                run["metrics"] = {"dev": job.measure(exact)} if job.measure else {}
                run |= ended(progress, schedule=schedule, clock=clock)
                run["tokens"] = progress.tokens
                _save(job, model.state_dict(), run, folder / "model")
    return run


def _save(job: TextRun, weights: dict[str, Tensor], run: dict[str, Any], folder: Path) -> None:
    """Write the folder of the model, and of its generator."""
    generator = None
    checkpoint = dataclasses.replace(job.checkpoint, tensors=weights)
    if isinstance(job.model, ReplacedTokenModel):
        config = job.model.generator.config
        checkpoint, generator = split_replaced(job.checkpoint, weights, config)
    provenance = copied(run) | {"family": run["model"]["family"]}
    save_model(folder, checkpoint, job.tokenizer, provenance, generator=generator)


def _announce(job: TextRun, schedule: Schedule, run: dict[str, Any]) -> None:
    """Print what is known before the first step."""
    corpus = job.corpora["train"]
    say(f"corpus: {corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens")
    say(f"model: {run['model']['family']}, {run['model']['parameters']:,} parameters")
    for note in job.checkpoint.notes:
        say(f"model: {note}")
    for phase in job.phases:
        loader = phase.loader
        assert isinstance(loader, PretrainLoader)
        share = f"{phase.share:.0%} of " if len(job.phases) > 1 else ""
        say(
            f"phase: {share}{schedule.length}, each of {loader.batch_size} rows of up to "
            f"{loader.instances.options.max_length} tokens"
        )
    say(f"precision: {run['precision']} ({run['precision_reason']})")
    if run["device"]["processes"] > 1:
        say(f"processes: {run['device']['processes']}")
    if job.measure is None:
        say("dev: no held-out text, so only the training loss is measured")


def _describe(corpus: Corpus) -> dict[str, Any]:
    return {
        "path": corpus.folder.name,
        "sha256": corpus.digest,
        "documents": corpus.num_documents,
        "sentences": corpus.num_sentences,
        "tokens": corpus.num_tokens,
        "inputs": [
            {"path": Path(entry["path"]).name, "sha256": entry["sha256"], "bytes": entry["bytes"]}
            for entry in corpus.manifest.get("inputs", ())
        ],
    }


# Preparation


def prepare(options: PretrainOptions, parallel: Parallel) -> TextRun:
    """Read and check everything."""
    data, train, objective = options.data, options.train, options.objective
    is_replaced = options.model.objective == "replaced"
    task = ReplacedTokens() if is_replaced else Pretraining(pair=objective.question)
    precision = settle_precision(options.run, parallel)
    torch.manual_seed(options.run.seed)
    check_paths(*(data.corpus or ()), *(data.dev or ()))
    checkpoint, generator, tokenizer = _read_model(options, task.head_kind)
    corpora = open_corpora(data.corpus, data.dev, tokenizer, options.run.out, parallel)
    if is_replaced:
        share = options.model.generator_share
        model: Trainable = replaced_model(checkpoint, share=share, generator=generator)
    else:
        model = checkpoint.build()
    freeze(model, train.freeze)
    phases = _phases(options, corpora["train"], tokenizer, parallel.device)
    # The same masks for every mask rate, so that runs can be compared.
    even = dataclasses.replace(objective, mask_rate=data.dev_mask_rate)
    dev = held_out(corpora, tokenizer, even, data.dev_rows)
    mark = fingerprint(options, model, {name: one.digest for name, one in corpora.items()})
    model = model.to(parallel.device)

    return TextRun(
        command="pretrain",
        options=options,
        checkpoint=checkpoint,
        tokenizer=tokenizer,
        corpora=corpora,
        task=task,
        model=model,
        phases=phases,
        precision=precision,
        fingerprint=mark,
        measure=(lambda one: measure(model, task, dev, precision=one)) if dev else None,
    )


def _phases(
    options: PretrainOptions, corpus: Corpus, tokenizer: Tokenizer, device: torch.device
) -> list[Phase]:
    """Create one phase, or one of short and one of long sequences.

    Source: Devlin et al. 2019, appendix A.2.
    """
    objective, phases, train = options.objective, options.phases, options.train
    rows, seed = chosen_value(train.batch_size), options.run.seed
    new_loader = partial(PretrainLoader, corpus, tokenizer, max_tokens=max_tokens_of(train, device))
    first = new_loader(objective, batch_size=rows, seed=seed)
    if phases.second_length is None:
        return [Phase(first)]
    ratio = phases.second_length / objective.max_length
    most = objective.max_predictions
    longer = dataclasses.replace(
        objective,
        max_length=phases.second_length,
        max_predictions=most and round(most * ratio),
    )
    rows = phases.second_batch_size or max(1, round(rows / ratio))
    # A seed of its own, so that the order of the rows differs from the first phase.
    second = new_loader(longer, batch_size=rows, seed=seed + 1)
    return [Phase(first, 1.0 - phases.second_share), Phase(second, phases.second_share)]


def held_out(
    corpora: dict[str, Corpus], tokenizer: Tokenizer, objective: ObjectiveOptions, limit: int
) -> list[Example]:
    """Return held-out sequences, if any, with masks that are the same in every evaluation."""
    if (corpus := corpora.get("dev")) is None:
        return []
    even = dataclasses.replace(objective, mask_rarity=0.0)
    dev = fixed_examples(corpus, tokenizer, even, limit=limit)
    if not any(len(example.target.labels) for example in dev):
        raise InputError(
            f"{corpus.folder}: nothing in the held-out rows can be masked. Give more text with "
            "--dev, or a higher --dev-mask-rate (of distill: --mask-rate)."
        )
    return dev


def _read_model(
    options: PretrainOptions, head: str
) -> tuple[Checkpoint, Checkpoint | None, Tokenizer]:
    """Create a new model or read the one to continue.

    Returns:
        The checkpoint with the head of the objective, the ELECTRA generator to continue from if
        there is one, and the tokenizer.
    """
    chosen = options.model
    continued = None if chosen.name is None else find_model(chosen.name)
    tokenizer = _tokenizer(options, continued)
    generator = None
    if continued is None:
        checkpoint = fresh_checkpoint(
            chosen.family,
            vocab_size=tokenizer.vocab_size,
            head=head,
            pad_id=tokenizer.pad_id,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            **chosen.sizes,
        )
    else:
        checkpoint = for_pretraining(read_checkpoint(continued), head)
        if head == "discriminator" and (continued / "generator" / "config.json").is_file():
            generator = huggingface.read(continued / "generator")
    checkpoint = with_dropout(checkpoint, options.train.dropout)
    checkpoint = with_embeddings(checkpoint, tokenizer, chosen.embeddings)
    if generator is not None:
        generator = with_dropout(generator, options.train.dropout)
    elif head == "discriminator":
        notes = (*checkpoint.notes, "new generator, drawn at random.")
        checkpoint = dataclasses.replace(checkpoint, notes=notes)
    config = checkpoint.config
    for note in tokenizer.check_fits(
        config.vocab_size, config.embeddings.token_types, Path("the model")
    ):
        say(note)
    for length in (options.objective.max_length, options.phases.second_length):
        config.check_max_length(length)
    return checkpoint, generator, tokenizer


def _tokenizer(options: PretrainOptions, continued: Path | None) -> Tokenizer:
    """Read the named tokenizer, else that of the model, else that of the corpus."""
    named, corpus = options.data.tokenizer, options.data.corpus or ()
    if named is not None:
        file = Path(named)
        if file.is_file():  # a vocab.txt alone
            return Tokenizer.load(file)
        return read_tokenizer(find_model(named, tokenizer_only=True))
    if continued is not None:
        return read_tokenizer(continued)
    if _is_shards(corpus):
        return Tokenizer.load(Path(corpus[0]) / "tokenizer")
    raise ConfigError(
        "Which vocabulary? Name one with --tokenizer (`filbert vocab` learns one), or give a "
        "corpus that `filbert corpus` made."
    )


# Corpora


def check_paths(*paths: str) -> None:
    """Check that files exist."""
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path}: there is no such file. Name a text file or a corpus.")


def open_corpora(
    train: Sequence[str] | None,
    dev: Sequence[str] | None,
    tokenizer: Tokenizer,
    out: str,
    parallel: Parallel,
) -> dict[str, Corpus]:
    """Open "train", and "dev" if there is held-out text; shards of text are made next to `out`."""
    named = {"train": tuple(train or ()), "dev": tuple(dev or ())}
    return {
        name: _open_corpus(name, paths, tokenizer, out, parallel)
        for name, paths in named.items()
        if paths
    }


def _open_corpus(
    name: str, paths: tuple[str, ...], tokenizer: Tokenizer, out: str, parallel: Parallel
) -> Corpus:
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
                f"manifest.json. Name its files, as in {path}/*.txt, or make the corpus first."
            )
    run = Path(out).absolute()
    folder = run.with_name(f"{run.name}.shards") / f"{name}-{tokenizer.fingerprint[:12]}"
    if parallel.is_first:
        say(f"{name}: token shards in {folder.parent.name}/{folder.name}")
        size = sum(Path(path).stat().st_size for path in paths)
        with progress_bar() as bar:
            shown = bar.add_task(f"{name}: bytes", total=size)
            build_corpus(
                paths,
                tokenizer,
                folder,
                workers=None,
                overwrite=True,  # replaces the shards of an earlier attempt
                on_progress=lambda num_bytes, *_: bar.update(shown, completed=num_bytes),
            )
    parallel.barrier()
    return Corpus.open(folder)


def _is_shards(paths: Sequence[str]) -> bool:
    return len(paths) == 1 and (Path(paths[0]) / "manifest.json").is_file()
