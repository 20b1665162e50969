"""What all tests may use: the shared real data, and a vocabulary small enough to read."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.data.columns import ColumnNames
from filbert.data.records import Row
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.report import plots
from filbert.tasks.base import TaskOptions
from filbert.tasks.classification import Classification
from filbert.tasks.rows import read_task_rows
from filbert.text.learning import LearnOptions, learn
from filbert.text.tokenizer import Tokenizer

# Two threads that wait for each other on a busy machine cost more than they give on tiny tensors.
torch.set_num_threads(1)

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "film", "was", "not",
    "very", "good", "bad", "and", "he", "she", "it", "to", "see", "great", "##ly", "##ing",
    "##ed", "##s", "play", "run", ",", ".", "!", "?", "'", "1", "2", "3",
]  # fmt: skip


_DRAW = plots.write_png


def _blank(_: object, path: Path) -> None:
    path.write_bytes(b"\x89PNG")


@pytest.fixture(scope="session", autouse=True)
def _no_plots() -> Iterator[None]:
    """Plots are empty files: they take three quarters of a small run, and tests/report draws."""
    with mock.patch.object(plots, "write_png", _blank):
        yield


@pytest.fixture(scope="module")
def drawn() -> Iterator[None]:
    """Plots are drawn in this file."""
    with mock.patch.object(plots, "write_png", _DRAW):
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are empty files in a test of tests/report, too."""
    monkeypatch.setattr(plots, "write_png", _blank)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; tests that need it are skipped without it."""
    folder = Path(__file__).parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip("the shared data is not here")
    return folder.resolve()


@pytest.fixture(scope="session")
def public_members() -> dict[str, list[str]]:
    """Public methods and properties of every public class, exceptions aside."""
    kinds = (FunctionType, classmethod, staticmethod, property, cached_property)
    found = {name: getattr(filbert, name) for name in filbert.__all__}
    return {
        name: [m for m, member in vars(value).items() if m[0] != "_" and isinstance(member, kinds)]
        for name, value in found.items()
        if isinstance(value, type) and not issubclass(value, Exception)
    }


@pytest.fixture(scope="session")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocab.txt of 35 uncased entries: [PAD] [UNK] [CLS] [SEP] [MASK] the a ..."""
    folder = tmp_path_factory.mktemp("vocab")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(vocab: Path) -> Tokenizer:
    """The tokenizer of the `vocab` fixture."""
    return Tokenizer.load(vocab)


@pytest.fixture(scope="session")
def tiny_model(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a randomly drawn encoder of 2 layers and width 32 over the `vocab` fixture."""
    return _drawn(vocab, tmp_path_factory.mktemp("tiny") / "model", num_hidden_layers=2)


@pytest.fixture(scope="session")
def deep_model(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with 4 layers."""
    return _drawn(vocab, tmp_path_factory.mktemp("deep") / "model", num_hidden_layers=4)


@pytest.fixture(scope="session")
def with_head() -> Callable[[Path, Path, str], Path]:
    """`with_head(folder, out, kind)`: its encoder under a head whose every number is random."""

    def make(folder: Path, out: Path, kind: str) -> Path:
        torch.manual_seed(1)
        checkpoint = with_new_head(huggingface.read(folder), kind)
        for name, tensor in checkpoint.tensors.items():
            if name.startswith("head."):
                checkpoint.tensors[name] = tensor + 0.5 * torch.randn(tensor.shape)
        huggingface.write(checkpoint, out)
        Tokenizer.load(folder).save(out)
        return out

    return make


@pytest.fixture(scope="session")
def masked_lm(tiny_model: Path, with_head, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder of `tiny_model` with a masked-LM head."""
    return with_head(tiny_model, tmp_path_factory.mktemp("masked") / "model", "masked_lm")


def _drawn(vocab: Path, folder: Path, *, num_hidden_layers: int) -> Path:
    torch.manual_seed(0)
    given = sizes(layers=num_hidden_layers, width=32, heads=4, inner=64, positions=64)
    config = EncoderConfig.of(vocab_size=len(WORDS), **given)
    encoder = Encoder(config)
    initialize(encoder, 0.1)
    huggingface.write(Checkpoint(config, "bert", Model(encoder).state_dict()), folder)
    Tokenizer.load(vocab).save(folder)
    return folder


_LINES = [
    "the film was not very good, and he played badly!",
    "was it good? the film was very good and he was great",
    "he plays a very good play. the plays was not good!",
]


@pytest.fixture(scope="session")
def byte_pieces() -> Tokenizer:
    """300 entries of byte-level BPE, as RoBERTa and ModernBERT have it: "Ġ" is a blank before."""
    return learn(lambda: [_LINES] * 4, LearnOptions(kind="bytebpe", size=300)).tokenizer


@pytest.fixture(scope="session")
def unigram_pieces() -> Tokenizer:
    """60 entries of a unigram model, as ALBERT has it: parted at blanks alone."""
    return learn(lambda: [_LINES] * 4, LearnOptions(kind="unigram", size=60)).tokenizer


def sizes(
    *,
    layers: int,
    width: int,
    heads: int,
    inner: int | None = None,
    positions: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Sizes of an encoder under the names that filbert and transformers have for them."""
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    rest = {"intermediate_size": inner, "max_position_embeddings": positions}
    return sizes | {name: size for name, size in rest.items() if size is not None} | more


def film_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Reviews that a tiny encoder can learn: "pos" when good or great stands in them."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.choice(["pos", "neg", "neg"])
        words = draw.choices(
            ["the", "film", "was", "a", "play", ",", "very", "he"], k=draw.randint(2, 12)
        )
        words.insert(
            draw.randint(0, len(words)),
            draw.choice(["good", "great"] if label == "pos" else ["bad", "not"]),
        )
        rows.append((" ".join(words), label))
    return rows


def write_csv(
    path: Path, rows: list[tuple[str, str]], header: tuple[str, str] = ("text", "label")
) -> Path:
    """A CSV file of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.csv (256 rows), dev.csv and test.csv (64 each)."""
    folder = tmp_path_factory.mktemp("films")
    for seed, (name, count) in enumerate({"train": 256, "dev": 64, "test": 64}.items()):
        write_csv(folder / f"{name}.csv", film_rows(count, seed))
    return folder


@pytest.fixture(scope="session")
def film_splits(films: Path) -> dict[str, list[Row]]:
    """Its labelled rows, by split."""
    task = Classification.from_options(TaskOptions(positive="pos"), ColumnNames())
    return {
        name: list(read_task_rows(task, films / f"{name}.csv", ColumnNames()))
        for name in ("train", "dev", "test")
    }


@pytest.fixture(scope="session")
def film_task(film_splits: dict[str, list[Row]]) -> Classification:
    """Their task, which knows the labels."""
    options = TaskOptions(positive="pos")
    return Classification.from_options(options, ColumnNames()).fit(film_splits["train"])


@pytest.fixture(scope="session")
def film_run(
    tiny_model: Path, films: Path, tmp_path_factory: pytest.TempPathFactory
) -> filbert.Run:
    """A finished fine-tuning run on `films`, good enough to answer sensibly."""
    return filbert.finetune(
        task="classification",
        model=str(tiny_model),
        train=str(films / "train.csv"),
        dev=str(films / "dev.csv"),
        test=str(films / "test.csv"),
        out=str(tmp_path_factory.mktemp("runs") / "films"),
        positive="pos",
        epochs=6,
        batch_size=32,
        lr=3e-3,
        precision="float32",
    )


@pytest.fixture
def unmeasured_model(film_run: filbert.Run, tmp_path: Path) -> Path:
    """A copy of its model of which nobody has seen what bf16 and int8 cost its answers."""
    folder = shutil.copytree(film_run.folder / "model", tmp_path / "unmeasured")
    path = folder / "filbert.json"
    story = json.loads(path.read_text("utf-8"))
    told = {key: value for key, value in story.items() if key not in ("bf16_loss", "int8_loss")}
    path.write_text(json.dumps(told), "utf-8")
    return folder


@pytest.fixture(scope="session")
def one_process():
    """`with one_process():` a study's runs in this process: a tenth of the time of a child each."""
    from contextlib import contextmanager
    from unittest import mock

    from filbert.compare import study
    from filbert.compare.contestants import run_contestant
    from filbert.errors import FilbertError

    def run_here(run, **_):
        run.write()
        try:
            run_contestant(run)
        except FilbertError as error:
            return "failed", str(error)
        return "finished", None

    @contextmanager
    def patched():
        with mock.patch.object(study, "run_child", run_here):
            yield

    return patched


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window.

    Not for longer than a file: its driver leaves an event loop running, in which `asyncio.run` of
    another test would fail.
    """
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium here")
    # The machine may be busy.
    api.expect.set_options(timeout=20_000)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def findings():
    """`findings(page)`: widths that it does not fit, and serious findings of axe-core."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def find(page) -> list[tuple[str, str]]:
        facts = []
        for width in (1440, 768, 360):
            page.set_viewport_size({"width": width, "height": 800})
            needed = page.evaluate("document.documentElement.scrollWidth")
            facts += [("width", f"{needed} of {width}")] * (needed > width)
        found = axe.run(page).response["violations"]
        grave = [one for one in found if one["impact"] in ("serious", "critical")]
        return facts + [(one["id"], one["nodes"][0]["html"]) for one in grave]

    return find


@pytest.fixture
def open_file(browser):
    """`open_file(path)`: that page. An error in a script fails the test, and so does a request for
    anything but the file itself.
    """
    problems: list[Any] = []
    contexts = []

    def make(path: Any, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: problems.append(error))
        page.on("request", lambda asked: asked.url == path.as_uri() or problems.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield make
    for context in contexts:
        context.close()
    assert not [p for p in problems if not str(p).startswith("blob:")]
