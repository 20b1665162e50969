"""Every command of the README runs, in the order in which it stands there."""

import csv
import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from filbert import samples

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the README speaks of: a few rows of the embedded sample."""
    folder = tmp_path_factory.mktemp("readme")
    for name, count in (("train", 96), ("dev", 64), ("test", 64)):
        with gzip.open(
            samples.path(f"toxic_{name}.csv.gz"), "rt", encoding="utf-8", newline=""
        ) as file:
            rows = list(csv.reader(file))
        positive = [row for row in rows[1:] if row[1] == "toxic"][: count // 4]
        negative = [row for row in rows[1:] if row[1] == "ok"][: count - len(positive)]
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([rows[0], *positive, *negative])
    (folder / "comments.csv").write_bytes((folder / "test.csv").read_bytes())
    return folder


def test_the_shell_commands_of_the_readme_run(workplace):
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.strip()]
    assert len(lines) >= 8
    for line in lines:
        command = re.sub(r"^filbert\b", f"{sys.executable} -m filbert", line)
        done = subprocess.run(
            ["bash", "-c", command], cwd=workplace, capture_output=True, text=True, env=os.environ
        )
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
    assert (workplace / "runs/toxic/report.html").is_file()
    assert len((workplace / "answers.jsonl").read_text().splitlines()) == 64


def test_the_python_of_the_readme_runs(workplace):
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=workplace, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


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
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"
