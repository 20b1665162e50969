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
        onnx: model.onnx with the tokenizer beside it.
    int8:
        quantise the layers' weights per output channel, and activations while it runs.
    pooling:
        of a bare encoder's sentence_embedding: mean, cls, last, max, mean_sqrt_len, several with +
        between, or none to leave it out. When not given: what the folder says, else mean.
    data:
        labelled rows, to compare the task's metrics on. With --int8 and without this: the dev rows
        of the model's training, where they lie as they lay then.
    max_loss:
        the most that a metric may fall by on these rows, such as 0.005. With --int8, the layers
        that cost most stay float32 until it holds; otherwise the export is refused.
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
    from filbert.cli.flags import columns_of, print_json
    from filbert.cli.targets import check_target
    from filbert.export import export_onnx

    folder = find_model(model)
    check_target(out, folder, overwrite=overwrite, markers=("config.json",))
    names = columns_of(columns)
    if int8 and data is None:
        from filbert.train.replay import dev_rows

        known = dev_rows(folder)
        if known is not None:
            data, names = known
            print(f"Comparing on {data}, the dev rows of its training.", file=sys.stderr)
    facts = export_onnx(
        model,
        out,
        int8=int8,
        pooling=pooling,
        data=data,
        names=names,
        max_loss=max_loss,
    )
    if json:
        print_json(facts)
        return
    print("\n".join(_lines(out, facts)))


def _lines(out: Path, facts: dict[str, Any]) -> list[str]:
    from filbert.cli.flags import metric_lines

    size = sum(path.stat().st_size for path in out.glob("model.onnx*")) / 1e6
    lines = [
        f"{out}: {facts['precision']}, opset {facts['opset']}, {size:,.1f} MB: "
        f"{', '.join(facts['inputs'])} to {', '.join(facts['outputs'])}.",
        f"Beside the original: largest difference {facts['largest_difference']:.1e} among outputs "
        f"up to {facts['largest_output']:.2g}, cosine {facts['cosine']:.6f}.",
    ]
    compared = facts.get("data")
    if compared:
        lines.append(f"On {compared['file']}:")
        lines += metric_lines(compared["float32"], compared["exported"])
    return lines
