"""On a GPU: the compiled program gives what the ordinary forward pass gives, and how fast it is."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from filbert.data.examples import Example
from filbert.data.masking import MaskedRow
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.speed.precision import Precision
from filbert.tasks.pretraining import Pretraining
from filbert.train.distributed import Parallel
from filbert.train.static import MODES, StaticForward, shape_of
from filbert.train.step import Forward, accumulate, model_forward

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU"),
    # torch warns of its own doing while it compiles.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
CUDA = torch.device("cuda")
ALONE = Parallel(0, 1, CUDA, "single")


def batches(count: int, sequences: int) -> list[list[Example]]:
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        examples = []
        for row in range(sequences):
            length = int(draw.integers(64, 129))
            ids = draw.integers(5, 1_000, length).astype(np.int32)
            at = np.sort(draw.choice(length, length // 7, replace=False)).astype(np.int64)
            target = MaskedRow(at, ids[at].astype(np.int64), row % 2)
            ids[at] = 4
            examples.append(Example(row, ids, np.zeros(length, np.uint8), length, target))
        found.append(examples)
    return found


def model_of(pair: str, attention_dropout: float = 0.0, hidden_size: int = 256):
    config = EncoderConfig(
        vocab_size=1_000,
        hidden_size=hidden_size,
        num_hidden_layers=4,
        num_attention_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
        max_position_embeddings=128,
        hidden_dropout=0.0,
        attention_dropout=attention_dropout,
        pooler="tanh" if pair == "nsp" else None,
    )
    torch.manual_seed(0)
    task = Pretraining(pair=pair)
    model = Model(Encoder(config), new_head(task.head_kind, config))
    initialize(model, 0.05)
    return model.to(CUDA).train(), task


def run(forward: Forward, model, task, given, precision="bf16"):
    model.zero_grad(set_to_none=True)
    found = accumulate(
        forward,
        model,
        task,
        given,
        parallel=ALONE,
        precision=Precision(precision, ""),
        seed=(0, 0),
        stand_in=given[0],
    )
    return found, {n: p.grad.clone() for n, p in model.named_parameters()}


@pytest.mark.parametrize("mode", [None, *MODES[:2]])
@pytest.mark.parametrize("precision", ["bf16", "float32"])
@pytest.mark.parametrize("pair", ["none", "nsp"])
def test_the_program_gives_the_losses_and_gradients_of_the_ordinary_pass(pair, precision, mode):
    torch.compiler.reset()
    model, task = model_of(pair)
    given = batches(3, 60)
    said: list[str] = []
    forward = StaticForward(model, model, task, ALONE, mode=mode, say=said.append)
    forward.shape = shape_of(given, task)
    wanted, gradients = run(model_forward(model, CUDA), model, task, given, precision)
    # Three times: a CUDA graph is recorded in the first steps and replayed in the later ones.
    for _ in range(3):
        found, own = run(forward, model, task, given, precision)
        # A bf16 number has 8 bits; a gradient is a sum of thousands of them.
        near = 2e-2 if precision == "bf16" else 1e-3
        assert found.parts == pytest.approx(wanted.parts, rel=near / 10)
        for name, gradient in own.items():
            size = gradients[name].norm()
            if size > 1e-4:
                assert (gradient - gradients[name]).norm() <= near * size, name
            assert gradient.isfinite().all(), name
    assert not said


def test_dropout_in_attention_is_compiled_too_and_repeats_with_its_seed():
    torch.compiler.reset()
    model, task = model_of("none", attention_dropout=0.1)
    given = batches(2, 60)
    forward = StaticForward(model, model, task, ALONE)
    forward.shape = shape_of(given, task)
    first, _ = run(forward, model, task, given)
    again, gradients = run(forward, model, task, given)
    assert again.parts == pytest.approx(first.parts, rel=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    model.eval()
    without, _ = run(model_forward(model, CUDA), model, task, given)
    assert without.parts == pytest.approx(first.parts, rel=0.05)
    assert without.parts != first.parts


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_how_many_tokens_a_second(dropout):
    """Figures for a reader of the output (-s); nothing is asserted of them."""
    given = batches(2, 300)
    tokens = sum(len(e.input_ids) for examples in given for e in examples)
    for mode in (None, *MODES[:2]):
        torch.compiler.reset()
        model, task = model_of("none", dropout, hidden_size=768)
        forward: Forward = model_forward(model, CUDA)
        if mode is not None:
            forward = StaticForward(model, model, task, ALONE, mode=mode)
            forward.shape = shape_of(given, task)
        for _ in range(3):
            run(forward, model, task, given)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            run(forward, model, task, given)
        torch.cuda.synchronize()
        rate = 5 * tokens / (time.perf_counter() - began)
        print(f"dropout {dropout}, {mode or 'ordinary'}: {rate:,.0f} tokens a second")
