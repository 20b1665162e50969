"""The model of a checkpoint, ready to compute: on its device, in its precision, packed."""

from __future__ import annotations

import torch

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.errors import FormatError
from filbert.inference.onnx_session import SessionModel
from filbert.inference.packing import pack_layers
from filbert.inference.quantize import dense_layers, quantized
from filbert.model.heads import Model
from filbert.model.precision import Precision


def built(
    checkpoint: Checkpoint, precision: Precision, device: torch.device, *, packed: bool = False
) -> Model:
    """The encoder and head of a checkpoint.

    Args:
        checkpoint: what was read.
        precision: settled; in "int8" the layers that filbert.json lists stay float32.
        device: where it will compute.
        packed: lay weights out for inference; see `pack_layers`. No gradient goes through them.

    Raises:
        ConfigError: int8 on a GPU, or of a model without such layers.
        FormatError: filbert.json notes layers that the model does not have.
    """
    model = checkpoint.build(dtype=precision.dtype).to(device)
    if precision.name == "int8":
        model = quantized(model, keep=float_layers(checkpoint, model))
    if packed:
        pack_layers(model)
    return model


def number_format(
    model: Model | SessionModel, precision: Precision, checkpoint: Checkpoint | None
) -> str:
    """What a loaded model's products are in: float32, bf16 or int8.

    Args:
        model: its weights tell bf16, which needs no casts then; a graph has none.
        precision: that it runs in.
        checkpoint: notes what a graph was made in.
    """
    if isinstance(model, SessionModel):
        noted = (checkpoint.filbert or {}).get("onnx") if checkpoint is not None else None
        return str((noted or {}).get("precision", "float32"))
    is_bf16 = next(model.parameters()).dtype == torch.bfloat16
    return "bf16" if precision.name == "float32" and is_bf16 else precision.name


def float_layers(checkpoint: Checkpoint, model: Model) -> list[str]:
    """The dense layers that stay float32 next to int8, as `filbert convert --to int8` chose them.

    Raises:
        FormatError: filbert.json notes something else.
    """
    noted = (checkpoint.filbert or {}).get("int8")
    if noted is None:
        return []
    names = noted.get("float_layers") if isinstance(noted, dict) else None
    known = dense_layers(model)
    if not isinstance(names, list) or any(name not in known for name in names):
        raise FormatError(
            f"{checkpoint.source or 'filbert.json'}: what filbert.json notes on int8 is not about "
            "this model. Run filbert convert --to int8 again."
        )
    return names
