r"""Tokens/s and model-FLOPs utilisation of masked-LM training on one GPU, in bf16.

    python benchmarks/pretrain_gpu.py --size base --lengths 128 512 [--data TEXT... | CORPUS] \
        [--tokenizer DIR] [--dropout 0.1] [--compile]

Steps are the trainer's own (`train.step.accumulate`, the model, clipping, the optimiser), with the
logits of the masked tokens only (15 %). Each length is measured on synthetic sequences that are all
full, and, with --data, on what `filbert corpus` and the pre-training loader make of real text; for
texts filbert must be installed, for a corpus it need not be. A figure is the median of five windows
of steps, with their spread, each closed by a synchronisation; the making of synthetic batches is
not in it, that of real ones is.

FLOPs are those of the model, not of its padding or of work done twice: two for each multiply-add of
a matrix product, attention's own products counted, twice the forward pass for the backward pass,
element-wise work not counted, the head at masked tokens only. They are compared with the rate of a
large bf16 product on the same GPU in the same minute. Goal: 60 % of it. `--device cpu --size tiny`
shows that it works.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from flops import training_flops

# So that it runs on a rented GPU from a bare checkout, where nothing is installed.
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent / "against"))

from runs import add_results_options, append

from filbert.data.examples import Example
from filbert.data.masking import MaskedRow
from filbert.model.config import EncoderConfig
from filbert.model.cpu import all_memory_kept
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, new_head
from filbert.model.precision import choose_precision
from filbert.tasks.pretraining import Pretraining
from filbert.train.distributed import Parallel
from filbert.train.optimizer import new_optimizer
from filbert.train.options import TrainOptions
from filbert.train.step import Forward, accumulate, model_forward

GOAL = 0.6
WINDOWS = 5
MASK_RATE = 0.15
VOCAB_SIZE = 30_522
CLS, SEP, MASK, FIRST_WORD = 101, 102, 103, 1_000
# Layers, hidden size, heads; the feed-forward layer is four times as wide. Turc et al. 2019.
SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8), "base": (12, 768, 12)}
SIZES |= {"large": (24, 1024, 16)}
STEPS = {"cpu": (1, 2), "cuda": (10, 20)}

Step = Sequence[Sequence[Example]]


class Measured(NamedTuple):
    """Figures of one length.

    Attributes:
        tokens_per_second: median over the windows.
        spread: the slowest and the fastest window.
        flops_per_second: of the model, by the median.
        first_loss, last_loss: of the steps measured.
    """

    tokens_per_second: float
    spread: tuple[float, float]
    flops_per_second: float
    first_loss: float
    last_loss: float


def config_of(size: str, length: int, dropout: float) -> EncoderConfig:
    layers, hidden, heads = SIZES[size]
    return EncoderConfig.of(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=max(512, length),
        pooler=None,
        hidden_dropout=dropout,
        attention_dropout=dropout,
        head_dropout=dropout,
    )


def step_flops(config: EncoderConfig, step: Step) -> int:
    """FLOPs of a training step: the forward pass and twice as much for the backward pass."""
    examples = [example for micro_batch in step for example in micro_batch]
    num_masked = sum(len(example.target.positions) for example in examples)
    lengths = [len(e.input_ids) for e in examples]
    return training_flops(config, lengths, num_masked=num_masked)


def num_tokens(step: Step) -> int:
    return sum(len(example.input_ids) for micro_batch in step for example in micro_batch)


# Batches


def synthetic(length: int, num_sequences: int, seed: int) -> list[Example]:
    """Full sequences of random words, 15 % of them masked."""
    draw = np.random.default_rng(seed)
    count = round(MASK_RATE * length)
    examples = []
    for row in range(num_sequences):
        # Words as unequally common as in a language (Zipf): there is something to learn.
        words = FIRST_WORD + draw.zipf(1.3, length) % (VOCAB_SIZE - FIRST_WORD)
        ids = np.concatenate([[CLS], words[2:], [SEP]]).astype(np.int32)
        positions = np.sort(1 + draw.choice(length - 2, count, replace=False)).astype(np.int64)
        labels = ids[positions].astype(np.int64)
        ids[positions] = MASK
        target = MaskedRow(positions, labels, None)
        examples.append(Example(row, ids, np.zeros(length, np.int32), length, target))
    return examples


def synthetic_steps(length: int, tokens: int, micro_batches: int) -> Iterator[Step]:
    """Four different steps in turn, made beforehand."""
    count = max(1, tokens // length)
    made = [
        [synthetic(length, count, 100 * step + index) for index in range(micro_batches)]
        for step in range(4)
    ]
    while True:
        yield from made


def real_steps(corpus: Path, length: int, tokens: int, micro_batches: int) -> Iterator[Step]:
    """The steps of a pre-training run over `corpus`, masked anew while they are asked for."""
    from filbert.data.instances import ObjectiveOptions, PretrainLoader
    from filbert.data.shards import Corpus
    from filbert.text.tokenizer import Tokenizer

    loader = PretrainLoader(
        Corpus.open(corpus),
        Tokenizer.load(corpus / "tokenizer"),
        ObjectiveOptions(max_length=length),
        batch_size=max(1, tokens // length) * micro_batches,
        max_tokens=tokens,
        seed=0,
    )
    index = 0
    while True:
        yield loader.step(index)
        index += 1


def corpus_of(data: Sequence[Path], tokenizer: Path | None, folder: Path) -> Path:
    """`data` itself if it is a corpus of `filbert corpus`, else what that makes of the texts."""
    if len(data) == 1 and (data[0] / "manifest.json").is_file():
        return data[0]
    if tokenizer is None:
        raise SystemExit("--tokenizer is missing: a folder with vocab.txt to read the texts with")
    from filbert.data.build import build_corpus
    from filbert.text.tokenizer import Tokenizer

    build_corpus([str(path) for path in data], Tokenizer.load(tokenizer), folder)
    return folder


# Measuring


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def product_peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """FLOP/s of a square matrix product: the median of five windows of ten."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    rates = []
    for window in range(WINDOWS + 1):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(10):
            left @ right
        synchronize(device)
        # The first window warms up.
        if window:
            rates.append(10 * 2 * size**3 / (time.perf_counter() - began))
    return statistics.median(rates)


@all_memory_kept()
def measure(
    config: EncoderConfig,
    steps: Iterator[Step],
    device: torch.device,
    *,
    precision: str,
    num_warm: int,
    num_steps: int,
    lr: float = 1e-4,
) -> Measured:
    """Train on `steps` and time it; `num_steps` are in each window."""
    torch.manual_seed(0)
    encoder = Encoder(config)
    initialize(encoder, config.initializer_range)
    objective = Pretraining()
    model = Model(encoder, new_head(objective.head_kind, config)).to(device)
    options = TrainOptions(lr=lr)
    optimizer = new_optimizer(model, options)
    parallel = Parallel(0, 1, device)
    settled = choose_precision(precision, device)
    forward: Forward = model_forward(model, device)
    model.train()
    losses: list[float] = []

    def run(step: Step) -> None:
        # As the loop of `train.loop.train`, without its log.
        gradient = accumulate(
            forward,
            model,
            objective,
            step,
            parallel=parallel,
            precision=settled,
            seed=(0, len(losses)),
            stand_in=step[0],
        )
        parallel.clip(model, options.clip)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(gradient.loss)

    for _ in range(num_warm):
        run(next(steps))
    rates, flops = [], []
    for _ in range(WINDOWS):
        tokens = work = 0
        synchronize(device)
        began = time.perf_counter()
        for _ in range(num_steps):
            step = next(steps)
            run(step)
            tokens += num_tokens(step)
            work += step_flops(config, step)
        synchronize(device)
        seconds = time.perf_counter() - began
        rates.append(tokens / seconds)
        flops.append(work / seconds)
    return Measured(
        statistics.median(rates),
        (min(rates), max(rates)),
        statistics.median(flops),
        losses[num_warm],
        losses[-1],
    )


def table(records: Sequence[dict[str, Any]]) -> str:
    lines = ["| size | length | batches | tokens/s (spread) | TFLOP/s | of the peak |"]
    lines.append("|" + "---|" * 6)
    for record in records:
        low, high = record["spread"]
        lines.append(
            f"| {record['size']} | {record['length']} | {record['batches']} "
            f"| {record['tokens_per_second']:,.0f} ({low:,.0f} to {high:,.0f}) "
            f"| {record['flops_per_second'] / 1e12:.3g} | {record['utilisation']:.1%} |"
        )
    return "\n".join(lines)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--data", nargs="+", type=Path, help="texts, or a folder of filbert corpus")
    parser.add_argument("--tokenizer", type=Path, help="vocabulary of 30,522 entries, for texts")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "float32"))
    parser.add_argument("--dropout", type=float, default=0.1, help="0.1 is BERT's; 0 is faster")
    parser.add_argument("--tokens", type=int, help="per micro-batch; 65,536, or 1,024 on a CPU")
    parser.add_argument("--micro-batches", type=int, default=1, help="per optimiser step")
    parser.add_argument("--warm", type=int, help="steps before the first window")
    parser.add_argument("--steps", type=int, help="steps of each of the five windows")
    add_results_options(parser, "pretrain_gpu")
    given = parser.parse_args(words)
    if given.device != "cpu" and not torch.cuda.is_available():
        parser.error("there is no CUDA GPU; --device cpu --size tiny shows that it works")
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    warm, count = STEPS[device.type]
    tokens = given.tokens or (65_536 if on_gpu else 1_024)
    dtype = torch.bfloat16 if given.precision == "bf16" else torch.float32
    peak = product_peak(device, dtype, 8_192 if on_gpu else 512)
    name = (
        torch.cuda.get_device_name(device) if on_gpu else platform.processor() or platform.machine()
    )
    print(f"{name}, torch {torch.__version__}: {given.precision} product {peak / 1e12:.3g} TFLOP/s")
    records = []
    with tempfile.TemporaryDirectory() as spare:
        corpus = None
        if given.data:
            corpus = corpus_of(given.data, given.tokenizer, Path(spare) / "corpus")
        for length in given.lengths:
            sources = {"synthetic": synthetic_steps(length, tokens, given.micro_batches)}
            if corpus is not None:
                sources["real"] = real_steps(corpus, length, tokens, given.micro_batches)
            for kind, steps in sources.items():
                found = measure(
                    config_of(given.size, length, given.dropout),
                    steps,
                    device,
                    precision=given.precision,
                    num_warm=given.warm or warm,
                    num_steps=given.steps or count,
                )
                record = {
                    "size": given.size,
                    "length": length,
                    "batches": kind,
                    **found._asdict(),
                    "peak": peak,
                    "utilisation": found.flops_per_second / peak,
                    "precision": given.precision,
                    "dropout": given.dropout,
                    "tokens": tokens,
                    "micro_batches": given.micro_batches,
                    "device": name,
                    "torch": torch.__version__,
                    "time": time.strftime("%F %T"),
                }
                records.append(record)
                append(given.results, record)
    print(table(records))
    least = min(record["utilisation"] for record in records)
    print(f"goal: {GOAL:.0%} of the measured product; the least here is {least:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
