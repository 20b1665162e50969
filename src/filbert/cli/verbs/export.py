"""filbert export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from filbert.data.columns import ColumnNames

FORMATS = ("onnx",)


def export(
    model: str,
    /,
    *,
    out: Path,
    format: str,
    int8: bool = False,
    pooling: str | None = None,
    data: str | None = None,
    max_loss: float | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a model for other runtimes, after comparing what it computes with the original.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    out:
        folder to write; it appears when everything in it is complete and checked.
    format:
        onnx: model.onnx with the tokenizer.
    int8:
        quantise weights per output channel, and activations at run time.
    pooling:
        of a bare encoder's sentence_embedding: mean, cls, last, max, mean_sqrt_len, several with +
        between, or none to leave it out; by default that of the folder, otherwise mean.
    data:
        labelled rows, to compare the task's metrics on; with --int8, by default the dev rows of
        the model's training, if they are unchanged.
    max_loss:
        largest decrease of a metric on these rows, such as 0.005; with --int8, the layers that
        lose most stay float32, otherwise a larger one is refused.
    columns:
        names of the columns of --data.
    overwrite:
        replace the folder if it is a model's.
    json:
        print what was done as JSON.
    """
    from filbert.errors import ConfigError

    if format not in FORMATS:
        raise ConfigError(f"--format {format} is not one of {', '.join(FORMATS)}.")
    if max_loss is not None and not max_loss >= 0:
        raise ConfigError(f"--max-loss is {max_loss}; it must be zero or above.")

    from filbert.checkpoints.opening import find_model
    from filbert.cli.flags import print_json
    from filbert.cli.targets import check_target
    from filbert.export import export_onnx

    folder = find_model(model)
    check_target(out, folder, overwrite=overwrite, markers=("config.json",))
    rows = _rows(folder, data, columns, int8=int8)
    facts = export_onnx(model, out, int8=int8, pooling=pooling, max_loss=max_loss, **rows)
    print_json(facts) if json else print("\n".join(_lines(out, facts)))


def _rows(
    folder: Path, data: str | None, columns: ColumnNames | None, *, int8: bool
) -> dict[str, Any]:
    """Return the rows to compare on, and the names of their columns."""
    from filbert.cli.flags import columns_of

    names = columns_of(columns)
    if int8 and data is None:
        from filbert.train.replay import dev_rows

        known = dev_rows(folder)
        if known is not None:
            data, names = known
            print(f"Comparing on {data}, the dev rows of its training.", file=sys.stderr)
    return {"data": data, "names": names}


def _lines(out: Path, facts: dict[str, Any]) -> list[str]:
    from filbert.cli.flags import metric_lines

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
