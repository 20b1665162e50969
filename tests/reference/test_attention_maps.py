"""Attention maps against transformers' eager ones: tiny random weights, float32, CPU.

The judges are those of test_families.py, test_modernbert.py and test_causal.py in other sizes.
Probabilities are compared as they are; 1e-6 is a few roundings of float32.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import packed, shaken, transformers

from filbert.checkpoints import huggingface
from filbert.inspect.attention import attention_maps

LENGTHS = (9, 3, 17, 1, 12)
TOLERANCE = 1e-6

_SHARED: dict[str, Any] = {
    "vocab_size": 97,
    "max_position_embeddings": 41,
    "attn_implementation": "eager",
    "pad_token_id": 1,
}
_BERT = sizes(layers=3, width=48, heads=4, inner=80, **_SHARED)
JUDGES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (transformers.BertConfig, transformers.BertModel, _BERT),
    "causal": (transformers.BertConfig, transformers.BertModel, {**_BERT, "is_decoder": True}),
    "roberta": (
        transformers.RobertaConfig,
        transformers.RobertaModel,
        {**_BERT, "type_vocab_size": 1},
    ),
    "distilbert": (
        transformers.DistilBertConfig,
        transformers.DistilBertModel,
        {**_SHARED, "dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 80},
    ),
    "albert": (
        transformers.AlbertConfig,
        transformers.AlbertModel,
        {**_BERT, "embedding_size": 24, "num_hidden_layers": 4, "num_hidden_groups": 2},
    ),
    "electra": (
        transformers.ElectraConfig,
        transformers.ElectraModel,
        {**_BERT, "embedding_size": 24},
    ),
    "modernbert": (
        transformers.ModernBertConfig,
        transformers.ModernBertModel,
        {
            **_BERT,
            "num_hidden_layers": 5,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 900.0,
            "local_rope_theta": 20.0,
            "bos_token_id": 2,
            "cls_token_id": 2,
            "eos_token_id": 3,
            "sep_token_id": 3,
        },
    ),
    # Normalised queries and keys, whose heads are fewer, in causal layers.
    "qwen3": (
        transformers.Qwen3Config,
        transformers.Qwen3Model,
        {**_BERT, "num_key_value_heads": 2, "head_dim": 10},
    ),
    "mpnet": (transformers.MPNetConfig, transformers.MPNetModel, _BERT),
    "deberta-v2": (
        transformers.DebertaV2Config,
        transformers.DebertaV2Model,
        {
            **_BERT,
            "relative_attention": True,
            "position_biased_input": False,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "pos_att_type": "p2c|c2p",
            "position_buckets": 6,
            "max_relative_positions": 12,
        },
    ),
    "xlnet": (
        transformers.XLNetConfig,
        transformers.XLNetModel,
        {
            "vocab_size": 97,
            "attn_implementation": "eager",
            "d_model": 48,
            "n_layer": 3,
            "n_head": 4,
            "d_inner": 80,
        },
    ),
}


@pytest.mark.parametrize("family", JUDGES)
def test_maps_are_those_of_transformers(family, tmp_path):
    config, kind, sizes = JUDGES[family]
    judge = shaken(kind(config(**sizes)), noise=0.2, scale=0.5)
    judge.save_pretrained(tmp_path)  # type: ignore[operator]
    generator = torch.Generator().manual_seed(3)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = (torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.where(mask.bool(), torch.randint(4, 97, shape, generator=generator), 1)
    with torch.no_grad():
        wanted = judge(ids, attention_mask=mask, output_attentions=True).attentions
    model = huggingface.read(tmp_path).build().eval()
    found = attention_maps(model, packed({"input_ids": ids, "attention_mask": mask}))
    spread = 0.0
    for row, (length, maps) in enumerate(zip(LENGTHS, found, strict=True)):
        own = torch.stack([layer[row, :, :length, :length] for layer in wanted])
        assert maps.shape == own.shape
        assert (maps - own).abs().max() < TOLERANCE
        spread = max(spread, float(own.std(-1).max())) if length > 1 else spread
    # Even maps would be equal to each other whatever made them.
    assert spread > 0.1
