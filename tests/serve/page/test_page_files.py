"""The page's files as they are sent; what they do in a browser is in test_page_browser.py."""

import re
from pathlib import Path

import pytest

import filbert.serve
from filbert.files import THEME

FOLDER = Path(filbert.serve.__file__).parent / "page"


def test_every_file_that_the_page_asks_for_is_sent(client):
    asked = ["/"]
    for name in asked:
        reply = client.get(name)
        assert reply.status_code == 200
        found = re.findall(r'(?:href|src)="(page/[^"]+)"|from "\./([^"]+)"', reply.text)
        asked += {f"/{a or 'page/' + b}" for a, b in found} - set(asked)
    assert len(asked) == len([*FOLDER.iterdir(), *THEME.iterdir()]), (
        "each file is needed by another"
    )


def test_scripts_styles_and_requests_may_only_be_the_servers_own(client):
    for name in ("/", "/page/page.js"):
        policy = client.get(name).headers["content-security-policy"]
        sources = dict(part.split(" ", 1) for part in policy.split("; "))
        assert sources["default-src"] == "'none'"
        assert sources["script-src"] == sources["style-src"] == sources["connect-src"] == "'self'"
        assert "unsafe" not in policy
        assert "*" not in policy


def test_no_file_names_an_outside_address():
    known = "http://www.w3.org/2000/svg"
    for path in [*FOLDER.iterdir(), *THEME.iterdir()]:
        text = path.read_text(encoding="utf-8").replace(known, "")
        assert not re.search(r"https?://|\bsrc=\"//", text), path.name


@pytest.mark.parametrize(
    "name", ["page.py", "..%2Fsettings.py", "%2e%2e/settings.py", "a/b.js", "%00", "PAGE.JS", ""]
)
def test_no_name_reaches_beyond_the_pages_own_files(client, name):
    assert client.get(f"/page/{name}").status_code == 404


def test_there_is_no_page_when_the_operator_wants_none(serve):
    with serve("vectors", page=False) as server:
        assert server.get("/").status_code in (404, 405)
