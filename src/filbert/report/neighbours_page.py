"""The page of `filbert neighbours`: one word in many sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from filbert.inspection.neighbours import WordInContext
from filbert.inspection.occurrences import Occurrence
from filbert.report.neighbours_drawing import (
    CSS,
    NUM_COLOURS,
    curves_of,
    map_of,
    matrix_of,
    reach_of,
)
from filbert.report.numbers import MISSING
from filbert.report.page import Html, Section, element, join, page, section, table

# Characters of a sentence on each side of the word.
AROUND = 140
# Below this mean agreement of groups that were made again without a quarter of the places, a single
# cloud is as likely: words of one sense reached 0.33 to 0.88, two senses of 12 places 0.7 to 1.
STEADY = 0.9

# The mean of fewer words is no line to compare a word with.
LEAST_WORDS = 5


def neighbours_page(found: WordInContext) -> Html:
    """The whole file; it needs no other."""
    word = _word(found)
    parts = [
        _both_maps(found),
        _matrices(found),
        _by_layer(found),
        _figures(found),
        _sentences(found),
        _reading(found),
    ]
    top = element(
        "header",
        element("p", f"filbert neighbours · {found.model}", class_="eyebrow"),
        element("h1", f"“{word}” in {len(found.occurrences)} places"),
        element("p", verdict(found), class_="verdict"),
        *(element("p", note, class_="note") for note in notes(found)),
        element("nav", join(part.link for part in parts)),
    )
    title = f"{word} · filbert neighbours"
    return page(title, top, *(part.html for part in parts), css=CSS, dark=True)


def _word(found: WordInContext) -> str:
    return ", ".join(found.words)


def verdict(found: WordInContext) -> str:
    """What was found, in one or two sentences."""
    groups, count = found.groups, len(found.occurrences)
    off = found.similarity[~np.eye(count, dtype=bool)]
    where = f"In layer {found.layer} of {found.model or 'the model'}"
    table_has = (
        f"the word table has one vector for all {count}"
        if found.num_static == 1
        else f"the word table has {found.num_static} vectors, one for each way it is tokenised"
    )
    if groups.count == 1:
        said = f"{where} the {count} places form one group"
    else:
        score = "" if groups.silhouette is None else f" (silhouette {groups.silhouette:.2f})"
        said = f"{where} the {count} places fall into {groups.count} groups{score}"
    said += f", with cosines from {off.min():.2f} to {off.max():.2f}; {table_has}."
    same = found.layers[found.layer].nearest_same
    if same is not None:
        said += (
            f" {round(same * count)} of {count} places have one of the same sense as their nearest."
        )
    return said


def notes(found: WordInContext) -> list[str]:
    """What a reader must know to read the rest rightly."""
    said = []
    groups = found.groups
    if groups.count > 1 and groups.stability is None:
        said.append(
            f"{len(found.occurrences)} places are too few to tell groups from chance; look at the "
            "similarities themselves."
        )
    elif found.senses is None and groups.stability is not None and groups.stability < STEADY:
        said.append(
            "The groups change when a quarter of the places is left out (agreement "
            f"{groups.stability:.2f}, 1 is the same): this may be one cloud, not several senses."
        )
    if found.asked is not None and groups.count < found.asked:
        said.append(
            f"{found.asked} groups were asked for; equal places stay together, so there are "
            f"{groups.count}."
        )
    if found.num_static > len({one.form.casefold() for one in found.occurrences}):
        said.append(
            "One form of the word is tokenised in more than one way (by its capital, or by the "
            "blank before it), and the word table holds a vector for each."
        )
    if found.found > len(found.occurrences):
        said.append(
            f"The word stands in {found.found:,} places; {len(found.occurrences)} drawn at random "
            "are shown."
        )
    if cut := sum(found.cut):
        texts = "1 text is" if cut == 1 else f"{cut} texts are"
        said.append(f"{texts} longer than the model reads: it saw what is around the word.")
    if found.layer == 0:
        said.append(
            "Layer 0 has seen no other word: its vectors differ by their position in the text."
        )
    return said


def colours_of(found: WordInContext) -> tuple[list[int], list[str]]:
    """A colour for each place, and the names of the colours: senses if known, else groups."""
    if found.senses is None:
        numbers = found.groups.numbers.tolist()
        return numbers, [f"group {i + 1}" for i in range(found.groups.count)]
    names = list(dict.fromkeys(found.senses))
    return [names.index(sense) for sense in found.senses], names


def _names(found: WordInContext) -> list[str]:
    return [
        f"{i + 1}: {' '.join(''.join(around(one, 60, 60)).split())}"
        for i, one in enumerate(found.occurrences)
    ]


def around(one: Occurrence, before: int = AROUND, after: int = AROUND) -> tuple[str, str, str]:
    """What stands before the word, the word, and what stands behind, cut to so many characters."""
    text = one.source.text
    left, right = text[: one.start], text[one.end :]
    if len(left) > before:
        # From the next whole word on, where the script has words.
        kept = left[len(left) - before + 1 :]
        left = "…" + (kept.partition(" ")[2] or kept)
    if len(right) > after:
        kept = right[: after - 1]
        right = (kept.rpartition(" ")[0] or kept) + "…"
    return left, one.form, right


def _legend(names: Sequence[str]) -> Html:
    if len(names) < 2:
        return Html("")
    return element(
        "ul",
        *(
            element("li", element("span", class_=f"swatch b{i % NUM_COLOURS}"), name)
            for i, name in enumerate(names)
        ),
        class_="legend",
    )


def _figure(drawing: Html, caption: object, kind: str = "") -> Html:
    return element("figure", drawing, element("figcaption", caption), class_=kind)


def _both_maps(found: WordInContext) -> Section:
    colours, names = colours_of(found)
    told = _names(found)
    points = found.planes[found.layer]
    if found.shares is None:
        how = "UMAP: only nearness means something, not distance"
        reach, static_reach = reach_of([points]), reach_of([found.static_plane])
    else:
        how = f"the two axes hold {100 * sum(found.shares):.0f} % of the variance"
        reach = static_reach = reach_of([points, found.static_plane])
    one = "all places are one point"
    if found.num_static > 1:
        one = "a point for each way the word is tokenised"
    # Each vector is there many times, which UMAP cannot place.
    static_how = " (PCA)" if found.shares is None else ""
    return section(
        "With and without context",
        _legend(names),
        element(
            "div",
            _figure(
                map_of(
                    found.static_plane, colours, told, reach=static_reach,
                    label=f"Map of the places by the word table: {one}",
                ),
                f"Word table{static_how}, the same for every sentence: {one}.",
            ),
            _figure(
                map_of(points, colours, told, reach=reach, label="Map of the places in context"),
                f"Layer {found.layer}, in context; {how}.",
            ),
            class_="maps",
        ),
    )  # fmt: skip


def _matrices(found: WordInContext) -> Section:
    colours, _ = colours_of(found)
    order = sorted(range(len(colours)), key=lambda i: (colours[i], found.groups.numbers[i], i))
    lowest = min(0.95, float(found.similarity.min()), float(found.static_similarity.min()))
    sides = [
        ("Word table.", found.static_similarity),
        (f"Layer {found.layer}, in context.", found.similarity),
    ]
    return section(
        "Similarity",
        element(
            "div",
            *(
                _figure(
                    matrix_of(cosines, order, lowest=lowest, label=f"Matrix of cosines. {caption}"),
                    caption,
                )
                for caption, cosines in sides
            ),
            class_="maps",
        ),
        element(
            "p",
            f"Cosines; palest {lowest:.2f}, deepest 1. Numbers are those of the sentences below.",
            class_="remark",
        ),
    )


def _sentences(found: WordInContext) -> Section:
    colours, names = colours_of(found)
    has_senses = found.senses is not None
    rows = []
    for i in sorted(range(len(colours)), key=lambda i: (colours[i], i)):
        before, form, after = around(found.occurrences[i])
        nearest = found.nearest(i)
        kind = names[colours[i]] if has_senses or len(names) > 1 else None
        quote = element("span", before, element("mark", form), after, class_="quote")
        group = found.groups.numbers[i] + 1
        rows.append(
            [
                element("span", i + 1, class_=f"badge b{colours[i] % NUM_COLOURS}"),
                quote,
                *([kind] if has_senses else []),
                group,
                f"{nearest + 1} ({found.similarity[i, nearest]:.2f})",
            ]
        )
    head = ["", "sentence", *(["sense"] if has_senses else []), "group", "nearest"]
    words = [
        element("p", f"Group {i + 1}: ", ", ".join(own))
        for i, own in enumerate(found.nearest_words)
        if own
    ]
    extra = (
        [
            element("h3", "Other words nearest to each group"),
            *words,
            element(
                "p",
                "Words of these texts in their own contexts, by what sets a group apart from the "
                "others. With few texts they are mostly words of the same sentences.",
                class_="remark",
            ),
        ]
        if words
        else []
    )
    listed = table(head, rows, num_text_columns=3 if has_senses else 2, kind="dense")
    return section("Sentences", listed, *extra)


def _by_layer(found: WordInContext) -> Section:
    colours, names = colours_of(found)
    told = _names(found)
    flat = found.shares is not None
    common = reach_of(found.planes)
    return section(
        "Layer by layer",
        element(
            "div",
            *(
                _figure(
                    map_of(
                        points, colours, told, reach=common if flat else reach_of([points]),
                        size=160, numbered=False, label=f"Map of the places, layer {layer}",
                    ),
                    f"layer {layer}" + (" (embeddings)" if layer == 0 else ""),
                    "chosen" if layer == found.layer else "",
                )
                for layer, points in enumerate(found.planes)
            ),
            class_="strip",
        ),
        _legend(names),
        element(
            "p",
            ("All at one scale" if flat else "Each at its own scale")
            + ", each turned towards the chosen layer. Layer 0 knows the word and its position "
            "only." + (" Grey is a point of several colours." if len(names) > 1 else ""),
            class_="remark",
        ),
    )  # fmt: skip


def _figures(found: WordInContext) -> Section:
    layers = found.layers
    enough = layers[0].num_words >= LEAST_WORDS
    others = [one.words_self_similarity if enough else None for one in layers]
    series: list[tuple[str, list[float | None], int, bool]] = [
        (f"“{_word(found)}”, self-similarity", [one.self_similarity for one in layers], 0, False),
        (
            f"{layers[0].num_words} other words, self-similarity",
            others, 2, False,
        ),
        ("words of one sentence with its mean", [one.intra for one in layers], 1, False),
        ("random words of different texts", [one.random for one in layers], 7, True),
        (
            "share of places whose nearest has the same sense",
            [one.nearest_same for one in layers], 3, False,
        ),
    ]  # fmt: skip
    known = [row for row in series if any(value is not None for value in row[1])]
    legend = element(
        "ul",
        *(
            element("li", element("span", class_=f"swatch b{colour}"), name)
            for name, _, colour, _ in known
        ),
        class_="legend",
    )
    columns = [
        ("layer", [str(one.layer) for one in layers]),
        ("self-similarity", [_figure_of(one.self_similarity) for one in layers]),
        ("less random", [_figure_of(one.adjusted["self_similarity"]) for one in layers]),
        ("explained", [_figure_of(one.explained) for one in layers]),
        ("less random", [_figure_of(one.adjusted["explained"]) for one in layers]),
        ("in sentence", [_figure_of(one.intra) for one in layers]),
        ("less random", [_figure_of(one.adjusted["intra"]) for one in layers]),
        ("random", [_figure_of(one.random) for one in layers]),
        (
            f"{layers[0].num_words} other words",
            [_figure_of(value) for value in others],
        ),
        ("nearest same", [_figure_of(one.nearest_same) for one in layers]),
    ]
    shown = [(head, cells) for head, cells in columns if set(cells) != {MISSING}]
    return section(
        "Word or context",
        element(
            "div", legend, curves_of(known, label="Similarities by layer; table below"),
            class_="curves",
        ),
        table(
            [head for head, _ in shown],
            list(zip(*(cells for _, cells in shown), strict=True)),
            num_text_columns=1,
            kind="dense",
        ),
    )  # fmt: skip


def _figure_of(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _reading(found: WordInContext) -> Section:
    forms = "the mean of its pieces" if any(len(own) > 1 for own in found.pieces) else "its vector"
    said = [
        f"The vector of a place is the mean of its tokens in one layer; in the word table it is "
        f"{forms}. Groups come from Ward’s method on vectors of length one; their number is that "
        "of the best silhouette that leaves no place alone, unless you gave it. A word of one "
        "sense falls into groups too: in 12 sentences about one animal the silhouette was 0.20 to "
        "0.37. Groups are a description, not a proof of senses.",
        "Self-similarity, similarity within a sentence and the share explained by one direction "
        "are those of Ethayarajh (2019); only the last is no cosine. Vectors of one layer lie in a "
        "narrow cone, so random words are similar too; “less random” takes that off. Random words "
        f"come from the texts shown and {found.others} more: always two different words of two "
        "different texts.",
    ]
    return section("How to read this", join([element("p", part) for part in said]))
