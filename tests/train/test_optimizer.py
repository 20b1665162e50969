"""What optimisers are made of: groups, steps, and a state that resumes to the bit."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import sizes

from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model, new_head
from filbert.train.base_model import freeze
from filbert.train.optimizer import Lamb, Muon, new_optimizer, orthogonal
from filbert.train.options import OPTIMIZERS, TrainOptions
from filbert.train.state import (
    State,
    learned_weights,
    load_moments,
    moments_of,
    newest_state,
    save_state,
)


def new_model(seed: int = 0, **changes) -> Model:
    torch.manual_seed(seed)
    given = sizes(vocab_size=30, layers=2, width=16, heads=2, inner=40, positions=32)
    config = EncoderConfig.of(**(given | changes))
    return Model(Encoder(config), new_head("masked_lm", config, None))


def new(model: Model, precision: str = "auto", **options) -> torch.optim.Optimizer:
    freeze(model, None)
    return new_optimizer(model, TrainOptions(**({"lr": 1e-2} | options)), precision=precision)


def train(model: Model, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Random gradients, each step its own, and a rate that changes."""
    for step in steps:
        torch.manual_seed(step)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + step) * group["share"]
            for parameter in group["params"]:
                parameter.grad = torch.randn(parameter.shape)
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_a_run_resumed_from_a_saved_state_ends_with_the_same_bits(name, precision, tmp_path):
    options = {"optimizer": name, "precision": precision, "layer_decay": 0.8, "weight_decay": 0.1}
    straight = new_model()
    train(straight, new(straight, **options), range(6))

    killed = new_model()
    optimizer = new(killed, **options)
    train(killed, optimizer, range(3))
    tensors = {f"model.{n}": t for n, t in learned_weights(killed).items()}
    tensors |= {f"optimizer.{n}": t for n, t in moments_of(killed, optimizer).items()}
    save_state(tmp_path, State(step=3, tensors=tensors, facts={}))

    found, _ = newest_state(tmp_path)
    read: dict[str, dict[str, torch.Tensor]] = {"model": {}, "optimizer": {}}
    for key, tensor in found.tensors.items():
        group, _, rest = key.partition(".")
        read[group][rest] = tensor
    resumed = new_model(seed=9)
    optimizer = new(resumed, **options)
    resumed.load_state_dict(read["model"], strict=False)
    load_moments(resumed, optimizer, read["optimizer"])
    train(resumed, optimizer, range(3, 6))
    for (key, wanted), value in zip(
        straight.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(wanted, value), key


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_parameter_that_learns_moves_and_no_other(name):
    model = new_model()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = new(model, optimizer=name)
    train(model, optimizer, range(2))
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved == {n for n, p in model.named_parameters() if p.requires_grad}
    assert len(moved) < len(before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_share_of_a_group_multiplies_its_step_and_its_decay(name):
    """With half the share, the first step of a table goes half as far."""
    gone = []
    for decay in (1.0, 0.5):
        model = new_model(num_hidden_layers=1)
        optimizer = new(model, optimizer=name, layer_decay=decay, precision="float32")
        word = model.encoder.embeddings.word.weight
        before = word.detach().clone()
        train(model, optimizer, range(1))
        gone.append(word.detach() - before)
    # Depth 0 of one layer: the decay to the power of 3.
    torch.testing.assert_close(gone[1], gone[0] * 0.5**3, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_parameter_without_a_gradient_is_left_alone(name):
    model = new_model()
    optimizer = new(model, optimizer=name, weight_decay=0.5)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = None
    word = model.encoder.embeddings.word.weight
    word.grad = torch.ones_like(word)
    optimizer.step()
    moved = [n for n, p in model.named_parameters() if not torch.equal(p, before[n])]
    assert moved == ["encoder.embeddings.word.weight"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_vectors_do_not_decay_and_matrices_do(name):
    model = new_model()
    optimizer = new(model, optimizer=name, weight_decay=0.5, lr=0.1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    # LAMB gives its step, which is all decay here, the length of the weights.
    matrices = 0.9 if name == "lamb" else 0.95
    for parameter in model.parameters():
        if parameter.requires_grad:
            wanted = matrices if parameter.ndim > 1 else 1.0
            torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, wanted))


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest():
    model = new_model(num_hidden_groups=1, embedding_size=8)
    optimizer = new(model, optimizer="muon")
    assert isinstance(optimizer, Muon)
    train(model, optimizer, range(1))
    kinds = {n: set(optimizer.state[p]) for n, p in model.named_parameters() if p.requires_grad}
    muons = {n for n, kind in kinds.items() if kind == {"momentum"}}
    names = ("qkv", "attention_out", "up", "down")
    assert muons == {f"encoder.layers.0.{name}.weight" for name in names}
    rest = [kind for n, kind in kinds.items() if n not in muons]
    assert rest and all(kind == {"step", "exp_avg", "exp_avg_sq"} for kind in rest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 16, 40), (3, 40, 16), (1, 16, 16)])
def test_the_iteration_keeps_the_directions_and_evens_out_the_singular_values(shape, dtype):
    torch.manual_seed(0)
    matrices = torch.randn(shape)
    turned = orthogonal(matrices.to(dtype)).float()
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    # In the bases of the original it is diagonal; bf16 keeps 8 bits.
    inner = left.mT @ turned @ right.mT
    values = inner.diagonal(dim1=1, dim2=2)
    assert values.min() > 0.6 and values.max() < 1.3
    rest = inner - torch.diag_embed(values)
    assert rest.abs().max() < (1e-4 if dtype == torch.float32 else 0.1)
    assert torch.equal(orthogonal(torch.zeros(shape)), torch.zeros(shape))


@pytest.mark.parametrize(("heads", "shared", "rows"), [(2, None, 48), (4, 1, 24)])
def test_query_key_and_value_are_matrices_of_their_own(heads, shared, rows):
    """A value gradient a thousand times larger changes nothing about the query's step."""
    value = slice(rows - (rows - 16) // 2, rows)
    for name in ("muon", "lamb"):
        steps = []
        for factor in (1.0, 1000.0):
            model = new_model(num_attention_heads=heads, num_key_value_heads=shared)
            optimizer = new(model, optimizer=name, precision="float32")
            weight = model.encoder.layers[0].qkv.weight
            before = weight.detach().clone()
            torch.manual_seed(5)
            weight.grad = torch.randn(rows, 16)
            weight.grad[value] *= factor
            if name == "lamb":
                with torch.no_grad():
                    weight[value] *= factor
                    before[value] *= factor
            optimizer.step()
            steps.append(weight.detach() - before)
        assert torch.equal(steps[0][: value.start], steps[1][: value.start])
        assert steps[0][: value.start].abs().max() > 0


def test_lamb_takes_a_ratio_of_one_where_a_norm_is_zero():
    weights = [torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.ones(2, 2))]
    weights[0].grad, weights[1].grad = torch.ones(2, 2), torch.zeros(2, 2)
    group = {"params": weights, "weight_decay": 0.0, "parts": 1}
    Lamb([group], lr=0.5, betas=(0.9, 0.999), eps=1e-6, fused=True).step()
    wanted = -0.5 * 0.1 / (0.001**0.5 + 1e-6)
    torch.testing.assert_close(weights[0].detach(), torch.full((2, 2), wanted))
    assert torch.equal(weights[1].detach(), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("given", "eps"),
    [
        ({}, 1e-8),
        ({"optimizer": "bert_adam"}, 1e-6),
        ({"optimizer": "lamb"}, 1e-6),
        ({"optimizer": "muon"}, 1e-8),
        ({"optimizer": "bert_adam", "eps": 1e-7}, 1e-7),
    ],
)
def test_epsilon_is_that_of_the_authors_code_unless_it_is_given(given, eps):
    assert new(new_model(), **given).defaults["eps"] == eps
