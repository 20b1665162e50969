"""filbert calibrate."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from filbert.data.columns import ColumnNames


def calibrate(
    model: str,
    /,
    *,
    data: str,
    target: float = 0.999,
    max_loss: float | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    json: bool = False,
) -> None:
    """Find the layers that int8 hurts most, and note in the model's folder that they stay float32.

    From then on --precision int8 and filbert export --int8 leave them alone.

    Parameters
    ----------
    model:
        folder of the model; filbert.json in it is written.
    data:
        labelled rows; for a model without a task, texts.
    target:
        mean cosine between vectors with and without int8 that is wanted, below 1.
    max_loss:
        the most that a metric may fall by on --data, such as 0.005; more layers stay float32 where
        it takes more.
    columns:
        names of the columns of --data.
    json:
        print what was noted as JSON.
    """
    from filbert.cli.flags import STDIO, columns_of, print_json
    from filbert.errors import ConfigError

    if not 0 < target < 1:
        raise ConfigError(f"--target is {target}; it is a cosine, above 0 and below 1.")
    if max_loss is not None and not max_loss >= 0:
        raise ConfigError(f"--max-loss is {max_loss}; it must be zero or above.")
    if data == STDIO:
        raise ConfigError("--data is read more than once. Give a file.")

    from filbert.calibrate import calibrate as calibrate_model

    facts = calibrate_model(
        model, data, names=columns_of(columns), target=target, max_loss=max_loss
    )
    if json:
        print_json(facts)
    else:
        print("\n".join(_lines(model, facts)))


def _lines(model: str, facts: dict[str, Any]) -> list[str]:
    from filbert.cli.flags import metric_lines

    kept = facts["float_layers"]
    count = facts["data"]["sequences"]
    lines = [
        f"{model}: {facts['layers'] - len(kept)} of {facts['layers']} dense layers in int8, "
        f"{len(kept)} stay float32.",
        *(f"  {name}  (alone in int8: cosine {facts['alone'][name]:.6f})" for name in kept),
        f"Vectors of {count} sequences beside float32: cosine {facts['cosine']:.6f}; "
        f"{facts['cosine_of_all']:.6f} with all layers in int8.",
    ]
    if "float32" in facts:
        lines.append(f"On {facts['data']['file']}:")
        lines += metric_lines(facts["float32"], facts["int8"])
    lines.append("Noted in filbert.json: --precision int8 and export --int8 go by it.")
    return lines
