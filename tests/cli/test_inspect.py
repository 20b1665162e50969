"""One smoke test of each command that looks inside a model, and their bad calls."""

import json

from filbert.inference.predictor import Predictor
from filbert.inspect.explain import explain


def test_inspect_writes_a_page(call, tiny_model, tmp_path):
    page = tmp_path / "page.html"
    done = call(
        "inspect", tiny_model, "he was greatly good", "playing", "--out", page,
        "--layer", 1, "--head", 2, "--and-text", "a film",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert f"Wrote {page} (0." in done.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_one_of_the_texts_may_come_from_stdin(call, tiny_model):
    done = call("inspect", tiny_model, "a film", "-", "--out", "-", stdin="a play\n")
    assert '["a film", "a play"]' in done.out
    done = call("inspect", tiny_model, "-", "--and-text", "-", "--out", "-")
    assert (done.status, done.out) == (2, "") and "Only one of the texts can come" in done.err


def test_a_long_text_is_cut_when_asked_and_reported(call, tiny_model):
    done = call("inspect", tiny_model, "the film " * 300, "--out", "-", "--max-length", 9)
    assert (done.status, done.err) == (0, "model reads the first 9 of 602 tokens.\n")


def test_heads_prints_one_row_for_each_head(call, tiny_model, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the film was good\n\nhe was bad\na play\n")
    done = call("inspect", "heads", tiny_model, texts, "--limit", 2)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].endswith("model: 2 texts, 11 tokens")
    assert lines[1].split()[:4] == ["layer", "head", "entropy", "distance"]
    assert lines[9].split()[:2] == ["1", "3"]
    done = call("inspect", "heads", tiny_model, texts, "--json")
    assert len(json.loads(done.out)["heads"]) == 8
    (tmp_path / "empty.txt").write_text("\n")
    assert call("inspect", "heads", tiny_model, tmp_path / "empty.txt").status == 2


def test_neighbours_prints_sentences_and_layers(call, tiny_model, tmp_path):
    rows = "text,sense\nthe film was good,a\nthe film was good,a\nhe was a film,b\n"
    (tmp_path / "rows.csv").write_text(rows)
    command = ["inspect", "neighbours", tiny_model, tmp_path / "rows.csv", "--word", "film"]
    done = call(*command, "--sense-column", "sense", "--layer", -2)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("Layer 1 of") and lines[0].endswith("3 of 3 occurrences")
    assert lines[2].split()[-3:] == ["2", "1.00", "a"]
    assert lines[-1].split() == ["2", lines[-1].split()[1], "0.67"]
    assert json.loads(call(*command, "--json").out)["found"] == 3
    (tmp_path / "rows.csv").write_text(rows + "a film,\n")
    done = call(*command, "--sense-column", "sense")
    assert done.status == 2 and "rows.csv:5: no sense" in done.err


def test_layers_prints_the_metrics_of_every_layer(call, tiny_model, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "the film was good,pos\nhe was bad,neg\n" * 6)
    files = ["--task", "classification", "--train", rows, "--dev", rows]
    done = call("inspect", "layers", tiny_model, *files)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[1].split()[:2] == ["layer", "accuracy"]
    assert [line.split()[:2] for line in lines[2:5]] == [[str(n), "1.0000"] for n in range(3)]
    assert lines[-1].startswith("Best roc_auc: layer ")
    recipe = tmp_path / "probe.toml"
    recipe.write_text(f'task = "classification"\ntrain = "{rows}"\ndev = "{rows}"\njson = true\n')
    done = call("inspect", "layers", tiny_model, "--recipe", recipe)
    assert len(json.loads(done.out)["layers"]) == 3


def test_explain_prints_the_largest_shares_and_writes_a_page(call, film_run, tmp_path):
    model, text = film_run.folder / "model", "the film was not very good"
    done = call("explain", model, text, "--top", 2, "--method", "all", "--out", tmp_path / "p.html")
    assert done.status == 0, done.err
    one = explain(Predictor.load(model), text)
    lines = done.out.splitlines()
    assert lines[0] == f"Why {one.target.description}? (integrated-gradients)"
    assert lines[1].split()[-1] == one.ranked()[0][0].text
    assert "and 4 more words" in lines[3] and done.out.count("Why ") == 3
    assert (tmp_path / "p.html").read_text().count("<section>") == 3
    done = call("explain", model, text, "--json")
    assert json.loads(done.out) == one.to_dict()
    done = call("explain", model, text, "--method", "shap")
    assert done.status == 2 and "shap" in done.err
