"""The budgets of the source: sums and maxima. Raise one only with a reason in docs/log.md."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from filbert.tasks import base

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# The limit today, and the goal of the redesign with the eight steps after it.
BUDGETS = {
    "lines of src": (50_665, 45_000),
    "files of src": (206, 255),
    "lines of tests": (42_301, 43_000),
    "lines of the longest function": (60, 60),
    "fields of the largest class of options": (20, 20),
    "members of the Task protocol": (12, 12),
    "files of the forward pass": (8, 8),
    "files that finetune imports": (95, 95),
    "files in import circles": (0, 0),
}


def lines_of(paths: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def longest_function(paths: list[Path]) -> int:
    functions = (
        node
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return max(node.end_lineno - node.lineno + 1 for node in functions)


def largest_options(paths: list[Path]) -> int:
    classes = (
        node
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Options")
    )
    return max(sum(isinstance(line, ast.AnnAssign) for line in node.body) for node in classes)


def members_of_task() -> int:
    protocols = (base.Objective, base.Task)
    return len({name for kind in protocols for name in vars(kind) if not name.startswith("_")})


def forward_pass_files() -> set[str]:
    """The files that the encoder and the heads import, less those that make products fast."""
    package, names, todo = ROOT / "src" / "filbert", set(), ["model.encoder", "model.heads"]
    while todo:
        name = todo.pop()
        if name in names or name in ("model.cpu", "model.int8", "model.cuda"):
            continue
        names.add(name)
        tree = ast.parse(package.joinpath(*name.split(".")).with_suffix(".py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("filbert."):
                module = str(node.module).removeprefix("filbert.")
                todo += [module] if module == "batch" or module.startswith("model.") else []
    return names


def imported_by_finetune() -> int:
    """Files of filbert with any content after one step of `filbert finetune` in a new process."""
    code = """
import pathlib, sys, tempfile
from filbert.cli.main import run
from filbert.report import plots
plots.write_png = lambda _, path: path.write_bytes(b"")  # drawing imports nothing of filbert
with tempfile.TemporaryDirectory() as place:
    rows = pathlib.Path(place, "rows.csv")
    rows.write_text("text,label\\n" + "good,pos\\nbad,neg\\n" * 8)
    words = "finetune --task classification --model filbert-mini --steps 1 --precision float32"
    assert run([*words.split(), "--train", str(rows), "--out", place + "/x", "--json"]) == 0
files = [module.__file__ for name, module in sys.modules.items() if name.startswith("filbert")]
print(sum(pathlib.Path(file).stat().st_size > 0 for file in files))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def modules_in_circles() -> int:
    """Modules that import each other, within functions and for type checkers too."""
    package = ROOT / "src" / "filbert"
    modules = {
        ".".join(["filbert", *path.relative_to(package).with_suffix("").parts]): path
        for path in SOURCES
        if path.name != "__init__.py"
    }
    imported: dict[str, set[str]] = {}
    for name, path in modules.items():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        used = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        names = {f"{node.module}.{alias.name}" for node in used for alias in node.names}
        imported[name] = (names | {node.module for node in used}) & set(modules)
    left = set(modules)
    # Without circles, modules that import nothing that is left can be taken away to the last one.
    while free := {name for name in left if not imported[name] & left}:
        left -= free
    return len(left)


MEASURES = {
    "files in import circles": modules_in_circles,
    "files that finetune imports": imported_by_finetune,
    "lines of src": lambda: lines_of(SOURCES),
    "files of src": lambda: len(SOURCES),
    "lines of tests": lambda: lines_of(TESTS),
    "lines of the longest function": lambda: longest_function(SOURCES),
    "fields of the largest class of options": lambda: largest_options(SOURCES),
    "members of the Task protocol": members_of_task,
    "files of the forward pass": lambda: len(forward_pass_files()),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_the_source_keeps_its_budget(name):
    limit, _goal = BUDGETS[name]
    assert MEASURES[name]() <= limit
