"""filbert explain: a table, JSON and a page; refusals as one sentence."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.cli.explained import coloured, print_explanation
from filbert.inspection.attributions import METHODS, explain
from filbert.predict import Predictor
from filbert.text.tokenizer import Tokenizer

Call = Callable[..., object]
TEXT = "the film was not very good, and he played badly!"


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a head each, and the bare encoder."""
    place = tmp_path_factory.mktemp("explained")
    kinds = {"classes": ("sequence", ("neg", "pos")), "words": ("tokens", ("O", "B-x", "I-x"))}
    kinds |= {"spans": ("spans", None), "masks": ("masked_lm", None)}  # type: ignore[dict-item]
    for name, (kind, labels) in kinds.items():
        torch.manual_seed(3)
        headed = with_new_head(huggingface.read(tiny_model), kind, labels=labels)
        for key, tensor in headed.tensors.items():
            if key.startswith(("head", "encoder.pooler")):
                headed.tensors[key] = tensor + 0.3 * torch.randn(tensor.shape)
        huggingface.write(headed, place / name)
        Tokenizer.load(tiny_model).save(place / name)
    return {name: place / name for name in kinds} | {"bare": tiny_model}


def test_json_is_what_python_gives(models: dict[str, Path], call: Call) -> None:
    done = call("explain", models["classes"], TEXT, "--json", "--target", "neg")
    content = json.loads(done.out)
    assert content == explain(Predictor.load(models["classes"]), TEXT, target="neg").to_dict()
    assert content["method"] == "integrated-gradients"


def test_words_and_shares_are_shown_on_a_narrow_terminal(
    models: dict[str, Path], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = call("explain", models["classes"], TEXT, "--top", 4)
    first, _ = explain(Predictor.load(models["classes"]), TEXT).ranked()[0]
    assert done.out.splitlines()[3].split()[0] == first.text
    assert "█" not in done.out


def test_the_table_has_the_largest_words_first_and_the_completeness_error(
    models: dict[str, Path], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    done = call("explain", models["classes"], TEXT, "--top", 4)
    one = explain(Predictor.load(models["classes"]), TEXT)
    lines = done.out.splitlines()
    assert lines[0].startswith("Why ")
    words = [line.split()[0] for line in lines[3:7]]
    assert words == [word.text for word, _ in one.ranked()[:4]]
    assert f"and {len(one.claim.words) - 4} more words" in done.out
    assert f"Completeness error {one.error:+.3f}" in done.out


def test_all_methods_come_one_after_the_other_and_the_page_has_them_all(
    models: dict[str, Path], call: Call, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = call(
        "explain", models["words"], "he was good", "--word", 3, "--method", "all", "--out", page
    )
    assert done.status == 0, done.err
    assert [line for line in done.out.splitlines() if line in METHODS] == list(METHODS)
    assert page.read_text(encoding="utf-8").count("<section") == 4
    both = call("explain", models["words"], "he was good", "--word", "good", "--json", "--method",
                "rollout,integrated-gradients", "--steps", 8)  # fmt: skip
    assert [one["method"] for one in json.loads(both.out)] == ["rollout", "integrated-gradients"]


def test_all_are_those_that_the_answer_has_and_a_page_on_stdout_is_alone(
    models: dict[str, Path], call: Call
) -> None:
    pair = ("the film was good", "a great play")
    both = call("explain", models["bare"], *pair, "--method", "all", "--json")
    (one,) = json.loads(both.out)
    assert one["method"] == "leave-one-out"
    assert one["notes"] == [
        f"Not for this model and answer: {', '.join(m for m in METHODS if m != one['method'])}."
    ]
    done = call("explain", models["bare"], *pair, "--out", "-")
    assert done.out.startswith("<!doctype html>") and done.out.endswith("</html>\n")


def test_question_and_context_and_stdin_are_read(models: dict[str, Path], call: Call) -> None:
    done = call("explain", models["spans"], "was it good?", "-", "--json",
                stdin="the film was very good")  # fmt: skip
    content = json.loads(done.out)
    assert {word["in"] for word in content["words"]} == {"question", "context"}
    assert content["target"] in "the film was very good"


def test_without_colours_the_table_stands_alone_and_with_them_words_are_coloured(
    models: dict[str, Path],
) -> None:
    one = explain(Predictor.load(models["masks"]), "the [MASK] was good")
    plain, bright = io.StringIO(), io.StringIO()
    print_explanation(one, Console(file=plain, width=80), top=10)
    screen = Console(file=bright, width=80, force_terminal=True, color_system="truecolor")
    print_explanation(one, screen, top=10)
    assert "the [MASK] was good" not in plain.getvalue()
    assert "\x1b[30;48;2;" in bright.getvalue()
    text = coloured(one, 0)
    assert text.plain == "the [MASK] was good"
    (word, _), *_ = one.ranked()
    styles = [str(span.style) for span in text.spans if span.start == word.start]
    strongest = {"black on rgb(64,149,197)", "black on rgb(224,134,64)"}
    assert strongest & {style.removesuffix(" underline") for style in styles}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("classes", [""], "The text is empty"),
        ("classes", ["good " * 600], "602 tokens with specials, and the model reads 64"),
        ("classes", ["good", "--method", "gradeint"], "Did you mean 'gradient'"),
        ("classes", ["good", "--method", "gradient", "--steps", "3"], "--steps are those of"),
        ("classes", ["good", "--target", "fine"], "no label of this model: neg, pos"),
        ("classes", ["good", "--top", "0"], "--top is 0"),
        ("classes", ["-", "-"], "Only one of the two texts"),
        ("classes", ["good", "--json", "--out", "-"], "both go to stdout"),
        ("words", ["good", "bad"], "A tagger reads one text"),
        ("words", ["good", "--word", "film"], "not a word of the text"),
        ("spans", ["was it good?"], "A question and its context are wanted"),
        ("masks", ["the film"], "has no mask"),
        ("bare", ["good"], "no task head"),
    ],
)
def test_misuse_is_one_sentence(
    models: dict[str, Path], call: Call, name: str, arguments: list[str], sentence: str
) -> None:
    done = call("explain", models[name], *arguments)
    assert done.status == 2
    assert done.err.startswith("filbert: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
