"""The peers of inference_gpu.py: padded batches through transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.data.loader import by_length
from filbert.model.config import EncoderConfig

Run = Callable[[Sequence[Example]], Any]


def peers_of(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype, tokens: int, *, compile: bool
) -> Iterator[tuple[str, Run]]:
    """The same shapes in transformers, where it is installed."""
    if importlib.util.find_spec("transformers") is None:
        return
    from transformers import BertConfig, BertForSequenceClassification

    theirs = BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.attention.heads,
        intermediate_size=config.feed_forward.width,
        max_position_embeddings=config.positions.rows,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    model: Any = BertForSequenceClassification(theirs).to(device, dtype).eval()
    programs = {"transformers sdpa": model}
    if compile:
        programs["transformers sdpa compiled"] = torch.compile(model, dynamic=True)
    for name, program in programs.items():
        yield name, partial(run_padded, program, device=device, max_tokens=tokens)


def run_padded(
    program: Any, examples: Sequence[Example], *, device: torch.device, max_tokens: int
) -> list[torch.Tensor]:
    """Padded batches of near-equal length, a mask only where something is padded."""
    outputs: list[torch.Tensor | None] = [None] * len(examples)
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        chosen = [examples[i].input_ids for i in indices]
        lengths = np.array([len(ids) for ids in chosen])
        is_real = np.arange(lengths.max()) < lengths[:, None]
        ids = np.zeros(is_real.shape, np.int64)
        ids[is_real] = np.concatenate(chosen)
        inputs = {"input_ids": torch.from_numpy(ids).to(device)}
        if not is_real.all():
            inputs["attention_mask"] = torch.from_numpy(is_real.astype(np.int64)).to(device)
        with torch.inference_mode():
            logits = program(**inputs).logits
        for index, row in zip(indices, logits.float().cpu(), strict=True):
            outputs[index] = row
    return [output for output in outputs if output is not None]
