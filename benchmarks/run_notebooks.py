"""Run notebooks without Jupyter, and store what their cells show: text and pictures.

    python benchmarks/run_notebooks.py notebooks/course/*.ipynb --write

A cell shows what it prints, the value of its last line, and the figures of matplotlib that it made.
Without --write nothing is stored. The first cell that fails ends the run.
"""

from __future__ import annotations

import argparse
import ast
import base64
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any


def pictures() -> Iterator[dict[str, Any]]:
    """Yield the open figures as outputs with 256 colours, and close them."""
    from matplotlib import pyplot
    from PIL import Image

    for number in pyplot.get_fignums():
        drawn, file = io.BytesIO(), io.BytesIO()
        pyplot.figure(number).savefig(drawn, format="png", dpi=72)
        Image.open(drawn).convert("RGB").quantize().save(file, format="png", optimize=True)
        image = base64.b64encode(file.getvalue()).decode()
        data = {"image/png": image, "text/plain": ["<Figure>"]}
        yield {"output_type": "display_data", "metadata": {}, "data": data}
    pyplot.close("all")


def shown(value: Any, number: int) -> Iterator[dict[str, Any]]:
    """Yield the value of a cell's last line as an output, if there is one."""
    if value is None:
        return
    data = {"text/plain": repr(value).splitlines(keepends=True)}
    if (html := getattr(value, "_repr_html_", None)) is not None:
        data["text/html"] = html().splitlines(keepends=True)
    yield {
        "output_type": "execute_result", "metadata": {}, "data": data, "execution_count": number,
    }  # fmt: skip


def run_cell(source: str, names: dict[str, Any], where: str, number: int) -> list[dict[str, Any]]:
    """Run one cell and return its outputs."""
    parts = ast.parse(source)
    last = parts.body.pop() if isinstance(parts.body[-1], ast.Expr) else None
    out, errors, value = io.StringIO(), io.StringIO(), None
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            exec(compile(parts, where, "exec", dont_inherit=True), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    except BaseException:
        print(errors.getvalue(), file=sys.stderr)
        raise
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": name, "text": file.getvalue().splitlines(keepends=True)}
        for name, file in (("stderr", errors), ("stdout", out))
        if file.getvalue()
    ]
    return outputs + list(shown(value, number)) + list(pictures())


def run_notebook(path: Path) -> dict[str, Any]:
    """Return the content of a notebook with the outputs of a new run."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for place, cell in enumerate(content["cells"]):
        if cell["cell_type"] == "code":
            number += 1
            where = f"{path.name}, cell {place}"
            cell["outputs"] = run_cell("".join(cell["source"]), names, where, number)
            cell["execution_count"] = number
    return content


def main() -> None:
    """Run the notebooks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="store the outputs in the files")
    options = parser.parse_args()
    os.environ["MPLBACKEND"] = "Agg"
    for path in options.notebooks:
        clock, cpu = time.perf_counter(), time.process_time()
        content = run_notebook(path)
        if options.write:
            text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        print(f"{path.name}: {clock:.0f} s, {cpu:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
