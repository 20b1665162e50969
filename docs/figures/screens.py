"""Take the two pictures of the README: `python docs/figures/screens.py RUN`, RUN of `quickstart`.

Writes report.png, the top of the run's report, and page.png, an answer on the page of the server.
Needs the extras `dev` and `serve`, and a `chromium` on the path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
PORT = 8473
QUESTION = "Someone has been buying things with my card"


def wait_for(url: str) -> None:
    """Return as soon as the server answers; end with an error after a minute."""
    for _ in range(120):
        try:
            urllib.request.urlopen(url)
            return
        except OSError:
            time.sleep(0.5)
    sys.exit(f"No answer from {url}.")


def main() -> None:
    """Take both pictures."""
    run = Path(sys.argv[1]).resolve()
    server = subprocess.Popen(
        [sys.executable, "-m", "filbert", "serve", str(run / "model"), "--port", str(PORT)]
    )
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 860, "height": 560})
            page.goto((run / "report.html").as_uri())
            page.screenshot(path=HERE / "report.png")
            wait_for(f"http://127.0.0.1:{PORT}/health")
            page.goto(f"http://127.0.0.1:{PORT}/")
            page.fill("#text", QUESTION)
            page.click("#ask button[type=submit]")
            page.wait_for_selector("#results *")
            page.wait_for_timeout(1000)  # until the answer has faded in
            area = {"x": 0, "y": 0, "width": 860, "height": 880}
            page.screenshot(path=HERE / "page.png", full_page=True, clip=area)
            browser.close()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
