"""Keep the line numbers of docs/annotated-bert.md true: `python docs/figures/quotes.py`.

The page quotes source below links such as [..., lines 3-5](../src/a.py#L3-L5). A quote is the
source, but for its indentation and the type checker's remarks. When lines moved, this rewrites the
numbers; when a quote is no longer in its file, it says so and exits with status 1.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "annotated-bert.md"

_QUOTE = re.compile(
    r"\[`(?P<name>[^`]+)`, lines? (?P<lines>[\d-]+)\]"
    r"\(\.\./(?P<path>[^)#]+)#(?P<anchor>[\w-]+)\)\n\n"
    r"```(?:python|toml)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_REMARK = re.compile(r"  # (type: ignore|fmt:|noqa).*$", re.MULTILINE)


@dataclass(frozen=True)
class Quote:
    """Lines that the page shows.

    Attributes:
        name: the file as the page calls it.
        path: of the file, from the root of the repository.
        lines: first and last, counted from 1, as the link says; (0, 0) if it contradicts itself.
        code: what is quoted.
        span: characters of the page that the link takes.
    """

    name: str
    path: str
    lines: tuple[int, int]
    code: str
    span: tuple[int, int]


def quotes(page: str) -> list[Quote]:
    """All quotes of a page, in order."""
    found = []
    for match in _QUOTE.finditer(page):
        numbers = [int(number) for number in match["lines"].split("-")]
        lines = (numbers[0], numbers[-1])
        if match["anchor"] != _anchor(lines):
            lines = (0, 0)
        span = (match.start(), match.end("anchor") + 1)
        found.append(Quote(match["name"], match["path"], lines, match["code"], span))
    return found


def places(quote: Quote, root: Path = ROOT) -> list[tuple[int, int]]:
    """Where its lines stand in its file: first and last, counted from 1."""
    source = _REMARK.sub("", (root / quote.path).read_text(encoding="utf-8")).splitlines()
    wanted = quote.code.rstrip("\n").splitlines()
    size = len(wanted)
    return [
        (start + 1, start + size)
        for start in range(len(source) - size + 1)
        if dedent("\n".join(source[start : start + size])).splitlines() == wanted
    ]


def updated(page: str, root: Path = ROOT) -> tuple[str, list[str]]:
    """The page with true line numbers, and a sentence for every quote that cannot be updated."""
    problems = []
    for quote in reversed(quotes(page)):
        there = places(quote, root)
        if not there:
            first = quote.code.splitlines()[0]
            problems.append(f"{quote.path} no longer has the lines that begin with {first!r}.")
            continue
        lines = min(there, key=lambda place: abs(place[0] - quote.lines[0]))
        begin, end = quote.span
        page = page[:begin] + _link(quote, lines) + page[end:]
    return page, problems[::-1]


def _anchor(lines: tuple[int, int]) -> str:
    first, last = lines
    return f"L{first}" if first == last else f"L{first}-L{last}"


def _link(quote: Quote, lines: tuple[int, int]) -> str:
    first, last = lines
    where = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"[`{quote.name}`, {where}](../{quote.path}#{_anchor(lines)})"


def main() -> None:
    """Update the page."""
    page = PAGE.read_text(encoding="utf-8")
    new, problems = updated(page)
    PAGE.write_text(new, encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(quotes(new))} quotes, {'updated' if new != page else 'all where the links say'}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
