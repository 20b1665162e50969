"""Attributions: identities that must hold, and values computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.errors import ConfigError, InputError
from filbert.inference.predictor import Predictor
from filbert.inspect import explain as module
from filbert.inspect.explain import METHODS, attribute, explain, find_target, log_odds
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.classification import Classification
from filbert.tasks.multiple_choice import MultipleChoice
from filbert.tasks.regression import Regression
from filbert.tasks.tagging import Tagging
from filbert.text.tokenizer import Tokenizer

TEXT = "the film was not very good, and he played badly!"
PAIR = ("was it good?", "the film was very good and he was great")
TAGS = Tagging(labels=("O", "B-film", "I-film"))


@pytest.fixture(scope="module")
def drawn(tiny_model: Path):
    """`drawn("sequence", task)`: the tiny encoder with a random head of large weights."""

    def draw(kind, task=None) -> Predictor:
        torch.manual_seed(3)
        count = None if task is None else task.spec.num_labels
        checkpoint = with_new_head(huggingface.read(tiny_model), kind, count)
        for name, tensor in checkpoint.tensors.items():
            if name.startswith(("head", "encoder.pooler")):
                checkpoint.tensors[name] = tensor + 0.3 * torch.randn(tensor.shape)
        return Predictor(checkpoint.build(), Tokenizer.load(tiny_model), task)

    return draw


@pytest.fixture(scope="module")
def classifier(drawn) -> Predictor:
    return drawn("sequence", Classification(labels=("neg", "pos", "so"), temperature=0.7))


@pytest.fixture(scope="module")
def by_method(classifier):
    return {method: explain(classifier, TEXT, method=method) for method in METHODS}


def linear_scores(monkeypatch, number) -> None:
    """Replaces the model by a function of the word vectors, (S, n, E) to (S,)."""
    monkeypatch.setattr(module, "_scores", lambda model, target, vectors: number(vectors.double()))


def vectors_of(predictor, target):
    """The word vectors of the text, and those with the mask token for every word."""
    table = predictor.model.encoder.embeddings.word.weight.detach().double()
    text = table[torch.from_numpy(target.encoding.input_ids).long()]
    masked = text.clone()
    masked[[row for word in target.words for row in word.rows]] = table[predictor.tokenizer.mask_id]
    return masked, text


def test_every_method_explains_a_linear_function_exactly(classifier, monkeypatch):
    target = find_target(classifier, TEXT)
    masked, text = vectors_of(classifier, target)
    weights = torch.randn(text.shape, dtype=torch.float64, generator=torch.manual_seed(0))
    linear_scores(monkeypatch, lambda x: (x * weights).sum((1, 2)))
    for method in METHODS:
        wanted = (text if method == "gradient" else text - masked) * weights
        shares = [float(wanted[list(word.rows)].sum()) for word in target.words]
        # Word vectors are float32.
        found = attribute(classifier, target, method=method).shares
        assert found == pytest.approx(shares, abs=1e-6)


def test_integrated_gradients_of_a_product_are_those_computed_by_hand(classifier, monkeypatch):
    """Of x * y from (a, b) to (c, d): (c - a) (b + d) / 2 for x and (d - b) (a + c) / 2 for y."""
    target = find_target(classifier, TEXT)
    masked, text = vectors_of(classifier, target)
    (first,), (second,) = target.words[1].rows, target.words[5].rows
    linear_scores(monkeypatch, lambda x: x[:, first, 0] * x[:, second, 1])
    one = attribute(classifier, target, steps=2)
    a, c = float(masked[first, 0]), float(text[first, 0])
    b, d = float(masked[second, 1]), float(text[second, 1])
    wanted = np.zeros(len(target.words))
    wanted[1], wanted[5] = (c - a) * (b + d) / 2, (d - b) * (a + c) / 2
    assert one.shares == pytest.approx(wanted, abs=1e-6)
    assert one.value - one.baseline_value == pytest.approx(c * d - a * b, abs=1e-6)


def test_integrated_gradients_add_up_and_special_tokens_get_nothing(by_method):
    one = by_method["integrated-gradients"]
    difference = one.value - one.baseline_value
    # Float32 gradients on a smooth path.
    assert abs(one.error) <= 1e-4 * abs(difference) and abs(difference) > 0.1
    assert one.pieces[[0, -1]].tolist() == [0.0, 0.0]
    assert one.shares.sum() == pytest.approx(one.pieces.sum())


def test_leaving_a_word_out_equals_the_prediction_with_masks_in_its_place(classifier, by_method):
    one = by_method["leave-one-out"]

    def odds(text: str) -> float:
        share = classifier.predict([text])[0]["scores"][one.target.label]
        return math.log(share / (1 - share))

    for word, share in zip(one.target.words, one.shares, strict=True):
        masks = " ".join(["[MASK]"] * len(word.rows))
        without = f"{TEXT[: word.start]} {masks} {TEXT[word.end :]}"
        assert share == pytest.approx(odds(TEXT) - odds(without), abs=1e-4)  # scores are float32


def test_a_word_of_several_tokens_gets_their_sum(by_method):
    for one in by_method.values():
        pairs = zip(one.target.words, one.shares, strict=True)
        word, share = next(pair for pair in pairs if pair[0].text == "played")
        assert len(word.rows) == 2
        assert share == pytest.approx(one.pieces[list(word.rows)].sum())


def test_an_explanation_leaves_the_model_unchanged(classifier):
    before = classifier.predict([TEXT])
    for method in METHODS:
        explain(classifier, TEXT, method=method)
    assert classifier.predict([TEXT]) == before
    assert isinstance(classifier.model, Model)
    assert not classifier.model.encoder.embeddings.word._forward_hooks
    assert all(part.grad is None for part in classifier.model.parameters())


@pytest.mark.parametrize(
    "task",
    [
        Classification(labels=("neg", "pos"), temperature=1.7, thresholds=(0.9,)),
        Classification(labels=("a", "b", "c"), temperature=0.4),
        Classification(labels=("a", "b", "c"), multilabel=True, temperature=2.0),
    ],
    ids=["two", "three", "multilabel"],
)
@pytest.mark.parametrize("item", [TEXT, PAIR])
def test_the_value_of_a_label_is_the_log_odds_of_its_probability(drawn, task, item):
    predictor = drawn("sequence", task)
    (answer,) = predictor.predict([item])
    for label in task.labels:
        one = explain(predictor, item, target=label, method="leave-one-out")
        share = answer["scores"][label]
        # Scores are float32.
        assert one.value == pytest.approx(math.log(share / (1 - share)), abs=1e-5)
    scores = answer["scores"]
    usual = answer.get("label", max(scores, key=scores.get))
    assert find_target(predictor, item).label == usual


def test_the_value_of_a_regression_is_its_prediction(drawn):
    predictor = drawn("sequence", Regression())
    one = explain(predictor, PAIR, method="gradient")
    assert one.value == pytest.approx(predictor.predict([PAIR])[0]["value"], abs=1e-6)
    assert one.target.unit == "value"


def test_the_value_of_a_tag_is_its_log_odds_at_the_first_token_of_the_word(drawn):
    tagger = drawn("tokens", TAGS)
    words = ["the", "film", "was", "played", "badly", "!"]
    (encoding,) = tagger.tokenizer.encode([" ".join(words)])
    with torch.inference_mode():
        logits = tagger.model(module.pack([encoding.input_ids]))
    # [CLS] the film was play ##ed bad ##ly ! [SEP]
    for word, row in (("played", 4), ("5", 6), (6, 8)):
        one = explain(tagger, words, word=word, target="I-film", method="leave-one-out")
        assert one.value == pytest.approx(float(log_odds(logits[row], 2)), abs=1e-5)


def test_json_holds_every_word_with_its_place(by_method):
    for method, one in by_method.items():
        content = one.to_dict()
        assert content["method"] == method
        words = content["words"]
        assert [TEXT[word["start"] : word["end"]] for word in words] == [w["text"] for w in words]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(classifier, open_file, findings, scheme, tmp_path):
    page = module.explanation_page([explain(classifier, TEXT, method="gradient")], "a model")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    assert findings(open_file(tmp_path / "page.html", color_scheme=scheme)) == []


def test_html_has_the_whole_text_and_escapes_it(drawn):
    predictor = drawn("sequence", Classification(labels=("neg", "pos")))
    one = explain(predictor, "the <b>film</b> was good", method="gradient")
    page = module.explanation_page([one], "<model>")
    assert "<b>" not in page and "<model>" not in page and "{{" not in page
    assert "".join(text for text, _, _ in one.segments(0)) == "the <b>film</b> was good"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "gradients"}, "Did you mean 'gradient'"),
        ({"method": "leave-one-out", "steps": 8}, "`steps` has no effect"),
        ({"steps": 0}, "1 to 10,000"),
        ({"target": "great"}, "is not a label of this model: neg, pos, so"),
        ({"word": 1}, "`word` is for tagging"),
    ],
)
def test_options_that_do_not_fit_are_refused(classifier, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        explain(classifier, TEXT, **options)


def test_items_that_cannot_be_explained_are_refused(classifier, drawn):
    with pytest.raises(InputError, match="The text has 101 tokens"):
        explain(classifier, "film " * 99)
    with pytest.raises(InputError, match="The text is empty"):
        explain(classifier, " ")
    with pytest.raises(ConfigError, match="neither a word of the text nor a number in 1..2"):
        explain(drawn("tokens", TAGS), "the film", word="play")
    with pytest.raises(ConfigError, match="This model has no task"):
        explain(drawn("masked_lm"), "the [MASK]")
    with pytest.raises(ConfigError, match="task multiple_choice"):
        find_target(drawn("choices", MultipleChoice()), TEXT)


def test_a_model_in_int8_is_refused(classifier):
    int8 = Precision("int8", "as asked")
    rounded = Predictor(classifier.model, classifier.tokenizer, classifier.task, precision=int8)
    with pytest.raises(ConfigError, match="original model in float32"):
        explain(rounded, TEXT)


def test_a_model_that_normalises_word_vectors_has_no_gradient_times_input(classifier, monkeypatch):
    config = classifier.model.config.changed(rotary_base=100.0, type_vocab_size=0)
    monkeypatch.setattr(classifier.model.encoder, "config", config)
    with pytest.raises(ConfigError, match="normalises every word vector"):
        attribute(classifier, find_target(classifier, TEXT), method="gradient")
