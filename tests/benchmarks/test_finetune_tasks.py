"""benchmarks/against/finetune_tasks.py: its data, its judge, its peer's spans and its table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "against"
# Rows of train and dev, as the README files of the shared data state them.
COUNTS = {
    "SST-2": (67_349, 872),
    "MRPC": (3_668, 408),
    "STS-B": (5_749, 1_500),
    "RTE": (2_490, 277),
    "CoLA": (8_551, 1_043),
    "WNUT-17": (3_394, 1_009),
    "CODAH": (1_665, 556),
    "SQuAD": (8_583, 1_987),
}


def converted(load, task, data, out, rows=None):
    return load("task_data").convert(task, data, out, max_train=rows, max_dev=rows)


def rows_in(load, task, path):
    read = {"WNUT-17": "read_conll", "SQuAD": "read_squad"}.get(task, "read_json_lines")
    return getattr(load("task_data"), read)(path)


@pytest.mark.parametrize("task", COUNTS)
def test_a_converted_task_has_the_published_number_of_rows(load, shared_data, tmp_path, task):
    files = converted(load, task, shared_data, tmp_path)
    found = (files.train, files.dev)
    assert tuple(len(rows_in(load, task, path)) for path in found) == COUNTS[task]
    assert files.rows == files.available == dict(zip(("train", "dev"), COUNTS[task], strict=True))


@pytest.mark.parametrize("task", COUNTS)
def test_a_capped_task_has_rows_of_the_whole_one_in_its_order(load, shared_data, tmp_path, task):
    few = converted(load, task, shared_data, tmp_path, 50)
    whole = converted(load, task, shared_data, tmp_path)
    assert few.rows == {"train": 50, "dev": 50}
    assert few.available == whole.rows
    for one, all_of_it in ((few.train, whole.train), (few.dev, whole.dev)):
        rest = iter(rows_in(load, task, all_of_it))
        kept = rows_in(load, task, one)
        assert len(kept) == 50
        assert all(any(row == other for other in rest) for row in kept)


@pytest.mark.parametrize("task", COUNTS)
def test_filbert_reads_every_converted_row(load, shared_data, tmp_path, task):
    from filbert.data.columns import ColumnNames
    from filbert.tasks.base import TaskOptions, task_class

    files = converted(load, task, shared_data, tmp_path, 200)
    kind = task_class(load("task_scores").KINDS[task])
    ours = kind.from_options(TaskOptions(), ColumnNames())
    for path in (files.train, files.dev):
        assert len(list(ours.read(path, ColumnNames()))) == 200


def test_the_labels_of_the_whole_files_are_counted_as_published(load, shared_data, tmp_path):
    def labels(task):
        files = converted(load, task, shared_data, tmp_path)
        return [row["label"] for row in rows_in(load, task, files.train)]

    assert labels("SST-2").count("1") == 37_569
    assert labels("MRPC").count("1") == 2_474
    assert labels("CoLA").count("1") == 6_023
    assert labels("RTE").count("entailment") == 1_249
    assert np.mean(labels("STS-B")) == pytest.approx(2.701, abs=5e-4)  # as printed: three digits


def test_the_articles_of_squad_stand_on_one_side_only(load, shared_data, tmp_path):
    files = converted(load, "SQuAD", shared_data, tmp_path)
    titles = [
        {article["title"] for article in json.loads(path.read_text(encoding="utf-8"))["data"]}
        for path in (files.train, files.dev)
    ]
    assert [len(found) for found in titles] == [38, 10]
    assert not titles[0] & titles[1]
    assert {len(row["answers"]) for row in rows_in(load, "SQuAD", files.train)} == {1}


def test_a_conversion_that_was_broken_off_is_made_again(load, shared_data, tmp_path):
    files = converted(load, "RTE", shared_data, tmp_path, 20)
    (files.train.parent / "counts.json").unlink()
    files.train.write_text("", encoding="utf-8")
    again = converted(load, "RTE", shared_data, tmp_path, 20)
    assert len(rows_in(load, "RTE", again.train)) == 20


@pytest.mark.parametrize("task", COUNTS)
def test_the_wanted_answers_score_full_marks(load, shared_data, tmp_path, task):
    scores = load("task_scores")
    gold = scores.dev_gold(task, converted(load, task, shared_data, tmp_path, 200).dev)
    perfect = [answers[0] for answers in gold] if task == "SQuAD" else gold
    # Correlations are computed in floating point.
    assert scores.score(task, gold, perfect) == pytest.approx(
        dict.fromkeys(scores.FIGURES[task], 100.0)
    )
    with pytest.raises(ValueError, match="199 predictions for 200 dev rows"):
        scores.score(task, gold, perfect[:-1])


def test_a_sentence_with_a_tag_too_few_is_not_scored(load):
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        load("task_scores").score("WNUT-17", [["O", "B-person"]], [["O"]])


def test_a_window_that_lacks_part_of_an_answer_points_at_its_first_token(load):
    peer = load("peer_tasks")
    offsets = [None, None, (0, 3), (4, 8), (9, 12), None]
    assert peer._token_span(offsets, 4, 12) == (3, 4)
    assert peer._token_span(offsets, 5, 7) == (3, 3)
    assert peer._token_span(offsets, 9, 20) == (0, 0)
    assert peer._token_span([None, (4, 8), (9, 12)], 0, 12) == (0, 0)


def test_the_best_span_lies_in_the_context_and_not_in_the_padding(load):
    offsets = [None, (0, 3), (4, 8)]
    starts, ends = np.array([9.0, 1.0, 2.0, 50.0]), np.array([9.0, 3.0, 1.0, 50.0])
    # 2 to 1 would score most, but an answer does not end before it starts.
    assert load("peer_tasks")._best_span(starts, ends, offsets) == (4.0, (0, 3))


def record(task, side, seed, seconds, value, others=0.0):
    return {
        "task": task,
        "side": side,
        "seed": seed,
        "rows": {"train": 10, "dev": 5},
        "available": {"train": 20, "dev": 5},
        "settings": {"lr": 5e-5, "epochs": 3},
        "scores": {"accuracy": value},
        "training_seconds": seconds,
        "precision": "bf16" if side == "filbert" else "float32",
        "others": others,
    }


def test_the_table_gives_ratios_their_geometric_mean_and_what_to_beware_of(load):
    records = [
        record("RTE", "filbert", 0, 1.0, 60.0),
        record("RTE", "transformers", 0, 2.0, 61.0),
        record("RTE", "filbert", 1, 1.0, 62.0),
        record("RTE", "transformers", 1, 2.0, 61.0),
        record("SST-2", "filbert", 0, 1.0, 50.0, others=0.9),
        record("SST-2", "transformers", 0, 8.0, 80.0),
        record("SST-2", "filbert", 1, 1.0, 50.0),  # its peer has not run yet
    ]
    table = load("task_table").markdown(records, {"RTE": ("accuracy",), "SST-2": ("accuracy",)})
    assert "| RTE | 10 (20) | 5 | 5e-05, 3 | 2 | accuracy | 61.0 ± 1.4 | 61.0 ± 0.0 |" in table
    assert "| 1.0 | 2.0 | 2.00 (2.00 to 2.00) |" in table
    assert "Geometric mean of the ratios over 2 tasks: 4.00." in table
    assert "by more than the spread: SST-2." in table
    assert "other programs were at work: SST-2 filbert seed 0." in table


def test_a_result_that_is_there_is_not_made_again(load, shared_data, tmp_path, monkeypatch):
    bench = load("finetune_tasks")
    made = []

    def pretend(request, log):
        made.append((request["side"], request["seed"]))
        if request["side"] == "transformers" and len(made) == 2:
            return None  # the first time, the peer fails
        return {
            "scores": {"accuracy": 50.0},
            "training_seconds": 1.0,
            "precision": "float32",
            "others": 0.0,
        }

    monkeypatch.setattr(bench, "run_alone", pretend)
    words = ["x", "--data", str(shared_data), "--tasks", "RTE", "--max-rows", "20"]
    monkeypatch.setattr(sys, "argv", [*words, "--seeds", "2"])
    given = bench.parse()
    records, failures = bench.compare(given, tmp_path, None)
    assert (len(records), failures) == (3, 1)
    # The sides take turns at going first.
    assert made == [
        ("filbert", 0),
        ("transformers", 0),
        ("transformers", 1),
        ("filbert", 1),
    ]
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(
            '{"task": "RTE", "rows": {"train": 20}'
        )  # a process that was killed while writing
    records, failures = bench.compare(given, tmp_path, None)
    assert (len(records), failures) == (4, 0)
    assert made[4:] == [("transformers", 0)]
    assert len(load("runs").read_results(tmp_path / "results.jsonl")) == 4
