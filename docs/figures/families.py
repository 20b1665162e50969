"""Write the table of families of docs/checkpoints.md: `python docs/figures/families.py`.

Lines of a family are those of its function in checkpoints/families.py and of what only that
function uses; entries that several families share are not counted. Tests are those of the
reference tests that name it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/filbert/checkpoints/families.py"
TESTS = ("test_families.py", "test_modernbert.py")
PAGE = ROOT / "docs/checkpoints.md"
_TABLE = re.compile(r"(<!-- families -->\n).*?(<!-- /families -->)", re.DOTALL)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _size(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def makers() -> list[tuple[int, int]]:
    """Return how many families each function makes, and its lines, in the order of FAMILIES."""
    tree = ast.parse(SOURCE.read_text("utf-8"))
    parts: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            parts[ast.unparse(target)] = node
    made: dict[str, int] = {}
    for call in ast.walk(parts["FAMILIES"]):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in parts:
            made[call.func.id] = made.get(call.func.id, 0) + 1

    def used(name: str) -> set[str]:
        found, todo = {name}, [name]
        while todo:
            new = (_names(parts[todo.pop()]) & parts.keys()) - found - made.keys()
            found, todo = found | new, [*todo, *new]
        return found

    reach = {name: used(name) for name in made}
    owners = {part: [n for n in made if part in reach[n]] for part in parts}
    return [
        (count, sum(_size(parts[part]) for part in reach[name] if owners[part] == [name]))
        for name, count in made.items()
    ]


def tests_of(model_types: list[str]) -> list[str]:
    """Return the reference tests that name one of the families."""
    found = []
    for file in TESTS:
        tree = ast.parse((ROOT / "tests/reference" / file).read_text("utf-8"))
        for node in tree.body:
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if is_test and any(f"'{name}'" in ast.unparse(node) for name in model_types):
                found.append(node.name)
    return found


def table() -> str:
    """Return the table in Markdown."""
    from filbert.checkpoints.families import FAMILIES

    rows = ["| `model_type` | lines | its own tests |", "|---|---|---|"]
    names = iter(FAMILIES)
    for count, lines in makers():
        types = [next(names) for _ in range(count)]
        tests = ", ".join(f"`{name}`" for name in tests_of(types))
        rows.append(f"| {', '.join(types)} | {lines} | {tests} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(_TABLE.sub(lambda match: match[1] + table() + match[2], page), "utf-8")
