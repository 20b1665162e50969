"""docs/annotated-bert.md: its quotes are the source, its sessions run, its figures are drawn."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
PAGE = (ROOT / "docs" / "annotated-bert.md").read_text(encoding="utf-8")
FACTS = json.loads((FIGURES / "facts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scripts(drawn: None) -> Iterator[dict[str, ModuleType]]:
    """The scripts beside the figures; their names are free again afterwards."""
    names = ("drawing", "inside", "learning", "make", "quotes")
    sys.path.insert(0, str(FIGURES))
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(FIGURES))
    for name in names:
        sys.modules.pop(name, None)


def test_every_quoted_line_stands_in_the_source_where_its_link_says(scripts):
    found = scripts["quotes"].quotes(PAGE)
    wrong = [
        f"{quote.path}, lines {quote.lines}: {quote.code.splitlines()[0]!r}"
        for quote in found
        if quote.lines not in scripts["quotes"].places(quote)
    ]
    assert not wrong, "run python docs/figures/quotes.py, and read what it says"
    assert len(found) == len(re.findall(r"^```(?:python|toml)$", PAGE, re.MULTILINE)) >= 20


def test_what_the_page_shows_behind_the_prompt_is_what_python_answers():
    sessions = "\n".join(re.findall(r"^```pycon\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    lesson = doctest.DocTestParser().get_doctest(sessions, {}, "annotated-bert", None, 0)
    assert len(lesson.examples) >= 30
    said: list[str] = []
    doctest.DocTestRunner().run(lesson, out=said.append)
    assert not said, "".join(said)


def test_the_page_shows_every_figure_that_is_made_and_no_other(scripts):
    shown = re.findall(r"!\[[^\]]+\]\(figures/([\w-]+)\.png\)", PAGE)
    assert shown == list(scripts["make"].FIGURES) == list(FACTS)
    sizes = [(FIGURES / f"{name}.png").stat().st_size for name in shown]
    assert 0 < sum(sizes) < 1_500_000


@pytest.mark.parametrize(
    ("figure", "name", "value"),
    [(figure, name, value) for figure, facts in FACTS.items() for name, value in facts.items()],
)
def test_every_number_of_a_figure_stands_in_the_part_that_shows_it(figure, name, value):
    (part,) = (
        part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if f"/{figure}.png" in part
    )
    assert re.search(rf"(?<![\d.]){re.escape(value)}(?![\d]|\.\d)", part), f"{name}: {value}"


@pytest.mark.parametrize("figure", ["masked-lm", "attention"])
def test_a_figure_that_is_drawn_again_is_the_one_of_the_page(scripts, figure, tmp_path):
    from matplotlib.image import imread

    threads = scripts["drawing"].torch.get_num_threads()
    facts = scripts["make"].make(figure, tmp_path)
    scripts["drawing"].torch.set_num_threads(threads)
    assert facts == FACTS[figure]
    old, new = imread(FIGURES / f"{figure}.png"), imread(tmp_path / f"{figure}.png")
    # Another release of matplotlib may set its letters a little otherwise; another head differs by
    # 0.07.
    assert old.shape == new.shape
    assert float(np.abs(old - new).mean()) < 0.03
