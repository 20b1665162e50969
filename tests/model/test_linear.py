"""The fast product is the plain product."""

import pytest
import torch
from torch import nn

from filbert.model import linear
from filbert.model.linear import activate, dense


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "tanh"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_off_the_tape_a_dense_layer_gives_what_torch_gives(
    activation, dtype, tolerance, monkeypatch
):
    torch.manual_seed(0)
    layer, rows = nn.Linear(384, 512).to(dtype), torch.randn(33, 384).to(dtype)
    plain = activate(layer(rows), activation)
    calls = []
    fused = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(linear, "product", lambda *arguments: calls.append(1) or fused(*arguments))
    with torch.inference_mode():
        fast = dense(rows, layer, activation)
    # Sums of 384 terms near 1 in another order: float32 keeps 1e-6, bf16 rounds the result to 2^-8.
    torch.testing.assert_close(fast, plain.detach(), atol=tolerance, rtol=0)
    supported = dtype in linear._fused_dtypes()
    assert bool(calls) == (supported and activation != "tanh"), "the fast way must be taken"


def test_on_the_tape_the_plain_way_is_taken_and_gradients_flow():
    layer, rows = nn.Linear(384, 512), torch.randn(5, 384, requires_grad=True)
    dense(rows, layer, "gelu").sum().backward()
    assert rows.grad is not None
    assert layer.weight.grad is not None


def test_an_unknown_activation_is_our_own_mistake():
    with pytest.raises(ValueError, match="no activation"):
        activate(torch.zeros(1), "swish")
