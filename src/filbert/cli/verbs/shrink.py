"""filbert shrink."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from filbert.data.columns import ColumnNames


def shrink(
    model: str,
    /,
    *,
    out: Path | None = None,
    keep_layers: str | None = None,
    heads: int | None = None,
    keep_heads: tuple[str, ...] = (),
    embedding_size: int | None = None,
    vocabulary_from: tuple[str, ...] = (),
    min_count: int = 1,
    vocabulary_size: int | None = None,
    data: str | None = None,
    importance: bool = False,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Make a model smaller without training, as a start for finetune or distill; say what it costs.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    out:
        folder to write; it appears when everything in it is complete.
    keep_layers:
        layers that stay: 3 for the first three, or their numbers from 0 such as 0,2,5 or 0-2,5.
    heads:
        so many attention heads stay in all layers together, the most important on --data for the
        model's own task; at least one a layer.
    keep_heads:
        heads that stay, by layer, such as 0:1,3 2:0; layers that are not named keep theirs.
    embedding_size:
        width of the embedding tables, behind a projection (BERT, ALBERT and ELECTRA).
    vocabulary_from:
        text files, JSONL, CSV or Parquet: entries that do not stand in them go, and the numbers of
        the others change.
    min_count:
        how often an entry must stand there; with 1 that text is cut into the same tokens as before.
    vocabulary_size:
        at most so many entries, the most frequent ones.
    data:
        labelled rows, or text for a masked-LM model without a task: the metrics before and
        after every step.
    importance:
        look only: print the importance of every head and the metric with that head masked.
    columns:
        names of the columns of --data and --vocabulary-from.
    overwrite:
        replace the folder if it is a model's.
    json:
        print what was done as JSON.
    """
    from filbert.checkpoints.opening import find_model
    from filbert.cli.flags import columns_of, print_json
    from filbert.cli.targets import check_target
    from filbert.errors import ConfigError
    from filbert.shrink.options import ShrinkOptions

    names = columns_of(columns)
    if importance:
        if data in (None, "-") or out is not None:
            raise ConfigError("--importance looks at heads on --data FILE, and writes no --out.")
        unread = {
            "--keep-layers": keep_layers,
            "--heads": heads,
            "--keep-heads": keep_heads or None,
            "--embedding-size": embedding_size,
            "--vocabulary-from": vocabulary_from or None,
            "--min-count": None if min_count == 1 else min_count,
            "--vocabulary-size": vocabulary_size,
            "--overwrite": overwrite or None,
        }
        if useless := [flag for flag, value in unread.items() if value is not None]:
            raise ConfigError(f"--importance only looks; leave out {', '.join(useless)}.")
        from filbert.shrink.run import study_heads

        found = study_heads(model, data, names)
        if json:
            print_json(found)
        else:
            _print_heads(found)
        return
    if out is None:
        raise ConfigError("--out names the folder to write; only --importance does without.")
    options = ShrinkOptions(
        # Which they are, the model's own number of layers decides.
        keep_layers=None if keep_layers is None else (),
        heads=heads,
        keep_heads=keep_heads,
        embedding_size=embedding_size,
        vocabulary_from=vocabulary_from,
        min_count=min_count,
        vocabulary_size=vocabulary_size,
        text_column=names.text_column,
        data=data,
    )
    place = find_model(model)
    check_target(out, place, overwrite=overwrite, markers=("config.json",))

    from filbert.checkpoints.opening import read_checkpoint
    from filbert.shrink.run import shrink as shrink_model
    from filbert.train.trainable import layers_to_keep

    if keep_layers is not None:
        num_layers = read_checkpoint(place).config.num_hidden_layers
        options = replace(options, keep_layers=layers_to_keep(keep_layers, num_layers))
    facts = shrink_model(model, out, options, names)
    if json:
        print_json(facts)
    else:
        _print_steps(out, facts)


def _print_steps(out: Path, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from filbert.speed.loss import MetricChange

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
        if "variance_kept" in step:
            print(f"The tables keep {step['variance_kept']:.1%} of their variance.")
    for note in facts["notes"]:
        print(f"note: {note}")
    print(f"model: {out}")


def _print_heads(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = 200
    whole = "undefined" if found["value"] is None else f"{found['value']:.4f}"
    titles = {
        "importance": "importance: mean size of the loss's gradient at each head's mask",
        "without": f"{found['metric']} with one head masked; {whole} with all, "
        f"{found['rows']:,} rows",
    }
    for key, title in titles.items():
        print(title)
        table = Table(box=None, pad_edge=False)
        table.add_column("layer", justify="right")
        for head in range(len(found[key][0])):
            table.add_column(str(head), justify="right")
        for layer, row in enumerate(found[key]):
            table.add_row(str(layer), *("" if v is None else f"{v:.4f}" for v in row))
        console.print(table, markup=False, highlight=False)
