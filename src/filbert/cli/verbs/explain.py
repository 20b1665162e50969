"""filbert explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from filbert.cli.arguments import STDIO, AsJson, Device, ModelName, OutPage, typed_text
from filbert.cli.output import check_page, print_json, write_page
from filbert.errors import ConfigError, printable

if TYPE_CHECKING:
    from filbert.inspect.explain import Explanation

BAR_WIDTH = 20


def explain(
    model: ModelName,
    text: str,
    text_b: str | None = None,
    /,
    *,
    method: str = "integrated-gradients",
    target: str | None = None,
    word: str | None = None,
    steps: int | None = None,
    top: int = 10,
    json: AsJson = False,
    out: OutPage = None,
    device: Device = None,
) -> None:
    """Show which words support a model's answer, and which oppose it.

    The model has a task: classification, regression or tagging.

    Parameters
    ----------
    text:
        the text; - is stdin.
    text_b:
        second text of a pair; - is stdin.
    method:
        integrated-gradients, gradient (times input) or leave-one-out; several between commas, or
        all.
    target:
        label or tag to explain; the model's own answer if not given.
    word:
        tagging: the word, or its number from 1; the first word with a tag if not given.
    steps:
        points of the integral.
    top:
        words in the table.
    """
    from filbert.inference.predictor import Predictor
    from filbert.inspect.explain import attribute, explanation_page, find_target

    check_page(out, printed="--json" if json else None)
    points = _steps_by_method(method, steps, top)
    predictor = Predictor.load(model, device=device)
    chosen = find_target(predictor, _item(text, text_b), target=target, word=word)
    explanations = [attribute(predictor, chosen, method=m, steps=n) for m, n in points.items()]
    free = write_page(out, lambda: explanation_page(explanations, model))
    documents = [one.to_dict() for one in explanations]
    if json:
        print_json(documents if len(documents) > 1 else documents[0])
    for one in explanations if free and not json else ():
        _print(one, top)


def _steps_by_method(method: str, steps: int | None, top: int) -> dict[str, int | None]:
    """Check the options, and return for each method asked for the number of steps."""
    from filbert.inspect.explain import METHODS, check_method

    if top < 1:
        raise ConfigError(f"--top is {top}; give at least 1.")
    names = METHODS if method == "all" else tuple(name.strip() for name in method.split(","))
    points = {name: steps if name == METHODS[0] or len(names) == 1 else None for name in names}
    for name, count in points.items():
        check_method(name, steps=count)
    return points


def _item(text: str, text_b: str | None) -> str | tuple[str, str]:
    """Return the text or pair, one of which may come from stdin."""
    if text == STDIO and text_b == STDIO:
        raise ConfigError("Only one of the two texts can come from stdin.")
    return typed_text(text) if text_b is None else (typed_text(text), typed_text(text_b))


def _print(explanation: Explanation, top: int) -> None:
    """Print the coloured texts, a table of the largest shares, and how to read them."""
    from rich.console import Console
    from rich.text import Text

    from filbert.inspect.explain import CAVEATS

    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"Why {explanation.target.description}? ({explanation.method})")
    for which, name in enumerate(explanation.target.names if console.color_system else ()):
        line = Text(f"{name}: ")
        for text, word, share in explanation.segments(which):
            clean = "".join(c if c.isprintable() else " " for c in text)
            (red, green, blue), strength = explanation.colour(share)
            # Blended with white, because terminals have no transparency.
            mixed = [round(255 - (255 - part) * strength * 0.75) for part in (red, green, blue)]
            style = f"black on rgb({mixed[0]},{mixed[1]},{mixed[2]})" if strength > 0.05 else ""
            line.append(clean, style if word is not None else "")
        console.print(line)
    ranked = explanation.ranked()
    for word, share in ranked[:top]:
        (red, green, blue), strength = explanation.colour(share)
        line = Text(f"{share:+.3f}  ")
        line.append("█" * round(strength * BAR_WIDTH), f"rgb({red},{green},{blue})")
        line.append(f" {printable(word.text)}")
        console.print(line, soft_wrap=True)
    if len(ranked) > top:
        console.print(f"and {len(ranked) - top} more words; see --top, --out or --json.")
    console.print(f"{explanation.summary} {CAVEATS[explanation.method]}")
