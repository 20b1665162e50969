"""The speed parts of gpu_proof.py: pre-training, texts and pairs, latency; filbert and its peers.

Everything is in bf16: weights in inference, products in training (autocast). Models are drawn at
random, texts are cut from real ones. Inference is timed from texts to numbers on the host; a peer
gets the same model folder, the same texts and batches of as many tokens. A rate is the median of
passes after one that is not counted. Peers run as they are, without torch.compile.

flops.py says which FLOP are counted. MFU is their share of the dense bf16 rate of the data sheet;
of a large product, measured here, for cards that DATA_SHEET does not have.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

import filbert
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.data.build import build_corpus
from filbert.data.examples import Example
from filbert.data.instances import ObjectiveOptions, PretrainLoader
from filbert.data.shards import Corpus
from filbert.inference.forward import MAX_TOKENS_CUDA
from filbert.model.cpu import all_memory_kept
from filbert.train.optimizer import new_optimizer
from filbert.train.options import TrainOptions
from flops import training_flops
from gpu_equality import Row, Step, add_gradient, masked, sample_texts, tokenizer, write_model

# FLOP/s of dense bf16 products by the data sheets of the SXM cards; PCIe and NVL cards have less.
DATA_SHEET = {"NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12}
# Of pairs of 128 tokens.
GOAL_MFU, GOAL_PAIRS = 0.6, {"MiniLM": 40_000, "ModernBERT-base": 10_000}
# What differs from a family's base model. All have the vocabulary of minilm.
MODELS: dict[str, dict[str, Any]] = {
    "ModernBERT-base": {"family": "modernbert", "vocab_size": 50_368},
    "MiniLM": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
    "BERT-base": {},
}
TOY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
VOCAB_SIZE, FIRST_WORD, MASK_RATE = 30_522, 1_000, 0.15
LENGTHS: tuple[int | str, ...] = (128, "mixed", 16, 64, 256)


def timed(run: Callable[[], Any], device: torch.device, seconds: float, least: int) -> list[float]:
    """Seconds of each call within a time, of at least so many."""
    times: list[float] = []
    wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    while len(times) < least or sum(times) < seconds:
        wait()
        began = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - began)
    return times


def rate(amount: float, times: Sequence[float], unit: str) -> Row:
    """The median of an amount per second, and its spread."""
    spread = [amount / max(times), amount / min(times)]
    return {"value": amount / statistics.median(times), "unit": unit, "spread": spread}


def new_model(size: str, toy: bool, **changes: Any) -> Checkpoint:
    """A random model with a masked-LM head."""
    torch.manual_seed(0)
    given = {"family": "bert", "vocab_size": VOCAB_SIZE, **MODELS[size], **(TOY if toy else {})}
    return fresh_checkpoint(given.pop("family"), head="masked_lm", **given, **changes)


# Pre-training


def pretraining(device: torch.device, toy: bool) -> Iterator[Row]:
    """Steps of masked-LM training of BERT-base's shape, in micro-batches of 65,536 tokens.

    With the dropout of BERT (0.1) attention runs by products of groups, without by the kernel. One
    row has what the loader makes of texts on the host, within the time of the step.
    """
    size = 128 if toy else 8_192
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = 2 * size**3 / min(timed(lambda: left @ right, device, 0.3, 20))
    sheet = DATA_SHEET.get(torch.cuda.get_device_name(device) if device.type == "cuda" else "")
    row: Row = {"what": "large product", "side": "torch", "note": f"data sheet: {sheet}"}
    yield row | {"value": product / 1e12, "unit": "TFLOP/s"}
    with tempfile.TemporaryDirectory() as folder:
        for length in (16,) if toy else (128, 512):
            for side, dropout in (
                ("filbert", 0.1),
                ("filbert", 0.0),
                ("filbert from text", 0.0),
                ("transformers", 0.1),
            ):
                row = {"what": f"{length} tokens, dropout {dropout}", "side": side}
                if side == "transformers" and not find_spec(side):
                    yield row | {"note": "not installed"}
                    continue
                corpus = Path(folder) / "corpus" if side == "filbert from text" else None
                checkpoint = new_model("BERT-base", toy, dropout=dropout)
                steps, tokens = partial(_steps, length, corpus), 256 if toy else 65_536
                while (both := _trained(side, checkpoint, steps, tokens, device, toy)) is None:
                    torch.cuda.empty_cache()
                    tokens //= 2
                found, flops = both
                yield row | found | {"note": f"{tokens:,} tokens a micro-batch"}
                share = {"value": flops / (sheet or product), "unit": "MFU", "goal": GOAL_MFU}
                yield row | share | {"note": f"{flops / product:.1%} of the product"}


@all_memory_kept()
def _trained(
    side: str,
    checkpoint: Checkpoint,
    steps: Callable[[int], Iterator[Step]],
    tokens: int,
    device: torch.device,
    toy: bool,
) -> tuple[Row, float] | None:
    """Tokens and FLOP per second; None where memory runs out."""
    drawn, each, made = steps(tokens), 1 if toy else 4, []
    try:
        step_of = (_peer_step if side == "transformers" else _own_step)(checkpoint, device)

        def run() -> None:
            for _ in range(each):
                made.append(next(drawn))
                step_of(made[-1])

        run()
        times = timed(run, device, 0 if toy else 4, 2)
    except torch.OutOfMemoryError:
        return None
    examples = [example for step in made[each:] for batch in step for example in batch]
    lengths = [len(example.input_ids) for example in examples]
    num_masked = sum(len(example.target.positions) for example in examples)
    flops = training_flops(checkpoint.config, lengths, num_masked=num_masked)
    found = rate(sum(lengths) / len(times), times, "tokens/s")
    return found, flops / len(times) / statistics.median(times)


def _own_step(checkpoint: Checkpoint, device: torch.device) -> Callable[[Step], None]:
    """One optimizer step as the loop of `train.loop` makes it, without its log."""
    model, options, numbers = checkpoint.build().to(device).train(), TrainOptions(lr=1e-4), count()
    optimizer = new_optimizer(model, options)

    def step_of(step: Step) -> None:
        add_gradient(model, step, device, "bf16", next(numbers))
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step_of


def _peer_step(checkpoint: Checkpoint, device: torch.device) -> Callable[[Step], None]:
    """The same by transformers, without padding, because all sequences are as long."""
    from transformers import BertConfig, BertForMaskedLM

    config = checkpoint.config
    sizes = {"hidden_size": config.hidden_size, "num_hidden_layers": config.num_hidden_layers}
    sizes |= {"num_attention_heads": config.attention.heads}
    theirs = BertConfig(**sizes, intermediate_size=4 * config.hidden_size)
    model = BertForMaskedLM(theirs).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step_of(step: Step) -> None:
        for batch in step:
            ids = torch.from_numpy(np.stack([e.input_ids for e in batch])).long()
            labels = torch.full_like(ids, -100)
            for row, example in zip(labels, batch, strict=True):
                row[example.target.positions] = torch.from_numpy(example.target.labels)
            with torch.autocast(device.type, torch.bfloat16):
                model(input_ids=ids.to(device), labels=labels.to(device)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step_of


def _steps(length: int, corpus: Path | None, tokens: int) -> Iterator[Step]:
    """Four steps in turn, of full sequences made beforehand; or those of a run over texts."""
    if corpus is None:
        draw = np.random.default_rng(0)

        def example() -> Example:
            # Words as unequally common as in a language (Zipf).
            ids = FIRST_WORD + draw.zipf(1.3, length) % (VOCAB_SIZE - FIRST_WORD)
            places = draw.choice(length, round(MASK_RATE * length), replace=False)
            return masked(ids, np.sort(places))

        return cycle([[[example() for _ in range(tokens // length)]] for _ in range(4)])
    if not corpus.exists():
        texts = corpus.with_suffix(".txt")
        texts.write_text("\n\n".join(sample_texts()[:500]), encoding="utf-8")
        build_corpus([texts], tokenizer(), corpus)
    options = ObjectiveOptions(max_length=length)
    sizes = {"batch_size": tokens // length, "max_tokens": tokens}
    loader = PretrainLoader(Corpus.open(corpus), tokenizer(), options, **sizes, seed=0)
    return map(loader.step, count())


# Inference


def inference(device: torch.device, toy: bool) -> Iterator[Row]:
    """Latency of one text; vectors of texts and scores of pairs a second, at several lengths."""
    for size in ("MiniLM",) if toy else MODELS:
        with tempfile.TemporaryDirectory() as folder:
            sides = _sides(size, Path(folder), device, toy)
            for length in (16, 128):
                for side, runs in sides.items():
                    ones, some = cycle(_texts(length, 64 * length)), 3 if toy else 300
                    run = partial(lambda embed, ones: embed([next(ones)]), runs["texts"], ones)
                    times = timed(run, device, 0, some + some // 10)[some // 10 :]
                    p50, p99 = map(float, np.percentile(times, [50, 99]) * 1e3)
                    row = {"what": f"{size}, one text of {length} tokens", "side": side}
                    yield row | {"value": p50, "unit": "ms", "note": f"p50; p99 {p99:.3g} ms"}
            for length in (16,) if toy else LENGTHS:
                texts = _texts(length, 256 if toy else 2**20)
                for work in ("texts", "pairs"):
                    for side, runs in sides.items():
                        given = texts if work == "texts" else [_pair(text) for text in texts]
                        runs[work](given[: len(given) // 8 + 1])
                        times = timed(partial(runs[work], given), device, 0 if toy else 1, 1)
                        row = {"what": f"{size}, {length} tokens", "side": side}
                        row |= rate(len(given), times, f"{work}/s")
                        is_goal = work == "pairs" and length == 128 and size in GOAL_PAIRS
                        yield row | ({"goal": GOAL_PAIRS[size]} if is_goal else {})
                if size == "MiniLM":
                    times = timed(partial(tokenizer().encode, texts), device, 0.2, 1)
                    found = rate(len(texts), times, "texts/s")
                    yield {"what": f"{length} tokens, tokenizing alone"} | found
            if len(sides) == 1:
                yield {"what": size, "side": "sentence-transformers", "note": "not installed"}


def _sides(
    size: str, folder: Path, device: torch.device, toy: bool
) -> dict[str, dict[str, Callable[[Any], Any]]]:
    """What makes vectors of texts and scores of pairs, by side; all read one model folder."""
    head = {"labels": ["score"], "problem_type": "regression"}
    write_model(with_new_head(new_model(size, toy), "sequence", **head), folder)
    own = filbert.load(folder, device=str(device), precision="bf16", max_length=512)
    sides = {"filbert": {"texts": own.embed, "pairs": own.predict}}
    if find_spec("sentence_transformers"):
        from sentence_transformers import CrossEncoder, SentenceTransformer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        how: dict[str, Any] = {"device": str(device), "model_kwargs": {"dtype": torch.bfloat16}}
        vectors, scores = SentenceTransformer(str(folder), **how), CrossEncoder(str(folder), **how)
        vectors.max_seq_length = 512
        sides["sentence-transformers"] = {
            "texts": lambda some: vectors.encode(some, batch_size=_batch_size(some)),
            "pairs": lambda some: scores.predict(some, batch_size=_batch_size(some)),
        }
    return sides


def _batch_size(some: Sequence[Any]) -> int:
    """Texts with about as many tokens as a batch of filbert; a token has four characters."""
    characters = sum(len("".join(one)) for one in some)
    return max(32, min(1024, 4 * MAX_TOKENS_CUDA * len(some) // characters))


def _texts(length: int | str, tokens: int) -> list[str]:
    """Real texts of about one length, or of mixed ones, of at most so many tokens together.

    Mixed lengths are log-normal with a median of 50 tokens and a mean of 71, at most 256.
    """
    whole = " ".join(sample_texts()[:300])
    (encoding,) = tokenizer().encode([whole], with_offsets=True)
    offsets, draw, texts = encoding.offsets[1:-1], np.random.default_rng(0), []
    while tokens > 0 and len(texts) < 2**14:
        size = length if isinstance(length, int) else round(50 * draw.lognormal(0, 0.84))
        # Without the tokens that mark its ends.
        size = int(np.clip(size, 4, 256)) - 2
        first = int(draw.integers(len(offsets) - size))
        texts.append(whole[offsets[first][0] : offsets[first + size - 1][1]])
        tokens -= size + 2
    return texts


def _pair(text: str) -> tuple[str, str]:
    """Both halves of a text: a pair of one token more."""
    words = text.split()
    middle = (len(words) + 1) // 2
    return " ".join(words[:middle]), " ".join(words[middle:]) or "."
