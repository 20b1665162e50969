"""A contestant's model in another number format, loaded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from filbert.export import export_onnx
from filbert.predict import Predictor

if TYPE_CHECKING:
    from filbert.study.contestants import Job


def load(job: Job) -> tuple[Predictor, Path]:
    """The model, and the folder that it takes on disk.

    Torch makes its formats out of the original's folder when it loads that, so nothing smaller lies
    on disk; for onnxruntime one is exported.

    Raises:
        ConfigError: the model or the device cannot do it, or a package is not here.
    """
    out = Path(job.out)
    shutil.rmtree(out, ignore_errors=True)
    chosen = job.options
    if chosen["backend"] == "torch":
        is_int8 = chosen["precision"] == "int8"
        device = chosen.get("device") or ("cpu" if is_int8 else None)
        predictor = Predictor.load(job.source_model, precision=chosen["precision"], device=device)
        return predictor, job.source_model
    out.mkdir(parents=True)
    export_onnx(str(job.source_model), out / "model", int8=chosen["precision"] == "int8")
    return Predictor.load(out / "model", backend="onnxruntime"), out / "model"
