"""Sides that run in other engines, on models converted once into a folder that sides may share.

One of them is filbert's own: its export in onnxruntime.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from filbert.errors import RunError
from sides.job import Job
from sides.torch_sides import Encode, means, padded

_EXPORTS = {"float32": "exported", "int8": "exported-int8"}


def converted(job: Job, kind: str) -> Path:
    """Where the model lies in another engine's form; made in a process of its own if need be.

    So that what converts (torch, for the most part) is not in the process that is measured.

    Raises:
        RunError: it could not be converted.
    """
    path = Path(job.place) / kind
    command = [
        sys.executable,
        str(Path(__file__).with_name("conversion.py")),
        kind,
        job.model,
        job.place,
    ]
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
        raise RunError(f"the model could not be converted: {last[0]}")
    return path


def onnxruntime(job: Job, precision: str) -> Encode:
    """Layers fused by its own optimizer for this kind of model; int8 is its dynamic kind."""
    kind = "int8.onnx" if precision == "int8" else "fused.onnx"
    path = converted(job, kind)
    library: Any = import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.log_severity_level = 3
    session = library.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        ids, mask = padded(texts)
        return means(session.run(None, _inputs(ids, mask))[0], mask)

    return encode


def _inputs(ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def ctranslate2(job: Job, precision: str) -> Encode:
    """Its encoder; it pads by itself, and int8 is its own kind."""
    path = converted(job, "ctranslate2")
    library: Any = import_module("ctranslate2")
    model = library.Encoder(
        str(path), compute_type=precision, inter_threads=1, intra_threads=job.threads
    )

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        found = model.forward_batch([ids.tolist() for ids in texts])
        _, mask = padded(texts)
        return means(np.asarray(found.last_hidden_state), mask)

    return encode


def openvino(job: Job, precision: str) -> Encode:
    """The unfused ONNX graph, which it fuses itself, with any batch and length; int8 is static."""
    if precision == "int8":
        path = converted(job, "openvino-qint8") / "model.xml"
    else:
        path = converted(job, "plain.onnx")
    library: Any = import_module("openvino")
    core = library.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = core.compile_model(core.read_model(str(path)), "CPU", settings)

    def encode(texts: Sequence[np.ndarray]) -> np.ndarray:
        ids, mask = padded(texts)
        return means(model(_inputs(ids, mask))[0], mask)

    return encode


def exported(job: Job, precision: str) -> Encode:
    """As `Predictor.embed` does it with the backend onnxruntime, from token ids on."""
    import torch

    from filbert.checkpoints.checkpoint import with_new_head
    from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
    from filbert.inference.onnx_session import SessionModel
    from filbert.inference.predictor import Predictor
    from sides.conversion import convert
    from sides.torch_sides import encode_by

    # Its process has torch in it anyway.
    source = Path(job.model)
    folder = convert(_EXPORTS[precision], source, Path(job.place))
    # A session takes as many.
    torch.set_num_threads(job.threads)
    model = SessionModel(folder, with_new_head(read_checkpoint(source), None))
    return encode_by(Predictor(model, read_tokenizer(source)))
