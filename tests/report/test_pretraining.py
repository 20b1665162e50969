"""The report of a pre-training run: every figure, every phase, in one file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from filbert.report.run import headline, headline_facts, write_run_report


def write_pretraining_run(folder: Path, *, pair: str = "nsp"):
    """A run of 400 steps, the last tenth on longer sequences; gives the content of run.json."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    lines = []
    for step in range(1, 401):
        loss = 2.6 + 7.7 * float(np.exp(-step / 60)) + 0.08 * float(draw.normal())
        lines.append({
            "step": step, "epoch": (step - 360 if step > 360 else step) / 150,
            "loss": loss + (0.3 if pair != "none" else 0), "mlm_loss": loss,
            "lr": 5e-4 * min(step / 40, (400 - step) / 360),
            "grad_norm": float(draw.lognormal(0, 0.3)),
        })  # fmt: skip
        if step % 50 == 0:
            metrics = {
                "mlm_loss": loss + 0.1,
                "mlm_accuracy": 0.55 - 0.5 * float(np.exp(-step / 90)),
                "perplexity": float(np.exp(loss + 0.1)),
            }
            if pair != "none":
                metrics[f"{pair}_accuracy"] = 0.9 - 0.4 * float(np.exp(-step / 120))
            lines.append({"step": step, "epoch": 1.0, "split": "dev", "metrics": metrics})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sizes = {"hidden_size": 256, "num_hidden_layers": 4}
    run = {
        "filbert": "0.1.0",
        "command": "pretrain", "name": "novels", "status": "done", "steps": 400, "seconds": 660.0,
        "started": "2026-01-01T10:00:00", "finished": "2026-01-01T10:11:00",
        "tokens": 13_400_000,
        "training_seconds": 660.0,
        "tokens_per_second": 21_000.0,
        "fill": 0.97,
        "options": {
            "corpus": ["corpus/novels"],
            "objective": "mlm",
            "pair": pair,
            "masking": "word",
            "max_length": 128,
            "second_length": 512,
            "lr": 5e-4,
            "batch_size": 256,
            "clip": 1.0,
        },
        "versions": {"python": "3.12.1", "torch": "2.12.0"},
        "device": {"name": "a processor", "threads": 2, "processes": 1},
        "precision": "bf16",
        "precision_reason": "as asked",
        "model": {"source": None, "family": "bert", "parameters": 11_170_000, "config": sizes},
        "tokenizer": {"kind": "wordpiece", "vocab_size": 30_522, "fingerprint": "f" * 64},
        "data": {
            "train": {
                "path": "novels", "sha256": "a" * 64, "documents": 80, "sentences": 412_345,
                "tokens": 6_700_000,
            },
            "dev": {
                "path": "dev", "sha256": "b" * 64, "documents": 2, "sentences": 9_876,
                "tokens": 150_123,
            },
        },
        "metrics": {"dev": lines[-1]["metrics"]},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    return run


def change(folder: Path, run: dict) -> None:
    (folder / "run.json").write_text(json.dumps(run))


def page_of(folder: Path) -> str:
    return write_run_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize("pair", ["none", "nsp", "sop"])
def test_every_final_figure_and_count_stands_on_the_page(tmp_path, undrawn, pair):
    run = write_pretraining_run(tmp_path / "run", pair=pair)
    page = page_of(tmp_path / "run")
    metrics = run["metrics"]["dev"]
    assert f"{metrics['mlm_loss']:.4f}" in page
    assert f"{metrics['perplexity']:.2f}" in page
    assert f"{100 * metrics['mlm_accuracy']:.1f}\u00a0%" in page
    assert ("next-sentence accuracy" in page) == (pair == "nsp")
    assert ("sentence-order accuracy" in page) == (pair == "sop")
    for count in ("6,700,000", "150,123", "412,345", "9,876", "13,400,000", "2.0 times"):
        assert count in page
    for option in ("masking", "second_length", "batch_size", "a" * 64, "b" * 64):
        assert option in page


def test_the_verdict_and_the_facts_name_the_outcome(tmp_path, undrawn):
    run = write_pretraining_run(tmp_path / "run")
    metrics = run["metrics"]["dev"]
    assert headline(run) == (
        f"novels predicts {100 * metrics['mlm_accuracy']:.1f}\u00a0% of the masked words "
        f"(perplexity {metrics['perplexity']:.2f}) on the held-out text after 400 steps on 13.4 M "
        "tokens."
    )
    facts = dict(headline_facts(run))
    assert facts["time"] == "11 min 0 s"
    assert facts["parameters"] == "11.2 M"
    assert {"perplexity", "masked-word accuracy", "next-sentence accuracy"} <= facts.keys()


def test_an_interrupted_run_of_one_step_has_a_report_too(tmp_path, undrawn):
    folder = tmp_path / "run"
    run = write_pretraining_run(folder)
    kept = {k: v for k, v in run.items() if k in ("command", "filbert", "name", "options")}
    change(folder, kept | {"status": "interrupted"})
    first = (folder / "metrics.jsonl").read_text().splitlines()[0]
    (folder / "metrics.jsonl").write_text(first + "\n")
    page = page_of(folder)
    assert "Status of this run: interrupted" in page
    (folder / "metrics.jsonl").unlink()
    assert "novels was trained" in page_of(folder)


def test_a_loss_that_was_never_finite_does_not_stop_the_report(tmp_path):
    folder = tmp_path / "run"
    run = write_pretraining_run(folder)
    change(folder, run | {"metrics": {"dev": {"mlm_loss": None, "perplexity": float("inf")}}})
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "metrics" in line:
            line["metrics"] = {"mlm_loss": float("nan"), "perplexity": float("inf")}
        else:
            line["loss"] = line["mlm_loss"] = float("nan")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "novels was trained after 400 steps" in page_of(folder)
