"""Entity figures against seqeval, on real tags, made worse at random, and on tags without sense."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from filbert.data.conll import read_conll
from filbert.data.tags import to_bio
from filbert.metrics.entities import entities_of, entity_metrics

seqeval = pytest.importorskip("seqeval.metrics")


def _judged(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, Any]:
    with warnings.catch_warnings():
        # It warns of a division by zero, which both answer with 0.
        warnings.filterwarnings("ignore", category=UserWarning, module="seqeval")
        warnings.filterwarnings("ignore", message=".*ill-defined.*")
        report = seqeval.classification_report(gold, predicted, output_dict=True, zero_division=0)
        return {
            "precision": seqeval.precision_score(gold, predicted, zero_division=0),
            "recall": seqeval.recall_score(gold, predicted, zero_division=0),
            "f1": seqeval.f1_score(gold, predicted, zero_division=0),
            "accuracy": seqeval.accuracy_score(gold, predicted),
            "per_label": {
                kind: {
                    "precision": row["precision"],
                    "recall": row["recall"],
                    "f1": row["f1-score"],
                    "support": row["support"],
                }
                for kind, row in report.items()
                if not kind.endswith(" avg")
            },
        }


def _assert_equal(gold: list[list[str]], predicted: list[list[str]]) -> None:
    ours, theirs = entity_metrics(gold, predicted), _judged(gold, predicted)
    for name in ("precision", "recall", "f1", "accuracy"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-9, rel=0), name
    assert set(ours["per_label"]) == set(theirs["per_label"])
    for kind, row in theirs["per_label"].items():
        assert ours["per_label"][kind] == pytest.approx(row, abs=1e-9, rel=0), kind


@pytest.fixture(scope="module")
def wnut(shared_data: Path) -> list[list[str]]:
    return [row.values["tags"] for row in read_conll(shared_data / "wnut17" / "dev.conll.gz")]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 1.0])
def test_on_real_tags_with_errors_all_figures_are_those_of_seqeval(wnut, share):
    known = sorted({tag for tags in wnut for tag in tags})
    draw = random.Random(int(share * 100))
    for _ in range(2):
        predicted = [
            [draw.choice(known) if draw.random() < share else tag for tag in tags] for tags in wnut
        ]
        _assert_equal(wnut, predicted)


@pytest.mark.parametrize("prefixes", ["BI", "BIES", "I"])
def test_on_tags_without_sense_all_figures_are_those_of_seqeval(prefixes):
    draw = random.Random(len(prefixes))
    known = ["O", "O", *(f"{p}-{kind}" for p in prefixes for kind in ("x", "y-z"))]
    for _ in range(150):
        lengths = [draw.randint(1, 9) for _ in range(draw.randint(1, 4))]
        gold, predicted = ([draw.choices(known, k=n) for n in lengths] for _ in range(2))
        if not any(tag != "O" for tags in (*gold, *predicted) for tag in tags):
            continue  # its report fails without any entity
        _assert_equal(gold, predicted)


def test_mended_tags_are_bio_and_hold_the_entities_that_seqeval_reads():
    from seqeval.metrics.sequence_labeling import get_entities

    draw = random.Random(7)
    known = ["O", *(f"{p}-{kind}" for p in "BIES" for kind in "xy")]
    for _ in range(2000):
        tags = draw.choices(known, k=draw.randint(1, 8))
        theirs = [(kind, first, last + 1) for kind, first, last in get_entities(tags)]
        assert entities_of(tags) == theirs
        assert entities_of(to_bio(tags)) == theirs
        assert set("".join(tag[0] for tag in to_bio(tags))) <= set("BIO")
