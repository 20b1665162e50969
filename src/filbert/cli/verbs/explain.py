"""filbert explain."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter


def explain(
    model: str,
    text: str,
    text_b: str | None = None,
    /,
    *,
    method: str | None = None,
    target: str | None = None,
    word: str | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    top: int = 10,
    json: bool = False,
    out: Annotated[str | None, Parameter(name="--out")] = None,
    max_length: int | None = None,
    device: str | None = None,
) -> None:
    """Say which words speak for a model's answer, and which against it.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id: of a classifier, a regression, a tagger, a question
        answerer or a masked LM; a sentence encoder for the likeness of two texts.
    text:
        the text; of a question answerer the question; of a masked LM a text with a [MASK]. - is
        stdin.
    text_b:
        second text of a pair; of a question answerer the context. - is stdin.
    method:
        integrated-gradients, gradient (times input), leave-one-out or rollout; several with
        commas between, or all that the model and its answer allow.
    target:
        label, tag, answer or word to explain; what the model itself says when not given.
    word:
        tagging: the word, or its number from 1; the first with a tag when not given. Several
        masks: the number of one.
    baseline:
        what words give way to: mask (the default where there is one), pad or zero.
    steps:
        points of the integral; when not given as many as bring the error below 1 %.
    top:
        words in the table.
    json:
        print JSON instead.
    out:
        page to write: one HTML file; - is stdout, with nothing else on it.
    max_length:
        longest text in tokens; the model's own limit when not given.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from dataclasses import replace

    from rich.console import Console

    from filbert.cli.explained import print_explanation
    from filbert.cli.flags import STDIO, print_json, typed_text
    from filbert.cli.page_file import check_page, write_page
    from filbert.errors import ConfigError
    from filbert.inspection.attributions import (
        METHODS,
        check_method,
        explained,
        methods_of,
        usual_method,
    )
    from filbert.inspection.claim_kinds import claim_of
    from filbert.predict import Predictor
    from filbert.report.explanation import explanation_page

    if top < 1:
        raise ConfigError(f"--top is {top}; give at least 1.")
    if text == STDIO and text_b == STDIO:
        raise ConfigError("Only one of the two texts can come from stdin.")
    check_page(out, printed="--json" if json else None)
    predictor = Predictor.load(model, device=device, max_length=max_length)
    first, second = typed_text(text), None if text_b is None else typed_text(text_b)
    if second is not None and predictor.task is not None and predictor.task.name == "tagging":
        raise ConfigError("A tagger reads one text, and two are given.")
    claim = claim_of(
        predictor, first if second is None else (first, second), target=target, word=word
    )
    if method == "all":
        asked = list(methods_of(claim))
        if left_out := [name for name in METHODS if name not in asked]:
            note = f"Not for this model and answer: {', '.join(left_out)}."
            claim = replace(claim, notes=(*claim.notes, note))
    else:
        asked = [name.strip() for name in method.split(",")] if method else [usual_method(claim)]
    options = [_own_options(name, len(asked), baseline, steps) for name in asked]
    for name, own in zip(asked, options, strict=True):
        # All of them, before the first costs anything.
        check_method(claim, name, **own)
    found = [
        explained(predictor, claim, method=name, **own)
        for name, own in zip(asked, options, strict=True)
    ]
    free = write_page(out, lambda: explanation_page(found, model))
    if json:
        several = len(found) > 1 or method == "all"
        print_json([one.to_dict() for one in found] if several else found[0].to_dict())
        return
    if not free:
        return
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"Why {claim.says}?")
    for note in claim.notes:
        console.print(note)
    for one in found:
        print_explanation(one, console, top=top)


def _own_options(method: str, count: int, baseline: str | None, steps: int | None) -> Any:
    """What of the options goes to a method: among several, only what it has."""
    own = {"baseline": baseline, "steps": steps}
    if count > 1 and method != "integrated-gradients":
        own["steps"] = None
    if count > 1 and method in ("gradient", "rollout"):
        own["baseline"] = None
    return own
