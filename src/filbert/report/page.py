"""HTML without a template language: every text is escaped, and only `Html` goes in as it is."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filbert.report.style import CSS, DARK


class Html(str):
    """Markup that is safe to put on a page. Everything else that is a string gets escaped."""

    __slots__ = ()


def safe(value: object) -> Html:
    """`value` as markup: `Html` unchanged, anything else escaped, half characters replaced."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(str(value)).encode("utf-8", "replace").decode("utf-8"))


def element(name: str, *content: object, **attributes: str) -> Html:
    """`<name a="..">content</name>`.

    A trailing underscore in an attribute's name is dropped, another one stands for a hyphen.
    """
    inside = "".join(safe(part) for part in content)
    marks = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{marks}>{inside}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """The parts one after the other."""
    return Html("\n".join(safe(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading that links can reach."""

    title: str
    content: Html

    @property
    def html(self) -> Html:
        """The part itself."""
        heading = element("h2", self.title)
        return element("section", heading, self.content, id=anchor(self.title))

    @property
    def link(self) -> Html:
        """A link that leads to it."""
        return element("a", self.title, href=f"#{anchor(self.title)}")


def section(title: str, *content: object) -> Section:
    """A part of the page."""
    return Section(title, join(content))


def anchor(title: str) -> str:
    """The part of the address that leads to a section."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    num_text_columns: int = 1,
    kind: str = "",
    below: Sequence[Html] = (),
) -> Html:
    """A table that scrolls sideways on a narrow screen.

    Args:
        head: the headings; none for a table of name and value.
        rows: cells, as many as headings.
        num_text_columns: the first so many are text and stand left; the others are numbers, right.
        kind: a CSS class.
        below: what stands under each row, over all columns; nothing if empty.
    """

    def line(name: str, cells: Sequence[object]) -> Html:
        return element(
            "tr",
            *(
                element(name, cell, class_="text" if column < num_text_columns else "number")
                for column, cell in enumerate(cells)
            ),
        )

    top = element("thead", line("th", head)) if head else Html("")
    lines = [line("td", row) for row in rows]
    if below:
        wide = [
            element("tr", element("td", more, colspan=str(len(head))), class_="below")
            for more in below
        ]
        lines = [part for both in zip(lines, wide, strict=True) for part in both]
    body = element("tbody", join(lines))
    return element("div", element("table", top, body, class_=kind or "plain"), class_="scroll")


def pairs(rows: Iterable[tuple[object, object]]) -> Html:
    """A table of names and values."""
    return table((), rows, num_text_columns=2, kind="pairs")


def image(path: Path, *, alt: str, caption: object, width: int) -> Html:
    """A PNG inside the page, with what it shows in words.

    Args:
        path: the file.
        alt: for those who cannot see it.
        caption: below it.
        width: of the page's pixels.
    """
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    picture = f'<img src="data:image/png;base64,{data}" alt="{html.escape(alt)}" width="{width}">'
    return element("figure", Html(picture), element("figcaption", caption))


def gallery(figures: Iterable[Html]) -> Html:
    """Figures side by side where there is room."""
    return element("div", join(figures), class_="gallery")


def page(title: str, *content: object, css: str = "", dark: bool = False) -> Html:
    """The whole file. The policy in its head forbids any outside address and any script.

    Args:
        title: in the browser's tab.
        content: the body.
        css: rules of this kind of page, after those that all have.
        dark: whether it follows the reader's choice between light and dark.
    """
    styles = CSS + (DARK if dark else "") + css
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return Html(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{safe(title)}</title>\n<style>{styles}</style></head>\n"
        f"<body><main>\n{join(content)}\n</main></body></html>\n"
    )
