r"""Latency and throughput of inference on one GPU, everything in one command.

    python benchmarks/inference_gpu.py [--sizes base minilm] \
        [--dtype bf16] [--lengths 128 384 512] [--no-peers]

Whole answers are timed, from token ids on the host to scores on the host: laying out, transfers and
a classification head are in it, tokenising is not. Weights are drawn at random.

- latency: one sequence at a time, a different one each time; median (p50) and 99th percentile.
- throughput: sequences of one length, and of log-normal lengths (median 50, mean 71, at most 256),
  unsorted; the median of five windows with their spread.

Peers, where installed: transformers with its scaled_dot_product attention, padded batches sorted by
length, as it is and with torch.compile.

Utilisation is the model's FLOPs (two for each multiply-add of a matrix product, attention's own
counted, padding not) against the rate of a large product on the same GPU in the same minute.
`--cpu-smoke` runs all of it tiny on a CPU: the figures then mean nothing.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from flops import forward_flops

# So that it runs on a rented GPU from a bare checkout, where nothing is installed.
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent / "against"))

from runs import add_results_options, append

from filbert.data.examples import Example
from filbert.inference.forward import MAX_TOKENS_CUDA, run_model
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.precision import Precision
from inference_gpu_peers import Run, peers_of
from pretrain_gpu import product_peak, synchronize

WINDOWS = 5
VOCAB_SIZE = 30_522
FIRST_WORD = 1_000
# Layers, hidden size, heads; the feed-forward layer is four times as wide.
SIZES = {"base": (12, 768, 12), "minilm": (6, 384, 12), "tiny": (2, 64, 2)}
DTYPES = {"bf16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
VARIABLE = "log-normal"
LATENCY_LENGTHS = (16, 128)

# For base on one H200: docs/gpu.md.
GOAL_SEQUENCES = 21_000
GOAL_LATENCY_MS = 0.4
GOAL_VARIABLE = 0.95


class Plan(NamedTuple):
    """Tokens per batch, full batches in a window, requests for latency, longest variable length."""

    tokens: int
    batches: int
    requests: int
    longest: int = 256


class Way(NamedTuple):
    """A name, what takes examples to answers on the host, and seconds to make that ready."""

    name: str
    run: Run
    seconds: float


# What is run


def config_of(size: str, longest: int) -> EncoderConfig:
    layers, hidden, heads = SIZES[size]
    return EncoderConfig.of(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=max(512, longest),
        pooler="tanh",
    )


def model_of(config: EncoderConfig, device: torch.device, dtype: torch.dtype) -> Model:
    torch.manual_seed(0)
    model = Model(Encoder(config), new_head("sequence", config, 2))
    # Larger weights than fresh ones, so that texts differ in their answers.
    initialize(model, 0.05)
    return model.to(device, dtype).eval()


def examples_of(lengths: Sequence[int], seed: int = 0) -> list[Example]:
    draw = np.random.default_rng(seed)
    return [
        Example(
            row,
            draw.integers(FIRST_WORD, VOCAB_SIZE, length).astype(np.int32),
            np.zeros(length, np.uint8),
            length,
        )
        for row, length in enumerate(lengths)
    ]


def variable_lengths(num_tokens: int, longest: int, seed: int = 0) -> list[int]:
    """Log-normal lengths, median 50 and mean 71 before they are cut, of so many tokens together."""
    draw = np.random.default_rng(seed)
    deviation = np.sqrt(2 * np.log(71 / 50))
    found: list[int] = []
    while num_tokens > 0:
        found.append(int(np.clip(round(50 * draw.lognormal(0, deviation)), 3, longest)))
        num_tokens -= found[-1]
    return found


def ways_of(model: Model, tokens: int) -> Iterator[Way]:
    """Filbert's one way, packed; single texts must give what they give in company."""
    run: Run = partial(run_model, model, max_tokens=tokens, precision=Precision("float32", ""))
    began = time.perf_counter()
    checked = examples_of([5, 17, 100 % tokens, *[30] * 20])
    wanted = torch.stack(run(checked))
    off = (torch.stack([run([example])[0] for example in checked]) - wanted).abs().max()
    off /= wanted.abs().max()
    # bf16 has 8 bits.
    if not off <= (1e-5 if next(model.parameters()).dtype == torch.float32 else 0.05):
        raise SystemExit(f"packed: single texts are {float(off):.2%} off")
    yield Way("packed", run, time.perf_counter() - began)


# Measuring


def latency(run: Run, length: int, requests: int) -> dict[str, float]:
    """Milliseconds for one sequence at a time; every call ends with its answer on the host."""
    examples = examples_of([length] * 64, seed=1)
    warm = max(3, requests // 10)
    found = []
    for index in range(warm + requests):
        began = time.perf_counter()
        run([examples[index % 64]])
        found.append(1e3 * (time.perf_counter() - began))
    p50, p99 = map(float, np.percentile(found[warm:], [50, 99]))
    return {"p50_ms": p50, "p99_ms": p99}


def throughput(
    run: Run, examples: Sequence[Example], config: EncoderConfig, device: torch.device
) -> dict[str, Any]:
    """Medians of `WINDOWS` passes over the examples; one before is not timed."""
    lengths = [len(example.input_ids) for example in examples]
    flops = forward_flops(config, lengths, num_masked=0, num_pooled=len(lengths))
    seconds = []
    for _ in range(WINDOWS + 1):
        synchronize(device)
        began = time.perf_counter()
        run(examples)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds[1:])
    slow, fast = max(seconds[1:]), min(seconds[1:])
    return {
        "sequences_per_second": len(lengths) / middle,
        "tokens_per_second": sum(lengths) / middle,
        "tokens_spread": [sum(lengths) / slow, sum(lengths) / fast],
        "flops_per_second": flops / middle,
    }


def measured(
    way: Way, config: EncoderConfig, device: torch.device, lengths: Sequence[int], plan: Plan
) -> Iterator[dict[str, Any]]:
    """All figures of one way."""
    for length in LATENCY_LENGTHS:
        found = latency(way.run, length, plan.requests)
        yield {"what": "latency", "length": length, **found}
    for length in lengths:
        examples = examples_of([length] * (plan.batches * max(1, plan.tokens // length)))
        found = throughput(way.run, examples, config, device)
        yield {"what": "throughput", "length": length, **found}
    examples = examples_of(variable_lengths(plan.batches * plan.tokens, plan.longest))
    found = throughput(way.run, examples, config, device)
    yield {"what": "throughput", "length": VARIABLE, **found}


# Saying


def table(records: Sequence[dict[str, Any]]) -> str:
    lines = ["| size | way | what | length | figure | of the peak |", "|" + "---|" * 6]
    for record in records:
        of_peak = ""
        if record["what"] == "latency":
            figure = f"p50 {record['p50_ms']:.3f} ms, p99 {record['p99_ms']:.3f} ms"
        else:
            low, high = record["tokens_spread"]
            figure = (
                f"{record['sequences_per_second']:,.0f} sequences/s, "
                f"{record['tokens_per_second']:,.0f} tokens/s ({low:,.0f} to {high:,.0f})"
            )
            of_peak = f"{record['utilisation']:.1%}"
        lines.append(
            f"| {record['size']} | {record['way']} | {record['what']} | {record['length']} "
            f"| {figure} | {of_peak} |"
        )
    return "\n".join(lines)


def goals(records: Sequence[dict[str, Any]], size: str = "base") -> list[str]:
    """A line a goal, with the best of our ways; none for what was not measured."""

    def figures(what: str, length: int | str, key: str) -> dict[str, float]:
        return {
            record["way"]: record[key]
            for record in records
            if (record["size"], record["what"], record["length"]) == (size, what, length)
            and record["way"] == "packed"
        }

    lines = []

    def say(name: str, found: float, goal: float, is_met: bool, way: str) -> None:
        verdict = "met" if is_met else "missed"
        lines.append(f"goal {verdict}: {name}: {found:,.3g} ({way}), wanted {goal:,.4g}")

    for way, found in _best(figures("throughput", 128, "sequences_per_second"), max):
        say("sequences/s at 128 tokens", found, GOAL_SEQUENCES, found >= GOAL_SEQUENCES, way)
    even = figures("throughput", 128, "tokens_per_second")
    uneven = figures("throughput", VARIABLE, "tokens_per_second")
    for (way, found), (_, most) in zip(_best(uneven, max), _best(even, max), strict=False):
        name, found = "tokens/s at log-normal lengths, share of those at 128", found / most
        say(name, found, GOAL_VARIABLE, found >= GOAL_VARIABLE, way)
    for way, found in _best(figures("latency", 128, "p50_ms"), min):
        say("ms for one of 128 tokens", found, GOAL_LATENCY_MS, found < GOAL_LATENCY_MS, way)
    return lines


def _best(figures: dict[str, float], choose: Any) -> list[tuple[str, float]]:
    return [choose(figures.items(), key=lambda pair: pair[1])] if figures else []


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["base", "minilm"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 384, 512])
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--tokens", type=int, default=MAX_TOKENS_CUDA, help="per batch")
    parser.add_argument("--batches", type=int, default=16, help="full ones in each window")
    parser.add_argument("--requests", type=int, default=1_000, help="for latency")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--cpu-smoke", action="store_true", help="all of it, tiny, on a CPU")
    add_results_options(parser, "inference_gpu")
    given = parser.parse_args(words)
    if given.cpu_smoke:
        given.sizes, given.lengths, given.dtype = ["tiny"], [16, 128], "float32"
        given.tokens, given.batches, given.requests = 512, 1, 3
    elif not torch.cuda.is_available():
        parser.error("there is no CUDA GPU; --cpu-smoke shows that it works")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    device = torch.device("cpu" if given.cpu_smoke else "cuda")
    dtype = DTYPES[given.dtype]
    peak = product_peak(device, dtype, 256 if given.cpu_smoke else 8_192)
    name = platform.machine() if given.cpu_smoke else torch.cuda.get_device_name(device)
    print(f"{name}, torch {torch.__version__}: {given.dtype} product {peak / 1e12:.3g} TFLOP/s")
    plan = Plan(given.tokens, given.batches, given.requests)
    if given.cpu_smoke:
        # What would be compiled runs as it is.
        torch.compiler.set_stance("force_eager")
    known = {
        "precision": given.dtype,
        "tokens": given.tokens,
        "peak": peak,
        "device": name,
        "torch": torch.__version__,
        "time": time.strftime("%F %T"),
    }
    records: list[dict[str, Any]] = []

    def measure(size: str, way: Way, config: EncoderConfig) -> None:
        for found in measured(way, config, device, given.lengths, plan):
            if "flops_per_second" in found:
                found["utilisation"] = found["flops_per_second"] / peak
            record = {"size": size, "way": way.name, **found, "ready_seconds": way.seconds} | known
            if device.type == "cuda":
                record["reserved_bytes"] = torch.cuda.memory_reserved(device)
            records.append(record)
            print(table([record]).splitlines()[-1], flush=True)
            append(given.results, record)

    try:
        for size in given.sizes:
            config = config_of(size, max(given.lengths))
            model = model_of(config, device, dtype)
            for way in ways_of(model, given.tokens):
                measure(size, way, config)
            if not given.no_peers:
                for peer, run in peers_of(config, device, dtype, given.tokens, compile=True):
                    measure(size, Way(peer, run, 0.0), config)
    finally:
        torch.compiler.set_stance("default")
    print(table(records))
    print("\n".join(goals(records)) or "no goal is set for what was measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
