"""The options that predict and embed share: how the model runs, and how long work goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter


@dataclass(frozen=True, kw_only=True)
class BulkFlags:
    """How a file of any length goes through a model.

    Attributes:
        max_length: cut texts to this many tokens; the model's own limit when not given.
        max_tokens: tokens per packed batch.
        precision: float32, bf16, int8, or auto for the faster of the first two on this machine.
        backend: torch, or onnxruntime for a folder that filbert export made.
        device: cpu, cuda, ...; the first GPU when there is one.
        graphs: on a GPU, replay recorded CUDA graphs for small batches; see docs/gpu.md.
        resume: go on where a run with the same --out ended before its time; see docs/bulk.md.
        overwrite: drop what such a run left, and begin anew.
        engine: local, or ray for the machines of a Ray cluster.
        workers: processes on that cluster; one per machine or GPU when not given.
    """

    max_length: int | None = None
    max_tokens: int | None = None
    precision: str = "float32"
    backend: str = "torch"
    device: str | None = None
    graphs: Annotated[bool, Parameter(negative="--no-graphs")] = True
    resume: bool = False
    overwrite: bool = False
    engine: str = "local"
    workers: int | None = None

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `Predictor.load` among them."""
        names = ("precision", "backend", "device", "graphs", "max_length", "max_tokens")
        return {name: getattr(self, name) for name in names}
