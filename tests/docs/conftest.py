"""What makes the files that the documents speak of, with little in them."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.conftest import sizes

import filbert
from filbert import samples
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import find_model
from filbert.cli.main import run
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, PretrainingHead
from filbert.text.tokenizer import Tokenizer

WORDS = ["Ada", "met", "Alan", "in", "London", "and", "they", "spoke", "of", "engines"]
TEXTS = [" ".join(WORDS[i % 4 :]) for i in range(16)]
# Entries: saving all 30,522 of MiniLM takes a third of a second a model.
VOCABULARY = 5000
ROOT = Path(__file__).parents[2]
BANKING = "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data"
Maker = Callable[[Path], object]


def _sample(name: str) -> list[list[str]]:
    with gzip.open(samples.path(f"{name}.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _toxic(name: str, count: int) -> list[list[str]]:
    """Rows of the embedded sample, a quarter of them toxic, and its header."""
    head, *rows = _sample(f"toxic_{name}")
    toxic = islice((row for row in rows if row[1] == "toxic"), count // 4)
    others = islice((row for row in rows if row[1] == "ok"), count - count // 4)
    return [head, *toxic, *others]


def _csv(rows: list[list[str]]) -> Maker:
    def make(path: Path) -> None:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "wt", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",").writerows(rows)

    return make


def _text(*lines: str) -> Maker:
    content = ("\n".join(lines) + "\n").encode()
    packed = {".xz": lzma.compress, ".gz": gzip.compress}
    return lambda path: path.write_bytes(packed.get(path.suffix, bytes)(content))


def _link(target: Path) -> Maker:
    return lambda path: path.symlink_to(target)


def _json_lines(rows: list[dict[str, object]]) -> Maker:
    return _text(*map(json.dumps, rows))


def _squad(path: Path) -> None:
    paragraphs = [
        {
            "context": text,
            "qas": [
                {
                    "id": f"{path.stem}-{i}",
                    "question": f"Where did they meet, {i}?",
                    "answers": [{"text": "London", "answer_start": text.index("London")}],
                }
            ],
        }
        for i, text in enumerate(TEXTS)
    ]
    path.write_text(
        json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})
    )


STUDENT = [
    'teacher = "runs/toxic/model"',
    'train = "train.csv"',
    'dev = "dev.csv"',
    'keep_layers = "0,2"',
    'out = "runs/student"',
]
TAGGED = "\n".join(f"{w}\t{'B-PER' if w in ('Ada', 'Alan') else 'O'}" for w in WORDS) + "\n"
CHOICES = [
    {"context": t, "choices": ["engines", f"cats {i}"], "label": 0} for i, t in enumerate(TEXTS)
]
BOOK = [
    line
    for i in range(40)
    for line in (f"She looked at him and smiled, {i} times.", *TEXTS[:4], "")
]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands in for real models, without a head and with that of masked words.

    Drawn at random, with as many layers and heads as MiniLM and the first words of its vocabulary.
    """
    torch.manual_seed(0)
    config = EncoderConfig.of(
        **sizes(vocab_size=VOCABULARY, layers=6, width=24, heads=12, inner=48)
    )
    encoder, head = Encoder(config), PretrainingHead(config)
    for module in (encoder, head):
        initialize(module, 0.1)
    place = tmp_path_factory.mktemp("standins")
    entries = (find_model("filbert-mini") / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (place / "vocab.txt").write_text("\n".join(entries[:VOCABULARY]) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(place)
    for name, model, kind in (
        ("minilm", Model(encoder), None),
        ("filbert-mini", Model(encoder, head), "pretraining"),
    ):
        checkpoint = Checkpoint(config, "bert", model.state_dict(), kind)
        huggingface.write(checkpoint, place / name)
        tokenizer.save(place / name)
    return place


@pytest.fixture(scope="session")
def toxic_run(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, fine-tuned for two steps."""
    folder = tmp_path_factory.mktemp("toxic")
    for name in ("train", "dev"):
        _csv(_toxic(name, 32))(folder / f"{name}.csv")
    run = filbert.finetune(
        task="classification",
        model=str(tiny_bert / "minilm"),
        train=str(folder / "train.csv"),
        dev=str(folder / "dev.csv"),
        out=str(folder / "run"),
        steps=2,
        max_length=32,
        precision="float32",
    )
    return run.folder


@pytest.fixture(scope="session")
def small_samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The embedded rows, few of them, by the names of their files."""
    folder = tmp_path_factory.mktemp("samples")
    for part, count in (("train", 96), ("dev", 64), ("test", 64)):
        _csv(_toxic(part, count))(folder / f"toxic_{part}.csv.gz")
        head, *intents = _sample(f"intents_{part}")
        few = [row for row in intents if row[1][0] in "at"]
        _csv([head, *few])(folder / f"intents_{part}.csv.gz")
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="session")
def standins(tiny_bert: Path, toxic_run: Path) -> dict[str, Maker]:
    """What makes each file or folder of the documents, by its name there."""

    bare, masked = _link(tiny_bert / "minilm"), _link(tiny_bert / "filbert-mini")
    run_folder = _link(toxic_run)

    def conll_folder(path: Path) -> None:
        path.mkdir()
        for part in ("train", "dev"):
            _text(*[TAGGED] * 16)(path / f"{part}.conll.gz")

    def google_folder(path: Path) -> None:
        assert run(["convert", str(tiny_bert / "filbert-mini"), str(path), "--to", "google"]) == 0

    def corpus(path: Path) -> None:
        _text(*BOOK)(path.with_suffix(".txt"))
        words = [
            str(path.with_suffix(".txt")),
            "--tokenizer",
            str(tiny_bert / "minilm"),
            "--out",
            str(path),
        ]
        assert run(["corpus", *words]) == 0

    scored = [["text", "text_pair", "label"]] + [
        [t, f"{t} {i}", i % 6] for i, t in enumerate(TEXTS)
    ]
    pairs = [["text", "text_pair"]] + [[f"{t} {i}", f"{i} {t}"] for i, t in enumerate(TEXTS)]
    polarity = [["label", "text"]] + [
        ["bad" if i % 2 else "good", f"film number {i}"] for i in range(16)
    ]
    six = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
    jigsaw = [["comment_text", *six]]
    jigsaw += [[text, *[int(label == "toxic")] * 6] for text, label in _toxic("train", 96)[1:]]
    messages = [["message", "intent", "author"]]
    messages += [[f"film number {i} was good", "bad" if i % 2 else "good", i] for i in range(60)]
    reviews = [["sentence", "label"]] + [[text, i % 2] for i, (_, text) in enumerate(polarity[1:])]
    with gzip.open(samples.path("intents_test.csv.gz"), "rt", encoding="utf-8") as file:
        questions = [r for r in csv.reader(file) if r[1] in ("credit limit", "bill due")]
    heads = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    paraphrases = [heads] + [[i % 2, i, i, t, f"{t} {i}"] for i, t in enumerate(TEXTS)]
    return {
        "train.csv": _csv(_toxic("train", 64)),
        "dev.csv": _csv(_toxic("dev", 32)),
        "test.csv": _csv(_toxic("test", 32)),
        "train.csv.gz": _csv(_toxic("train", 96)),
        "dev.csv.gz": _csv(_toxic("dev", 64)),
        "test.csv.gz": _csv(_toxic("test", 64)),
        "comments.csv": _csv(_toxic("test", 32)),
        "rows.csv": _csv(_toxic("test", 32)),
        "comments.csv.gz": _csv(_toxic("test", 32)),
        "messages.csv": _csv(messages),
        f"{BANKING}/train.csv": _csv([["text", "category"], *questions]),
        "jigsaw.csv": _csv(jigsaw),
        "crossner/politics": conll_folder,
        "benchmarks": _link(ROOT / "benchmarks"),
        "notebooks": lambda path: shutil.copytree(ROOT / "notebooks", path),
        "more.csv": _csv(messages),
        "labels.csv": _csv(polarity),
        "labels.dev.csv": _csv(polarity),
        "sentence_polarity/train.tsv.gz": _csv(reviews),
        "sentence_polarity/dev.tsv.gz": _csv(reviews),
        "keys.txt": _text("a-key-of-a-test"),
        "student.toml": _text(*STUDENT),
        "MRPC/train.tsv": _csv(paraphrases),
        "MRPC/dev.tsv": _csv(paraphrases),
        "sts.csv": _csv(scored),
        "sts.dev.csv": _csv(scored),
        "pairs.csv": _csv(pairs),
        "pairs.dev.csv": _csv(pairs),
        "ner.conll": _text(*[TAGGED] * 16),
        "ner.dev.conll": _text(*[TAGGED] * 8),
        "train.conll": _text(*[TAGGED] * 16),
        "dev.conll": _text(*[TAGGED] * 8),
        "squad.json": _squad,
        "squad.dev.json": _squad,
        "choices.jsonl": _json_lines(CHOICES),
        "choices.dev.jsonl": _json_lines(CHOICES),
        "train.txt.xz": _text(*BOOK),
        "valid.txt.xz": _text(*BOOK),
        "eltec_small/train.txt.xz": _text(*BOOK),
        "text.txt": _text(*BOOK),
        "novels.txt": _text(*BOOK),
        "texts/*.txt": _text(*BOOK),  # as no shell expands it here
        "words.txt": _text("countenance", "parlour", "bonnet"),
        "novel.txt": _text("They sat on the bank.", "The banks were steep."),
        "sentences.txt": _text("The [MASK] was open."),
        "corpus/novels": corpus,
        "corpus/small": corpus,
        "corpus/wiki": corpus,
        "tokenizers/bert-base-uncased": bare,
        "minilm": bare,
        "filbert-mini": masked,
        "bert-base-uncased": masked,
        "runs/pretrain/model": masked,
        "teacher": run_folder,
        "runs/quickstart": run_folder,
        "runs/toxic": run_folder,
        "runs/films": run_folder,
        "runs/messages": run_folder,
        "runs/polarity": run_folder,
        "runs/a": run_folder,
        "runs/b": run_folder,
        "uncased_L-12_H-768_A-12": google_folder,
    }
