"""Feeds hostile files to everything that reads a model, and looks at what it does.

    python benchmarks/stress_formats.py --cases 120000 --out runs/stress_formats
    python benchmarks/stress_formats.py --reader config --case 4711 --keep runs/case

Each case damages valid files, by a random generator that the seed, the reader and the number of the
case decide. Reading them must end in a FormatError or in a model, within a second of processor time
and 256 MB; it must not crash, reach the network, run a program or write outside the folder. Cases
are read in worker processes, so that a crash and a hang have a name. A run that was stopped goes on
where it was. Exits with 1 if any case failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hostile.readers import READERS, Reader
from hostile.watch import check_bases, files_of, run_cases, run_one, write_files

_KEPT_FAILURES = 200
_HEAD = ("reader", "cases", "refused", "accepted", "failed", "slowest s", "memory MB")


def new_totals(reader: str, seed: int) -> dict[str, Any]:
    counts = dict.fromkeys(("cases", "refused", "accepted", "failed"), 0)
    return {"reader": reader, "seed": seed, **counts, "slowest": 0.0, "megabytes": 0.0} | {
        "failures": []
    }


def load_totals(folder: Path, reader: str, seed: int) -> dict[str, Any]:
    path = folder / f"{reader}-{seed}.json"
    return json.loads(path.read_text()) if path.is_file() else new_totals(reader, seed)


def save_totals(folder: Path, totals: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{totals['reader']}-{totals['seed']}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(totals, indent=1))
    temporary.replace(path)


def stress(reader: Reader, seed: int, cases: int, until: float, folder: Path) -> dict[str, Any]:
    """Run the cases of a reader that have not run yet, up to a moment of time.monotonic()."""
    check_bases(reader)
    totals = load_totals(folder, reader.name, seed)
    saved = time.monotonic()
    for result in run_cases(reader, seed, range(totals["cases"], cases)):
        totals["cases"] = result.case + 1
        totals[result.ending] += 1
        if result.seconds > totals["slowest"]:
            totals |= {"slowest": result.seconds, "slowest_case": result.case}
        totals["megabytes"] = max(totals["megabytes"], result.megabytes)
        if result.ending == "failed" and len(totals["failures"]) < _KEPT_FAILURES:
            totals["failures"].append(asdict(result))
        if time.monotonic() - saved > 10 or result.ending == "failed":
            save_totals(folder, totals)
            saved = time.monotonic()
        if time.monotonic() > until:
            break
    save_totals(folder, totals)
    return totals


def table(rows: list[dict[str, Any]]) -> str:
    """The totals, one line a reader."""
    names = ("cases", "refused", "accepted", "failed")
    total: dict[str, Any] = {name: sum(row[name] for row in rows) for name in names}
    total |= {name: max(row[name] for row in rows) for name in ("slowest", "megabytes")}
    lines = [_HEAD]
    for row in [*rows, {"reader": "all", **total}]:
        counts = [f"{row[name]:,}" for name in names]
        lines.append((row["reader"], *counts, f"{row['slowest']:.2f}", f"{row['megabytes']:.0f}"))
    text = [f"{line[0]:<12}" + "".join(f"{cell:>11}" for cell in line[1:]) for line in lines]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=120_000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", choices=READERS, action="append", help="default: all of them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--case", type=int, help="run this one alone and print how it ends")
    parser.add_argument("--keep", type=Path, help="with --case: put its files there")
    parser.add_argument("--out", type=Path, default=Path("runs/stress_formats"))
    asked = parser.parse_args()
    os.environ["RUST_BACKTRACE"] = "0"  # writing one for every panic takes seconds
    names = asked.reader or list(READERS)
    if asked.case is not None:
        if asked.keep:
            write_files(asked.keep, files_of(READERS[names[0]], asked.seed, asked.case))
        print(run_one(names[0], asked.seed, asked.case))
        return
    until = time.monotonic() + asked.seconds
    each = -(-asked.cases // len(names))
    rows = [stress(READERS[name], asked.seed, each, until, asked.out) for name in names]
    print(table(rows))
    for row in rows:
        for failure in row["failures"]:
            print(
                f"--seed {row['seed']} --reader {row['reader']} --case {failure['case']}: "
                f"{failure['what']}"
            )
    if left := {row["reader"]: each - row["cases"] for row in rows if row["cases"] < each}:
        print(f"stopped early; cases left: {left}. The same command goes on.")
    sys.exit(1 if any(row["failed"] for row in rows) else 0)


if __name__ == "__main__":
    main()
