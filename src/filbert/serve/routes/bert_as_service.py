"""The dialect of bert-as-service's HTTP server: POST /encode. `filbert.client` speaks it too.

Source: bert-as-service 1.10, README and server/bert_serving/server/http.py. Vectors are made the
way the model's folder says, and have the length that comes out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Response
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import to_json

from filbert.serve.errors import Refusal
from filbert.serve.routes.common import Desk, documented, json_parts, reply
from filbert.serve.schema import Either, Lines, Model, Some, Whole
from filbert.text.tokenizer import Tokenizer, without_halves


class EncodeRequest(BaseModel):
    """Texts; or, where `is_tokenized`, a list of the vocabulary's tokens for each.

    `id` comes back as it is. `encoding_format`, which is ours, may ask for base64 of little-endian
    float32 in place of lists.
    """

    model_config = ConfigDict(strict=True)

    id: Whole | Annotated[str, AfterValidator(without_halves)] | None = None
    texts: Either[Lines | Some[Lines]]
    is_tokenized: bool = False
    model: Model = None
    encoding_format: Literal["float", "base64"] = "float"


class Encoded(BaseModel):
    """One vector a text, in order."""

    id: int | str | None
    result: list[list[float]] | list[str]
    status: int


def add(app: FastAPI, desk: Desk) -> None:
    """Add the route."""

    @app.post(
        "/encode",
        **documented("Vectors of texts", "One a text.", Encoded, tag="bert-as-service"),
    )
    async def encode(body: EncodeRequest) -> Response:
        """Vectors of texts or of tokens."""
        started = time.perf_counter()
        engine = desk.engine(body.model, "embed")
        desk.check(body.texts, "texts")
        inputs: list[Any] = list(body.texts)
        if body.is_tokenized != isinstance(inputs[0], list):
            raise Refusal(422, "`texts` holds lists of tokens where `is_tokenized`, else texts.")
        if body.is_tokenized:
            inputs = [ids_of(tokens, engine.predictor.tokenizer) for tokens in inputs]
        answers = await desk.run(engine, "embed", inputs)
        desk.refuse_cut(answers, None, engine.predictor.max_length)
        vectors = [done.value for done in answers.items]
        result = await json_parts(vectors, as_base64=body.encoding_format == "base64")
        content = b'{"id":' + to_json(body.id) + b',"result":[' + b",".join(result)
        # As flask-json adds to every answer there.
        content += b'],"status":200}'
        return reply(content, answers, started)


def ids_of(tokens: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    """The ids of tokens; one that the vocabulary does not have becomes its unknown token.

    Raises:
        Refusal: 422, it has no unknown token either.
    """
    found: list[int] = []
    for token in tokens:
        number = tokenizer.id_of(token)
        number = tokenizer.unk_id if number is None else number
        if number is None:
            raise Refusal(422, "A token is not in the vocabulary, which has none for the unknown.")
        found.append(number)
    return found
