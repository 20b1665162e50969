"""A job: all that another process needs to do the same work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from filbert.inference.bulk.work import Work
from filbert.inference.predictor import Predictor


@dataclass(frozen=True)
class Job:
    """A model, and what is done with it.

    Attributes:
        model: its name; another machine must find the same model by it.
        options: of `Predictor.load`.
        make: the work of a loaded model; can be pickled.
    """

    model: str
    options: Mapping[str, Any]
    make: Callable[[Predictor], Work]

    def settled(self, work: Work) -> Job:
        """The same with "auto" settled as in `work`, so that no process times it anew."""
        exported = self.options.get("backend") == "onnxruntime"
        if exported or self.options.get("precision") != "auto":
            return self
        return replace(self, options={**self.options, "precision": work.predictor.number_format})

    def going_on(self, precision: str | None) -> Job:
        """The same with "auto" as an unfinished file has it, where it has one: a timing may come
        out otherwise, and half a file in another format is refused.
        """
        if precision is None or self.options.get("precision") != "auto":
            return self
        if self.options.get("backend") == "onnxruntime":
            return self
        return replace(self, options={**self.options, "precision": precision})

    def open(self) -> Work:
        """Load the model."""
        return self.make(Predictor.load(self.model, packed=True, **self.options))
