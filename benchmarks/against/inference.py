r"""Vectors of texts from token ids: filbert and its peers, the same ids, in turns.

    python benchmarks/against/inference.py [--models base minilm] [--sides NAME ...] [--rounds 5]

256 texts of log-normal length (median 50, mean 71, at most 256 tokens; random words), every side in
a process of its own, all of them ready at once and one at work at a time. A turn is all texts once:
in batches of 32 as they come, of 32 and 8 longest first, and, for those who make batches
themselves, all of them in one call. What comes out is the mean of each text's last hidden states;
tokenising is not in it. A figure is the median of the rounds, after one that does not count.

Useful GFLOP/s: 2 x the parameters of the layers (85.05 million for BERT-base) x real tokens per
second; padding and attention's own products count for nothing. "base" has BERT-base's shape and
random weights, since its own are not at hand: the work is the same, but its vectors mean nothing,
so look at MiniLM's for what a number format costs.

All settings of a side follow each other in every round, so that a machine that is slow for some
minutes is slow for all of them. Peers that are not installed are named and left out. Results are
written model by model, and the same command makes those that are missing (`--again` for all).
All sides of the base model together need about 14 GB. `--small` is a look at the machinery in a
minute and proves nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from inference_models import LABELS
from inference_runs import add, jobs_of, kept_in, models_of, options, said, sides_of
from inference_table import markdown, rate
from runs import Record, carry_out

from filbert.checkpoints.opening import read_checkpoint
from filbert.model.config import EncoderConfig
from sides.agreement import least_cosines
from sides.products import layer_shapes, product_rates
from sides.turns import Child, Turns, children, take_turns
from sides.workload import (
    Workload,
    drawn,
    layer_parameters,
    mixed_lengths,
    useful_gflop,
)

# Order and batch; 0 is all texts in one call.
SETTINGS = {
    "unsorted, 32": ("unsorted", 32),
    "sorted, 32": ("sorted", 32),
    "sorted, 8": ("sorted", 8),
    "unsorted, all": ("unsorted", 0),
}
# Those who make batches of a list themselves.
OWN_BATCHES = ("filbert", "plain-torch")
# What turns that need not be made twice have in common.
SAME = ("model", "ids", "side", "setting", "threads", "device")
SMALL = {"models": ["tiny"], "rounds": 1, "texts": 12, "settings": ["unsorted, 32"]}


def about_model(config: EncoderConfig, workload: Workload) -> Record:
    return {
        "ids": workload.digest,
        "texts": len(workload.texts),
        "tokens": workload.num_tokens,
        "layer_parameters": layer_parameters(config),
        "useful_gflop": useful_gflop(config, workload.num_tokens),
    }


def is_asked(side: str, setting: str) -> bool:
    return SETTINGS[setting][1] > 0 or side.startswith(OWN_BATCHES)


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Record], int]:
    """Make the turns that are missing; all records that were asked for, and the failures."""
    kept = kept_in(given, out, results, *SAME)
    names = sides_of(given)
    chosen: list[Record] = []
    failures = 0
    for model, folder, vocabulary in models_of(given, out):
        config = read_checkpoint(folder).config
        workload = drawn(mixed_lengths(given.texts), vocab_size=config.vocab_size, **vocabulary)
        place = out / f"{model}-{workload.digest}"
        place.mkdir(parents=True, exist_ok=True)
        workload.save(place / "ids.npz")
        about = about_model(config, workload) | {
            "model": model,
            "label": LABELS[model],
            "threads": given.threads,
            "device": given.device,
        }
        wanted = {
            setting: [
                about | {"side": name, "setting": setting}
                for name in names
                if is_asked(name, setting)
            ]
            for setting in given.settings
        }
        missing = {setting: kept.missing(records) for setting, records in wanted.items()}
        sides = {record["side"] for records in missing.values() for record in records}
        jobs = jobs_of([name for name in names if name in sides], folder, place, given)
        if jobs:
            print(f"{LABELS[model]}: bare matrix products", flush=True)
            shapes = layer_shapes(config)
            rates = product_rates(
                shapes, device=given.device, seconds=given.seconds, threads=given.threads
            )
            with children(jobs, place / "logs", together=given.threads) as (ready, failed):
                failures += said(failed)
                close = least_cosines(ready, place)
                records = [r for some in missing.values() for r in some if r["side"] in ready]
                turns = _turns(ready, records, given.rounds)
                failures += said(turns.failed)
                for record in records:
                    name, setting = record["side"], record["setting"]
                    if name not in turns.replies:
                        continue
                    record |= {
                        "seconds": [r["seconds"] for r in turns.replies[name][setting]],
                        "cosine": close.get(name),
                        "products": rates,
                    }
                    add(kept, record, turns)
                    print(f"  {setting:14} {name:22} {rate(record):7.1f}", flush=True)
        chosen += kept.made(record for records in wanted.values() for record in records)
    return chosen, failures


def _turns(ready: dict[str, Child], records: list[Record], rounds: int) -> Turns:
    """Turns of all sides, each in the settings that are asked of it."""
    requests: dict[str, dict[str, Record]] = {}
    for record in records:
        order, batch = SETTINGS[record["setting"]]
        request = {"do": "run", "order": order, "batch": batch}
        requests.setdefault(record["side"], {})[record["setting"]] = request
    return take_turns(
        {name: child for name, child in ready.items() if name in requests},
        requests,
        rounds=rounds,
        on_round=lambda number: print(f"  round {number} of {rounds}", flush=True),
    )


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = options(__doc__, "inference")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each matrix product")
    given = parser.parse_args(words)
    if given.small:
        vars(given).update(SMALL | {"seconds": 0.01})
    return given


def main() -> int:
    given = parse()
    return carry_out(
        "inference",
        given,
        compare,
        lambda records: markdown(records, SETTINGS),
        is_recorded=not given.small,
    )


if __name__ == "__main__":
    sys.exit(main())
