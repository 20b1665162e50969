"""Valid model folders in Hugging Face's layout, small, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.sentence_transformers import (
    ModelFolder,
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from filbert.checkpoints.weights import open_weights
from filbert.errors import FormatError
from filbert.files import sha256_of
from filbert.inference.predictor import Predictor
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model
from filbert.model.pooling import VectorModule
from filbert.text.tokenizer import Tokenizer
from hostile.made import Files, folder_files
from hostile.vocabularies import write_wordpiece


def small_checkpoint(family: str, kind: str | None, **changes: Any) -> Checkpoint:
    """A model of two tiny layers."""
    torch.manual_seed(1)
    values: dict[str, Any] = {
        **dict(vocab_size=32, hidden_size=8, num_hidden_layers=2, num_attention_heads=2),
        **dict(intermediate_size=12, max_position_embeddings=16),
        **changes,
    }
    config = EncoderConfig.of(**values)
    bare = Checkpoint(config, family, Model(Encoder(config)).state_dict())
    labels = ("no", "yes", "né") if kind in ("sequence", "tokens") else None
    return bare if kind is None else with_new_head(bare, kind, labels=labels)


def model_folders() -> list[Files]:
    """A folder for each family, each with another head."""
    found = [
        small_checkpoint("bert", "sequence"),
        small_checkpoint("bert", "masked_lm"),
        small_checkpoint("roberta", "tokens", position_offset=2, layer_norm_eps=1e-5),
        small_checkpoint("distilbert", "spans", type_vocab_size=0, pooler=None),
        small_checkpoint("albert", None, embedding_size=4, num_hidden_groups=1),
        small_checkpoint("electra", "discriminator", embedding_size=4, pooler=None),
    ]
    return [
        folder_files(lambda path, model=model: huggingface.write(model, path)) for model in found
    ]


def sharded_folders() -> list[Files]:
    """Weights in three files and an index; safetensors and pickles."""
    made = []
    for suffix in ("safetensors", "bin"):
        name = "model" if suffix == "safetensors" else "pytorch_model"

        def fill(path: Path, suffix: str = suffix, name: str = name) -> None:
            huggingface.write(small_checkpoint("bert", "sequence"), path)
            tensors = load_file(path / "model.safetensors")
            (path / "model.safetensors").unlink()
            table = {}
            for index in range(3):
                file = f"{name}-{index + 1:05d}-of-00003.{suffix}"
                part = {key: tensors[key].clone() for key in sorted(tensors)[index::3]}
                save_file(part, path / file) if suffix == "safetensors" else torch.save(
                    part, path / file
                )
                table |= dict.fromkeys(part, file)
            index_file = {"metadata": {"total_size": 1}, "weight_map": table}
            (path / f"{name}.{suffix}.index.json").write_text(json.dumps(index_file))

        made.append(folder_files(fill))
    return made


def pickle_folders() -> list[Files]:
    """pytorch_model.bin as a zip archive and in the legacy layout."""
    made = []
    for legacy in (False, True):

        def fill(path: Path, legacy: bool = legacy) -> None:
            huggingface.write(small_checkpoint("bert", None), path)
            tensors = load_file(path / "model.safetensors")
            (path / "model.safetensors").unlink()
            parameters = {
                name: torch.nn.Parameter(value) if "bias" in name else value
                for name, value in tensors.items()
            }
            torch.save(
                parameters,
                path / "pytorch_model.bin",
                _use_new_zipfile_serialization=not legacy,
            )

        made.append(folder_files(fill))
    return made


def read_model(folder: Path) -> None:
    """Read and build."""
    huggingface.read(folder).build()


def read_tensors(folder: Path) -> None:
    """All tensors as they lie in the files, then the model."""
    weights = open_weights(folder)
    for name in weights.shapes:
        try:
            weights.read(name)
        except FormatError:
            continue
    read_model(folder)


def finished_folders() -> list[Files]:
    """A folder as a run of filbert leaves it: tokenizer, filbert.json, sentence vectors."""

    def fill(path: Path) -> None:
        write_wordpiece(path)
        Tokenizer.load(path).save(path)
        huggingface.write(small_checkpoint("bert", "sequence"), path)
        weights = {"linear.weight": torch.zeros(4, 8), "linear.bias": torch.zeros(4)}
        config = {"in_features": 8, "out_features": 4, "bias": True}
        dense = VectorModule("Dense", weights, "Tanh", config)
        vectors = SentenceVectors(
            normalize=True, modules=(dense,), max_length=16, prompts={"q": "a "}
        )
        write_sentence_vectors(path, vectors, 8)
        task = {"name": "classification", "labels": ["no", "yes", "né"], "multilabel": False}
        story = {
            "format": 1,
            "task": {**task, "thresholds": None, "temperature": 1.5, "positive": None},
            "max_length": 12,
            "metrics": {"dev": {"accuracy": 0.5}},
            "files": {"config.json": {"sha256": sha256_of(path / "config.json")}},
        }
        (path / "filbert.json").write_text(json.dumps(story))

    return [folder_files(fill)]


def read_predictor(folder: Path) -> None:
    """Load as everybody does, and answer."""
    predictor = Predictor.load(str(folder), device="cpu")
    predictor.predict(["a film", "not good"])
    predictor.embed(["a film"])


def read_vectors(folder: Path) -> None:
    """What modules.json asks for."""
    assert ModelFolder(folder).encoder
    read_sentence_vectors(folder, 8)
