"""A model folder in the forms that other engines read: `python benchmarks/sides/conversion.py`."""

from __future__ import annotations

import csv
import fcntl
import gzip
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUT = "last_hidden_state"


def plain_folder(name: str) -> Path:
    """A folder that other tools load; a built-in model is converted once, into runs/models."""
    from filbert.checkpoints.opening import find_model
    from filbert.checkpoints.weights import PACKED
    from filbert.conversion import convert_model

    folder = find_model(name)
    if not (folder / PACKED).is_file():
        return folder
    plain = Path("runs", "models", name)
    if not plain.is_dir():
        convert_model(name, plain, to="huggingface")
    return plain


def convert(kind: str, model: Path, place: Path) -> Path:
    """Make `place / kind` if it is not there yet; one process at a time.

    Args:
        kind: plain.onnx, fused.onnx, int8.onnx, openvino-qint8 or ctranslate2; exported or
            exported-int8 for folders as `filbert export` makes them of the bare encoder.
        model: folder in Hugging Face's layout.
        place: folder for all kinds; of this model only.
    """
    place.mkdir(parents=True, exist_ok=True)
    path = place / kind
    source = _MADE_FROM.get(kind)
    if source is not None:
        convert(source, model, place)
    with _alone(place):
        if not path.exists():
            part = place / f"part-{kind}"
            shutil.rmtree(part, ignore_errors=True)
            _MAKERS[kind](model if source is None else place / source, part, model)
            os.replace(part, path)
    return path


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _plain(folder: Path, out: Path, _: Path) -> None:
    import torch

    library: Any = import_module("transformers")
    library.logging.set_verbosity_error()
    # The optimizer looks for attention written out, not for one fused call.
    model = library.AutoModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()

    class LastStates(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            found = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)
            return found.last_hidden_state

    ids = torch.ones(2, 8, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    with warnings.catch_warnings():
        # The optimizer's patterns are those of this older exporter.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            LastStates(),
            (ids, mask, torch.zeros_like(ids)),
            str(out),
            input_names=list(_INPUTS),
            output_names=[_OUTPUT],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in (*_INPUTS, _OUTPUT)},
            opset_version=17,
            dynamo=False,
        )


def _fused(source: Path, out: Path, model: Path) -> None:
    optimizer: Any = import_module("onnxruntime.transformers.optimizer")
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    fused = optimizer.optimize_model(
        str(source),
        model_type="bert",
        num_heads=config["num_attention_heads"],
        hidden_size=config["hidden_size"],
        opt_level=0,
    )
    made = fused.get_fused_operator_statistics()
    if made.get("Attention") != config["num_hidden_layers"]:
        raise ValueError(
            f"its optimizer fused {made.get('Attention')} of {config['num_hidden_layers']} "
            "attentions: a comparison with it would be unfair"
        )
    fused.save_model_to_file(str(out))


def _int8(source: Path, out: Path, _: Path) -> None:
    library: Any = import_module("onnxruntime.quantization")
    library.quantize_dynamic(
        str(source),
        str(out),
        weight_type=library.QuantType.QInt8,
        per_channel=True,
        # What comes out of a fused node has no type in the file.
        extra_options={"DefaultTensorType": import_module("onnx").TensorProto.FLOAT},
    )


def calibration_texts() -> list[str]:
    """Return the short texts on which static int8 measures its scales, for all sides."""
    from filbert import samples

    with gzip.open(samples.path("intents_train.csv.gz"), "rt", encoding="utf-8") as file:
        return [row["text"] for row in csv.DictReader(file)]


def _qint8(source: Path, out: Path, model: Path) -> None:
    """Write static int8 as NNCF recommends for a Transformer, with scales from short texts."""
    import numpy as np

    from filbert.checkpoints.opening import read_tokenizer

    nncf, library = import_module("nncf"), import_module("openvino")
    encodings = read_tokenizer(model).encode(calibration_texts())
    rows = [encoding.input_ids.astype(np.int64)[None] for encoding in encodings]
    inputs = [dict(zip(_INPUTS, (ids, ids**0, ids * 0), strict=True)) for ids in rows]
    graph = nncf.quantize(
        library.Core().read_model(str(source)),
        nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(inputs),
    )
    out.mkdir()
    library.save_model(graph, str(out / "model.xml"), compress_to_fp16=False)


def _ctranslate2(folder: Path, out: Path, _: Path) -> None:
    library: Any = import_module("ctranslate2")
    import_module("transformers").logging.set_verbosity_error()
    # Its converter asks for a key that newer configurations no longer have.
    copy = out.with_name(f"{out.name}-source")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in folder.iterdir():
        if file.name != "config.json" and file.is_file():
            (copy / file.name).symlink_to(file.resolve())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.setdefault("position_embedding_type", "absolute")
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    library.converters.TransformersConverter(str(copy)).convert(str(out), force=True)
    shutil.rmtree(copy)


def _exported(folder: Path, out: Path, _: Path, *, int8: bool = False) -> None:
    from filbert.onnx_export import export_onnx

    export_onnx(str(folder), out, int8=int8)


_MADE_FROM = {
    "fused.onnx": "plain.onnx", "int8.onnx": "fused.onnx", "openvino-qint8": "plain.onnx",
}  # fmt: skip
_MAKERS: dict[str, Callable[[Path, Path, Path], None]] = {
    "plain.onnx": _plain,
    "fused.onnx": _fused,
    "int8.onnx": _int8,
    "openvino-qint8": _qint8,
    "ctranslate2": _ctranslate2,
    "exported": _exported,
    "exported-int8": partial(_exported, int8=True),
}


if __name__ == "__main__":
    convert(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
