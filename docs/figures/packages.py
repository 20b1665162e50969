"""Draw the packages of filbert and the imports between them: `python docs/figures/packages.py`.

Rows are the layers of import-linter in pyproject.toml, the highest first. An arrow shows that one
package imports another. Arrows that follow from two others are left out. Writes packages.svg.
"""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "filbert"
PICTURE = Path(__file__).with_name("packages.svg")
WIDTH, ROW, BOX_WIDTH, BOX_HEIGHT = 760, 64, 118, 34


def layers() -> list[list[str]]:
    """Return the packages of each layer, the highest layer first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rows: list[str] = project["tool"]["importlinter"]["contracts"][0]["layers"]
    return [row.split(" | ") for row in rows]


def imports(packages: set[str]) -> dict[str, set[str]]:
    """Return which packages each package imports."""
    used: dict[str, set[str]] = {package: set() for package in packages}
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "filbert"
            ):
                continue
            parts = str(node.module).split(".")
            names = parts[1:2] or [alias.name for alias in node.names]
            for name in names:
                if package in packages and name in packages and name != package:
                    used[package].add(name)
    return used


def without_implied(used: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each arrow that follows from a longer way of arrows."""

    def reached(package: str) -> set[str]:
        found: set[str] = set()
        for other in used[package]:
            found |= {other} | reached(other)
        return found

    return {
        package: {
            other
            for other in others
            if not any(other in reached(between) for between in others - {other})
        }
        for package, others in used.items()
    }


def picture() -> str:
    """Return the picture as SVG."""
    rows = layers()
    places = {
        package: (WIDTH * (column + 1) / (len(row) + 1), 30 + ROW * number)
        for number, row in enumerate(rows)
        for column, package in enumerate(row)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * len(rows)}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7a8794"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{ROW * len(rows)}" fill="#ffffff"/>',
    ]
    for package, others in sorted(without_implied(imports(set(places))).items()):
        for other in sorted(others):
            (x, y), (to_x, to_y) = places[package], places[other]
            start, end = y + BOX_HEIGHT / 2, to_y - BOX_HEIGHT / 2
            bend = (end - start) / 2
            lines.append(
                f'<path d="M{x:.0f} {start:.0f}C{x:.0f} {start + bend:.0f} {to_x:.0f} '
                f'{end - bend:.0f} {to_x:.0f} {end:.0f}" fill="none" stroke="#7a8794" '
                'marker-end="url(#tip)"/>'
            )
    for package, (x, y) in places.items():
        lines.append(
            f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="6" fill="#e3f0f8" stroke="#0072b2"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#00334f">'
            f"{escape(package)}</text>"
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
