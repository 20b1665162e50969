"""The forward pass of one static shape: what it gives is what the ordinary one gives."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from filbert.data.examples import Example
from filbert.data.loader import Loader
from filbert.data.masking import MaskedRow
from filbert.errors import ConfigError
from filbert.model import replaced
from filbert.model.attention import attend
from filbert.model.attention_plan import StaticBatch, plan_attention
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, VectorHead, new_head
from filbert.model.replaced import ReplacedTokenModel, generator_config
from filbert.speed.precision import Precision
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.train import static
from filbert.train.course import Course, Phase
from filbert.train.distributed import Parallel
from filbert.train.log import RunLog
from filbert.train.options import TrainOptions
from filbert.train.static import Shape, StaticForward, even_shape, fill, shape_of
from filbert.train.step import accumulate, model_forward
from filbert.train.trainer import train

CPU = torch.device("cpu")
ALONE = Parallel(0, 1, CPU, "single")
FLOAT32 = Precision("float32", "")
# torch warns of its own doing while it compiles.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


def example(row: int, length: int, draw: np.random.Generator) -> Example:
    ids = draw.integers(5, 50, length).astype(np.int32)
    positions = np.sort(draw.choice(length, max(1, length // 6), replace=False)).astype(np.int64)
    labels = ids[positions].astype(np.int64)
    ids[positions] = 4
    types = (np.arange(length) > length // 2).astype(np.uint8)
    return Example(row, ids, types, length, MaskedRow(positions, labels, row % 2))


def micro_batches(*counts: int, seed: int = 0) -> list[list[Example]]:
    draw = np.random.default_rng(seed)
    return [[example(i, int(draw.integers(5, 33)), draw) for i in range(n)] for n in counts]


def setting(kind: str, dropout: float = 0.0, layers: int = 2):
    """A tiny model in training, and its objective."""
    config = EncoderConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        head_dropout=dropout,
        pooler="tanh" if kind == "nsp" else None,
    )
    torch.manual_seed(0)
    task = ReplacedTokens() if kind == "replaced" else Pretraining(pair=kind)
    head = new_head(task.head_kind, config)
    model = (
        ReplacedTokenModel(Encoder(config), head, generator_config(config, 0.5))
        if kind == "replaced"
        else Model(Encoder(config), head)
    )
    # Larger weights than usual, so that attention is far from even.
    initialize(model, 0.3)
    return model.train(), task


def gradient_of(forward, model, task, batches, parallel=ALONE, wrapped=None):
    """Losses and gradients by name."""
    model.zero_grad()
    found = accumulate(
        forward,
        wrapped or model,
        task,
        batches,
        parallel=parallel,
        precision=FLOAT32,
        seed=(0, 0),
        stand_in=batches[0],
    )
    return found.parts, {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


def same(first, second) -> None:
    # Sums come in another order; values and gradients are around 1.
    torch.testing.assert_close(first[0], second[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(first[1], second[1], rtol=1e-5, atol=1e-5)


def static_forward(model, task, batches, **settings) -> StaticForward:
    forward = StaticForward(model, model, task, ALONE, **settings)
    forward.shape = shape_of(batches, task)
    return forward


@pytest.fixture(autouse=True)
def _surest_token(monkeypatch):
    """A generator's draws would hang on the shape."""
    monkeypatch.setattr(replaced, "sample", lambda logits: logits.argmax(-1))


@pytest.mark.parametrize("kind", ["none", "nsp", "replaced"])
def test_filled_micro_batches_give_the_losses_and_gradients_of_packed_ones(kind):
    model, task = setting(kind)
    batches = micro_batches(10, 12, 9, 11)
    said: list[str] = []
    filled = static_forward(model, task, batches, mode=None, say=said.append)
    packed = model_forward(model, CPU)
    same(
        gradient_of(filled, model, task, batches),
        gradient_of(packed, model, task, batches),
    )
    assert not said, "all of them fit"


@pytest.mark.parametrize("kind", ["none", "nsp", "replaced"])
def test_micro_batches_of_different_lengths_are_one_program(kind, monkeypatch):
    recorded = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", _with_backend(torch.compile, recorded))
    model, task = setting(kind)
    batches = micro_batches(10, 12, 9, 11) + micro_batches(8, 12, seed=1)
    compiled = static_forward(model, task, batches)
    packed = model_forward(model, CPU)
    same(
        gradient_of(compiled, model, task, batches),
        gradient_of(packed, model, task, batches),
    )
    assert recorded.frame_count == 1


def _with_backend(real, backend):
    return lambda program, *, mode, **settings: real(program, backend=backend, **settings)


@pytest.mark.slow
def test_the_program_of_inductor_gives_the_gradients_of_packed_micro_batches():
    torch.compiler.reset()
    model, task = setting("nsp", layers=1)  # compiling two takes half as long again
    batches = micro_batches(10, 12)
    compiled = static_forward(model, task, batches)
    packed = model_forward(model, CPU)
    same(
        gradient_of(compiled, model, task, batches),
        gradient_of(packed, model, task, batches),
    )


@pytest.mark.parametrize("kind", ["none", "nsp", "replaced"])
def test_what_the_dummies_are_changes_nothing(kind, monkeypatch):
    model, task = setting(kind)
    batches = micro_batches(10, 9)
    forward = static_forward(model, task, batches, mode=None)
    before = gradient_of(forward, model, task, batches)

    def other(examples, shape, device):
        ids, *rest = fill(examples, shape, device)
        ids[sum(len(e.input_ids) for e in examples) :] = 37
        return (ids, *rest)

    monkeypatch.setattr(static, "fill", other)
    parts, gradients = gradient_of(forward, model, task, batches)
    assert parts == before[0]
    for name, gradient in gradients.items():
        assert torch.equal(gradient, before[1][name]), name


def test_dummies_leave_no_trace_in_the_gradient_of_their_embeddings():
    model, task = setting("none")
    batches = micro_batches(10)
    forward = static_forward(model, task, batches, mode=None)
    _, gradients = gradient_of(forward, model, task, batches)
    # Row 0 is the id of dummies, which no real token has here; the output layer shares the table.
    packed = gradient_of(model_forward(model, CPU), model, task, batches)[1]
    name = "encoder.embeddings.word.weight"
    torch.testing.assert_close(gradients[name][0], packed[name][0], rtol=1e-5, atol=1e-7)


def test_attention_by_grid_is_attention_by_groups_with_empty_sequences_anywhere():
    lengths = [3, 0, 7, 1, 0, 5]
    total = sum(lengths)
    torch.manual_seed(0)
    qkv = torch.randn(total, 3, 2, 4, requires_grad=True)
    nothing = torch.zeros(total, dtype=torch.int64)
    borders = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    batch = StaticBatch(nothing, nothing, nothing, borders, borders[:-1].long(), 8)
    gridded = attend(qkv, plan_attention(batch))
    alone = [
        torch.nn.functional.scaled_dot_product_attention(*part.permute(1, 2, 0, 3).unbind())
        for part in qkv.split([n for n in lengths if n])
    ]
    expected = torch.cat([part.transpose(0, 1) for part in alone])
    torch.testing.assert_close(gridded, expected, rtol=1e-5, atol=1e-6)
    weights = torch.randn_like(expected)
    found = torch.autograd.grad((gridded * weights).sum(), qkv)
    wanted = torch.autograd.grad((expected * weights).sum(), qkv)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_dropout_on_the_probabilities_keeps_the_expectation():
    torch.manual_seed(0)
    qkv = torch.randn(6, 3, 1, 4)
    nothing = torch.zeros(6, dtype=torch.int64)
    borders = torch.tensor([0, 4, 6], dtype=torch.int32)
    batch = StaticBatch(nothing, nothing, nothing, borders, borders[:-1].long(), 8)
    plan = plan_attention(batch)
    drawn = torch.stack([attend(qkv, plan, 0.3) for _ in range(4_000)])
    assert drawn.std(0).min() > 0
    # Its standard error is about 0.01.
    torch.testing.assert_close(drawn.mean(0), attend(qkv, plan), rtol=0, atol=0.06)


def test_the_same_seed_drops_the_same():
    model, task = setting("none", dropout=0.2)
    batches = micro_batches(10, 9)
    forward = static_forward(model, task, batches, mode=None)
    first = gradient_of(forward, model, task, batches)
    second = gradient_of(forward, model, task, batches)
    assert first[0] == second[0]
    without = setting("none")[0]
    plain = gradient_of(model_forward(without, CPU), without, task, batches)
    assert first[0] != plain[0], "something is dropped"


@pytest.mark.parametrize("left_over", [1, 40])
def test_dummies_are_as_many_as_needed_and_none_too_long(left_over):
    (examples,) = micro_batches(9)
    real = sum(len(e.input_ids) for e in examples)
    shape = Shape(real + left_over, 14, 64, 32)
    ids, positions, _, borders, starts = fill(examples, shape, CPU)
    lengths = borders.diff()
    assert lengths[:9].tolist() == [len(e.input_ids) for e in examples]
    assert borders[-1] == len(ids) == real + left_over
    assert int(lengths.max()) <= 32 and int(positions.max()) < 32
    assert int(starts.max()) < len(ids)
    assert shape.takes([len(e.input_ids) for e in examples], 60)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (Shape(30, 10, 8, 16), "as many tokens as there is room for, so no dummy is left"),
        (Shape(40, 2, 8, 16), "no sequence is left for dummies"),
        (Shape(80, 3, 8, 16), "one dummy would be too long"),
        (Shape(40, 10, 7, 16), "too many rows asked for"),
        (Shape(40, 10, None, 16), "no rows asked for"),
        (Shape(40, 10, 8, 14), "a sequence too long"),
    ],
)
def test_what_does_not_fit_is_not_taken(shape, why):
    assert Shape(40, 10, 8, 16).takes([15, 15], 8)
    assert not shape.takes([15, 15], 8), why


def test_a_misfit_runs_in_the_ordinary_way_and_is_told_once():
    model, task = setting("nsp")
    batches = micro_batches(10, 11)
    misfits = micro_batches(30, 1, 2, 31, seed=3)
    said: list[str] = []
    forward = static_forward(model, task, batches, mode=None, say=said.append)
    found = gradient_of(forward, model, task, misfits)
    packed = gradient_of(model_forward(model, CPU), model, task, misfits)
    assert found[0] == packed[0]
    for name, gradient in found[1].items():
        assert torch.equal(gradient, packed[1][name]), name
    assert len(said) == 2, "one line for too large, one for too small"


@pytest.mark.parametrize("max_tokens", [100, 700, 2_000, 5_000])
@pytest.mark.parametrize("world", [1, 2])
def test_micro_batches_of_a_phase_are_cut_so_that_they_fill_the_shape(max_tokens, world):
    draw = np.random.default_rng(0)
    rows = [example(i, int(draw.integers(40, 65)), draw) for i in range(400)]
    loader = Loader(rows, batch_size=80, max_tokens=max_tokens, seed=0)
    task = Pretraining()
    shape = even_shape(loader, task, world=world, longest=512)
    assert loader.max_tokens < shape.num_tokens <= max(max_tokens, 128)
    real = places = 0
    for step in range(loader.steps_per_epoch):
        for rank in range(world):
            for batch in filter(None, loader.step(step, rank, world)):
                lengths = [len(e.input_ids) for e in batch]
                assert shape.takes(lengths, len(task.targets(batch).at))
                real, places = real + sum(lengths), places + shape.num_tokens
    # Up to one sequence is missing at the end, which matters where few fit in.
    assert real / places > {100: 0.35, 700: 0.75, 2_000: 0.85, 5_000: 0.85}[max_tokens]


def test_a_shape_is_settled_once_and_anew_when_memory_ran_out():
    model, task = setting("none")
    draw = np.random.default_rng(0)
    rows = [example(i, int(draw.integers(20, 33)), draw) for i in range(200)]
    loader = Loader(rows, batch_size=100, max_tokens=1_500, seed=0)
    said: list[str] = []
    forward = StaticForward(model, model, task, ALONE, mode=None, say=said.append)
    forward.settle(loader)
    first = forward.shape
    forward.settle(loader)
    assert forward.shape is first and len(said) == 1
    loader.max_tokens //= 2
    (batch, *_) = loader.step(0)
    assert forward(batch, task.targets(batch)).shape == (len(task.targets(batch).at), 50)
    forward.settle(loader)
    assert forward.shape.num_tokens < first.num_tokens and len(said) == 2


def test_gradients_do_not_lie_in_the_memory_of_a_cuda_graph():
    model, task = setting("none")
    batches = micro_batches(10)
    forward = static_forward(model, task, batches, mode=None)
    forward._with_graphs = True
    output = forward(batches[0], task.targets(batches[0]))
    kept = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert None not in kept.values(), "or backward would hand over the graph's own"
    output.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is kept[name], name


def test_ddp_runs_the_program_and_its_gradients_meet(tmp_path):
    model, task = setting("nsp")
    batches = micro_batches(10, 12)
    alone = gradient_of(model_forward(model, CPU), model, task, batches)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        parallel = Parallel(0, 1, CPU, "ddp")
        wrapped = parallel.wrap(model)
        calls = []
        wrapped.register_forward_hook(lambda *call: calls.append(1))
        forward = StaticForward(model, wrapped, task, parallel, mode=None)
        forward.shape = shape_of(batches, task)
        same(gradient_of(forward, model, task, batches, parallel, wrapped), alone)
        assert len(calls) == 2
        same(
            gradient_of(model_forward(wrapped, CPU), model, task, batches, parallel, wrapped), alone
        )
    finally:
        # gloo's thread needs Python's lock to let go of its last work; a group that is taken down
        # at that moment waits for the thread with the lock in hand, for ever.
        time.sleep(0.2)
        torch.distributed.destroy_process_group()


def test_sentence_vectors_and_dropout_on_a_processor_are_refused():
    model, task = setting("none", dropout=0.1)
    with pytest.raises(ConfigError, match="needs --dropout 0"):
        StaticForward(model, model, task, ALONE)
    model, task = setting("none")
    model.head = VectorHead(model.config)
    with pytest.raises(ConfigError, match="sentence vectors"):
        StaticForward(model, model, task, ALONE)


def test_a_run_with_compile_has_the_losses_of_one_without(monkeypatch, tmp_path):
    found, modes = {}, []
    monkeypatch.setattr(torch, "compile", lambda run, mode, **_: modes.append(mode) or run)
    draw = np.random.default_rng(0)
    rows = [example(i, int(draw.integers(20, 33)), draw) for i in range(60)]
    for ways in ({}, {"compile": True}, {"compile": True, "cuda_graphs": True}):
        model, task = setting("nsp")
        # Two phases, so that the shape changes on the way.
        phases = [
            Phase(Loader(part, batch_size=20, max_tokens=500, seed=0), 0.5)
            for part in (rows, [e for e in rows if len(e.input_ids) < 26])
        ]
        options = TrainOptions(steps=6, lr=1e-2, eps=1e-3, save_every=0, **ways)
        with RunLog(None, quiet=True) as log:
            outcome = train(
                model,
                task,
                Course(phases, options),
                options,
                precision=FLOAT32,
                evaluate=None,
                log=log,
                parallel=ALONE,
                keep_best=False,
            )
        found[len(ways)] = outcome.weights
        assert ("static_program" in model.__dict__) == bool(ways)
    assert modes == ["default", "reduce-overhead"]
    # `eps` is large, or Adam would make differences of the last bit into steps of full size.
    for way in (1, 2):
        torch.testing.assert_close(found[way], found[0], rtol=1e-3, atol=1e-3)
