from __future__ import annotations

import numpy as np
import pytest
import torch

from filbert import samples
from filbert.batch import pack
from filbert.errors import ConfigError, InputError
from filbert.inspection.maps import attention_maps, merged
from filbert.inspection.treebank import read_treebank, words_of
from filbert.predict import Predictor
from filbert.probe.dependency import (
    DISTANCE,
    KINDS,
    NEAR,
    Probe,
    ProbeSentence,
    _Batch,
    _parts,
    features_of,
    probe_sentences,
    study_dependencies,
    train_probe,
    untrained,
)


def sentence(length, draw, *, knows=0, heads=3, words=None):
    """Random heads; attention head `knows` looks at them, the others anywhere."""
    governors = torch.stack(
        [
            torch.randint(1, length, (1,), generator=draw).add(i).remainder(length)[0]
            for i in range(length)
        ]
    )
    attention = torch.rand(heads, length, length, generator=draw)
    attention[knows, torch.arange(length), governors] += 1.0
    vectors = torch.zeros(length, 4) if words is None else words
    drawn = torch.rand(heads, length, length, generator=draw)
    return ProbeSentence(attention.half(), drawn.half(), vectors, governors)


@pytest.fixture(scope="module")
def known():
    draw = torch.Generator().manual_seed(0)
    return [sentence(6, draw) for _ in range(16)], [sentence(6, draw) for _ in range(24)]


def test_a_classifier_learns_which_head_to_believe_and_noise_teaches_nothing(known):
    scores = {one.kind: one for one in study_dependencies(*known, steps=90)}
    assert list(scores) == list(KINDS)
    assert scores["attention"].uas > 0.97
    assert scores["attention and words"].uas > 0.97
    # A fifth is chance here.
    for kind in ("fixed offset", "distance and words", "untrained attention and words"):
        assert scores[kind].uas < 0.4
    for one in scores.values():
        assert one.low <= one.uas <= one.high


def test_words_say_which_head_to_believe():
    """Words of one sort are found by one head, words of another by another."""
    draw = torch.Generator().manual_seed(1)
    sentences = []
    for _ in range(48):
        found = sentence(6, draw, heads=2)
        sort = torch.randint(0, 2, (6,), generator=draw)
        attention = torch.rand(2, 6, 6, generator=draw)
        attention[sort, torch.arange(6), found.heads] += 0.7
        wrong = (found.heads + 1) % 6
        attention[1 - sort, torch.arange(6), wrong] += 0.7
        words = torch.nn.functional.one_hot(sort, 4).float()
        sentences.append(ProbeSentence(attention.half(), found.untrained, words, found.heads))
    scores = study_dependencies(sentences[:32], sentences[32:], steps=120)
    by_kind = {one.kind: one.uas for one in scores}
    assert by_kind["attention and words"] > 0.8
    assert by_kind["attention"] < 0.65


def test_the_baseline_of_words_and_distances_knows_which_words_belong_together():
    """Each word's head is the one word of its own sort: no sum over the two words tells that."""
    draw = torch.Generator().manual_seed(5)
    sentences = []
    for _ in range(40):
        sorts = torch.randperm(3, generator=draw).repeat(2)
        heads = torch.tensor([3, 4, 5, 0, 1, 2])
        order = torch.randperm(6, generator=draw)
        heads = torch.argsort(order)[heads[order]]
        words = torch.nn.functional.one_hot(sorts[order], 4).float()
        found = sentence(6, draw)
        sentences.append(ProbeSentence(found.attention, found.untrained, words, heads))
    probe = train_probe(DISTANCE, sentences[:30], 0.5, steps=80)
    right = 0
    for one in sentences[30:]:
        batch = _Batch.of([one], DISTANCE, 0.5)
        right += int((probe(batch.features, batch.words)[0].argmax(1) == one.heads).sum())
    assert right > 0.9 * 60


def test_scores_are_the_formulas():
    draw = torch.Generator().manual_seed(2)
    probe = Probe(3, 4)
    with torch.no_grad():
        for part in probe.parameters():
            part.normal_(generator=draw)
    features, words = torch.rand(3, 5, 5, generator=draw), torch.randn(5, 4, generator=draw)
    scores = probe(features[None], words[None])[0]
    for j in range(5):
        for i in range(5):
            wanted = sum(
                (probe.weight[k] + probe.of_head[k] @ words[i] + probe.of_dependent[k] @ words[j])
                * features[k, j, i]
                for k in range(3)
            )
            if i == j:
                assert scores[j, i] == -torch.inf
            else:
                assert scores[j, i].item() == pytest.approx(wanted.item(), abs=1e-5)


def test_both_directions_of_a_head_are_read_and_distances_are_told_apart(known):
    (first, *_), _ = known
    features = features_of(first, "attention")
    assert features.shape == (6, 6, 6)
    assert torch.equal(features[4], first.attention[1].float().T)
    assert torch.equal(features[1], first.attention[1].float())
    far = features_of(sentence(20, torch.Generator().manual_seed(3)), DISTANCE)
    assert far[-2:, 4, 16].tolist() == pytest.approx([1.2, 0])
    assert far[-2:, 16, 4].tolist() == pytest.approx([0, 1.2])
    far = far[:-2]
    assert far.shape == (2 * NEAR + 3, 20, 20)
    assert (far.sum(0) == 1).all()
    # Row: who asks; column: the possible head.
    assert far[:, 4, 5].argmax() == NEAR + 2
    assert far[:, 5, 4].argmax() == NEAR
    assert far[:, 0, 19].argmax() == 2 * NEAR + 2


def test_sentences_of_other_lengths_beside_it_change_nothing():
    """The gradient of a batch is the mean of its words', wherever they stand."""
    draw = torch.Generator().manual_seed(4)
    parts = [sentence(length, draw, words=torch.randn(length, 4)) for length in (3, 7)]
    batch = _Batch.of(parts, "attention and words", 1.0)
    probe = Probe(6, 4)
    with torch.no_grad():
        for part in probe.parameters():
            part.normal_(generator=draw)
        together = probe(batch.features, batch.words).masked_fill(batch.unseen, -torch.inf)
        for row, one in zip(together.softmax(-1), parts, strict=True):
            alone = _Batch.of([one], "attention and words", 1.0)
            size = len(one.heads)
            wanted = probe(alone.features, alone.words)[0].softmax(-1)
            assert torch.allclose(row[:size, :size], wanted, atol=1e-6)
            assert row[:size, size:].abs().sum() == 0


def test_a_classifier_does_not_look_at_words_that_are_not_asked_about(known):
    train, _ = known
    hidden = [
        ProbeSentence(s.attention, s.untrained, s.words, torch.where(s.heads > 2, s.heads, -1))
        for s in train
    ]
    whole = train_probe("attention", train, 1.0, steps=4)
    part = train_probe("attention", hidden, 1.0, steps=4)
    again = train_probe("attention", hidden, 1.0, steps=4)
    assert torch.equal(part.weight, again.weight)
    assert not torch.allclose(part.weight, whole.weight)


def test_a_batch_that_comes_in_parts_teaches_the_same(monkeypatch):
    draw = torch.Generator().manual_seed(6)
    train = [sentence(length, draw) for length in (3, 9, 4, 7, 5)]
    whole = train_probe("attention", train, 1.0, steps=3)
    monkeypatch.setattr("filbert.probe.dependency.MAX_FEATURES", 6 * 60)
    assert [len(part) for part in _parts(train, 60)] == [2, 1, 1, 1]
    parts = train_probe("attention", train, 1.0, steps=3)
    # Float32 sums in another order.
    assert torch.allclose(whole.weight, parts.weight, atol=1e-5)


def test_features_of_a_model_are_its_attention_between_words_and_its_word_table(tiny_model):
    predictor = Predictor.load(tiny_model)
    trees = list(read_treebank(samples.path("sentences.conllu")))[:3]
    encodings = predictor.tokenizer.encode(
        [tree.text for tree in trees], max_length=64, with_offsets=True
    )
    found = probe_sentences(predictor.model, trees, encodings)
    table = predictor.model.encoder.embeddings.word.weight
    fresh = untrained(predictor.model)
    for one, tree, encoding in zip(found, trees, encodings, strict=True):
        count = len(tree.words)
        batch = pack([encoding.input_ids], [encoding.token_type_ids])
        for model, features in ((predictor.model, one.attention), (fresh, one.untrained)):
            (maps,) = attention_maps(model, batch)
            for layer in range(2):
                for head in range(4):
                    wanted = merged(maps[layer, head].numpy(), words_of(encoding, tree), count)
                    # Half precision has 11 bits.
                    np.testing.assert_allclose(features[4 * layer + head], wanted, atol=5e-4)
        assert one.attention.shape == one.untrained.shape == (8, count, count)
        asked = [r not in ("punct", "root") for r in tree.relations]
        assert one.heads.tolist() == np.where(asked, tree.heads, -1).tolist()
    # "The" is a token of its own.
    at = predictor.tokenizer.id_of("the")
    assert torch.allclose(found[0].words[0], table[at], atol=1e-6)
    # The control keeps the tables of the embeddings and nothing else.
    own, drawn = predictor.model.encoder.state_dict(), fresh.encoder.state_dict()
    is_same = {name: torch.equal(own[name], drawn[name]) for name in own if own[name].dim() > 1}
    assert is_same == {name: name.startswith("embeddings.") for name in is_same}
    state = torch.random.get_rng_state()
    twice = [untrained(predictor.model).state_dict() for _ in range(2)]
    assert all(torch.equal(twice[0][name], twice[1][name]) for name in twice[0])
    assert torch.equal(state, torch.random.get_rng_state())


def test_sentences_without_dependencies_are_told_in_a_sentence(known):
    train, dev = known
    nothing = [
        ProbeSentence(s.attention, s.untrained, s.words, torch.full_like(s.heads, -1)) for s in dev
    ]
    with pytest.raises(InputError, match="no dependency between two words in the judged"):
        study_dependencies(train, nothing)
    with pytest.raises(InputError, match="in the training"):
        study_dependencies(nothing, dev)
    with pytest.raises(ConfigError, match="steps is 0"):
        study_dependencies(train, dev, steps=0)
