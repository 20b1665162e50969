"""On a GPU: recorded programs give what the ordinary pass gives, and the host does not wait."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from filbert.batch import PackedBatch, pack
from filbert.data.examples import Example
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.speed.execution import run_model
from filbert.speed.graphs import Graphs, buckets_for
from filbert.speed.precision import Precision
from filbert.speed.vectors import run_vectors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU"),
    # torch warns of its own doing while it compiles.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
FLOAT32 = Precision("float32", "")
BUCKETS = buckets_for(128, 2_048)
# Outputs are around 1: float32 sums come in another order, bf16 has 8 bits, float16 11.
NEAR = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
COMPOSITIONS = [(16,), (128,), (90,), (60, 60, 4), (7,) * 50, (128,) * 16, (128,) * 40]


def model_of(dtype: torch.dtype, kind: str | None = "tokens", **changes) -> Model:
    sizes = {"vocab_size": 1_000, "hidden_size": 256, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 1_024, "max_position_embeddings": 128}
    config = EncoderConfig(**sizes | {"pooler": "tanh"} | changes)
    torch.manual_seed(0)
    count = 3 if kind in ("sequence", "tokens") else None
    model = Model(Encoder(config), new_head(kind, config, count) if kind else None)
    initialize(model, 0.05)
    return model.to("cuda", dtype).eval()


def batch_of(*lengths: int, seed: int = 0) -> PackedBatch:
    draw = np.random.default_rng(seed)
    return pack([draw.integers(5, 1_000, length) for length in lengths])


def direct(model: Model, batch: PackedBatch) -> torch.Tensor:
    with torch.inference_mode():
        return model(batch.to("cuda"))


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    near = NEAR[wanted.dtype] * wanted.float().abs().max().item()
    torch.testing.assert_close(found.float(), wanted.float(), rtol=0, atol=near)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", ["sequence", "tokens", None])
def test_replays_give_what_the_ordinary_pass_gives(kind, dtype):
    model = model_of(dtype, kind)
    graphs = Graphs(model, buckets=BUCKETS)
    graphs.warm_up()
    # Every program again and again, in changing order: what one leaves behind must not show.
    for seed in range(3):
        for lengths in COMPOSITIONS if seed % 2 else COMPOSITIONS[::-1]:
            batch = batch_of(*lengths, seed=seed)
            same(graphs.forward(batch), direct(model, batch))
            with torch.inference_mode():
                same(graphs.encode(batch), model.encoder(batch.to("cuda")))


FAMILIES = {
    "mean": {"pooled": "mean", "pooler": None},
    "local": {"local_window": 8, "global_every": 2, "rotary_base": 1e4, "position_offset": 0},
    "causal": {"causal": True},
    "odd heads": {"hidden_size": 240, "num_attention_heads": 20},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_so_they_do_for_other_families(family):
    model = model_of(torch.bfloat16, "sequence", **FAMILIES[family])
    graphs = Graphs(model, buckets=BUCKETS)
    for lengths in COMPOSITIONS:
        batch = batch_of(*lengths)
        same(graphs.forward(batch), direct(model, batch))


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_compiled_programs_do_too(mode):
    torch.compiler.reset()
    model = model_of(torch.bfloat16, "sequence")
    graphs = Graphs(model, buckets=BUCKETS, compile=mode)
    graphs.warm_up("head")
    for lengths in COMPOSITIONS:
        batch = batch_of(*lengths)
        same(graphs.forward(batch), direct(model, batch))


def test_in_one_bucket_company_changes_not_a_bit():

    model = model_of(torch.bfloat16)
    graphs = Graphs(model, buckets=BUCKETS[-1:])
    first = graphs.forward(batch_of(40))
    draw = batch_of(40)
    others = batch_of(9, 100, seed=1)
    together = pack(
        [draw.input_ids.numpy(), *(p.numpy() for p in others.input_ids.split([9, 100]))]
    )
    assert torch.equal(graphs.forward(together)[:40], first)


def test_no_way_makes_the_host_wait_before_the_answer_is_asked_for():
    model = model_of(torch.bfloat16)
    graphs = Graphs(model, buckets=BUCKETS)
    # Beyond all buckets, so that every batch is laid out anew.
    large = Graphs(model, buckets=(), compile="default")
    batches = [batch_of(*lengths) for lengths in COMPOSITIONS]
    for batch in batches:
        graphs.forward(batch), direct(model, batch), large.forward(batch)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            graphs.forward(batch), direct(model, batch), large.forward(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_run_model_and_run_vectors_answer_as_on_the_processor():
    draw = np.random.default_rng(0)
    examples = []
    for row, length in enumerate(draw.integers(1, 129, 300)):
        ids = draw.integers(5, 1_000, length).astype(np.int32)
        examples.append(Example(row, ids, np.zeros(length, np.uint8), int(length)))
    model = model_of(torch.float32, "sequence")
    found = {}
    for device in ("cpu", "cuda"):
        graphs = Graphs(model.to(device))
        for used in (None, graphs):
            settings = {"max_tokens": 1_024, "precision": FLOAT32, "graphs": used}
            last = (model.config.num_hidden_layers,)
            vectors = run_vectors(
                model, examples, layers=last, pooling="mean", normalize=True, **settings
            )
            found[device, used is None] = (
                torch.stack(run_model(model, examples, **settings)),
                torch.from_numpy(np.stack(vectors)),
            )
    for answers in found.values():
        for one, wanted in zip(answers, found["cpu", True], strict=True):
            same(one, wanted)


def test_many_threads_get_their_own_answers():
    model = model_of(torch.bfloat16, "sequence")
    graphs = Graphs(model, buckets=BUCKETS)
    batches = [batch_of(20 + seed, 9, seed=seed) for seed in range(8)]
    wanted = [direct(model, batch) for batch in batches]
    wrong: list[str] = []

    def ask(index: int) -> None:
        try:
            for _ in range(50):
                same(graphs.forward(batches[index]), wanted[index])
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_all_programs_together_hold_little_more_than_the_largest():
    model = model_of(torch.bfloat16, "sequence")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    largest = Graphs(model, buckets=BUCKETS[-1:])
    largest.warm_up("head")
    one = torch.cuda.memory_reserved() - before
    graphs = Graphs(model, buckets=BUCKETS)
    seconds = graphs.warm_up("head")
    together = torch.cuda.memory_reserved() - before - one
    print(f"{len(BUCKETS)} programs: {together / 2**20:.0f} MiB, the largest {one / 2**20:.0f} MiB")
    print(f"recorded in {seconds:.1f} s")
    # torch reserves 20 MiB at a time for larger tensors, and 2 MiB for smaller ones.
    assert together <= 2 * one + 100 * 2**20


def test_how_long_one_text_takes():
    """Figures for a reader of the output (-s); nothing is asserted of them."""
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    model = model_of(torch.bfloat16, "sequence", **sizes, intermediate_size=3_072)
    graphs = Graphs(model)
    for length in (16, 128):
        batch = batch_of(length)
        for name, run in {"ordinary": lambda b: direct(model, b), "graph": graphs.forward}.items():
            times = []
            for _ in range(200):
                began = time.perf_counter()
                run(batch).cpu()
                times.append(time.perf_counter() - began)
            print(f"{length} tokens, {name}: {1e3 * float(np.median(times[50:])):.3f} ms")
