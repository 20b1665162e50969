r"""Half an hour of mixed load on `filbert serve`, 1 % of it hostile; overload.

    python benchmarks/stress_serve.py [--seconds 1800] [--parts mixed control overload]

mixed: 16 clients ask every route, one request in a hundred is hostile (stress_requests.py). Nothing
    may be answered with 5xx but 503, every error has an error's shape, no ordinary request may be
    broken off, and the server's memory may grow by 50 MiB at most after the first quarter.
control: the same with a server that loses four times as much memory meanwhile, for a minute at
    most: the check has to catch it.
overload: three times as many requests as it can answer. What is let in has to be answered within
    twice the time budget (ten seconds of waiting, and what a request takes alone), the rest gets
    429 within it.

The models are filbert-mini with random heads: the work is real, what they say means nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import find_model, read_checkpoint
from filbert.text.tokenizer import Tokenizer
from sides.clients import Client, closed_loop, open_loop, percentile, request
from sides.served import Served, free_port
from stress_requests import Hostile, is_an_error, ordinary

HOSTILE_SHARE = 0.01
HEADS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "classes": ("sequence", ("no", "yes")),
    "words": ("tokens", ("O", "B-X", "I-X")),
    "spans": ("spans", None),
}
WORDS = [
    "the",
    "film",
    "was",
    "not",
    "very",
    "good",
    ",",
    "and",
    "he",
    "saw",
    "it",
    "again",
    "in",
    "a",
    "small",
    "town",
    "by",
    "the",
    "old",
    "river",
]

Result = dict[str, Any]


def make_models(folder: Path, base: str) -> list[str]:
    """A model with each head, as `filbert serve` takes them."""
    place = find_model(base)
    bare, tokenizer = read_checkpoint(place), Tokenizer.load(place)
    made = [f"masks={place}"]
    for name, (kind, labels) in HEADS.items():
        torch.manual_seed(0)
        headed = with_new_head(bare, kind, labels=labels, problem_type=None)
        huggingface.write(headed, folder / name)
        tokenizer.save(folder / name)
        made.append(f"{name}={folder / name}")
    return made


def make_texts(draw: random.Random, count: int = 500) -> list[str]:
    """Of 1 to 400 words, most of them short."""
    sizes = [min(400, 1 + int(draw.lognormvariate(3.0, 1.0))) for _ in range(count)]
    return [" ".join(draw.choices(WORDS, k=size)) for size in sizes]


def serve(models: list[str], log: Path, *options: str, leak: float = 0.0) -> Served:
    """A server; with `leak` one that loses so many MiB a second, while it is asked."""
    port = free_port()
    leaking = [str(Path(__file__).with_name("leaking_server.py")), str(leak)]
    program = leaking if leak else ["-m", "filbert", "serve"]
    return Served([sys.executable, *program, *models, "--port", str(port), *options], port, log)


# Mixed load


async def mixed_load(server: Served, texts: list[str], given: argparse.Namespace) -> Result:
    """Ordinary and hostile requests for a time, and the memory meanwhile."""
    statuses: Counter[int] = Counter()
    hostile: dict[str, Counter[int]] = {}
    shapeless = 0
    memory: list[tuple[float, float]] = []
    evil = Hostile(server.port, texts, min(40.0, given.seconds))
    names = list(evil.names)
    random.Random(given.seed).shuffle(names)
    slow: set[asyncio.Task[None]] = set()

    async def send(name: str) -> None:
        hostile.setdefault(name, Counter())[await evil.send(name)] += 1

    async def one(number: int) -> None:
        nonlocal shapeless
        draw = random.Random(f"{given.seed}:{number}")
        client = Client(server.port)
        while time.monotonic() < end:
            if draw.random() < given.hostile:
                # A slow one must not keep this client from asking.
                name = names[sum(map(Counter.total, hostile.values()), len(slow)) % len(names)]
                task = asyncio.create_task(send(name))
                slow.add(task)
                task.add_done_callback(slow.discard)
                continue
            reply = await client.ask(ordinary(texts, draw))
            statuses[reply.status] += 1
            shapeless += reply.status not in (0, 200) and not is_an_error(reply.body)
        client.close()

    pause = min(1.0, given.seconds / 20)

    async def watch() -> None:
        while time.monotonic() < end:
            memory.append((time.monotonic(), server.megabytes()))
            await asyncio.sleep(pause)

    # What every kind of request needs, some of them together, is no growth, however short the run.
    if given.hostile:
        await asyncio.gather(*map(send, names * given.warm_up))
    began = time.monotonic()
    end = began + given.seconds
    await asyncio.gather(watch(), *(one(number) for number in range(given.clients)))
    await asyncio.gather(*slow)
    after = [size for at, size in memory if at > began + given.seconds / 4]
    fifth = max(1, len(after) // 5)
    growth = statistics.median(after[-fifth:]) - statistics.median(after[:fifth])
    every = sum(hostile.values(), Counter(statuses))
    times = [at for at, _ in memory]
    stall = max((b - a for a, b in zip(times, times[1:], strict=False)), default=0.0) - pause
    # Who does not read is let go, and on a busy machine these clients themselves may stand still.
    broken = 0 if stall > 1.0 and statuses[0] <= given.clients else statuses[0]
    return {
        "requests": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "hostile": {name: dict(found) for name, found in sorted(hostile.items())},
        "MiB after warm-up": round(statistics.median(after[:fifth])),
        "MiB, least and median of each tenth": [
            (round(min(part)), round(statistics.median(part)))
            for part in _tenths([size for _, size in memory])
        ],
        "growth MiB": round(growth, 1),
        "clients stood still, seconds": round(stall, 2),
        "wrong": [
            *(f"{n} x status {s}" for s, n in every.items() if s >= 500 and s != 503),
            *(
                [f"{shapeless + evil.shapeless} errors without an error's shape"]
                if shapeless + evil.shapeless
                else []
            ),
            *([f"{broken} ordinary requests broke off"] if broken else []),
            *(["nothing was answered"] if not statuses[200] else []),
        ],
    }


def mixed(models: list[str], texts: list[str], place: Path, given: argparse.Namespace) -> Result:
    server = serve(models, place / "mixed.log", *SHORT_TIMES)
    try:
        found = asyncio.run(mixed_load(server, texts, given))
    finally:
        status = server.close()
    if found["growth MiB"] > given.growth:
        found["wrong"].append(f"memory grew by {found['growth MiB']} MiB")
    if status:
        found["wrong"].append(f"the server ended with status {status}")
    if "Traceback" in (place / "mixed.log").read_text(encoding="utf-8"):
        found["wrong"].append("there is a traceback in the log")
    return found


# Slow senders are let go within the time of a short run.
SHORT_TIMES = ("--request-seconds", "5")


def control(models: list[str], texts: list[str], place: Path, given: argparse.Namespace) -> Result:
    """A server that leaks has to be caught."""
    seconds = min(given.seconds, 60.0)
    gentle = argparse.Namespace(**vars(given) | {"seconds": seconds, "hostile": 0.0})
    leak = 2.5 * given.growth / seconds
    server = serve(models, place / "control.log", *SHORT_TIMES, leak=leak)
    try:
        found = asyncio.run(mixed_load(server, texts, gentle))
    finally:
        server.close()
    if found["growth MiB"] <= given.growth:
        found["wrong"].append("the check did not see the leak")
    return found


def _tenths(sizes: list[float]) -> list[list[float]]:
    length = max(1, len(sizes) // 10)
    return [sizes[at : at + length] for at in range(0, len(sizes), length)]


# Overload

# The server refuses what others would hold up for longer.
QUEUE_SECONDS = 10.0


def overload(models: list[str], texts: list[str], place: Path, given: argparse.Namespace) -> Result:
    """Three times the capacity."""
    seconds = min(given.seconds, 60.0)
    requests = [request("/embed", {"inputs": text, "model": "masks"}) for text in texts]
    server = serve(models[:1], place / "overload.log")
    try:
        alone, _ = asyncio.run(closed_loop(server.port, requests, clients=1, seconds=seconds / 4))
        most, taken = asyncio.run(
            closed_loop(server.port, requests, clients=64, seconds=seconds / 4)
        )
        capacity = len(most) / taken
        replies = asyncio.run(
            open_loop(server.port, requests, rate=3 * capacity, seconds=seconds / 2)
        )
    finally:
        server.close()
    accepted = [reply for reply in replies if reply.status == 200]
    refused = [reply for reply in replies if reply.status == 429]
    budget = QUEUE_SECONDS + percentile(alone, 0.99)
    found = {
        "capacity": round(capacity, 1),
        "asked": len(replies),
        "accepted": len(accepted),
        "refused": len(refused),
        "budget ms": round(1e3 * budget),
        "accepted p99 ms": round(1e3 * percentile(accepted, 0.99)),
        "refused p99 ms": round(1e3 * percentile(refused, 0.99)),
        "wrong": [],
    }
    if len(accepted) + len(refused) != len(replies):
        found["wrong"].append(f"statuses {dict(Counter(reply.status for reply in replies))}")
    if found["accepted p99 ms"] > 2 * found["budget ms"]:
        found["wrong"].append("what was let in took more than twice the budget")
    if found["refused p99 ms"] > found["budget ms"]:
        found["wrong"].append("429 came late")
    if not refused:
        found["wrong"].append("nothing was refused")
    return found


PARTS = {"mixed": mixed, "control": control, "overload": overload}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800.0, help="of the mixed load")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--model", default="filbert-mini")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--hostile", type=float, default=HOSTILE_SHARE, help="their share")
    parser.add_argument("--warm-up", type=int, default=3, help="times that each is sent before")
    parser.add_argument("--growth", type=float, default=50.0, help="MiB of memory, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for the logs of the servers")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        place = given.out or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        models = make_models(Path(folder), given.model)
        texts = make_texts(random.Random(given.seed))
        for name in given.parts:
            found = PARTS[name](models, texts, place, given)
            failed |= bool(found["wrong"])
            print(json.dumps({"part": name, **found}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
