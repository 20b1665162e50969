"""The page of `filbert bias`: what was found, and what that does not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filbert.inspection.bias.association import Associated
from filbert.inspection.bias.check import LIMITS, BiasReport
from filbert.inspection.bias.identity import Compared
from filbert.inspection.bias.log_probability import Shifted
from filbert.inspection.bias.sentences import VECTORS
from filbert.inspection.bias.verdicts import (
    ends_of,
    is_found,
    leaning,
    shifting,
    too_few,
    verdicts,
    yardstick,
)
from filbert.report.bars import Scale, bar_of
from filbert.report.bias_drawing import CSS, between, chance, range_of, signed
from filbert.report.numbers import percent
from filbert.report.page import Html, Section, element, join, page, section, table

_KINDS = {
    "table": "Rows of the word table, without any context, as in WEAT.",
    "sentence": "Whole sentences that say nothing but the word, as in SEAT.",
    "context": "The word's own tokens in these sentences.",
}


def bias_page(report: BiasReport) -> Html:
    """The whole file; it needs no other."""
    parts = []
    if report.identity_terms is not None:
        parts.append(_terms_section(report.identity_terms, report))
    if report.log_probabilities is not None:
        parts.append(_masks_section(report.log_probabilities, report))
    if report.associations is not None:
        parts.append(_associations_section(report.associations, report))
    parts += [_limits(), _method(report)]
    top = element(
        "header",
        element("p", f"filbert bias · {report.model}", class_="eyebrow"),
        element("h1", "What this model associates with whom"),
        element("ul", *(element("li", said) for said in verdicts(report)), class_="findings"),
        element("p", LIMITS[0], class_="note"),
        element("nav", join(part.link for part in parts)),
    )
    title = f"{report.model} · filbert bias"
    return page(title, top, *(part.html for part in parts), css=CSS, dark=True)


def _terms_section(groups: Sequence[Compared], report: BiasReport) -> Section:
    what = "value" if report.label is None else f"probability of {report.label!r}"
    values = [v for one in groups for t in one.terms for v in (t.difference, t.low, t.high)]
    count = sum(map(len, report.words.templates.values()))
    parts: list[object] = [
        element(
            "p",
            f"The mean {what} over {count} sentences in which only the term changes. The dot is a "
            f"term's distance from the mean of its group, the line its {_level(report)} interval "
            "with other sentences of these tones. All drawings have the same scale.",
            class_="remark",
        )
    ]
    control = yardstick(groups)
    for one in groups:
        parts += _group(one, control, Scale.over(values), report)
    return section("Identity terms", *parts)


def _group(one: Compared, control: Compared | None, scale: Scale, report: BiasReport) -> list[Html]:
    name = f"{one.group.name} (control)" if one.group.is_control else one.group.name
    low, high = ends_of(one)
    said = [f"From {low.score:.3f} (“{low.term}”) to {high.score:.3f} (“{high.term}”)"]
    if control is not None and control.gap > 0 and not one.group.is_control:
        said.append(f"{one.gap / control.gap:.1f} times the gap of {control.group.name}")
    said.append(f"by chance up to {one.by_chance:.3f}")
    known = [f"p {chance(one.p)}"]
    known += [] if one.p_holm is None else [f"p_holm {chance(one.p_holm)}"]
    # A figure does not part from its sign.
    said.append(", ".join(part.replace(" ", "\u00a0") for part in known))
    if one.changed is not None:
        said.append(f"the answer changes with the term in {percent(one.changed)} of the sentences")
    tones = list(one.terms[0].by_tone)
    rows = [
        (
            term.term,
            range_of(term.difference, term.low, term.high, scale),
            f"{term.score:.3f}",
            signed(term.difference, 3),
            between(term.low, term.high, 3),
            *(f"{term.by_tone[tone]:.3f}" for tone in tones),
        )
        for term in sorted(one.terms, key=lambda t: -t.score)
    ]
    head = ("term", "distance from the mean", "mean", "distance", "interval", *tones)
    found = [
        element("h3", name[:1].upper() + name[1:]),
        element("p", "; ".join(said) + ".", class_="remark"),
        table(head, rows, num_text_columns=2),
    ]
    if one.unknown:
        words = ", ".join(one.unknown)
        found.append(
            element("p", f"Unknown to the vocabulary, and so all alike: {words}.", class_="note")
        )
    return found


def _masks_section(answers: Sequence[Shifted], report: BiasReport) -> Section:
    scale = Scale.over(v for one in answers for v in (one.difference, one.low, one.high))
    rows = [
        (
            _question(shifting(one) if one.scores else too_few(one), one.test.source),
            range_of(one.difference, one.low, one.high, scale),
            *_named(
                ("log odds", signed(one.difference)),
                ("interval", between(one.low, one.high)),
                ("effect", signed(one.effect)),
                ("p", chance(one.p_two_sided)),
                ("p_holm", chance(one.p_holm)),
            ),
        )
        for one in answers
    ]
    head = (
        "found", "difference in log odds", "log odds", "interval", "effect", "p", "p_holm",
    )  # fmt: skip
    return section(
        "Masked words",
        element(
            "p",
            "How far a word moves the odds of the two targets under the mask, beyond what the same "
            "sentence expects with the word masked too (Kurita et al. 2019). +0.69 doubles the "
            f"odds of the first target. The line is the {_level(report)} interval with other words "
            "of the two kinds; the effect is in standard deviations of the words' scores.",
            class_="remark",
        ),
        table(head, rows, num_text_columns=2, kind="plain answers"),
        *(_mask_details(one) for one in answers if one.scores is not None),
    )


def _mask_details(one: Shifted) -> Html:
    assert one.scores is not None and one.by_template is not None and one.prior is not None
    pairs = ", ".join(f"{first} over {second}" for first, second in one.test.targets)
    templates = table(
        ("sentence", "log odds"), [(text, signed(value)) for text, value in one.by_template.items()]
    )
    before = element(
        "p",
        f"Before any word is seen the log odds of {pairs} are {signed(one.prior)} on average.",
        class_="remark",
    )
    sides = [
        (word, one.test.a.name if word in one.test.a.words else one.test.b.name, value)
        for word, value in sorted(one.scores.items(), key=lambda item: -item[1])
    ]
    scale = Scale.over(one.scores.values())
    rows = [(word, side, bar_of(value, scale), signed(value)) for word, side, value in sides]
    words = table(("word", "of", "score", ""), rows, num_text_columns=3, kind="plain dense")
    return _more(f"{one.test.name}: sentences and words", before, templates, words, one.unknown)


def _associations_section(answers: Sequence[Associated], report: BiasReport) -> Section:
    scale = Scale.over(v for one in answers for v in (one.effect, one.low, one.high))
    parts: list[object] = [
        element(
            "p",
            "How far the first words lean more to one idea than the second words do, in standard "
            "deviations of all their leanings (from −2 to 2 for equally many words; orange leans "
            f"against the published direction). The line is the {_level(report)} interval with "
            "other words of the same kinds; p is of a permutation test over words, in both "
            "directions.",
            class_="remark",
        )
    ]
    for kind in dict.fromkeys(one.vectors for one in answers):
        own = [one for one in answers if one.vectors == kind]
        rows = [
            (
                _question(_leaning(one), one.test.source),
                range_of(one.effect, one.low, one.high, scale),
                *_named(
                    ("effect size", signed(one.effect)),
                    ("interval", between(one.low, one.high)),
                    ("p", chance(one.p_two_sided)),
                    ("p_holm", "control" if one.test.is_control else chance(one.p_holm)),
                ),
            )
            for one in own
        ]
        head = ("found", "effect size", "", "interval", "p", "p_holm")
        parts += [
            element("h3", VECTORS[kind][:1].upper() + VECTORS[kind][1:]),
            element("p", _KINDS[kind], class_="remark"),
            table(head, rows, num_text_columns=2, kind="plain answers"),
            *(_leaning_details(one) for one in own if one.nearer is not None),
        ]
    return section("Associations of vectors", *parts)


def _leaning(one: Associated) -> str:
    if one.effect is None:
        return f"{one.test.name}. {too_few(one)}"
    missed = one.test.is_control and not is_found(one)
    return f"{leaning(one)}{' (control, not found)' if missed else ''}"


def _leaning_details(one: Associated) -> Html:
    assert one.nearer is not None
    scale = Scale.over(one.nearer.values())
    rows = [
        (
            word,
            one.test.x.name if word in one.test.x.words else one.test.y.name,
            bar_of(value, scale),
            signed(value, 3),
        )
        for word, value in sorted(one.nearer.items(), key=lambda item: -item[1])
    ]
    head = ("word", "of", f"cosine with {one.test.a.name} minus {one.test.b.name}", "")
    words = table(head, rows, num_text_columns=3, kind="plain dense")
    return _more(f"{one.test.name}: words", words, one.unknown)


def _more(title: str, *content: object) -> Html:
    *shown, unknown = content
    assert isinstance(unknown, tuple)
    if unknown:
        shown.append(
            element(
                "p", f"Left out, unknown to the vocabulary: {', '.join(unknown)}.", class_="note"
            )
        )
    return element("details", element("summary", title), *shown)


def _limits() -> Section:
    items = (element("li", limit) for limit in LIMITS)
    return section("What these figures cannot say", element("ul", *items, class_="limits"))


def _method(report: BiasReport) -> Section:
    parts: list[object] = [
        element(
            "p",
            f"Word sets: {report.words.source}. {report.resamples:,} resamples, level "
            f"{report.level:g}, seed {report.seed}. p_holm is p corrected by Holm's procedure for "
            "the number of questions in its section, controls apart. A word counts once, however "
            "many sentences it stands in.",
        )
    ]
    parts += [
        element("p", f"{part}: left out. {reason}", class_="note")
        for part, reason in report.left_out.items()
    ]
    summary = element("summary", "All words and sentences")
    return section("How it was done", *parts, element("details", summary, join(_asked(report))))


def _asked(report: BiasReport) -> Iterator[Html]:
    """What was said to the model, question by question: sets of two may have one name."""
    words = report.words
    if report.associations is not None:
        for test in words.associations:
            yield _lists(test.name, [(s.name, s.words) for s in (test.x, test.y, test.a, test.b)])
        yield _lists("Sentences that say nothing", [("", words.bleached)])
    if report.log_probabilities is not None:
        for asked in words.log_probabilities:
            targets = [f"{first} over {second}" for first, second in asked.targets]
            sets: list[tuple[str, Sequence[str]]] = [(s.name, s.words) for s in (asked.a, asked.b)]
            yield _lists(asked.name, [*sets, ("targets", targets), ("sentences", asked.templates)])
    if report.identity_terms is not None:
        terms = [(one.name, one.terms) for one in words.groups]
        yield _lists("Identity terms", [*terms, *words.templates.items()])


def _lists(title: str, lists: Iterable[tuple[str, Sequence[str]]]) -> Html:
    lines = []
    for name, words in lists:
        head = [element("b", name), ": "] if name else []
        lines.append(element("p", *head, " · ".join(words), class_="words"))
    return join([element("h3", title), *lines])


def _named(*figures: tuple[str, str]) -> list[Html]:
    """Figures with their names, which show on a phone, where the table has no head."""
    return [join([element("small", name, class_="head"), figure]) for name, figure in figures]


def _question(found: str, source: str) -> Html:
    parts = [element("b", found)]
    if source:
        parts.append(element("small", source))
    return element("div", *parts, class_="question")


def _level(report: BiasReport) -> str:
    return f"{100 * report.level:g} %"
