"""Summary statistics of attention heads over some texts.

L layers, A heads, n tokens of one sequence, r of them not special.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.errors import InputError
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import attention_of_texts, layers_and_heads, pruned_heads
from filbert.text.tokenizer import Encoding, Tokenizer

STATISTICS = {
    "entropy": "entropy of the weights, in nats",
    "distance": "mean distance to the attended tokens, in tokens",
    "cls": "share of attention on the first special token ([CLS])",
    "sep": "share on the separators ([SEP])",
    "itself": "share on the token itself",
    "previous": "share on the previous token",
    "next": "share on the next token",
}


@dataclass(frozen=True, eq=False)
class HeadSummary:
    """Means over all tokens of the texts that are not special tokens.

    Attributes:
        values: float64 (L, A) for each name in STATISTICS; NaN for pruned heads.
    """

    values: dict[str, np.ndarray]
    num_texts: int
    num_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, one record for each head that was not pruned."""
        kept = np.argwhere(~np.isnan(self.values["entropy"])).tolist()
        return {
            "texts": self.num_texts,
            "tokens": self.num_tokens,
            "heads": [
                {"layer": layer, "head": head}
                | {name: round(float(v[layer, head]), 6) for name, v in self.values.items()}
                for layer, head in kept
            ],
        }


def summarise_heads(predictor: Predictor, texts: Sequence[Any]) -> HeadSummary:
    """Compute the statistics of every head over some texts.

    Sources: Clark et al. 2019, section 3; Vig and Belinkov 2019, section 4.

    Raises:
        ConfigError: The model has no attention.
        InputError: All texts are empty.
    """
    layers, heads = layers_and_heads(predictor.model)
    sums = {name: np.zeros((len(layers), len(heads))) for name in STATISTICS}
    num_rows = 0
    encodings = predictor.tokenizer.encode(
        texts, max_length=predictor.max_length, with_offsets=True
    )
    for number, maps, _ in attention_of_texts(predictor, encodings):
        encoding = encodings[number]
        assert encoding.sequence is not None
        rows = np.flatnonzero(encoding.sequence >= 0)
        num_rows += len(rows)
        attended = _attended(encoding, rows, predictor.tokenizer)
        # One layer at a time, because float64 doubles the memory.
        for layer, layer_maps in enumerate(maps):
            weights = layer_maps[:, torch.from_numpy(rows)].double()
            sums["entropy"][layer] += torch.special.entr(weights).sum((-1, -2)).numpy()
            for name, factor in attended.items():
                sums[name][layer] += (weights * factor).sum((-1, -2)).numpy()
    if not num_rows:
        raise InputError("All texts are empty.")
    is_pruned = pruned_heads(predictor.model.config)
    values = {name: np.where(is_pruned, np.nan, total / num_rows) for name, total in sums.items()}
    num_tokens = sum(len(encoding.input_ids) for encoding in encodings)
    return HeadSummary(values, len(encodings), num_tokens)


def _attended(encoding: Encoding, rows: np.ndarray, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Return for each statistic the factor of every weight, float64 (r, n) or (1, n)."""
    assert encoding.sequence is not None
    step = np.arange(len(encoding.input_ids)) - rows[:, None]
    is_special = encoding.sequence < 0
    masks = {
        "distance": np.abs(step),
        "cls": (is_special & (encoding.input_ids == tokenizer.cls_id))[None],
        "sep": (is_special & (encoding.input_ids == tokenizer.sep_id))[None],
        "itself": step == 0,
        "previous": step == -1,
        "next": step == 1,
    }
    return {name: torch.from_numpy(mask.astype(np.float64)) for name, mask in masks.items()}
