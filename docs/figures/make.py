"""Draw the figures of docs/annotated-bert.md from filbert-mini.

`python docs/figures/make.py [NAME ...]` draws those that are named, or all.

Writes NAME.png next to this file, and to facts.json the numbers that the page quotes. Everything
but "finetuning" (two minutes) takes seconds; nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import inside
import learning
from drawing import Drawn, one_thread

from filbert.report.plots import save

HERE = Path(__file__).parent
FACTS = HERE / "facts.json"

# In the order of the page.
FIGURES: dict[str, Callable[[], Drawn]] = {
    "masked-lm": learning.masked_lm,
    "next-sentence": learning.next_sentence,
    "embeddings": inside.embeddings,
    "positions": inside.positions,
    "attention": inside.attention,
    "scaling": inside.scaling,
    "heads": inside.heads,
    "residual": inside.residual,
    "pretraining": learning.pretraining,
    "reads": inside.reads,
    "finetuning": learning.finetuning,
}


def make(name: str, folder: Path) -> dict[str, str]:
    """Draw one figure into a folder; the facts of it that the page quotes."""
    one_thread()
    figure, facts = FIGURES[name]()
    save(figure, folder / f"{name}.png")
    return facts


def main() -> None:
    """Draw the figures that were asked for, all when none was."""
    parser = argparse.ArgumentParser(description="Draw the figures of docs/annotated-bert.md.")
    parser.add_argument("names", nargs="*", choices=[*FIGURES, []], metavar="NAME")
    names = parser.parse_args().names or list(FIGURES)
    facts = json.loads(FACTS.read_text(encoding="utf-8")) if FACTS.is_file() else {}
    for name in names:
        facts[name] = make(name, HERE)
        print(f"{name}.png", facts[name])
    ordered = {name: facts[name] for name in FIGURES if name in facts}
    FACTS.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
