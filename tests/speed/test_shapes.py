"""Few sizes of batches, and the same answers from them."""

import numpy as np
import pytest
import torch

from filbert.batch import PackedBatch, pack
from filbert.data.examples import Example
from filbert.inference import forward as execution
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.precision import Precision
from filbert.model.shapes import few_rows, few_shapes, next_size

TINY = EncoderConfig.of(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)
EXACT = Precision("float32", "")


def model_of(kind: str | None = None, **changes) -> Model:
    torch.manual_seed(0)
    config = TINY.changed(**changes)
    model = Model(Encoder(config), new_head(kind, config, 3) if kind else None)
    initialize(model, 0.2)
    return model.eval()


def test_sizes_are_few_and_at_most_a_sixteenth_too_large():
    sizes = [next_size(count) for count in range(1, 2049)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 144
    assert sizes[:34] == [*range(1, 33), 34, 34]
    assert all(count <= size <= count * 17 / 16 for count, size in enumerate(sizes, 1))
    assert all(next_size(size) == size for size in set(sizes))


@pytest.mark.parametrize("count", [1, 2, 3, 31, 33, 80])
def test_tokens_and_sequences_get_one_of_the_sizes_and_real_ones_come_first(count):
    lengths = np.random.default_rng(count).integers(1, 65, count).tolist()
    batch = pack([np.arange(length) % 50 for length in lengths])
    filled = few_shapes(batch, model_of())
    assert filled.num_tokens == next_size(filled.num_tokens) >= sum(filled.lengths)
    assert filled.num_sequences == next_size(count)
    assert filled.lengths == (*lengths, *[1] * (next_size(count) - count))
    for name in ("input_ids", "position_ids", "token_type_ids"):
        row = getattr(filled, name)
        assert torch.equal(row[: batch.num_tokens], getattr(batch, name)), name
        assert row.shape == (filled.num_tokens,) and not row[batch.num_tokens :].any()


def test_rows_asked_for_get_one_of_the_sizes_too():
    assert few_rows(torch.arange(5, 38)).tolist() == [*range(5, 38), 5]
    assert few_rows(torch.arange(0)).tolist() == []


@pytest.mark.parametrize("what", ["sequence", "tokens", "mean", "cls", "of means"])
def test_what_is_filled_in_changes_no_answer_and_is_not_in_it(what, monkeypatch):
    draw = np.random.default_rng(0)
    examples = [
        Example(i, draw.integers(5, 50, n), np.zeros(n, dtype=np.int64), n)
        for i, n in enumerate((33, 5, 60, 41, 7, 7, 3) * 7)
    ]
    seen: list[int] = []

    def answers() -> list[torch.Tensor]:
        if what in ("mean", "cls"):
            options = {"layers": (2,), "pooling": what, "max_tokens": 700, "precision": EXACT}
            return [
                torch.from_numpy(v) for v in execution.run_vectors(model_of(), examples, **options)
            ]
        kind = {"of means": "sequence"}.get(what, what)
        model = model_of(kind, pooled="mean" if what == "of means" else "cls", rotary_base=100.0)
        return execution.run_model(model, examples, max_tokens=700, precision=EXACT)

    def watched(batch: PackedBatch, model: Model) -> PackedBatch:
        seen.append(few_shapes(batch, model).num_tokens - batch.num_tokens)
        return few_shapes(batch, model)

    monkeypatch.setattr(execution, "few_shapes", watched)
    found = answers()
    assert max(seen) > 0
    monkeypatch.setattr(execution, "few_shapes", lambda batch, model: batch)
    # Another number of rows may take another matrix kernel.
    torch.testing.assert_close(found, answers(), atol=1e-6, rtol=0)
