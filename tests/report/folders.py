"""Run folders of the tasks that are no classification, with plausible answers, written by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from filbert.metrics.classification import multiclass_metrics
from filbert.metrics.entities import entity_metrics
from filbert.metrics.similarity import regression_metrics, retrieval_metrics
from filbert.metrics.squad import squad_metrics

TASKS = ["regression", "tagging", "span_qa", "multiple_choice", "cosine", "contrastive"]
# Stands in every text and answer of the data, so that no page may hold it without being asked.
SECRET = "zebra<script>alert('&')</script>"
WORDS = ["the", "river", "Anna", "Paris", "went", "to", "see", SECRET, "Bank", "of"]


def write_lines(path: Path, objects) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in objects), encoding="utf-8")


def data_and_answers(task: str, num_rows: int):
    """Rows of the data file, predictions beside them, and the metrics."""
    draw = np.random.default_rng(len(task))
    made = [_ROW[task](draw, number) for number in range(num_rows)]
    rows, answers = [row for row, _ in made], [answer for _, answer in made]
    for number, answer in enumerate(answers):
        tokens = int(draw.lognormal(4, 0.8)) + 5
        place = {"row": number, "line": number + 1}
        answers[number] = place | answer | {"truncated": tokens > 256, "num_tokens": tokens}
    return rows, answers, _METRICS[task](answers)


def text(draw, number: int) -> str:
    return f"row {number} " + " ".join(draw.choice(WORDS, 8)) + f" {SECRET}"


def _score(draw, number):
    gold = float(round(draw.uniform(0, 5) * 4) / 4)
    row = {"text": text(draw, number), "text_pair": text(draw, number), "label": gold}
    return row, {"gold": gold, "value": float(0.8 * gold + 0.7 + draw.normal(0, 0.6))}


def _cosine(draw, number):
    row, answer = _score(draw, number)
    return row, answer | {"value": float(np.clip(answer["value"] / 5, -1, 1))}


def _pair(draw, number):
    row, answer = _cosine(draw, number)
    rank = int(min(1 + draw.geometric(0.6) ** 2 - 1, 300))
    return row, answer | {"gold": None, "rank": rank, "pool_size": 300}


def _sentence(draw, number):
    tokens = [str(word) for word in draw.choice(WORDS, 14)]
    gold, tags = ["O"] * 14, ["O"] * 14
    for start in (1, 6, 11):
        kind = str(draw.choice(["person", "place", "group"], p=[0.6, 0.3, 0.1]))
        gold[start : start + 2] = [f"B-{kind}", f"I-{kind}"]
        luck = draw.random()
        if luck < 0.7:
            tags[start : start + 2] = gold[start : start + 2]
        elif luck < 0.8:
            tags[start] = gold[start]
        elif luck < 0.9:
            tags[start : start + 2] = ["B-place", "I-place"]
    if draw.random() < 0.1:
        tags[4] = "B-group"
    row = {"tokens": tokens, "tags": gold}
    answer = {"gold": gold, "tokens": tokens, "tags": tags}
    return row, answer | {"entities": [{"label": "person", "text": SECRET, "start": 0, "end": 3}]}


def _question(draw, number):
    answer = f"{SECRET} " + " ".join(draw.choice(WORDS, draw.integers(0, 12)))
    answer = answer.strip()
    context = "x " * int(draw.integers(0, 400)) + answer + " y" * 100
    known = number % 3 > 0
    start = context.index(answer)
    gold = [{"text": answer, "answer_start": start}] if known else []
    row = {"id": str(number), "question": text(draw, number), "context": context, "answers": gold}
    null_score = float(draw.normal(-3 if known else 2, 2))
    luck = draw.random()
    given = answer if luck < 0.6 else answer[: len(answer) // 2] if luck < 0.8 else f"no {SECRET}"
    given, at = ("", None) if null_score > -0.5 else (given, start)
    end = None if at is None else at + len(given)
    found = {"gold": [one["text"] for one in gold], "id": str(number), "answer": given}
    found |= {"start": at, "end": end, "score": float(draw.random()), "null_score": null_score}
    return row, found | {"nbest": [{"text": SECRET, "score": 0.5}]}


def _choice(draw, number):
    choices = [f"{text(draw, number)} {place}" for place in range(4)]
    gold = int(draw.integers(4))
    logits = draw.normal(0, 1, 4) + 1.6 * np.eye(4)[gold] + [0.3, 0, 0, 0]
    scores = np.exp(logits) / np.exp(logits).sum()
    row = {"context": text(draw, number), "choices": choices, "label": gold}
    return row, {"gold": gold, "choice": int(scores.argmax()), "scores": scores.tolist()}


_ROW = {
    "regression": _score,
    "cosine": _cosine,
    "contrastive": _pair,
    "tagging": _sentence,
    "span_qa": _question,
    "multiple_choice": _choice,
}
_METRICS = {
    "regression": lambda a: regression_metrics([r["gold"] for r in a], [r["value"] for r in a]),
    "cosine": lambda a: regression_metrics([r["gold"] / 5 for r in a], [r["value"] for r in a]),
    "contrastive": lambda a: (
        {"pearson": None, "spearman": None}
        | retrieval_metrics([r["rank"] for r in a], [r["pool_size"] for r in a])
    ),
    "tagging": lambda a: entity_metrics([r["gold"] for r in a], [r["tags"] for r in a]),
    "span_qa": lambda a: squad_metrics(
        [r["gold"] for r in a], [r["answer"] for r in a], [r["null_score"] for r in a]
    ),
    "multiple_choice": lambda a: {
        key: value
        for key, value in multiclass_metrics(
            [r["gold"] for r in a], np.array([r["scores"] for r in a]), labels=list("0123")
        ).items()
        if key in ("accuracy", "loss")
    },
}


def write_task_run(folder: Path, task: str, *, num_rows: int = 150) -> dict:
    """A run folder with dev rows beside it in dev.jsonl; gives the content of run.json."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, answers, metrics = data_and_answers(task, num_rows)
    data = folder.parent / f"{task}.jsonl"
    write_lines(data, rows)
    write_lines(folder / "predictions" / "dev.jsonl", answers)
    name = "embedding" if task in ("cosine", "contrastive") else task
    best = next(key for key in ("f1", "accuracy", "spearman") if key in metrics)
    lengths = [answer["num_tokens"] for answer in answers]
    splits = {
        split: {
            "path": str(data),
            "sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
            "rows": num_rows,
            "sequences": num_rows * (1 if task == "regression" else 2),
            "label_counts": {},
            "tokens": sum(lengths),
            "truncated": 3,
            "max_length": 256,
            "lengths": lengths,
        }
        for split in ("train", "dev")
    }
    run = {
        "filbert": "0.1.0",
        "task": name,
        "problem": name,
        "name": task,
        "status": "done",
        "labels": ["O", "B-person", "I-person"] if task == "tagging" else [],
        "options": {
            "task": name,
            "on_overflow": "truncate",
            "loss": task if name == "embedding" else "contrastive",
            "clip": 1.0,
            "seed": 1,
        },
        "device": {"name": "cpu", "threads": 1, "processes": 2},
        "model": {"source": "tiny", "parameters": 1000, "trained": 400},
        "data": splits,
        "best": {"step": 40, "metric": best, "value": metrics[best]},
        "metrics": {"dev": metrics},
        "seconds": 12.5,
        "steps": 60,
        "baselines": [],
    }
    draw = np.random.default_rng(0)
    lines = [
        {
            "step": step,
            "loss": 0.4 + float(np.exp(-step / 20) + 0.1 * draw.random()),
            "lr": 1e-5 * (60 - step),
            "grad_norm": float(draw.lognormal()),
        }
        for step in range(1, 61)
    ]
    for step in (20, 40, 60):
        reached = {k: v * (1 - 1 / step) for k, v in metrics.items() if isinstance(v, float)}
        lines.append({"step": step, "split": "dev", "metrics": reached})
    write_lines(folder / "metrics.jsonl", lines)
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return run


def with_seeds(run: dict, values: dict[str, list[float]]) -> dict:
    """The same run as the best of several: `values` by metric, one for each seed from 1 on."""
    num = len(next(iter(values.values())))
    metric = next(iter(values))
    best = str(1 + int(np.argmax(values[metric])))
    spread = {
        "runs": {
            str(n + 1): {"metrics": {"dev": {key: own[n] for key, own in values.items()}}}
            for n in range(num)
        },
        "failed": {"9": f"The gradient is not finite {SECRET}"},
        "best": best,
        "metric": metric,
        "best_value": max(values[metric]),
        "metrics": {
            "dev": {
                key: {
                    "mean": float(np.mean(own)),
                    "deviation": float(np.std(own, ddof=1)),
                    "values": own,
                }
                for key, own in values.items()
            }
        },
    }
    return run | {"seeds": spread, "name": "1"}
