"""Keep the line counts of docs/reading-guide.md true: `python docs/figures/line_counts.py`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reading-guide.md"
# | [`batch.py`](../src/filbert/batch.py) | 147 | ...
_ROW = re.compile(r"^(\| \d+ \| \[`[^`]+`\]\(\.\./(src/[^)]+)\) \| )(\d+)", re.MULTILINE)


def updated(page: str) -> str:
    """Return the page with the number of lines that each file has now."""

    def counted(row: re.Match[str]) -> str:
        source = (ROOT / row[2]).read_text(encoding="utf-8")
        return f"{row[1]}{len(source.splitlines())}"

    return _ROW.sub(counted, page)


def sums(page: str) -> dict[str, int]:
    """Return the number of lines to read for each section of the page."""
    sections = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {
        section.splitlines()[0]: sum(int(row[3]) for row in _ROW.finditer(section))
        for section in sections
    }


if __name__ == "__main__":
    text = updated(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    print(sums(text))
