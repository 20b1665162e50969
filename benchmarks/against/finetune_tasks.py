r"""Fine-tune MiniLM on eight tasks, filbert and transformers' Trainer: same rows, same settings.

    python benchmarks/against/finetune_tasks.py --data DIR [--seeds 3] [--tasks RTE CoLA] \
        [--out DIR]

Training rows are capped (see `TASKS`), so that one seed of all tasks on both sides takes less than
40 minutes on two cores; `--max-rows 0` takes all rows. Every run is a process of its own, alone,
and the sides take turns at going first. A result is written as soon as it is there, and the same
command goes on where it was stopped. `--small` is a look at the machinery in a minute and proves
nothing.

Equal on both sides: rows, batch, learning rate and its schedule, epochs, lengths, weight decay,
clipping, dropout; after every epoch dev is scored and the best epoch is kept, by one metric.
Precision is each side's default: filbert "auto", the Trainer float32. Seconds are those of
training: loading, tokenising (reported apart), evaluating and saving are not counted. The figures
of both sides come from one judge, task_scores.py, at the same fixed threshold of one half.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import runs
from runs import Kept
from task_data import Files, convert, tags_in
from task_scores import FIGURES, KINDS, dev_gold, score
from task_table import markdown

SIDES = ("filbert", "transformers")


class Plan(NamedTuple):
    """How a task is trained.

    Attributes:
        max_train: training rows to draw; None for all.
        lr: peak learning rate.
        epochs: passes over them.
        max_length: tokens of a sequence.
        max_dev: dev rows to draw; None for all.
    """

    max_train: int | None
    lr: float
    epochs: int = 3
    max_length: int = 128
    max_dev: int | None = None


TASKS = {
    "SST-2": Plan(2400, 5e-5),
    "MRPC": Plan(1200, 5e-5),
    # At 5e-5 three epochs end on the slope on both sides: see docs/log.md.
    "STS-B": Plan(1400, 1e-4),
    "RTE": Plan(700, 1e-4),
    "CoLA": Plan(4000, 1e-4),
    # On both sides F1 stands at 0 for two epochs and then leaps: three epochs are a lottery.
    "WNUT-17": Plan(1200, 1e-4, epochs=6),
    "CODAH": Plan(600, 1e-4),
    "SQuAD": Plan(1000, 1e-4, epochs=2, max_length=384, max_dev=400),
}
COMMON = {"batch_size": 32, "warmup": 0.1, "weight_decay": 0.01, "clip": 1.0}
# The Trainer's windows over a context overlap by 128 tokens, ours begin so many tokens apart: the
# same windows next to [CLS], twice [SEP] and a question of 12 tokens, which is the mean.
STRIDE = 384 - 3 - 12 - 128
SMALL = {"tasks": ["SST-2", "WNUT-17"], "seeds": 1, "epochs": 1, "max_rows": 64, "max_dev_rows": 64}


def settings_of(plan: Plan, epochs: int | None) -> dict[str, Any]:
    return COMMON | {
        "lr": plan.lr,
        "epochs": epochs or plan.epochs,
        "max_length": plan.max_length,
    }


# One run, in a process of its own


def train_filbert(
    task: str,
    train: Path,
    dev: Path,
    settings: dict[str, Any],
    seed: int,
    out: Path,
    model: str,
    device: str,
) -> dict[str, Any]:
    """Fine-tune with filbert; returns what `train_peer` does."""
    import filbert

    special: dict[str, Any] = {"stride": STRIDE} if KINDS[task] == "span_qa" else {}
    if KINDS[task] == "tagging":
        # Declared, since few training rows need not hold every type that dev does.
        special = {"labels": tags_in(train, dev)}
    run = filbert.finetune(
        task=KINDS[task],
        model=model,
        train=train,
        dev=dev,
        out=out,
        metric=FIGURES[task][0],
        seed=seed,
        device=device,
        save_every=0,
        **settings,
        **special,
    )
    lines = (out / "predictions" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    return {
        "predictions": [_answer(KINDS[task], json.loads(line)) for line in lines],
        "training_seconds": run.facts["training_seconds"],
        "tokenise_seconds": run.facts["tokenise_seconds"],
        "sequences": run.facts["data"]["train"]["sequences"],
        "steps": run.facts["steps"],
        "precision": run.facts["precision"],
    }


def _answer(kind: str, prediction: dict[str, Any]) -> Any:
    if kind == "classification":
        # Not `label`: its threshold was fitted on the very rows that are scored here.
        return max(prediction["scores"], key=prediction["scores"].__getitem__)
    name = {"regression": "value", "tagging": "tags", "multiple_choice": "choice"}
    return prediction[name.get(kind, "answer")]


def child(request: dict[str, Any]) -> dict[str, Any]:
    """Train, score, and say so."""
    from sides.conversion import plain_folder

    began = time.perf_counter()
    task, dev = request["task"], Path(request["dev"])
    if request["side"] == "filbert":
        runner = train_filbert
    else:
        from peer_tasks import train_peer as runner
    found = runner(
        task,
        Path(request["train"]),
        dev,
        request["settings"],
        request["seed"],
        Path(request["out"]),
        str(plain_folder(request["model"])),
        request["device"],
    )
    scores = score(task, dev_gold(task, dev), found.pop("predictions"))
    whole = time.perf_counter() - began
    return {"precision": "float32", **found, "scores": scores, "whole_seconds": whole}


# All runs

run_alone = partial(runs.run_alone, __file__)


# What runs that need not be made twice have in common.
SAME = ("task", "side", "seed", "model", "device", "rows", "available", "settings")


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Any], int]:
    """Make the runs that are missing; the records of all that were asked for, and the failures."""
    kept, chosen, failures = Kept(out, results, *SAME), [], 0
    (out / "logs").mkdir(parents=True, exist_ok=True)
    files: dict[str, Files] = {}
    for task in given.tasks:
        plan = TASKS[task]
        rows = plan.max_train if given.max_rows is None else given.max_rows or None
        dev_rows = plan.max_dev if given.max_dev_rows is None else given.max_dev_rows or None
        files[task] = convert(task, given.data, out / "data", max_train=rows, max_dev=dev_rows)
    for seed in range(given.seeds):
        for task in given.tasks:
            # Who goes first changes with the seed, so that a warm machine favours nobody.
            for side in SIDES if seed % 2 == 0 else SIDES[::-1]:
                about = {
                    "task": task,
                    "side": side,
                    "seed": seed,
                    "model": given.model,
                    "device": given.device,
                    "rows": files[task].rows,
                    "available": files[task].available,
                    "settings": settings_of(TASKS[task], given.epochs),
                }
                if kept.missing([about]):
                    name = f"{task}-{side}-{seed}"
                    place = out / "runs" / name
                    shutil.rmtree(place, ignore_errors=True)
                    print(f"{name}: {files[task].rows['train']:,} rows", flush=True)
                    paths = {"train": str(files[task].train), "dev": str(files[task].dev)}
                    request = about | paths | {"out": str(place)}
                    found = run_alone(request, out / "logs" / f"{name}.log")
                    shutil.rmtree(place, ignore_errors=True)
                    if found is None:
                        failures += 1
                        continue
                    kept.add(about | found)
                    figures = ", ".join(f"{k} {v:.2f}" for k, v in found["scores"].items())
                    print(f"  {found['training_seconds']:.1f} s; {figures}", flush=True)
                chosen += kept.made([about])
    return chosen, failures


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of shared data")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--max-rows", type=int, help="training rows a task; 0 for all")
    parser.add_argument("--max-dev-rows", type=int, help="dev rows a task; 0 for all")
    parser.add_argument("--epochs", type=int, help="for all tasks")
    parser.add_argument("--model", default="minilm", help="folder or built-in name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="data, logs and results, to go on from")
    runs.add_results_options(parser, "finetune_tasks")
    parser.add_argument("--small", action="store_true", help="two tasks, a minute, no record")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is None and given.data is None:
        parser.error("--data is missing: the folder that holds glue, codah, squad and wnut17")
    if given.small:
        vars(given).update(SMALL)
    return given


def main() -> int:
    given = parse()
    if given.child:
        print("RESULT " + json.dumps(child(json.loads(given.child))), flush=True)
        return 0
    return runs.carry_out(
        "finetune_tasks",
        given,
        compare,
        lambda records: markdown(records, FIGURES),
        is_recorded=not given.small,
    )


if __name__ == "__main__":
    sys.exit(main())
