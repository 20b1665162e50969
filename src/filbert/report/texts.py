"""The texts of a few rows, read again from the data file of a run; only when they are asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.errors import ConfigError, FormatError, InputError
from filbert.report.folder import RunFolder
from filbert.report.tagging_sections import mistakes

if TYPE_CHECKING:
    from filbert.data.records import Row
    from filbert.tasks.base import Task

LONGEST = 300
# Characters kept before the place that matters, when a text is too long to be shown whole.
BEFORE = 100

# Name and text, in the order in which they are read.
Passage = tuple[str, str]


def passages(
    folder: RunFolder, predictions: Collection[dict[str, Any]]
) -> tuple[dict[int, list[Passage]], str]:
    """The texts of the rows that some predictions are for, each cut to about LONGEST characters.

    The file is read only if it still has the bytes that the run was measured on: other texts beside
    these predictions would be a lie.

    Args:
        folder: of the run.
        predictions: rows of the shown split's predictions.

    Returns:
        Passages by row number, and a sentence that says why there are none; empty if there are.
    """
    from filbert.data.records import file_digest

    facts = (folder.run.get("data") or {}).get(folder.shown_split or "") or {}
    path, digest = facts.get("path"), facts.get("sha256")
    if not path or not digest:
        return {}, "The texts are not shown: run.json does not say where they are."
    if not Path(path).is_file():
        return {}, f"The texts are not shown: {path} is gone."
    try:
        if file_digest(path) != digest:
            return {}, f"The texts are not shown: {path} has changed since the run."
        return _read(folder, path, {row["row"]: row for row in predictions}), ""
    except (
        InputError,
        ConfigError,
        FormatError,
        OSError,
        TypeError,
        ValueError,
        KeyError,
    ) as error:
        return {}, f"The texts are not shown: {path} cannot be read as in the run. {error}"


def excerpt(text: str, at: int = 0) -> str:
    """A text of at most LONGEST characters and two dots: what stands around the character `at`."""
    if len(text) <= LONGEST:
        return text
    start = max(min(at - BEFORE, len(text) - LONGEST), 0)
    end = start + LONGEST
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _read(
    folder: RunFolder, path: str, wanted: dict[int, dict[str, Any]]
) -> dict[int, list[Passage]]:
    from filbert.data.columns import ColumnNames
    from filbert.tasks.base import TaskOptions, task_class

    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in (folder.run.get("options") or {}).items()
    }
    names = ColumnNames.recorded(given)
    chosen = {f.name: given[f.name] for f in fields(TaskOptions) if f.name in given}
    chosen["clean"] = None  # a reader wants the text as it stands
    task = task_class(folder.run["task"]).from_options(TaskOptions(**chosen), names)
    found: dict[int, list[Passage]] = {}
    last = max(wanted, default=-1)
    for number, row in enumerate(task.read(path, names)):
        if number > last:
            break
        prediction = wanted.get(number)
        if prediction is None:
            continue
        if row.line != prediction.get("line", row.line):
            raise ValueError(f"Row {number} is at line {row.line}, not {prediction['line']}.")
        shown = _SHOWN.get(folder.problem or "", _sequences)
        found[number] = shown(task, row, prediction)
    return found


def _sequences(task: Task, row: Row, prediction: dict[str, Any]) -> list[Passage]:
    texts: list[str] = []
    for text in task.sequences(row):
        texts += [text] if isinstance(text, str) else text
    names = ["text", "second text"] if len(texts) <= 2 else [str(i) for i in range(len(texts))]
    return [(name, excerpt(text)) for name, text in zip(names, texts, strict=False)]


def _question(task: Task, row: Row, prediction: dict[str, Any]) -> list[Passage]:
    gold = row.values.get("answers") or []
    at = gold[0]["answer_start"] if gold else prediction.get("start") or 0
    wanted = " / ".join(dict.fromkeys(answer["text"] for answer in gold)) or "no answer"
    return [
        ("question", excerpt(row.values["question"])),
        ("right", excerpt(wanted)),
        ("given", excerpt(prediction["answer"] or "no answer")),
        ("context", excerpt(row.values["context"], at)),
    ]


def _choice(task: Task, row: Row, prediction: dict[str, Any]) -> list[Passage]:
    choices = row.values["choices"]
    return [
        ("context", excerpt(row.values["context"])),
        ("right", excerpt(choices[prediction["gold"]])),
        ("chosen", excerpt(choices[prediction["choice"]])),
    ]


def _sentence(task: Task, row: Row, prediction: dict[str, Any]) -> list[Passage]:
    words = prediction["tokens"]
    wrong = mistakes(prediction)
    first = min((start for part in wrong for _, start, _ in part), default=0)
    at = sum(len(word) + 1 for word in words[:first])
    found = [(name, excerpt(text, at)) for name, text in _sequences_whole(task, row)]
    for name, entities in zip(("missed", "invented"), wrong, strict=True):
        if entities:
            told = " · ".join(f"{kind}: {' '.join(words[a:b])}" for kind, a, b in entities)
            found.append((name, excerpt(told)))
    return found


def _sequences_whole(task: Task, row: Row) -> list[Passage]:
    return [("text", text) for text in task.sequences(row) if isinstance(text, str)]


_SHOWN = {"span_qa": _question, "multiple_choice": _choice, "tagging": _sentence}
