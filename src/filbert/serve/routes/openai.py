"""Routes in the shapes of OpenAI (/v1/embeddings, /v1/models) and bert-as-service (/encode).

Sources: OpenAI's API reference, "Embeddings" and "Models"; bert-as-service 1.10,
server/bert_serving/server/http.py. Errors below /v1 have OpenAI's shape; see errors.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response
from pydantic_core import to_json

from filbert.serve.errors import Refusal
from filbert.serve.routes.shared import Caller, json_list, json_parts, refusals
from filbert.serve.schema import EmbeddingsRequest, EncodeRequest, OpenAIErrorReply
from filbert.text.tokenizer import Tokenizer

router = APIRouter(tags=["OpenAI"], responses=refusals(OpenAIErrorReply))
bert_as_service = APIRouter(tags=["bert-as-service"], responses=refusals())

_STARTED = int(time.time())


# text-embeddings-inference has it at /embeddings too.
@router.post("/embeddings", include_in_schema=False)
@router.post("/v1/embeddings", summary="One vector per input")
async def embeddings(body: EmbeddingsRequest, call: Caller) -> Response:
    """Return vectors of unit length. Token ids may include the special tokens."""
    # With one model any name is accepted, so that clients of other servers need no change.
    name = body.model if len(call.engines) > 1 else None
    engine, inputs = call.start(name, "embed", body.input, "input")
    results = await call.run(engine, "embed", inputs, normalize=True, dimensions=body.dimensions)
    max_length = engine.predictor.max_length
    call.refuse_cut(results, None, max_length)
    vectors = [result.value for result in results.items]
    parts = await json_parts(vectors, as_base64=body.encoding_format == "base64")
    data = [
        b'{"object":"embedding","index":%d,"embedding":%s}' % (index, part)
        for index, part in enumerate(parts)
    ]
    tokens = sum(min(result.num_tokens, max_length) for result in results.items)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    rest = to_json({"model": engine.name, "usage": usage})[1:]
    content = b'{"object":"list","data":' + json_list(data) + b"," + rest
    return await call.reply(content, results)


@router.get("/v1/models", summary="The loaded models")
async def models(call: Caller) -> dict[str, Any]:
    """Return names that requests may give as `model`; GET /info has what each can do."""
    return {"object": "list", "data": [_entry(name) for name in call.engines]}


@router.get("/v1/models/{model:path}", summary="One loaded model")
async def one_model(model: str, call: Caller) -> dict[str, Any]:
    """Return the entry of one model."""
    return _entry(call.engines.find(model, "tokenize").name)


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": "filbert"}


@bert_as_service.post("/encode", summary="One vector per text")
async def encode(body: EncodeRequest, call: Caller) -> Response:
    """Return vectors of texts or of lists of tokens, pooled as set in the model's folder."""
    engine, inputs = call.start(body.model, "embed", body.texts, "texts")
    if body.is_tokenized != isinstance(inputs[0], list):
        raise Refusal(422, "`texts` has lists of tokens if `is_tokenized`, otherwise texts.")
    if body.is_tokenized:
        inputs = [_ids_of(tokens, engine.predictor.tokenizer) for tokens in inputs]
    results = await call.run(engine, "embed", inputs)
    call.refuse_cut(results, None, engine.predictor.max_length)
    vectors = [result.value for result in results.items]
    parts = await json_parts(vectors, as_base64=body.encoding_format == "base64")
    content = b'{"id":' + to_json(body.id) + b',"result":' + json_list(parts) + b',"status":200}'
    return await call.reply(content, results)


def _ids_of(tokens: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    """Return the ids of tokens; a token that is not in the vocabulary becomes the unknown token."""
    ids: list[int] = []
    for token in tokens:
        number = tokenizer.id_of(token)
        number = tokenizer.unk_id if number is None else number
        if number is None:
            raise Refusal(422, "A token is not in the vocabulary, which has no unknown token.")
        ids.append(number)
    return ids
