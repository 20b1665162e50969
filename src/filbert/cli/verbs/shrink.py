"""filbert shrink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.cli.arguments import AsJson, Columns, ModelName, OutFolder, Overwrite
from filbert.cli.flags import columns_of
from filbert.cli.output import print_json, print_table


def shrink(
    model: ModelName,
    /,
    *,
    out: OutFolder,
    keep_layers: str | None = None,
    vocabulary_from: tuple[str, ...] = (),
    min_count: int = 1,
    vocabulary_size: int | None = None,
    data: str | None = None,
    columns: Columns = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Make a model smaller without training, as a start for finetune or distill.

    Parameters
    ----------
    keep_layers:
        layers to keep: 3 for the first three, or their numbers from 0 such as 0,2,5 or 0-2,5.
    vocabulary_from:
        text files, JSONL, CSV or Parquet: vocabulary entries without an occurrence are removed.
    min_count:
        occurrences that an entry needs; with 1 the text gives the same tokens as before.
    vocabulary_size:
        largest number of entries; the most frequent ones are kept.
    data:
        labelled rows, or text for a masked-LM model without a task: print the metrics before and
        after every step.
    """
    from filbert import api

    facts = api.shrink(
        model,
        out=out,
        keep_layers=keep_layers,
        vocabulary_from=vocabulary_from,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        data=data,
        overwrite=overwrite,
        **vars(columns_of(columns)),
    )
    print_json(facts) if json else _print_steps(out, facts)


def _print_steps(out: Path, facts: dict[str, Any]) -> None:
    from filbert.inference.precision import MetricChange

    metric = facts["metric"]
    rows = []
    for before, step in zip([None, *facts["steps"]], facts["steps"], strict=False):
        saved = "" if before is None else f"{before['parameters'] - step['parameters']:,}"
        cells = [f"{step['parameters']:,}", saved, f"{step['bytes'] / 1e6:,.1f}"]
        if metric:
            value = step["metrics"][metric]
            last = None if before is None else before["metrics"][metric]
            cells.append("" if value is None else f"{value:.4f}")
            known = None if value is None or last is None else MetricChange(metric, last, value)
            cells.append("" if known is None else f"{known.loss:+.4f}")
        rows.append((step["name"], *cells))
    headings = ("", "parameters", "saved", "MB", *((metric, "lost") if metric else ()))
    print_table(headings, rows, texts=(0,))
    for step in facts["steps"]:
        if "corpus_tokens" in step:
            print(
                f"The corpus has {step['corpus_tokens']:,} tokens, before "
                f"{step['corpus_tokens_before']:,}; {step['texts_cut_otherwise']:,} of its texts "
                "have other tokens."
            )
    for note in facts["notes"]:
        print(f"note: {note}")
    print(f"model: {out}")
