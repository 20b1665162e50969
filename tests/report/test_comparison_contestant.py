"""How the contestants of a study are told apart."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from filbert.report.comparison_sections import cleaning
from filbert.report.comparison_study import Study, ranked
from filbert.report.comparison_words import headline


def results(names, cleanings=()):
    """Of every name, without and with each of the cleanings (name, steps)."""
    figure = {"value": 0.9, "low": 0.8, "high": 0.95}
    entries = [
        {"name": name + added, "cleaning": steps, "test": {"pr_auc": figure}}
        for name, (added, steps) in product(names, [("", []), *cleanings])
    ]
    return {"labels": ["0", "1"], "contestants": entries}


def test_no_two_of_many_are_drawn_alike():
    names = [f"model-{n}" for n in range(20)]
    cleanings = [(f", {step}", [step]) for step in ("urls", "emojis", "users", "lowercase")]
    found = ranked(results(names, cleanings))
    assert len(found) == 100
    assert len({(one.color, one.line) for one in found}) == 100
    # Without cleaning, a colour that comes again comes with another marker.
    assert len({(one.color, one.marker) for one in found if not one.is_cleaned}) == 20
    first = [one for one in found if one.base == "model-3"]
    assert len({(one.color, one.marker) for one in first}) == 1


def test_cleanings_of_one_model_are_told_apart_and_a_single_one_needs_no_name(monkeypatch):
    monkeypatch.setattr("filbert.report.comparison_sections.drawn", lambda *_, **__: "")
    level = {"difference": 0.01, "low": -0.01, "high": 0.03, "p": 0.4, "p_holm": 0.9}
    pairs = [
        {"one": name, "other": "minilm", "pr_auc": level}
        for name in ("minilm, cleaned", "minilm, lowercase")
    ]
    both = [(", cleaned", ["urls"]), (", lowercase", ["lowercase"])]
    for cleanings, wanted in (
        (both[:1], ["minilm"]),
        (both, ["minilm, cleaned", "minilm, lowercase"]),
    ):
        study = Study(Path(), found := results(["minilm"], cleanings), ranked(found))
        assert [study.cleaned_name(one) for _, one in study.cleaned_pairs] == wanted
        text = str(cleaning(study).html)
        assert all(f">{name}<" in text for name in wanted)
    study = Study(Path(), found | {"pairs": pairs}, ranked(found))
    said = "makes no difference that can be told for any of the 2 ways that minilm was tried in"
    assert headline(study)[-1] == f"Cleaning the texts {said}."
    assert "Cleaned (“minilm, cleaned”): urls." in text
    assert "Cleaned (“minilm, lowercase”): lowercase." in text
