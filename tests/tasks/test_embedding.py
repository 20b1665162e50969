"""Sentence vectors: losses, false negatives, scales, ranks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.tasks import embedding
from filbert.tasks.base import (
    TaskOptions,
    task_to_dict,
)
from filbert.tasks.embedding import SentenceEmbedding
from filbert.tasks.rows import read_task_rows, row_of_value, row_texts

PAIRS = [
    ("the film was good", "a great film"),
    ("he was not bad", "she was very good"),
    ("run to the play", "he and she run"),
    ("it was bad", "a bad , bad play"),
    ("see the film !", "she was to see it"),
    ("not very great", "not good ?"),
]


def rows(*labels, pairs=PAIRS) -> list[Row]:
    given = labels or [None] * len(pairs)
    return [
        Row({"text": a, "text_pair": b} | ({} if y is None else {"label": y}), "train.csv", i + 2)
        for i, ((a, b), y) in enumerate(zip(pairs, given, strict=False))
    ]


def texts(*names: str) -> list[Example]:
    """An example per letter, two a row; equal letters are equal texts."""
    return [
        Example(i // 2, np.array([ord(name)], np.int32), np.zeros(1, np.uint8), 1)
        for i, name in enumerate(names)
    ]


def cosine_task(*labels) -> SentenceEmbedding:
    return SentenceEmbedding(loss_kind="cosine").fit(rows(*labels))


def loss_of(task: SentenceEmbedding, vectors: torch.Tensor, names: str) -> torch.Tensor:
    return task.loss(vectors, task.targets(texts(*names)))


# Losses


def test_both_losses_are_sums_and_count_rows():
    torch.manual_seed(0)
    vectors = torch.randn(6, 4)
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    cosines = unit[::2] @ unit[1::2].T
    task = SentenceEmbedding(scale=7.0)
    by_hand = -torch.log_softmax(7.0 * cosines, -1).diagonal().sum()
    torch.testing.assert_close(loss_of(task, vectors, "abcdef"), by_hand)
    assert task.count(task.targets(texts(*"abcdef"))) == 3
    task = SentenceEmbedding(loss_kind="cosine", score_max=1.0)
    scored = [
        Example(e.row, e.input_ids, e.token_type_ids, 1, 0.25 * e.row) for e in texts(*"abcdef")
    ]
    targets = task.targets(scored)
    assert targets.values.dtype == torch.float32 and targets.groups == (2, 2, 2)
    wanted = torch.tensor([0.0, 0.25, 0.5])
    torch.testing.assert_close(
        task.loss(vectors, targets), ((cosines.diagonal() - wanted) ** 2).sum()
    )
    assert task.count(targets) == 3


@pytest.mark.parametrize(
    "names",
    ["abcbde", "abacde", "abcade", "abbcde"],
    ids=["same pair", "same text", "its pair is my text", "its text is my pair"],
)
def test_rows_that_share_a_text_are_no_negatives_of_each_other(names):
    torch.manual_seed(1)
    vectors = torch.randn(6, 8)
    logits = 20 * torch.nn.functional.cosine_similarity(vectors[::2, None], vectors[None, 1::2], 2)
    logits[0, 1] = logits[1, 0] = -math.inf
    by_hand = -torch.log_softmax(logits, -1).diagonal().sum()
    torch.testing.assert_close(loss_of(SentenceEmbedding(), vectors, names), by_hand)
    assert not torch.isclose(loss_of(SentenceEmbedding(), vectors, "abcdef"), by_hand)


def test_autocast_does_not_round_the_cosines():
    torch.manual_seed(2)
    vectors = torch.randn(8, 16)
    exact = loss_of(SentenceEmbedding(), vectors, "abcdefgh")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss_of(SentenceEmbedding(), vectors, "abcdefgh"), exact)


# Labels


@pytest.mark.parametrize(
    ("labels", "score_max"),
    [
        ([0, 0.5, 1], 1.0),
        ([-1, 0.2], 1.0),
        (["0", "3.25"], 5.0),
        ([0, 5], 5.0),
        ([1, 10], 10.0),
        ([0, 0], 1.0),
    ],
)
def test_the_scale_of_the_labels_is_found_kept_and_divided_by(labels, score_max, tiny):
    task = cosine_task(*labels)
    assert task.score_max == score_max and task_to_dict(task)["score_max"] == score_max
    given = rows(*labels)[: len(labels)]
    examples = task.examples(given, tiny, max_length=32, with_targets=True)
    found = task.targets(examples).values.numpy()
    np.testing.assert_allclose(found, np.array(labels, np.float32) / score_max)


@pytest.mark.parametrize("label", ["close", math.nan, "inf", [1], True, "1_0", 10**400])
def test_a_label_that_is_no_number_is_refused_with_file_and_line(label):
    with pytest.raises(InputError, match=r"train.csv:3: label .* is not a number"):
        cosine_task(1, label)


def test_a_missing_label_is_refused_for_cosines_only():
    with pytest.raises(InputError, match=r"train.csv:3: no label"):
        cosine_task(1, "")
    assert SentenceEmbedding().gold(rows()[0]) is None


def test_pairs_of_other_meaning_are_refused_by_the_contrastive_loss():
    assert SentenceEmbedding().fit(rows(1, "1", None)) == SentenceEmbedding()
    with pytest.raises(InputError, match=r"train.csv:3: label 0\. .*--loss cosine"):
        SentenceEmbedding().fit(rows(1, 0))


@pytest.mark.parametrize("pair", [None, ""])
@pytest.mark.parametrize("loss", ("contrastive", "cosine"))
def test_a_training_row_without_a_second_text_is_refused(pair, loss, tiny):
    row = Row({"text": "good", "text_pair": pair, "label": 1}, "train.csv", 4)
    with pytest.raises(InputError, match=r"train.csv:4: no second text"):
        SentenceEmbedding(loss_kind=loss).fit([row])
    with pytest.raises(InputError, match=r"train.csv:4: no second text"):
        SentenceEmbedding(loss_kind=loss).examples([row], tiny, max_length=9, with_targets=True)


def test_the_doctor_hears_of_pairs_that_teach_nothing():
    same = rows(1, pairs=[("good", "good")])
    task = SentenceEmbedding()
    (finding,) = task.spec.row_format.findings(task, same, None, 128)
    assert finding.kind == "identical_pair"


def test_rows_to_predict_may_be_single_texts_and_rows_to_learn_may_not(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text\ngood\n", encoding="utf-8")
    row = next(iter(read_task_rows(SentenceEmbedding(), path, ColumnNames(), labelled=False)))
    assert row_texts(SentenceEmbedding(), row) == ["good"]
    with pytest.raises(InputError, match="text_pair"):
        next(iter(read_task_rows(SentenceEmbedding(), path, ColumnNames())))


# Prediction


def predict(task: SentenceEmbedding, given: list[Row], tokenizer, vectors) -> list[dict]:
    examples = task.examples(given, tokenizer, max_length=8, with_targets=False)
    return task.decode([torch.tensor(v, dtype=torch.float32) for v in vectors], examples)


def test_a_pair_gives_its_cosine_and_a_single_text_its_vector(tiny):
    given = [
        row_of_value(SentenceEmbedding(), "good", 0),
        row_of_value(SentenceEmbedding(), ("the film", "bad"), 1),
    ]
    found = predict(SentenceEmbedding(loss_kind="cosine"), given, tiny, [[3, 4], [1, 0], [1, 1]])
    assert found[0] == {"embedding": [3.0, 4.0], "truncated": False, "num_tokens": 3}
    assert found[1] == {"value": pytest.approx(0.5**0.5), "truncated": False, "num_tokens": 7}
    json.dumps(found)


def test_each_text_is_ranked_among_the_second_texts_of_its_pool(tiny):
    corners = [[1, 0], [1, 0.1], [0, 1], [1, 0.2], [-1, 0], [-1, -0.3]]
    found = predict(SentenceEmbedding(), rows(pairs=PAIRS[:3]), tiny, corners)
    assert [(p["rank"], p["pool_size"]) for p in found] == [(1, 3), (1, 3), (1, 3)]
    corners[0], corners[2] = corners[2], corners[0]
    found = predict(SentenceEmbedding(), rows(pairs=PAIRS[:3]), tiny, corners)
    assert [p["rank"] for p in found] == [2, 2, 1]
    figures = SentenceEmbedding().metrics([None] * 3, found)
    assert figures["accuracy"] == pytest.approx(1 / 3)
    assert figures["mrr"] == pytest.approx(2 / 3)
    assert figures["pool_size"] == 3 and figures["spearman"] is None


def test_equal_texts_are_no_rivals_in_the_ranks(tiny):
    pairs = [PAIRS[0], ("he was bad", PAIRS[0][1]), PAIRS[2]]
    found = predict(SentenceEmbedding(), rows(pairs=pairs), tiny, [[1, 0]] * 4 + [[0, 1], [-1, 0]])
    assert [p["rank"] for p in found] == [1, 1, 3]


def test_pools_are_cut_by_rows_and_blocks_change_nothing(tiny, monkeypatch):
    torch.manual_seed(5)
    vectors = torch.randn(12, 5).tolist()
    whole = [p["rank"] for p in predict(SentenceEmbedding(), rows(), tiny, vectors)]
    monkeypatch.setattr("filbert.metrics.similarity.BLOCK_ROWS", 2)
    assert [p["rank"] for p in predict(SentenceEmbedding(), rows(), tiny, vectors)] == whole
    monkeypatch.setattr(embedding, "POOL_ROWS", 4)
    cut = predict(SentenceEmbedding(), rows(), tiny, vectors)
    assert [p["pool_size"] for p in cut] == [4] * 4 + [2] * 2
    halves = (rows()[:4], vectors[:8]), (rows()[4:], vectors[8:])
    assert cut == [p for given, v in halves for p in predict(SentenceEmbedding(), given, tiny, v)]


def test_correlations_are_those_of_scipy_with_labels_as_they_stand():
    draw = np.random.default_rng(0)
    gold = draw.integers(0, 6, 50).astype(float)
    values = gold / 5 + draw.normal(0, 0.3, 50)
    task = SentenceEmbedding(loss_kind="cosine", score_max=5.0)
    figures = task.metrics(list(gold), [{"value": float(v)} for v in values])
    assert figures["spearman"] == pytest.approx(stats.spearmanr(gold, values)[0], abs=1e-12)
    assert figures["pearson"] == pytest.approx(stats.pearsonr(gold, values)[0], abs=1e-12)
    assert figures["mse"] == pytest.approx(np.mean((values - gold / 5) ** 2))
    assert task.metrics([1.0, 1.0], [{"value": 0.1}, {"value": 0.2}])["spearman"] is None


# The value itself


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "triplet"}, "loss"),
        ({"pooling": "none"}, "pooling"),
        ({"on_overflow": "window"}, "on-overflow"),
        ({"scale": 0.0}, "scale"),
        ({"scale": math.nan}, "scale"),
    ],
)
def test_an_option_that_sentence_vectors_do_not_have_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        SentenceEmbedding.from_options(TaskOptions(**options), ColumnNames())
