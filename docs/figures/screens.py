"""Make the pages and pictures of docs/gallery.md and the two pictures of the README.

`python docs/figures/screens.py --data DATA [NAME ...]` runs the commands of PAGES in runs/gallery,
half an hour on a CPU, and keeps a run that is there already. It writes NAME.html and NAME.webp to
docs/gallery, and report.png and page.png next to this file. DATA is the folder of public data sets.

Needs the extras `dev` and `serve`, and a `chromium` on the path.
"""

from __future__ import annotations

import argparse
import csv
import gzip
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
from typing import TextIO

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from filbert import samples
from filbert.inference.predictor import model_facts
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

# The emotions of GoEmotions in the six groups of Ekman, as its authors group them.
GROUPS = {
    "anger": "anger annoyance disapproval",
    "disgust": "disgust",
    "fear": "fear nervousness",
    "joy": "joy amusement approval excitement gratitude love optimism relief pride admiration "
    "desire caring",
    "sadness": "sadness disappointment embarrassment grief remorse",
    "surprise": "surprise realization confusion curiosity",
}

# The command of each page, and the page that it writes; {data} and {samples} are folders.
PAGES = {
    "intents": ("quickstart --out intents", "intents/report.html"),
    "entities": (
        "finetune --task tagging --model minilm --train {data}/crossner/politics/train.conll.gz "
        "--dev {data}/crossner/politics/dev.conll.gz --epochs 10 --lr 3e-4 --out entities",
        "entities/report.html",
    ),
    "stars": (
        "finetune --task regression --model minilm --train rows/stars_train.csv "
        "--dev rows/stars_dev.csv --epochs 2 --lr 2e-4 --hide-texts --out stars",
        "stars/report.html",
    ),
    "emotions": (
        "finetune --task classification --model minilm --train rows/emotions_train.jsonl "
        "--dev rows/emotions_dev.jsonl --epochs 3 --lr 3e-4 --hide-texts --out emotions",
        "emotions/report.html",
    ),
    "answers": (
        "finetune --task span_qa --model minilm --train rows/answers_train.json "
        "--dev rows/answers_dev.json --epochs 2 --lr 2e-4 --max-length 256 --out answers",
        "answers/report.html",
    ),
    "choices": (
        "finetune --task multiple_choice --model minilm --train {data}/codah/fold_0_train.tsv.gz "
        "--dev {data}/codah/fold_0_dev.tsv.gz --context-column prompt "
        "--choice-columns ending0,ending1,ending2,ending3 --epochs 3 --lr 1e-4 --out choices",
        "choices/report.html",
    ),
    "search": (
        "finetune --task embedding --model minilm --train rows/search_train.csv "
        "--dev rows/search_dev.csv --epochs 1 --out search",
        "search/report.html",
    ),
    "distillation": (
        "distill --teacher intents/model --train {samples}/intents_train.csv.gz "
        "--dev {samples}/intents_dev.csv.gz --test {samples}/intents_test.csv.gz "
        "--keep-layers 0,2,4 --epochs 20 --lr 2e-4 --out distillation",
        "distillation/report.html",
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


def open_text(path: Path) -> TextIO:
    """Open a file of text, compressed or not."""
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open()


def write_rows(data: Path) -> None:
    """Write the rows of three data sets in a shape that `filbert` reads, in RUNS/rows."""
    folder = RUNS / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    # 6,000 and 1,000 comments of GoEmotions; neutral ones have no label.
    names = (data / "go_emotions" / "labels.txt").read_text(encoding="utf-8").split()
    group_of = {name: group for group, members in GROUPS.items() for name in members.split()}
    for part, count in (("train", 6000), ("dev", 1000)):
        with open_text(data / "go_emotions" / f"{part}.tsv.gz") as file:
            rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][:count]
        with (folder / f"emotions_{part}.jsonl").open("w", encoding="utf-8") as file:
            for row in rows:
                found = {group_of.get(names[int(at)]) for at in row["labels"].split()} - {None}
                line = {"text": row["text"], "labels": sorted(map(str, found))}
                file.write(json.dumps(line) + "\n")
    # The sentiment of SST-5 as 1 to 5 stars, of 4,000 sentences for training.
    stars = ["very negative", "negative", "neutral", "positive", "very positive"]
    for part in ("train", "dev"):
        with open_text(data / "sst5" / f"{part}.tsv.gz") as file:
            rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][:4000]
        with (folder / f"stars_{part}.csv").open("w", encoding="utf-8", newline="") as file:
            lines = [(row["text"], 1 + stars.index(row["label"])) for row in rows]
            csv.writer(file).writerows([("text", "label"), *lines])
    # 20 articles of SQuAD and 5 others; for search, every paragraph with its first question.
    with open_text(data / "squad" / "dev-v1.1.json.gz") as file:
        articles = sorted(json.load(file)["data"], key=lambda article: article["title"])
    for part, chosen in (("train", articles[:20]), ("dev", articles[-5:])):
        text = json.dumps({"version": "1.1", "data": chosen})
        (folder / f"answers_{part}.json").write_text(text, encoding="utf-8")
        paragraphs = [one for article in chosen for one in article["paragraphs"]]
        with (folder / f"search_{part}.csv").open("w", encoding="utf-8", newline="") as file:
            pairs = [(one["qas"][0]["question"], one["context"]) for one in paragraphs]
            csv.writer(file).writerows([("text", "text_pair"), *pairs])


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
    sizes = {key: model_facts("filbert-mini")[key] for key in ("family", "parameters")}
    facts |= {"name": "filbert-mini", "model": sizes, "metrics": {"dev": dev[-1]["metrics"]}}
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
    write_rows(given.data)
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
