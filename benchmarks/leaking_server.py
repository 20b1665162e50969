"""`filbert serve` with a leak, for the control of stress_serve.py: MiB a second, then its options.

python benchmarks/leaking_server.py 3.3 minilm --port 8080
"""

from __future__ import annotations

import sys
import time
from typing import Any

import filbert.serve.app
from filbert.cli.main import run

_LEAK = float(sys.argv[1])
_make, _kept, _first = filbert.serve.app.make_app, [], []


class Leaking:
    """Keeps some more with every request."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not _first:
            _first.append(time.monotonic())
        # Counted once: where fresh memory comes more slowly than it is due, a loop that looks at
        # the clock again would take all there is.
        due = int(_LEAK * (time.monotonic() - _first[0])) - len(_kept)
        _kept.extend(b"x" * 2**20 for _ in range(due))
        await self.app(scope, receive, send)


def make_leaking(*given: Any, **more: Any) -> Any:
    app = _make(*given, **more)
    app.add_middleware(Leaking)
    return app


filbert.serve.app.make_app = make_leaking
sys.exit(run(["serve", *sys.argv[2:]]))
