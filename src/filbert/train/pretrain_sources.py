"""What a pre-training run starts from: tokenizer, token shards, and a model new or continued."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

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
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, InputError
from filbert.model.heads import Model
from filbert.model.replaced import ReplacedTokenModel
from filbert.text.extend import add_entries
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Parallel
from filbert.train.log import say
from filbert.train.pretrain_options import PretrainOptions

_TELL_SECONDS = 10.0
# Bytes of text that are tokenised sooner than worker processes have started.
_ALONE = 2**22


@dataclasses.dataclass(frozen=True)
class Sources:
    """Everything that was read.

    Attributes:
        tokenizer: of the corpus and the model alike.
        corpus: to train on.
        dev: held out; None when nothing was.
        checkpoint: the model's description and starting weights.
        generator_share: of ELECTRA's generator; None for other objectives.
        generator: to continue with; None for a new one.
    """

    tokenizer: Tokenizer
    corpus: Corpus
    dev: Corpus | None
    checkpoint: Checkpoint
    generator_share: float | None = None
    generator: Checkpoint | None = None

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the corpora."""
        found = {"train": self.corpus.digest}
        return found | ({"dev": self.dev.digest} if self.dev is not None else {})

    def build(self) -> Model | ReplacedTokenModel:
        """The model to train, on the host; what is new is drawn from torch's generator."""
        if self.generator_share is None:
            return self.checkpoint.build()
        return replaced_model(self.checkpoint, share=self.generator_share, generator=self.generator)


def read_sources(options: PretrainOptions, head: str, parallel: Parallel) -> Sources:
    """Read tokenizer, corpora and model; text is made into token shards beside the run folder.

    Raises:
        InputError, ConfigError, FormatError: what is wrong.
    """
    assert options.corpus
    sizes = options.sizes()
    is_default = options.family == PretrainOptions.family
    described = [*sizes, *([] if is_default else ["family"])]
    # What can be said before the text is read, which may take long.
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
    longest = max(options.max_length, options.second_length or 0)
    if continued is None:
        checkpoint = fresh_checkpoint(
            options.family,
            vocab_size=tokenizer.vocab_size,
            head=head,
            pad_id=tokenizer.pad_id,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            **sizes,
        )
    else:
        checkpoint = for_pretraining(read_checkpoint(continued), head)
        if rows_from:
            checkpoint = grow_vocabulary(checkpoint, tokenizer.vocab_size, rows_from)
    config = checkpoint.config
    if options.dropout is not None:
        checkpoint = _with_dropout(checkpoint, options.dropout)
    for note in tokenizer.check_fits(config.vocab_size, config.type_vocab_size, Path("the model")):
        say(note)
    if longest > config.max_tokens_per_sequence:
        raise ConfigError(
            f"Sequences of {longest} tokens; the model's position table ends at "
            f"{config.max_tokens_per_sequence}. Lower max_length or second_length."
        )
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


def _with_dropout(checkpoint: Checkpoint, rate: float) -> Checkpoint:
    return dataclasses.replace(checkpoint, config=checkpoint.config.with_dropout(rate))


def _with_generator(
    checkpoint: Checkpoint, continued: Path | None
) -> tuple[Checkpoint, Checkpoint | None]:
    """The generator that an earlier run left beside its model; a note says when there is none."""
    if continued is not None and (continued / "generator" / "config.json").is_file():
        return checkpoint, huggingface.read(continued / "generator")
    notes = (*checkpoint.notes, "new generator, drawn at random.")
    return dataclasses.replace(checkpoint, notes=notes), None


def _tokenizer(options: PretrainOptions, continued: Path | None) -> Tokenizer:
    """The one that was named, or the model's, or the corpus's."""
    assert options.corpus
    if options.tokenizer is not None:
        file = Path(options.tokenizer)
        if file.is_file():  # vocab.txt by itself will do
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
    """Refuse files that are not there.

    Raises:
        InputError: the first of them.
    """
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"{path}: there is no such file. Name a text file or a corpus.")


def open_corpus(
    name: str, paths: tuple[str, ...], tokenizer: Tokenizer, out: str | None, parallel: Parallel
) -> Corpus:
    """Token shards, made now, beside the run folder `out`, where text was given.

    Raises:
        InputError, ConfigError: a folder that is no corpus, or one of another vocabulary.
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
            workers=default_workers() if size > _ALONE else 1,
            overwrite=True,  # the folder is ours: what an earlier try left there is not in the way
            on_progress=_teller(name),
        )
    parallel.barrier()
    return Corpus.open(folder)


def _teller(name: str) -> Callable[[Progress], None]:
    """Says every ten seconds how far the tokenising is."""
    told = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told
        if progress.seconds >= told + _TELL_SECONDS:
            told = progress.seconds
            say(
                f"{name}: {progress.num_bytes / 1e6:,.0f} MB, "
                f"{progress.num_tokens / 1e6:,.1f} M tokens, "
                f"{progress.num_bytes / 1e6 / progress.seconds:,.1f} MB/s"
            )

    return tell


def _entries(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the list of new tokens cannot be read: {error}.") from error
    return [line.strip() for line in lines if line.strip()]
