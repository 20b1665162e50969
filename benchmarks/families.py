"""Rates of model families at BERT-base's shape on one CPU thread, next to transformers.

Families whose scores depend on the distance of two tokens have more to compute than BERT. Random
weights, float32, sequences of one length, so that no side has padding. Every round times each side
once, in turns, by CPU time; the table has medians of the ratios to BERT of the same round.

    python benchmarks/families.py [--layers 12] [--rounds 5] [--tokens 1024] [--lengths 128,512]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.model.config import EncoderConfig
from filbert.model.cpu import keep_freed_memory

_VOCAB = 1000
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "mpnet": {
        "type_vocab_size": 0,
        "position_kind": "buckets",
        "absolute_positions": True,
        "position_offset": 2,
        "max_position_embeddings": 514,
    },
    "jina_bert": {"position_kind": "alibi", "gated": True, "up_bias": False},
    "deberta-v2": {"type_vocab_size": 0, "position_kind": "disentangled"},
}
# A gated layer with two thirds of the width has as many weights.
_WIDTHS = {"jina_bert": 2048}


def checkpoint_of(family: str, layers: int) -> Checkpoint:
    """Return a random encoder of BERT-base's shape."""
    config = EncoderConfig.of(
        vocab_size=_VOCAB,
        hidden_size=768,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=_WIDTHS.get(family, 3072),
        pooler=None,
        **FAMILIES[family],
    )
    shapes = meta_model(config, None).state_dict()
    tensors = {name: 0.02 * torch.randn(tensor.shape) for name, tensor in shapes.items()}
    return Checkpoint(config=config, family=family, tensors=tensors)


def sides_of(family: str, layers: int, ids: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return filbert's forward pass and those of transformers, where it has the family."""
    checkpoint = checkpoint_of(family, layers)
    model = checkpoint.build().eval()
    mask = torch.ones_like(ids)
    batch = pack(ids.numpy())
    sides: dict[str, Callable[[], object]] = {"filbert": lambda: model(batch)}
    if family == "jina_bert":
        return sides
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        huggingface.write(checkpoint, Path(folder))
        for way in ("eager", "sdpa"):
            try:
                peer = transformers.AutoModel.from_pretrained(folder, attn_implementation=way)
            except ValueError:
                continue
            sides[f"transformers {way}"] = partial(peer.eval(), ids, attention_mask=mask)
    return sides


def main() -> None:
    """Print a table for each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--lengths", default="128,512")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as prediction does
    for length in map(int, options.lengths.split(",")):
        torch.manual_seed(0)
        ids = torch.randint(3, _VOCAB, (max(1, options.tokens // length), length))
        sides = {
            (family, name): run
            for family in FAMILIES
            for name, run in sides_of(family, options.layers, ids).items()
        }
        seconds: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
        with torch.inference_mode():
            for number in range(options.rounds + 1):
                for side, run in sides.items():
                    begin = time.process_time()
                    run()
                    if number:
                        seconds[side].append(time.process_time() - begin)
        base = seconds["bert", "filbert"]
        print(f"{length} tokens: tokens a second, and the share of filbert's BERT")
        for side, own in seconds.items():
            share = statistics.median(b / a for a, b in zip(own, base, strict=True))
            rate = ids.numel() / statistics.median(own)
            print(f"  {side[0]:12} {side[1]:20} {rate:8.0f} {share:6.2f}")


if __name__ == "__main__":
    main()
