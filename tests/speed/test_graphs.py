"""Programs of static shape without a GPU: all but the recording runs here as it does there."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend

from filbert.batch import PackedBatch, pack, split
from filbert.data.examples import Example
from filbert.model import attention, attention_plan
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, VectorHead, new_head
from filbert.speed import graphs as graphs_module
from filbert.speed.execution import run_model, to_host
from filbert.speed.graphs import LARGEST, Graphs, bucket_for, buckets_for, graphs_for
from filbert.speed.layout import Bucket, lay_out, views
from filbert.speed.precision import Precision
from filbert.speed.streams import overlapped

FLOAT32 = Precision("float32", "")
BUCKETS = buckets_for(64, 512)
# Outputs are around 1, and sums of float32 numbers come in another order.
NEAR = {"rtol": 0.0, "atol": 1e-6}


def config(**changes) -> EncoderConfig:
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 64, "pooler": "tanh"}
    return EncoderConfig(**sizes | changes)


def model_of(kind: str | None = "sequence", **changes) -> Model:
    settings = config(**changes)
    torch.manual_seed(0)
    count = 3 if kind in ("sequence", "tokens") else None
    model = Model(Encoder(settings), new_head(kind, settings, count) if kind else None)
    # Larger weights than usual, so that attention is far from even.
    initialize(model, 0.2)
    return model.eval()


def batch_of(*lengths: int, seed: int = 0) -> PackedBatch:
    draw = np.random.default_rng(seed)
    ids = [draw.integers(5, 50, length) for length in lengths]
    return pack(ids, [np.arange(length) > length // 2 for length in lengths])


def direct(model: Model, batch: PackedBatch) -> torch.Tensor:
    with torch.inference_mode():
        return model(batch)


# Buckets


def test_the_buckets_of_bert_are_few_and_waste_at_most_half():
    buckets = buckets_for(512)
    sizes = sorted({bucket.num_tokens for bucket in buckets})
    assert sizes[:8] == [16, 32, 64, 96, 128, 192, 256, 384] and sizes[-1] == LARGEST == 8_192
    assert len(buckets) == 24
    assert all(b <= 2 * a for a, b in zip(sizes, sizes[1:], strict=False))
    assert all(b <= 1.5 * a for a, b in zip(sizes, sizes[1:], strict=False) if a >= 64)
    assert list(buckets) == sorted(buckets)


@given(st.integers(1, 512))
def test_a_text_alone_gets_the_smallest_bucket_of_its_length(length):
    bucket = bucket_for((length,), buckets_for(512))
    assert bucket is not None and bucket.num_sequences == 2
    smaller = [b for b in buckets_for(512) if length <= b.num_tokens < bucket.num_tokens]
    assert not smaller


@given(st.lists(st.integers(1, 64), min_size=1, max_size=40))
def test_a_batch_gets_a_bucket_that_holds_it_or_none(lengths):
    bucket = bucket_for(lengths, BUCKETS)
    if bucket is None:
        assert not any(other.takes(lengths) for other in BUCKETS)
    else:
        assert bucket.takes(lengths)


def test_a_bucket_takes_no_batch_that_leaves_no_sequence_for_its_dummies():
    assert Bucket(16, 2, 16).takes([16])
    assert Bucket(16, 2, 16).takes([8, 8]), "there are none"
    assert not Bucket(16, 2, 16).takes([8, 7])
    assert not Bucket(32, 4, 16).takes([17])
    assert not Bucket(64, 4, 16).takes([1, 1]), "two dummies of 16 are not enough"


# The layout


@given(st.lists(st.integers(1, 64), min_size=1, max_size=40))
def test_real_tokens_come_first_and_dummies_are_sequences_of_their_own(lengths):
    bucket = bucket_for(lengths, BUCKETS)
    if bucket is None:
        return
    batch = batch_of(*lengths)
    # What was there before must not shine through.
    places = np.full(bucket.num_places, 77, dtype=np.int64)
    lay_out(places, bucket, batch.input_ids.numpy(), batch.token_type_ids.numpy(), batch.lengths)
    found = views(torch.from_numpy(places), bucket)
    real, count = batch.num_tokens, batch.num_sequences
    for name in ("input_ids", "position_ids", "token_type_ids"):
        assert torch.equal(getattr(found, name)[:real], getattr(batch, name)), name
    assert found.cu_seqlens.dtype == torch.int32
    assert torch.equal(found.cu_seqlens[: count + 1], batch.cu_seqlens)
    assert torch.equal(found.starts[:count], batch.starts)
    assert found.cu_seqlens[-1] == bucket.num_tokens
    spans = found.cu_seqlens.diff()
    assert spans.min() >= 0 and spans.max() <= bucket.longest
    assert found.position_ids.max() < bucket.longest
    assert found.starts.max() < bucket.num_tokens
    assert not found.input_ids[real:].any() and not found.token_type_ids[real:].any()


# Outputs


@pytest.mark.parametrize("kind", ["sequence", "tokens", "spans", "choices", "discriminator", None])
def test_programs_give_what_the_ordinary_pass_gives(kind):
    model = model_of(kind)
    graphs = Graphs(model, buckets=BUCKETS)
    for lengths in [(1,), (16,), (64,), (9, 8), (30, 30, 4), (7,) * 20, (64,) * 8, (64,) * 9]:
        batch = batch_of(*lengths)
        torch.testing.assert_close(graphs.forward(batch), direct(model, batch), **NEAR)
        with torch.inference_mode():
            torch.testing.assert_close(graphs.encode(batch), model.encoder(batch), **NEAR)


FAMILIES = {
    "mean": {"pooled": "mean", "pooler": None},
    "local": {"local_window": 8, "global_every": 2, "rotary_base": 1e4, "position_offset": 0},
    "causal": {"causal": True},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_so_they_do_for_other_families(family):
    model = model_of(**FAMILIES[family])
    graphs = Graphs(model, buckets=BUCKETS)
    for lengths in [(16,), (40,), (30, 30, 4), (7,) * 20]:
        batch = batch_of(*lengths)
        torch.testing.assert_close(graphs.forward(batch), direct(model, batch), **NEAR)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=24), st.randoms(use_true_random=False))
def test_a_text_gets_the_same_vectors_whatever_its_order_and_company(lengths, random):
    model = model_of(None)
    graphs = Graphs(model, buckets=BUCKETS)
    ids = [np.random.default_rng(i).integers(5, 50, n) for i, n in enumerate(lengths)]
    order = random.sample(range(len(ids)), len(ids))
    batch = pack([ids[i] for i in order])
    found = split(graphs.encode(batch), batch)
    for place, index in enumerate(order):
        torch.testing.assert_close(found[place], direct(model, pack([ids[index]])), **NEAR)


def test_dummies_leave_no_trace_in_the_real_rows(monkeypatch):
    """Not even when the model says nothing but NaN about them."""
    model = model_of("tokens")
    graphs = Graphs(model, buckets=BUCKETS)
    batch = batch_of(20, 9)
    wanted = graphs.forward(batch)
    model.encoder.embeddings.word.weight.data[0] = float("nan")
    assert torch.equal(graphs.forward(batch), wanted)


def test_a_later_batch_leaves_earlier_answers_alone():
    graphs = Graphs(model_of(), buckets=BUCKETS)
    first = graphs.forward(batch_of(20, 9))
    kept = first.clone()
    second = graphs.forward(batch_of(20, 9, seed=1))
    assert torch.equal(first, kept) and not torch.equal(first, second)


def test_run_model_answers_the_same_with_and_without_programs():
    model = model_of("tokens")
    draw = np.random.default_rng(0)
    examples = []
    for row, length in enumerate(draw.integers(1, 64, 60)):
        ids = draw.integers(5, 50, length).astype(np.int32)
        examples.append(Example(row, ids, np.zeros(length, np.uint8), int(length)))
    seen: list[int] = []
    run = partial(run_model, model, examples, max_tokens=256, precision=FLOAT32)
    found = run(graphs=Graphs(model, buckets=BUCKETS), on_batch=seen.append)
    torch.testing.assert_close(found, run(), **NEAR)
    assert sum(seen) == sum(len(example.input_ids) for example in examples)


@pytest.mark.parametrize("family", [{}, *FAMILIES.values()])
def test_the_kernel_over_borders_gets_what_it_wants_and_no_grid_is_made(family, monkeypatch):
    """The way of a GPU in bf16, with a stand-in for its kernel."""
    calls: list[int] = []

    def kernel(query, key, value, borders, borders_again, longest, same, window_size=(-1, -1)):
        assert borders is borders_again and longest == same
        assert borders.dtype == torch.int32 and borders.device == query.device
        assert query.stride(-1) == 1
        calls.append(longest)
        out = torch.empty_like(query)
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            assert end - start <= longest
            apart = torch.arange(end - start) - torch.arange(end - start)[:, None]
            seen = torch.ones_like(apart, dtype=torch.bool)
            if window_size[0] >= 0:
                seen &= apart >= -window_size[0]
            if window_size[1] >= 0:
                seen &= apart <= window_size[1]
            rows = [part[start:end].transpose(0, 1)[None] for part in (query, key, value)]
            mixed = torch.nn.functional.scaled_dot_product_attention(*rows, attn_mask=seen)
            out[start:end] = mixed[0].transpose(0, 1)
        return out

    model = model_of(**family)
    batches = [batch_of(*lengths) for lengths in [(16,), (40,), (30, 30, 4), (7,) * 20]]
    wanted = [direct(model, batch) for batch in batches]
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    for module in (attention, graphs_module):
        monkeypatch.setattr(module, "kernel_serves", lambda device, dtype, head_size: True)
    monkeypatch.setattr(attention_plan, "Grid", None)
    monkeypatch.setattr(attention_plan, "Group", None)
    graphs = Graphs(model, buckets=BUCKETS)
    for batch, expected in zip(batches, wanted, strict=True):
        torch.testing.assert_close(graphs.forward(batch), expected, **NEAR)
        torch.testing.assert_close(direct(model, batch), expected, **NEAR)
    assert len(calls) == 2 * 2 * len(batches), "two layers, with and without programs"


def test_the_kernel_is_for_sixteen_bits_on_a_gpu_and_its_own_head_sizes(monkeypatch):
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    serves = attention.kernel_serves
    assert serves(cuda, torch.bfloat16, 64) and serves(cuda, torch.float16, 256)
    assert not serves(torch.device("cpu"), torch.bfloat16, 64)
    assert not serves(cuda, torch.float32, 64)
    assert not serves(cuda, torch.bfloat16, 12) and not serves(cuda, torch.bfloat16, 264)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not serves(cuda, torch.bfloat16, 64)


# What runs how


def counted(graphs: Graphs, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Bucket]]:
    """The programs that are placed, as they are."""
    placed: list[tuple[str, Bucket]] = []
    place = graphs._place

    def place_and_tell(part, bucket):
        placed.append((part, bucket))
        return place(part, bucket)

    monkeypatch.setattr(graphs, "_place", place_and_tell)
    return placed


def test_each_bucket_is_placed_once_and_none_after_warming_up(monkeypatch):
    graphs = Graphs(model_of(), buckets=BUCKETS)
    placed = counted(graphs, monkeypatch)
    assert graphs.warm_up("head") > 0
    assert placed == [("head", bucket) for bucket in reversed(BUCKETS)]
    graphs.warm_up("head")
    for lengths in [(5,), (64,), (30, 30, 4)]:
        graphs.forward(batch_of(*lengths))
    assert len(placed) == len(BUCKETS)
    graphs.encode(batch_of(5))
    assert placed[-1] == ("encoder", BUCKETS[0])


def test_warming_up_covers_both_parts_where_none_is_named(monkeypatch):
    graphs = Graphs(model_of(), buckets=BUCKETS[:2])
    placed = counted(graphs, monkeypatch)
    graphs.warm_up()
    assert {part for part, _ in placed} == {"head", "encoder"} and len(placed) == 4


def test_what_no_program_can_do_runs_in_the_ordinary_way(monkeypatch):
    settings = config()
    vectors = Model(Encoder(settings), VectorHead(settings)).eval()
    batch = batch_of(20, 9)
    graphs = Graphs(vectors, buckets=BUCKETS)
    placed = counted(graphs, monkeypatch)
    graphs.warm_up("head")
    assert torch.equal(graphs.forward(batch), direct(vectors, batch))
    assert not placed


def test_under_autocast_nothing_is_recorded(monkeypatch):
    graphs = Graphs(model_of(), buckets=BUCKETS)
    placed = counted(graphs, monkeypatch)
    batch = batch_of(20, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(graphs.forward(batch), direct(graphs.model, batch))
    assert not placed


def test_on_a_gpu_in_float32_only_buckets_with_little_padding_are_kept():
    graphs = Graphs(model_of(), buckets=BUCKETS)
    graphs.device = torch.device("cuda")
    kept = [bucket for bucket in BUCKETS if graphs._is_worth(bucket)]
    assert kept and all(bucket.num_sequences == 2 for bucket in kept)
    graphs._by_borders = True
    assert all(map(graphs._is_worth, BUCKETS))


def test_on_a_processor_a_predictor_has_no_programs():
    assert graphs_for(model_of()) is None


def test_results_come_in_order_and_on_a_gpu_one_behind_the_launches():
    events: list[str] = []

    def launched():
        for index in range(3):
            events.append(f"launch {index}")
            yield lambda index=index: events.append(f"finish {index}") or index

    assert list(overlapped(launched(), torch.device("cuda"))) == [0, 1, 2]
    launches, finishes = [f"launch {i}" for i in range(3)], [f"finish {i}" for i in range(3)]
    assert events == [*launches[:2], finishes[0], launches[2], *finishes[1:]]
    events.clear()
    assert list(overlapped(launched(), torch.device("cpu"))) == [0, 1, 2]
    assert events == [text for pair in zip(launches, finishes, strict=True) for text in pair]
    assert list(overlapped(iter([]), torch.device("cuda"))) == []


def test_what_arrives_on_the_host_is_float32():
    arrived = to_host(torch.ones(2, dtype=torch.bfloat16))()
    assert arrived.dtype == torch.float32 and arrived.tolist() == [1, 1]


def test_many_threads_get_their_own_answers():
    model = model_of()
    graphs = Graphs(model, buckets=BUCKETS)
    batches = [batch_of(20, 9, seed=seed) for seed in range(8)]
    wanted = [direct(model, batch) for batch in batches]
    wrong: list[int] = []

    def ask(index: int) -> None:
        for _ in range(20):
            if not torch.allclose(graphs.forward(batches[index]), wanted[index], **NEAR):
                wrong.append(index)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# torch warns of its own doing while it compiles.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_one_compilation_or_few_serve_all_buckets(monkeypatch):
    torch.compiler.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile

    def with_counter(program, *, mode, **options):
        assert mode == "default"
        return compiled(program, backend=counter, **options)

    monkeypatch.setattr(torch, "compile", with_counter)
    model = model_of()
    graphs = Graphs(model, buckets=BUCKETS, compile="default")
    graphs.warm_up("head")
    # torch takes equal numbers for one and the same at first, such as T and L.
    assert counter.frame_count <= 4
    before = counter.frame_count
    # The last two are beyond all buckets.
    for lengths in [(30, 30, 4), (64,) * 9, (50, 64, *[7] * 100)]:
        batch = batch_of(*lengths)
        torch.testing.assert_close(graphs.forward(batch), direct(model, batch), **NEAR)
    assert counter.frame_count <= before + 1
