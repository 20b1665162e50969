"""What inference.py and latency.py share: models, processes, options, and records that are kept."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from inference_models import LABELS, folder_of
from runs import Kept, Record, add_results_options

from filbert.files import available_cores
from sides.facts import package_versions
from sides.job import Job
from sides.sides import SIDES, take_part
from sides.turns import Turns


def kept_in(given: argparse.Namespace, out: Path, results: Path | None, *names: str) -> Kept:
    """What `Kept` gives, with the versions of all engines."""
    return Kept(out, results, *names, again=given.again, versions=package_versions())


def add(kept: Kept, record: Record, turns: Turns) -> None:
    """Keep what was found in some turns, with what there is to know of these."""
    kept.add(record | {"beside": sorted(turns.replies), "others": turns.others})


def sides_of(given: argparse.Namespace) -> list[str]:
    """Those that take part; of the others it is said why not."""
    names, reasons = take_part(given.sides, given.device)
    print("".join(f"left out: {reason}\n" for reason in reasons), end="", flush=True)
    return names


def models_of(given: argparse.Namespace, out: Path) -> Iterator[tuple[str, Path, Any]]:
    """Name, folder and marks' ids of every model that can be had."""
    for model in given.models:
        folder, vocabulary = folder_of(model, out / "models")
        if folder is None:
            print(f"{model} is left out: {vocabulary}")
        else:
            yield model, folder, vocabulary


def jobs_of(
    names: Iterable[str], folder: Path, place: Path, given: argparse.Namespace
) -> list[Job]:
    """A process a side, over the ids that lie in `place`."""
    ids, converted = str(place / "ids.npz"), str(place / "converted")
    return [Job(name, str(folder), ids, converted, given.threads, given.device) for name in names]


def said(failed: Sequence[str]) -> int:
    """How many sides failed, after telling of each."""
    for sentence in failed:
        print(f"  failed: {sentence}", flush=True)
    return len(failed)


def options(doc: str, name: str) -> argparse.ArgumentParser:
    """The options of both."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=LABELS, default=["base", "minilm"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="all that are here")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--again", action="store_true", help="measure again what is there")
    parser.add_argument("--out", type=Path, help="models, logs and results, to go on from")
    add_results_options(parser, name)
    parser.add_argument("--small", action="store_true", help="a tiny model, no record")
    return parser
