r"""What filbert does on one GPU: equal to the CPU, how fast, next to its peers, in one table.

    python benchmarks/gpu_proof.py [--parts NAME...] [--out DIR] [--toy]

Every part is a process of its own with a time limit, all together ten minutes. Each result is
written when it is there: DIR/gpu-proof.md (the table) and DIR/gpu-proof.json (the same with the
machine). The exit status is 1 if a part fails or a difference is beyond its bound; the other parts
run all the same. Goals of speed are for one H200 and do not change the exit status. `--toy` runs
all of it tiny on a CPU, where the numbers mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

# So that it runs on a rented GPU from a bare checkout, where nothing is installed.
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import gpu_equality  # noqa: E402
import gpu_speed  # noqa: E402
from filbert import __version__  # noqa: E402

# What a part measures, and after how many seconds it leaves out the rest.
PARTS = {
    "attention": (gpu_equality.attention, 45),
    "families": (gpu_equality.families, 45),
    "gradients": (gpu_equality.gradients, 40),
    "shipped": (gpu_equality.shipped, 40),
    "pretraining": (gpu_speed.pretraining, 110),
    "inference": (gpu_speed.inference, 230),
}
# A part that hangs is ended so many seconds later; and all of it before ten minutes are over.
SLACK, LIMIT = 30, 590
HEADER = "| part | what | side | result | bound or goal | | note |"


def stamp(device: torch.device) -> dict[str, Any]:
    """The GPU, its driver, versions, date and commit."""
    found: dict[str, Any] = {"device": platform.processor() or platform.machine()}
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory / 2**30
        found = {"device": torch.cuda.get_device_name(device), "memory": f"{memory:.0f} GiB"}
        found["driver"] = output_of("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    found |= {"torch": torch.__version__, "cuda": torch.version.cuda, "filbert": __version__}
    peers = ("transformers", "sentence-transformers")
    found |= {name: version(name) for name in peers if find_spec(name.replace("-", "_"))}
    found["commit"] = output_of("git describe --always --dirty --abbrev=12") or "unknown"
    return found | {"cores": os.cpu_count(), "date": time.strftime("%F %T")}


def output_of(command: str) -> str:
    """What a command prints; nothing where it is missing or fails."""
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


class Table:
    """The rows so far, in a folder: both files are written again after each row."""

    def __init__(self, folder: Path, machine: dict[str, Any] | None = None) -> None:
        """Begin a table with the machine, or go on with the one in the folder."""
        self.json, self.markdown = folder / "gpu-proof.json", folder / "gpu-proof.md"
        folder.mkdir(parents=True, exist_ok=True)
        self.content: dict[str, Any] = {"machine": machine, "rows": []}
        if machine is None:
            self.content = json.loads(self.json.read_text(encoding="utf-8"))
        self.write()

    def add(self, part: str, row: dict[str, Any]) -> None:
        """Append a row; a goal is met or missed on an H200 only."""
        is_speed = row.get("goal") is not None and row.get("side", "").startswith("filbert")
        if is_speed and "H200" in self.content["machine"]["device"]:
            row = row | {"met": row["value"] >= row["goal"]}
        self.content["rows"].append({"part": part, **row})
        self.write()

    def write(self) -> None:
        """Write both files, each as a whole."""
        machine = ", ".join(f"{k} {v}" for k, v in self.content["machine"].items() if v)
        lines = [machine, "", HEADER, "|" + "---|" * 7, *map(line, self.content["rows"]), ""]
        contents = {self.json: json.dumps(self.content, indent=1), self.markdown: "\n".join(lines)}
        for path, content in contents.items():
            spare = path.with_suffix(".part")
            spare.write_text(content, encoding="utf-8")
            spare.replace(path)


def line(row: dict[str, Any]) -> str:
    """A row in Markdown."""
    value, limit, unit = row.get("value"), row.get("bound", row.get("goal")), row.get("unit")
    shown = "" if value is None else _number(value, unit)
    if spread := row.get("spread"):
        shown += f" ({_number(spread[0], '')} to {_number(spread[1], '')})"
    verdicts = {"passed": ("FAIL", "pass"), "met": ("missed", "met")}
    verdict = "".join(names[row[key]] for key, names in verdicts.items() if key in row)
    wanted = "" if limit is None else _number(limit, unit)
    cells = (row.get("side", "filbert"), shown, wanted, verdict, row.get("note", ""))
    return f"| {' | '.join((row['part'], row['what'], *cells))} |"


def _number(value: float, unit: str | None) -> str:
    if unit is None or unit == "MFU":
        return f"{value:.2g}" if unit is None else f"{value:.1%} MFU"
    return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" {unit}".rstrip()


def run_part(name: str, table: Table, device: torch.device, toy: bool) -> bool:
    """Add the rows of a part in this process; whether all of it passed."""
    measure, seconds = PARTS[name]
    began, is_well, count = time.perf_counter(), True, 0
    try:
        for row in measure(device, toy):
            table.add(name, row)
            count += 1
            is_well = is_well and row.get("passed", True)
            if time.perf_counter() - began > seconds:
                table.add(name, {"what": "the rest", "note": f"left out after {seconds} s"})
                is_well = is_well and "passed" not in row
                break
    except Exception as error:
        traceback.print_exc()
        said = (str(error).strip().splitlines() or [""])[0].replace("|", "/")[:200]
        row = {"what": "failed", "note": f"{type(error).__name__} {said}"}
        table.add(name, row | {"passed": False})
        is_well = False
    spent = time.perf_counter() - began
    print(f"{name}: {count} rows in {spent:.0f} s, {'well' if is_well else 'FAILED'}", flush=True)
    return is_well


def run_apart(name: str, folder: Path, seconds: float) -> bool:
    """The same in a process of its own, so that neither an error of CUDA nor a hang goes on."""
    command = [sys.executable, __file__, "--child", "--parts", name, "--out", str(folder)]
    try:
        done = subprocess.run(command, timeout=seconds)
        note = f"exit status {done.returncode}" if done.returncode not in (0, 1) else None
    except subprocess.TimeoutExpired:
        note = "ended after its time limit"
    if note is None:
        return done.returncode == 0
    Table(folder).add(name, {"what": "failed", "passed": False, "note": note})
    print(f"{name}: FAILED, {note}", flush=True)
    return False


def main(words: Sequence[str] | None = None) -> int:
    """Run the parts; 1 if one of them did not pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-proof"), help="%(default)s")
    parser.add_argument("--toy", action="store_true", help="all of it, tiny, on a CPU")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if not given.toy and not torch.cuda.is_available():
        parser.error("there is no CUDA GPU; --toy shows on a CPU that it works")
    device = torch.device("cpu" if given.toy else "cuda")
    if given.child:
        return 0 if run_part(given.parts[0], Table(given.out), device, given.toy) else 1
    table = Table(given.out, stamp(device))
    began, passed = time.monotonic(), True
    for name in given.parts:
        # On a CPU there is nothing to keep apart, and starting takes longer than measuring.
        if given.toy:
            passed &= run_part(name, table, device, True)
            continue
        left = LIMIT - (time.monotonic() - began)
        passed &= run_apart(name, given.out, min(PARTS[name][1] + SLACK, left))
    print(table.markdown)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
