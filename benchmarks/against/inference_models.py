"""The models of inference.py and latency.py: one shape with random weights, one real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.errors import FilbertError

LABELS = {
    "base": "BERT-base (random weights of that shape)",
    "minilm": "MiniLM (6 layers of 384)",
    "tiny": "2 layers of 64 (random weights)",
}
_RANDOM: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"num_hidden_layers": 2, "hidden_size": 64, "max_position_embeddings": 256},
}


def folder_of(model: str, place: Path) -> tuple[Path | None, Any]:
    """The folder of a model, made if need be, and its marks' ids; or None and why there is none."""
    from filbert.checkpoints.opening import read_tokenizer
    from sides.conversion import plain_folder

    if model not in _RANDOM:
        try:
            folder = plain_folder(model)
        except FilbertError as error:
            return None, str(error)
    else:
        folder = place / model
        if not (folder / "tokenizer.json").is_file():
            _draw(folder, _RANDOM[model])
    tokenizer = read_tokenizer(folder)
    return folder, {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}


def _draw(folder: Path, sizes: dict[str, Any]) -> None:
    import torch

    from filbert.checkpoints import huggingface
    from filbert.checkpoints.checkpoint import with_new_head
    from filbert.checkpoints.fresh import fresh_checkpoint
    from filbert.checkpoints.opening import find_model, read_tokenizer

    torch.manual_seed(0)
    # Google's uncased vocabulary, which is BERT-base's, is also that of the built-in model.
    tokenizer = read_tokenizer(find_model("filbert-mini"))
    checkpoint = fresh_checkpoint("bert", vocab_size=30_522, head="masked_lm", **sizes)
    folder.mkdir(parents=True, exist_ok=True)
    huggingface.write(with_new_head(checkpoint, None), folder)
    tokenizer.save(folder)
