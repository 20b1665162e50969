"""The Python face of filbert: what `import filbert` offers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError
from filbert.predict import Predictor
from filbert.report.run import write_run_report
from filbert.train.options import FinetuneOptions
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.seeds import run


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
    """Load a model folder, a built-in name ("filbert-mini") or a Hub id; see `Predictor.load`."""
    return Predictor.load(name, **options)


def finetune(**options: Any) -> Run:
    """Fine-tune; the keywords are the fields of `FinetuneOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or options that contradict each other.
        InputError, FormatError: the data or the model is wrong; nothing has been written then.
    """
    chosen = FinetuneOptions.from_keywords(options)
    facts = run(chosen)
    folder = Path(chosen.out)
    if facts:  # only the first of several processes has any
        write_run_report(folder, show_texts=chosen.show_texts)
    return Run(folder, facts)


def pretrain(**options: Any) -> Run:
    """Pre-train; the keywords are the fields of `PretrainOptions`.

    Raises:
        ConfigError: an unknown or missing keyword, or options that contradict each other.
        InputError, FormatError: the text or the model is wrong.
    """
    # Imported here, because fine-tuning and predicting do without.
    from filbert.train.pretrain import pretrain as run_pretraining

    chosen = PretrainOptions.from_keywords(options)
    if chosen.dry_run:
        raise ConfigError("dry_run prints a table; give it on the command line.")
    facts = run_pretraining(chosen)
    assert chosen.out is not None
    folder = Path(chosen.out)
    if facts:  # only the first of several processes has any
        write_run_report(folder)
    return Run(folder, facts)
