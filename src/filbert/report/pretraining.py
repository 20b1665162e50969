"""The parts of the report of a pre-training run, or of a distillation on raw text."""

from __future__ import annotations

from typing import Any

from filbert.report import numbers, plots
from filbert.report.folder import RunFolder
from filbert.report.render import Section, Table, gallery, section
from filbert.report.table import PRETRAINING_METRICS

SHARES = tuple(key for key, (_, is_share) in PRETRAINING_METRICS.items() if is_share)


def headline(folder: RunFolder) -> str:
    """Accuracy and perplexity on held-out text, and those of the teacher."""
    run, metrics, teacher = folder.run, dev_metrics(folder), teacher_metrics(folder)
    words = _reached(metrics)
    text = f"{run.get('name') or 'The model'} "
    text += f"predicts {words} on the held-out text" if words else "was trained"
    text += f" after {run['steps']:,} steps" if run.get("steps") is not None else ""
    text += f" on {numbers.parameters(run['tokens'])} tokens." if run.get("tokens") else "."
    return f"{text} Its teacher predicts {_reached(teacher)}." if _reached(teacher) else text


def _reached(metrics: dict[str, Any]) -> str:
    if metrics.get("mlm_accuracy") is None:
        return ""
    text = f"{numbers.percent(metrics['mlm_accuracy'])} of the masked words"
    return f"{text} (perplexity {numbers.fixed(metrics.get('perplexity'), 2)})"


def headline_facts(folder: RunFolder) -> list[tuple[str, str]]:
    """(name, value) of the main metrics, the time, tokens and parameters."""
    run, metrics = folder.run, dev_metrics(folder)
    facts = [(PRETRAINING_METRICS[key][0], _metric(key, metrics.get(key)))
             for key in ("perplexity", *SHARES)]  # fmt: skip
    facts += [
        ("time", numbers.seconds(run.get("seconds"))),
        ("training tokens", numbers.parameters(run.get("tokens"))),
        ("parameters", numbers.parameters((run.get("model") or {}).get("parameters"))),
        ("parameters of the teacher",
         numbers.parameters((run.get("teacher") or {}).get("parameters"))),
    ]  # fmt: skip
    return [(name, value) for name, value in facts if value != numbers.MISSING]


def results(folder: RunFolder) -> Section | None:
    """Every metric on held-out text, and the teacher's."""
    metrics, teacher = dev_metrics(folder), teacher_metrics(folder)
    keys = [key for key in dict.fromkeys([*PRETRAINING_METRICS, *metrics])
            if isinstance(metrics.get(key), float)]  # fmt: skip
    if not keys:
        return None
    rows = []
    for key in keys:
        name = PRETRAINING_METRICS.get(key, (key.replace("_", " "), False))[0]
        rows.append([name, _metric(key, metrics[key])])
        rows[-1] += [_metric(key, teacher.get(key))] if teacher else []
    head = ["on the held-out text", "model", *(["teacher"] if teacher else [])]
    return section(
        "Results",
        Table(head, rows),
        "Always the same sequences with the same masks. A masked word is one token of the "
        "vocabulary, so these metrics cannot be compared between models with different "
        "vocabularies. Perplexity is the exponential of the masked-word loss.",
    )


def training(folder: RunFolder) -> Section | None:
    """Loss, perplexity and accuracies over the steps, and the gradient norm."""
    run, dev = folder.run, folder.evaluations
    if not folder.steps:
        return None
    key, ylabel = "mlm_loss", "loss (nats per masked word)"
    if run.get("teacher"):
        key, ylabel = "loss", "weighted sum of the losses"
    plot = plots.loss_curve(folder.steps, dev, key=key, dev_key=key, ylabel=ylabel)
    caption = "Loss and learning rate. The first steps may be above the plotted range."
    figures = {"loss": (plot, caption)}
    measured = {key for line in dev for key, value in line["metrics"].items() if value is not None}
    if "perplexity" in measured:
        plot = plots.metric_curves(dev, [("perplexity", "perplexity")], ylabel="dev perplexity")
        figures["perplexity"] = (plot, "Perplexity on held-out text.")
    shares = [(key, PRETRAINING_METRICS[key][0]) for key in SHARES if key in measured]
    if shares:
        figures["dev_metric"] = (plots.metric_curves(dev, shares), "Accuracies on held-out text.")
    return section("Training", throughput(run), gallery(folder.path, figures | gradient(folder)))


def gradient(folder: RunFolder) -> dict[str, Any]:
    """The plot of the gradient norm with its caption, if the norm was recorded."""
    if not any((line.get("grad_norm") or 0) > 0 for line in folder.steps):
        return {}
    plot = plots.gradient_curve(folder.steps, (folder.run.get("options") or {}).get("clip"))
    caption = "Norm of the gradient before clipping. A rising norm is a sign of unstable training."
    return {"grad_norm": (plot, caption)}


def throughput(run: dict[str, Any]) -> str:
    """Steps, epochs, tokens per second and share of real tokens, as far as they are known."""
    texts = {
        "steps": "{:,} steps",
        "epochs": "{:g} epochs",
        "tokens_per_second": "{:,.0f} tokens/s",
        "fill": "{:.1%} of the computed tokens are real tokens",
    }
    known = [text.format(run[key]) for key, text in texts.items() if run.get(key) is not None]
    return " · ".join(known)


def corpora(folder: RunFolder) -> Section | None:
    """Documents, sentences and tokens of every split, and the vocabulary."""
    run, data = folder.run, folder.run.get("data") or {}
    if not data:
        return None
    counted = ("documents", "sentences", "tokens")
    rows = [
        [split, facts.get("path", ""), *(numbers.count(facts.get(key)) for key in counted)]
        for split, facts in data.items()
    ]
    read, corpus = run.get("tokens"), (data.get("train") or {}).get("tokens")
    remark = ""
    if read and corpus:
        remark = (
            f"Training read {read:,} tokens, special tokens included: {read / corpus:.1f} times "
            "the corpus."
        )
    tokenizer = run.get("tokenizer") or {}
    if tokenizer.get("vocab_size"):
        remark += f" {tokenizer['vocab_size']:,} vocabulary entries ({tokenizer.get('kind')})."
    return section("Text", Table(["split", "corpus", *counted], rows, 2), remark)


def dev_metrics(folder: RunFolder) -> dict[str, Any]:
    """The final metrics on held-out text, or else the last ones that were measured."""
    final = (folder.run.get("metrics") or {}).get("dev")
    return final or (folder.evaluations[-1]["metrics"] if folder.evaluations else {})


def teacher_metrics(folder: RunFolder) -> dict[str, Any]:
    """The metrics of a distillation's teacher on the same text; empty if there are none."""
    return ((folder.run.get("teacher") or {}).get("metrics") or {}).get("dev") or {}


def _metric(key: str, value: float | None) -> str:
    return numbers.percent(value) if value is not None and key in SHARES else numbers.metric(value)
