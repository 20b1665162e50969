"""What README.md and the pages of docs/ promise beside their blocks is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from filbert.cli.main import run
from filbert.recipes import built_in

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


def test_every_file_that_a_document_links_to_exists():
    for page in [ROOT / "README.md", *DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            # Pages that the site makes (docs/reference.py) are named in words, not linked.
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_pages_promise_no_recipe_that_is_missing():
    page = (DOCS / "pretrain.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([a-z][a-z0-9-]+)` \|", page, re.MULTILINE)
    assert sorted(table) == sorted(path.stem for path in built_in())


def test_the_table_of_layers_on_the_page_of_neighbours_is_what_comes_out(tmp_path, capsys):
    page = (DOCS / "neighbours.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d) \| (\d+) of 12 \| ([\d.]+) \| (\d+) of 12", page, re.MULTILINE)
    assert len(table) == 7
    (rows,) = re.findall(r"^```csv\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "python.csv").write_text(rows, encoding="utf-8")
    words = ["--word", "python", str(tmp_path / "python.csv"), "--sense-column", "sense", "--json"]
    assert run(["neighbours", "filbert-mini", *words]) == 0
    for told, row in zip(json.loads(capsys.readouterr().out)["layers"], table, strict=True):
        assert round(12 * told["nearest_same"]) == int(row[1])
        # Rounded to two places.
        assert abs(told["self_similarity"] - float(row[2])) < 0.0051
