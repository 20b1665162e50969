"""Pre-training rows: their shape, and that they are a pure function of (seed, epoch, row)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.corpora import write_corpus

from filbert.data.examples import Example
from filbert.data.instances import Instances, ObjectiveOptions, PretrainLoader, fixed_examples
from filbert.data.shards import Corpus
from filbert.errors import ConfigError

CLS, SEP = 2, 3
OBJECTIVES = [
    ObjectiveOptions(max_length=24),
    ObjectiveOptions(max_length=24, pair="nsp", masking="word"),
    ObjectiveOptions(max_length=24, pair="sop", masking="ngram", mask_style="roberta"),
    ObjectiveOptions(max_length=24, masking="span", mask_style="electra"),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    """50 documents of 1 to 12 sentences of 1 to 20 tiny tokens, in three shards."""
    draw = np.random.default_rng(0)
    documents = [
        [draw.integers(5, 34, draw.integers(1, 21)).tolist() for _ in range(draw.integers(1, 13))]
        for _ in range(50)
    ]
    return write_corpus(tmp_path_factory.mktemp("corpus"), documents, shard_documents=20)


def loader_of(corpus, tokenizer, options=OBJECTIVES[0], **changed) -> PretrainLoader:
    settings = {"batch_size": 16, "max_tokens": 100, "seed": 3, **changed}
    return PretrainLoader(corpus, tokenizer, options, **settings)


def content(example: Example) -> tuple:
    """All of an example, comparable."""
    target = example.target
    arrays = (example.input_ids, example.token_type_ids, target.positions, target.labels)
    return (example.row, example.num_tokens, target.pair, *(tuple(a.tolist()) for a in arrays))


def contents(micro_batches: list[list[Example]]) -> list[tuple]:
    return [content(example) for batch in micro_batches for example in batch]


def text_of(example: Example) -> list[int]:
    """The ids before masking."""
    ids = example.input_ids.copy()
    ids[example.target.positions] = example.target.labels
    return ids.tolist()


def test_full_sentences_read_together_are_the_corpus_with_a_separator_at_every_border(corpus, tiny):
    examples = fixed_examples(corpus, tiny, OBJECTIVES[0])
    rows = [text_of(example) for example in examples]
    assert all(row[0] == CLS and row[-1] == SEP and len(row) <= 24 for row in rows)
    tokens = [token for row in rows for token in row[1:-1] if token != SEP]
    assert tokens == corpus.tokens(0, corpus.num_tokens).tolist()
    borders, firsts = corpus.marks()
    starts = set(borders[firsts[1:-1]].tolist())
    ends = np.cumsum([sum(token != SEP for token in row[1:-1]) for row in rows])
    inside = len(starts - set(ends.tolist()))
    assert sum(row[1:-1].count(SEP) for row in rows) == inside > 5


@pytest.mark.parametrize("options", OBJECTIVES[1:3])
def test_a_pair_is_cls_a_sep_b_sep_with_the_types_of_its_segments(corpus, tiny, options):
    for example in fixed_examples(corpus, tiny, options):
        row = text_of(example)
        assert row[0] == CLS and row[-1] == SEP and row.count(SEP) == 2
        first = row.index(SEP)
        assert 1 < first < len(row) - 2, "no segment is empty"
        types = [0] * (first + 1) + [1] * (len(row) - first - 1)
        assert example.token_type_ids.tolist() == types
        assert example.num_tokens == len(row) <= 24
        assert example.target.pair in (0, 1)


@pytest.mark.parametrize("options", OBJECTIVES)
def test_a_step_is_the_same_after_a_restart_and_in_any_order(corpus, tiny, options):
    first, second = loader_of(corpus, tiny, options), loader_of(corpus, tiny, options)
    steps = range(3 * first.steps_per_epoch)
    backwards = {step: contents(second.step(step)) for step in reversed(steps)}
    assert [contents(first.step(step)) for step in steps] == [backwards[step] for step in steps]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(OBJECTIVES), st.integers(1, 4), st.integers(10, 200), st.integers(0, 40)
)  # fmt: skip
def test_a_step_has_the_same_rows_for_any_number_of_ranks_and_any_max_tokens(
    corpus, tiny, options, world, max_tokens, step
):
    whole = loader_of(corpus, tiny, options)
    loader = loader_of(corpus, tiny, options)
    loader.max_tokens = max_tokens
    shares = [loader.step(step, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    together = [row for share in shares for row in contents(share)]
    assert sorted(together) == sorted(contents(whole.step(step)))
    assert sorted(together) == sorted(contents(whole.rows_of(step)))
    for share in shares:
        for batch in share:
            assert sum(len(e.input_ids) for e in batch) <= max_tokens or len(batch) == 1


def epoch_of(loader: PretrainLoader, epoch: int) -> list[tuple]:
    """The rows of an epoch, where a step is one row."""
    steps = range(epoch * loader.num_rows, (epoch + 1) * loader.num_rows)
    return [content(row[0]) for step in steps for row in loader.rows_of(step)]


@pytest.mark.parametrize("options", OBJECTIVES[:2])
def test_an_epoch_has_every_row_of_its_plan_once(corpus, tiny, options):
    loader = loader_of(corpus, tiny, options, batch_size=1)
    found = [row[0] for row in epoch_of(loader, 0)]
    assert sorted(found) == list(range(loader.num_rows)) and found != sorted(found)


@pytest.mark.parametrize("pair", ["none", "sop"])
def test_static_data_repeats_after_as_many_epochs_as_there_are_duplicates(corpus, tiny, pair):
    options = ObjectiveOptions(max_length=24, pair=pair, duplicates=2)
    loader = loader_of(corpus, tiny, options, batch_size=1)
    epochs = [epoch_of(loader, epoch) for epoch in range(4)]
    known = [{content(e) for e in loader.instances.examples(v, np.arange(n))}
             for v in (0, 1) for n in [len(loader.instances.plan(v))]]  # fmt: skip
    for epoch, rows in enumerate(epochs):
        assert set(rows) <= known[epoch % 2]
    assert epochs[0] != epochs[2], "in another order"
    assert len(known[0] & known[1]) < 0.2 * len(known[0])


@pytest.mark.parametrize("pair", ["none", "nsp"])
def test_dynamic_data_is_new_in_every_epoch(corpus, tiny, pair):
    options = ObjectiveOptions(max_length=24, pair=pair)
    loader = loader_of(corpus, tiny, options, batch_size=1)
    first, third = set(epoch_of(loader, 0)), set(epoch_of(loader, 2))
    assert len(first & third) < 0.2 * len(first)


def test_steps_follow_each_other_without_gap_over_the_end_of_an_epoch(corpus, tiny):
    single = loader_of(corpus, tiny, batch_size=1)
    loader = loader_of(corpus, tiny, batch_size=15)
    assert loader.num_rows % 15, "the epoch ends within a step"
    assert loader.steps_per_epoch == -(-loader.num_rows // 15)
    last = loader.steps_per_epoch - 1
    wanted = [single.rows_of(row)[0][0] for row in range(15 * last, 15 * last + 15)]
    assert sorted(map(content, wanted)) == sorted(contents(loader.rows_of(last)))


def test_fixed_examples_are_the_same_in_every_call_and_spread_over_the_corpus(corpus, tiny):
    whole = [content(e) for e in fixed_examples(corpus, tiny, OBJECTIVES[1])]
    assert whole == [content(e) for e in fixed_examples(corpus, tiny, OBJECTIVES[1])]
    some = [content(e) for e in fixed_examples(corpus, tiny, OBJECTIVES[1], limit=5)]
    assert len(some) == 5 and set(some) <= set(whole)
    assert some[-1][0] > 0.7 * len(whole)
    assert len(fixed_examples(corpus, tiny, OBJECTIVES[1], limit=10**6)) == len(whole)


@pytest.mark.parametrize("rarity", [0.7, 1])
def test_rare_tokens_are_masked_more_often_by_their_counts(corpus, tiny, monkeypatch, rarity):
    ids = corpus.tokens(0, corpus.num_tokens)
    counts = np.array([max(1, int((ids == number).sum())) for number in range(tiny.vocab_size)])
    monkeypatch.setattr("filbert.data.instances._COUNTED", 1000)
    assert corpus.num_tokens > 2000, "more than one stretch is counted"
    loader = loader_of(corpus, tiny, ObjectiveOptions(max_length=24, mask_rarity=rarity))
    assert loader.instances.masker.weights == pytest.approx((1.0 * counts) ** -rarity)
    assert loader_of(corpus, tiny).instances.masker.weights is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pair": "mlm"}, "none, nsp, sop"),
        ({"masking": "words"}, "token, word, ngram, span"),
        ({"mask_style": "albert"}, "bert, roberta, electra"),
        ({"mask_rarity": -0.1}, "from 0 to 10"),
        ({"mask_rarity": 0.7, "masking": "word"}, "draws single tokens"),
        ({"mask_rate": 0.0}, "between 0 and 1"),
        ({"short_rate": 1.5}, "from 0 to 1"),
        ({"max_length": 7}, "at least 8"),
        ({"duplicates": 0}, "at least 1"),
    ],
)
def test_an_impossible_option_is_refused_with_what_is_possible(corpus, tiny, wrong, message):
    with pytest.raises(ConfigError, match=message):
        loader_of(corpus, tiny, ObjectiveOptions(**wrong))


def test_the_rows_of_a_seed_are_these(tmp_path, tiny):
    """A golden row: a change of the draws would silently change every run that is resumed."""
    corpus = write_corpus(tmp_path, [[[5, 6, 7, 8, 9, 10], [11, 12, 13, 14]]])
    found = [
        Instances(corpus, tiny, ObjectiveOptions(mask_rate=0.4), seed)
        .examples(0, np.arange(1))[0]
        .input_ids
        for seed in range(3)
    ]
    assert [ids.tolist() for ids in found] == [
        [2, 5, 4, 4, 8, 9, 10, 11, 4, 4, 14, 3],
        [2, 4, 4, 7, 8, 4, 4, 11, 4, 13, 14, 3],
        [2, 5, 4, 4, 8, 4, 4, 11, 12, 13, 14, 3],
    ]
