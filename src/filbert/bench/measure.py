"""The tables of `filbert bench`: what is measured, in what order, and what it says."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert import samples
from filbert.bench.agreement import least_cosines
from filbert.bench.job import Job
from filbert.bench.sides import take_part
from filbert.bench.turns import Child, Turns, children, take_turns
from filbert.bench.verdict import about_formats, about_side
from filbert.bench.workload import Workload, drawn, mixed_lengths, useful_gflop
from filbert.data.blocks import available_cores
from filbert.errors import ConfigError
from filbert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint

TABLES = ("tokenize", "encode", "latency", "train", "serve")
# Of more sides a table would take more than its minute; benchmarks/against/ has them all.
ENCODERS = (
    "transformers-float32",
    "transformers-bf16",
    "onnxruntime-float32",
    "onnxruntime-int8",
    "ctranslate2-float32",
    "ctranslate2-int8",
    "openvino-bf16",
    "filbert-float32",
    "filbert-bf16",
    "filbert-int8",
    "filbert-onnxruntime-float32",
    "filbert-onnxruntime-int8",
)
_ORDERS = ("unsorted", "sorted")
_BATCH = 32
# Tokens of a text that comes alone, and how many come in a turn.
_LENGTHS, _REQUESTS = (16, 128), 20
_CLIENTS = (1, 16, 64)
# Rounds of turns: more than this tells little more.
_ROUNDS = 7

Say = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """What all tables of a call share.

    Attributes:
        model: folder in Hugging Face's layout.
        place: a folder for workloads, converted models and logs.
        device: "cpu" or a GPU's name.
        threads: processor threads of every side.
        seconds: for the turns of a table, about; getting ready comes on top.
        texts: how many the encoders get.
    """

    model: Path
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    place: Path
    device: str
    threads: int
    seconds: float
    texts: int


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: of `TABLES`.
        title: what was done.
        columns: names of the figures, in the order of the cells.
        rows: figures by side, and by column; missing ones are left out.
        left_out: a sentence for each side that took no part.
        says: what the figures mean, in a sentence or two.
        facts: what else there is, for --json.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, float]]
    left_out: list[str]
    says: list[str]
    facts: dict[str, Any]


def threads_of(asked: int | None) -> int:
    """So many threads, or as many as there are cores for this process and OMP_NUM_THREADS allows.

    Raises:
        ConfigError: below one.
    """
    if asked is not None:
        if asked < 1:
            raise ConfigError(f"threads is {asked}; it must be above zero.")
        return asked
    # OpenMP takes a list, too: a number for each level of nesting.
    allowed = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    cores = available_cores()
    return min(cores, int(allowed)) if allowed.isdecimal() and int(allowed) else cores


def encode(setup: Setup, sides: Sequence[str] | None, say: Say) -> Table:
    """Vectors from token ids: texts of mixed length, as they come and sorted."""
    from filbert.bench.products import layer_shapes, product_rates

    config = setup.checkpoint.config
    longest = min(256, config.max_tokens_per_sequence)
    workload = _drawn(setup, mixed_lengths(setup.texts, longest=longest, median=min(50, longest)))
    say("encode: bare matrix products at the shapes of the model's layers")
    rates = product_rates(layer_shapes(config), device=setup.device, threads=setup.threads)
    requests: dict[str, dict[str, Any]] = {
        order: {"do": "run", "order": order, "batch": _BATCH} for order in _ORDERS
    }
    cosines: dict[str, float] = {}
    turns, left_out = _measured(
        setup,
        "encode",
        sides or ENCODERS,
        workload,
        requests,
        say,
        first=lambda ready: cosines.update(least_cosines(ready, setup.place)),
    )
    work = useful_gflop(setup.checkpoint.config, workload.num_tokens)
    rows = {}
    for name, replies in turns.replies.items():
        times = {order: _median(replies[order]) for order in _ORDERS}
        rows[name] = {
            "unsorted: texts/s": setup.texts / times["unsorted"],
            "sorted: texts/s": setup.texts / times["sorted"],
            "useful GFLOP/s": work / min(times.values()),
        } | ({"least cosine": cosines[name]} if name in cosines else {})
    speeds = {name: row["useful GFLOP/s"] for name, row in rows.items()}
    says = [*about_formats(rates), *about_side(speeds, rates)]
    title = (
        f"Vectors of {setup.texts} texts, {workload.num_tokens:,} tokens in all, in batches of "
        f"{_BATCH}, {_on(setup)}"
    )
    facts = {"products": rates, **_facts(turns)}
    columns = tuple(next(iter(rows.values()))) if rows else ()
    return Table("encode", title, columns, rows, left_out, says, facts)


def latency(setup: Setup, sides: Sequence[str] | None, say: Say) -> Table:
    """Vectors of one text at a time; the first of a process, which may be slower, beside them."""
    longest = setup.checkpoint.config.max_tokens_per_sequence
    lengths = list(dict.fromkeys(min(length, longest) for length in _LENGTHS))
    some = {str(n): {"do": "requests", "tokens": n, "count": _REQUESTS} for n in lengths}
    firsts: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def begin(ready: Mapping[str, Child]) -> None:
        one = {key: request | {"count": 1} for key, request in some.items()}
        turns = take_turns(ready, dict.fromkeys(ready, one), rounds=1, warm_up=False)
        firsts.update(turns.replies)

    workload = _drawn(setup, [8])
    turns, left_out = _measured(
        setup, "encode", sides or ENCODERS, workload, some, say, first=begin
    )
    rows: dict[str, dict[str, float]] = {}
    for name, replies in turns.replies.items():
        rows[name] = {}
        for key, answers in replies.items():
            times = sorted(1e3 * s for answer in answers for s in answer["seconds"])
            rows[name] |= {
                f"{key} tokens: p50 ms": statistics.median(times),
                f"{key} tokens: p99 ms": times[math.ceil(0.99 * len(times)) - 1],
                f"{key} tokens: first ms": 1e3 * firsts[name][key][0]["seconds"][0],
            }
    short = f"{lengths[0]} tokens: p50 ms"
    speeds = {name: 1e3 / row[short] for name, row in rows.items()}
    says = about_side(speeds, {}, unit=f"texts of {lengths[0]} tokens a second, one at a time")
    title = f"Vectors of one text at a time, {_on(setup)}"
    columns = tuple(next(iter(rows.values()))) if rows else ()
    return Table("latency", title, columns, rows, left_out, says, _facts(turns))


def tokenize(setup: Setup, sides: Sequence[str] | None, say: Say) -> Table:
    """Token ids of the sample's comments."""
    turns, left_out = _measured(setup, "tokenize", sides, None, {"all": {}}, say)
    rows = {}
    for name, replies in turns.replies.items():
        seconds, first = _median(replies["all"]), replies["all"][0]
        rows[name] = {
            "texts/s": first["texts"] / seconds,
            "tokens/s": first["tokens"] / seconds,
            "MB/s": first["bytes"] / seconds / 1e6,
        }
    counts = next(iter(turns.replies.values()), {"all": [{"texts": 0}]})["all"][0]
    title = f"Token ids of {counts['texts']:,} comments, {setup.threads} threads"
    says = about_side({name: row["MB/s"] for name, row in rows.items()}, {}, unit="MB/s")
    columns = tuple(next(iter(rows.values()))) if rows else ()
    return Table("tokenize", title, columns, rows, left_out, says, _facts(turns))


def train(setup: Setup, sides: Sequence[str] | None, say: Say) -> Table:
    """Optimiser steps of a classifier on the sample's comments."""
    turns, left_out = _measured(setup, "train", sides, None, {"all": {}}, say)
    rows = {}
    for name, replies in turns.replies.items():
        seconds, first = _median(replies["all"]), replies["all"][0]
        rows[name] = {
            "rows/s": first["texts"] / seconds,
            "tokens/s": first["tokens"] / seconds,
            # A backward pass is twice the work of a forward pass.
            "useful GFLOP/s": 3 * useful_gflop(setup.checkpoint.config, first["tokens"]) / seconds,
        }
    title = f"Fine-tuning steps of 32 comments, at most 256 tokens each, {_on(setup)}"
    speeds = {name: row["useful GFLOP/s"] for name, row in rows.items()}
    columns = tuple(next(iter(rows.values()))) if rows else ()
    return Table("train", title, columns, rows, left_out, about_side(speeds, {}), _facts(turns))


def serve(setup: Setup, sides: Sequence[str] | None, say: Say) -> Table:
    """Vectors over HTTP, for 1, 16 and 64 clients, each of which asks when it is answered."""
    names, _ = take_part("serve", sides, setup.device)
    # The warm-up and two rounds fill the time.
    turn = setup.seconds / (3 * len(_CLIENTS) * max(1, len(names)))
    requests = {str(n): {"clients": n, "seconds": turn} for n in _CLIENTS}
    turns, left_out = _measured(setup, "serve", sides, None, requests, say)
    rows = {}
    for name, replies in turns.replies.items():
        for n in _CLIENTS:
            some = replies[str(n)]
            rows[f"{name}, {_counted(n, 'clients', 'client')}"] = {
                "requests/s": statistics.median(r["requests"] / r["seconds"] for r in some),
                "p50 ms": 1e3 * statistics.median(r["p50"] for r in some),
                "p99 ms": 1e3 * statistics.median(r["p99"] for r in some),
                "errors": sum(r["errors"] for r in some),
                "MiB": some[-1]["megabytes"],
            }
    most = f", {_CLIENTS[1]} clients"
    speeds = {
        name.removesuffix(most): row["requests/s"]
        for name, row in rows.items()
        if name.endswith(most)
    }
    says = about_side(speeds, {}, unit=f"requests/s for {_CLIENTS[1]} clients")
    title = f"Vectors of one comment a request over HTTP, {_on(setup)}"
    columns = tuple(next(iter(rows.values()))) if rows else ()
    return Table("serve", title, columns, rows, left_out, says, _facts(turns))


MAKERS = {
    "tokenize": tokenize,
    "encode": encode,
    "latency": latency,
    "train": train,
    "serve": serve,
}


def _drawn(setup: Setup, lengths: Sequence[int] | np.ndarray) -> Workload:
    """Texts of so many tokens, drawn from the model's vocabulary."""
    tokenizer = setup.tokenizer
    return drawn(
        lengths,
        vocab_size=setup.checkpoint.config.vocab_size,
        cls_id=tokenizer.cls_id or 0,
        sep_id=tokenizer.sep_id or 0,
    )


def _measured(
    setup: Setup,
    work: str,
    wanted: Sequence[str] | None,
    workload: Workload | None,
    requests: Mapping[str, Mapping[str, Any]],
    say: Say,
    *,
    first: Callable[[Mapping[str, Child]], None] = lambda ready: None,
) -> tuple[Turns, list[str]]:
    """Turns of all sides that are here, and why others are not in the table.

    What has to be asked of fresh processes is asked by `first`.
    """
    names, left_out = take_part(work, wanted, setup.device)
    data = samples.path("toxic_train.csv.gz")
    if workload is not None:
        data = setup.place / "ids.npz"
        workload.save(data)
    converted = str(setup.place / "converted")
    jobs = [
        Job(work, name, str(setup.model), str(data), converted, setup.threads, setup.device)
        for name in names
    ]
    say(f"{work}: {_counted(len(jobs), 'sides get ready', 'side gets ready')}")
    with children(jobs, setup.place / work, together=min(4, setup.threads)) as (ready, failed):
        first(ready)
        what = _counted(len(ready), "sides take turns", "side works")
        say(f"{work}: {what} for about {setup.seconds:.0f} s")
        turns = take_turns(
            ready, dict.fromkeys(ready, requests), rounds=_ROUNDS, seconds=setup.seconds
        )
    return turns, [*left_out, *failed, *turns.failed]


def _counted(count: int, many: str, one: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _median(replies: Sequence[Mapping[str, Any]]) -> float:
    return float(statistics.median(reply["seconds"] for reply in replies))


def _on(setup: Setup) -> str:
    return f"{setup.threads} threads" if setup.device == "cpu" else setup.device


def _facts(turns: Turns) -> dict[str, Any]:
    return {"rounds": turns.rounds, "other_programs_cores": turns.others}
