"""Vectors of words in context against transformers' hidden states, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import transformers

from filbert.checkpoints import huggingface
from filbert.inference.predictor import Predictor
from filbert.inspect.neighbours import find_neighbours

# At the beginning of a text, behind a blank, behind a line end and before a mark.
TEXTS = ["plays was good, and he was", "he plays (badly)", "the film was good\nplays!"]
_SIZES: dict[str, Any] = sizes(
    vocab_size=300, layers=3, width=48, heads=4, inner=80, positions=41, pad_token_id=1
)
# Of every family the vocabulary, and what tells it from the sizes above.
JUDGES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("tiny", {"vocab_size": 34}),
    "electra": ("tiny", {"vocab_size": 34, "embedding_size": 24}),
    "albert": ("unigram_pieces", {"vocab_size": 60, "embedding_size": 24}),
    "roberta": ("byte_pieces", {"type_vocab_size": 1}),
    "causal": ("byte_pieces", {"is_decoder": True}),
    "modernbert": (
        "byte_pieces",
        {
            "local_attention": 4,
            "global_attn_every_n_layers": 2,
            **dict.fromkeys(("bos_token_id", "cls_token_id"), 0),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
        },
    ),
}


@pytest.mark.parametrize("family", JUDGES)
def test_a_word_has_the_mean_of_its_pieces_hidden_states_in_every_layer_of_every_family(
    family, tmp_path, request
):
    kind, sizes = JUDGES[family]
    pieces = request.getfixturevalue(kind)
    name = family.replace("causal", "bert")
    config = transformers.AutoConfig.for_model(name, **{**_SIZES, **sizes})
    torch.manual_seed(5)
    judge = transformers.AutoModel.from_config(config).eval()
    judge.save_pretrained(tmp_path)
    predictor = Predictor(huggingface.read(tmp_path).build(), pieces)
    # The word's pieces where nothing stands before it, and behind a blank.
    ways = [pieces.encode([some])[0].input_ids[1:-1].tolist() for some in ("plays", " plays")]
    by_layer = []
    for text in TEXTS:
        ids = pieces.encode([text])[0].input_ids.tolist()
        own, at = next(
            (own, i) for own in ways[::-1] for i in range(len(ids)) if ids[i : i + len(own)] == own
        )
        rows = slice(at, at + len(own))
        with torch.inference_mode():
            states = judge(torch.tensor([ids]), output_hidden_states=True).hidden_states
        by_layer.append([state[0, rows].mean(0) for state in states])
    assert len(by_layer[0]) == 4
    for layer in range(4):
        found = find_neighbours(predictor, "plays", TEXTS, layer=layer)
        vectors = torch.stack([own[layer] for own in by_layer]).double()
        units = vectors / vectors.norm(dim=1, keepdim=True)
        # Float32 on both sides, in another order.
        assert np.abs(found.cosines - (units @ units.T).numpy()).max() < 1e-5
        assert found.cosines.min() < 0.999
