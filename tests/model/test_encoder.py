"""Sizes of published encoders, positions, and what a head asks for."""

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.errors import InputError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import MaskedLMHead, Model, new_head

BASE = sizes(vocab_size=30_522, layers=12, width=768, heads=12, inner=3072)
TINY = EncoderConfig.of(
    vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
)


def tiny(**changes) -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder(TINY.changed(**changes)).eval()
    initialize(encoder, 0.1)
    return encoder


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, 109_482_240),
        (
            sizes(layers=24, width=1024, heads=16, inner=4096),
            335_141_888,
        ),
        ({"num_hidden_layers": 6, "type_vocab_size": 0, "pooler": None}, 66_362_880),
    ],
    ids=["base", "large", "distilbert"],
)
def test_parameter_counts_are_the_published_ones(changes, parameters):
    with torch.device("meta"):
        encoder = Encoder(EncoderConfig.of(**BASE | changes))
    assert sum(p.numel() for p in encoder.parameters()) == parameters


def test_a_sequence_scores_the_same_alone_and_in_company():
    encoder = tiny()
    texts = [[1, 2, 3], [4] * 20, [5, 6], [7] * 21, [8, 9]]
    together = encoder(pack(texts)).split([len(t) for t in texts])
    for text, states in zip(texts, together, strict=True):
        # Another row count may pick another matrix kernel, so the last bits of float32 may differ.
        torch.testing.assert_close(encoder(pack([text])), states, atol=1e-6, rtol=0)


def test_shared_layers_hold_one_set_of_parameters_but_run_every_time():
    shared = tiny(num_hidden_layers=4, num_hidden_groups=1)
    assert len(shared.layers) == 1
    once = tiny(num_hidden_layers=1)
    batch = pack([[1, 2, 3]])
    assert not torch.allclose(shared(batch), once(batch))
    assert [id(shared.layer(i)) for i in range(4)] == [id(shared.layers[0])] * 4


def test_a_sequence_beyond_the_position_table_is_refused_with_the_limit():
    encoder = tiny(max_position_embeddings=10, position_offset=2)
    encoder(pack([[1] * 8]))
    with pytest.raises(InputError, match=r"9 tokens.*end at 8"):
        encoder(pack([[1] * 9]))


def test_masked_lm_scores_only_the_rows_asked_for():
    encoder = tiny()
    model = Model(encoder, new_head("masked_lm", encoder.config)).eval()
    batch = pack([[1, 2, 3], [4, 5]])
    at = torch.tensor([4, 1])
    everything, some = model(batch), model(batch, at)
    assert everything.shape == (5, 50)
    torch.testing.assert_close(some, everything[at], atol=1e-6, rtol=0)
    assert isinstance(model.head, MaskedLMHead)


# What tells the families' encoders apart.
KINDS = {
    "bert": {},
    "roberta": {"position_offset": 2, "type_vocab_size": 1},
    "distilbert": {"type_vocab_size": 0, "pooler": None},
    "albert": {"num_hidden_groups": 1, "embedding_size": 8, "hidden_act": "gelu_tanh"},
    "electra": {"embedding_size": 8, "pooler": "gelu", "head_transform": True},
    "modernbert": {
        "rotary_base": 100.0,
        "local_window": 4,
        "global_every": 2,
        "norm_place": "before",
        "gated": True,
        "biases": False,
        "pooled": "mean",
        "pooler": None,
    },
    "both sides": {
        "rotary_base": 100.0,
        "rotary_scaling": 2.0,
        "rms_norm": True,
        "norm_from_one": True,
        "norm_place": "both",
        "qk_norm": True,
        "num_key_value_heads": 1,
        "head_size": 12,
        "embedding_norm": False,
        "embedding_scaled": True,
        "type_vocab_size": 0,
        "hidden_act": "silu",
        "pooled": "late",
        "lm_transform": False,
        "lm_tied": False,
    },
    "causal": {"causal": True},
    "pruned": {"heads_per_layer": (2, 1)},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_in_evaluation_the_last_layer_runs_for_the_rows_that_are_read_only(changes):
    encoder, batch = tiny(**changes), pack([[1, 2, 3], [4] * 20, [5, 6], [7] * 21, [8, 9]])
    at = torch.tensor([4, 1, 40, 4])
    # Fewer rows may take another matrix kernel; outputs are about 1.
    near = {"atol": 1e-6, "rtol": 0}
    torch.testing.assert_close(encoder(batch, at), encoder(batch)[at], **near)
    widths = []
    layer = encoder.layer(encoder.config.num_hidden_layers - 1)
    layer.down.register_forward_hook(lambda module, given, found: widths.append(len(found)))
    one_each = batch.num_sequences if encoder.config.pooling.token == "cls" else batch.num_tokens
    asked = {"masked_lm": (at, 4), "tokens": (at, 4), "spans": (None, batch.num_tokens)}
    asked |= {"sequence": (None, one_each), "choices": (at, one_each), "pretraining": (at, 48)}
    for kind, (rows, width) in asked.items():
        count = 3 if kind in ("sequence", "tokens") else None
        model = Model(encoder, new_head(kind, encoder.config, count)).eval()
        wanted = model.read(encoder(batch), batch, rows)
        torch.testing.assert_close(model(batch, rows), wanted, **near)
        assert widths[-1] == width, kind
        model.train()(batch, rows)
        assert widths[-1] == batch.num_tokens, "so that dropout does not depend on the rows"
        model.eval()


def test_new_weights_are_drawn_as_the_paper_says():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = Encoder(TINY.changed(hidden_size=64, vocab_size=5000))
        initialize(encoder, 0.02)
    table = encoder.embeddings.word.weight.detach()
    assert table.abs().max() <= 0.04
    # A normal cut at two deviations has 0.88 of the deviation.
    assert abs(float(table.std()) - 0.88 * 0.02) < 2e-4
    assert float(encoder.layers[0].up.bias.detach().abs().max()) == 0
    assert torch.equal(encoder.layers[0].norm.weight, torch.ones(64))


@pytest.mark.parametrize("part", ["distances.table", "distances.norm", "layers.1.qkv"])
def test_what_is_kept_between_batches_follows_the_weights(part):
    config = EncoderConfig.of(
        **sizes(vocab_size=30, layers=2, width=16, heads=4, inner=24),
        position_kind="disentangled",
        distance_buckets=6,
        max_distance=12,
    )
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    batch = pack([list(range(20)), [3, 4, 5]])
    with torch.no_grad():
        before = encoder(batch)
        assert torch.equal(encoder(batch), before)
        weight = encoder.get_submodule(part).weight
        weight.add_(torch.randn_like(weight))
        after = encoder(batch)
    torch.testing.assert_close(after, encoder(batch), atol=1e-6, rtol=0)
    assert (after - before).abs().max() > 1e-3
