"""The model that comes with filbert: whole, small, honest about its figures, and there offline."""

import json
import zlib
from pathlib import Path

import pytest

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.opening import find_model
from filbert.data.build import build_corpus
from filbert.data.instances import fixed_examples
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import Corpus
from filbert.files import sha256_of
from filbert.inference.masked_text import measure
from filbert.model.precision import Precision
from filbert.tasks.pretraining import Pretraining
from filbert.text.tokenizer import Tokenizer

MINI = Path(filbert.__file__).parent / "samples" / "filbert-mini"


def test_it_is_found_by_its_name_and_is_no_larger_than_promised():
    assert find_model("filbert-mini") == MINI
    # As a wheel compresses it. With minilm and all else the wheel stays below 30 MB.
    assert len(zlib.compress((MINI / "packed.safetensors").read_bytes(), 6)) <= 15_700_000


def test_its_card_tells_the_figures_that_were_measured_and_its_files_are_those_measured():
    story = json.loads((MINI / "filbert.json").read_text(encoding="utf-8"))
    card = (MINI / "README.md").read_text(encoding="utf-8")
    for name, entry in story["files"].items():
        assert sha256_of(MINI / name) == entry["sha256"]
    for text, figures in story["metrics"].items():
        row = f"| {text} | {figures['mlm_accuracy']:.1%} | {figures['perplexity']:.2f} |"
        assert row in card
    # Those of the same model in float16, measured the same way, were 24.52 and 106.11.
    most = {"held-out novel (Craik, Mistress and Maid)": 24.54, "WikiText-103 validation": 106.11}
    assert all(story["metrics"][text]["perplexity"] <= value for text, value in most.items())
    for part in ("MiniLM", "ELTeC", "Apache-2.0", "random"):
        assert part in card
    assert {path.name for path in MINI.iterdir()} >= {"recipe.json", "training_log.jsonl"}


@pytest.mark.parametrize("text", ["She opened the [MASK] and went out.", "He shook his [MASK]."])
def test_it_knows_what_stands_in_every_novel(text):
    answer = filbert.load("filbert-mini").fill(text, top=3)
    (candidates,) = answer["candidates"]
    wanted = {"door", "window", "gate"} if "opened" in text else {"head", "hand", "hands"}
    assert wanted & {candidate["token"] for candidate in candidates}


def test_its_accuracy_on_the_held_out_novel_is_that_of_the_card(shared_data, tmp_path):
    story = json.loads((MINI / "filbert.json").read_text(encoding="utf-8"))
    told = next(v for k, v in story["metrics"].items() if "novel" in k)["mlm_accuracy"]
    tokenizer = Tokenizer.load(MINI)
    build_corpus([shared_data / "eltec_small" / "valid.txt.xz"], tokenizer, tmp_path / "c")
    corpus, options = Corpus.open(tmp_path / "c"), ObjectiveOptions(pair="nsp")
    found = measure(
        huggingface.read(MINI).build(),
        Pretraining(pair="nsp"),
        fixed_examples(corpus, tokenizer, options, limit=40),
        max_tokens=4_096,
        precision=Precision("float32", "exact"),
    )
    # About 700 masked tokens of 25,614: three standard errors.
    assert found["mlm_accuracy"] == pytest.approx(told, abs=0.06)
