"""The shared data as the files that both sides of finetune_tasks.py read.

GLUE and CODAH become JSON Lines under filbert's own column names, WNUT-17 stays in CoNLL columns,
SQuAD stays in its published JSON. Training rows are capped by a sample with a fixed seed; dev rows
are complete unless a cap is asked for. GLUE's files know no quotes: a line is split at its tabs.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")
Rows = list[dict[str, Any]]
SPLITS = ("train", "dev")


class Files(NamedTuple):
    """The two files of a task, and their numbers of rows: written, and there to choose from."""

    train: Path
    dev: Path
    rows: dict[str, int]
    available: dict[str, int]


class Sentence(NamedTuple):
    tokens: list[str]
    tags: list[str]


def sample(items: Sequence[Item], count: int | None) -> list[Item]:
    """`count` items drawn with a fixed seed, in the order of the file; all when None or enough."""
    if count is None or count >= len(items):
        return list(items)
    return [items[i] for i in sorted(random.Random(0).sample(range(len(items)), count))]


def convert(
    task: str, data: Path, out: Path, *, max_train: int | None, max_dev: int | None
) -> Files:
    """Write the files of a task below `out`, unless they are there.

    Args:
        task: a key of `READERS`, or "SQuAD".
        data: the folder of shared data.
        out: gets a folder for every pair of caps, so that other caps never meet stale files.
        max_train, max_dev: rows to keep (questions for SQuAD); None for all.
    """
    suffix = {"WNUT-17": "conll", "SQuAD": "json"}.get(task, "jsonl")
    folder = out / f"{task}-{max_train or 'all'}-{max_dev or 'all'}"
    if not (folder / "counts.json").is_file():
        # The counts come last and the name last of all: a folder is complete or not there.
        staging = folder.with_name(folder.name + ".part")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        counts: dict[str, dict[str, int]] = {"rows": {}, "available": {}}
        for split, cap in zip(SPLITS, (max_train, max_dev), strict=True):
            kept, available, text = CONVERTERS.get(task, _json_lines)(task, data, split, cap)
            (staging / f"{split}.{suffix}").write_text(text, encoding="utf-8")
            counts["rows"][split], counts["available"][split] = kept, available
        (staging / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        staging.rename(folder)
    counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    return Files(folder / f"train.{suffix}", folder / f"dev.{suffix}", **counts)


def read_json_lines(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_conll(path: Path) -> list[Sentence]:
    return _sentences(path.read_text(encoding="utf-8"))


def tags_in(*paths: Path) -> list[str]:
    """All tags of some CoNLL files, sorted."""
    return sorted({tag for path in paths for found in read_conll(path) for tag in found.tags})


def read_squad(path: Path) -> Rows:
    """A row per question: id, question, context, answers."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [
        {"context": paragraph["context"], **question}
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def _text(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read()


def _table(path: Path, header: list[str] | None = None) -> list[dict[str, str]]:
    lines = [line.split("\t") for line in _text(path).split("\n") if line]
    if header is None:
        header, *lines = lines
    for number, fields in enumerate(lines, 1):
        if len(fields) != len(header):
            raise ValueError(f"{path}: row {number} has {len(fields)} fields, not {len(header)}")
    return [dict(zip(header, fields, strict=True)) for fields in lines]


def _glue(folder: str, text: str, pair: str | None, label: str) -> Callable[[Path, str], Rows]:
    # CoLA's files alone have no header.
    header = ["source", "label", "mark", "sentence"] if folder == "CoLA" else None

    def read(data: Path, split: str) -> Rows:
        rows = _table(data / "glue" / folder / f"{split}.tsv.gz", header)
        wanted = {"text": text, "text_pair": pair, "label": label}
        return [{name: row[own] for name, own in wanted.items() if own} for row in rows]

    return read


def _sts(data: Path, split: str) -> Rows:
    rows = _glue("STS-B", "sentence1", "sentence2", "score")(data, split)
    return [row | {"label": float(row["label"])} for row in rows]


def _codah(data: Path, split: str) -> Rows:
    return [
        {
            "context": row["prompt"],
            "choices": [row[f"ending{i}"] for i in range(4)],
            "label": int(row["label"]),
        }
        for row in _table(data / "codah" / f"fold_0_{split}.tsv.gz")
    ]


READERS: dict[str, Callable[[Path, str], Rows]] = {
    "SST-2": _glue("SST-2", "sentence", None, "label"),
    "MRPC": _glue("MRPC", "#1 String", "#2 String", "Quality"),
    "STS-B": _sts,
    "RTE": _glue("RTE", "sentence1", "sentence2", "label"),
    "CoLA": _glue("CoLA", "sentence", None, "label"),
    "CODAH": _codah,
}


def _json_lines(task: str, data: Path, split: str, cap: int | None) -> tuple[int, int, str]:
    rows = READERS[task](data, split)
    kept = sample(rows, cap)
    return len(kept), len(rows), "".join(json.dumps(row) + "\n" for row in kept)


def _sentences(text: str) -> list[Sentence]:
    found = [Sentence([], [])]
    for line in text.split("\n"):
        if line.strip():
            token, tag = line.split("\t")
            found[-1].tokens.append(token)
            found[-1].tags.append(tag.strip())
        elif found[-1].tokens:
            found.append(Sentence([], []))
    return [sentence for sentence in found if sentence.tokens]


def _wnut(task: str, data: Path, split: str, cap: int | None) -> tuple[int, int, str]:
    sentences = _sentences(_text(data / "wnut17" / f"{split}.conll.gz"))
    kept = sample(sentences, cap)
    blocks = [
        "".join(f"{token}\t{tag}\n" for token, tag in zip(*sentence, strict=True))
        for sentence in kept
    ]
    return len(kept), len(sentences), "\n".join(blocks)


def _squad(task: str, data: Path, split: str, cap: int | None) -> tuple[int, int, str]:
    """SQuAD v1.1's dev articles in two parts that share no article."""
    folder = data / "squad"
    part = {"train": "train_titles", "dev": "test_titles"}[split]
    split_text = (folder / "article_split_v1.1.json").read_text(encoding="utf-8")
    titles = set(json.loads(split_text)[part])
    content = json.loads(_text(folder / "dev-v1.1.json.gz"))
    articles = [article for article in content["data"] if article["title"] in titles]
    ids = [q["id"] for a in articles for p in a["paragraphs"] for q in p["qas"]]
    kept = set(sample(ids, cap))
    for article in articles:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [q for q in paragraph["qas"] if q["id"] in kept]
            if split == "train":
                # As in the published training file: one answer for every question.
                for question in paragraph["qas"]:
                    del question["answers"][1:]
        article["paragraphs"] = [p for p in article["paragraphs"] if p["qas"]]
    content["data"] = [article for article in articles if article["paragraphs"]]
    return len(kept), len(ids), json.dumps(content)


CONVERTERS = {"WNUT-17": _wnut, "SQuAD": _squad}
TASKS = (*READERS, *CONVERTERS)
