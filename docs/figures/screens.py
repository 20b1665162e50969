"""Make the pages and pictures of docs/gallery.md and the two pictures of the README.

`python docs/figures/screens.py --data DATA [NAME ...]` runs the commands of PAGES in runs/gallery,
ten minutes on a CPU, and keeps a run that is there already. It writes NAME.html and NAME.webp to
docs/gallery, and report.png and page.png next to this file. DATA is the folder of public data sets.

Needs the extras `dev` and `serve`, and a `chromium` on the path.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from filbert import samples
from filbert.report.run import write_run_report

HERE = Path(__file__).parent
GALLERY = HERE.parent / "gallery"
RUNS = HERE.parents[1] / "runs" / "gallery"
PORT = 8473
QUESTION = "Someone has been buying things with my card"
STUDY = """
name = "Intents"

[contestants.tfidf]
kind = "tfidf"

[contestants.static]
kind = "static"
model = "minilm"

[contestants.minilm]
model = "minilm"
"""

# The command of each page, and the page that it writes; {data} and {samples} are folders.
PAGES = {
    "intents": ("quickstart --out intents", "intents/report.html"),
    "entities": (
        "finetune --task tagging --model minilm --train {data}/crossner/politics/train.conll.gz "
        "--dev {data}/crossner/politics/dev.conll.gz --epochs 10 --lr 3e-4 --out entities",
        "entities/report.html",
    ),
    "similarity": (
        "finetune --task regression --model minilm --train {data}/glue/STS-B/train.tsv.gz "
        "--dev {data}/glue/STS-B/dev.tsv.gz --text-column sentence1 --text-pair-column sentence2 "
        "--label-column score --steps 300 --eval-every 60 --hide-texts --out similarity",
        "similarity/report.html",
    ),
    "comparison": (
        "compare study.toml --train {samples}/intents_train.csv.gz --dev "
        "{samples}/intents_dev.csv.gz --test {samples}/intents_test.csv.gz --seeds 2 "
        "--out comparison",
        "comparison/report.html",
    ),
    "pretraining": ("", "pretraining/report.html"),  # see `report_of_mini`
    "explanation": (
        f'explain intents/model "{QUESTION}" --out explanation.html',
        "explanation.html",
    ),
    "attention": (
        'inspect minilm "The animal did not cross the street because it was tired." '
        "--out attention.html",
        "attention.html",
    ),
}


def places(data: Path) -> dict[str, Path]:
    """The folders that commands name."""
    return {"data": data.resolve(), "samples": Path(samples.__file__).parent}


def run_filbert(command: str, data: Path) -> None:
    """Run a command in the folder of the runs; an error ends the script."""
    RUNS.mkdir(parents=True, exist_ok=True)
    (RUNS / "study.toml").write_text(STUDY, encoding="utf-8")
    call = [word.format(**places(data)) for word in shlex.split(command)]
    subprocess.run([sys.executable, "-m", "filbert", *call], cwd=RUNS, check=True)


def report_of_mini() -> None:
    """Write the report of the pre-training of filbert-mini, from the log that comes with it."""
    source, run = Path(samples.__file__).parent / "filbert-mini", RUNS / "pretraining"
    run.mkdir(parents=True, exist_ok=True)
    log = (source / "training_log.jsonl").read_text(encoding="utf-8")
    dev = [line for line in map(json.loads, log.splitlines()) if line.get("split") == "dev"]
    facts = json.loads((source / "filbert.json").read_text(encoding="utf-8"))
    facts |= {"name": "filbert-mini", "metrics": {"dev": dev[-1]["metrics"]}}
    (run / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    (run / "metrics.jsonl").write_text(log, encoding="utf-8")
    write_run_report(run)


def thumbnail(picture: bytes, path: Path) -> None:
    """Write a picture 640 pixels wide as WebP."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.thumbnail((640, 480), Image.Resampling.LANCZOS)
    image.save(path, "WEBP", quality=80, method=6)


def take(browser: Browser, name: str, data: Path) -> None:
    """Store a page without folders of this machine and links to files, and a picture of its top."""
    text = (RUNS / PAGES[name][1]).read_text(encoding="utf-8")
    for folder in places(data).values():
        text = text.replace(f"{folder}/", "")
    text = re.sub("<noscript>.*?</noscript>", "", text)
    (GALLERY / f"{name}.html").write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 750}, color_scheme="light")
    page.goto((GALLERY / f"{name}.html").as_uri())
    page.wait_for_timeout(1500)
    thumbnail(page.screenshot(), GALLERY / f"{name}.webp")
    page.close()


def wait_for(url: str) -> None:
    """Return as soon as the server answers; end with an error after a minute."""
    for _ in range(120):
        try:
            urllib.request.urlopen(url)
            return
        except OSError:
            time.sleep(0.5)
    sys.exit(f"No answer from {url}.")


def take_readme(browser: Browser) -> None:
    """Take the top of a report, and an answer on the page of the server."""
    page = browser.new_page(viewport={"width": 940, "height": 590})
    page.goto((RUNS / "intents" / "report.html").as_uri())
    page.screenshot(path=HERE / "report.png")
    words = ["-m", "filbert", "serve", str(RUNS / "intents" / "model"), "--port", str(PORT)]
    server = subprocess.Popen([sys.executable, *words])
    try:
        wait_for(f"http://127.0.0.1:{PORT}/health")
        page.set_viewport_size({"width": 860, "height": 560})
        page.goto(f"http://127.0.0.1:{PORT}/")
        page.fill("#text", QUESTION)
        page.click("#ask button[type=submit]")
        page.wait_for_selector("#results *")
        page.wait_for_timeout(1000)  # until the answer has faded in
        area = {"x": 0, "y": 0, "width": 860, "height": 880}
        page.screenshot(path=HERE / "page.png", full_page=True, clip=area)
        page.set_viewport_size({"width": 1000, "height": 750})
        thumbnail(page.screenshot(), GALLERY / "server.webp")
    finally:
        server.terminate()
    page.close()


def main() -> None:
    """Run the commands, all when no page was named, and take the pictures."""
    parser = argparse.ArgumentParser(description="Make the pages and pictures of the gallery.")
    parser.add_argument("names", nargs="*", choices=[*PAGES, []], metavar="NAME")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    given = parser.parse_args()
    GALLERY.mkdir(exist_ok=True)
    for name in (name for name in given.names or PAGES if not (RUNS / PAGES[name][1]).exists()):
        if name == "pretraining":
            report_of_mini()
        else:
            run_filbert(PAGES[name][0], given.data)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name in given.names or PAGES:
            take(browser, name, given.data)
        if "intents" in (given.names or PAGES):
            take_readme(browser)
        browser.close()


if __name__ == "__main__":
    main()
