"""The documentation site builds without a warning, links to what is there, needs no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import filbert
from filbert.cli.main import SUBCOMMANDS, VERBS, run
from filbert.recipes import built_in

ROOT = Path(__file__).parents[2]


class Read(HTMLParser):
    """What an HTML page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name, value in attrs if name in ("id", "name") and value}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        elif place := given.get("src") or (tag == "link" and given.get("href")):
            self.loads.append(place)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory):
    mkdocs = pytest.importorskip("mkdocs.config")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        folder = tmp_path_factory.mktemp("site")
        yield mkdocs.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))


@pytest.fixture(scope="module")
def site(config) -> Path:
    """The built site; a page that the navigation leaves out, or a link to nowhere, fails here."""
    from mkdocs.commands.build import build

    assert config.strict
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return Path(config.site_dir)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    return {path: Read(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_link_within_the_site_finds_its_page_and_its_anchor(site, pages):
    missing, outside = [], set()
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                outside.add(link)
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = there in pages if there.suffix == ".html" else there.exists()
            if not found or (parts.fragment and unquote(parts.fragment) not in pages[there].ids):
                missing.append(f"{path.relative_to(site)}: {link}")
    assert not missing
    for link in outside:
        assert re.fullmatch(r"https://[\w-]+(\.[\w-]+)+(/[\w./#?=&%+~-]*)?", link), link


def test_no_page_loads_anything_from_another_place(site, pages):
    for path, page in pages.items():
        outside = [place for place in page.loads if urlsplit(place).scheme not in ("", "data")]
        assert not outside, f"{path.name}: {outside}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_each_option_has_one_anchor_in_the_order_of_the_help(site, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    below = [(verb, name) for verb, names in SUBCOMMANDS.items() for name in names]
    for words in [*((verb,) for verb in VERBS), *below]:
        assert run([*words, "--help-all"]) == 0
        # Boxes and their entries; subcommands have pages of their own.
        text = re.sub(r"╭─ Subcommands ─.*?╯\n", "", capsys.readouterr().out, flags=re.DOTALL)
        found = re.findall(r"^╭─ ([\w ]+) ─|^│ (?:\*  |   )?([\w-]+)", text, re.MULTILINE)
        page = (site / "options" / f"{'-'.join(words)}.html").read_text(encoding="utf-8")
        parts = re.findall(r'<h2 id="[^"]*">([^<]+)<|<dt>.*? id="[^"]+"><code>([^<]+)<', page)
        for _, name in parts:
            assert not name or page.count(f'id="{name.lstrip("-")}"') == 1, f"{words}: {name}"
        assert parts == found, words


def test_recipes_and_public_names_have_their_place(site, public_members):
    recipes = Read((site / "recipes.html").read_text(encoding="utf-8"))
    shipped = [path.stem for verb in ("pretrain", "distill", "compare") for path in built_in(verb)]
    assert set(shipped) <= recipes.ids
    python = Read((site / "python.html").read_text(encoding="utf-8"))
    names = {*filbert.__all__, *(f"{c}{m}" for c, found in public_members.items() for m in found)}
    assert {name.lower() for name in names} <= python.ids
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name, part in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        assert "```python\n" in part or name.endswith("Error"), f"no example of {name}"


@pytest.mark.skipif(shutil.which("node") is None, reason="no node, which runs the search")
def test_the_search_leads_from_what_people_type_to_the_page(site):
    queries = (ROOT / "tests" / "docs" / "queries.txt").read_text(encoding="utf-8")
    wanted = [
        (query, f"{page}.html")
        for page, typed in re.findall(r"(.+): (.+)", queries)
        for query in typed.split(", ")
    ]
    done = subprocess.run(
        ["node", str(ROOT / "tests" / "docs" / "search.js"), str(site)],
        input="\n".join(query for query, _ in wanted),
        capture_output=True,
        text=True,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for (query, page), pages in zip(wanted, results, strict=True):
        assert page in pages[:3], f"{query}: {pages[:5]}"
        assert "log.html" not in pages


@pytest.mark.parametrize(
    "name", ["index", "performance", "source/src/filbert/recipes/bert-base-2018.toml"]
)
def test_a_page_of_the_site_is_accessible_and_fits_every_width(site, browser, findings, name):
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector(".md-typeset__scrollwrap, .highlight")
        assert findings(page) == []
