"""The dialect of OpenAI's API, as far as an encoder has something to say: vectors and models.

Source: OpenAI's API reference, "Embeddings" and "Models"; what its Python client sends and reads.
Errors under /v1 have OpenAI's shape; errors.py sees to that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from filbert.serve.engine import Answers
from filbert.serve.routes.common import Desk, documented, json_parts, reply
from filbert.serve.routes.tei import shortened
from filbert.serve.schema import Count, Either, Ids, Line, Lines, Model, Some

TAG = "OpenAI"


class EmbeddingsRequest(BaseModel):
    """Texts, or lists of token ids of the model's own vocabulary.

    `encoding_format` is float unless given. `user`, and keys that are not listed here, are read and
    not used.
    """

    model_config = ConfigDict(strict=True)

    input: Either[Line | Ids | Lines | Some[Ids]]
    model: Model = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Count | None, Field(description="Keep only the first ones.")] = None
    user: str | None = None


class Embedding(BaseModel):
    """A vector of unit length: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """How many tokens the model read."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """One vector an input."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class ModelEntry(BaseModel):
    """A loaded model."""

    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Field(description="When it was loaded, in seconds since 1970.")]
    owned_by: Literal["filbert"] = "filbert"


class ModelList(BaseModel):
    """All loaded models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Problem(BaseModel):
    """What is wrong, and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorReply(BaseModel):
    """What is told instead of an answer under /v1."""

    error: Problem


def add(app: FastAPI, desk: Desk) -> None:
    """Add the routes."""
    created = int(time.time())
    entries = {engine.name: ModelEntry(id=engine.name, created=created) for engine in desk.engines}

    # text-embeddings-inference has it here, too.
    @app.post("/embeddings", include_in_schema=False)
    @app.post("/v1/embeddings", **_documented("Vectors of texts", "One an input.", Embeddings))
    async def embeddings(body: EmbeddingsRequest) -> Response:
        """Vectors of unit length; token ids get the special tokens around them unless they have
        them already.
        """
        started = time.perf_counter()
        # Where there is no choice the name may be any, as in text-embeddings-inference: clients
        # that come from another server send that one's.
        engine = desk.engine(body.model if len(entries) > 1 else None, "embed")
        single = isinstance(body.input, str) or isinstance(next(iter(body.input), None), int)
        inputs: list[Any] = [body.input] if single else list(body.input)
        desk.check(inputs, "input")
        # Unit length comes last, and dimensions may be cut before it.
        answers = await desk.run(engine, "embed", inputs, normalize=body.dimensions is None)
        desk.refuse_cut(answers, None, engine.predictor.max_length)
        vectors = [done.value for done in answers.items]
        if body.dimensions is not None:
            vectors = shortened(vectors, body.dimensions, True)
        data = await _data(vectors, body.encoding_format)
        tokens = tokens_read(answers, engine.predictor.max_length)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        about = to_json({"model": engine.name, "usage": usage})
        content = b'{"object":"list","data":[' + b",".join(data) + b"]," + about[1:]
        return reply(content, answers, started)

    @app.get("/v1/models", **_documented("The loaded models", "All of them.", ModelList))
    async def models() -> ModelList:
        """Their names, which requests may give as `model`; GET /info says what each can do."""
        return ModelList(data=list(entries.values()))

    @app.get("/v1/models/{model:path}", **_documented("One loaded model", "Its entry.", ModelEntry))
    async def one_model(model: str) -> ModelEntry:
        """The entry of the model of that name."""
        return entries[desk.engines.get(model, "tokenize").name]


def tokens_read(answers: Answers, max_length: int) -> int:
    """Tokens of all inputs, as far as the model reads them."""
    return sum(min(done.num_tokens, max_length) for done in answers.items)


async def _data(vectors: Sequence[np.ndarray], encoding_format: str | None) -> list[bytes]:
    """The entries of `data`."""
    parts = await json_parts(vectors, as_base64=encoding_format == "base64")
    return [
        b'{"object":"embedding","index":%d,"embedding":%s}' % (index, part)
        for index, part in enumerate(parts)
    ]


def _documented(summary: str, description: str, model: type[BaseModel]) -> dict[str, Any]:
    """As `common.documented`, with errors in OpenAI's shape."""
    made = documented(summary, description, model, tag=TAG)
    for status, response in made["responses"].items():
        if status != 200:
            response["model"] = OpenAIErrorReply
    return made
