from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy.special import softmax
from tests.report.folders import write_lines

from filbert.metrics.classification import binary_metrics, multiclass_metrics, multilabel_metrics
from filbert.report import plots

LABELS = {
    "binary": ["ok", "toxic"],
    "multiclass": ["anger", "joy", "neutral", "sadness", "surprise"],
    "multilabel": ["insult", "obscene", "severe", "threat", "never seen"],
}


class Page(HTMLParser):
    """Tags, addresses, section ids, headings, table rows and text of a page of closed tags."""

    VOID = {"meta", "br", "input"}

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(self.html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]
        self.open += [tag] * (tag not in self.VOID)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"style", "script"} & {*self.open}:
            return
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        elif "h2" in self.open:
            self.headings[-1] += data

    def check_scripts(self) -> None:
        """Assert that the page has its one script, and its plots, and no other."""
        assert self.tags.count("script") == 1 + self.tags.count("noscript")

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0].strip() == first)

    def check_one_file(self) -> list[str]:
        """Assert that nothing is loaded from outside; gives the files that plots link to."""
        assert "link" not in self.tags
        html = self.html.replace("http://www.w3.org/2000/svg", "")
        assert not any(word in html for word in ("http://", "https://", "url("))
        self.check_scripts()
        assert [a[1:] for a in self.addresses if a.startswith("#")] == self.ids
        assert "img" not in self.tags
        return [a for a in self.addresses if not a.startswith("#")]


@pytest.fixture(scope="session")
def page() -> type[Page]:
    """`page(path)` reads a report."""
    return Page


@pytest.fixture(scope="module", autouse=True)
def coarse(drawn):
    """Plots are drawn in this folder, but of few pixels, as drawing is most of the time."""
    with mock.patch.object(plots, "PIXELS_PER_INCH", 20):
        yield


def answers(problem: str, num_rows: int, seed: int, skill: float):
    """Gold numbers or sets, probabilities, and the metrics of a contender of this skill."""
    gold_chance, chance = np.random.default_rng(seed), np.random.default_rng(int(skill * 1000))
    labels = LABELS[problem]
    if problem == "multilabel":
        gold = gold_chance.random((num_rows, 5)) < [0.3, 0.2, 0.08, 0.05, 0.0]
        noise = chance.normal(size=gold.shape) - 2
        probabilities = 1 / (1 + np.exp(-noise - skill * 2 * gold))
        thresholds = [0.5, 0.45, 0.4, 0.4, 0.5]
        metrics = multilabel_metrics(gold, probabilities, thresholds, labels=labels)
        return gold, probabilities, metrics
    weights = [0.9, 0.1] if problem == "binary" else [0.1, 0.15, 0.5, 0.15, 0.1]
    gold = gold_chance.choice(len(labels), num_rows, p=weights)
    logits = chance.normal(size=(num_rows, len(labels))) * 1.6 + np.log(weights)
    probabilities = softmax(logits + skill * 2 * np.eye(len(labels))[gold], 1)
    if problem == "binary":
        return gold, probabilities, binary_metrics(gold == 1, probabilities[:, 1], 0.42)
    return gold, probabilities, multiclass_metrics(gold, probabilities, labels=labels)


def prediction_rows(problem, labels, gold, probabilities, seed: int = 0):
    lengths = np.random.default_rng(seed).lognormal(4, 1, len(gold)).astype(int) + 3
    for row, (true, shares) in enumerate(zip(gold, probabilities, strict=True)):
        scores = {label: float(share) for label, share in zip(labels, shares, strict=True)}
        answer = {"row": row, "line": row + 2, "scores": scores}
        answer |= {"num_tokens": int(lengths[row]), "truncated": bool(lengths[row] > 256)}
        if problem == "multilabel":
            answer["gold"] = [label for label, is_set in zip(labels, true, strict=True) if is_set]
            answer["labels"] = [label for label, share in scores.items() if share >= 0.45]
        else:
            answer["gold"] = labels[true]
            at = 0.42 if problem == "binary" else None
            chosen = int(shares[1] >= at) if at is not None else int(shares.argmax())
            answer["label"] = labels[chosen]
        yield answer


def write_run(folder: Path, problem: str = "binary", *, num_rows: int = 400, labels=None) -> dict:
    """A whole run folder as train/ writes it; gives the content of run.json."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = labels or LABELS[problem]
    metrics, lengths = {}, np.random.default_rng(3).lognormal(4, 1, 500).astype(int) + 3
    for split, seed in (("dev", 1), ("test", 2)):
        gold, probabilities, metrics[split] = answers(problem, num_rows, seed, skill=1.6)
        rows = prediction_rows(problem, labels, gold, probabilities, seed)
        write_lines(folder / "predictions" / f"{split}.jsonl", rows)
        if "per_label" in metrics[split]:
            scores = metrics[split]["per_label"].values()
            metrics[split]["per_label"] = dict(zip(labels, scores, strict=True))
    gold, probabilities, baseline = answers(problem, num_rows, 2, skill=1.1)
    rows = prediction_rows(problem, labels, gold, probabilities)
    write_lines(folder / "predictions" / "test-baseline-1.jsonl", rows)
    baseline.pop("per_label", None)
    run = {
        "filbert": "0.1.0", "task": "classification", "name": "toxic-quickstart", "status": "done",
        "command": "filbert finetune --task classification --model minilm --train toxic_train.csv",
        "started": "2025-11-21T10:00:00Z", "finished": "2025-11-21T10:01:35Z", "seconds": 95.31,
        "options": {"lr": 5e-5, "batch_size": 32, "epochs": 2, "class_weights": None, "seed": 0},
        "versions": {"python": "3.12.1", "torch": "2.12.0", "numpy": "2.4.6"},
        "device": {"name": "cpu", "threads": 2},
        "precision": "bf16",
        "precision_reason": "the processor multiplies bf16 in hardware (amx)",
        "model": {
            "source": "models/all-MiniLM-L6-v2", "family": "bert", "parameters": 22_713_986,
            "config": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
        },
        "labels": labels, "problem": problem,
        "positive": labels[1] if problem == "binary" else None,
        "data": {
            split: {
                "path": f"data/toxic_{split}.csv.gz",
                "sha256": hashlib.sha256(split.encode()).hexdigest(),
                "rows": rows_in, "tokens": rows_in * 81, "truncated": rows_in // 20,
                "label_counts": {label: rows_in // (c + 2) for c, label in enumerate(labels)},
                "max_length": 256, "lengths": lengths.tolist(),
            }
            for split, rows_in in (("train", 4000), ("dev", num_rows), ("test", num_rows))
        },
        "best": {"step": 250, "metric": "dev roc_auc", "value": 0.9712},
        "metrics": metrics, "temperature": 1.3721,
        "baselines": [{
            "name": "TF-IDF + logistic regression", "metrics": baseline, "seconds": 2.41,
            "parameters": 41_877, "predictions": "predictions/test-baseline-1.jsonl",
        }],
        "steps": 250, "epochs": 2, "tokens_per_second": 9120.4, "fill": 0.981,
    }  # fmt: skip
    chance = np.random.default_rng(0)
    lines = [
        {
            "step": step,
            "epoch": step / 125,
            "loss": float(0.1 + 0.5 * np.exp(-step / 40) + 0.06 * chance.random()),
            "lr": 5e-5 * min(step / 25, (250 - step) / 225),
            "grad_norm": 1.0,
        }
        for step in range(1, 251)
    ]
    for step in (50, 100, 150, 200, 250):
        reached = {
            key: value * (1 - 0.2 * np.exp(-step / 60)) if isinstance(value, float) else None
            for key, value in metrics["dev"].items()
        }
        reached["loss"] = 0.2 + 0.2 * np.exp(-step / 60)
        evaluation = {"step": step, "epoch": step / 125, "split": "dev", "metrics": reached}
        lines.append(evaluation | {"seconds": step * 0.4})
    write_lines(folder / "metrics.jsonl", lines)
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return run


@pytest.fixture
def make_run(tmp_path):
    """`make_run(problem, **options) -> (folder, run)`."""

    def make(problem: str = "binary", **options):
        folder = tmp_path / problem
        return folder, write_run(folder, problem, **options)

    return make


@pytest.fixture
def change_run():
    """`change_run(folder, run)` writes run.json again."""
    return lambda folder, run: (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
