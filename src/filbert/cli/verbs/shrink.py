"""filbert shrink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.cli.arguments import AsJson, Columns, ModelName, OutFolder, Overwrite, columns_of
from filbert.cli.output import print_json, print_table


def shrink(
    model: ModelName,
    /,
    *,
    out: OutFolder,
    keep_layers: str | None = None,
    vocabulary_from: tuple[str, ...] = (),
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
    """
    from filbert import api

    facts = api.shrink(
        model,
        out=out,
        keep_layers=keep_layers,
        vocabulary_from=vocabulary_from,
        overwrite=overwrite,
        **vars(columns_of(columns)),
    )
    print_json(facts) if json else _print_steps(out, facts)


def _print_steps(out: Path, facts: dict[str, Any]) -> None:
    rows = []
    for before, step in zip([None, *facts["steps"]], facts["steps"], strict=False):
        saved = "" if before is None else f"{before['parameters'] - step['parameters']:,}"
        rows.append((step["name"], f"{step['parameters']:,}", saved, f"{step['bytes'] / 1e6:,.1f}"))
    print_table(("", "parameters", "saved", "MB"), rows, texts=(0,))
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
