"""One judge for both sides of finetune_tasks.py: dev rows and predictions in, figures out.

The figures are percent. A prediction is a label (text), a number, a list of tags, the number of a
choice or an answer's text; see `KINDS` for which task has what.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from task_data import read_conll, read_json_lines, read_squad

KINDS = {
    "SST-2": "classification",
    "MRPC": "classification",
    "STS-B": "regression",
    "RTE": "classification",
    "CoLA": "classification",
    "WNUT-17": "tagging",
    "CODAH": "multiple_choice",
    "SQuAD": "span_qa",
}
# The first figure of a task chooses the best epoch, under filbert's name for it.
FIGURES = {
    "SST-2": ("accuracy",),
    "MRPC": ("f1", "accuracy"),
    "STS-B": ("spearman", "pearson"),
    "RTE": ("accuracy",),
    "CoLA": ("mcc",),
    "WNUT-17": ("f1",),
    "CODAH": ("accuracy",),
    "SQuAD": ("f1", "exact_match"),
}


def dev_gold(task: str, path: Path) -> list[Any]:
    """What the dev rows want, in order: labels, numbers, lists of tags, or lists of answers."""
    if task == "WNUT-17":
        return [sentence.tags for sentence in read_conll(path)]
    if task == "SQuAD":
        return [[answer["text"] for answer in row["answers"]] for row in read_squad(path)]
    return [row["label"] for row in read_json_lines(path)]


def score(task: str, gold: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """The figures of a task.

    Raises:
        ValueError: there are more or fewer predictions than rows, or tags than words.
    """
    if len(gold) != len(predictions):
        raise ValueError(f"{task}: {len(predictions)} predictions for {len(gold)} dev rows")
    found = _figures(KINDS[task], gold, predictions)
    return {name: 100.0 * float(found[name]) for name in FIGURES[task]}


def _figures(kind: str, gold: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    if kind == "regression":
        from scipy.stats import pearsonr, spearmanr

        return {
            "pearson": pearsonr(gold, predictions).statistic,
            "spearman": spearmanr(gold, predictions).statistic,
        }
    if kind == "tagging":
        from seqeval.metrics import f1_score

        for words, tags in zip(gold, predictions, strict=True):
            if len(words) != len(tags):
                raise ValueError(f"{len(tags)} tags for {len(words)} words")
        with warnings.catch_warnings():
            # Early in training no entity may be predicted; F1 is 0 then, and that is all.
            warnings.simplefilter("ignore")
            return {"f1": f1_score(gold, predictions)}
    if kind == "span_qa":
        # Equal to the official scripts: tests/reference/test_squad_scores.py.
        from filbert.metrics.squad import squad_metrics

        return {key: value / 100 for key, value in squad_metrics(gold, predictions).items()}
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    figures = {"accuracy": accuracy_score(gold, predictions)}
    if set(gold) <= {"0", "1"}:
        figures["f1"] = f1_score(gold, predictions, pos_label="1", zero_division=0.0)
        figures["mcc"] = matthews_corrcoef(gold, predictions)
    return figures
