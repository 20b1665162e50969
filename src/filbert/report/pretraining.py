"""Sections of the report of a pre-training run, or of a distillation on raw text."""

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
    name, tokens = run.get("name") or "The model", run.get("tokens")
    made = f" after {run['steps']:,} steps" if run.get("steps") is not None else ""
    made += f" on {numbers.parameters(tokens)} tokens" if tokens else ""
    if run.get("teacher") and metrics and not teacher:
        return f"{name} was distilled from its teacher{made}."
    if metrics.get("mlm_accuracy") is None:
        return f"{name} was trained{made.replace(' after', ' for')}; no held-out text was measured."
    text = f"{name} predicts {numbers.percent(metrics['mlm_accuracy'])} of the masked words of the "
    text += f"held-out text{made}"
    if metrics.get("perplexity") is not None:
        text += f"; its perplexity is {metrics['perplexity']:,.2f}"
    if teacher:
        text += (
            f". Its teacher predicts {numbers.percent(teacher['mlm_accuracy'])}, with a perplexity "
            f"of {teacher['perplexity']:,.2f}"
        )
    return text + "."


def headline_facts(folder: RunFolder) -> list[tuple[str, str]]:
    """(name, value) of the main metrics, the time, tokens and parameters."""
    run, metrics = folder.run, dev_metrics(folder)
    facts = [(PRETRAINING_METRICS[key][0], _metric(key, metrics[key])) for key in SHARES
             if key in metrics]  # fmt: skip
    if metrics.get("perplexity") is not None:
        facts.insert(0, ("perplexity", f"{metrics['perplexity']:,.2f}"))
    if not facts and metrics.get("loss") is not None:
        facts.append(("loss", numbers.metric(metrics["loss"])))
    if run.get("seconds") is not None:
        facts.append(("time", numbers.seconds(run["seconds"])))
    if run.get("tokens") is not None:
        facts.append(("training tokens", numbers.parameters(run["tokens"])))
    if (run.get("model") or {}).get("parameters") is not None:
        facts.append(("parameters", numbers.parameters(run["model"]["parameters"])))
    if run.get("teacher"):
        facts.append(
            ("parameters of the teacher", numbers.parameters(run["teacher"]["parameters"]))
        )
    return facts


def results(folder: RunFolder) -> Section | None:
    """Every metric on held-out text: the first, the best and the last value, and the teacher's."""
    metrics, dev, teacher = dev_metrics(folder), folder.dev_evaluations, teacher_metrics(folder)
    keys = [key for key in PRETRAINING_METRICS if metrics.get(key) is not None]
    keys += [key for key, value in metrics.items()
             if key not in PRETRAINING_METRICS and isinstance(value, (int, float))]  # fmt: skip
    if not keys:
        return None
    has_course = len(dev) > 1
    head = ["on the held-out text", *(["first", "best"] * has_course), "last"]
    rows = []
    for key in keys:
        row = [PRETRAINING_METRICS.get(key, (key.replace("_", " "), False))[0]]
        if has_course:
            values = [line["metrics"].get(key) for line in dev]
            known = [value for value in values if value is not None]
            best = max if key.endswith("accuracy") else min
            row += [_metric(key, values[0]), _metric(key, best(known, default=None))]
        row.append(_metric(key, metrics[key]))
        rows.append([*row, _metric(key, teacher.get(key))] if teacher else row)
    remark = (
        "Always the same sequences with the same masks. A masked word is one token of the "
        "vocabulary, so these metrics cannot be compared between models with different "
        "vocabularies. Perplexity is the exponential of the masked-word loss."
    )
    if has_course:
        remark += f" First: after step {dev[0]['step']:,}."
    return section("Results", Table([*head, "teacher"] if teacher else head, rows), remark)


def training(folder: RunFolder) -> Section | None:
    """Loss, perplexity and accuracies over the steps, and the gradient norm."""
    run, steps, dev = folder.run, folder.steps, folder.dev_evaluations
    if not steps:
        return None
    borders = phases(folder)
    key, ylabel, name = "mlm_loss", "loss (nats per masked word)", "Loss of the masked words"
    if run.get("teacher"):
        key, ylabel, name = "loss", "weighted sum of the losses", "Loss"
    plot = plots.loss_curve(
        steps, dev, key=key, dev_key=key, ylabel=ylabel, phases=borders, zoom=True
    )
    caption = f"{name} and learning rate. The first steps may be above the plotted range."
    figures = {"loss": (plot, caption)}
    if any(line["metrics"].get("perplexity") is not None for line in dev):
        metric = [("perplexity", "perplexity")]
        plot = plots.metric_curves(dev, metric, ylabel="dev perplexity", phases=borders)
        figures["perplexity"] = (plot, "Perplexity on held-out text.")
    shares = [(key, PRETRAINING_METRICS[key][0]) for key in SHARES
              if any(line["metrics"].get(key) is not None for line in dev)]  # fmt: skip
    if shares:
        figures["dev_metric"] = (plots.metric_curves(dev, shares), "Accuracies on dev.")
    figures |= plots.gradient_norm(folder.steps, (folder.run.get("options") or {}).get("clip"))
    return section("Training", " · ".join(_about(run)), gallery(folder.path, figures))


def _about(run: dict[str, Any]) -> list[str]:
    options = run.get("options") or {}
    pair = {"nsp": " and next sentence", "sop": " and sentence order"}.get(str(options.get("pair")))
    words = "replaced" if options.get("objective") == "replaced" else "masked"
    objective = f"objective: {words} words{pair or ''}"
    if run.get("teacher"):
        objective = f"distillation method: {run.get('method')}"
    lengths = [str(options[key]) for key in ("max_length", "second_length") if options.get(key)]
    limit = [f"sequences of up to {', then '.join(lengths)} tokens"] * bool(lengths)
    return [objective, *numbers.throughput(run), *limit]


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
    tokenizer, remarks = run.get("tokenizer") or {}, []
    if read and corpus:
        remarks.append(
            f"Training read {read:,} tokens, special tokens included: {read / corpus:.1f} times "
            "the corpus."
        )
    if tokenizer.get("vocab_size"):
        kind = tokenizer.get("kind", "")
        remarks.append(f"The vocabulary is {kind} with {tokenizer['vocab_size']:,} entries.")
    return section("Text", Table(["split", "corpus", *counted], rows, 2), " ".join(remarks))


SECTIONS = (results, training, corpora)


def dev_metrics(folder: RunFolder) -> dict[str, Any]:
    """The final metrics on held-out text, or else the last ones that were measured."""
    final = (folder.run.get("metrics") or {}).get("dev")
    dev = folder.dev_evaluations
    return final or (dev[-1]["metrics"] if dev else {})


def teacher_metrics(folder: RunFolder) -> dict[str, Any]:
    """The metrics of a distillation's teacher on the same text; empty if there are none."""
    teacher = folder.run.get("teacher") or {}
    return (teacher.get("metrics") or {}).get("dev") or {}


def phases(folder: RunFolder) -> list[tuple[int, str]]:
    """First step and name of every phase except the first.

    A phase starts where the log has another phase number; in older logs, where the epochs restart.
    """
    starts: list[int] = []
    for before, line in zip(folder.steps, folder.steps[1:], strict=False):
        is_next = line.get("phase") != before.get("phase")
        if is_next or (line.get("epoch") or 0) < (before.get("epoch") or 0):
            starts.append(int(line["step"]))
    length = (folder.run.get("options") or {}).get("second_length")
    if length and len(starts) == 1:
        return [(starts[0], f"{length} tokens")]
    return [(start, f"phase {number}") for number, start in enumerate(starts, start=2)]


def _metric(key: str, value: float | None) -> str:
    if value is None:
        return numbers.MISSING
    return numbers.percent(value) if key in SHARES else numbers.metric(value)
