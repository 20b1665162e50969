"""A loaded model with its dense layers in 8-bit integers, and which of them should stay float32.

Embeddings, normalisation, heads and attention's own products stay float.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.sentence_transformers import SentenceVectors
from filbert.data.examples import Example
from filbert.errors import ConfigError, FormatError
from filbert.inference.forward import default_max_tokens, run_vectors
from filbert.model.cpu import bf16_is_fused
from filbert.model.encoder import DENSE, Layer
from filbert.model.heads import Model
from filbert.model.int8 import LEAST, InputRange, QuantizedLinear, StaticLinear, smoothed_range
from filbert.model.precision import Precision


def dense_layers(model: Model) -> list[str]:
    """Return the names of all layers that `quantized` replaces, input side first."""
    count = len(model.encoder.layers)
    return [f"encoder.layers.{i}.{name}" for i in range(count) for name in DENSE]


Ranges = Mapping[str, InputRange]


def recorded(checkpoint: Checkpoint, model: Model) -> tuple[list[str], Ranges | None]:
    """Return what `filbert convert` has noted on int8 in filbert.json, or raise a FormatError.

    It is the dense layers that stay float32, and the ranges of the inputs of the others, if they
    were measured.
    """
    noted = (checkpoint.filbert or {}).get("int8")
    if noted is None:
        return [], None
    try:
        names, ranges = noted["float_layers"], noted.get("ranges")
        if ranges is not None:
            ranges = {name: _range_of(value) for name, value in ranges.items()}
        _check(model, names)
        fits = ranges is None or {*ranges} == {*dense_layers(model)}
    except (AttributeError, ConfigError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise FormatError(
            f"{checkpoint.source or 'filbert.json'}: what filbert.json notes on int8 is not about "
            "this model. Run filbert convert --to int8 again."
        )
    return names, ranges


def _range_of(noted: Mapping[str, Any]) -> InputRange:
    factors = noted.get("factors")
    tensor = None if factors is None else torch.tensor(factors, dtype=torch.float32)
    return InputRange(float(noted["low"]), float(noted["high"]), tensor)


def ranges_record(ranges: Ranges) -> dict[str, dict[str, Any]]:
    """Return ranges as plain values for JSON; columns' factors with four digits."""
    return {
        name: {"low": one.low, "high": one.high}
        | ({} if one.factors is None else {"factors": [float(f"{f:.4g}") for f in one.factors]})
        for name, one in ranges.items()
    }


def input_ranges(model: Model, examples: Sequence[Example]) -> dict[str, InputRange]:
    """Measure the range of the inputs of each dense layer on some tens of examples or more."""
    _check(model)
    ends: dict[str, list[Tensor]] = {name: [] for name in dense_layers(model)}

    def seen(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        # Batches run in several threads, and appending to a list is safe.
        return lambda _, inputs, __: ends[name].append(torch.stack(torch.aminmax(inputs[0], dim=0)))

    layers = {name: cast(nn.Linear, model.get_submodule(name)) for name in ends}
    hooks = [layer.register_forward_hook(seen(name)) for name, layer in layers.items()]
    try:
        _vectors(model, examples)
    finally:
        for hook in hooks:
            hook.remove()
    found = {}
    for name, layer in layers.items():
        low, high = torch.stack(ends[name]).float().unbind(1)
        # The inputs of the other two have no columns that are large in every row.
        smooth = name.endswith((".qkv", ".up"))
        found[name] = smoothed_range(layer, low.amin(0), high.amax(0), smooth=smooth)
    return found


def quantized(model: Model, *, keep: Collection[str] = (), ranges: Ranges | None = None) -> Model:
    """Return the same model with int8 products, for inference on a CPU.

    Args:
        model: float32; it stays as it is, and shares nothing with the result.
        keep: names of `dense_layers` that stay float.
        ranges: Of the layers' inputs, for one scale for all tokens; None for one per token.

    Raises:
        ConfigError: the model is on a GPU, or a name in `keep` is not one.
    """
    _check(model, keep)
    codes = _quantized_layers(model, set(dense_layers(model)) - set(keep), ranges)
    return _with(model, codes, shared=False).eval()


def sensitive_layers(
    model: Model,
    examples: Sequence[Example],
    ranked: Sequence[str],
    *,
    target: float,
    ranges: Ranges | None = None,
) -> list[str]:
    """Choose the layers to `keep`, so that vectors stay as near to the exact ones as asked.

    Their number is found by halving.

    Args:
        examples: What the model will read; some tens are enough.
        ranked: The names of all layers, those that cost most alone first; see `sensitivities`.
        target: Mean cosine to reach between mean-pooled vectors, in (0, 1).

    Returns:
        The first of the names; [] where int8 everywhere reaches the target, and all of them where
        only that does.
    """
    exact = _vectors(model, examples)

    def is_enough(num_kept: int) -> bool:
        other = quantized(model, keep=ranked[:num_kept], ranges=ranges)
        return _cosine(exact, other, examples) >= target

    if is_enough(0):
        return []
    low, high = 0, len(ranked)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return list(ranked[:high])


def sensitivities(
    model: Model, examples: Sequence[Example], ranges: Ranges | None = None
) -> dict[str, float]:
    """Measure the mean cosine of vectors with and without each dense layer alone in int8.

    The names of the layers are in order, the worst first.
    """
    _check(model)
    exact, cosines = _vectors(model, examples), {}
    for name in dense_layers(model):
        other = _with(model, _quantized_layers(model, {name}, ranges), shared=True)
        cosines[name] = _cosine(exact, other, examples)
    return dict(sorted(cosines.items(), key=lambda pair: pair[1]))


def mean_cosine(first: Model, second: Model, examples: Sequence[Example]) -> float:
    """Return the mean cosine between the mean-pooled vectors of two models over the examples."""
    return _cosine(_vectors(first, examples), second, examples)


def _cosine(exact: Tensor, other: Model, examples: Sequence[Example]) -> float:
    return float(F.cosine_similarity(exact, _vectors(other, examples)).mean())


def _check(model: Model, keep: Collection[str] = ()) -> None:
    if model.device.type != "cpu":
        raise ConfigError(f"Int8 is for CPUs, and this model is on {model.device}. Use bf16 there.")
    names = dense_layers(model)
    for name in keep:
        if name not in names:
            raise ConfigError(
                f"There is no layer {name!r} to keep; they are {names[0]} to {names[-1]}."
            )


def _quantized_layers(
    model: Model, names: Collection[str], ranges: Ranges | None
) -> dict[nn.Module, nn.Module]:
    """Return the dense layers and their int8 replacements."""
    found: dict[nn.Module, nn.Module] = {}
    for name in sorted(names):
        path, _, own = name.rpartition(".")
        layer = model.get_submodule(path)
        assert isinstance(layer, Layer)
        config = layer.config
        # A gate may turn the activation's sign around.
        follows_activation = own == "down" and not config.feed_forward.gated
        least = LEAST.get(config.feed_forward.activation) if follows_activation else None
        dtype = torch.float32
        if own == "qkv" and f"{path}.attention_out" in names and bf16_is_fused():
            # Attention's own products are several times faster so, and bf16 is finer than codes.
            dtype = torch.bfloat16
        if ranges is None:
            found[getattr(layer, own)] = QuantizedLinear(
                getattr(layer, own), least=least, dtype=dtype
            )
            continue
        # Then the wide activations are codes only.
        is_read = own == "up" and f"{path}.down" in names and not config.feed_forward.gated
        outputs = ranges[f"{path}.down"] if is_read else None
        found[getattr(layer, own)] = StaticLinear(
            getattr(layer, own), ranges[name], outputs=outputs, dtype=dtype
        )
    return found


def _with(model: Model, others: Mapping[nn.Module, nn.Module], *, shared: bool) -> Model:
    """Return a copy with some modules replaced; if `shared`, all other weights are the same."""
    memo: dict[int, object] = {id(module): other for module, other in others.items()}
    if shared:
        memo |= {id(weights): weights for weights in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, memo)


def _vectors(model: Model, examples: Sequence[Example]) -> Tensor:
    """Return the mean of every sequence's last hidden states, float64 (S, H)."""
    if not examples:
        raise ConfigError("No examples to compare precisions on; give some tens of texts.")
    vectors = run_vectors(
        model,
        examples,
        SentenceVectors(),
        layers=(model.config.num_hidden_layers,),
        max_tokens=default_max_tokens(model.device),
        precision=Precision("float32", "the model's layers are in their own formats"),
    )
    return torch.from_numpy(np.stack(vectors)).double()
