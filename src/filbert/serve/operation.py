"""What the operator decides about processes and models, as `Settings` does about requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Operation:
    """How a server's processes run and what they load.

    Attributes:
        workers: processes that share the port; each has the models for itself and its share of the
            cores.
        certificate: PEM file with a certificate and those that signed it; with it, https.
        key: PEM file with its key, when it is not in the same file.
        precision: float32, bf16, int8, or auto: bf16 where it is faster and keeps the answers.
        backend: torch, or onnxruntime for folders that filbert export made.
        device: cpu, cuda, ...; the first GPU when there is one.
        max_length: cut texts to this many tokens; each model's own limit when not given.
        null_threshold: of question answering models: the answer is "" where the null score is above
            it. When not given, the threshold stored with each model; models of other tools have
            none and always answer.
        log_json: log one JSON object a line; when not given, unless the log goes to a terminal.
    """

    workers: int = 1
    certificate: str | None = None
    key: str | None = None
    precision: str = "float32"
    backend: str = "torch"
    device: str | None = None
    max_length: int | None = None
    null_threshold: float | None = None
    log_json: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigError: a number out of range.
        """
        if self.workers < 1:
            raise ConfigError(f"--workers is {self.workers}; it must be at least 1.")

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `Predictor.load` among them."""
        names = ("precision", "backend", "device", "max_length", "null_threshold")
        return {name: getattr(self, name) for name in names}


def named_models(models: Sequence[str]) -> dict[str, str]:
    """What the models are called: NAME of NAME=MODEL, else what was typed.

    A folder has its own name, and the folder `model` of a run the name of the run.

    Raises:
        ConfigError: two have one name, or a name is empty.
    """
    if not models:
        raise ConfigError("Which model? Give a folder, a built-in name or a Hub id: minilm.")
    named: dict[str, str] = {}
    for given in models:
        name, equals, model = given.partition("=")
        place = Path(given)
        if place.exists():
            place = place.resolve()
            name, model = place.parent.name if place.name == "model" else place.name, given
        elif not equals:
            model = given
        if not name or not model:
            raise ConfigError(f"{given!r}: give NAME=MODEL, or MODEL alone.")
        if name in named:
            raise ConfigError(
                f"{named[name]} and {model} are both called {name}. Name them yourself: "
                f"{name}=... and another=..."
            )
        named[name] = model
    return named
