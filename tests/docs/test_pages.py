"""What README.md and the pages of docs/ promise beside their blocks is there."""

import json
import re
from itertools import groupby
from pathlib import Path
from runpy import run_path

from filbert.cli.main import run
from filbert.recipes import tomllib

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_make_targets_of_the_readme_exist_and_ci_runs_the_same():
    targets = set(re.findall(r"`?make ([a-z-]+)`?", README))
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    ci = (ROOT / ".ci" / "run").read_text()
    assert "make check" in ci
    assert "make test" in ci
    assert {"quickstart", "test", "check"} <= targets


def test_the_packages_of_the_architecture_page_are_those_of_the_linter():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    listed = [
        {package for _, package in packages}
        for _, packages in groupby(table, lambda row: int(row[0]))
    ]
    assert listed == [set(layer.split(" | ")) for layer in layers["layers"]]
    there = {p.stem for p in (ROOT / "src" / "filbert").glob("*.py")}
    there |= {p.parent.name for p in (ROOT / "src" / "filbert").glob("*/__init__.py")}
    assert set.union(*listed) == there - {"__init__", "__main__"}
    assert layers["exhaustive"]
    source = ROOT / "src" / "filbert"
    for path in re.findall(r"`([a-z]+/\w+)`", page):
        assert (source / path).is_dir() or (source / f"{path}.py").is_file(), path


def test_the_picture_of_the_packages_and_the_line_counts_of_the_reading_guide_are_up_to_date():
    packages = run_path(str(DOCS / "figures" / "packages.py"))
    picture = (DOCS / "figures" / "packages.svg").read_text(encoding="utf-8")
    assert packages["picture"]() == picture
    counts = run_path(str(DOCS / "figures" / "line_counts.py"))
    page = (DOCS / "reading-guide.md").read_text(encoding="utf-8")
    assert counts["updated"](page) == page
    assert all(0 < lines < 2_000 for lines in counts["sums"](page).values())


def test_the_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", text):
        assert "NAME" in path or (ROOT / path).exists(), path
    for path in re.findall(r"`(\w+/\w+\.py)`", text):
        roots = (ROOT, ROOT / "src" / "filbert")
        assert "NAME" in path or any((root / path).is_file() for root in roots), path


def test_the_table_of_neighbours_on_the_page_of_inspect_is_what_the_command_gives(tmp_path, capsys):
    page = (DOCS / "inspect.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d) \| (\d+) of 12 \| ([\d.]+) \| (\d+) of 12", page, re.MULTILINE)
    assert len(table) == 7
    (rows,) = re.findall(r"^```csv\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "python.csv").write_text(rows, encoding="utf-8")
    words = [str(tmp_path / "python.csv"), "--word", "python", "--sense-column", "sense", "--json"]
    assert run(["inspect", "neighbours", "filbert-mini", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    for same, mean, row in zip(found["same_sense"], found["mean_cosine"], table, strict=True):
        # In layer 0 a word has equal vectors at equal places, and rounding picks the nearest.
        assert row[0] == "0" or round(12 * same) == int(row[1])
        # Rounded to two places.
        assert abs(mean - float(row[2])) < 0.0051
