from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from filbert.batch import pack, split
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_layers
from filbert.errors import ConfigError, FormatError
from filbert.shrink.heads import most_important, named_heads, prune_heads
from filbert.shrink.importance import masked_heads
from filbert.speed.flops import forward_flops

KEPT = ((0, 2), (3,), (0, 1, 2, 3))
GONE = [(0, 1), (0, 3), (1, 0), (1, 1), (1, 2)]
# Sums of fewer products, in another order.
TOLERANCE = 1e-6


def test_a_model_without_some_heads_answers_like_the_whole_one_with_them_masked(drawn, batch):
    checkpoint = drawn()
    model = checkpoint.build()
    whole = model(batch)
    with masked_heads(model, GONE):
        masked = model(batch)
    pruned = prune_heads(checkpoint, KEPT)
    assert (pruned.build()(batch) - masked).abs().max() < TOLERANCE
    assert (masked - whole).abs().max() > 1e-3, "the masked heads matter"
    assert torch.equal(model(batch), whole), "after the block all is as before"
    assert pruned.tensors["encoder.layers.1.qkv.weight"].shape == (3 * 8, 32)
    assert pruned.tensors["encoder.layers.1.attention_out.weight"].shape == (32, 8)


def test_pruned_heads_are_arithmetic_saved(drawn):
    config = drawn().config
    flops = [
        forward_flops(found, [10, 4], num_masked=0)
        for found in (config, prune_heads(drawn(), KEPT).config)
    ]
    # Five heads of eight: four products of 32 x 8 a token, and two of 8 a pair of tokens.
    assert flops[0] - flops[1] == 2 * 5 * (14 * 4 * 32 * 8 + 2 * 8 * (100 + 16))


def test_heads_can_be_pruned_twice_and_layers_dropped_between(drawn, batch):
    checkpoint = drawn()
    once = with_layers(prune_heads(checkpoint, KEPT), (0, 2))
    assert once.config.heads_per_layer == (2, 4)
    twice = prune_heads(once, ((1,), (0, 3)))
    at_once = prune_heads(with_layers(checkpoint, (0, 2)), ((2,), (0, 3)))
    assert twice.config == at_once.config
    assert torch.equal(twice.build()(batch), at_once.build()(batch))


def test_a_pruned_model_with_rotary_positions_and_local_layers_answers_like_the_masked_one(
    drawn, batch
):
    checkpoint = drawn(
        kind=None,
        type_vocab_size=0,
        rotary_base=10_000.0,
        local_window=4,
        global_every=2,
        pre_norm=True,
        gated=True,
        biases=False,
        pooler=None,
    )
    model = checkpoint.build()
    with masked_heads(model, GONE):
        masked = model(batch)
    assert (prune_heads(checkpoint, KEPT).build()(batch) - masked).abs().max() < TOLERANCE


def test_a_pruned_model_trains_as_it_answers(drawn, batch):
    model = prune_heads(drawn(), KEPT).build().train()
    out = model(batch)
    assert isinstance(out, torch.Tensor)
    out.sum().backward()
    grads = [layer.qkv.weight.grad for layer in model.encoder.layers]
    assert all(grad is not None and bool(grad.abs().sum() > 0) for grad in grads)


def test_a_pruned_folder_is_read_back_and_config_json_says_what_is_missing(drawn, batch, tmp_path):
    pruned = prune_heads(drawn(), KEPT)
    huggingface.write(pruned, tmp_path)
    again = huggingface.read(tmp_path)
    assert again.config == pruned.config
    assert torch.equal(again.build()(batch), pruned.build()(batch))
    assert '"pruned_heads": {\n    "0": [\n      2,\n      3\n' in (
        tmp_path / "config.json"
    ).read_text("utf-8")


@pytest.mark.parametrize(
    "pruned",
    [
        {"0": [0, 1, 2, 3]}, {"3": [0]}, {"0": [4]}, {"0": [1, 1]}, {"0": 1}, {"x": [1]}, [1], "a",
        {"0": [True]}, {"99999999999": [0]}, {"0": [[1]]},
    ],
)  # fmt: skip
def test_pruned_heads_that_cannot_be_are_refused(drawn, tmp_path, pruned):
    huggingface.write(drawn(), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "pruned_heads": pruned}))
    with pytest.raises(FormatError, match="pruned_heads is "):
        huggingface.read(tmp_path)


def test_heads_of_shared_layers_and_recurrent_ones_are_refused(drawn):
    with pytest.raises(ConfigError, match="share their weights"):
        prune_heads(drawn(kind=None, num_hidden_groups=1), KEPT)
    with pytest.raises(ConfigError, match="heads_per_layer is"):
        replace(drawn().config, heads_per_layer=(2, 0, 4))
    with (
        pytest.raises(ConfigError, match="There is no head 4 in layer 0"),
        masked_heads(drawn().build(), [(0, 4)]),
    ):
        pass


def test_the_most_important_heads_stay_and_every_layer_keeps_its_best():
    importance = torch.tensor([[3.0, 4.0, 0.0], [0.02, 0.01, 0.02], [1.0, torch.nan, torch.nan]])
    # By layer of length 1: 0.6 0.8 0 | 0.67 0.33 0.67 | 1.
    assert most_important(importance, 3) == ((1,), (0,), (0,))
    assert most_important(importance, 4) == ((1,), (0, 2), (0,))
    assert most_important(importance, 5) == ((0, 1), (0, 2), (0,))
    assert most_important(importance, 7) == ((0, 1, 2), (0, 1, 2), (0,))
    for count in (2, 8):
        with pytest.raises(ConfigError, match="7 heads in 3 layers"):
            most_important(importance, count)


def test_heads_are_named_by_layer(drawn):
    config = drawn().config
    assert named_heads(["1:3,0"], config) == ((0, 1, 2, 3), (0, 3), (0, 1, 2, 3))
    assert named_heads(["0:0", "2: 1, 2"], config) == ((0,), (0, 1, 2, 3), (1, 2))
    for wrong in (["3:0"], ["0:4"], ["0:"], ["0"], ["0:1", "0:2"], ["a:1"]):
        with pytest.raises(ConfigError, match="layer:head,head"):
            named_heads(wrong, config)


def test_a_sequence_of_a_pruned_model_scores_the_same_alone_and_in_company(drawn, batch):
    model = prune_heads(drawn(kind=None), KEPT).build()
    together = split(model(batch), batch)
    alone = model(pack([[7, 8, 9]]))
    assert (together[1] - alone).abs().max() < TOLERANCE
