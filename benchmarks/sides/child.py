"""One side in a process of its own: `python -m sides.child`.

It reads a Job, gets ready, and then answers one line of JSON with another until its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from sides.job import Job
from sides.sides import load

Reply = dict[str, Any]


def encoding(job: Job) -> Callable[[dict[str, Any]], Reply]:
    """Answers to: {"do": "run" | "vectors" | "requests", ...}."""
    from pathlib import Path

    import numpy as np

    from sides.workload import Workload

    workload = Workload.load(Path(job.data))
    encode = load(job.side, job)
    word = int(workload.texts[0][1])

    def run(order: str, batch: int) -> Reply:
        batches = workload.batches(order, batch)
        started = time.perf_counter()
        for texts in batches:
            encode(texts)
        return {"seconds": time.perf_counter() - started}

    def vectors(out: str) -> Reply:
        found = [encode([text])[0] for text in workload.texts[:_COMPARED]]
        np.save(out, np.stack(found))
        return {}

    def requests(tokens: int, count: int) -> Reply:
        text = np.full(tokens, word)
        text[0], text[-1] = workload.texts[0][0], workload.texts[0][-1]
        times = []
        for _ in range(count):
            started = time.perf_counter()
            encode([text])
            times.append(time.perf_counter() - started)
        return {"seconds": times}

    answers: dict[str, Callable[..., Reply]] = {
        "run": run,
        "vectors": vectors,
        "requests": requests,
    }
    return lambda request: answers[request.pop("do")](**request)


# Texts whose vectors are compared with another side's.
_COMPARED = 16


def main() -> int:
    """Serve until the input ends."""
    # What other libraries print must not come between the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(reply: Reply) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    job = Job.read(sys.stdin.readline())
    started = time.perf_counter()
    try:
        answer = encoding(job)
    except Exception as error:  # Whatever another tool raises is a reason to tell.
        say({"failed": f"{type(error).__name__}: {error}"})
        raise
    say({"ready": time.perf_counter() - started})
    for line in sys.stdin:
        say(answer(json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
