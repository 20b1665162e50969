"""What is done with a chunk of rows: answers or vectors, as the bytes that go into the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.texts import CHUNK_CHARACTERS, Text, characters_in, text_of
from filbert.data.vectors import VectorFile
from filbert.inference.building import float_layers
from filbert.inference.predictor import Predictor
from filbert.model.heads import Model
from filbert.tasks.base import cleaning_of, task_to_dict
from filbert.tasks.rows import row_texts

# Floats of a chunk with a vector per token: fixed memory, however long the texts.
_FLOATS = 2**23

OnTokens = Callable[[int], None]


@dataclass(frozen=True)
class Chunk:
    """Neighbouring rows that are answered together.

    Attributes:
        number: of the chunk, from 0.
        first: rows before it.
        rows: of the chunk.
        digest: of the content of its rows.
    """

    number: int
    first: int
    rows: list[Row]
    digest: str


@dataclass(frozen=True)
class Part:
    """The answers to a chunk.

    Attributes:
        number: of the chunk.
        num_rows: of the chunk.
        num_truncated: rows that were cut.
        digest: of the content of the rows.
        content: what goes into the file.
    """

    number: int
    num_rows: int
    num_truncated: int
    digest: str
    content: bytes


class Work(Protocol):
    """What becomes of rows.

    Attributes:
        predictor: the model that does it.
        limit: where the sizes of a chunk's rows reach it, the chunk ends.
        beginning: what the file begins with.
    """

    @property
    def predictor(self) -> Predictor: ...  # noqa: D102
    @property
    def limit(self) -> int: ...  # noqa: D102
    @property
    def beginning(self) -> bytes: ...  # noqa: D102

    def sequences(self, row: Row) -> list[Text]:
        """The texts of a row."""
        ...

    def size_of(self, row: Row) -> int:
        """What a row takes of `limit`."""
        ...

    def encode(self, chunk: Chunk) -> list[Example]:
        """The tokens of a chunk; may run in another thread than `answer`."""
        ...

    def answer(self, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> Part:
        """The answers to a chunk; `on_batch` is told the tokens of each batch."""
        ...

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """The finished file, made of the beginning and the chunks of these sizes in bytes."""
        ...

    def options(self) -> dict[str, Any]:
        """All that decides the answers, beside the model's weights."""
        ...


@dataclass(frozen=True)
class Answers:
    """The task's answers, one JSON object a line."""

    predictor: Predictor
    limit: int = CHUNK_CHARACTERS
    beginning: bytes = b""

    def sequences(self, row: Row) -> list[Text]:
        """The texts of a row."""
        return row_texts(self.predictor.known_task(), row)

    def size_of(self, row: Row) -> int:
        """Characters."""
        texts = row_texts(self.predictor.known_task(), row, clean=False)
        return sum(map(characters_in, texts))

    def encode(self, chunk: Chunk) -> list[Example]:
        """The tokens of a chunk."""
        return self.predictor.row_examples(chunk.rows)

    def answer(self, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> Part:
        """Lines of JSON."""
        answers = self.predictor.answers(examples, on_batch)
        lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
        # Half a surrogate pair becomes the escape that JSON has for it.
        content = lines.encode("utf-8", "backslashreplace")
        cut = sum(answer["truncated"] for answer in answers)
        return Part(chunk.number, len(chunk.rows), cut, chunk.digest, content)

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """The file as it is."""
        return path

    def options(self) -> dict[str, Any]:
        """All that decides the answers."""
        return {"verb": "predict", **_options_of(self.predictor)}


@dataclass(frozen=True)
class Vectors:
    """Vectors of texts, in a vector file."""

    predictor: Predictor
    kind: str
    pooling: str | None = None
    normalize: bool | None = None
    layers: tuple[int, ...] = (-1,)

    @property
    def file(self) -> VectorFile:
        """How they lie in the file."""
        width = self.predictor.vector_size(self.pooling, self.layers)
        return VectorFile(self.kind, width, self.per_token)

    @property
    def per_token(self) -> bool:
        """One vector a token rather than a text."""
        return self.pooling == "none"

    @property
    def limit(self) -> int:
        """In characters; with a vector per token, in floats."""
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
        """In characters; with a vector per token, the most floats that it can become."""
        characters = characters_in(text_of(row))
        if not self.per_token:
            return characters
        return min(characters + 3, self.predictor.max_length) * self.file.width

    def encode(self, chunk: Chunk) -> list[Example]:
        """The tokens of a chunk."""
        texts = [text_of(row) for row in chunk.rows]
        return self.predictor.text_examples(texts, pooling=self.pooling, layers=self.layers)

    def answer(self, chunk: Chunk, examples: Sequence[Example], on_batch: OnTokens) -> Part:
        """A piece of a vector file."""
        vectors = self.predictor.vectors(
            examples,
            pooling=self.pooling,
            normalize=self.normalize,
            layers=self.layers,
            on_batch=on_batch,
        )
        cut = sum(example.truncated for example in examples)
        content = self.file.piece(vectors, chunk.first)
        return Part(chunk.number, len(chunk.rows), cut, chunk.digest, content)

    def complete(self, path: Path, sizes: Sequence[int], num_rows: int) -> Path:
        """The vector file."""
        return self.file.complete(path, sizes, num_rows)

    def options(self) -> dict[str, Any]:
        """All that decides the vectors."""
        return {
            "verb": "embed",
            **_options_of(self.predictor),
            "out": self.kind,
            "pooling": self.pooling,
            "normalize": self.normalize,
            "layers": list(self.layers),
        }


def _options_of(predictor: Predictor) -> dict[str, Any]:
    weights = next(predictor.model.parameters(), None)
    return {
        "max-length": predictor.max_length,
        "max-tokens": predictor.max_tokens,
        "precision": [predictor.precision.name, None if weights is None else str(weights.dtype)],
        "backend": type(predictor.model).__name__,
        "device": predictor.device.type,
    }


def rows_digest(rows: Sequence[Row]) -> str:
    """sha256 of the content of rows, whatever file they stand in."""
    digest = hashlib.sha256()
    for row in rows:
        # Characters and not bytes are counted: surrogates have no UTF-8.
        digest.update(f"{row.values!r}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def plan_of(work: Work) -> dict[str, Any]:
    """What must be the same where an unfinished file is continued, beside the rows."""
    return {
        "made_by": f"filbert {version('filbert')}, torch {torch.__version__}",
        "model": model_digest(work.predictor),
        "options": work.options(),
    }


def model_digest(predictor: Predictor) -> str:
    """sha256 of the weights, the tokenizer, the task and the way vectors are made."""
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
    # An exported model has no tensors but the sha256 of its graph.
    story = None if checkpoint is None or tensors else checkpoint.filbert
    facts: list[Any] = [predictor.model.config, task, predictor.sentence_vectors.facts(), story]
    if predictor.precision.name == "int8" and checkpoint is not None:
        facts.append(float_layers(checkpoint, cast(Model, predictor.model)))
    digest.update(f"{predictor.tokenizer.fingerprint} {facts!r}".encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, name: str, tensor: Tensor) -> None:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
    digest.update(flat.view(torch.uint8).numpy().data)
