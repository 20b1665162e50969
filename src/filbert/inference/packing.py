"""Weights in the order in which the processor's products read them, for serving and long files."""

from __future__ import annotations

import torch
from torch import nn

from filbert.inference.onnx_session import SessionModel
from filbert.model.cpu import PackedLinear, fuses
from filbert.model.encoder import DENSE, Encoder
from filbert.model.heads import Model


def pack_layers(model: Model | SessionModel) -> int:
    """Put `PackedLinear` in the place of an encoder's dense layers, and say how many.

    One layer after the other, so that the old weights can go at once. Models on a GPU, in int8, of
    other kinds or smaller than the fast products stay as they are: 0.
    """
    if not isinstance(model, Model) or not isinstance(model.encoder, Encoder):
        return 0
    if model.device.type != "cpu":
        return 0
    count = 0
    with torch.no_grad():
        for layer in model.encoder.layers:
            for name in DENSE:
                dense = getattr(layer, name)
                if isinstance(dense, nn.Linear) and fuses(dense):
                    setattr(layer, name, PackedLinear(dense))
                    count += 1
    return count
