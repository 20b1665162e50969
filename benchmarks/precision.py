"""What bf16 and int8 cost in quality: vectors and the metrics of fine-tuned models.

    python benchmarks/precision.py [--data DIR] [--tasks toxic SST-2 ...] [--model minilm] \
        [--keep-target 0.999] [--quick | --small]

MiniLM is fine-tuned on the embedded sample ("toxic") and on tasks of the shared data (rows and
settings of benchmarks/against/finetune_tasks.py), once, into runs/precision; every model then
answers the same dev rows in each precision. It prints a Markdown table and adds a line a task to
runs/results/precision.jsonl. "auto" may change no metric by more than `LIMIT`, up or down;
the exit status is 1 where it does.

`--quick` takes about four minutes on two cores: the embedded sample as it is and three tasks with
1,200 rows in two epochs, without the calibrated variant. Models so little trained are less sure of
their answers, so more of them change sides than in a full run. `--small` looks at the machinery
with few rows, and proves nothing.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "against"))

from finetune_tasks import TASKS
from runs import add_results_options, append, machine
from task_data import convert, tags_in
from task_scores import FIGURES, KINDS

import filbert
from filbert.data.columns import ColumnNames
from filbert.evaluation import evaluate_model
from filbert.inference.int8 import quantized, sensitive_layers, sensitivities
from filbert.inference.precision import precision_loss
from filbert.inference.predictor import Predictor
from filbert.model.precision import Precision
from filbert.samples import path as sample
from filbert.tasks.rows import read_task_rows, row_texts
from sides.agreement import cosines

SAMPLE = "toxic"
LIMIT = 0.003
QUICK = {"tasks": [SAMPLE, "SST-2", "MRPC", "STS-B"], "max_train": 1_200, "epochs": 2}
_NUM_TEXTS = 200


def fine_tuned(task: str, model: str, data: Path, out: Path, *, size: str) -> tuple[Path, Path]:
    """The folder of a model for a task, trained unless it is there, and its dev file.

    `size` is "full", "quick" or "small".
    """
    settings: dict[str, Any]
    small = size == "small"
    if task == SAMPLE:
        train, dev = sample("toxic_train.csv.gz"), sample("toxic_dev.csv.gz")
        if small:
            train, dev = (_beginning(path, out / "data") for path in (train, dev))
        settings = {"task": "classification", "train": train, "dev": dev}
        settings |= {"positive": "toxic", "epochs": 1, "lr": 5e-5, "max_length": 128}
    else:
        plan = TASKS[task]
        most, epochs = plan.max_train, plan.epochs
        if size == "quick":
            most, epochs = min(most, QUICK["max_train"]), min(epochs, QUICK["epochs"])
        caps = {"max_train": 48 if small else most, "max_dev": 40 if small else plan.max_dev}
        files = convert(task, data, out / "data", **caps)
        dev = files.dev
        settings = {"task": KINDS[task], "train": files.train, "dev": dev, "lr": plan.lr}
        settings |= {"epochs": epochs, "max_length": plan.max_length}
        settings |= {"metric": FIGURES[task][0]}
        if KINDS[task] == "tagging":
            settings["labels"] = tags_in(files.train, files.dev)
    if small:
        settings |= {"epochs": 1, "max_length": 48}
    folder = out / (task if size == "full" else f"{task}-{size}")
    if not (folder / "model").is_dir():
        filbert.finetune(model=model, out=folder, save_every=0, overwrite=True, **settings)
    return folder / "model", dev


def _beginning(path: Path, out: Path) -> Path:
    """A file of the first rows of a sample."""
    out.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(islice(csv.reader(file), 49))
    short = out / path.name.removesuffix(".gz")
    with short.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return short


def measure(folder: Path, dev: Path, keep_target: float | None) -> dict[str, Any]:
    """Metrics on `dev` and cosines of its texts' vectors, in each precision against float32."""
    names = ColumnNames()
    exact = Predictor.load(folder)
    task = exact.known_task()
    rows = list(islice(read_task_rows(task, dev, names), _NUM_TEXTS))
    texts = [row_texts(task, row)[0] for row in rows]
    metrics, vectors = evaluate_model(exact, str(dev), names), exact.embed(texts, pooling="mean")
    others = {"bf16": Predictor.load(folder, precision="bf16")}
    others["int8"] = Predictor.load(folder, precision="int8")
    others["auto"] = Predictor.load(folder, precision="auto")
    kept: list[str] = []
    if keep_target is not None:
        few = exact.row_examples(rows[:32])
        ranked = list(sensitivities(exact.model, few))
        kept = sensitive_layers(exact.model, few, ranked, target=keep_target)
        others["int8, calibrated"] = Predictor(
            quantized(exact.model, keep=kept),
            exact.tokenizer,
            task,
            max_length=exact.max_length,
            precision=Precision("int8", "as asked"),
        )
    found: dict[str, Any] = {"float32": {n: metrics.get(n) for n in task.spec.metric_names}}
    for precision, predictor in others.items():
        other = evaluate_model(predictor, str(dev), names)
        loss = precision_loss(metrics, other, found["float32"], whole=task.spec.metric_scale)
        near = cosines(vectors, predictor.embed(texts, pooling="mean"))
        found[precision] = {
            "cosine": float(near.mean()),
            "least_cosine": float(near.min()),
            "losses": {change.name: change.share for change in loss.changes},
            "worst": None if loss.worst is None else [loss.worst.name, loss.worst.share],
            "largest_change": loss.largest_change,
            "format": predictor.number_format,
        }
    return found | {"rows": len(rows), "kept": kept}


def markdown(found: dict[str, dict[str, Any]]) -> str:
    """A line a task and precision."""
    lines = [
        "| task | precision | mean cosine | least | most lost | points | most changed |",
        "|" + "---|" * 7,
    ]
    for task, measured in found.items():
        for precision, facts in measured.items():
            if not isinstance(facts, dict) or "cosine" not in facts:
                continue
            name, loss = facts["worst"] or ("-", 0.0)
            change = facts["largest_change"]
            mark = " (beyond the limit)" if change > LIMIT else ""
            near = f"{facts['cosine']:.5f} | {facts['least_cosine']:.5f}"
            shown = f"auto: {facts['format']}" if precision == "auto" else precision
            lines.append(
                f"| {task} | {shown} | {near} | {name} | {100 * loss:+.2f} | "
                f"{100 * change:.2f}{mark} |"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--tasks", nargs="+", choices=[SAMPLE, *TASKS], default=None)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--keep-target", type=float, default=0.9995)
    parser.add_argument("--out", type=Path, default=Path("runs/precision"))
    add_results_options(parser, "precision")
    sizes = parser.add_mutually_exclusive_group()
    for name in ("quick", "small"):
        sizes.add_argument(f"--{name}", dest="size", action="store_const", const=name)
    parser.set_defaults(size="full")
    options = parser.parse_args()
    others = QUICK["tasks"][1:] if options.size == "quick" else list(TASKS)
    tasks = options.tasks or [SAMPLE, *(others if options.data.is_dir() else ())]
    target = None if options.size == "quick" else options.keep_target
    found = {}
    for task in tasks:
        folder, dev = fine_tuned(task, options.model, options.data, options.out, size=options.size)
        found[task] = measure(folder, dev, target)
        record = {"task": task, "model": options.model, "size": options.size, "machine": machine()}
        record |= found[task]
        if options.size != "small":
            append(options.results, record)
        print(json.dumps({"task": task, **found[task]}), file=sys.stderr, flush=True)
    print(markdown(found))
    return int(any(facts["auto"]["largest_change"] > LIMIT for facts in found.values()))


if __name__ == "__main__":
    sys.exit(main())
