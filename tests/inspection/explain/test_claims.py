"""The number of a claim is what the model answers, for every task."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from filbert.data.spans import null_logits
from filbert.errors import ConfigError, InputError
from filbert.inspection.attributions import METHODS, Explanation, explain
from filbert.inspection.claim_kinds import claim_of
from filbert.inspection.claims import Claim, evaluated, log_odds, new_claim, words_of
from filbert.inspection.coloured import parts_of
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.speed.execution import run_model
from filbert.tasks.classification import Classification
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging
from filbert.text.clean import Cleaning
from filbert.text.encoding import Encoding

Draw = Callable[..., Predictor]
TEXT = "The film was not very good, and he played!"
PAIR = ("the film was good", "a great play, it was")
TAGS = Tagging(labels=("O", "B-film", "I-film"))


def number_of(claim: Claim, predictor: Predictor) -> float:
    model = predictor.model
    assert isinstance(model, Model)
    return float(claim.number(evaluated(claim, model)[None])[0])


def odds(share: float) -> float:
    return math.log(share / (1 - share))


@pytest.fixture(scope="module")
def tagger(drawn: Draw) -> Predictor:
    return drawn("tokens", TAGS, max_length=16)


@pytest.fixture(scope="module")
def answerer(drawn: Draw) -> Predictor:
    return drawn("spans", SpanQA(stride=5), max_length=16)


@pytest.fixture(scope="module")
def filler(drawn: Draw) -> Predictor:
    return drawn("masked_lm")


@pytest.mark.parametrize("item", [TEXT, PAIR])
@pytest.mark.parametrize(
    "task",
    [
        Classification(labels=("neg", "pos"), temperature=1.7, thresholds=(0.9,)),
        Classification(labels=("a", "b", "c"), temperature=0.4),
        Classification(labels=("a", "b", "c"), multilabel=True, temperature=2.0),
        Classification(labels=("neg", "pos"), clean=Cleaning.parse("lowercase")),
    ],
    ids=["two", "three", "multilabel", "cleaned"],
)
def test_a_labels_number_is_the_log_odds_of_its_probability(
    drawn: Draw, task: Classification, item: Any
) -> None:
    predictor = drawn("sequence", task)
    (answer,) = predictor.predict([item])
    for label in task.labels or ():
        claim = claim_of(predictor, item, target=label)
        # Scores are rounded to float32 on the way.
        assert number_of(claim, predictor) == pytest.approx(odds(answer["scores"][label]), abs=1e-5)
        assert f"{answer['scores'][label]:.3f}" in claim.says
    best = max(answer["scores"], key=answer["scores"].get)
    assert claim_of(predictor, item).target == answer.get("label", best)


def test_a_regressions_number_is_its_value(drawn: Draw) -> None:
    predictor = drawn("sequence", Regression())
    (answer,) = predictor.predict([PAIR])
    claim = claim_of(predictor, PAIR)
    assert number_of(claim, predictor) == pytest.approx(answer["value"], abs=1e-6)
    assert claim.unit == "value"


def test_a_tags_number_is_its_log_odds_at_the_words_first_token(tagger: Predictor) -> None:
    words = ["the", "film", "was", "played", "badly", "!"]
    row = TAGS.row(words, 0)
    examples = tagger.row_examples([row])
    (logits,) = run_model(tagger.model, examples, max_tokens=99, precision=tagger.precision)
    for index, place in enumerate(examples[0].source.rows.tolist()):
        shares = torch.softmax(logits[place].double(), -1)
        claim = claim_of(tagger, words, word=index + 1)
        assert claim.target == TAGS.labels[int(shares.argmax())]  # type: ignore[index]
        assert number_of(claim, tagger) == pytest.approx(odds(float(shares.max())), abs=1e-5)
        ((_, start, end),) = claim.marks
        assert " ".join(words)[start:end] == words[index]


def test_a_tag_that_a_prediction_shows_otherwise_is_named(tagger: Predictor) -> None:
    # Whatever is likeliest, one of these orders makes it an I- that continues nothing.
    named = set()
    for labels in (("O", "B-x", "I-x"), ("I-x", "O", "B-x"), ("B-x", "I-x", "O")):
        other = Predictor(tagger.model, tagger.tokenizer, replace(TAGS, labels=labels))
        words = ["film", "the", "good", "!"]
        tags = other.tag(words)["tags"]
        for number, tag in enumerate(tags, start=1):
            claim = claim_of(other, words, word=number)
            assert (claim.target != tag) == bool(claim.notes)
            named |= {note.split()[3] for note in claim.notes}
    assert named == {'"B-x"'}


def test_a_word_deep_in_a_long_sentence_is_explained_in_the_window_that_judges_it(
    tagger: Predictor,
) -> None:
    words = (["the", "film", "was", "a", "play"] * 8)[:37]
    row = TAGS.row(words, 0)
    examples = tagger.row_examples([row])
    outputs = run_model(tagger.model, examples, max_tokens=99, precision=tagger.precision)
    for number, (example, logits) in enumerate(zip(examples, outputs, strict=True)):
        index = int(example.source.words[0])
        place = int(example.source.rows[0])
        claim = claim_of(tagger, words, word=index + 1, target="B-film")
        shares = torch.softmax(logits[place].double(), -1)
        assert number_of(claim, tagger) == pytest.approx(odds(float(shares[1])), abs=1e-5)
        assert f"number {number + 1}," in claim.notes[0]


def test_an_answers_number_is_the_log_odds_of_its_start_and_its_end(answerer: Predictor) -> None:
    pair = ("was it good?", "the film was very good and he was great " * 4)
    examples = answerer.row_examples([answerer.known_task().row(pair, 0)])
    outputs = run_model(answerer.model, examples, max_tokens=99, precision=answerer.precision)
    answer = answerer.answer(*pair)
    claim = claim_of(answerer, pair)
    assert claim.target == answer["answer"]
    assert claim.marks == ((1, answer["start"], answer["end"]),)
    # The same window as the predictor's: its logits there are those that it reports.
    best = answer["nbest"][0]
    for logits in outputs:
        first, last = np.array(claim.reads)[[0, -1]].tolist()
        if last < len(logits) and (logits[first, 0], logits[last, 1]) == pytest.approx(
            (best["start_logit"], best["end_logit"]), abs=1e-5
        ):
            wanted = log_odds(logits[:, 0], first) + log_odds(logits[:, 1], last)
            assert number_of(claim, answerer) == pytest.approx(float(wanted), abs=1e-5)
            break
    else:
        pytest.fail("no window holds the answer's logits")


def test_no_answer_is_a_claim_about_the_first_token_of_the_window_that_is_least_sure_of_it(
    drawn: Draw,
) -> None:
    task = SpanQA(has_unanswerable=True, null_threshold=-1e9, stride=2)
    never = drawn("spans", task, max_length=14)
    found = set()
    for context in (
        "the film was good",
        "he was to see a great run ! 1 2 3 the film is very bad, and not good?",
    ):
        pair = ("was it good?", context)
        claim = claim_of(never, pair)
        assert (claim.says, claim.reads, claim.marks) == ("no answer", (0,), ())
        examples = never.row_examples([never.known_task().row(pair, 0)])
        outputs = run_model(never.model, examples, max_tokens=99, precision=never.precision)
        number = next(
            i for i, one in enumerate(outputs)
            if tuple(one[0].tolist()) == null_logits([o.numpy() for o in outputs])
        )  # fmt: skip
        logits = outputs[number]
        wanted = log_odds(logits[:, 0], 0) + log_odds(logits[:, 1], 0)
        assert number_of(claim, never) == pytest.approx(float(wanted), abs=1e-5)
        assert not claim.notes or f"number {number + 1}," in claim.notes[0]
        found.add((len(outputs), number))
    # One window, and one of several that is not the first.
    assert {(1, 0)} < found and all(number for count, number in found if count > 1)


def test_a_masks_number_is_the_log_odds_of_the_candidate(filler: Predictor) -> None:
    text = "the [MASK] was very [MASK]!"
    answer = filler.fill(text, top=3)
    assert isinstance(answer, dict)
    for mask, candidates in enumerate(answer["candidates"]):
        usual = claim_of(filler, text, word=mask + 1)
        assert usual.target == candidates[0]["token"]
        whole = [c for c in candidates if not filler.tokenizer.tokens([c["id"]])[0].startswith("#")]
        for one in whole:
            claim = claim_of(filler, text, word=str(mask + 1), target=one["token"])
            assert number_of(claim, filler) == pytest.approx(odds(one["score"]), abs=1e-4)


def test_the_likeness_of_two_texts_is_the_cosine_of_their_vectors(drawn: Draw) -> None:
    vectors = drawn(None)
    first, second = vectors.embed(PAIR, pooling="mean")
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    claim = claim_of(vectors, PAIR)
    assert number_of(claim, vectors) == pytest.approx(cosine, abs=1e-6)
    one = explain(vectors, PAIR)
    assert (one.method, one.error) == ("leave-one-out", None)
    assert {word.which for word in claim.words} == {0, 1}
    for method in METHODS[:2]:
        with pytest.raises(ConfigError, match="perfectly alike"):
            explain(vectors, PAIR, method=method)


@pytest.mark.parametrize(
    "item",
    [TEXT, "  played,   not\tvery good \n", PAIR, "caf\u00e9 \u4e00\u4e8c was \U0001f600 good"],
)
def test_words_and_what_lies_between_them_make_the_text_again(drawn: Draw, item: Any) -> None:
    predictor = drawn("sequence", Classification(labels=("neg", "pos")))
    one = explain(predictor, item, method="leave-one-out")
    texts = (item,) if isinstance(item, str) else item
    for which, text in enumerate(texts):
        parts = list(parts_of(one, which))
        assert "".join(part for part, _, _ in parts) == text
        assert [p for p, word, _ in parts if word] == [
            word.text for word in one.claim.words if word.which == which
        ]
    assert all(not any(map(str.isspace, word.text)) for word in one.claim.words)


@pytest.mark.parametrize("kind", ["byte_pieces", "unigram_pieces"])
def test_the_texts_are_shown_as_they_stand_in_other_vocabularies_too(
    drawn: Draw, kind: str, request: pytest.FixtureRequest
) -> None:
    task = Classification(labels=("neg", "pos"))
    pieces = request.getfixturevalue(kind)
    predictor = Predictor(drawn("sequence", task).model, pieces, task)
    texts = ("  played,   not\tvery\n\ngood \n", "it was\u2003\U0001f600 good")
    encodings = pieces.encode([texts], with_offsets=True)
    claim = new_claim(predictor, texts, encodings, kind=task.name, names=("a", "b"))
    one = Explanation(claim, "leave-one-out", np.zeros(len(claim.words)), np.zeros(99))
    for which, text in enumerate(texts):
        parts = list(parts_of(one, which))
        assert "".join(part for part, _, _ in parts) == text
        shown = [part for part, word, _ in parts if word]
        assert shown == re.findall(r"\w+|[^\w\s]", text)
    with pytest.raises(InputError, match="The text is empty"):
        encodings = pieces.encode([" \n"], with_offsets=True)
        new_claim(predictor, [" \n"], encodings, kind=task.name, names=("a",))


def test_white_space_parts_words_where_the_vocabulary_has_no_splitting_step(
    tagger: Predictor,
) -> None:
    text = "new yorkers\tare  kind"
    # As byte-level and sentence-piece vocabularies have it: blanks belong to what follows them.
    offsets = [(0, 0), (0, 3), (3, 8), (8, 11), (12, 15), (15, 17), (17, 21), (0, 0)]
    encoding = Encoding(
        np.arange(8),
        np.zeros(8, dtype=np.uint8),
        8,
        np.array(offsets),
        np.array([-1, 0, 0, 0, 0, 0, 0, -1]),
        np.array([-1, 0, 0, 0, 0, 0, 0, -1]),
    )
    words = words_of([text], encoding, tagger, shift=10, which=1)
    assert [word.text for word in words] == text.split()
    assert [text[word.start : word.end] for word in words] == text.split()
    # A token of nothing but blanks goes to the word that it stands before.
    assert [word.rows for word in words] == [(11,), (12, 13), (14,), (15, 16)]
    assert {word.which for word in words} == {1}


REFUSED = [
    ("classes", "", {}, "The text is empty"),
    ("classes", " \n ", {}, "The text is empty"),
    ("classes", "good " * 600, {}, "602 tokens with specials, and the model reads 32.*up to 64"),
    ("windows", "good " * 600, {}, "by the mean over windows of 32"),
    ("classes", "good", {"target": "fine"}, "'fine' is no label of this model: neg, pos"),
    ("classes", "good", {"word": "good"}, "--word is for tagging"),
    ("value", "good", {"target": "3"}, "one number"),
    ("tagger", "", {}, "The text is empty"),
    ("tagger", "the film", {"word": "play"}, "not a word of the text, nor a number in 1..2"),
    ("tagger", "the film", {"word": "3"}, "nor a number in 1..2"),
    ("tagger", "the film", {"word": "film", "target": "B-place"}, "no tag of this model"),
    ("answerer", "was it good?", {}, "A question and its context are wanted"),
    ("answerer", ("was it?", " "), {}, "one of them is empty"),
    ("answerer", ("was it?", "it was"), {"target": "good"}, "does not stand in the context"),
    ("filler", "the film", {}, "has no mask"),
    ("filler", "the [MASK]", {"word": 2}, "the masks are 1..1"),
    ("filler", "the [MASK]", {"target": "playing"}, "is 2 tokens to this model"),
    ("filler", "the [MASK]", {"target": "\U0001f600"}, "unknown to this model's vocabulary"),
    ("filler", PAIR, {}, "one text with a"),
    ("bare", "good", {}, "no task head"),
    ("bare", ("good", "bad"), {"target": "x"}, "there is one number"),
    (
        "choices",
        {"context": "a", "choices": ["b", "c"]},
        {},
        "This model's task is multiple_choice",
    ),
]


@pytest.mark.parametrize(("name", "item", "options", "sentence"), REFUSED)
def test_what_cannot_be_explained_is_refused_in_a_sentence(
    drawn: Draw,
    tagger: Predictor,
    answerer: Predictor,
    filler: Predictor,
    name: str,
    item: Any,
    options: dict[str, Any],
    sentence: str,
) -> None:
    made: dict[str, Callable[[], Predictor]] = {
        "classes": lambda: drawn("sequence", Classification(labels=("neg", "pos")), max_length=32),
        "windows": lambda: drawn(
            "sequence",
            Classification(labels=("neg", "pos"), on_overflow="window"),
            max_length=32,
        ),
        "value": lambda: drawn("sequence", Regression()),
        "tagger": lambda: tagger,
        "answerer": lambda: answerer,
        "filler": lambda: filler,
        "bare": lambda: drawn(None),
        "choices": lambda: drawn("choices", MultipleChoice()),
    }
    with pytest.raises((ConfigError, InputError), match=sentence) as caught:
        claim_of(made[name](), item, **options)
    assert str(caught.value).count(". ") <= 2


def test_a_sentence_without_entities_asks_for_a_word(tagger: Predictor) -> None:
    quiet = Predictor(tagger.model, tagger.tokenizer, replace(TAGS, labels=("B-x", "I-x", "O")))
    texts = [["the"], ["film"], ["good"], ["bad"], ["!"], ["he"], ["it"], ["great"]]
    for predictor in (tagger, quiet):
        for words in texts:
            if predictor.tag(words)["tags"] == ["O"]:
                with pytest.raises(ConfigError, match="Name one with --word"):
                    claim_of(predictor, words)
                return
    pytest.fail("every word has a tag")
