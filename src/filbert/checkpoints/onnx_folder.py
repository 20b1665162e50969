"""Reads and writes exported models: model.onnx and an ordinary model folder's other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.huggingface import check_digests
from filbert.errors import ConfigError, FormatError, install_hint, printable, unreadable_as
from filbert.files import read_json
from filbert.model.config import EncoderConfig
from filbert.model.heads import HEADS

if TYPE_CHECKING:
    import onnx

MODEL_FILE = "model.onnx"
# Holds the weights if they are too large for MODEL_FILE.
WEIGHTS_FILE = "model.onnx.data"
# The limit of protobuf is 2 GiB; the difference is left for the graph itself.
_MOST_INSIDE = 2**31 - 2**24


def check_installed() -> None:
    """Check that the optional packages are installed.

    Raises:
        ConfigError: They are not.
    """
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


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the entry of filbert.json from which `read_export` restores a checkpoint."""
    return {
        "family": checkpoint.family,
        "head": checkpoint.head,
        "labels": None if checkpoint.labels is None else list(checkpoint.labels),
        "problem_type": checkpoint.problem_type,
        "encoder": checkpoint.config.settings(),
    }


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
    content = read_json(path)
    files = [folder / "config.json", folder / MODEL_FILE, folder / WEIGHTS_FILE]
    check_digests(folder, content, [file for file in files if file.is_file()])
    try:
        stored = content["onnx"]["model"]
        labels, encoder = stored["labels"], dict(stored["encoder"])
        if encoder.get("heads_per_layer") is not None:
            encoder["heads_per_layer"] = tuple(encoder["heads_per_layer"])
        if stored["head"] not in (None, *HEADS) or stored["family"] not in FAMILIES:
            raise ValueError(f"a head {stored['head']!r} of a {stored['family']!r}")
        if labels is not None and not all(isinstance(label, str) for label in labels):
            raise ValueError("its labels are no texts")
        return Checkpoint(
            config=EncoderConfig.of(**encoder),
            family=stored["family"],
            tensors={},
            head=stored["head"],
            labels=None if labels is None else tuple(labels),
            problem_type=stored["problem_type"],
            source=folder,
            filbert=content,
        )
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{path}: the exported model cannot be read: {printable(str(error), 300)}."
        ) from error
