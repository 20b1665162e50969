"""The one-file page of `filbert explain`: coloured texts, shares as bars, and how to read them."""

from __future__ import annotations

from collections.abc import Sequence

from filbert.inspection.attributions import CAVEATS, Explanation
from filbert.inspection.claims import Word
from filbert.inspection.coloured import is_marked, number, sum_sentence, texts_html
from filbert.report.bars import BAR_CSS, Scale, bar_of
from filbert.report.page import Html, Section, element, gallery, join, page, section, table

# Words in the short table; the long one has them all.
_MOST = 12

_TITLES = {
    "integrated-gradients": "Integrated gradients",
    "gradient": "Gradient times input",
    "leave-one-out": "Leave one out",
    "rollout": "Attention rollout",
}

CSS = (
    BAR_CSS
    + """
.coloured { max-width: 46rem; overflow-wrap: anywhere; font-size: 1.0625rem; margin: .75rem 0; }
.coloured small { color: var(--quiet); }
.bar { width: min(16rem, 38vw); }
.dense td { vertical-align: middle; }
.dense .text { overflow-wrap: anywhere; min-width: 6em; }
.dense th.number { white-space: normal; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  margin: 0 .35em 0 .9em; }
.key:first-child { margin-left: 0; }
.key.for { background: var(--one); } .key.against { background: var(--other); }
.key.unsigned { background: var(--unsigned); }
nav { display: flex; flex-wrap: wrap; }
.gallery section { padding-top: 1rem; min-width: 0; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--accent); font-size: .9375rem; }
.sums { font-size: .9375rem; }
"""
)


def explanation_page(explanations: Sequence[Explanation], model: str) -> Html:
    """Explanations of one claim, by one method or several.

    Args:
        explanations: at least one, of the same claim.
        model: what the user called it.
    """
    claim = explanations[0].claim
    sections = [_section(explanation) for explanation in explanations]
    header = element(
        "header",
        element("p", f"filbert explain · {model}", class_="eyebrow"),
        element("h1", f"Why {claim.says}?"),
        *(element("p", note, class_="note") for note in claim.notes),
    )
    links = [element("nav", *(part.link for part in sections))] if len(sections) > 1 else []
    parts = [part.html for part in sections]
    # Methods side by side, where there is room, so that they can be compared.
    body = gallery(parts) if len(parts) > 1 else join(parts)
    title = f"{claim.target or claim.kind} explained"
    return page(title, header, *links, body, css=CSS, dark=True)


def _section(explanation: Explanation) -> Section:
    words = explanation.ranked()
    found = [
        element("p", _keys(explanation), class_="remark"),
        Html(texts_html(explanation)),
        element("p", sum_sentence(explanation), class_="sums"),
        _table(explanation, words[:_MOST]),
    ]
    if len(words) > _MOST:
        more = element("summary", f"All {len(words)} words in the order of the text")
        ordered = list(zip(explanation.claim.words, explanation.shares.tolist(), strict=True))
        found.append(element("details", more, _table(explanation, ordered)))
    found.append(element("p", CAVEATS[explanation.method], class_="remark"))
    return section(_TITLES[explanation.method], *found)


def _keys(explanation: Explanation) -> Html:
    if explanation.value is None:
        parts = [_key("unsigned"), "how much is gathered from a word"]
    else:
        parts = [_key("for"), "speaks for it", _key("against"), "speaks against it"]
    if explanation.claim.marks:
        parts.append(element("span", " · underlined: what is spoken of"))
    return join(parts)


def _key(kind: str) -> Html:
    return element("span", class_=f"key {kind}")


def _table(explanation: Explanation, words: Sequence[tuple[Word, float]]) -> Html:
    # In the middle where there are signs.
    signed = explanation.value is not None and bool((explanation.shares < 0).any())
    scale = Scale(-explanation.largest if signed else 0.0, explanation.largest)
    rows = []
    for word, share in words:
        shown = element("u", word.text) if is_marked(word, explanation) else word.text
        bar = bar_of(share, scale, unsigned=explanation.value is None)
        rows.append((shown, number(share, explanation), bar))
    unit = "part" if explanation.value is None else explanation.claim.unit
    return table(("word", unit, ""), rows, kind="dense")
