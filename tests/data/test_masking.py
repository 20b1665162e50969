"""Which tokens are masked, and what stands there instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filbert.data.draws import keys_of, uniform
from filbert.data.masking import (
    STYLES,
    UNITS,
    Masker,
    ObjectiveOptions,
    TokenRows,
    choose_ngrams,
    choose_spans,
    mask,
)
from filbert.errors import ConfigError
from filbert.text.tokenizer import Tokenizer

CLS, SEP, MASK = 2, 3, 4
PIECES = range(20, 24)  # the ids of ##ly ##ing ##ed ##s in the tiny vocabulary


def masker_of(
    tiny: Tokenizer,
    unit: str = "token",
    style: str = "bert",
    rate: float = 0.15,
    weights: np.ndarray | None = None,
):
    options = ObjectiveOptions(
        masking=unit, mask_style=style, mask_rate=rate, max_predictions=10**6
    )
    return Masker(tiny, options, weights)


def random_rows(lengths: list[int], seed: int = 0) -> tuple[TokenRows, np.ndarray]:
    """Rows of CLS, words and pieces of the tiny vocabulary, a SEP in the middle and one behind."""
    draw = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        row = draw.integers(5, 34, length)
        row[0], row[-1], row[length // 2] = CLS, SEP, SEP
        rows.append(row)
    starts = np.cumsum([0, *lengths])
    keys = keys_of(seed, 0, np.arange(len(lengths)))
    return TokenRows(np.concatenate(rows).astype(np.int32), starts, keys), starts


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("style", STYLES)
def test_labels_are_what_stood_there_and_all_else_stays(tiny, unit, style):
    rows, starts = random_rows([9, 40, 128, 64])
    masked, targets = mask(rows, masker_of(tiny, unit, style))
    for begin, end, (positions, labels) in zip(starts, starts[1:], targets, strict=False):
        before, after = rows.ids[begin:end], masked[begin:end].copy()
        assert positions.tolist() == sorted(set(positions.tolist()))
        assert positions.dtype == labels.dtype == np.int64
        assert np.array_equal(before[positions], labels)
        after[positions] = labels
        assert np.array_equal(before, after)
        assert not np.isin(labels, [CLS, SEP, MASK]).any(), "special tokens are never masked"


def test_the_number_of_masks_is_rounded_half_to_even_and_counts_special_tokens(tiny):
    lengths = list(range(4, 300))
    rows, _ = random_rows(lengths)
    _, targets = mask(rows, masker_of(tiny))
    assert [len(p) for p, _ in targets] == [max(1, round(0.15 * n)) for n in lengths]
    assert round(0.15 * 30) == 4 and round(0.15 * 50) == 8, "the lengths hold both kinds of halves"


def test_chance_decides_about_the_fraction_of_a_mask(tiny):
    rows, _ = random_rows([50] * 2000)
    counts = np.array([len(p) for p, _ in mask(rows, masker_of(tiny, style="roberta"))[1]])
    assert set(counts.tolist()) == {7, 8}
    assert abs((counts == 8).mean() - 0.5) < 4 * 0.5 / 2000**0.5, "four standard errors"


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("style", STYLES)
def test_a_row_is_masked_the_same_alone_and_in_company(tiny, unit, style):
    rows, starts = random_rows([30, 128, 77, 12])
    masker = masker_of(tiny, unit, style)
    together, targets = mask(rows, masker)
    for r, (begin, end) in enumerate(zip(starts, starts[1:], strict=False)):
        alone = TokenRows(rows.ids[begin:end], np.array([0, end - begin]), rows.keys[r : r + 1])
        masked, [target] = mask(alone, masker)
        assert np.array_equal(masked, together[begin:end])
        assert np.array_equal(target[0], targets[r][0])


@pytest.mark.parametrize("unit", ["word", "ngram", "span"])
def test_words_are_masked_whole_or_not_at_all(tiny, unit):
    rows, starts = random_rows([60] * 50)
    _, targets = mask(rows, masker_of(tiny, unit))
    for begin, (positions, _) in zip(starts, targets, strict=False):
        chosen = set(positions.tolist())
        row = rows.ids[begin : begin + 60]
        for at in range(1, 60):
            if row[at] in PIECES and row[at - 1] not in (CLS, SEP):
                assert (at in chosen) == (at - 1 in chosen)


def test_a_sentence_begins_a_word_even_where_its_first_piece_does_not_look_so(tiny):
    ids = np.array([CLS, *[20] * 42, SEP], dtype=np.int32)  # ##ly, 42 times: one word
    rows = TokenRows(ids, np.array([0, 44]), keys_of(0, 0, np.arange(1)))
    masker = masker_of(tiny, "word")
    assert [len(p) for p, _ in mask(rows, masker)[1]] == [0], "a word of 42 would overshoot 7"
    fresh = np.zeros(44, dtype=bool)
    fresh[1:43:3] = True
    [(positions, _)] = mask(TokenRows(ids, rows.starts, rows.keys, fresh), masker)[1]
    assert len(positions) == 6, "two words of three"


def test_random_words_are_any_entry_or_any_but_the_special_ones(tiny):
    rows, _ = random_rows([128] * 3000)
    drawn = {}
    for style in ("bert", "roberta"):
        masked, _ = mask(rows, masker_of(tiny, style=style))
        drawn[style] = set(masked[masked != rows.ids].tolist())
    assert drawn["bert"] == set(range(34)), "the whole vocabulary, special tokens included"
    assert drawn["roberta"] == {MASK, *range(5, 34)}


def test_with_replacement_some_places_are_met_twice_and_none_is_random(tiny):
    rows, _ = random_rows([128] * 500)
    masked, targets = mask(rows, masker_of(tiny, style="electra"))
    counts = np.array([len(p) for p, _ in targets])
    assert counts.max() <= 19 and 17 < counts.mean() < 18.2, "19 draws of 125 meet 17.7 places"
    changed = masked != rows.ids
    assert set(masked[changed].tolist()) == {MASK}


def test_tokens_are_drawn_by_their_weights_without_replacement(tiny):
    # CLS a b c SEP with weights 1, 2 and 3, one mask a row, then two.
    count, weights = 20_000, np.ones(tiny.vocab_size)
    weights[[10, 11, 12]] = 1, 2, 3
    ids = np.tile(np.array([CLS, 10, 11, 12, SEP], np.int32), count)
    rows = TokenRows(ids, np.arange(0, 5 * count + 1, 5), keys_of(0, 0, np.arange(count)))
    masker = masker_of(tiny, weights=weights)
    first = np.bincount([p[0] for p, _ in mask(rows, masker)[1]], minlength=4)[1:] / count
    assert np.abs(first - np.array([1, 2, 3]) / 6).max() < 0.01
    targets = mask(rows, masker_of(tiny, rate=0.4, weights=weights))[1]
    assert {len(p) for p, _ in targets} == {2}
    left = np.bincount([6 - int(p.sum()) for p, _ in targets], minlength=4)[1:] / count
    # The one that is left: by hand from the two orders in which the others can be drawn.
    assert left[0] == pytest.approx(2 / 6 * 3 / 4 + 3 / 6 * 2 / 3, abs=0.01)
    assert left[2] == pytest.approx(1 / 6 * 2 / 5 + 2 / 6 * 1 / 4, abs=0.01)


def test_a_vocabulary_without_mask_token_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no mask token"):
        Masker(Tokenizer.load(tmp_path), ObjectiveOptions())


@pytest.mark.parametrize(
    ("folder", "begins", "goes_on"),
    [("roberta-base", "Ġhouse", "house"), ("albert-base-v2", "▁house", "house")],
)
def test_each_kind_of_vocabulary_says_in_its_own_way_that_a_word_goes_on(
    shared_data, folder, begins, goes_on
):
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / folder)
    masker = masker_of(tokenizer)
    assert not masker.continues[tokenizer.id_of(begins)]
    assert masker.continues[tokenizer.id_of(goes_on)]


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=30)


@given(sizes, st.integers(1, 20), st.randoms(use_true_random=False))
def test_no_choice_of_words_overshoots_or_overlaps(given_sizes, wanted, draw):
    order = list(range(len(given_sizes)))
    draw.shuffle(order)
    chances = [draw.random() for _ in given_sizes]
    breaks = [draw.random() < 0.1 for _ in given_sizes]
    for chosen, most in (
        (choose_ngrams(given_sizes, order, wanted, chances, 1), 1),
        (choose_ngrams(given_sizes, order, wanted, chances), 3),
        (choose_spans(given_sizes, breaks, order, wanted, chances), 10),
    ):
        words = [word for begin, end in chosen for word in range(begin, end)]
        assert len(words) == len(set(words))
        assert sum(given_sizes[word] for word in words) <= wanted
        assert all(1 <= end - begin <= most for begin, end in chosen)
    for begin, end in choose_spans(given_sizes, breaks, order, wanted, chances):
        assert not any(breaks[begin + 1 : end]), "a span stays in its segment"


def test_lengths_of_ngrams_and_spans_have_the_published_distributions():
    draws = ((np.arange(20_000) + 0.5) / 20_000).tolist()
    grams = [choose_ngrams([1] * 9, [4], 99, [chance] * 9)[0] for chance in draws]
    shares = np.bincount([end - begin for begin, end in grams], minlength=4)[1:] / 20_000
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=1e-4), "1/n over n = 1, 2, 3"
    at_the_end = [choose_ngrams([1] * 9, [7], 99, [chance] * 9)[0] for chance in draws]
    assert np.mean([end - begin == 2 for begin, end in at_the_end]) == pytest.approx(
        1 / 3, abs=1e-4
    )
    spans = [choose_spans([1] * 30, [False] * 30, [4], 99, [chance] * 30)[0] for chance in draws]
    lengths = np.array([end - begin for begin, end in spans])
    assert lengths.mean() == pytest.approx(3.797, abs=1e-3), "the paper says 3.8"
    assert (lengths == 2).mean() / (lengths == 1).mean() == pytest.approx(0.8, abs=1e-3)


def test_every_draw_has_chance_of_its_own():
    numbers = np.arange(1000)
    families = [
        keys_of(seed, version, numbers, use=use)
        for seed in (0, 1)
        for version in (0, 1)
        for use in (0, 1)
    ]
    assert len(np.unique(np.concatenate(families))) == 8000
    key = families[0]
    draws = [uniform(key, stream, np.zeros(1)) for stream in range(3)]
    draws += [uniform(key, 0, np.ones(1))]
    correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / 1000**0.5, "four standard errors of no correlation"
