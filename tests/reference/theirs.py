"""transformers, imported without its warnings, and inputs and weights to compare its models on."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from filbert.batch import PackedBatch, pack

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

__all__ = ["judged", "outputs", "packed", "padded", "shaken", "transformers"]

transformers.utils.logging.disable_progress_bar()


def shaken(model: Any, noise: float = 0.1, scale: float = 0.4) -> Any:
    """`model` in eval mode, every parameter random, biases and LayerNorms too."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = "norm" in name.lower() and name.endswith("weight")
            drawn = noise * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn + (scale if is_scale else 0))
    return model.eval()


def padded(lengths: tuple[int, ...], vocab_size: int, *, types: int = 0) -> dict[str, torch.Tensor]:
    """Random ids, padded on the right with id 1; `types`: how many token types, 0 for none."""
    generator = torch.Generator().manual_seed(3)
    shape = (len(lengths), max(lengths))
    mask = (torch.arange(shape[1]) < torch.tensor(lengths)[:, None]).long()
    drawn = torch.randint(2, vocab_size, shape, generator=generator)
    batch = {"input_ids": torch.where(mask.bool(), drawn, 1), "attention_mask": mask}
    if types:
        batch["token_type_ids"] = torch.randint(0, types, shape, generator=generator) * mask
    return batch


def packed(batch: dict[str, torch.Tensor]) -> PackedBatch:
    """The same batch without its padding."""
    names = [name for name in ("input_ids", "token_type_ids") if name in batch]
    masks = batch["attention_mask"].bool()
    rows = ([row[m].numpy() for row, m in zip(batch[n], masks, strict=True)] for n in names)
    return pack(*rows)


def outputs(model: Any, kind: str | None, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """What a model gives: one row per real token or per sequence, in filbert's order."""
    if model.config.model_type == "xlnet":
        # Its heads read the last place of a row.
        real = batch["attention_mask"].bool()
        batch = {
            name: torch.stack([torch.cat((v[~r], v[r])) for v, r in zip(rows, real, strict=True)])
            for name, rows in batch.items()
        }
    real = batch["attention_mask"].bool()
    if kind == "choices":
        return [model(**{name: value[None] for name, value in batch.items()}).logits[0]]
    out = model(**batch)
    if kind is None:
        pooled = getattr(out, "pooler_output", None)
        return [out.last_hidden_state[real]] + ([] if pooled is None else [pooled])
    if kind == "pretraining":
        pair = "seq_relationship_logits" if "seq_relationship_logits" in out else "sop_logits"
        return [out.prediction_logits[real], out[pair]]
    if kind == "spans":
        return [torch.stack([out.start_logits, out.end_logits], -1)[real]]
    return [out.logits[real] if kind in ("masked_lm", "tokens", "discriminator") else out.logits]


judged = torch.no_grad()(outputs)
