"""Reads and writes exported models: model.onnx and an ordinary model folder's other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.config_json import (
    LABELLED,
    declared_kinds,
    encoder_config,
    label_names,
    named_family,
    problem_type,
)
from filbert.checkpoints.huggingface import check_digests
from filbert.errors import ConfigError, FormatError, install_hint, printable, unreadable_as
from filbert.files import read_json

if TYPE_CHECKING:
    import onnx

MODEL_FILE = "model.onnx"
# Holds the weights if they are too large for MODEL_FILE.
WEIGHTS_FILE = "model.onnx.data"
# The limit of protobuf is 2 GiB; the difference is left for the graph itself.
_MOST_INSIDE = 2**31 - 2**24


def check_installed() -> None:
    """Raise a ConfigError unless the optional packages are installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"{error.name}, which ONNX needs, is not installed. {install_hint('onnx')}"
        ) from error


def save_graph(graph: onnx.ModelProto, path: Path, *, most_inside: int = _MOST_INSIDE) -> None:
    """Write a graph; weights of more than `most_inside` bytes go to a second file."""
    import onnx

    size = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
    onnx.save_model(
        graph, path, save_as_external_data=size > most_inside, location=f"{path.name}.data"
    )
    onnx.checker.check_model(path, full_check=True)


def is_export(folder: Path) -> bool:
    """Return whether a folder holds an exported model and no safetensors."""
    return (folder / MODEL_FILE).is_file() and not any(folder.glob("*.safetensors"))


@unreadable_as(FormatError)
def read_export(folder: Path) -> Checkpoint:
    """Read the model in an exported folder, without tensors, which stay in its graph.

    Raises:
        FormatError: No exported model of filbert's, or a file whose digest is not the one in
            filbert.json.
    """
    path = folder / "filbert.json"
    if not (folder / MODEL_FILE).is_file() or not path.is_file():
        raise FormatError(
            f"{folder} holds no {MODEL_FILE} of filbert's. Export one: filbert export "
            f"{printable(str(folder), 200)} --out DIR --format onnx."
        )
    content, config_path = read_json(path), folder / "config.json"
    files = [config_path, folder / MODEL_FILE, folder / WEIGHTS_FILE]
    check_digests(folder, content, [file for file in files if file.is_file()])
    raw = read_json(config_path)
    family = named_family(raw, config_path)
    kinds = () if family is None else declared_kinds(raw, family, config_path)
    if family is None or not kinds:
        raise FormatError(f"{config_path} names no class that filbert reads. Export it again.")
    has_pooler = family.required_pooler(kinds[0]) is not None
    return Checkpoint(
        config=encoder_config(raw, family, kinds[0], has_pooler=has_pooler, path=config_path),
        family=family.model_type,
        tensors={},
        head=kinds[0],
        labels=label_names(raw, config_path) if kinds[0] in LABELLED else None,
        problem_type=problem_type(raw, config_path),
        source=folder,
        filbert=content,
    )
