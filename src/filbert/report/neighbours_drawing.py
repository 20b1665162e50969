"""Drawings of one word's vectors as SVG: maps, similarity matrices, figures by layer.

They take their colours from the page, so that they are right in the light and in the dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from filbert.report.page import Html, element

# Beyond these counts points carry no numbers and cells no figures or names.
MOST_NUMBERED = 40
MOST_WRITTEN = 14
NUM_COLOURS = 8
LEVELS = 16

CSS = """
:root { --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b0558a;
  --c4: #9a6a00; --c5: #3f78b5; --c6: #6b5b95; --c7: #66727f; --on: #fff; --cell: 0, 114, 178; }
@media (prefers-color-scheme: dark) {
  :root { --c0: #62b3e8; --c1: #ff9a57; --c2: #4fd0a6; --c3: #e9a3cb; --c4: #f0be4f; --c5: #a9c8ff;
    --c6: #bfaee8; --c7: #aab4bf; --on: #10151a; --cell: 98, 179, 232; }
}
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif;
  fill: var(--quiet); }
.frame { fill: var(--soft); }
.axis { stroke: var(--line); stroke-width: 1; fill: none; }
.dot { stroke: var(--paper); stroke-width: 1.2; }
svg text.on { fill: var(--on); font-weight: 600; text-anchor: middle; }
svg text.mid { text-anchor: middle; } svg text.end { text-anchor: end; }
svg text.said { fill: var(--ink); }
.cell { fill: rgb(var(--cell)); }
svg text.figure { font-size: 9.5px; text-anchor: middle; fill: var(--ink); }
svg text.figure.deepest { fill: var(--on); }
@media (prefers-color-scheme: dark) { svg text.figure.deep { fill: var(--on); } }
.series { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-dasharray: 5 5; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr));
  gap: 1.5rem 2.5rem; max-width: 52rem; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .9rem; }
.strip figcaption { padding-top: .2rem; }
.chosen figcaption { color: var(--ink); font-weight: 600; }
.curves { max-width: 33rem; }
.badge { display: inline-block; min-width: 1.5rem; padding: 0 .3rem; border-radius: 1rem;
  color: var(--on); font-size: .8125rem; font-weight: 600; text-align: center; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: 0; margin: .6rem 0;
  list-style: none; font-size: .875rem; }
.swatch { display: inline-block; width: .8rem; height: .8rem; border-radius: 50%;
  margin-right: .4rem; vertical-align: -1px; }
.quote { overflow-wrap: anywhere; }
.quote mark { background: none; color: inherit; font-weight: 700; text-decoration: underline;
  text-decoration-thickness: 2px; text-underline-offset: 3px; }
td.text:nth-child(2) { min-width: min(22rem, 55vw); }
""" + "".join(
    f".k{i} {{ fill: var(--c{i}); }} .s{i} {{ stroke: var(--c{i}); }} "
    f".b{i} {{ background: var(--c{i}); }}\n"
    for i in range(NUM_COLOURS)
)


def reach_of(planes: Sequence[np.ndarray]) -> float:
    """The half width that shows all points of several maps at one scale."""
    return max(1e-3, *(float(np.abs(points - _middle(points)).max()) for points in planes))


def _middle(points_N2: np.ndarray) -> np.ndarray:
    middle: np.ndarray = (points_N2.min(0) + points_N2.max(0)) / 2
    return middle


def map_of(
    points_N2: np.ndarray,
    colours: Sequence[int],
    names: Sequence[str],
    *,
    reach: float,
    size: int = 320,
    label: str,
    numbered: bool = True,
) -> Html:
    """A map of places: a disc each, with its number where there is room.

    Args:
        points_N2: float (N, 2).
        colours: of each, below NUM_COLOURS.
        names: what hovering tells.
        reach: half of what is shown.
        size: of both sides.
        label: for those who cannot see it.
        numbered: whether discs carry their number.
    """
    numbered = numbered and len(names) <= MOST_NUMBERED
    radius = 10.0 if numbered else max(3.0, size / 64)
    scale = (size / 2 - radius - 6) / reach
    centred = points_N2 - _middle(points_N2)
    parts = [element("rect", class_="frame", width=str(size), height=str(size), rx="6")]
    stacks: dict[tuple[int, int], list[int]] = {}
    for number, (x, y) in enumerate(centred):
        at = (round(size / 2 + scale * x), round(size / 2 - scale * y))
        stacks.setdefault(at, []).append(number)
    for (x, y), own in stacks.items():
        colour = f"k{colours[own[0]] % NUM_COLOURS}"
        mixed = len({colours[number] for number in own}) > 1
        told = "; ".join(names[number] for number in own)
        inside = [
            element(
                "circle", class_=f"dot {'k7' if mixed else colour}", cx=str(x), cy=str(y),
                r=f"{radius + (4 if len(own) > 1 and numbered else 0):g}",
            ),
            element("title", told),
        ]  # fmt: skip
        if numbered:
            word = str(own[0] + 1) if len(own) == 1 else f"×{len(own)}"
            inside.append(element("text", word, class_="on", x=str(x), y=f"{y + 4}"))
        parts.append(element("g", *inside))
    return _svg(size, size, label, parts)


def matrix_of(
    cosines_NN: np.ndarray, order: Sequence[int], *, lowest: float, label: str, size: int = 320
) -> Html:
    """Cosines as shades: as deep as one, as pale as `lowest`.

    Args:
        cosines_NN: float (N, N).
        order: of rows and columns.
        lowest: what is palest.
        label: for those who cannot see it.
        size: of both sides.
    """
    count = len(order)
    is_written = count <= MOST_WRITTEN
    edge = 20 if count <= MOST_NUMBERED else 0
    side = (size - edge) / count
    shades = np.clip((cosines_NN - lowest) / max(1 - lowest, 1e-6), 0, 1)[np.ix_(order, order)]
    parts = [
        element("rect", class_="frame", x=str(edge), y=str(edge), width=str(size - edge),
                height=str(size - edge)),
    ]  # fmt: skip
    levels = np.round(shades * LEVELS).astype(int)
    for level in range(1, LEVELS + 1):
        cells = np.argwhere(levels == level)
        # A hair wider than they are, so that no seam shows between them.
        path = "".join(
            f"M{edge + column * side:.4g} {edge + row * side:.4g}"
            f"h{side + 0.3:.4g}v{side + 0.3:.4g}h-{side + 0.3:.4g}z"
            for row, column in cells
        )
        if path:
            shade = f"{level / LEVELS:.3f}"
            parts.append(element("path", class_="cell", d=path, fill_opacity=shade))
    if edge:
        for place, number in enumerate(order):
            middle = f"{edge + (place + 0.5) * side:.1f}"
            if side >= 13 or place % 2 == 0:
                parts.append(element("text", str(number + 1), class_="mid", x=middle, y="14"))
                below = f"{edge + (place + 0.5) * side + 4:.1f}"
                parts.append(element("text", str(number + 1), class_="end", x="15", y=below))
    if is_written:
        for row, i in enumerate(order):
            for column, j in enumerate(order):
                if i != j:
                    # White and black are as far from the blue of the light page at 0.85, and
                    # from that of the dark one at 0.62.
                    depth = levels[row, column] / LEVELS
                    deep = " deep deepest" if depth > 0.85 else " deep" if depth > 0.62 else ""
                    parts.append(
                        element(
                            "text", short(cosines_NN[i, j]), class_=f"figure{deep}",
                            x=f"{edge + (column + 0.5) * side:.1f}",
                            y=f"{edge + (row + 0.5) * side + 3.5:.1f}",
                        )
                    )  # fmt: skip
    return _svg(size, size, label, parts)


def short(cosine: float) -> str:
    """.87, 1, -.20."""
    text = f"{cosine:.2f}"
    return "1" if text == "1.00" else text.replace("0.", ".", 1)


def curves_of(
    series: Sequence[tuple[str, Sequence[float | None], int, bool]], *, label: str
) -> Html:
    """Figures of layers 0 to L as lines.

    Args:
        series: name, the figure of each layer or None, colour, whether it is dashed.
        label: for those who cannot see it.
    """
    width, height, left, top, bottom = 420, 250, 34, 8, 34
    values = [value for _, row, _, _ in series for value in row if value is not None]
    low = min(0.0, *(math.floor(10 * value) / 10 for value in values))
    last = max(1, len(series[0][1]) - 1)

    def x(layer: int) -> float:
        return left + (width - left - 8) * layer / last

    def y(value: float) -> float:
        return top + (height - top - bottom) * (1 - value) / (1 - low)

    parts = []
    for step in range(round(5 * low), 6):
        at = f"{y(step / 5):.1f}"
        parts.append(element("path", class_="axis", d=f"M{left} {at}H{width - 8}"))
        parts.append(element("text", f"{step / 5:.1f}", class_="end", x="28", y=f"{float(at) + 4}"))
    every = 1 if last <= 14 else 2
    for layer in range(0, last + 1, every):
        parts.append(
            element("text", str(layer), class_="mid", x=f"{x(layer):.1f}", y=str(height - 16))
        )
    parts.append(element("text", "layer", class_="mid", x=f"{x(last) / 2 + 17}", y=str(height - 1)))
    for name, row, colour, is_dashed in series:
        known = [(i, x(i), y(value), value) for i, value in enumerate(row) if value is not None]
        line = "M" + "L".join(f"{px:.1f} {py:.1f}" for _, px, py, _ in known)
        kind = f"series s{colour}" + (" dashed" if is_dashed else "")
        parts.append(element("path", element("title", name), class_=kind, d=line))
        for i, px, py, value in known:
            told = element("title", f"{name}, layer {i}: {value:.3f}")
            parts.append(
                element("circle", told, class_=f"k{colour}", cx=f"{px:.1f}", cy=f"{py:.1f}", r="3")
            )
    return _svg(width, height, label, parts)


def _svg(width: int, height: int, label: str, parts: Sequence[Html]) -> Html:
    return element("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=label)
