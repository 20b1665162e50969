"""An exported model in onnxruntime, in the place of a `Model`: packed batches in, packed rows out.

T tokens in the batch, S sequences, H hidden size. Inside, B sequences of near-equal length are
padded to L places.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.config_json import LABELLED
from filbert.checkpoints.onnx_folder import MODEL_FILE, check_installed, is_export
from filbert.errors import ConfigError, FormatError, printable
from filbert.files import available_cores
from filbert.model.attention import group_lengths
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Head, HeadInput, VectorHead

log = logging.getLogger(__name__)

HIDDEN = "last_hidden_state"
BACKENDS = ("torch", "onnxruntime")
# Scores per head of the sequences that share a call: a call of the graph costs more than a product.
_MAX_SCORES = 2**17


def check_backend(folder: Path, backend: str, *, precision: str, device: str | None) -> None:
    """Raise a ConfigError unless a backend can run the model of a folder."""
    if backend not in BACKENDS:
        raise ConfigError(f"backend {backend!r} is not one of {list(BACKENDS)}.")
    if backend == "torch":
        if is_export(folder):
            raise ConfigError(f"{folder} was exported for onnxruntime: add --backend onnxruntime.")
        return
    if precision not in ("float32", "auto"):
        raise ConfigError(
            f"precision {precision!r}: an exported model computes as it was exported. Leave it out."
        )
    if device not in (None, "cpu"):
        raise ConfigError(f"device {device!r}: the backend onnxruntime runs on the cpu.")


class Session(nn.Module):
    """A graph in onnxruntime, in the place of an `Encoder`.

    Attributes:
        outputs: Names, in order; each float32 (B, ...) or (B, L, ...).
    """

    def __init__(self, path: Path, config: EncoderConfig) -> None:
        super().__init__()
        check_installed()
        self.path, self.config = path, config
        # Its own choice counts all cores of the machine and pins threads to forbidden ones.
        self._threads = min(available_cores(), torch.get_num_threads())
        self._by_threads: dict[int, Any] = {}
        self.share(1)
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        shapes = {value.name: value.shape for value in self._session.get_outputs()}
        self.outputs = tuple(shapes)
        self._per_token = {name: "length" in shape[1:2] for name, shape in shapes.items()}

    def share(self, batches: int) -> None:
        """Divide the cores between so many batches that run at the same time.

        Each number of threads needs a session, with weights of its own. Two batches at a time, each
        on its core, take 0.87 of the time of one after the other (MiniLM, int8; docs/log.md).
        """
        threads = max(1, self._threads // batches)
        if threads not in self._by_threads:
            self._by_threads[threads] = self._open(threads)
        self._session = self._by_threads[threads]

    def _open(self, threads: int) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # ONNX Runtime plans memory again for each batch size, at the second call with that size.
        options.enable_mem_pattern = False
        try:
            return onnxruntime.InferenceSession(
                self.path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own classes, which have no common base
            reason = printable(str(error).splitlines()[0], 300)
            raise FormatError(f"{self.path}: onnxruntime does not take it: {reason}") from error

    def padded(self, batch: PackedBatch, names: tuple[str, ...]) -> list[np.ndarray]:
        """Run a batch by one call; return outputs without padding, (T, ...) or (S, ...)."""
        mask = np.arange(batch.max_seqlen) < np.array(batch.lengths)[:, None]
        feeds = {"attention_mask": mask.astype(np.int64)}
        for name in set(self.inputs) - set(feeds):
            feeds[name] = np.zeros(mask.shape, dtype=np.int64)
            feeds[name][mask] = getattr(batch, name).numpy()
        outputs = self._session.run(names, feeds)
        whole = bool(mask.all())
        return [
            (out.reshape(-1, *out.shape[2:]) if whole else out[mask])
            if self._per_token[name]
            else out
            for name, out in zip(names, outputs, strict=True)
        ]

    def run(self, batch: PackedBatch, names: tuple[str, ...] | None = None) -> list[Tensor]:
        """Return what `padded` does, with a call for each run of near-equal lengths."""
        names = names or self.outputs
        outputs: list[list[np.ndarray]] = []
        borders = list(accumulate(batch.lengths, initial=0))
        for first, last in group_lengths(batch.lengths, _MAX_SCORES):
            rows = slice(borders[first], borders[last])
            part = PackedBatch(
                batch.input_ids[rows],
                batch.position_ids[rows],
                batch.token_type_ids[rows],
                batch.lengths[first:last],
            )
            outputs.append(self.padded(part, names))
        return [torch.from_numpy(np.concatenate(parts)) for parts in zip(*outputs, strict=True)]

    def forward(self, batch: PackedBatch, at: Tensor | None = None) -> Tensor:
        """Return the last hidden states, (T, H), or only the rows `at`, int64 (K,): (K, H).

        Raises:
            ConfigError: The export has another output.
        """
        if HIDDEN not in self.outputs:
            raise ConfigError(
                f"This export gives {' and '.join(self.outputs)}, no hidden states. For "
                "vectors export a model without a head."
            )
        (hidden,) = self.run(batch, (HIDDEN,))
        return hidden if at is None else hidden[at]


class SessionModel(nn.Module):
    """Replaces a `Model` on the CPU.

    Attributes:
        encoder: For vectors.
        answers: Outputs of the head.
        head: Determines the shape of the output; its weights are in the graph.
    """

    def __init__(self, folder: Path, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.session = Session(folder / MODEL_FILE, checkpoint.config)
        export = (checkpoint.filbert or {}).get("onnx")
        if isinstance(export, dict) and export.get("precision") == "int8":
            # --precision float32 cannot be refused, since it is also the default.
            log.info("%s was exported in int8 and computes in it.", folder)
        # Callers ask an encoder for its config and its output only.
        self.encoder = cast(Encoder, self.session)
        self.answers = tuple(name for name in self.session.outputs if name != HIDDEN)
        # The shape does not depend on the number of labels.
        count = 1 if checkpoint.head in LABELLED else None
        self.head: Head | None = meta_model(checkpoint.config, checkpoint.head, count).head

    @property
    def config(self) -> EncoderConfig:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def device(self) -> torch.device:
        """The device of batches and results."""
        return torch.device("cpu")

    def forward(self, batch: PackedBatch) -> Tensor | tuple[Tensor, ...]:
        """Return what a `Model` returns for all rows."""
        if self.head is None or isinstance(self.head, VectorHead):
            hidden = self.encoder(batch)
            if self.head is None:
                return hidden  # type: ignore[no-any-return]
            no_table = hidden.new_empty(0)
            return self.head(HeadInput(hidden, None, no_table, batch))  # type: ignore[no-any-return]
        return joined(self.answers, self.session.run(batch, self.answers))  # type: ignore[no-any-return]


@contextmanager
def sharing_cores(model: nn.Module, batches: int = 1) -> Iterator[None]:
    """Give torch one thread while a graph works, and each of the batches its share of the cores.

    Idle threads of both wait in loops for more, and take each other's cores: a text of 128 tokens
    took MiniLM 16 ms instead of 6.
    """
    before = torch.get_num_threads()
    if not isinstance(model, SessionModel) or before == 1:
        yield
        return
    model.session.share(batches)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def joined(names: tuple[str, ...], outputs: list[Any]) -> Any:
    """Return a graph's outputs in the form of our heads: start and end of a span in one tensor."""
    if names == ("start_logits", "end_logits"):
        return torch.stack(outputs, -1)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
