"""filbert: one tool for the whole life of a BERT-family encoder.

    model = filbert.load("runs/toxic/model")
    model.predict(["one text", ("a", "pair")])
    model.embed(["one text"], pooling="mean")
    run = filbert.finetune(
        task="classification", model="filbert-mini", train="train.csv", dev="dev.csv", out="runs/x"
    )

Names are imported when they are first used, so that `import filbert` and `filbert --help` do not
wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from filbert.errors import ConfigError, FilbertError, FormatError, InputError, RunError

if TYPE_CHECKING:
    from filbert.api import (
        Comparison,
        Run,
        check,
        compare,
        convert,
        corpus,
        distill,
        embed,
        evaluate,
        export,
        fill,
        finetune,
        info,
        predict,
        pretrain,
        push,
        score,
        shrink,
        tokenize,
        vocab,
    )
    from filbert.batch import PackedBatch
    from filbert.bench import bench
    from filbert.inference.predictor import Predictor, load
    from filbert.inspect.explain import explain
    from filbert.inspect.page import inspect
    from filbert.model.config import EncoderConfig
    from filbert.text.tokenizer import Tokenizer
    from filbert.train.replay import replay

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "ConfigError",
    "EncoderConfig",
    "FilbertError",
    "FormatError",
    "InputError",
    "PackedBatch",
    "Predictor",
    "Run",
    "RunError",
    "Tokenizer",
    "bench",
    "check",
    "compare",
    "convert",
    "corpus",
    "distill",
    "embed",
    "evaluate",
    "explain",
    "export",
    "fill",
    "finetune",
    "info",
    "inspect",
    "load",
    "predict",
    "pretrain",
    "push",
    "replay",
    "score",
    "shrink",
    "tokenize",
    "vocab",
]

# The module of each public name; api.py has the functions and the results of whole jobs.
_HOME = dict.fromkeys(__all__, "filbert.api") | {
    "EncoderConfig": "filbert.model.config",
    "PackedBatch": "filbert.batch",
    "Predictor": "filbert.inference.predictor",
    "Tokenizer": "filbert.text.tokenizer",
    "bench": "filbert.bench",
    "explain": "filbert.inspect.explain",
    "inspect": "filbert.inspect.page",
    "load": "filbert.inference.predictor",
    "replay": "filbert.train.replay",
}


class _Package(ModuleType):
    """Keeps public functions when a submodule of the same name, such as inspect, is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Pickle by name: cloudpickle, in Ray and joblib, does so for plain modules only."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'filbert' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
