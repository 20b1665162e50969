import pytest

from filbert.metrics.entities import entities_of, entity_metrics


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O B-a I-a O B-b", [("a", 1, 3), ("b", 4, 5)]),
        ("B-a B-a I-a", [("a", 0, 1), ("a", 1, 3)]),
        ("I-a I-a I-b O I-b", [("a", 0, 2), ("b", 2, 3), ("b", 4, 5)]),  # conlleval's reading
        ("B-a I-b", [("a", 0, 1), ("b", 1, 2)]),
        ("S-a B-a I-a E-a E-a", [("a", 0, 1), ("a", 1, 4), ("a", 4, 5)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities_begin_and_end_where_conlleval_says(tags, entities):
    assert entities_of(tags.split()) == entities


def test_the_figures_are_those_computed_by_hand():
    gold = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    predicted = [["B-a", "O", "O", "B-b"], ["B-a", "B-a"]]
    found = entity_metrics(gold, predicted)
    # Of 3 entities, (b, 3, 4) and (a, 1, 2) are found, with 4 given.
    assert (found["precision"], found["recall"]) == (2 / 4, 2 / 3)
    assert found["f1"] == pytest.approx(4 / 7, abs=1e-15)
    assert found["accuracy"] == 4 / 6
    assert found["per_label"]["a"] == {"precision": 1 / 3, "recall": 0.5, "f1": 0.4, "support": 2}
    assert found["per_label"]["b"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1}


def test_an_entity_does_not_reach_into_the_next_sentence():
    assert entity_metrics([["B-a"], ["I-a"]], [["B-a"], ["B-a"]])["f1"] == 1.0


def test_without_entities_the_figures_are_zero_and_without_words_there_is_no_accuracy():
    assert entity_metrics([["O"]], [["O"]]) == {
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        "accuracy": 1.0,
        "per_label": {},
    }
    assert entity_metrics([], [])["accuracy"] is None
