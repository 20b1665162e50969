"""What many people write: FastAPI around sentence-transformers, a peer of `filbert serve`.

python benchmarks/sides/plain_server.py MODEL PORT
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def main(model: str, port: int) -> None:
    """Serve until it is stopped."""
    library: Any = import_module("sentence_transformers")
    app = import_module("fastapi").FastAPI()
    encoder = library.SentenceTransformer(model, device="cpu")

    # A plain function: FastAPI runs it in one of its threads, so that requests go side by side.
    def embeddings(asked: dict[str, Any]) -> dict[str, Any]:
        vectors = encoder.encode(asked["input"])
        data = [{"index": i, "embedding": vector.tolist()} for i, vector in enumerate(vectors)]
        return {"object": "list", "data": data}

    def health() -> dict[str, str]:
        return {}

    app.post("/v1/embeddings")(embeddings)
    app.get("/health")(health)
    import_module("uvicorn").run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
