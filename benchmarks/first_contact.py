"""Five newcomers with a table each: one command or five lines of Python, all options by default.

    python benchmarks/first_contact.py --data DIR [--only intents,spans] [--out runs/first-contact]

Each one makes the file that a user would have, runs its command in a process of its own, and
reports what the run recorded: score, baseline and the 95 % interval of the difference, seconds from
start to end, and megabytes that are left on the disk. Model: MiniLM; rows are drawn with seed 0.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FINETUNE = "filbert finetune --model minilm --out run "


def rows_of(data: Path, name: str, count: int) -> list[dict[str, str]]:
    """Rows of a table, drawn at random."""
    path = next(data.glob(f"{name}/train.?sv.gz"))
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        if ".tsv" in path.name:
            table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        else:
            table = csv.DictReader(file)
        rows = list(table)
    return random.Random(0).sample(rows, min(count, len(rows)))


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def intents(data: Path, place: Path) -> list[str]:
    """Ten intents of customers in a CSV file whose columns have names of their own."""
    rows = rows_of(data, "banking77", 10_000)
    wanted = sorted({row["label"] for row in rows})[:10]
    table = [
        {"ticket": number, "message": row["text"], "intent": row["label"]}
        for number, row in enumerate(rows)
        if row["label"] in wanted
    ]
    write_csv(place / "tickets.csv", table[:600])
    return [*FINETUNE.split(), "--task", "classification", "--data", "tickets.csv"]


def frame(data: Path, place: Path) -> list[str]:
    """A pandas DataFrame with 120 rows, in five lines of Python."""
    rows = rows_of(data, "sms_spam", 120)
    write_csv(place / "messages.csv", rows)
    lines = (
        "import filbert, pandas",
        "messages = pandas.read_csv('messages.csv')",
        "run = filbert.finetune(task='classification', model='minilm', data=messages, out='run')",
        "print(run)",
        "print(run.model.predict('Call this number now and win a free phone!'))",
    )
    return [sys.executable, "-c", "\n".join(lines)]


def ratings(data: Path, place: Path) -> list[str]:
    """Film reviews with one to five stars, as a regression."""
    stars = ("very negative", "negative", "neutral", "positive", "very positive")
    table = [
        {"review": row["text"], "stars": 1 + stars.index(row["label"])}
        for row in rows_of(data, "sst5", 2_000)
    ]
    write_csv(place / "reviews.csv", table)
    return [*FINETUNE.split(), "--task", "regression", "--data", "reviews.csv"]


def entities(data: Path, place: Path) -> list[str]:
    """Named entities in a CoNLL file."""
    shutil.copy(data / "wnut17" / "train.conll.gz", place / "entities.conll.gz")
    return [*FINETUNE.split(), "--task", "tagging", "--data", "entities.conll.gz"]


def imbalanced(data: Path, place: Path) -> list[str]:
    """20,000 comments, a tenth of them toxic."""
    rows = rows_of(data, "jigsaw_toxic_binary", 20_000)
    write_csv(place / "comments.csv", rows)
    return [*FINETUNE.split(), "--task", "classification", "--data", "comments.csv"]


NEWCOMERS: dict[str, Callable[[Path, Path], list[str]]] = {
    one.__name__: one for one in (intents, frame, ratings, entities, imbalanced)
}


def played(name: str, data: Path, out: Path) -> dict[str, Any]:
    """Run one newcomer's command, and return what its run recorded."""
    place = out / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = NEWCOMERS[name](data, place)
    if command[0] == "filbert":
        command = [sys.executable, "-m", *command]
    started = time.perf_counter()
    with (place / "output.txt").open("w", encoding="utf-8") as output:
        subprocess.run(command, cwd=place, stdout=output, stderr=subprocess.STDOUT, check=True)
    seconds = time.perf_counter() - started
    run = json.loads((place / "run" / "run.json").read_text("utf-8"))
    size = sum(path.stat().st_size for path in (place / "run").rglob("*") if path.is_file())
    metric = run["best"]["metric"]
    metrics = run["metrics"].get("test") or run["metrics"]["dev"]
    return {
        "newcomer": name,
        "metric": metric,
        "score": metrics[metric],
        "baseline": baseline_of(run, metric),
        "seconds": seconds,
        "megabytes": size / 1e6,
    }


def baseline_of(run: dict[str, Any], metric: str) -> dict[str, Any] | None:
    """The baseline that was best on dev, with its metric on the rows of the score."""
    best = (run.get("baseline") or {}).get("name")
    for baseline in run.get("baselines") or ():
        if baseline["name"] == best:
            ends = baseline["differences"].get(metric)
            return {"name": best, "value": baseline["metrics"][metric], "difference": ends}
    return None


def lines_of(results: list[dict[str, Any]]) -> Iterator[str]:
    """The results as a Markdown table."""
    yield "| newcomer | metric | score | baseline | difference (95 %) | seconds | MB |"
    yield "|---|---|---|---|---|---|---|"
    for one in results:
        simple = one["baseline"] or {}
        baseline = f"{simple['value']:.3f} ({simple['name']})" if simple else "-"
        ends = simple.get("difference")
        about = f"{ends['low']:+.3f} to {ends['high']:+.3f}" if ends else "-"
        yield (
            f"| {one['newcomer']} | {one['metric']} | {one['score']:.3f} | {baseline} | {about} "
            f"| {one['seconds']:.0f} | {one['megabytes']:.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default=",".join(NEWCOMERS))
    parser.add_argument("--out", type=Path, default=Path("runs/first-contact"))
    given = parser.parse_args()
    results = []
    for name in given.only.split(","):
        results.append(played(name, given.data.absolute(), given.out.absolute()))
        print(json.dumps(results[-1]), file=sys.stderr)
    (given.out / "results.json").write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print("\n".join(lines_of(results)))


if __name__ == "__main__":
    main()
