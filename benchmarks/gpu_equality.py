"""The equality parts of gpu_proof.py: the same numbers on the GPU and on the CPU.

A difference is the largest one, divided by the largest number of the reference, which the CPU
computes in float64 (attention) or float32. Bounds are a few roundings: float32 has 24 bits, float16
11 and bf16 8. With `--toy` both sides run on the CPU.
"""

from __future__ import annotations

import csv
import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert import Predictor
from filbert.batch import PackedBatch, pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, meta_model, with_new_head
from filbert.checkpoints.config_json import default_settings
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.data.examples import Example
from filbert.data.masking import MaskedRow
from filbert.model.attention import AttentionPlan, PositionVectors, _has_kernel, attend
from filbert.model.config import EncoderConfig
from filbert.model.precision import Precision
from filbert.samples import path as sample
from filbert.tasks.pretraining import Pretraining
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Parallel
from filbert.train.step import accumulate, model_forward

Row = dict[str, Any]
Step = Sequence[Sequence[Example]]
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bf16": torch.bfloat16}
# Of one attention and its gradient.
BOUNDS = {"float32": 1e-5, "float16": 5e-3, "bf16": 4e-2}
# Of a model: more roundings one after the other.
MODEL_BOUNDS = {"float32": 1e-4, "bf16": 0.08}
HEADS, SIZE, MASK = 4, 16, 4
TINY = {
    "vocab_size": 50,
    "hidden_size": HEADS * SIZE,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
}
# Smaller than a family's own values, which are for large models; only where the family has them.
SMALLER = {"num_key_value_heads": 2, "head_size": SIZE, "local_window": 6, "distance_buckets": 8}
LENGTHS = (40, 30, 30, 17, 5, 1)


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference relative to the largest number; infinite where one is not finite."""
    found, wanted = found.detach().cpu().double(), wanted.detach().cpu().double()
    off = (found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30)
    return float(off) if bool(found.isfinite().all()) else float("inf")


def equal(what: str, value: float, bound: float, note: str = "") -> Row:
    """A row of the table; it passes within its bound."""
    passed = value <= bound
    return {"what": what, "value": value, "bound": bound, "passed": passed, "note": note}


# Attention


def attention(device: torch.device, toy: bool) -> Iterator[Row]:
    """Every way to attend, in every number format: its output and its gradient."""
    mixed, long = (40, 40, 39, 17, 17, 5, 1), (700, 130, 129)
    kinds: dict[str, dict[str, Any]] = {
        "whole sequences": {},
        "causal": {"causal": True},
        "scale 0.3": {"scale": 0.3},
        "window of 3": {"reach": 3},
        "window of 16, in blocks": {"reach": 16, "lengths": long},
        "bias by distance": {"bias": True},
        "bias by distance, causal": {"bias": True, "causal": True},
        "bias by distance, in blocks": {"bias": True, "lengths": (1100, 7)},
        "position vectors": {"vectors": True, "scale": 0.15},
        "position vectors, window of 3": {"vectors": True, "scale": 0.15, "reach": 3},
    }
    for kind, settings in kinds.items():
        lengths = settings.pop("lengths", mixed)
        columns = 2 * max(lengths) - 1
        shapes: dict[str, tuple[int, ...]] = {"qkv": (sum(lengths), 3, HEADS, SIZE)}
        shapes |= {"bias": (HEADS, columns)} if settings.pop("bias", False) else {}
        if settings.pop("vectors", False):
            shapes |= {side: (HEADS, SIZE, columns) for side in ("keys", "queries")}
        batch = pack([np.ones(n) for n in lengths])
        for name, dtype in DTYPES.items():
            draw = torch.Generator().manual_seed(0)
            inputs = {k: torch.randn(size, generator=draw).to(dtype) for k, size in shapes.items()}
            exact = {k: tensor.double() for k, tensor in inputs.items()}
            there = {k: tensor.to(device) for k, tensor in inputs.items()}
            by_kernel = len(there) == 1 and _has_kernel(there["qkv"])
            wanted = _attended(batch, exact, settings)
            for part, tensor in _attended(batch.to(device), there, settings).items():
                off = difference(tensor, wanted[part])
                way = "varlen kernel" if by_kernel else "products of groups"
                yield equal(f"{kind}, {name}, {part}", off, BOUNDS[name], way)


def _attended(
    batch: PackedBatch, inputs: dict[str, torch.Tensor], settings: dict[str, Any]
) -> dict[str, Any]:
    """The outputs with and without a gradient, and the gradients of all inputs."""
    qkv, *rest = (tensor.requires_grad_() for tensor in inputs.values())
    plan, vectors = AttentionPlan(batch, **settings), None
    if len(rest) == 1:
        plan = replace(plan, bias_AP=rest[0])
    elif rest:
        # These only say that there are vectors; a layer would make them from these.
        plan, vectors = replace(plan, position_rows=(rest[0], rest[1])), PositionVectors(*rest)
    with torch.inference_mode():
        alone = attend(qkv, plan, vectors=vectors)
    output = attend(qkv, plan, vectors=vectors)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    (output * weights.to(output)).sum().backward()
    grads = {f"gradient of {name}": tensor.grad for name, tensor in inputs.items()}
    return {"output": alone, "output in training": output} | grads


# Models


def families(device: torch.device, toy: bool) -> Iterator[Row]:
    """The hidden states of a tiny random model of every row of the table of families."""
    for name in FAMILIES:
        checkpoint = tiny_checkpoint(name)
        batch = _batch(checkpoint.config)
        with torch.inference_mode():
            wanted = checkpoint.build().encoder(batch)
            for precision, bound in MODEL_BOUNDS.items():
                model = checkpoint.build(dtype=DTYPES[precision]).to(device)
                found = model.encoder(batch.to(device))
                yield equal(f"{name}, {precision}", difference(found, wanted), bound)


def tiny_checkpoint(name: str, head: str | None = None) -> Checkpoint:
    """A random model of a family with its own defaults, but few and narrow layers."""
    family = FAMILIES[name]
    settings = default_settings(family)
    if settings.get("hidden_act") not in ("relu", "silu"):
        settings["hidden_act"] = "gelu"
    settings |= {k: v for k, v in SMALLER.items() if settings.get(k)} | family.constants
    settings |= {k: v for k, v in TINY.items() if k not in family.constants}
    config = EncoderConfig.of(**settings).with_dropout(0.0)
    torch.manual_seed(0)
    shapes = meta_model(config, head).state_dict()
    mean = 0.0 if settings.get("norm_from_one") else 1.0
    tensors = {k: _weights(k, t.shape, mean) for k, t in shapes.items()}
    return Checkpoint(config=config, family=name, tensors=tensors, head=head)


def _weights(name: str, shape: torch.Size, mean: float) -> torch.Tensor:
    """Weights that neither vanish nor explode through layers; those of norms around their mean."""
    if "norm" in name and name.endswith("weight"):
        return mean + 0.1 * torch.randn(shape)
    return torch.randn(shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)


def _batch(config: EncoderConfig) -> PackedBatch:
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, config.vocab_size, n) for n in LENGTHS]
    kinds = max(1, config.embeddings.token_types)
    return pack(texts, [np.arange(n) * kinds // n for n in LENGTHS])


def gradients(device: torch.device, toy: bool) -> Iterator[Row]:
    """The gradient of all weights in one step of masked-LM training; and of the loss."""
    for name in ("bert", "modernbert", "mpnet", "deberta-v2"):
        wanted_loss, wanted = _step(name, torch.device("cpu"), "float32")
        for precision, bound in MODEL_BOUNDS.items():
            loss, found = _step(name, device, precision)
            yield equal(f"{name}, {precision}, gradient", difference(found, wanted), bound)
            yield equal(f"{name}, {precision}, loss", abs(loss / wanted_loss - 1), bound)


def _step(name: str, device: torch.device, precision: str) -> tuple[float, torch.Tensor]:
    model = tiny_checkpoint(name, "masked_lm").build().to(device).train()
    draw = np.random.default_rng(1)
    rows = [masked(draw.integers(5, 50, n), np.arange(n // 3)) for n in LENGTHS if n > 3]
    loss = add_gradient(model, [rows[:3], rows[3:]], device, precision)
    flat = [p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None]
    return loss, torch.cat(flat)


def add_gradient(
    model: torch.nn.Module, step: Step, device: torch.device, precision: str, number: int = 0
) -> float:
    """The loss of a step of masked-LM training, whose gradient is added to the parameters."""
    common: dict[str, Any] = {"parallel": Parallel(0, 1, device), "stand_in": step[0]}
    common |= {"precision": Precision(precision, ""), "seed": (0, number)}
    return accumulate(model_forward(model, device), model, Pretraining(), step, **common).loss


def masked(ids: np.ndarray, places: np.ndarray) -> Example:
    """A sequence whose tokens at some places are to be guessed."""
    ids, places = ids.astype(np.int32), places.astype(np.int64)
    target = MaskedRow(places, ids[places].astype(np.int64), None)
    ids[places] = MASK
    return Example(0, ids, np.zeros(len(ids), np.uint8), len(ids), target)


# The models that come with filbert


def shipped(device: torch.device, toy: bool) -> Iterator[Row]:
    """`embed` and `predict` of minilm, `fill` and `score` of filbert-mini, from text to answers."""
    texts = [text[:60] for text in sample_texts()[:2]] if toy else sample_texts()[:200]
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        checkpoint = read_checkpoint(find_model("minilm"))
        write_model(with_new_head(checkpoint, "sequence", 2), Path(folder))
        names = {"embed": "minilm", "predict": folder, "fill": "filbert-mini"}
        names["score"] = names["fill"]
        for verb, name in names.items():
            wanted = _answers(verb, Predictor.load(name, device="cpu"), texts)
            for precision, bound in MODEL_BOUNDS.items():
                there = Predictor.load(name, device=str(device), precision=precision)
                off = difference(_answers(verb, there, texts), wanted)
                yield equal(f"{verb}, {precision}", off, bound, Path(name).name)


def _answers(verb: str, predictor: Predictor, texts: Sequence[str]) -> torch.Tensor:
    """Vectors; probabilities of labels, or of the words at a mask; or of whole texts."""
    if verb == "embed":
        return torch.from_numpy(np.array(predictor.embed(texts)))
    if verb == "predict":
        answers = predictor.predict(texts)
        return torch.tensor([list(answer["scores"].values()) for answer in answers])
    if verb == "score":
        return torch.tensor([one["pll"] for one in predictor.score(texts[:8])])
    filled = predictor.fill([f"{text[:200]} [MASK]" for text in texts], top=3)
    # Sorted by probability: equal ones may change places.
    return torch.tensor([[c["score"] for c in answer["candidates"][0]] for answer in filled])


def write_model(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a model folder that other tools read too."""
    huggingface.write(checkpoint, folder)
    tokenizer().save(folder)


@cache
def tokenizer() -> Tokenizer:
    """The tokenizer of minilm, which is BERT's."""
    return read_tokenizer(find_model("minilm"))


@cache
def sample_texts() -> list[str]:
    """Real texts: those of the sample that comes with filbert."""
    with gzip.open(sample("toxic_dev.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]
