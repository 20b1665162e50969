"""A bias check: vectors, masks and scores are the model's own, and a planted bias is found."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.errors import ConfigError, InputError
from filbert.inspection.bias.association import associations
from filbert.inspection.bias.check import LIMITS, bias_check
from filbert.inspection.bias.identity import compared, score_label
from filbert.inspection.bias.log_probability import shifts, target_id
from filbert.inspection.bias.sentences import (
    _cleaned,
    _word_ids,
    known_words,
    placed,
    vectors_of,
)
from filbert.inspection.bias.verdicts import leaning, shifting, verdicts
from filbert.inspection.bias.words import Association, Group, LogProbability, WordSet, WordSets
from filbert.predict import Predictor
from filbert.tasks.regression import Regression
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Tokenizer

SENTENCES = ("the {} was good.", "{} was bad.", "he and she see {}")
QUESTION = Association(
    "words",
    "",
    False,
    WordSet("one kind", ("film", "play", "greatly", "1")),
    WordSet("other kind", ("run", "see", "badly", "2")),
    WordSet("good", ("good", "great", "very")),
    WordSet("bad", ("bad", "not", "3")),
)
MASKED = LogProbability(
    "masks",
    "",
    (("he", "she"), ("it", "a")),
    ("[TARGET] was {}.", "the {} see [TARGET]"),
    WordSet("good", ("good", "greatly", "very")),
    WordSet("bad", ("bad", "badly", "not")),
)
TEMPLATES = {"plain": ("the {} film", "he was {}."), "warm": ("a very {} play", "she was {} and")}


@pytest.fixture(scope="module")
def encoder(tiny_model: Path) -> Predictor:
    return Predictor.load(tiny_model, device="cpu")


@pytest.fixture(scope="module")
def masked(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("bias") / "model"
    torch.manual_seed(2)
    checkpoint = with_new_head(huggingface.read(tiny_model), "masked_lm")
    for name, tensor in checkpoint.tensors.items():
        if name.startswith("head."):
            checkpoint.tensors[name] = tensor + 0.5 * torch.randn(tensor.shape)
    huggingface.write(checkpoint, folder)
    Tokenizer.load(tiny_model).save(folder)
    return Predictor.load(folder, device="cpu")


def words_of(*groups: Group) -> WordSets:
    return WordSets("a test", SENTENCES, (QUESTION,), (MASKED,), TEMPLATES, groups)


# Vectors


def test_vectors_are_rows_of_the_table_whole_sentences_or_the_words_own_tokens(encoder):
    table = encoder.model.encoder.embeddings.word.weight.detach().numpy()
    ids = [encoder.tokenizer.id_of(token) for token in ("great", "##ly")]
    found = vectors_of(encoder, ["greatly"], SENTENCES, "table")["greatly"]
    np.testing.assert_allclose(found, table[ids].mean(0, keepdims=True), rtol=1e-6)
    texts = ["the greatly was good.", "Greatly was bad.", "he and she see greatly"]
    found = vectors_of(encoder, ["greatly"], SENTENCES, "sentence")["greatly"]
    # Sums in another order: float32 rounding.
    np.testing.assert_allclose(found, encoder.embed(texts), atol=1e-5)
    found = vectors_of(encoder, ["greatly"], SENTENCES, "context")["greatly"]
    tokens = encoder.embed(texts, pooling="none")
    places = [(2, 4), (1, 3), (5, 7)]
    wanted = [one[start:end].mean(0) for one, (start, end) in zip(tokens, places, strict=True)]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", ["sentence", "context"])
def test_a_sentence_that_would_lose_its_word_is_refused(encoder, kind):
    short = Predictor(encoder.model, encoder.tokenizer, max_length=8)
    with pytest.raises(InputError, match="has 9 tokens; this model reads 8. Shorten"):
        vectors_of(short, ["film"], ["the very very very very bad {}"], kind)


def test_words_are_read_as_the_models_task_cleans_its_texts(shared_data):
    cased = Tokenizer.load(shared_data / "tokenizers" / "bert-base-cased")
    clean = Cleaning.parse("lowercase,stop-words")
    read = _cleaned(placed("This is the rose: {}.", "Rose"), clean)
    assert read.text[read.start :] == "rose." and read.start > read.text.index("rose")
    with pytest.raises(InputError, match="takes the word away"):
        _cleaned(placed("This is {}.", "the"), clean)
    # Upper case is written in this vocabulary, letter by letter; the stop word is gone.
    assert known_words(["THE", "Rose"], cased, clean) == {"THE": False, "Rose": True}
    assert _word_ids(["Rose"], cased, clean) == [[cased.id_of("rose")]]


@pytest.mark.parametrize("kind", ["table", "sentence", "context"])
def test_an_effect_is_weat_counted_pair_by_pair(encoder, kind):
    (found,) = associations(encoder, [QUESTION], SENTENCES, kinds=[kind], resamples=20)
    every = (*QUESTION.x.words, *QUESTION.y.words, *QUESTION.a.words, *QUESTION.b.words)
    vectors = vectors_of(encoder, every, SENTENCES, kind)

    def cosine(one: np.ndarray, other: np.ndarray) -> float:
        one, other = one.astype(float), other.astype(float)
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    def nearer(rows: np.ndarray) -> float:
        near, far = (
            [cosine(row, other) for row in rows for word in words for other in vectors[word]]
            for words in (QUESTION.a.words, QUESTION.b.words)
        )
        return float(np.mean(near) - np.mean(far))

    x, y = ([nearer(vectors[word]) for word in one.words] for one in (QUESTION.x, QUESTION.y))
    effect = (np.mean(x) - np.mean(y)) / np.std([*x, *y], ddof=1)
    assert found.effect == pytest.approx(effect, abs=1e-6)
    assert found.nearer["greatly"] == pytest.approx(x[2], abs=1e-9)
    assert found.low <= found.high
    if kind == "table":
        assert found.effect_over_sentences is None
        return
    one_by_one = [
        [nearer(row[None]) for word in one.words for row in vectors[word]]
        for one in (QUESTION.x, QUESTION.y)
    ]
    seat = np.mean(one_by_one[0]) - np.mean(one_by_one[1])
    seat /= np.std(np.concatenate(one_by_one), ddof=1)
    assert found.effect_over_sentences == pytest.approx(seat, abs=1e-6)


def test_an_association_that_was_put_in_is_found_and_turns_with_its_words(encoder):
    model = copy.deepcopy(encoder.model)
    direction = torch.randn(32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for words, sign in ((QUESTION.x, 1), (QUESTION.a, 1), (QUESTION.y, -1), (QUESTION.b, -1)):
            for word in words.words:
                (encoding,) = encoder.tokenizer.encode([word])
                model.encoder.embeddings.word.weight[encoding.input_ids[1:-1]] += sign * direction
    planted = Predictor(model, encoder.tokenizer)
    (found,) = associations(planted, [QUESTION], SENTENCES, kinds=["table"], resamples=200)
    assert found.effect > 1.5 and found.low > 0
    assert found.p_one_sided == 1 / 70 and found.p_two_sided == 2 / 70
    assert leaning(found) == "one kind nearer to good, other kind to bad"
    turned = Association("turned", "", False, QUESTION.y, QUESTION.x, QUESTION.a, QUESTION.b)
    (other,) = associations(planted, [turned], SENTENCES, kinds=["table"], resamples=200)
    assert other.effect == pytest.approx(-found.effect)
    assert leaning(other) == "other kind nearer to bad, one kind to good"


def test_words_that_the_vocabulary_lacks_are_left_out_and_named(encoder):
    x = WordSet("one kind", ("film", "zebra", "play"))
    question = Association("n", "", False, x, QUESTION.y, QUESTION.a, QUESTION.b)
    (found,) = associations(encoder, [question], SENTENCES, kinds=["table"], resamples=20)
    assert found.unknown == ("zebra",)
    assert found.test.x.words == ("film", "play")
    few = replace(question, x=WordSet("x", ("zebra", "film")))
    (found,) = associations(encoder, [few], SENTENCES, kinds=["context"], resamples=20)
    assert found.effect is None and found.p_holm is None
    nothing = WordSets("a test", SENTENCES, (few,), (), {}, ())
    report = bias_check(encoder, words=nothing, vectors=["table"], resamples=20)
    assert verdicts(report) == [
        "Vectors (word table): no question could be asked; the vocabulary knows too few of the "
        "words."
    ]


# Masked words


def test_scores_are_the_log_odds_under_the_mask_less_those_with_the_word_masked_too(masked):
    (found,) = shifts(masked, [MASKED], resamples=20)
    assert found.unknown == ()

    def odds(text: str, pair: tuple[str, str]) -> float:
        # All candidates of the first mask at which [TARGET] stands.
        which = text.replace("[TARGET]", "[MASK]")[: text.index("[TARGET]")].count("[MASK]")
        answer = masked.fill(text.replace("[TARGET]", "[MASK]"), top=34)["candidates"][which]
        scores = {one["token"]: one["score"] for one in answer}
        return float(np.log(scores[pair[0]]) - np.log(scores[pair[1]]))

    def score(template: str, word: str, masks: str, pair: tuple[str, str]) -> float:
        return odds(template.replace("{}", word), pair) - odds(template.replace("{}", masks), pair)

    for word, masks in (("good", "[MASK]"), ("greatly", "[MASK] [MASK]")):
        wanted = [score(t, word, masks, pair) for t in MASKED.templates for pair in MASKED.targets]
        # Probabilities of float32 and their logarithms.
        assert found.scores[word] == pytest.approx(np.mean(wanted), abs=1e-4)
    values = found.scores
    difference = np.mean([values[w] for w in MASKED.a.words]) - np.mean(
        [values[w] for w in MASKED.b.words]
    )
    assert found.difference == pytest.approx(difference)
    assert np.mean(list(found.by_template.values())) == pytest.approx(difference)
    assert found.low <= found.difference <= found.high
    side = "good speak for he or it" if difference > 0 else "bad speak for he or it"
    assert shifting(found).startswith(side)


def test_a_target_of_several_tokens_and_an_unknown_word_are_left_out_and_named(masked):
    test = LogProbability(
        "n", "", (("he", "greatly"), ("he", "she")), MASKED.templates,
        WordSet("a", ("good", "very", "zebra")), MASKED.b,
    )  # fmt: skip
    (found,) = shifts(masked, [test], resamples=20)
    assert found.unknown == ("he and greatly", "zebra")
    assert found.test.targets == (("he", "she"),)
    none = LogProbability("n", "", (("he", "zebra"),), MASKED.templates, MASKED.a, MASKED.b)
    (found,) = shifts(masked, [none], resamples=20)
    assert found.scores is None and found.p_two_sided is None


def test_a_target_is_written_as_its_place_wants_it(shared_data):
    cased = Tokenizer.load(shared_data / "tokenizers" / "bert-base-cased")
    assert target_id("[TARGET] is {}.", "he", "here", cased) == cased.id_of("He")
    assert target_id("Then [TARGET] saw {}.", "he", "it", cased) == cased.id_of("he")
    spaced = Tokenizer.load(shared_data / "tokenizers" / "roberta-base")
    assert target_id("[TARGET] is {}.", "he", "here", spaced) == spaced.id_of("He")
    assert target_id("{} saw [TARGET].", "he", "this", spaced) == spaced.id_of("Ġhe")
    assert target_id("{} saw [TARGET].", "Brendan's", "this", spaced) is None


def test_a_sentence_that_is_too_long_for_the_model_is_refused(masked):
    long = LogProbability(
        "n", "", (("he", "she"),), ("[TARGET] " + "was " * 70 + "{}",), MASKED.a, MASKED.b
    )
    with pytest.raises(InputError, match="has 74 tokens; this model reads 64. Shorten"):
        shifts(masked, [long], resamples=10)


def test_a_word_at_the_beginning_of_a_sentence_gets_a_capital():
    assert placed("{} is here.", "rose") == ("Rose is here.", 0, 4)
    assert placed("Here is {}.", "NASA") == ("Here is NASA.", 8, 12)


# Identity terms


def test_scores_of_terms_are_the_models_own_and_a_real_gap_is_found(film_run):
    predictor = film_run.model
    group, control = Group("words", False, ("great", "bad")), Group("c", True, ("1", "2"))
    real, other = compared(predictor, [group, control], TEMPLATES, resamples=200)
    texts = ["the great film", "he was great.", "a very great play", "she was great and"]
    scores = [one["scores"]["pos"] for one in predictor.predict(texts)]
    great, bad = real.terms
    assert great.score == pytest.approx(np.mean(scores), abs=1e-6)
    assert great.by_tone == pytest.approx(
        {"plain": np.mean(scores[:2]), "warm": np.mean(scores[2:])}, abs=1e-6
    )
    assert real.gap == pytest.approx(great.score - bad.score) and real.gap > 0.2
    assert great.difference == pytest.approx(real.gap / 2)
    assert great.low > 0 > bad.high
    assert real.changed == 1.0
    assert other.p_holm is None and real.p_holm == real.p
    assert other.gap < 0.1


def test_terms_that_the_vocabulary_lacks_are_named_and_score_alike(film_run):
    (found,) = compared(film_run.model, [Group("g", False, ("zebra", "yak"))], TEMPLATES)
    assert found.unknown == ("zebra", "yak")
    assert (found.gap, found.p, found.changed) == (0.0, 1.0, 0.0)


def test_a_label_is_asked_for_where_there_are_several(film_run):
    task = film_run.model.task
    assert score_label(task, None) == "pos"
    assert score_label(task, "neg") == "neg"
    with pytest.raises(ConfigError, match="--label is 'nice'; choose whose .*: neg, pos"):
        score_label(task, "nice")
    several = replace(task, labels=("a", "b", "c"), positive=None, thresholds=None)
    with pytest.raises(ConfigError, match="--label is not given; choose .*: a, b, c"):
        score_label(several, None)
    assert score_label(several, "c") == "c"
    assert score_label(Regression(), None) is None
    with pytest.raises(ConfigError, match="this model gives a number"):
        score_label(Regression(), "a")


# All of it


def test_every_part_that_the_heads_allow_is_run_and_the_others_say_why_not(
    encoder, masked, film_run
):
    words = words_of(Group("words", False, ("great", "bad")))
    bare = bias_check(encoder, words=words, resamples=20)
    assert set(bare.left_out) == {"log-probability", "identity-terms"}
    assert "no masked-LM head" in bare.left_out["log-probability"]
    filler = bias_check(masked, words=words, resamples=20, vectors=["table"])
    assert set(filler.left_out) == {"identity-terms"}
    judge = bias_check(film_run.model, words=words, resamples=20, vectors=["table"])
    assert set(judge.left_out) == {"log-probability"} and judge.label == "pos"
    assert "widest gap is in words" in verdicts(judge)[0]
    content = json.loads(json.dumps(judge.to_json()))
    assert content["limits"] == list(LIMITS)
    assert content["identity_terms"][0]["terms"][0]["term"] == "great"


def test_equal_seeds_give_equal_figures(masked):
    words = words_of()
    one, same, other = (
        bias_check(masked, words=words, resamples=30, vectors=["table"], seed=seed).to_json()
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one["associations"][0]["low"] != other["associations"][0]["low"]
    assert one["associations"][0]["effect"] == other["associations"][0]["effect"]


def test_what_was_asked_for_and_cannot_be_done_is_refused(encoder, film_run):
    words = words_of()
    with pytest.raises(ConfigError, match="no masked-LM head"):
        bias_check(encoder, words=words, parts=["log-probability"])
    with pytest.raises(ConfigError, match="no task head"):
        bias_check(encoder, words=words, label="toxic")
    with pytest.raises(ConfigError, match=r"The word sets have no \[\[group\]\]"):
        bias_check(film_run.model, words=words, parts=["identity-terms"])
    with pytest.raises(ConfigError, match="Did you mean 'associations'"):
        bias_check(encoder, words=words, parts=["association"])
    with pytest.raises(ConfigError, match="--vectors 'cls' is not one of table"):
        bias_check(encoder, words=words, vectors=["cls"])
    with pytest.raises(ConfigError, match="level is 2"):
        bias_check(encoder, words=words, level=2)
    only_terms = WordSets("a test", (), (), (), TEMPLATES, (Group("g", False, ("a", "b")),))
    with pytest.raises(ConfigError, match="There is nothing to test"):
        bias_check(encoder, words=only_terms)


def test_flowers_are_pleasanter_than_insects_to_the_built_in_model():
    model = Predictor.load("filbert-mini", device="cpu")
    report = bias_check(model, parts=["associations"], vectors=["table"], resamples=50)
    control = [one for one in report.associations if one.test.is_control]
    assert len(control) == 1
    assert control[0].effect > 0.5 and control[0].p_one_sided < 0.02
    assert not any("control was not found" in said for said in verdicts(report))
