"""filbert export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filbert.cli.arguments import (
    AsJson,
    Columns,
    MaxLoss,
    ModelName,
    OutFolder,
    Overwrite,
    Pooling,
    columns_of,
)
from filbert.cli.output import metric_lines, print_json


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
        labelled rows, to compare the task's metrics on.
    """
    from filbert import api

    facts = api.export(
        model,
        out=out,
        format=format,
        int8=int8,
        pooling=pooling,
        data=data,
        max_loss=max_loss,
        overwrite=overwrite,
        **vars(columns_of(columns)),
    )
    print_json(facts) if json else print("\n".join(_lines(out, facts)))


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
