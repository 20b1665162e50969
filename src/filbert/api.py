"""The Python face of filbert: what `import filbert` offers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filbert.predict import Predictor
from filbert.report.run import write_run_report
from filbert.train.finetune import finetune as run_finetuning
from filbert.train.options import FinetuneOptions


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder: run.json, metrics.jsonl, model/, report.html, plots/.
        facts: the content of run.json.
    """

    folder: Path
    facts: dict[str, Any]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Figures by split: {"dev": {...}, "test": {...}}."""
        return self.facts["metrics"]  # type: ignore[no-any-return]

    @cached_property
    def model(self) -> Predictor:
        """The model that the run left, loaded."""
        return Predictor.load(self.folder / "model")


def load(name: str | Path, **options: Any) -> Predictor:
    """Load a model folder, a built-in name ("minilm") or a Hub id; see `Predictor.load`."""
    return Predictor.load(name, **options)


def finetune(**options: Any) -> Run:
    """Fine-tune; the keywords are the fields of `FinetuneOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or options that contradict each other.
        InputError, FormatError: the data or the model is wrong; nothing has been written then.
    """
    chosen = FinetuneOptions.from_keywords(options)
    facts = run_finetuning(chosen)
    folder = Path(chosen.out)
    write_run_report(folder)
    return Run(folder, facts)
