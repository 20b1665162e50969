"""The BiGRU over packed sequences: each is read as if it were alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from filbert.batch import pack, split
from filbert.errors import ConfigError, InputError
from filbert.model.bigru import BiGRU, time_order
from filbert.model.config import EncoderConfig
from filbert.model.encoder import initialize

CONFIG = EncoderConfig(
    vocab_size=20,
    embedding_size=6,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=0,
    intermediate_size=0,
    type_vocab_size=0,
    recurrent=True,
    pooled="mean+max",
    pooler=None,
    hidden_dropout=0.5,
)
# Of unequal lengths, not in order of length, one of a single word.
SEQUENCES = [[3, 4, 5], [7], [1, 2, 3, 4, 5, 6], [9, 8], [5, 5, 5]]
# Sums in another order, of numbers around 1.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def drawn(config: EncoderConfig = CONFIG) -> BiGRU:
    torch.manual_seed(0)
    model = BiGRU(config)
    initialize(model, 0.5)
    for layer in model.layers:
        for name, weights in layer.gru.named_parameters():
            if name.startswith("bias"):
                torch.nn.init.normal_(weights)
    return model.eval()


def alone(model: BiGRU, ids: list[int]) -> Tensor:
    """torch's own GRUs over one sequence, without packing."""
    rows = model.embeddings.word(torch.tensor(ids))
    for layer in model.layers:
        rows = layer.gru(rows)[0]
    return rows


@pytest.mark.parametrize("layers", [1, 3])
def test_every_sequence_of_a_batch_is_read_as_torch_reads_it_alone(layers):
    model = drawn(replace(CONFIG, num_hidden_layers=layers))
    found = split(model(batch := pack(SEQUENCES)), batch)
    for ids, states in zip(SEQUENCES, found, strict=True):
        torch.testing.assert_close(states, alone(model, ids), **CLOSE)


def test_the_order_of_the_sequences_does_not_matter():
    model = drawn()
    backwards = split(model(batch := pack(SEQUENCES[::-1])), batch)
    for one, other in zip(
        split(model(batch := pack(SEQUENCES)), batch), backwards[::-1], strict=True
    ):
        torch.testing.assert_close(one, other, **CLOSE)


def test_the_gradient_is_that_of_the_sequences_one_by_one():
    model = drawn()
    model.pool(model(batch := pack(SEQUENCES)), batch).square().sum().backward()
    packed = {name: weights.grad.clone() for name, weights in model.named_parameters()}
    model.zero_grad()
    for ids in SEQUENCES:
        states = alone(model, ids)
        pooled = torch.cat([states.mean(0), states.amax(0)])
        pooled.square().sum().backward()
    for name, weights in model.named_parameters():
        torch.testing.assert_close(packed[name], weights.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("pooled", "wanted"),
    [
        ("mean", [[2.0, 1.0], [7.0, -8.0]]),
        ("max", [[3.0, 5.0], [7.0, -8.0]]),
        ("mean+max", [[2.0, 1.0, 3.0, 5.0], [7.0, -8.0, 7.0, -8.0]]),
    ],
)
def test_pooling_by_hand(pooled, wanted):
    config = replace(CONFIG, hidden_size=2, pooled=pooled)
    states = torch.tensor([[1.0, -3.0], [3.0, 5.0], [7.0, -8.0]])
    found = BiGRU(config).pool(states, pack([[1, 1], [1]]))
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=0, atol=0)
    assert config.pooled_size == len(wanted[0])


def test_tokens_go_by_time_the_longest_sequence_first():
    order = time_order(pack([[10], [20, 21, 22], [30, 31]]))
    assert order.by_time.tolist() == [1, 4, 0, 2, 5, 3]
    assert order.batch_sizes.tolist() == [3, 2, 1]
    assert order.by_time[order.back].tolist() == list(range(6))


def test_dropout_takes_the_same_elements_from_all_words_of_a_sequence():
    torch.manual_seed(1)
    model = drawn().train()
    words = model.embeddings(pack([[5, 5, 5, 5], [5, 5]]))
    first, second = split(words, pack([[5, 5, 5, 5], [5, 5]]))
    assert (first == first[0]).all() and (second == second[0]).all()
    kept = words != 0
    assert 0 < int(kept[0].sum()) < 6, "some are dropped, some are not"
    scaled = 2.0 * model.embeddings.word.weight[5]
    torch.testing.assert_close(words[0][kept[0]], scaled[kept[0]])
    assert not torch.equal(first[0], second[0]), "each sequence has a draw of its own"


def test_autocast_does_not_round_the_recurrence():
    model, batch = drawn(), pack(SEQUENCES)
    exact = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(batch), exact)


def test_a_bf16_model_reads_in_bf16():
    model, batch = drawn(), pack(SEQUENCES)
    rounded = drawn().to(torch.bfloat16)(batch)
    assert rounded.dtype == torch.bfloat16
    # States are below 1 in size, and bf16 keeps 8 bits of each of some steps.
    torch.testing.assert_close(rounded.float(), model(batch), rtol=0, atol=0.05)


def test_a_sequence_beyond_the_limit_is_refused():
    with pytest.raises(InputError, match="A sequence of 6 words; this model reads up to 5"):
        drawn(replace(CONFIG, max_position_embeddings=5))(pack(SEQUENCES))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 7}, "hidden_size is 7; two directions share it evenly"),
        ({"causal": True}, "read every text from both ends"),
        ({"pooled": "cls"}, "pooled 'cls' is not one of"),
        ({"pooler": "tanh"}, "have no pooler"),
        ({"recurrent": False}, "num_attention_heads is 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(CONFIG, **changes)


def test_new_weights_are_orthogonal_within_and_biases_are_zero():
    model = BiGRU(CONFIG)
    initialize(model, 0.02)
    gru = model.layers[0].gru
    for gate in gru.weight_hh_l0_reverse.chunk(3):
        torch.testing.assert_close(gate @ gate.T, torch.eye(4), rtol=0, atol=1e-5)
    assert not gru.bias_ih_l0.any() and not gru.bias_hh_l0.any()
    assert model.embeddings.word.weight.abs().max() <= 0.04


def test_the_gru_is_handed_no_padding():
    model, seen = drawn(), []
    model.layers[0].gru.register_forward_pre_hook(lambda gru, given: seen.append(given[0]))
    model(pack(SEQUENCES))
    ((rows, batch_sizes, *_),) = seen
    assert len(rows) == 15
    assert batch_sizes.tolist() == [5, 4, 3, 1, 1, 1]
