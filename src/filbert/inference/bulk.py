"""Any number of rows through a model: in order, in fixed memory, and continued after a kill.

Rows are read in chunks; an engine answers the chunks, in this process or with Ray; an output takes
the answers in order. An output file that is not finished is a folder NAME.unfinished with the
answers so far and a journal. The first line of the journal is the plan: what must be the same when
the work is continued. Every further line describes a chunk and is written when its answers are on
the disk. A kill at any moment leaves a journal that is true, apart from a last line that broke off;
answers beyond the journal are dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import IO, Any, cast

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.loader import one_ahead
from filbert.data.records import Row
from filbert.data.texts import CHUNK_CHARACTERS, chunks, text_of
from filbert.data.vectors import VectorFile
from filbert.errors import ConfigError, FormatError, InputError, Interrupted
from filbert.files import flush, locked
from filbert.inference.answer_file import answer_line, complete
from filbert.inference.int8 import float_layers
from filbert.inference.predictor import Predictor
from filbert.model.heads import Model
from filbert.tasks.base import cleaning_of, task_to_dict
from filbert.tasks.rows import row_texts
from filbert.text.tokenizer import Text, characters_in

# Floats of a chunk with a vector per token: fixed memory, however long the texts.
_FLOATS = 2**23
ANSWERS, JOURNAL = "answers", "journal.jsonl"
_FILES = (ANSWERS, f"{ANSWERS}.csv", f"{ANSWERS}.parquet", JOURNAL, f"{JOURNAL}.tmp")
# The key of a row's kept columns.
KEPT = "(kept columns)"

OnTokens = Callable[[int], None]


# Chunks of rows, and what is computed from them


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows that are answered together.

    Attributes:
        number: Of the chunk, from 0.
        first: Rows before it.
        rows: Of the chunk.
        digest: Of the content of its rows.
    """

    number: int
    first: int
    rows: list[Row]
    digest: str

    def part(self, content: bytes, num_truncated: int) -> ChunkResult:
        """The answers to this chunk."""
        return ChunkResult(self.number, len(self.rows), num_truncated, self.digest, content)


@dataclass(frozen=True)
class ChunkResult:
    """The answers to a chunk; `content` goes into the file, the rest describes the chunk."""

    number: int
    num_rows: int
    num_truncated: int
    digest: str
    content: bytes


@dataclass(frozen=True)
class Answers:
    """The task's answers, one a row.

    Attributes:
        predictor: The model.
        kind: Ending of the file: .csv, .parquet, or else JSON Lines.
        limit: A chunk ends when the sizes of its rows reach it.
        beginning: What the file begins with.
    """

    predictor: Predictor
    kind: str = ".jsonl"
    limit: int = CHUNK_CHARACTERS
    beginning: bytes = b""

    def sequences(self, row: Row) -> list[Text]:
        """The texts of a row."""
        return row_texts(self.predictor.known_task(), row)

    def size_of(self, row: Row) -> int:
        """Characters of a row."""
        texts = row_texts(self.predictor.known_task(), row, clean=False)
        return sum(map(characters_in, texts))

    def encode(self, chunk: Chunk) -> list[Example]:
        """The tokens of a chunk; may run in another thread than `answer`."""
        return self.predictor.row_examples(chunk.rows)

    def answer(self, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> ChunkResult:
        """Lines of JSON; `on_batch` is called with the tokens of each batch."""
        answers = self.predictor.answers(examples, on_batch)
        pairs = zip(answers, chunk.rows, strict=True)
        lines = "".join(answer_line(answer, row.values.get(KEPT, {})) for answer, row in pairs)
        # An unpaired surrogate becomes the escape that JSON has for it.
        content = lines.encode("utf-8", "backslashreplace")
        return chunk.part(content, sum(answer["truncated"] for answer in answers))

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """The finished file, made of the beginning and the chunks of these sizes in bytes."""
        return complete(path, self.kind, sizes)

    def options(self) -> dict[str, Any]:
        """What decides the answers, in addition to the model's weights."""
        return {"verb": "predict", **_options_of(self.predictor)}


@dataclass(frozen=True)
class Vectors:
    """Vectors of texts, in a vector file; members as those of `Answers`."""

    predictor: Predictor
    kind: str
    pooling: str | None = None
    normalize: bool | None = None
    layers: tuple[int, ...] = (-1,)

    @property
    def file(self) -> VectorFile:
        """The layout of the file."""
        width = self.predictor.vector_size(self.pooling, self.layers)
        return VectorFile(self.kind, width, self.per_token)

    @property
    def per_token(self) -> bool:
        """One vector a token rather than a text."""
        return self.pooling == "none"

    @property
    def limit(self) -> int:
        """Characters; with a vector per token, floats."""
        if not self.per_token:
            return CHUNK_CHARACTERS
        return max(_FLOATS, 2 * self.predictor.max_tokens * self.file.width)

    @property
    def beginning(self) -> bytes:
        """Of the vector file."""
        return self.file.beginning

    def sequences(self, row: Row) -> list[Text]:
        """The one text or pair."""
        return [text_of(row, cleaning_of(self.predictor.task))]

    def size_of(self, row: Row) -> int:
        """Characters; with a vector per token, the most floats that a row can become."""
        characters = characters_in(text_of(row))
        if not self.per_token:
            return characters
        return min(characters + 3, self.predictor.max_length) * self.file.width

    def encode(self, chunk: Chunk) -> list[Example]:
        """The tokens of a chunk."""
        texts = [text_of(row) for row in chunk.rows]
        return self.predictor.text_examples(texts, pooling=self.pooling, layers=self.layers)

    def answer(self, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> ChunkResult:
        """A piece of a vector file."""
        vectors = self.predictor.vectors(
            examples,
            pooling=self.pooling,
            normalize=self.normalize,
            layers=self.layers,
            on_batch=on_batch,
        )
        cut = sum(example.truncated for example in examples)
        return chunk.part(self.file.piece(vectors, chunk.first), cut)

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """The vector file."""
        return self.file.complete(path, sizes, num_rows)

    def options(self) -> dict[str, Any]:
        """What decides the vectors, in addition to the model's weights."""
        return {
            "verb": "embed",
            **_options_of(self.predictor),
            "out": self.kind,
            "pooling": self.pooling,
            "normalize": self.normalize,
            "layers": list(self.layers),
        }


Work = Answers | Vectors


@dataclass(frozen=True)
class Job:
    """What another process needs to do the same work.

    Attributes:
        model: Its name; another machine must find the same model by it.
        options: Of `Predictor.load`.
        make: Makes the work of a loaded model; can be pickled.
    """

    model: str
    options: Mapping[str, Any]
    make: Callable[[Predictor], Work]

    def open(self) -> Work:
        """Load the model."""
        return self.make(Predictor.load(self.model, packed=True, **self.options))

    def with_precision(self, precision: str | None) -> Job:
        """The same job with the precision "auto" replaced by this one, if there is one.

        Otherwise another process, or a later run, could choose another precision.
        """
        is_export = self.options.get("backend") == "onnxruntime"
        if precision is None or is_export or self.options.get("precision") != "auto":
            return self
        return replace(self, options={**self.options, "precision": precision})


# The plan: what must be the same when unfinished work is continued


def plan_of(work: Work) -> dict[str, Any]:
    """What must be the same when an unfinished file is continued, in addition to the rows."""
    return {
        "made_by": f"filbert {version('filbert')}, torch {torch.__version__}",
        "model": model_digest(work.predictor),
        "options": work.options(),
    }


def model_digest(predictor: Predictor) -> str:
    """sha256 of the weights, the tokenizer, the task and how vectors are made."""
    checkpoint = predictor.checkpoint
    tensors = {} if checkpoint is None else checkpoint.tensors
    digest = hashlib.sha256()
    for name in sorted(tensors):
        _add(digest, name, tensors[name])
    for layer in predictor.sentence_vectors.dense:
        _add(digest, "dense", layer.weight_OI)
        if layer.bias_O is not None:
            _add(digest, "bias", layer.bias_O)
    task = None if predictor.task is None else task_to_dict(predictor.task)
    # An exported model has no tensors, but filbert.json has the sha256 of its graph.
    stored = None if checkpoint is None or tensors else checkpoint.filbert
    facts: list[Any] = [predictor.model.config, task, predictor.sentence_vectors.facts(), stored]
    if predictor.precision.name == "int8" and checkpoint is not None:
        facts.append(float_layers(checkpoint, cast(Model, predictor.model)))
    digest.update(f"{predictor.tokenizer.fingerprint} {facts!r}".encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, tensor: Tensor) -> None:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(flat.view(torch.uint8).numpy().data)


def _options_of(predictor: Predictor) -> dict[str, Any]:
    weights = next(predictor.model.parameters(), None)
    return {
        "max-length": predictor.max_length,
        "max-tokens": predictor.max_tokens,
        "precision": [predictor.precision.name, None if weights is None else str(weights.dtype)],
        "backend": type(predictor.model).__name__,
        "device": predictor.device.type,
    }


def with_kept(rows: Iterable[Row], others: Iterable[Row]) -> Iterator[Row]:
    """Yield rows with the columns that `others`, the same rows of the same file, hold."""
    for row, other in zip(rows, others, strict=True):
        yield replace(row, values=row.values | {KEPT: other.values})


def rows_digest(rows: Sequence[Row]) -> str:
    """sha256 of the content of rows, whatever file they stand in."""
    digest = hashlib.sha256()
    for row in rows:
        # Characters and not bytes are counted: surrogates have no UTF-8.
        digest.update(f"{row.values!r}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


# The journal


@dataclass(frozen=True)
class Entry:
    """A chunk whose answers are on the disk.

    Attributes:
        rows: Number of rows.
        truncated: Rows that were cut.
        digest: Of the content of the rows.
        size: Bytes of the answers.
        crc32: Of these bytes.
    """

    rows: int
    truncated: int
    digest: str
    size: int
    crc32: int


def read_journal(path: Path) -> tuple[dict[str, Any], list[Entry]] | None:
    """The plan and the finished chunks; None without any.

    Raises:
        FormatError: A line in the middle is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # What has no newline broke off.
    except FileNotFoundError:
        return None
    try:
        if len(lines) < 2:
            return None
        return json.loads(lines[0]), [Entry(**json.loads(line)) for line in lines[1:]]
    except (ValueError, TypeError) as error:
        raise FormatError(f"{path} is damaged. Give --overwrite to start again.") from error


def write_journal(path: Path, plan: dict[str, Any], entries: Sequence[Entry]) -> None:
    """Replace the journal, whole or not at all."""
    temporary = path.with_name(f"{path.name}.tmp")
    _append(temporary, plan, *map(asdict, entries), mode="wb")
    temporary.replace(path)


def _append(path: Path, *lines: dict[str, Any], mode: str = "ab") -> None:
    with path.open(mode) as file:
        file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def whole_entries(path: Path, start: int, entries: Sequence[Entry]) -> list[Entry]:
    """The first entries whose bytes are in the file as they were written.

    Args:
        path: Of the answers.
        start: Bytes before the first chunk.
        entries: Of the journal.
    """
    with path.open("rb") as file:
        file.seek(start)
        for number, entry in enumerate(entries):
            crc32, left = 0, entry.size
            while left and (block := file.read(min(left, 2**20))):
                crc32, left = zlib.crc32(block, crc32), left - len(block)
            if left or crc32 != entry.crc32:
                return list(entries[:number])
    return list(entries)


# Outputs


class Stream:
    """Standard output or a pipe: answers are written at once, and nothing can be continued."""

    def __init__(self, stream: IO[str]) -> None:
        self.entries: list[Entry] = []
        self._stream = stream

    def add(self, part: ChunkResult) -> None:
        """Write the answers."""
        self._stream.write(part.content.decode())


class Unfinished:
    """An output file that is not finished: the folder with its answers and their journal.

    Attributes:
        folder: NAME.unfinished.
        entries: Finished chunks, in order.
    """

    def __init__(self, out: Path, work: Work, *, is_resumable: bool) -> None:
        self.out, self.work, self.is_resumable = out, work, is_resumable
        self.folder = _folder_of(out)
        self.entries: list[Entry] = []
        self._file: IO[bytes] | None = None

    @property
    def num_rows(self) -> int:
        """Rows that are finished."""
        return sum(entry.rows for entry in self.entries)

    def start(self) -> None:
        """Start with an empty file."""
        self.clear()
        self._file = (self.folder / ANSWERS).open("wb")
        self._file.write(self.work.beginning)

    def resume(self, plan: dict[str, Any], entries: list[Entry]) -> int:
        """Continue after an earlier run; return how many of its rows were damaged and are dropped.

        Raises:
            ConfigError: It had another model or other options.
        """
        if other := _differences(plan, plan_of(self.work)):
            raise ConfigError(
                f"{self.folder} was begun with another {' and another '.join(other)}. Give the "
                "same as then, or --overwrite to start again."
            )
        path, start = self.folder / ANSWERS, len(self.work.beginning)
        self.entries = whole_entries(path, start, entries)
        self._file = path.open("r+b")
        self._file.truncate(start + sum(entry.size for entry in self.entries))
        self._file.seek(0, os.SEEK_END)
        write_journal(self.folder / JOURNAL, plan, self.entries)
        return sum(entry.rows for entry in entries) - self.num_rows

    def add(self, part: ChunkResult) -> None:
        """Write the answers; when this returns they survive a kill."""
        assert self._file is not None
        self._file.write(part.content)
        crc32 = zlib.crc32(part.content)
        entry = Entry(part.num_rows, part.num_truncated, part.digest, len(part.content), crc32)
        if self.is_resumable:
            self._file.flush()
            os.fsync(self._file.fileno())
            if self.entries:
                _append(self.folder / JOURNAL, asdict(entry))
            else:
                write_journal(self.folder / JOURNAL, plan_of(self.work), [entry])
        self.entries.append(entry)

    def finish(self) -> None:
        """Give the file its name."""
        self.close()
        sizes = [entry.size for entry in self.entries]
        done = self.work.complete(self.folder / ANSWERS, sizes, self.num_rows)
        flush(done)
        os.replace(done, self.out)
        flush(self.out.parent)
        self.remove()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Delete our files."""
        for name in _FILES:
            (self.folder / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the folder."""
        self.clear()
        self.folder.rmdir()


Output = Stream | Unfinished


@contextmanager
def unfinished(
    out: Path,
    work: Work,
    *,
    is_resumable: bool,
    resume: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Unfinished]:
    """A file that appears under its name when the block succeeds.

    After a failure the finished chunks stay, for `resume`; an older file stays as it was.

    Args:
        out: The file.
        work: What is computed from the rows.
        is_resumable: The rows can be read again.
        resume: Continue an earlier run.
        overwrite: Delete what an earlier run left.
        say: Called with messages for the user.

    Raises:
        ConfigError: There is unfinished work and neither option, of another model, or none to
            resume.
        InputError: The file cannot be written.
    """
    out = _checked(out)
    with locked(_folder_of(out)) as folder:
        file = Unfinished(out, work, is_resumable=is_resumable)
        if any(path.name not in _FILES for path in folder.iterdir()):
            raise ConfigError(
                f"{folder} holds other files. Move them away: unfinished answers are kept there."
            )
        journal = None if overwrite else read_journal(folder / JOURNAL)
        if not (folder / ANSWERS).exists():
            journal = None  # An earlier run was killed after the file got its name.
        try:
            _start(file, journal, resume, say)
        except BaseException:
            file.close()
            if not journal:
                file.remove()
            raise
        try:
            yield file
            file.finish()
        except BaseException:
            file.close()
            if not (is_resumable and file.entries):
                file.remove()
            elif folder.exists():
                say(f"{file.num_rows:,} rows are kept; with --resume the same command continues.")
            raise


def _start(
    file: Unfinished,
    journal: tuple[dict[str, Any], list[Entry]] | None,
    resume: bool,
    say: Callable[[str], None],
) -> None:
    if journal and not resume:
        rows = sum(entry.rows for entry in journal[1])
        raise ConfigError(
            f"{file.folder} holds {rows:,} rows of an unfinished run. Continue with --resume, or "
            "start again with --overwrite."
        )
    # Answers without a journal: a run that ended before its first chunk was finished.
    was_begun = (file.folder / ANSWERS).exists()
    if resume and not journal and not was_begun and file.out.exists():
        raise ConfigError(
            f"{file.out} exists without unfinished work, so there is nothing to resume. Leave out "
            "--resume to make it again."
        )
    if not journal:
        file.start()
        return
    if damaged := file.resume(*journal):
        say(f"{damaged:,} rows of the unfinished run are damaged; they are answered again.")
    say(f"continuing after {file.num_rows:,} rows.")


def _folder_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.unfinished")


def _checked(out: Path) -> Path:
    """The file itself, behind all links.

    Raises:
        InputError: No file can be written there.
    """
    try:
        out = Path(os.path.realpath(out))
        if out.is_dir():
            raise InputError(f"{out} is a folder; --out names a file.")
        if not out.parent.is_dir():
            raise InputError(f"{out} cannot be written. Make the folder {out.parent} first.")
        if not os.access(out.parent, os.W_OK):
            raise InputError(f"{out} cannot be written: permission denied.")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}.") from error
    return out


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of what differs between two plans."""
    names = {"made_by": "version of filbert or torch", "model": "model"}
    other = [name for key, name in names.items() if old.get(key) != new[key]]
    ours, theirs = new["options"], old.get("options") or {}
    return other + [f"--{name}" for name in ours if theirs.get(name) != ours[name]]


# Engines


Engine = Callable[[Iterator[Chunk]], Generator[ChunkResult, None, None]]


def carry_out(
    work: Work,
    rows: Iterable[Row],
    output: Output,
    *,
    engine: Engine,
    on_part: Callable[[int, int], None],
) -> None:
    """Answer all rows that the output has not got yet.

    Args:
        work: What is computed from a chunk.
        rows: All of them, from the first.
        output: Takes the answers.
        engine: Answers the chunks.
        on_part: Called with the rows of each answered chunk, and how many of them were cut.

    Raises:
        InputError: A row is wrong. The chunks before its own are in the output.
        ConfigError: The first rows are not those that the output has answers to.
        Interrupted: Ctrl-C or SIGTERM.
    """
    try:
        with _sigterm_as_interrupt(), closing(engine(_fresh(work, rows, output))) as parts:
            for part in parts:
                output.add(part)
                on_part(part.num_rows, part.num_truncated)
    except KeyboardInterrupt:
        raise Interrupted("interrupted.") from None


def local_engine(
    work: Work,
    on_share: Callable[[int, float], None] = lambda rows, share: None,
    *,
    ahead: bool = True,
) -> Engine:
    """The engine of this process: while the model answers a chunk, the next one is tokenised.

    Args:
        work: What is computed from a chunk.
        on_share: Called with the rows of the chunk in work, and the share of them that is done.
        ahead: False for standard input: Python cannot exit while a thread waits for it.
    """

    def answers(chunks: Iterator[Chunk]) -> Generator[ChunkResult, None, None]:
        encoded = ((chunk, work.encode(chunk)) for chunk in chunks)
        with closing(one_ahead(encoded) if ahead else encoded) as ready:
            for chunk, examples in ready:
                yield work.answer(chunk, examples, _summing(chunk, examples, on_share))

    return answers


def _summing(
    chunk: Chunk, examples: Sequence[Example], on_share: Callable[[int, float], None]
) -> OnTokens:
    """Turn the tokens of each batch into the share of the chunk that is done."""
    total, done = sum(len(example.input_ids) for example in examples), 0

    def on_batch(num_tokens: int) -> None:
        nonlocal done
        done += num_tokens
        on_share(len(chunk.rows), min(1.0, done / total))

    return on_batch


def _fresh(work: Work, rows: Iterable[Row], output: Output) -> Iterator[Chunk]:
    """The chunks without answers, after the others were compared with the journal."""
    entries = list(output.entries)
    first, number = 0, -1
    for number, some in enumerate(chunks(rows, work.size_of, work.limit)):
        chunk = Chunk(number, first, some, rows_digest(some))
        first += len(some)
        if number >= len(entries):
            yield chunk
        elif entries[number].digest != chunk.digest:
            raise ConfigError(
                f"rows {chunk.first + 1:,} to {first:,} ({some[0].where} and the following) are "
                "not those that the unfinished run has answered. Give --overwrite to start again."
            )
    if number + 1 < len(entries):
        raise ConfigError(
            f"the unfinished run has answered {sum(entry.rows for entry in entries):,} rows, and "
            f"the file holds only {first:,}. Give --overwrite to start again."
        )


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
