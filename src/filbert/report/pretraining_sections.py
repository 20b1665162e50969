"""Parts of the report of a pre-training run: what it learned, how it went, from which text."""

from __future__ import annotations

from typing import Any

from filbert.report import numbers, page, pretraining_plots, training_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Html, Section
from filbert.report.sections import drawn

# metric key -> (what it is called, how it is written); the order of the table.
FIGURES: dict[str, tuple[str, str]] = {
    "mlm_accuracy": ("masked words right", "share"),
    "perplexity": ("perplexity", "figure"),
    "mlm_loss": ("loss of a masked word (nats)", "figure"),
    "nsp_accuracy": ("next sentences right", "share"),
    "nsp_loss": ("next-sentence loss (nats)", "figure"),
    "sop_accuracy": ("sentence orders right", "share"),
    "sop_loss": ("sentence-order loss (nats)", "figure"),
    "replaced_accuracy": ("replaced words told", "share"),
    "replaced_loss": ("replaced-word loss (nats)", "figure"),
    "loss": ("what is trained: the weighted sum", "figure"),
    "soft_loss": ("divergence from the teacher's word scores", "figure"),
    "cosine_loss": ("1 - cosine of last hidden states", "figure"),
    "embeddings_loss": ("squared error of embeddings", "figure"),
    "hidden_loss": ("squared error of hidden states", "figure"),
    "scores_loss": ("squared error of attention scores", "figure"),
    "relations_loss": ("divergence of relations", "figure"),
}
_SHARES = tuple(key for key, (_, kind) in FIGURES.items() if kind == "share")


def is_pretraining(run: dict[str, Any]) -> bool:
    """Whether run.json is that of `filbert pretrain`, or of a distillation over raw text."""
    command = run.get("command")
    return command == "pretrain" or (command == "distill" and run.get("task") is None)


def verdict(folder: RunFolder) -> str:
    """The outcome in a sentence or two."""
    run, metrics = folder.run, dev_metrics(folder)
    name = run.get("name") or "The model"
    steps, tokens = run.get("steps"), run.get("tokens")
    made = f" after {steps:,} steps" if steps is not None else ""
    made += f" on {numbers.parameters(tokens)} tokens" if tokens else ""
    theirs = teacher_metrics(folder)
    if run.get("teacher") and metrics and not theirs:
        return f"{name} learned from its teacher{made}."
    if metrics.get("mlm_accuracy") is None:
        return f"{name} was trained{made.replace(' after', ' for')}; no held-out text was measured."
    text = f"{name} fills {numbers.percent(metrics['mlm_accuracy'])} of the masked words of the "
    text += f"held-out text{made}"
    if metrics.get("perplexity") is not None:
        text += f"; its perplexity there is {metrics['perplexity']:,.2f}"
    if theirs:
        text += (
            f". Its teacher fills {numbers.percent(theirs['mlm_accuracy'])}, with a perplexity of "
            f"{theirs['perplexity']:,.2f}"
        )
    return text + "."


def headline_facts(folder: RunFolder) -> list[tuple[str, str]]:
    """(name, value) of the figures that everyone asks for."""
    run, metrics = folder.run, dev_metrics(folder)
    chosen = ("perplexity", *_SHARES)
    facts = [(FIGURES[key][0], _written(key, metrics[key])) for key in chosen if key in metrics]
    if metrics.get("perplexity") is not None:
        facts[0] = ("perplexity", f"{metrics['perplexity']:,.2f}")
    if not facts and metrics.get("loss") is not None:
        facts.append(("loss", numbers.metric(metrics["loss"])))
    if run.get("seconds") is not None:
        facts.append(("time", numbers.seconds(run["seconds"])))
    if run.get("tokens") is not None:
        facts.append(("tokens seen", numbers.parameters(run["tokens"])))
    if (run.get("model") or {}).get("parameters") is not None:
        facts.append(("parameters", numbers.parameters(run["model"]["parameters"])))
    if run.get("teacher"):
        facts.append(("of its teacher", numbers.parameters(run["teacher"]["parameters"])))
    return facts


def results(folder: RunFolder) -> Section | None:
    """Every dev figure of the finished model, beside the first and the best on the way."""
    metrics, dev = dev_metrics(folder), _dev_lines(folder)
    known = [key for key in FIGURES if metrics.get(key) is not None]
    known += [k for k, v in metrics.items() if k not in FIGURES and isinstance(v, (int, float))]
    if not known:
        return None
    has_course = len(dev) > 1
    theirs = teacher_metrics(folder)
    rows = []
    for key in known:
        row = [FIGURES.get(key, (key.replace("_", " "), ""))[0]]
        if has_course:
            values = [line["metrics"].get(key) for line in dev]
            row += [_written(key, values[0]), _best(key, [v for v in values if v is not None])]
        told = [_written(key, theirs.get(key))] if theirs else []
        rows.append([*row, _written(key, metrics[key]), *told])
    head = [
        "on the held-out text",
        *(["first", "best on the way"] if has_course else []),
        "at last",
        *(["its teacher"] if theirs else []),
    ]
    remark = (
        "The same sequences with the same masks at every time. A masked word is one token of the "
        "vocabulary, and perplexity is e to the power of its loss, so models with different "
        "vocabularies cannot be compared by these figures."
    )
    if has_course:
        remark += f" First means after step {dev[0]['step']:,}."
    return page.section(
        "Results", page.table(head, rows), page.element("p", remark, class_="remark")
    )


def learning(folder: RunFolder) -> Section | None:
    """Loss over steps and over time, perplexity, accuracies, and how many rows a step had."""
    steps, dev = folder.steps, _dev_lines(folder)
    if not steps:
        return None
    borders = phases(folder)
    is_taught = bool(folder.run.get("teacher"))
    key, what = ("loss", "The loss") if is_taught else ("mlm_loss", "Loss of the masked words")
    figures = [
        drawn(
            folder, "loss", pretraining_plots.loss_by_step(steps, dev, borders, key),
            alt="Loss and learning rate over the steps",
            caption=f"{what}, and the learning rate. The first steps may lie above the picture.",
        )
    ]  # fmt: skip
    if any(line.get("seconds") is not None for line in steps):
        plot = pretraining_plots.loss_by_time(steps, dev, borders, key)
        caption = "The same over the time of training without evaluations, and the speed."
        alt = "Loss and speed over time"
        figures.append(drawn(folder, "loss_time", plot, alt=alt, caption=caption))
    if any(line["metrics"].get("perplexity") is not None for line in dev):
        plot = pretraining_plots.perplexity_by_step(dev, borders)
        caption = "How many words the model hesitates between, on held-out text."
        alt = "Dev perplexity over the steps"
        figures.append(drawn(folder, "perplexity", plot, alt=alt, caption=caption))
    measured = [
        (key, FIGURES[key][0])
        for key in _SHARES
        if any(line["metrics"].get(key) is not None for line in dev)
    ]
    if measured:
        plot = training_plots.dev_metric_curves(dev, measured, None)
        alt = "Dev accuracies over the steps"
        figures.append(drawn(folder, "dev_metric", plot, alt=alt, caption="Shares right on dev."))
    if len({line.get("sequences") for line in steps}) > 1:
        plot = pretraining_plots.rows_by_step(steps, borders)
        alt, caption = "Sequences per step", "Sequences of every optimiser step."
        figures.append(drawn(folder, "batch_size", plot, alt=alt, caption=caption))
    if any((line.get("grad_norm") or 0) > 0 for line in steps):
        clip = (folder.run.get("options") or {}).get("clip")
        plot = training_plots.gradient_curve(steps, clip)
        caption = "Length of the gradient before it is cut. Steady is good; a rise is a warning."
        alt = "Gradient norm over the steps"
        figures.append(drawn(folder, "grad_norm", plot, alt=alt, caption=caption))
    return page.section("Training", _pace(folder), page.gallery(figures))


def corpora(folder: RunFolder) -> Section | None:
    """The text: documents, sentences and tokens of every split, and how often it was seen."""
    run = folder.run
    data = run.get("data") or {}
    if not data:
        return None
    counted = ("documents", "sentences", "tokens")
    rows = [
        [split, facts.get("path", ""), *(numbers.count(facts.get(key)) for key in counted)]
        for split, facts in data.items()
    ]
    parts = [page.table(["split", "corpus", *counted], rows, num_text_columns=2)]
    remark = []
    whole = (data.get("train") or {}).get("tokens")
    if run.get("tokens") and whole:
        remark.append(
            f"Training read {run['tokens']:,} tokens with special tokens, "
            f"{run['tokens'] / whole:.1f} times the corpus."
        )
    tokenizer = run.get("tokenizer") or {}
    if tokenizer.get("vocab_size"):
        kind = tokenizer.get("kind", "")
        remark.append(f"The vocabulary is {kind} with {tokenizer['vocab_size']:,} entries.")
    if remark:
        parts.append(page.element("p", " ".join(remark), class_="remark"))
    return page.section("Text", *parts)


PARTS = (results, learning, corpora)


def dev_metrics(folder: RunFolder) -> dict[str, Any]:
    """The final figures on held-out text, else the last that were measured on the way."""
    final = (folder.run.get("metrics") or {}).get("dev")
    dev = _dev_lines(folder)
    return final or (dev[-1]["metrics"] if dev else {})


def teacher_metrics(folder: RunFolder) -> dict[str, Any]:
    """What the teacher of a distillation reaches on the same text; {} where there is none."""
    teacher = folder.run.get("teacher") or {}
    return (teacher.get("metrics") or {}).get("dev") or {}


def phases(folder: RunFolder) -> list[tuple[int, str]]:
    """The first step of every phase but the first, and what it is called.

    A phase begins where the log counts another one; in older logs, where the count of epochs starts
    anew.
    """
    found: list[int] = []
    for before, line in zip(folder.steps, folder.steps[1:], strict=False):
        is_next = line.get("phase") != before.get("phase")
        if is_next or (line.get("epoch") or 0) < (before.get("epoch") or 0):
            found.append(int(line["step"]))
    options = folder.run.get("options") or {}
    length = options.get("second_length")
    names = [f"{length} tokens" if length and len(found) == 1 else f"phase {n + 2}"
             for n in range(len(found))]  # fmt: skip
    return list(zip(found, names, strict=True))


def _dev_lines(folder: RunFolder) -> list[dict[str, Any]]:
    return [line for line in folder.evaluations if line.get("split", "dev") == "dev"]


def _pace(folder: RunFolder) -> Html:
    run = folder.run
    options = run.get("options") or {}
    objective = "replaced words" if options.get("objective") == "replaced" else "masked words"
    pair = {"nsp": "next sentence", "sop": "sentence order"}.get(str(options.get("pair")))
    told = [objective + (f" and {pair}" if pair else "")]
    if run.get("teacher"):
        told = [f"taught by the method {run.get('method')}"]
    for key, unit in (("steps", "steps"), ("tokens_per_second", "tokens a second")):
        if run.get(key) is not None:
            told.append(f"{run[key]:,.0f} {unit}")
    if run.get("fill") is not None:
        told.append(f"fill {numbers.percent(run['fill'])} (real tokens among all computed)")
    lengths = [options[k] for k in ("max_length", "second_length") if options.get(k) is not None]
    if lengths:
        told.append(f"sequences of up to {', then '.join(map(str, lengths))} tokens")
    return page.element("p", " · ".join(told), class_="remark")


def _best(key: str, values: list[float]) -> str:
    is_rising = key.endswith("accuracy")
    return _written(key, (max if is_rising else min)(values)) if values else numbers.MISSING


def _written(key: str, value: float | None) -> str:
    if value is None:
        return numbers.MISSING
    return numbers.percent(value) if key in _SHARES else numbers.metric(value)
