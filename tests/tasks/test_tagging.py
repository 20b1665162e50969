from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes

from filbert.batch import split
from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, collate
from filbert.data.records import Row
from filbert.errors import ConfigError, InputError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.tasks.base import TaskOptions, task_class, task_from_dict, task_to_dict
from filbert.tasks.rows import read_task_rows, row_labels, row_of_value, row_texts
from filbert.tasks.tagging import SENTENCES, Tagging

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
NAMES = ColumnNames()


def _row(words: list[str], tags: str | None = None, line: int = 1) -> Row:
    values: dict[str, Any] = {"tokens": words}
    if tags is not None:
        values["tags"] = tags.split()
    return Row(values, "f.jsonl", line)


def _outputs(task: Tagging, examples: list[Example], tags: list[list[str]]) -> list[torch.Tensor]:
    """What a model would say that gives each word its tag on its own first token, else nonsense."""
    assert task.labels is not None
    outputs = []
    for example in examples:
        logits = torch.full((len(example.input_ids), len(task.labels)), 50.0)
        for word, row in zip(example.source.words, example.source.rows, strict=True):
            logits[row] = 0.0
            logits[row, task.labels.index(tags[example.row][word])] = 2.0
        outputs.append(logits)
    return outputs


# Labels


def test_labels_are_o_and_then_both_tags_of_every_type_by_name():
    rows = [_row(["v", "w"], "B-b I-b"), _row(["v"], "B-a")]
    task = Tagging().fit(rows)
    assert task.labels == LABELS
    assert task.spec.num_labels == 5
    assert task_from_dict(Tagging, task_to_dict(task)) == task
    assert task_class("tagging") is Tagging


def test_declared_labels_may_be_types_or_tags():
    task = Tagging.from_options(TaskOptions(labels=("a", "b"), repair_tags=True), NAMES)
    assert (task.labels, task.declared, task.repair_tags) == (LABELS, True, True)
    task = Tagging.from_options(TaskOptions(labels=("B-b", "O", "I-b")), NAMES)
    assert task.labels == ("B-b", "O", "I-b")
    assert task.fit([_row(["v"], "B-b")]) is task
    for wrong in (("B-a", "I-a"), ("a", "a"), ("O", "O"), ("O", "X-a"), ("",)):
        with pytest.raises(ConfigError, match="--labels"):
            Tagging.from_options(TaskOptions(labels=wrong), NAMES)


def test_a_type_that_is_not_among_the_labels_is_refused_with_its_line():
    row = Row({"tokens": ["v", "w"], "tags": ["O", "B-c"], "lines": [5, 6]}, "f.conll", 5)
    with pytest.raises(InputError, match=r"^f\.conll:6: tag 'B-c' is not one of"):
        Tagging(LABELS).gold(row)
    task = Tagging(("O", "B-a"), declared=True)
    with pytest.raises(InputError, match="tag 'I-a' is not one of"):
        task.gold(_row(["v", "w"], "B-a I-a"))


def test_rows_without_any_entity_teach_nothing():
    with pytest.raises(InputError, match="no entity at all"):
        Tagging().fit([_row(["v"], "O")])


# Rows


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("a film", "a film"),
        (["a", "film"], "a film"),
        ({"text": "a film"}, "a film"),
        ({"tokens": ["a", "film"], "id": 3}, "a film"),
    ],
)
def test_a_python_value_is_a_text_or_a_list_of_words(item, text):
    assert row_texts(Tagging(), row_of_value(Tagging(), item, 0)) == [text]


@pytest.mark.parametrize("item", [3, None, {"id": 3}, ["a", 3]])
def test_another_python_value_is_refused_with_its_number(item):
    with pytest.raises(InputError, match=r"Item 4|texts:5"):
        row_of_value(Tagging(), item, 4)


def test_wnut_has_the_published_entities(shared_data):
    found = {}
    for name in ("train", "dev"):
        rows = read_task_rows(Tagging(), shared_data / "wnut17" / f"{name}.conll.gz", NAMES)
        found[name] = Counter(label for row in rows for label in row_labels(Tagging(), row))
    assert found["train"] == {
        "person": 660,
        "location": 548,
        "group": 264,
        "corporation": 221,
        "creative-work": 140,
        "product": 142,
    }
    assert found["dev"] == {
        "person": 470,
        "location": 74,
        "group": 39,
        "corporation": 34,
        "creative-work": 105,
        "product": 114,
    }


# Training


def test_only_the_first_token_of_a_word_is_asked_and_every_word_once(tiny):
    rows = [
        _row(["greatly", "\u200b", "plays"], "B-a O B-b"),
        _row([]),
        _row(["the", "running"], "O I-b"),
    ]
    rows[1].values["tags"] = []
    task = Tagging(LABELS, repair_tags=True)
    examples = task.examples(rows, tiny, max_length=64, with_targets=True)
    assert [e.row for e in examples] == [0, 1, 2]
    targets = task.targets(examples)
    assert targets.at is not None
    assert (targets.values.dtype, targets.at.dtype) == (torch.int64, torch.int64)
    # [CLS] great ##ly play ##s [SEP], [CLS] [SEP], [CLS] the run [UNK]... [SEP]
    assert targets.at.tolist() == [1, 3, 9, 10]
    assert [LABELS[i] for i in targets.values] == ["B-a", "B-b", "O", "B-b"]
    assert task.count(targets) == 4
    logits = torch.zeros(4, 5)
    assert task.loss(logits, targets).item() == pytest.approx(4 * np.log(5), rel=1e-6)


def test_windows_of_a_long_sentence_teach_every_word_once_and_lose_nothing(tiny):
    words = ["playing", "the", "film"] * 50
    row = _row(words, " ".join(["B-a", "I-a", "O"] * 50))
    task = Tagging(LABELS)
    examples = task.examples([row], tiny, max_length=16, with_targets=True)
    assert len(examples) > 10
    assert all(len(e.input_ids) <= 16 and not e.truncated for e in examples)
    judged = [
        (int(w), int(v)) for e in examples for w, v in zip(e.source.words, e.target, strict=True)
    ]
    assert sorted(judged) == [(i, (1, 2, 0)[i % 3]) for i in range(150)]
    assert task.count(task.targets(examples)) == 150


# Prediction


def test_entities_lie_where_the_user_put_them(tiny):
    task = Tagging(LABELS)
    text = "The  GREAT, \u200bfílm   was playing!"
    rows = [row_of_value(task, text, 0), row_of_value(task, ["the great", "film", ""], 1)]
    examples = task.examples(rows, tiny, max_length=64, with_targets=False)
    wanted = [["O", "I-a", "O", "O", "B-b", "O", "I-b", "I-b"], ["B-a", "I-a", "O"]]
    first, second = task.decode(_outputs(task, examples, wanted), examples)
    assert first["tokens"] == ["The", "GREAT", ",", "\u200b", "fílm", "was", "playing", "!"]
    assert first["tags"] == ["O", "B-a", "O", "O", "B-b", "O", "B-b", "I-b"]
    places = [(e["label"], e["text"], text[e["start"] : e["end"]]) for e in first["entities"]]
    assert places == [("a", "GREAT", "GREAT"), ("b", "fílm", "fílm"), ("b", "playing!", "playing!")]
    sure = float(torch.softmax(torch.tensor([2.0, 0, 0, 0, 0]), -1)[0])
    assert [e["score"] for e in first["entities"]] == pytest.approx([sure] * 3)
    assert second["tags"] == ["B-a", "I-a", "O"]
    assert second["entities"][0]["text"] == "the great film"
    assert not first["truncated"]
    assert first["num_tokens"] == tiny.encode([text])[0].num_tokens


def test_a_score_is_the_mean_over_the_words_of_an_entity(tiny):
    task = Tagging(("O", "B-a", "I-a"))
    examples = task.examples([_row(["the", "film"])], tiny, max_length=9, with_targets=False)
    logits = torch.tensor([[0.0, 0, 0], [0, 3, 0], [0, 0, 1], [0, 0, 0]])
    found = task.decode([logits], examples)[0]["entities"]
    sure = torch.softmax(logits, -1)
    assert found[0]["score"] == pytest.approx(float((sure[1, 1] + sure[2, 2]) / 2), abs=1e-7)


def test_windows_and_company_do_not_change_what_a_model_with_weights_answers(tiny):
    torch.manual_seed(0)
    config = EncoderConfig.of(
        **sizes(vocab_size=tiny.vocab_size, layers=1, width=16, heads=2, inner=32, positions=64)
    )
    task = Tagging(LABELS)
    model = Model(
        Encoder(config), new_head(task.spec.head_kind, config, task.spec.num_labels)
    ).eval()
    words = ["the", "film", "was", "playing", "great"]
    rows = [_row(words * 40), _row(words), _row(["not", "good"])]

    def answer(rows: list[Row]) -> list[dict[str, Any]]:
        examples = task.examples(rows, tiny, max_length=64, with_targets=False)
        batch = collate(examples)
        with torch.inference_mode():
            return task.decode(split(model(batch), batch), examples)

    together = answer(rows)
    assert [len(p["tags"]) for p in together] == [200, 5, 2]
    for row, expected in zip(rows, together, strict=True):
        assert answer([row])[0]["tags"] == expected["tags"]


# Evaluation


def test_gold_tags_score_one_and_answers_may_come_as_entities():
    task = Tagging(LABELS)
    row = Row({"text": "one two six", "spans": [[0, 7, "a"]]}, "f.jsonl", 3)
    gold = task.gold(row)
    assert task.spec.row_format.gold_json(task.spec, gold) == ["B-a", "I-a", "O"]
    for prediction in (
        {"tags": ["B-a", "I-a", "O"]},
        {"entities": [{"label": "a", "start": 0, "end": 7, "text": "one two", "score": 0.5}]},
        {"tags": ["B-a", "E-a", "O"]},
    ):
        assert task.metrics([gold], [prediction])["f1"] == 1.0
    assert set(task.spec.metric_names) < set(task.metrics([gold], [{"tags": ["O"] * 3}]))


def test_a_prediction_with_too_few_tags_is_refused_with_both_counts():
    task = Tagging(LABELS)
    gold = task.gold(_row(["v", "w"], "O O", line=9))
    with pytest.raises(InputError, match=r"^f\.jsonl:9: 2 words, but its prediction has 1 tags"):
        task.metrics([gold], [{"tags": ["O"]}])


# The data doctor


def test_the_doctor_names_broken_tags_and_words_that_vanish(tiny):
    rows = [
        Row(
            {"tokens": ["a", "\u200b", "b"], "tags": ["I-a", "O", "O"], "lines": [3, 4, 5]}, "f", 3
        ),
        Row({"text": "one", "spans": [[0, 1], [1, 2]]}, "g", 1),
    ]
    task = Tagging()
    found = [(f.level, f.kind, f.where) for f in SENTENCES.findings(task, rows, tiny, 64)]
    assert found == [
        ("warning", "broken_bio", "f:3"),
        ("warning", "widened_span", "g:1, characters 0 to 1"),
        ("warning", "lost_span", "g:1, characters 1 to 2"),
        ("note", "word_without_token", "f:4"),
    ]
    assert [f.kind for f in SENTENCES.findings(task, rows, None, 64)] == [
        "broken_bio",
        "widened_span",
        "lost_span",
    ]
