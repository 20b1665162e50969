"""filbert shrink."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from filbert.data.columns import ColumnNames


def shrink(
    model: str,
    /,
    *,
    out: Path,
    keep_layers: str | None = None,
    vocabulary_from: tuple[str, ...] = (),
    min_count: int = 1,
    vocabulary_size: int | None = None,
    data: str | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Make a model smaller without training, as a start for finetune or distill.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    out:
        folder to write; it appears when it is complete.
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
    columns:
        names of the columns of --data and --vocabulary-from.
    overwrite:
        replace the folder if it is a model's.
    json:
        print the steps as JSON.
    """
    from filbert.checkpoints.opening import find_model
    from filbert.cli.flags import columns_of, print_json
    from filbert.cli.targets import check_target
    from filbert.shrink import ShrinkOptions
    from filbert.shrink import shrink as shrink_model

    names = columns_of(columns)
    place = find_model(model)
    check_target(out, place, overwrite=overwrite, markers=("config.json",))
    options = ShrinkOptions(
        keep_layers=None if keep_layers is None else _layers(place, keep_layers),
        vocabulary_from=vocabulary_from,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        text_column=names.text_column,
        data=data,
    )
    facts = shrink_model(model, out, options, names)
    print_json(facts) if json else _print_steps(out, facts)


def _layers(place: Path, keep_layers: str) -> tuple[int, ...]:
    from filbert.checkpoints.opening import read_checkpoint
    from filbert.train.base_model import layers_to_keep

    return layers_to_keep(keep_layers, read_checkpoint(place).config.num_hidden_layers)


def _print_steps(out: Path, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from filbert.inference.precision import MetricChange

    metric = facts["metric"]
    table = Table(box=None, pad_edge=False)
    for heading in ("", "parameters", "saved", "MB", *([metric, "lost"] if metric else [])):
        table.add_column(heading, justify="right" if heading else "left")
    for before, step in zip([None, *facts["steps"]], facts["steps"], strict=False):
        saved = "" if before is None else f"{before['parameters'] - step['parameters']:,}"
        cells = [f"{step['parameters']:,}", saved, f"{step['bytes'] / 1e6:,.1f}"]
        if metric:
            value = step["metrics"][metric]
            last = None if before is None else before["metrics"][metric]
            cells.append("" if value is None else f"{value:.4f}")
            known = None if value is None or last is None else MetricChange(metric, last, value)
            cells.append("" if known is None else f"{known.loss:+.4f}")
        table.add_row(step["name"], *cells)
    console = Console(emoji=False)
    console.print(table, markup=False, highlight=False)
    for step in facts["steps"]:
        if "corpus_tokens" in step:
            print(
                f"The corpus is cut into {step['corpus_tokens']:,} tokens, "
                f"{step['corpus_tokens_before']:,} before; "
                f"{step['texts_cut_otherwise']:,} of its texts otherwise than before."
            )
    for note in facts["notes"]:
        print(f"note: {note}")
    print(f"model: {out}")
