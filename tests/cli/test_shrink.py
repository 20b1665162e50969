import json

import pytest


@pytest.fixture(scope="module")
def source(film_run):
    return film_run.model.checkpoint.source


def test_a_smaller_model_is_written_and_every_step_is_shown(call, source, films, tmp_path):
    out = tmp_path / "small"
    corpus = films / "train.csv"
    done = call(
        "shrink", source, "--out", out, "--keep-layers", "1", "--vocabulary-from", corpus,
    )  # fmt: skip
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["parameters", "saved", "MB"]
    titles = [line.split("  ")[0] for line in lines[1:4]]
    assert titles == ["as it was", "1 of 2 layers", "18 of 34 entries"]
    assert "0 of its texts have other tokens." in done.out
    note = "vocabulary entries kept: 18 of 34."
    assert f"note: {note}" in done.out and f"- {note}" in (out / "README.md").read_text("utf-8")
    assert call("predict", out, stdin='{"text": "the film was good"}\n').status == 0
    info = call("info", out, "--json")
    assert json.loads(info.out)["config"]["num_hidden_layers"] == 1
