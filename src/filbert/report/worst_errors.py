"""The section of the worst errors: rows by number and line, with their texts on a click."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from filbert.errors import FilbertError, InputError, printable
from filbert.files import read_json, write_json
from filbert.metrics.classification import losses
from filbert.report import numbers
from filbert.report.folder import Prediction, RunFolder, gold_labels, predicted_labels
from filbert.report.plots import share_interval
from filbert.report.predictions import Entity, by_tokens, mistakes, question_scores
from filbert.report.render import Cell, Section, Table, note, section, texts

if TYPE_CHECKING:
    from filbert.data.records import Row
    from filbert.tasks.base import Task

MOST_ERRORS = 25
# Columns of the data that are slices, their values, and the rows of a value.
MOST_COLUMNS, MOST_VALUES, FEWEST_ROWS = 3, 20, 10
# The texts that the report shows, in the run folder, for the day when the data file is gone.
KEPT = "worst_errors.json"
MOST_ENTITIES = 4
# Length of an excerpt in characters, and how many of them are before the relevant position.
LONGEST, BEFORE = 300, 100

Passages = list[tuple[str, str]]
# For each prediction a key to sort by, the worst error first and None if it is correct, and the
# text of each cell by heading.
Errors = Iterator[tuple[Any, dict[str, str]]]


def worst_errors(folder: RunFolder, *, hide_texts: bool = False) -> Section | None:
    """Return the rows with the largest errors, with their texts unless `hide_texts`."""
    rule = rule_of(folder)
    if rule is None:
        return None
    order, errors_in = rule
    pairs = list(zip(errors_in(folder.rows), folder.rows, strict=True))
    errors = [(key, row, own) for (key, own), row in pairs if key is not None]
    worst = sorted(errors, key=lambda error: error[0])[:MOST_ERRORS]
    shown = [row for _, row, _ in worst]
    cells = [
        {"row": numbers.count(row.get("row")), "line": numbers.count(row.get("line"))}
        | own
        | {"tokens": f"{numbers.count(row.get('num_tokens'))}{' cut' * bool(row.get('truncated'))}"}
        for _, row, own in worst
    ]
    found, why = ({}, "") if hide_texts or not shown else passages(folder, shown)
    below = [found.get(row["row"], []) for row in shown] if found else ()
    path = Path(folder.data.get("path") or "").name
    head = [*cells[0]] if cells else []
    num_text_columns = 4 if errors_in in (_labels, _tags) else 1
    return section(
        "Worst errors",
        *texts(
            "worst_errors",
            wrong=numbers.count(len(errors)),
            total=numbers.count(len(pairs)),
            share=numbers.percent(len(errors) / len(pairs)),
            split=folder.split,
            is_exact=folder.problem != "regression",
            order=order,
            file=path,
        ),
        note(why),
        Table(head, [[*one.values()] for one in cells], num_text_columns, passages=below),
    )


def slices(folder: RunFolder) -> Section | None:
    """Return the share of rows that are exactly right, by length, truncation and column values."""
    rule = rule_of(folder)
    if rule is None or folder.problem in ("regression", "embedding", "span_qa"):
        return None
    parts = by_tokens(np.array([row["num_tokens"] for row in folder.rows]))
    is_cut = np.array([bool(row.get("truncated")) for row in folder.rows])
    if is_cut.any():
        parts |= {"truncated": is_cut, "not truncated": ~is_cut}
    try:
        more, left_out = by_columns(folder)
        remark = f"Further columns with few values: {', '.join(left_out)}." if left_out else ""
    except FilbertError as error:
        more, remark = {}, f"Slices by columns of the data are not shown: {error}"
    is_right = np.array([key is None for key, _ in rule[1](folder.rows)])
    table = slice_table(parts | more, {"exactly right": is_right})
    return section("Slices", table, "With 95 % intervals: small slices vary by chance.", remark)


def slice_table(
    parts: Mapping[str, np.ndarray], is_right: Mapping[str, np.ndarray], title: str = ""
) -> Table:
    """Return the rows of each part, bool (N,), and by heading the share of True in bool (N,)."""
    rows: list[list[object]] = []
    for name, is_in in parts.items():
        if is_in.any():
            cells = [_share(outcomes[is_in]) for outcomes in is_right.values()]
            rows.append([name, numbers.count(int(is_in.sum())), *cells])
    return Table(["slice", "rows", *is_right], rows, title=title)


def _share(outcomes: np.ndarray) -> Cell:
    low, high = share_interval(outcomes)
    share = numbers.percent(float(outcomes.mean()))
    return Cell(share, below=numbers.interval(100 * low, 100 * high, 1))


def by_columns(folder: RunFolder) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return rows by values of columns that training did not read, and columns beyond MOST_COLUMNS.

    A column has 2 to MOST_VALUES values, and each of them is in FEWEST_ROWS rows or more. A data
    file that is missing, has changed or cannot be read is a FilbertError.
    """
    from filbert.data.columns import ColumnNames
    from filbert.data.records import read_rows

    own = ColumnNames.recorded(folder.run.get("options") or {})
    found = read_rows(data_file(folder), separator=own.separator, encoding=own.encoding)
    wanted = {row["line"] for row in folder.rows}
    of_line = {row.line: row.values for row in found if row.line in wanted}
    used = {"labels", *(name.removesuffix("_column") for name in vars(own))}
    for value in vars(own).values():
        used |= {value} if isinstance(value, str) else {*(value or ())}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for column in dict.fromkeys(name for values in of_line.values() for name in values):
        values = [of_line[row["line"]].get(column) for row in folder.rows]
        names = np.array(["" if value is None else str(value).strip() for value in values])
        counts = Counter(names.tolist())
        is_small = 2 <= len(counts) <= MOST_VALUES and min(counts.values()) >= FEWEST_ROWS
        if is_small and column not in used:
            parts[column] = {
                printable(f"{column}: {name or 'not stated'}", 100): names == name
                for name, _ in counts.most_common()
            }
    shown = [*parts][:MOST_COLUMNS]
    return {k: v for name in shown for k, v in parts[name].items()}, [*parts][MOST_COLUMNS:]


def rule_of(folder: RunFolder) -> tuple[str, Callable[[list[Prediction]], Errors]] | None:
    """Return the order of the errors in words, and the function that finds those of the problem."""
    rows = folder.rows
    if not rows or folder.problem != "embedding":
        return RULES.get(folder.problem or "") if rows else None
    if all("rank" in row for row in rows):
        return "Worst rank of the own pair", _ranks
    if any(row.get("gold") is not None for row in rows):
        return "Largest difference of the ranks by gold score and by cosine", _cosines
    return None


def _number(value: Any) -> str:
    return numbers.metric(None if value is None else float(value))


def surprise(row: Prediction) -> float:
    """Return the negative log-likelihood of the gold label in nats, summed over several labels."""
    labels = row["scores"] if "labels" in row else [row["gold"]]
    return sum(_label_loss(row, label) for label in labels)


def _label_loss(row: Prediction, label: str) -> float:
    score = row["scores"][label]
    return float(losses(score if label in gold_labels(row) else 1 - score))


def _labels(rows: list[Prediction]) -> Errors:
    for row in rows:
        gold, predicted = gold_labels(row), predicted_labels(row)
        names = {"gold": gold, "predicted": predicted}
        cells = {key: ", ".join(labels) or numbers.MISSING for key, labels in names.items()}
        if "labels" in row:
            worst = max(row["scores"], key=lambda label, row=row: _label_loss(row, label))  # type: ignore[misc]
            cells |= {"worst label": worst, "its score": _number(row["scores"][worst])}
        else:
            cells["score of gold"] = _number(row["scores"][row["gold"]])
        yield (None if set(predicted) == set(gold) else -surprise(row)), cells


def _values(rows: list[Prediction]) -> Errors:
    for row in rows:
        difference = row["value"] - row["gold"]
        cells = {"gold": _number(row["gold"]), "predicted": _number(row["value"])}
        yield -abs(difference) or None, cells | {"difference": f"{difference:+.4f}"}


def _ranks(rows: list[Prediction]) -> Errors:
    for row in rows:
        cells = {"rank of own pair": f"{row['rank']:,} of {row['pool_size']:,}"}
        cells |= {"cosine": _number(row["value"])}
        yield ((-row["rank"], row["value"]) if row["rank"] > 1 else None), cells


def _cosines(rows: list[Prediction]) -> Errors:
    """Yield gold scores and cosines by their ranks, as the scale of cosines is arbitrary."""
    from scipy.stats import rankdata

    gold = np.array([row.get("gold") for row in rows], dtype=float)
    cosines = np.array([row["value"] for row in rows])
    is_known = np.isfinite(gold)
    ranks = np.zeros((2, len(rows)))
    ranks[:, is_known] = rankdata([gold[is_known], cosines[is_known]], axis=1)
    for row, (by_gold, by_cosine) in zip(rows, ranks.T.tolist(), strict=True):
        cells = {"gold": _number(row.get("gold")), "cosine": _number(row["value"])}
        cells |= {"rank by gold": f"{by_gold:,.0f}", "rank by cosine": f"{by_cosine:,.0f}"}
        yield -abs(by_cosine - by_gold) or None, cells


def _tags(rows: list[Prediction]) -> Errors:
    for row in rows:
        missed, spurious = mistakes(row)
        cells = {"missed, at words": _entities(missed), "spurious, at words": _entities(spurious)}
        cells |= {"words": numbers.count(len(row["tags"]))}
        yield -len(missed + spurious) or None, cells


def _entities(entities: list[Entity]) -> str:
    names = [
        f"{kind} {start + 1}" + (f"–{end}" if end > start + 1 else "")
        for kind, start, end in entities[:MOST_ENTITIES]
    ]
    if len(entities) > MOST_ENTITIES:
        names.append(f"and {len(entities) - MOST_ENTITIES} more")
    return ", ".join(names) or numbers.MISSING


def _answers(rows: list[Prediction]) -> Errors:
    for row, (exact, f1) in zip(rows, question_scores(rows).tolist(), strict=True):
        cells = {"gold answer": _length(row["gold"]), "predicted answer": _length([row["answer"]])}
        cells |= {"F1": numbers.percent(f1), "score": _number(row.get("score"))}
        cells |= {"null score": _number(row.get("null_score"))}
        yield (None if exact else (f1, -float(row.get("score") or 0.0))), cells


def _length(texts: list[str]) -> str:
    """Return only the lengths of two answers, because they are texts of the data."""
    return f"{min(map(len, texts)):,} characters" if any(texts) else "none"


def _choices(rows: list[Prediction]) -> Errors:
    for row in rows:
        scores = row.get("scores") or {}
        right, chosen = (float(scores[row[key]]) if scores else 0.0 for key in ("gold", "choice"))
        cells = {"right": str(row["gold"]), "chosen": str(row["choice"])}
        cells |= {"score of right": _number(right), "score of chosen": _number(chosen)}
        yield (None if row["choice"] == row["gold"] else right), cells


RULES: dict[str, tuple[str, Callable[[list[Prediction]], Errors]]] = {
    "binary": ("Lowest probability of the gold label", _labels),
    "multiclass": ("Lowest probability of the gold label", _labels),
    "multilabel": ("Lowest probability of the gold label", _labels),
    "regression": ("Largest difference", _values),
    "tagging": ("Most errors (words count from 1)", _tags),
    "span_qa": ("Lowest F1, then highest score", _answers),
    "multiple_choice": ("Lowest score of the right answer", _choices),
}


# Texts of the rows


def passages(
    folder: RunFolder, predictions: Collection[Prediction]
) -> tuple[dict[int, Passages], str]:
    """Return (name, excerpt) pairs of some predictions by row number, or why there are none.

    The data file is only read if its sha256 is that of the run; other texts would not belong to
    these predictions. Otherwise they are those that an earlier report kept in the run folder.
    """
    kept = folder.path / KEPT
    try:
        found = _read(folder, data_file(folder), {row["row"]: row for row in predictions})
        write_json(kept, {"split": folder.split, "texts": found})
        return found, ""
    except FilbertError as error:
        known = read_json(kept) if kept.is_file() else {}
        if known.get("split") == folder.split:
            return {int(row): shown for row, shown in known["texts"].items()}, ""
        return {}, f"The texts are not shown: {error}"


def data_file(folder: RunFolder) -> str:
    """Return the path of the measured rows; another file than the run's is an InputError."""
    from filbert.data.records import file_digest

    path = folder.data.get("path")
    if path is None or not Path(path).is_file():
        raise InputError(f"{path} does not exist.")
    if file_digest(path) != folder.data.get("sha256"):
        raise InputError(f"{path} has changed since the run.")
    return str(path)


def excerpt(text: str, at: int = 0) -> str:
    """Return at most LONGEST characters of a text, around the character `at`."""
    if len(text) <= LONGEST:
        return text
    start = max(min(at - BEFORE, len(text) - LONGEST), 0)
    end = start + LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _read(folder: RunFolder, path: str, wanted: dict[int, Prediction]) -> dict[int, Passages]:
    from filbert.data.columns import ColumnNames
    from filbert.tasks.base import TaskOptions, task_class
    from filbert.tasks.rows import read_task_rows

    options = folder.run.get("options") or {}
    names = ColumnNames.recorded(options)
    chosen: dict[str, Any] = {
        f.name: tuple(value) if isinstance(value := options[f.name], list) else value
        for f in fields(TaskOptions)
        if f.name in options and f.name != "clean"  # the original text is shown
    }
    task = task_class(folder.run["task"]).from_options(TaskOptions(**chosen), names)
    show = _SHOWN.get(folder.problem or "", _sequences)
    division = folder.path / "split.json"
    part = read_json(division)["parts"].get(folder.split) if division.is_file() else None
    # Numbers in a part of a file become numbers in the file.
    in_file = {number if part is None else part[number]: number for number in wanted}
    return {
        in_file[index]: show(task, row, wanted[in_file[index]])
        for index, row in enumerate(read_task_rows(task, path, names))
        if index in in_file
    }


def _sequences(task: Task, row: Row, prediction: Prediction) -> Passages:
    from filbert.tasks.rows import row_texts

    parts: list[str] = []
    for text in row_texts(task, row):
        parts += [text] if isinstance(text, str) else text
    names = ("text", "second text")[: len(parts)]
    return [(name, excerpt(text)) for name, text in zip(names, parts, strict=True)]


def _question(task: Task, row: Row, prediction: Prediction) -> Passages:
    gold = row.values.get("answers") or []
    at = gold[0]["answer_start"] if gold else prediction.get("start") or 0
    right = " / ".join(dict.fromkeys(answer["text"] for answer in gold)) or "no answer"
    return [
        ("question", excerpt(row.values["question"])),
        ("gold", excerpt(right)),
        ("predicted", excerpt(prediction["answer"] or "no answer")),
        ("context", excerpt(row.values["context"], at)),
    ]


def _choice(task: Task, row: Row, prediction: Prediction) -> Passages:
    numbers_of = {"right": prediction["gold"], "chosen": prediction["choice"]}
    chosen = [(name, excerpt(row.values["choices"][at])) for name, at in numbers_of.items()]
    return [("context", excerpt(row.values["context"])), *chosen]


def _sentence(task: Task, row: Row, prediction: Prediction) -> Passages:
    words, wrong = prediction["tokens"], mistakes(prediction)
    first = min((start for part in wrong for _, start, _ in part), default=0)
    shown = [("text", excerpt(" ".join(words), sum(len(word) + 1 for word in words[:first])))]
    for name, entities in zip(("missed", "spurious"), wrong, strict=True):
        if entities:
            text = " · ".join(f"{kind}: {' '.join(words[a:b])}" for kind, a, b in entities)
            shown.append((name, excerpt(text)))
    return shown


_SHOWN = {"span_qa": _question, "multiple_choice": _choice, "tagging": _sentence}
