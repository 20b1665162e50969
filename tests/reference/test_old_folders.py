"""Folders in the manner of published ones, old and odd, in a tiny size with random weights.

`old_folders.json` lists them. Each has the oddities of the model it is called after: what its
config.json says or leaves out, and how its tensors are called. transformers' own class with the
same weights is the judge. A difference of 1e-6 is a few units in the last place of what these
models give out (about one).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.reference.theirs import judged, packed, shaken, transformers

from filbert.checkpoints import huggingface

TOLERANCE = 1e-6
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "type_vocab_size": 2,
}
ROBERTA: dict[str, Any] = {
    **SIZES,
    "type_vocab_size": 1,
    "max_position_embeddings": 66,
    "layer_norm_eps": 1e-05,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
DISTIL = {
    "vocab_size": 61,
    "dim": 24,
    "hidden_dim": 40,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 64,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": False,
    "tie_weights_": True,
    "initializer_range": 0.02,
}
BASES = {"bert": SIZES, "roberta": ROBERTA, "distilbert": DISTIL}
FOLDERS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("old_folders.json").read_text("utf-8")
)


def config_of(folder: dict[str, Any]) -> dict[str, Any]:
    return {**BASES[folder["sizes"]], **folder["config"]}


def change(tensors: dict[str, torch.Tensor], how: str) -> None:
    """Call or choose tensors as a file does that was published."""
    if how == "gamma and beta":
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            tensors[old.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)
    elif how.startswith("leave out "):
        del tensors[how.removeprefix("leave out ")]
    else:
        for name in how.removeprefix("add ").split():
            is_buffer = name.endswith("position_ids")
            tensors[name] = torch.arange(64)[None] if is_buffer else torch.ones(5, 5)


def judge_of(folder: dict[str, Any]) -> Any:
    """A model in eval mode whose every parameter is random, and rounded as in the file."""
    cls = getattr(transformers, folder["judge"])
    values = {k: v for k, v in config_of(folder).items() if k not in ("torch_dtype", "_num_labels")}
    model = cls(
        cls.config_class(**{**values, **folder.get("built", {}), "attn_implementation": "eager"})
    )
    shaken(model)
    return model.half().float() if folder.get("half") else model


def put(folder: dict[str, Any], model: Any, path: Path) -> None:
    tensors = {
        name: tensor.half() if folder.get("half") and tensor.is_floating_point() else tensor.clone()
        for name, tensor in model.state_dict().items()
        if not name.endswith(("position_ids", "token_type_ids"))
    }
    for how in folder.get("changes", ()):
        change(tensors, how)
    (path / "config.json").write_text(json.dumps(config_of(folder)))
    if folder.get("pickled"):
        torch.save(tensors, path / "pytorch_model.bin")
    else:
        save_file(tensors, path / "model.safetensors")


def batch_for(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    mask = (torch.arange(11) < torch.tensor([[11], [4], [7]])).long()
    ids = torch.randint(3, 61, mask.shape, generator=torch.Generator().manual_seed(2))
    batch = {"input_ids": torch.where(mask.bool(), ids, 1), "attention_mask": mask}
    if "dim" in config:
        return batch
    types = (torch.arange(11) > 3).long() * mask
    return {**batch, "token_type_ids": types if config["type_vocab_size"] == 2 else 0 * types}


@pytest.mark.parametrize("name", list(FOLDERS))
def test_a_folder_as_it_was_published_gives_what_transformers_gives(name, tmp_path):
    folder = FOLDERS[name]
    judge = judge_of(folder)
    put(folder, judge, tmp_path)
    checkpoint = huggingface.read(tmp_path)
    assert checkpoint.head == folder["head"]
    notes = folder.get("notes", [])
    assert len(checkpoint.notes) == len(notes), checkpoint.notes
    for note, part in zip(checkpoint.notes, notes, strict=True):
        assert part in note
    assert list(checkpoint.labels or ()) == folder.get("labels", [])
    batch = batch_for(config_of(folder))
    with torch.no_grad():
        found = checkpoint.build()(packed(batch))
    found = list(found) if isinstance(found, tuple) else [found]
    wanted = judged(judge, folder["head"], batch)[: len(found)]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) < TOLERANCE
