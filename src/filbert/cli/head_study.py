"""The work of `filbert heads`: read, look, put together, write."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from filbert.data.columns import ColumnNames
from filbert.data.streams import kind_of
from filbert.data.texts import cleaned, read_texts, text_of
from filbert.errors import InputError
from filbert.files import replace_folder
from filbert.inspection.agreement import Agreement, AgreementStudy
from filbert.inspection.head_coreference import CoreferenceStudy, documents_of, mentions_of
from filbert.inspection.head_facts import (
    agreement_facts,
    coreference_facts,
    head_rows,
    relation_facts,
    rounded,
)
from filbert.inspection.head_relations import relation_counts, study_relations
from filbert.inspection.heads import NUMBERS, HeadNumbers, maps_of, study
from filbert.inspection.maps import numbers_of
from filbert.inspection.treebank import Tree, read_treebank
from filbert.inspection.word_numbers import with_words
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.probe.dependency import probe_sentences, study_dependencies
from filbert.report import canvas, head_plots
from filbert.samples import path as sample
from filbert.shrink.run import study_heads
from filbert.text.encoding import Encoding

log = logging.getLogger(__name__)

# Without --max-length: all maps of 8,192 tokens would be 71 GB.
LONGEST = 512
CLUSTERS = 6
SAMPLE = "sample"
SAMPLE_FILE = "sentences.conllu"


@dataclass(frozen=True, kw_only=True)
class HeadJob:
    """What the command line asks for; see `filbert heads --help`."""

    model: str
    file: str | None
    data: str | None
    treebank: str | None
    probe: str | None
    limit: int
    clusters: int | None
    min_count: int
    subtypes: bool
    max_length: int | None
    names: ColumnNames


@dataclass(frozen=True)
class _Sentences:
    """A treebank: all of its trees, and those that the model reads whole, with their tokens."""

    name: str
    everything: list[Tree]
    whole: list[Tree]
    encodings: list[Encoding]


@dataclass(frozen=True)
class _Grammar:
    """The sentences that heads are judged on, and those that classifiers learn from."""

    judged: _Sentences
    taught: _Sentences | None


def run_job(job: HeadJob, out: Path | None) -> dict[str, Any]:
    """Look at the heads, and write the folder where one is asked for.

    Returns:
        The content of heads.json.

    Raises:
        ConfigError: the model has no heads to look at, or no task for `data`.
        InputError, FormatError: the model or a file is wrong.
    """
    predictor = Predictor.load(job.model, max_length=job.max_length, graphs=False)
    numbers_of(predictor.model)
    if job.max_length is None:
        predictor.max_length = min(predictor.max_length, LONGEST)
    model = predictor.model
    assert isinstance(model, Model)
    agreement = AgreementStudy(model)
    clusters = job.clusters
    if clusters is None:
        clusters = min(CLUSTERS, len(agreement.heads))
    agreement.check(clusters)
    # All files are read, and all sentences cut, before anything is computed that takes long.
    grammar = None if job.treebank is None else _grammar(job, predictor)
    source, encodings = _texts(job, predictor, grammar)
    worth = None
    if job.data is not None:
        predictor.known_task()
        worth = study_heads(job.model, job.data, job.names, max_length=predictor.max_length)
    found = study(model, predictor.tokenizer, encodings, [agreement.add, _progress(len(encodings))])
    alike = agreement.result(clusters)
    facts: dict[str, Any] = {
        "model": job.model,
        "texts": {
            "source": source,
            "texts": found.num_texts,
            "tokens": found.num_tokens,
            "truncated": sum(encoding.truncated for encoding in encodings),
            "max_length": predictor.max_length,
        },
        "numbers": {number.name: number.meaning for number in NUMBERS},
        "counts": found.counts,
        "heads": head_rows(found, alike, worth),
        "agreement": {"texts": agreement.num_texts, **agreement_facts(alike)},
    }
    if worth is not None:
        facts["worth"] = {name: worth[name] for name in ("data", "rows", "metric", "value")}
    if grammar is not None:
        facts["treebank"] = _known(job, predictor, grammar)
    if out is not None:
        _write(out, facts, found, alike)
    return facts


def _progress(total: int) -> Any:
    """Says now and then how far it is."""
    count = 0

    def heard(maps: Tensor, encoding: Encoding) -> None:
        nonlocal count
        count += 1
        if count % 200 == 0 and count < total:
            log.info("looked at %d of %d texts", count, total)

    return heard


def _trees(name: str, limit: int) -> list[Tree]:
    return list(islice(read_treebank(_place(name)), limit))


def _place(name: str) -> str:
    return str(sample(SAMPLE_FILE)) if name == SAMPLE else name


def _shown(name: str) -> str:
    return SAMPLE_FILE if name == SAMPLE else Path(name).name


def _texts(
    job: HeadJob, predictor: Predictor, grammar: _Grammar | None
) -> tuple[str, list[Encoding]]:
    """What the texts are called, and their tokens with offsets, cut to the model's length."""
    texts: list[Any]
    if job.file is None and grammar is not None:
        judged = grammar.judged
        name, texts = judged.name, [tree.text for tree in judged.everything]
    elif job.file is None or kind_of(job.file)[0] == ".conllu":
        name = _shown(job.file or SAMPLE)
        texts = [tree.text for tree in _trees(job.file or SAMPLE, job.limit)]
    else:
        name = "stdin" if job.file == "-" else Path(job.file).name
        clean = getattr(predictor.task, "clean", None)
        rows = islice(read_texts(job.file, job.names), job.limit)
        texts = [cleaned(text_of(row), clean) for row in rows]
    if not texts:
        raise InputError(f"{name} holds no text.")
    encoded = predictor.tokenizer.encode(texts, max_length=predictor.max_length, with_offsets=True)
    both = zip(encoded, texts, strict=True)
    return name, [with_words(one, [text] if isinstance(text, str) else text) for one, text in both]


def _sentences(predictor: Predictor, name: str, limit: int) -> _Sentences:
    """What the model can read of a treebank; what it cannot is told at once.

    Raises:
        InputError: it can read no sentence, or the file is broken.
    """
    trees = _trees(name, limit)
    texts = [tree.text for tree in trees]
    length = predictor.max_length
    encoded = predictor.tokenizer.encode(texts, max_length=length, with_offsets=True)
    kept = [i for i, encoding in enumerate(encoded) if not encoding.truncated]
    if not kept:
        raise InputError(
            f"{name}: every sentence has more than the {length} tokens that this model reads at "
            "once."
        )
    if left := len(trees) - len(kept):
        log.info(
            "%s: %d of %d sentences have more than the %d tokens that the model reads, and are "
            "left out",
            _shown(name), left, len(trees), length,
        )  # fmt: skip
    whole = [trees[i] for i in kept]
    return _Sentences(_shown(name), trees, whole, [encoded[i] for i in kept])


def _grammar(job: HeadJob, predictor: Predictor) -> _Grammar:
    """What the treebanks of a job hold.

    Raises:
        InputError: a file is broken, its sentences are too long, or no relation is frequent enough.
    """
    assert job.treebank is not None
    judged = _sentences(predictor, job.treebank, job.limit)
    counts = relation_counts(judged.whole, judged.encodings, subtypes=job.subtypes)
    most = max(counts.values(), default=0)
    if most < job.min_count:
        raise InputError(
            f"{job.treebank}: no relation has {job.min_count} words, all together have {most}. "
            "Give more sentences, or a smaller --min-count."
        )
    for document in documents_of(judged.everything):
        mentions_of(document)  # which refuses marks that do not go together
    taught = None if job.probe is None else _sentences(predictor, job.probe, job.limit)
    return _Grammar(judged, taught)


def _known(job: HeadJob, predictor: Predictor, grammar: _Grammar) -> dict[str, Any]:
    """What heads know of some trees."""
    model = predictor.model
    assert isinstance(model, Model)
    judged, taught = grammar.judged, grammar.taught
    whole, encodings = judged.whole, judged.encodings
    relations = study_relations(
        model,
        whole,
        encodings,
        maps_of(model, encodings),
        subtypes=job.subtypes,
        min_count=job.min_count,
    )
    facts: dict[str, Any] = {
        "source": judged.name,
        "sentences": len(whole),
        "left_out": len(judged.everything) - len(whole),
        "relations": relation_facts(relations),
    }
    if any("(" in mark for tree in judged.everything for mark in tree.entities):
        coreference = CoreferenceStudy(model)
        documents = documents_of(judged.everything)
        encoded = predictor.tokenizer.encode(
            [document.text for document in documents],
            max_length=predictor.max_length,
            with_offsets=True,
        )
        for document, encoding, maps in zip(
            documents, encoded, maps_of(model, encoded), strict=True
        ):
            coreference.add(maps, encoding, document)
        if (found := coreference.result()) is not None:
            facts["coreference"] = coreference_facts(found)
    if taught is not None:
        scores = study_dependencies(
            probe_sentences(model, taught.whole, taught.encodings),
            probe_sentences(model, whole, encodings),
        )
        facts["probes"] = {
            "source": taught.name,
            "sentences": len(taught.whole),
            "scores": [
                {name: rounded(value) if name != "kind" else value for name, value in row.items()}
                for row in map(asdict, scores)
            ],
        }
    return facts


def _write(out: Path, facts: dict[str, Any], found: HeadNumbers, alike: Agreement) -> None:
    """heads.json, heads.tsv and the plots."""
    with replace_folder(out, marker="heads.json") as folder:
        (folder / "heads.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        with (folder / "heads.tsv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(facts["heads"][0]), delimiter="\t")
            table.writeheader()
            table.writerows(facts["heads"])
        canvas.save(head_plots.number_grids(list(_panels(facts, found))), folder / "numbers.png")
        canvas.save(head_plots.agreement_map(alike), folder / "agreement.png")
        if "treebank" in facts:
            relations = facts["treebank"]["relations"]
            canvas.save(head_plots.relation_bars(relations), folder / "relations.png")


def _panels(
    facts: dict[str, Any], found: HeadNumbers
) -> Iterator[tuple[str, str, np.ndarray, str]]:
    for number in NUMBERS:
        values = found.values[number.name]
        if not np.isnan(values).all():
            yield number.title, number.meaning, values, "share" if number.is_share else "size"
    for name in ("importance", "lost") if "worth" in facts else ():
        values = np.full(found.values["entropy"].shape, np.nan)
        for row in facts["heads"]:
            if row[name] is not None:
                values[row["layer"], row["head"]] = row[name]
        if name == "importance":
            yield name, "size of the gradient at its mask", values, "size"
        else:
            yield name, f"of {facts['worth']['metric']}", values, "change"
