"""Write the model folder of a run: Hugging Face files, filbert.json and the model card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from filbert.checkpoints import adapters, huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import STATIC
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.files import read_json, replace_folder, sha256_of, write_json
from filbert.text.tokenizer import Tokenizer
from filbert.train.card import card
from filbert.train.options import BaseModelOptions


def save_model(
    folder: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    provenance: dict[str, Any],
    *,
    pooling: str | None = None,
    generator: Checkpoint | None = None,
) -> None:
    """Write a model folder, and move it into place when it is complete.

    Args:
        folder: The model folder; an error leaves an old one intact.
        provenance: For filbert.json; digests of the weight files are added.
        pooling: Makes sentence vectors of tokens, where there is no trained head.
        generator: Of replaced-token detection; it is saved in a subfolder.

    Raises:
        InputError: The disk is full.
    """
    with replace_folder(folder) as new:
        digests = huggingface.write(checkpoint, new)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        files = {name: {"sha256": digest} for name, digest in digests.items()}
        text = json.dumps(provenance | {"files": files}, indent=2, default=list)
        (new / "filbert.json").write_text(text + "\n", "utf-8")
        # Of the written text, in which tuples are lists.
        (new / "README.md").write_text(card(json.loads(text)), "utf-8")
        if pooling is not None:
            # "cls" of a causal encoder is the last token; other tools call that "last".
            is_last = pooling == "cls" and checkpoint.config.attention.causal
            vectors = SentenceVectors(
                "last" if is_last else pooling, max_length=provenance["max_length"]
            )
            is_static = checkpoint.family == STATIC
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size, static=is_static)
        if generator is not None:
            huggingface.write(generator, new / "generator")
            tokenizer.save(new / "generator")


def save_adapter(
    run: Path, learned: dict[str, Tensor], checkpoint: Checkpoint, base: BaseModelOptions
) -> None:
    """Write the adapter of a run next to its model folder, in PEFT's layout.

    Except for weights and card it is a copy of the model folder: with labels, task and tokenizer.
    `learned` has the tensors that learned, by the names of Model.state_dict().
    """
    assert base.lora is not None
    unlike = shutil.ignore_patterns("*.safetensors*", "README.md")
    with replace_folder(run / "adapter") as new:
        shutil.copytree(run / "model", new, ignore=unlike, dirs_exist_ok=True)
        adapters.write(new, checkpoint, learned, rank=base.lora, name=base.name)
        files = {n: {"sha256": sha256_of(new / n)} for n in ("config.json", *adapters.FILES)}
        write_json(new / "filbert.json", read_json(new / "filbert.json") | {"files": files})
