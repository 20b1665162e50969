"""Integer products against exact integer arithmetic."""

import copy

import pytest
import torch
from torch import nn

from filbert.model import int8
from filbert.model.cpu import activate, dense
from filbert.model.int8 import (
    LEAST,
    InputRange,
    QuantizedLinear,
    StaticLinear,
    quantize_rows,
    quantize_weight,
    smoothed_range,
)


def layer_and_rows(width=96, out=48, rows=7, bias=True):
    torch.manual_seed(0)
    layer = nn.Linear(width, out, bias=bias)
    return layer, torch.randn(rows, width) * torch.rand(rows, 1) * 4


def judged(layer, rows, least=None):
    """What the layer has to give: products of codes in 64-bit integers, scaled in float64."""
    codes, scale, low = quantize_rows(rows, least)
    weight, weight_scale = quantize_weight(layer.weight)
    scale, weight_scale = scale.double(), weight_scale.double()
    low = low.double() if isinstance(low, torch.Tensor) else low
    product = codes.long() @ weight.long().T
    product = product * scale + low * weight.long().sum(1)
    bias = 0 if layer.bias is None else layer.bias.double()
    return (product * weight_scale + bias).detach()


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("least", [None, -0.1702])
@pytest.mark.parametrize("packed", [True, False])
def test_a_quantized_layer_gives_what_exact_integers_give(
    activation, bias, least, packed, monkeypatch
):
    if packed and not int8.has_integer_products():
        pytest.skip("this CPU has no VNNI")
    monkeypatch.setattr(int8, "has_integer_products", lambda: packed)
    layer, rows = layer_and_rows(bias=bias)
    if least is not None:
        rows = nn.functional.gelu(rows)
    other = QuantizedLinear(layer, least=least)
    assert (other.packed is not None) == packed
    with torch.inference_mode():
        given = other(rows, activation)
    wanted = activate(judged(layer, rows, least), activation)
    # Sums near 10,000 codes by 1e-2 in float32, whose rounding is 6e-8 of what it holds.
    torch.testing.assert_close(given.double(), wanted, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(("width", "out", "rows"), [(768, 2304, 1), (3072, 768, 3), (30, 7, 65)])
def test_shapes_of_real_layers_and_odd_ones_are_exact_too(width, out, rows):
    layer, values = layer_and_rows(width, out, rows)
    with torch.inference_mode():
        given = QuantizedLinear(layer)(values)
    # 3,072 codes up to 255 by 127: beyond 2^24 a float32 holds only even numbers.
    torch.testing.assert_close(given.double(), judged(layer, values), atol=2e-5, rtol=1e-5)


def test_codes_return_every_value_within_half_a_step():
    _, rows = layer_and_rows()
    codes, scale, least = quantize_rows(rows)
    back = scale * codes.float() + least
    assert bool(((back - rows).abs() <= scale * 0.5001).all())
    assert bool((codes.amin(1) == 0).all()) and bool((codes.amax(1) == 255).all())


@pytest.mark.parametrize("name", sorted(LEAST))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_activation_goes_below_its_least_value(name, dtype):
    values = activate(torch.linspace(-8, 4, 100_001).to(dtype), name)
    assert float(values.min()) >= LEAST[name]
    codes, scale, least = quantize_rows(values[None], LEAST[name])
    back = scale * codes.float() + least
    assert float((back - values.float()).abs().max()) <= float(scale) * 0.5001


def test_zeros_constants_and_huge_values_are_no_trouble():
    layer, _ = layer_and_rows()
    rows = torch.zeros(4, 96)
    rows[1], rows[2], rows[3, 0] = 3.0, -2e-12, 1e30
    with torch.inference_mode():
        given = QuantizedLinear(layer)(rows)
        wanted = layer(rows)
    assert bool(given.isfinite().all())
    # A constant row is exact up to the weights' rounding: 96 of them, half of 1/127 of 0.1 each.
    torch.testing.assert_close(given[:3], wanted[:3], atol=96 * 3 * 0.0004, rtol=0)


def test_what_is_not_a_number_shows_in_its_own_row_and_nowhere_else():
    layer, rows = layer_and_rows()
    clean = QuantizedLinear(layer)(rows)
    rows[2, 5] = float("nan")
    given = QuantizedLinear(layer)(rows)
    assert bool(given[2].isnan().all())
    assert torch.equal(given[[0, 1, 3, 4, 5, 6]], clean[[0, 1, 3, 4, 5, 6]])


@pytest.mark.parametrize("least", [None, -0.1702])
def test_a_row_has_the_same_product_alone_and_in_company(least):
    layer, rows = layer_and_rows(384, 384, 40)
    rows = rows.clamp_min(-0.17) if least else rows
    other = QuantizedLinear(layer, least=least)
    with torch.inference_mode():
        together = other(rows)
        alone = torch.cat([other(row[None]) for row in rows])
    # The integers are the same; only the last float sums may come in another order.
    torch.testing.assert_close(alone, together, atol=1e-6, rtol=1e-6)


def test_int8_is_near_the_float_layer_in_both_dtypes():
    layer, rows = layer_and_rows(384, 512, 50)
    with torch.inference_mode():
        exact = layer(rows)
        for dtype in (torch.float32, torch.bfloat16):
            given = dense(rows.to(dtype), QuantizedLinear(layer))
            assert given.dtype == dtype
            # Random weights and rows: both roundings together are about a hundredth.
            error = (given.float() - exact).norm() / exact.norm()
            assert float(error) < 0.02


def test_casts_and_copies_leave_the_codes_alone():
    layer, rows = layer_and_rows()
    other = QuantizedLinear(layer)
    before = other(rows)
    model = copy.deepcopy(nn.Sequential(other).to(torch.bfloat16))
    assert torch.equal(model[0](rows), before)
    assert not list(model.parameters())


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("packed", [True, False])
def test_a_static_layer_gives_what_exact_integers_give(activation, smooth, packed, monkeypatch):
    if packed and not int8.has_integer_products():
        pytest.skip("this CPU has no VNNI")
    monkeypatch.setattr(int8, "has_integer_products", lambda: packed)
    layer, rows = layer_and_rows()
    inputs = smoothed_range(layer, rows.amin(0), rows.amax(0), smooth=smooth)
    factors = torch.ones(96) if inputs.factors is None else inputs.factors
    outputs = InputRange(-0.5, 6.0)
    weight, weight_scale = quantize_weight(layer.weight * factors)
    codes = (rows / (factors * inputs.scale)).round().add(inputs.zero).clamp(0, 255)
    product = (codes.long() - inputs.zero) @ weight.long().T
    exact = product * (inputs.scale * weight_scale.double()) + layer.bias.double()
    wanted = activate(exact.detach(), activation)
    with torch.inference_mode():
        given = StaticLinear(layer, inputs)(rows, activation)
        of_codes = StaticLinear(layer, inputs)(codes.to(torch.uint8), activation)
        coded = StaticLinear(layer, inputs, outputs=outputs)(rows, activation)
    torch.testing.assert_close(given.double(), wanted, atol=2e-6, rtol=2e-6)
    assert torch.equal(given, of_codes)
    assert coded.dtype == torch.uint8
    steps = (wanted / outputs.scale + outputs.zero).clamp(0, 255)
    assert (coded - steps).abs().max() <= 0.5 + 1e-3


def test_smoothing_moves_large_columns_into_the_weights():
    layer, rows = layer_and_rows()
    rows[:, 3] *= 40
    ends = (rows.amin(0), rows.amax(0))
    assert smoothed_range(layer, *ends, smooth=False).apart == (3,)
    with torch.inference_mode():
        errors = [
            (StaticLinear(layer, smoothed_range(layer, *ends, smooth=smooth))(rows) - layer(rows))
            for smooth in (False, True)
        ]
    assert errors[1].abs().mean() < 0.5 * errors[0].abs().mean()
