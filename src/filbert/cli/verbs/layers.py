"""filbert layers."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.probe.layer_options import LayersOptions


def layers(
    *,
    options: Annotated[LayersOptions, Parameter(name="*")],
    json: bool = False,
    markdown: bool = False,
    out: str | None = None,
) -> None:
    """Compare the layers of a frozen model as features for a task, as in table 7 of the BERT paper.

    Parameters
    ----------
    options:
        the comparison.
    json:
        print JSON.
    markdown:
        print the table in Markdown.
    out:
        folder for layers.json, table.md and layers.png.
    """
    from pathlib import Path

    from rich.console import Console

    from filbert.cli.flags import print_json
    from filbert.errors import ConfigError
    from filbert.probe.layer_table import caption, console_table, weight_lines
    from filbert.probe.layer_table import markdown as as_markdown
    from filbert.probe.layer_write import check_folder, write_comparison
    from filbert.probe.layers import compare_layers

    if json and markdown:
        raise ConfigError("--json and --markdown are two forms of one answer. Give one.")
    folder = None if out is None else Path(out)
    if folder is not None:
        check_folder(folder)
    found = compare_layers(LayersOptions.from_keywords(vars(options)))
    if folder is not None:
        write_comparison(folder, found)
    if json:
        print_json(found)
    elif markdown:
        print(as_markdown(found), end="")
    else:
        Console(emoji=False).print(console_table(found), highlight=False)
        for line in [caption(found), *weight_lines(found)]:
            print(line)
        if folder is not None:
            print(f"plot:  {folder / 'layers.png'}")
