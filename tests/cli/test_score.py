"""filbert score: one JSON line a text, the figures of all together, refusals as sentences."""

import json

import pytest

from filbert.inference.answer_file import rounded
from filbert.inference.predictor import Predictor
from filbert.inference.score import score_texts

ROWS = 'n,comment\n1,"the film, good"\n2,\n3,zebra\n4,{}\n'.format("very " * 80)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS, "utf-8")
    return path


def test_every_text_gets_the_line_that_python_gives(call, masked_lm, rows):
    done = call("score", masked_lm, rows, "--text-column", "comment", "--tokens")
    assert done.status == 0
    answers = [json.loads(line) for line in done.out.splitlines()]
    model = Predictor.load(masked_lm, device="cpu")
    texts = ["the film, good", "", "zebra", "very " * 80]
    # Six significant digits.
    assert answers == rounded(list(score_texts(model, texts, with_tokens=True)))
    assert all(len(str(abs(one["pll"]))) <= 7 for one in answers)
    for words in (
        "1 of them hold an empty text",
        "1 of them are longer than 64 tokens",
        "over 85 tokens",
        "1 of 85 tokens are not in the vocabulary",
    ):
        assert words in done.err, done.err


def test_the_figures_of_all_texts_are_those_of_their_lines(call, masked_lm, rows, tmp_path):
    out = tmp_path / "scores.jsonl"
    words = ("score", masked_lm, rows, "--text-column", "comment", "--json")
    total = json.loads(call(*words, "--out", out).out)
    answers = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    for name in ("pll", "num_scored", "num_unknown"):
        assert total[name] == pytest.approx(sum(answer[name] for answer in answers))
    assert (total["num_texts"], total["num_truncated"]) == (4, 1)
    assert json.loads(call(*words).out) == total, "without a file for the lines"
