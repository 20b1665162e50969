"""One case: what the server answers over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from . import inputs
from .place import Found, Place, case

TWO = inputs.TEXTS[:2]
REQUESTS: dict[str, tuple[str, Any]] = {
    "embed": ("/embed", {"inputs": TWO, "model": "vectors"}),
    "embed_all": ("/embed_all", {"inputs": TWO, "model": "vectors"}),
    "predict": ("/predict", {"inputs": [[TWO[0]], inputs.PAIRS[1]], "model": "classes"}),
    "rerank": ("/rerank", {"query": TWO[0], "texts": [*TWO, "a play"], "model": "value"}),
    "similarity": (
        "/similarity",
        {"inputs": {"source_sentence": TWO[0], "sentences": TWO}, "model": "vectors"},
    ),
    "tokenize": ("/tokenize", {"inputs": inputs.TEXTS[3], "model": "vectors"}),
    "openai": ("/v1/embeddings", {"input": TWO, "model": "vectors", "dimensions": 8}),
    "base64": ("/v1/embeddings", {"input": "a", "model": "vectors", "encoding_format": "base64"}),
    "encode": ("/encode", {"id": 7, "texts": TWO, "model": "vectors"}),
    "fill": ("/fill", {"inputs": "the [MASK] was good", "top": 2, "model": "masks"}),
    "tag": ("/tag", {"inputs": inputs.TEXTS[2], "model": "words"}),
    "answer": (
        "/answer",
        {"question": "what ?", "context": [TWO[0], inputs.TEXTS[2]], "model": "spans"},
    ),
    "attention": ("/attention", {"inputs": TWO[0], "layers": [1], "model": "vectors"}),
    "empty": ("/embed", {"inputs": [], "model": "vectors"}),
    "unknown model": ("/embed", {"inputs": "a", "model": "gone"}),
    "wrong type": ("/embed", {"inputs": 3, "model": "vectors"}),
    "unknown key": ("/fill", {"inputs": "a [MASK]", "topp": 2}),
}


@case("serve")
def serve(place: Place) -> Found:
    """One request a route to a real server; vectors as numbers, errors without their sentence."""
    heads = {"vectors": "bare", "masks": "masked", "words": "tokens", "spans": "spans"}
    models = {name: place.model("bert", head) for name, head in heads.items()}
    models["classes"] = place.model("bert", "sequence", "binary")
    models["value"] = place.model("bert", "sequence", "regression")
    found: Found = {}
    with place.server(models) as client:
        for name, (path, body) in REQUESTS.items():
            reply = client.post(path, json=body)
            answer = reply.json()
            if reply.status_code != 200:
                answer = answer.get("error_type", sorted(answer["error"]))
            found[name] = {"status": reply.status_code, "answer": answer}
        found["models"] = sorted(one["id"] for one in client.get("/v1/models").json()["data"])
        found["info"] = sorted(client.get("/info").json())
        found["metrics"] = client.get("/metrics").status_code
    # Base64 holds float32 bytes.
    data = found.pop("base64")["answer"]["data"][0]["embedding"]
    found["base64"] = np.frombuffer(base64.b64decode(data), "<f4")
    maps = found["attention"]["answer"].pop("maps")
    return found | {"maps": np.array(maps)}
