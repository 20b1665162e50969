"""Measure how fast this machine runs a model: tokens, vectors and single texts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from filbert import samples
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.texts import read_texts
from filbert.errors import ConfigError, checked_keywords
from filbert.inference.predictor import Predictor
from filbert.model.precision import choose_device, gain
from filbert.train.provenance import device_name

TABLES = ("tokenize", "encode", "latency")
_MAX_LENGTH = 256
# Texts that are tokenised and encoded, tokens of a single text, texts of each length in a round.
_TEXTS, _LENGTHS, _REQUESTS = 128, (16, 128), 20

Measured = dict[str, dict[str, float]]


@checked_keywords
def bench(
    what: str | None = None,
    *,
    model: str | os.PathLike[str] = "filbert-mini",
    seconds: float = 10.0,
    threads: int | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Measure how fast this machine runs a model in its number formats; see `filbert bench`.

    The formats take turns; `threads` are as many as torch uses if None.

    Returns:
        `model`, `device`, `threads`, `vector_units`, and in `results` the values by row, such as
        {"encode float32": {"texts/s": 180.0, ...}}.
    """
    if what is not None and what not in TABLES:
        raise ConfigError(f"There is no bench {what!r}. Available: {', '.join(TABLES)}.")
    if (threads is not None and threads < 1) or not 0 < seconds < 1e6:
        raise ConfigError("--threads and --seconds must be above zero.")
    if threads is not None:
        torch.set_num_threads(threads)
    tables, name = (what,) if what else TABLES, str(choose_device(device))
    # The number formats that this device multiplies itself; others are emulated slowly.
    fast = ["bf16"] if name != "cpu" else [p for p in ("bf16", "int8") if gain(p) >= 1]
    tokenizer = read_tokenizer(find_model(str(model)))
    rows = read_texts(str(samples.path("toxic_train.csv.gz")), ColumnNames())
    texts = [str(row.values["text"]) for _, row in zip(range(_TEXTS), rows, strict=False)]
    results: Measured = {}
    if "tokenize" in tables:
        times = _medians({"": lambda: tokenizer.encode(texts, max_length=_MAX_LENGTH)}, seconds)
        tokens = sum(len(e.input_ids) for e in tokenizer.encode(texts, max_length=_MAX_LENGTH))
        results["tokenize"] = {"texts/s": len(texts) / times[""], "tokens/s": tokens / times[""]}
    if "encode" in tables or "latency" in tables:
        formats = ("float32", *fast)
        loaded = {p: Predictor.load(str(model), precision=p, device=name) for p in formats}
        for predictor in loaded.values():
            predictor.warm_up()
        if "encode" in tables:
            results |= _encode(loaded, texts, seconds)
        if "latency" in tables:
            results |= _latency(loaded, seconds)
    return {
        "model": str(model),
        "device": device_name(torch.device(device or "cpu")),
        "threads": torch.get_num_threads(),
        "vector_units": torch.backends.cpu.get_cpu_capability(),
        "results": results,
    }


def _encode(loaded: dict[str, Predictor], texts: list[str], seconds: float) -> Measured:
    examples = next(iter(loaded.values())).text_examples(texts)
    tokens = sum(len(example.input_ids) for example in examples)

    def vectors(predictor: Predictor) -> np.ndarray:
        return np.stack(predictor.vectors(examples, pooling="mean", normalize=True))

    exact = vectors(loaded["float32"])
    times = _medians({p: lambda m=m: vectors(m) for p, m in loaded.items()}, seconds)  # type: ignore[misc]
    return {
        f"encode {precision}": {
            "texts/s": len(texts) / times[precision],
            "tokens/s": tokens / times[precision],
            "least cosine to float32": float((vectors(predictor) * exact).sum(1).min()),
        }
        for precision, predictor in loaded.items()
    }


def _latency(loaded: dict[str, Predictor], seconds: float) -> Measured:
    def one_at_a_time(predictor: Predictor, length: int) -> list[float]:
        ids = np.full(length, predictor.tokenizer.vocab_size // 2)
        example = Example(0, ids, np.zeros_like(ids), length)
        times = []
        for _ in range(_REQUESTS):
            started = time.perf_counter()
            predictor.vectors([example], pooling="mean", normalize=False)
            times.append(1e3 * (time.perf_counter() - started))
        return times

    results: Measured = {f"latency {precision}": {} for precision in loaded}
    longest = next(iter(loaded.values())).max_length
    for length in sorted({min(length, longest) for length in _LENGTHS}):
        times: dict[str, list[float]] = {precision: [] for precision in loaded}
        for _ in _rounds(seconds / len(_LENGTHS)):
            for precision, predictor in loaded.items():
                times[precision] += one_at_a_time(predictor, length)
        for precision, all_times in times.items():
            median, p99 = np.percentile(all_times, [50, 99])
            results[f"latency {precision}"] |= {
                f"{length} tokens: p50 ms": float(median),
                f"{length} tokens: p99 ms": float(p99),
            }
    return results


def _medians(work: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return the median seconds of each piece of work; they take turns, the first round is free."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in _rounds(seconds):
        for name, run in work.items():
            started = time.perf_counter()
            run()
            if number:
                times[name].append(time.perf_counter() - started)
    return {name: float(np.median(spent)) for name, spent in times.items()}


def _rounds(seconds: float) -> Iterator[int]:
    """Round numbers from 0 until the time is over; at least two."""
    end = time.perf_counter() + seconds
    number = 0
    while number < 2 or time.perf_counter() < end:
        yield number
        number += 1
