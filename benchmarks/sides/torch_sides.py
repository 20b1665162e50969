"""Sides that run in torch: filbert, transformers, and the same layers written down plainly.

n texts, L the longest of a batch, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.errors import ConfigError
from filbert.model.config import RotaryPositions
from sides.job import Job

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor

# From the token ids of n texts to the mean of each text's last hidden states, float32 (n, H).
Encode = Callable[[Sequence[np.ndarray]], np.ndarray]

_DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
# What keeps activations of a base model in a core's cache.
_PLAIN_TOKENS = 512


def padded(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, int64 (n, L), as padded tools want them."""
    longest = max(map(len, texts))
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return ids, mask


def means(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean over each text's own tokens: (n, L, H) to (n, H)."""
    weights = mask[:, :, None].astype(np.float32)
    total: np.ndarray = (hidden * weights).sum(1) / weights.sum(1)
    return total


def _torch_means(hidden: Tensor, mask: Tensor) -> np.ndarray:
    weights = mask[:, :, None].float()
    found: np.ndarray = ((hidden.float() * weights).sum(1) / weights.sum(1)).cpu().numpy()
    return found


def filbert(job: Job, precision: str) -> Encode:
    """As `filbert embed` and the server do it, from token ids on."""
    from filbert.inference.predictor import Predictor

    torch.set_num_threads(job.threads)
    return encode_by(Predictor.load(job.model, precision=precision, device=job.device, packed=True))


def static(job: Job, precision: str) -> Encode:
    """As after `filbert convert --to static-int8`, measured on the texts that OpenVINO gets too."""
    from filbert.inference.int8 import input_ranges, quantized
    from filbert.inference.predictor import Predictor
    from filbert.model.precision import Precision
    from sides.conversion import calibration_texts

    torch.set_num_threads(job.threads)
    exact = Predictor.load(job.model, device=job.device)
    ranges = input_ranges(exact.model, exact.text_examples(calibration_texts()))
    model = quantized(exact.model, ranges=ranges)
    return encode_by(Predictor(model, exact.tokenizer, precision=Precision(precision, "as asked")))


def encode_by(predictor: Predictor) -> Encode:
    """Means of hidden states by filbert, whatever backend it has."""
    from filbert.data.examples import Example

    predictor.warm_up()

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        examples = [Example(i, ids, np.zeros_like(ids), len(ids)) for i, ids in enumerate(texts)]
        return np.stack(predictor.vectors(examples, pooling="mean", normalize=False))

    return encode


def transformers(job: Job, precision: str) -> Encode:
    """AutoModel with its own fused attention, in batches padded to their longest text."""
    library: Any = import_module("transformers")
    library.logging.set_verbosity_error()
    torch.set_num_threads(job.threads)
    model = library.AutoModel.from_pretrained(
        job.model, attn_implementation="sdpa", dtype=_DTYPES[precision]
    )
    model = model.eval().to(job.device)

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        ids, mask = (torch.from_numpy(part).to(job.device) for part in padded(texts))
        with torch.inference_mode():
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            return _torch_means(hidden, mask)

    return encode


def plain(job: Job, precision: str) -> Encode:
    """The layers as anyone would write them in torch; 512-token batches of near-equal length.

    Raises:
        ConfigError: a model with other layers than the first encoder's.
    """
    from pathlib import Path

    from filbert.checkpoints.opening import read_checkpoint

    torch.set_num_threads(job.threads)
    model = read_checkpoint(Path(job.model)).build()
    config, encoder = model.config, model.encoder
    if (
        config.pre_norm
        or config.feed_forward.gated
        or isinstance(config.positions, RotaryPositions)
        or config.feed_forward.activation != "gelu"
    ):
        raise ConfigError("its layers are not those that this side writes down.")
    if precision == "int8":
        # torch's own dynamic quantisation of linear layers.
        quantisation: Any = import_module("torch.ao.quantization")
        encoder = quantisation.quantize_dynamic(encoder, {nn.Linear}, dtype=torch.qint8)
    else:
        encoder = encoder.to(job.device, _DTYPES[precision])
    heads = config.attention.heads
    layers: list[Any] = [
        encoder.layers[index * config.num_groups // config.num_hidden_layers]
        for index in range(config.num_hidden_layers)
    ]
    tables: Any = encoder.embeddings

    def hidden_of(ids: Tensor, mask: Tensor) -> Any:
        places = torch.arange(ids.shape[1], device=ids.device) + config.positions.offset
        hidden = tables.word(ids) + tables.position(places)
        if tables.token_type is not None:
            hidden = hidden + tables.token_type(torch.zeros_like(ids))
        hidden = tables.norm(hidden)
        if tables.project is not None:
            hidden = tables.project(hidden)
        seen = None if bool(mask.all()) else mask[:, None, None, :].bool()
        for layer in layers:
            split = layer.qkv(hidden).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            query, key, value = split
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            mixed = layer.attention_out(mixed.transpose(1, 2).flatten(2))
            hidden = layer.attention_norm(hidden + mixed)
            hidden = layer.norm(hidden + layer.down(F.gelu(layer.up(hidden))))
        return hidden

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        vectors = np.empty((len(texts), config.hidden_size), np.float32)
        with torch.inference_mode():
            for rows in _near_equal([len(text) for text in texts], _PLAIN_TOKENS):
                ids, mask = padded([texts[row] for row in rows])
                on_device = torch.from_numpy(mask).to(job.device)
                hidden = hidden_of(torch.from_numpy(ids).to(job.device), on_device)
                vectors[rows] = _torch_means(hidden, on_device)
        return vectors

    return encode


def _near_equal(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Rows by length, in batches of at most `tokens` with their padding, and at least one row."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        # Longest first: the first of a batch is what the others are padded to.
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
