"""filbert export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from filbert.cli.arguments import AsJson, Columns, MaxLoss, ModelName, OutFolder, Overwrite, Pooling
from filbert.cli.flags import columns_of
from filbert.cli.output import check_max_loss, metric_lines, print_json
from filbert.data.columns import ColumnNames


def export(
    model: ModelName,
    /,
    *,
    out: OutFolder,
    format: str,
    int8: bool = False,
    pooling: Pooling = None,
    data: str | None = None,
    max_loss: MaxLoss = None,
    columns: Columns = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write a model for other runtimes, after comparing what it computes with the original.

    Parameters
    ----------
    format:
        onnx: model.onnx with the tokenizer.
    int8:
        quantise weights per output channel, and activations at run time.
    data:
        labelled rows, to compare the task's metrics on; with --int8, by default the dev rows of
        the model's training, if they are unchanged.
    """
    check_max_loss(max_loss)

    from filbert import api

    data, names = _rows(model, data, columns, int8=int8)
    facts = api.export(
        model,
        out=out,
        format=format,
        int8=int8,
        pooling=pooling,
        data=data,
        max_loss=max_loss,
        overwrite=overwrite,
        **vars(names),
    )
    print_json(facts) if json else print("\n".join(_lines(out, facts)))


def _rows(
    model: str, data: str | None, columns: ColumnNames | None, *, int8: bool
) -> tuple[str | None, ColumnNames]:
    """Return the rows to compare on, and the names of their columns."""
    names = columns_of(columns)
    if int8 and data is None:
        from filbert.checkpoints.opening import find_model
        from filbert.train.replay import dev_rows

        known = dev_rows(find_model(model))
        if known is not None:
            data, names = known
            print(f"Comparing on {data}, the dev rows of its training.", file=sys.stderr)
    return data, names


def _lines(out: Path, facts: dict[str, Any]) -> list[str]:
    size = sum(path.stat().st_size for path in out.glob("model.onnx*")) / 1e6
    lines = [
        f"{out}: {facts['precision']}, opset {facts['opset']}, {size:,.1f} MB: "
        f"{', '.join(facts['inputs'])} to {', '.join(facts['outputs'])}.",
        f"Against the original: largest difference {facts['largest_difference']:.1e} among "
        f"outputs up to {facts['largest_output']:.2g}, cosine {facts['cosine']:.6f}.",
    ]
    compared = facts.get("data")
    if compared:
        lines.append(f"On {compared['file']}:")
        lines += metric_lines(compared["float32"], compared["exported"])
    return lines
