"""Any number of rows through a model: in order, in fixed memory, and resumed after a kill.

Rows are read in chunks, the chunks are answered in this process or by Ray Data, and an output takes
the answers in order. An output file that is not finished is a folder NAME.unfinished with the
answers so far and a journal. The first line of the journal is the plan: what must be the same when
the work is resumed. Every further line describes a chunk and is written when its answers are on the
disk. A kill at any moment leaves a journal that is true, apart from a last line that broke off;
answers beyond the journal are dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import torch

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.loader import one_ahead
from filbert.data.records import Row
from filbert.data.texts import CHUNK_CHARACTERS, chunks, text_of
from filbert.data.vectors import VectorFile
from filbert.errors import ConfigError, FormatError
from filbert.files import check_writable, flush, locked, write_atomically
from filbert.inference.answer_file import answer_line, complete
from filbert.inference.predictor import Predictor, VectorOptions
from filbert.tasks.base import Task, task_to_dict
from filbert.tasks.rows import read_task_rows, row_texts
from filbert.text.tokenizer import Text, characters_in

# Floats of a chunk with a vector per token: fixed memory, however long the texts.
_FLOATS = 2**23
ANSWERS, JOURNAL = "answers", "journal.jsonl"
# The key of a row's kept columns.
KEPT = "(kept columns)"

OnTokens = Callable[[int], None]


class Chunk(NamedTuple):
    """Consecutive rows that are answered together: rows before it, its rows, and their sha256."""

    first: int
    rows: list[Row]
    digest: str


class Entry(NamedTuple):
    """A line of the journal: a chunk whose answers are on the disk.

    `empty` rows have no text as the model reads it. The digest is that of the rows.
    """

    rows: int
    empty: int
    truncated: int
    digest: str
    size: int


# An entry and the answers that it describes.
Part = tuple[Entry, bytes]


# What is computed from a chunk


@dataclass(frozen=True)
class Work:
    """What is computed from chunks of rows.

    Attributes:
        options: What decides the content, in addition to the model's weights.
        texts: The texts of a row as the model reads them.
        size_of: The size of a row. A chunk ends when the sizes of its rows reach `limit`.
        encode: The tokens of a chunk; may run in another thread than `content`.
        content: The bytes of a chunk, and its number of truncated rows. The last argument is called
            with the tokens of each batch.
        complete: The finished file, made of the beginning and the contents of the chunks.
        beginning: What the file begins with.
    """

    predictor: Predictor
    options: dict[str, Any]
    texts: Callable[[Row], list[Text]]
    size_of: Callable[[Row], int]
    encode: Callable[[Chunk], list[Example]]
    content: Callable[[Chunk, Sequence[Example], OnTokens], tuple[bytes, int]]
    complete: Callable[[Path, Sequence[Entry]], Path]
    limit: int = CHUNK_CHARACTERS
    beginning: bytes = b""


def answer_work(predictor: Predictor, kind: str = ".jsonl") -> Work:
    """Return the work whose content is the task's answers, one a row."""
    task = predictor.known_task()

    def content(chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> tuple[bytes, int]:
        answers = predictor.answers(examples, on_batch)
        pairs = zip(answers, chunk.rows, strict=True)
        lines = "".join(answer_line(answer, row.values.get(KEPT, {})) for answer, row in pairs)
        # An unpaired surrogate becomes the escape that JSON has for it.
        content = lines.encode("utf-8", "backslashreplace")
        return content, sum(answer["truncated"] for answer in answers)

    return Work(
        predictor,
        options={"verb": "predict"},
        texts=lambda row: row_texts(task, row),
        size_of=lambda row: sum(map(characters_in, row_texts(task, row, clean=False))),
        encode=lambda chunk: predictor.row_examples(chunk.rows),
        content=content,
        complete=lambda path, entries: complete(path, kind, [entry.size for entry in entries]),
    )


def vector_work(predictor: Predictor, kind: str, how: VectorOptions) -> Work:
    """Return the work whose content is the vectors of texts, in a vector file.

    With a vector per token, sizes are the most floats of a row, not characters.
    """
    file = VectorFile(kind, predictor.vector_size(**how), how.get("pooling") == "none")

    def size_of(row: Row) -> int:
        size = characters_in(text_of(row))
        if not file.per_token:
            return size
        return min(size + 3, predictor.max_length) * file.width

    def content(chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> tuple[bytes, int]:
        vectors = predictor.vectors(examples, on_batch=on_batch, **how)
        truncated = sum(example.truncated for example in examples)
        return file.piece(vectors, chunk.first), truncated

    def complete(path: Path, entries: Sequence[Entry]) -> Path:
        sizes = [entry.size for entry in entries]
        return file.complete(path, sizes, sum(entry.rows for entry in entries))

    floats = max(_FLOATS, 2 * predictor.max_tokens * file.width)
    return Work(
        predictor,
        options={"verb": "embed", "out": kind, **how, "layers": list(how.get("layers", (-1,)))},
        texts=lambda row: [text_of(row, predictor.cleaning)],
        size_of=size_of,
        encode=lambda chunk: predictor.text_examples([text_of(r) for r in chunk.rows], **how),
        content=content,
        complete=complete,
        limit=floats if file.per_token else CHUNK_CHARACTERS,
        beginning=file.beginning,
    )


@dataclass(frozen=True)
class Job:
    """What another process needs to do the same work.

    Attributes:
        model: Its name; another machine must find the same model by it.
        loading: Keywords of `Predictor.load`.
        make: Makes the work of a loaded model; can be pickled.
    """

    model: str
    loading: Mapping[str, Any]
    make: Callable[[Predictor], Work]

    def open(self) -> Work:
        """Load the model."""
        return self.make(Predictor.load(self.model, packed=True, **self.loading))


def answer(
    work: Work, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens = lambda tokens: None
) -> Part:
    """Run the model over a chunk that was tokenised by `work.encode`."""
    content, truncated = work.content(chunk, examples, on_batch)
    empty = sum(not any("".join(text).strip() for text in work.texts(r)) for r in chunk.rows)
    return Entry(len(chunk.rows), empty, truncated, chunk.digest, len(content)), content


def answers_here(
    work: Work,
    pending: Iterator[Chunk],
    *,
    on_share: Callable[[int, float], None] = lambda rows, share: None,
    ahead: bool = True,
) -> Generator[Part, None, None]:
    """Answer chunks in this process; while the model answers one, the next one is tokenised.

    Args:
        on_share: Called with the rows of the chunk in work, and the share of them that is done.
        ahead: False for pipes: Python cannot exit while a thread waits for one.
    """
    encoded = ((chunk, work.encode(chunk)) for chunk in pending)
    with closing(one_ahead(encoded) if ahead else encoded) as ready:
        for chunk, examples in ready:
            total, done = sum(len(example.input_ids) for example in examples), 0

            def on_batch(num_tokens: int, rows: int = len(chunk.rows), total: int = total) -> None:
                nonlocal done
                done += num_tokens
                on_share(rows, min(1.0, done / total))

            yield answer(work, chunk, examples, on_batch)


def pending_chunks(work: Work, rows: Iterable[Row], done: Sequence[Entry] = ()) -> Iterator[Chunk]:
    """Yield the chunks that are not done, after the others were compared with the journal.

    If the first rows are not those that were answered, it is a ConfigError.
    """
    first, number = 0, -1
    for number, some in enumerate(chunks(rows, work.size_of, work.limit)):
        chunk = Chunk(first, some, rows_digest(some))
        first += len(some)
        if number >= len(done):
            yield chunk
        elif done[number].digest != chunk.digest:
            raise ConfigError(
                f"rows {chunk.first + 1:,} to {first:,} ({some[0].where} and the following) are "
                "not those that the unfinished run has answered. Give --overwrite to start again."
            )
    if number + 1 < len(done):
        raise ConfigError(
            f"the unfinished run has answered {sum(entry.rows for entry in done):,} rows, and "
            f"the file holds only {first:,}. Give --overwrite to start again."
        )


def rows_digest(rows: Sequence[Row]) -> str:
    """Return the sha256 of the content of rows, whatever file they are in."""
    digest = hashlib.sha256()
    for row in rows:
        # Characters and not bytes are counted: surrogates have no UTF-8.
        digest.update(f"{row.values!r}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def task_rows(task: Task, path: str, names: ColumnNames, keep: Sequence[str]) -> Iterator[Row]:
    """Read the rows of a file for a task, with the columns to copy into the answers."""
    rows = read_task_rows(task, path, names, labelled=False)
    if not keep:
        yield from rows
        return
    others = names.read(path, required=(), extra=keep)
    # A bad row ends one of the two readers; the other has the file open.
    with closing(cast("Generator[Row, None, None]", others)):
        for row, other in zip(rows, others, strict=True):
            yield replace(row, values=row.values | {KEPT: other.values})


# The plan: what must be the same when unfinished work is resumed


def plan_of(work: Work) -> dict[str, Any]:
    """Return the facts that must be equal to resume an unfinished file, in addition to the rows."""
    predictor = work.predictor
    weights = next(predictor.model.parameters(), None)
    loading = {
        "max-length": predictor.max_length,
        "max-tokens": predictor.max_tokens,
        "precision": [predictor.precision.name, None if weights is None else str(weights.dtype)],
        "backend": type(predictor.model).__name__,
        "device": predictor.device.type,
    }
    return {
        "version of filbert or torch": f"filbert {version('filbert')}, torch {torch.__version__}",
        "model": model_digest(predictor),
        "options": work.options | loading,
    }


def model_digest(predictor: Predictor) -> str:
    """Return the sha256 of the weights, the tokenizer, the task and the settings of vectors."""
    checkpoint, vectors = predictor.checkpoint, predictor.sentence_vectors
    tensors = dict(checkpoint.tensors)
    for number, module in enumerate((*vectors.before, *vectors.modules)):
        tensors |= {f"module {number} {name}": part for name, part in module.tensors.items()}
    digest = hashlib.sha256()
    for name in sorted(tensors):
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {flat.dtype} {tuple(tensors[name].shape)}\n".encode())
        digest.update(flat.view(torch.uint8).numpy().data)
    task = None if predictor.task is None else task_to_dict(predictor.task)
    # An exported model has no tensors, but filbert.json has the sha256 of its graph.
    stored = None if tensors else checkpoint.filbert
    facts: list[Any] = [predictor.model.config, task, vectors.facts(), stored]
    if predictor.precision.name == "int8":
        facts.append((checkpoint.filbert or {}).get("int8"))
    digest.update(f"{predictor.tokenizer.fingerprint} {facts!r}".encode())
    return digest.hexdigest()


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the names of what differs between two plans."""
    names = [name for name in new if name != "options" and old.get(name) != new[name]]
    ours, theirs = new["options"], old.get("options") or {}
    return names + [f"--{name}" for name in ours if theirs.get(name) != ours[name]]


# Outputs


class Stream:
    """Standard output or a pipe: answers are written at once, and nothing can be resumed."""

    def __init__(self, stream: IO[str]) -> None:
        self.entries: list[Entry] = []
        self._stream = stream

    def add(self, entry: Entry, content: bytes) -> None:
        """Write the answers to a chunk."""
        self._stream.write(content.decode())


class Unfinished:
    """An output file that is not finished: a folder with its answers and their journal.

    `entries` are the finished chunks, in order.
    """

    def __init__(self, folder: Path, work: Work, *, is_resumable: bool) -> None:
        self.folder, self.work, self.is_resumable = folder, work, is_resumable
        self.entries: list[Entry] = []
        self._answers = (folder / ANSWERS).open("ab")

    @property
    def num_rows(self) -> int:
        """Number of finished rows."""
        return sum(entry.rows for entry in self.entries)

    def start(self, entries: Sequence[Entry] = ()) -> None:
        """Keep the answers of these entries that are on the disk, and drop all others."""
        self.entries = list(entries)
        size, start = self._answers.seek(0, os.SEEK_END), len(self.work.beginning)
        while self.entries and start + sum(entry.size for entry in self.entries) > size:
            self.entries.pop()
        self._answers.truncate(start + sum(e.size for e in self.entries) if self.entries else 0)
        if not self.entries:
            self._answers.write(self.work.beginning)
        if self.is_resumable:
            lines = [plan_of(self.work), *(entry._asdict() for entry in self.entries)]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            write_atomically(self.folder / JOURNAL, text)

    def add(self, entry: Entry, content: bytes) -> None:
        """Write the answers to a chunk; when this returns they survive a kill."""
        self._answers.write(content)
        if self.is_resumable:
            self._answers.flush()
            os.fsync(self._answers.fileno())
        self.entries.append(entry)
        if self.is_resumable:
            with (self.folder / JOURNAL).open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(entry._asdict()) + "\n")
                journal.flush()
                os.fsync(journal.fileno())

    def finish(self, out: Path) -> None:
        """Give the file its name."""
        self.close()
        done = self.work.complete(self.folder / ANSWERS, self.entries)
        flush(done)
        os.replace(done, out)
        flush(out.parent)
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """Close the file."""
        self._answers.close()


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
    """Yield a file that appears under its name when the block succeeds.

    After a failure the finished chunks stay, for `resume`; an older file stays as it was.

    Args:
        is_resumable: The rows can be read again.

    Raises:
        ConfigError: There is unfinished work and neither option, of another model, or none to
            resume.
        InputError: The file cannot be written.
    """
    out = Path(os.path.realpath(out))
    check_writable(out)
    folder = out.with_name(f"{out.name}.unfinished")
    with locked(folder):
        try:
            plan, entries = _earlier(folder, out, resume=resume, overwrite=overwrite)
            other = _differences(plan, plan_of(work)) if entries else []
            if other:
                raise ConfigError(
                    f"{folder} was begun with another {' and another '.join(other)}. Give the "
                    "same as then, or --overwrite to start again."
                )
        except BaseException:
            if not any(folder.iterdir()):
                folder.rmdir()
            raise
        file = Unfinished(folder, work, is_resumable=is_resumable)
        try:
            file.start(entries)
            if damaged := sum(entry.rows for entry in entries) - file.num_rows:
                say(f"{damaged:,} rows of the unfinished run are damaged; they are answered again.")
            if entries:
                say(f"continuing after {file.num_rows:,} rows.")
            yield file
            file.finish(out)
        except BaseException:
            file.close()
            if not (is_resumable and file.entries):
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.exists():
                say(f"{file.num_rows:,} rows are kept; with --resume the same command continues.")
            raise


def _earlier(
    folder: Path, out: Path, *, resume: bool, overwrite: bool
) -> tuple[dict[str, Any], list[Entry]]:
    """Return the plan and the finished chunks that an earlier run left in the folder, if any."""
    names = [path.name for path in folder.iterdir()]
    if not all(name.startswith((ANSWERS, JOURNAL, f".{JOURNAL}")) for name in names):
        raise ConfigError(
            f"{folder} holds other files. Move them away: unfinished answers are kept there."
        )
    plan, entries = dict[str, Any](), list[Entry]()
    # Without answers, an earlier run was killed after the file got its name.
    if {ANSWERS, JOURNAL} <= set(names) and not overwrite:
        # What has no newline broke off.
        lines = (folder / JOURNAL).read_bytes().split(b"\n")[:-1]
        try:
            plan, *others = [json.loads(line) for line in lines] or [plan]
            entries = [Entry(**line) for line in others]
        except (ValueError, TypeError) as error:
            raise FormatError(
                f"{folder / JOURNAL} is damaged. Give --overwrite to start again."
            ) from error
    if entries and not resume:
        raise ConfigError(
            f"{folder} holds {sum(entry.rows for entry in entries):,} rows of an unfinished run. "
            "Continue with --resume, or start again with --overwrite."
        )
    if resume and not names and out.exists():
        raise ConfigError(
            f"{out} exists without unfinished work, so there is nothing to resume. Leave out "
            "--resume to make it again."
        )
    return plan, entries
