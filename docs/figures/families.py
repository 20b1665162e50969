"""Write the table of families of docs/checkpoints.md: `python docs/figures/families.py`.

Lines of a family are those of its row in checkpoints/families.py and of what only that row uses;
entries that several families share are not counted. Tests are the reference tests that name it.
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


def sizes() -> list[int]:
    """Return the lines of each row, in the order of FAMILIES."""
    tree = ast.parse(SOURCE.read_text("utf-8"))
    parts: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            parts[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            parts[ast.unparse(target)] = node
    rows = [part.strip() for part in ast.unparse(parts["_ROWS"]).partition("(")[2][:-1].split(",")]

    def used(name: str) -> set[str]:
        found, todo = {name}, [name]
        while todo:
            new = (_names(parts[todo.pop()]) & parts.keys()) - found - set(rows)
            found, todo = found | new, [*todo, *new]
        return found

    reach = {name: used(name) for name in rows}
    owners = {part: [n for n in rows if part in reach[n]] for part in parts}
    return [
        sum(_size(parts[part]) for part in reach[name] if owners[part] == [name]) for name in rows
    ]


def tests_of(model_type: str) -> list[str]:
    """Return the reference tests that name a family."""
    found = []
    for file in TESTS:
        tree = ast.parse((ROOT / "tests/reference" / file).read_text("utf-8"))
        for node in tree.body:
            is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            if is_test and f"'{model_type}'" in ast.unparse(node):
                found.append(node.name)
    return found


def table() -> str:
    """Return the table in Markdown."""
    from filbert.checkpoints.families import FAMILIES

    rows = ["| `model_type` | lines | its own tests |", "|---|---|---|"]
    for name, lines in zip(FAMILIES, sizes(), strict=True):
        tests = ", ".join(f"`{test}`" for test in tests_of(name))
        rows.append(f"| {name} | {lines} | {tests} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(_TABLE.sub(lambda match: match[1] + table() + match[2], page), "utf-8")
