"""What a study shows, in sentences made from its numbers; a lead is claimed only where it is told.

"Told" means: the interval of the difference leaves zero out, the p value, corrected for all
comparisons that were made, is below 0.05, and the means over the seeds say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from filbert.report import numbers
from filbert.report.comparison_contestant import Contestant
from filbert.report.comparison_study import PROVEN, Pair, Study

MOST_NAMES = 4
# Signs of tables and plots, so that nothing rests on colour.
TOLD, NOT_TOLD = "●", "○"


def figure(value: object, digits: int) -> str:
    """A metric with so many decimals; – for None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        return numbers.MISSING
    return f"{value:.{digits}f}"


def signed(value: float, digits: int) -> str:
    """+0.012, −0.012 with a true minus; zero has no sign."""
    text = f"{abs(value):.{digits}f}"
    if not float(text):
        return text
    return ("+" if value > 0 else "−") + text


def interval(low: object, high: object, digits: int, *, sign: bool = False) -> str:
    """[0.812, 0.845]; with signs for a difference."""
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return ""
    if sign:
        return f"[{signed(low, digits)}, {signed(high, digits)}]"
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def probability(p: float | None) -> str:
    """0.034, < 0.001; – for None."""
    if p is None:
        return numbers.MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def equation(p: float | None) -> str:
    """= 0.034, or < 0.001: what follows "p"."""
    text = probability(p)
    return text if text.startswith("<") else f"= {text}"


def times(ratio: float) -> str:
    """1.3 times, 12 times, 1,300 times: two digits are enough for a ratio."""
    if ratio < 9.95:
        return f"{ratio:.1f} times"
    return f"{float(f'{ratio:.2g}'):,.0f} times"


def named(name: object) -> str:
    """A contestant's name in a sentence: in quotes when it holds a comma, as "bigru, cleaned"."""
    return f"“{name}”" if "," in str(name) else str(name)


def listed(names: Sequence[object]) -> str:
    """a, b and c; of many, the first few and how many more."""
    shown = [named(name) for name in names]
    if len(shown) > MOST_NAMES:
        shown = [*shown[: MOST_NAMES - 1], f"{len(shown) - MOST_NAMES + 1} more"]
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + f" and {shown[-1]}"


def difference(pair: Pair, digits: int) -> str:
    """0.021 [0.009, 0.034], p_holm = 0.004: a pair's difference as it stands, with its sign."""
    text = f"{signed(pair.difference, digits)} {interval(pair.low, pair.high, digits, sign=True)}"
    if pair.p_holm is not None:
        text += f", p_holm {equation(pair.p_holm)}"
    elif pair.p is not None:
        text += f", p {equation(pair.p)}"
    return text


def lead(pair: Pair, heading: str, digits: int) -> str:
    """The sentence about a pair, from the side that is ahead; no lead where none is told."""
    if pair.difference < 0:
        pair = pair.swapped
    told = difference(pair, digits).removeprefix("+").replace("[+", "[").replace(", +", ", ")
    if pair.is_told:
        return f"{named(pair.one)} leads {named(pair.other)} on {heading} by {told}."
    why = "the interval includes zero"
    if not pair.low <= 0 <= pair.high:
        why = "once all comparisons are counted, chance could have made it"
        if pair.over_seeds and (pair.p_holm is None or pair.p_holm < PROVEN):
            _, low, high = pair.over_seeds
            why = f"but over all seeds it is {interval(low, high, digits, sign=True)}"
    both = f"{named(pair.one)} and {named(pair.other)}"
    return f"{both} cannot be told apart on {heading}: {told}; {why}."


def headline(study: Study) -> list[str]:
    """The study in a few sentences: the leader, who is level with it, the price, the cleaning."""
    if not study.measured:
        return ["No contestant was measured, so there is nothing to compare."]
    choice = (study.results.get("choice") or {}).get("why", "")
    found = [_leader(study), *_against_leader(study), _price(study), _cleaning(study), choice]
    return [sentence for sentence in found if sentence]


def level_with(study: Study, first: Contestant) -> list[Contestant]:
    """The contestants that the tests do not tell from `first` on the decisive metric."""
    key = study.decisive[0]
    pairs = {one.name: study.pair(first.name, one.name, key) for one in study.measured}
    return [one for one in study.measured if (pair := pairs[one.name]) and not pair.is_told]


def _leader(study: Study) -> str:
    first, (key, heading) = study.measured[0], study.decisive
    value = first.figure(key)
    num_rows = ((study.results.get("data") or {}).get("test") or {}).get("rows")
    rows = f" on {num_rows:,} test rows" if num_rows else ""
    seeds = value.get("seeds") or ()
    text = f"{named(first.name)} reaches the highest {heading}{rows}: "
    text += figure(value.get("value"), study.digits)
    if len(seeds) > 1 and value.get("deviation") is not None:
        deviation = figure(value["deviation"], study.digits)
        text += f" ± {deviation}, mean and deviation of {len(seeds)} seeds"
    if len(study.measured) == 1:
        text = text.replace("the highest ", "")
    return text + "."


def _against_leader(study: Study) -> list[str]:
    first, (key, heading) = study.measured[0], study.decisive
    level = level_with(study, first)
    pairs = [study.pair(first.name, one.name, key) for one in study.measured[1:]]
    tested = [pair for pair in pairs if pair is not None]
    if not tested:
        return []
    found = [lead(tested[0], heading, study.digits)]
    others = [one.name for one in level if one.name != tested[0].other]
    if others:
        also = "" if tested[0].is_told else "Also "
        verb = "is" if len(others) == 1 else "are"
        found.append(f"{also}{listed(others)} {verb} not told from {named(first.name)}.")
    behind = [pair for pair in tested if pair.is_told and pair.difference > 0]
    if behind and behind[0] is not tested[0]:
        found.append(lead(behind[0], heading, study.digits))
    if len(behind) > 1:
        others_told = (
            "each of the others" if len(behind) == len(tested) else f"{len(behind)} of the"
        )
        others_told += "" if len(behind) == len(tested) else f" {len(tested)} others"
        found.append(f"It leads {others_told} beyond chance.")
    return found


def _price(study: Study) -> str:
    """The cheapest of those level with the leader; else a much quicker one, and what it lacks."""
    first, (key, heading) = study.measured[0], study.decisive
    seconds = first.cost("training_seconds")
    if not seconds or len(study.measured) < 2:
        return ""
    level = [first, *level_with(study, first)]
    priced = [(cost, one) for one in level if (cost := one.cost("training_seconds"))]
    cost, cheapest = min(priced, key=lambda pair: pair[0])
    if cheapest is not first:
        return (
            f"{named(cheapest.name)}, not told from {named(first.name)}, trains in "
            f"{numbers.seconds(cost)} against {numbers.seconds(seconds)}: "
            f"{times(seconds / cost)} faster."
        )
    quicker = [
        (pair, one, cost)
        for one in study.measured[1:]
        if (cost := one.cost("training_seconds"))
        and cost * 2 <= seconds
        and (pair := study.pair(first.name, one.name, key))
    ]
    if not quicker:
        return ""
    pair, one, cost = quicker[0]
    return (
        f"{named(one.name)} trains {times(seconds / cost)} faster ({numbers.seconds(cost)} against "
        f"{numbers.seconds(seconds)}) and gives up {figure(pair.difference, study.digits)} "
        f"{heading} {interval(pair.low, pair.high, study.digits)}."
    )


def _cleaning(study: Study) -> str:
    key, heading = study.decisive
    found: dict[str, list[str]] = {"raises": [], "lowers": [], "open": []}
    for plain, cleaned in study.cleaned_pairs:
        pair = study.pair(cleaned.name, plain.name, key)
        if pair is not None:
            side = "raises" if pair.difference > 0 else "lowers"
            found[side if pair.is_told else "open"].append(study.cleaned_name(cleaned))
    parts = [
        f"{side} {heading} for {listed(names)}"
        for side, names in (("raises", found["raises"]), ("lowers", found["lowers"]))
        if names
    ]
    if found["open"]:
        names = listed(found["open"])
        if not parts and len(found["open"]) > 1:
            models = {plain.name for plain, _ in study.cleaned_pairs}
            names = f"any of the {len(models)} models tried with and without it"
            if len(models) == 1:
                names = f"any of the {len(found['open'])} ways that {named(*models)} was tried in"
        parts.append(f"makes no difference that can be told for {names}")
    return f"Cleaning the texts {'; it '.join(parts)}." if parts else ""
