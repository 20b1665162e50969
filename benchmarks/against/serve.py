r"""Vectors over HTTP: `filbert serve`, infinity, and FastAPI around sentence-transformers.

    python benchmarks/against/serve.py --data DIR/jigsaw_toxic_binary/train.csv.gz \
        --infinity VENV [--clients 1 16 64] [--seconds 20] [--rounds 5]

MiniLM in float32, one real comment a request, as they come (median 36 tokens, at most 256), in a
closed loop: every client asks as soon as it is answered. The clients are one process next to the
server, on the same cores. All servers are up and get OpenAI's request for one vector; while one is
asked, the others are stopped (SIGSTOP). They take turns, and a figure is the median of the rounds
after one that does not count; p50 and p99 are over all requests of the rounds. Memory is what all
processes of a server hold at the end (Pss).

Before that every server gives the vectors of some texts, one at a time and 16 at once; the smallest
cosine and the largest difference to sentence-transformers' own are in the table.

infinity needs an environment of its own: pip install "infinity-emb[server,torch]"
"torch>=2.11,<2.14". Peers that are not there are named and left out. `--small` is a look at the
machinery with the data that comes with filbert, and proves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from runs import add_results_options, append, machine
from serve_sides import QUIET, SIDES, Place

import filbert.samples
from sides.clients import Client, Reply, closed_loop, percentile, request
from sides.conversion import plain_folder
from sides.served import Served, free_port

JUDGE = "FastAPI + sentence-transformers"
SMALL = {"clients": [2], "seconds": 1.0, "rounds": 1, "texts": 50, "compared": 8}

Record = dict[str, Any]


def texts_of(given: argparse.Namespace) -> list[str]:
    """Comments, drawn from the first of a file so that no length rules their order."""
    source = given.data or Path(filbert.samples.__file__).parent / "toxic_train.csv.gz"
    csv.field_size_limit(2**30)
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        column = next(name for name in ("comment_text", "text") if name in (rows.fieldnames or ()))
        texts = [row[column] for _, row in zip(range(10 * given.texts), rows, strict=False)]
    texts = [text for text in texts if text.strip()]
    return random.Random(0).sample(texts, min(given.texts, len(texts)))


def requests_of(side: str, texts: list[str]) -> list[bytes]:
    return [request(SIDES[side].path, {"model": "m", "input": [text]}) for text in texts]


async def vectors_of(port: int, requests: list[bytes], at_once: int) -> np.ndarray:
    """Every vector, in order, from so many clients.

    Raises:
        RuntimeError: an answer is no vector.
    """
    found: dict[int, Any] = {}
    numbers = iter(range(len(requests)))

    async def one(client: Client) -> None:
        for number in numbers:
            reply = await client.ask(requests[number])
            if reply.status != 200:
                raise RuntimeError(f"status {reply.status}: {reply.body[:300]!r}")
            found[number] = json.loads(reply.body)["data"][0]["embedding"]
        client.close()

    await asyncio.gather(*(one(Client(port)) for _ in range(at_once)))
    return np.array([found[number] for number in range(len(requests))])


def agreement(vectors: dict[str, list[np.ndarray]]) -> dict[str, Record]:
    """How far each side's vectors are from the judge's, and alone from in company."""
    judge = vectors.get(JUDGE, next(iter(vectors.values())))[0]
    found = {}
    for side, (alone, together) in vectors.items():
        norms = np.linalg.norm(together, axis=1) * np.linalg.norm(judge, axis=1)
        found[side] = {
            "cosine_min": float(((together * judge).sum(1) / norms).min()),
            "difference": float(np.abs(together - judge).max()),
            "company": float(np.abs(together - alone).max()),
        }
    return found


def turn(
    server: Served, requests: list[bytes], *, clients: int, seconds: float, first: int
) -> tuple[list[Reply], float]:
    """A side's turn, while the others stand still."""
    server.go_on()
    found = asyncio.run(
        closed_loop(server.port, requests, clients=clients, seconds=seconds, first=first)
    )
    server.pause()
    return found


def record_of(turns: list[tuple[list[Reply], float]]) -> Record:
    """The figures of one side at one number of clients."""
    answered = [[reply for reply in replies if reply.status == 200] for replies, _ in turns]
    every = [reply for replies in answered for reply in replies]
    rates = [
        len(replies) / taken for replies, (_, taken) in zip(answered, turns, strict=True) if taken
    ]
    return {
        "requests": len(every),
        "errors": sum(len(replies) for replies, _ in turns) - len(every),
        "rate": statistics.median(rates),
        "rates": rates,
        "p50_ms": 1e3 * percentile(every, 0.5),
        "p99_ms": 1e3 * percentile(every, 0.99),
    }


def compare(given: argparse.Namespace, place: Path, results: Path | None) -> list[Record]:
    """Start the servers, compare their vectors, and let them take turns."""
    model = str(plain_folder("minilm"))
    texts = texts_of(given)
    facts = machine()
    records: list[Record] = []
    with ExitStack() as running:
        servers: dict[str, Served] = {}
        for side in given.sides:
            at = Place(model, free_port(), given.infinity)
            if reason := SIDES[side].missing(at):
                print(f"left out: {side}: {reason}", flush=True)
                continue
            log = place / f"{side.replace(' ', '')}.log"
            servers[side] = Served(SIDES[side].command(at), at.port, log, env=QUIET)
            running.callback(servers[side].close)
            servers[side].pause()
        asked = {side: requests_of(side, texts) for side in servers}
        vectors = {}
        for side, server in servers.items():
            server.go_on()
            some = asked[side][: given.compared]
            vectors[side] = [
                asyncio.run(vectors_of(server.port, some, at_once)) for at_once in (1, 16)
            ]
            server.pause()
        agreed = agreement(vectors)
        for clients in given.clients:
            turns: dict[str, list[tuple[list[Reply], float]]] = {side: [] for side in servers}
            for round_ in range(given.rounds + 1):
                for side, server in servers.items():
                    first = round_ * len(texts) // (given.rounds + 1)
                    found = turn(
                        server, asked[side], clients=clients, seconds=given.seconds, first=first
                    )
                    if round_:
                        turns[side].append(found)
            for side, server in servers.items():
                record = {
                    "side": side,
                    "clients": clients,
                    "texts": len(texts),
                    "seconds": given.seconds,
                    **record_of(turns[side]),
                    **agreed[side],
                    "megabytes": round(server.megabytes()),
                    "machine": facts,
                    "time": time.strftime("%F %T"),
                }
                records.append(record)
                print(f"{clients:3} clients  {side:32} {record['rate']:8.1f}/s", flush=True)
                if results is not None:
                    append(results, record)
    return records


def markdown(records: list[Record]) -> str:
    """One table."""
    lines = [
        "| clients | server | requests/s | p50 ms | p99 ms | errors | MiB | cosine | difference |",
        "|---" * 9 + "|",
    ]
    for r in records:
        lines.append(
            f"| {r['clients']} | {r['side']} | {r['rate']:.1f} | {r['p50_ms']:.1f} | "
            f"{r['p99_ms']:.1f} | {r['errors']} | {r['megabytes']} | {r['cosine_min']:.6f} | "
            f"{r['difference']:.1e} |"
        )
    return "\n".join(lines)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="CSV; else what comes with filbert")
    parser.add_argument("--infinity", type=Path, default=Path("runs/infinity"), help="its venv")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=20.0, help="a turn")
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument(
        "--compared", type=int, default=200, help="texts whose vectors are looked at"
    )
    parser.add_argument("--out", type=Path, help="folder for the logs of the servers")
    add_results_options(parser, "serve")
    parser.add_argument("--small", action="store_true", help="seconds, no record")
    given = parser.parse_args(words)
    if given.small:
        vars(given).update(SMALL)
    return given


def main() -> int:
    given = parse()
    with tempfile.TemporaryDirectory() as spare:
        place = given.out or Path(spare)
        place.mkdir(parents=True, exist_ok=True)
        records = compare(given, place, None if given.small else given.results)
    print("\n" + markdown(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
