"""Every verb once, on a tiny model: what it prints, writes and returns."""

import csv
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from tests.conftest import write_csv

from filbert import quickstart, samples
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.inference.predictor import Predictor

TEXTS = ["the film was good", "bad", "", "he and she see the play , the play was very very good"]


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_predict_answers_every_line_in_order_and_counts_empty_texts(call, model):
    done = call("predict", model, stdin="\n".join(TEXTS) + "\n")
    assert done.status == 0
    answers = lines(done.out)
    assert len(answers) == 4
    assert all(a.keys() == {"label", "score", "scores", "truncated", "num_tokens"} for a in answers)
    assert answers[0]["label"] == "pos"
    assert "4 rows" in done.err
    assert "1 of them hold an empty text" in done.err
    alone = lines(call("predict", model, stdin=TEXTS[3]).out)[0]
    # The bound for the same text alone and in company.
    assert alone["scores"]["pos"] == pytest.approx(answers[3]["scores"]["pos"], abs=1e-6)


def test_predict_reads_mapped_columns_of_a_compressed_file_and_writes_a_file(call, model, tmp_path):
    path = tmp_path / "rows.csv.xz"
    path.write_bytes(lzma.compress(b'comment,n\n"the film, good",1\nbad,2\n'))
    done = call("predict", model, path, "--text-column", "comment", "--out", tmp_path / "a.jsonl")
    assert done.status == 0, done.err
    assert done.out == ""
    assert len(lines((tmp_path / "a.jsonl").read_text())) == 2


def test_evaluate_prints_the_metrics_of_the_interface_and_equals_the_run(
    call, model, films, film_run
):
    done = call("evaluate", model, "--data", films / "test.csv", "--json")
    figures = json.loads(done.out)
    assert figures.keys() == {
        "accuracy",
        "f1",
        "precision",
        "recall",
        "mcc",
        "roc_auc",
        "pr_auc",
        "loss",
        "threshold",
    }
    for name, value in film_run.metrics["test"].items():
        assert figures[name] == pytest.approx(value, abs=1e-6)


def test_evaluate_scores_predictions_made_elsewhere(call, model, films, tmp_path):
    call("predict", model, films / "test.csv", "--out", tmp_path / "p.jsonl")
    common = ("--data", films / "test.csv", "--json", "--positive", "pos")
    ours = json.loads(call("evaluate", model, *common[:3]).out)
    theirs = json.loads(
        call(
            "evaluate", "--task", "classification", "--predictions", tmp_path / "p.jsonl", *common
        ).out
    )
    for name in ours.keys() - {"threshold"}:
        # Written scores have six significant digits.
        assert theirs[name] == pytest.approx(ours[name], abs=1e-6), name
    short = tmp_path / "short.jsonl"
    short.write_text("\n".join((tmp_path / "p.jsonl").read_text().splitlines()[:3]))
    done = call("evaluate", "--task", "classification", "--predictions", short, *common)
    assert done.status == 2
    assert "3 predictions for the 64 rows" in done.err


def test_tokenize_shows_tokens_ids_offsets_and_words(call, vocab):
    done = call("tokenize", vocab, stdin="Playing films.\n")
    (row,) = lines(done.out)
    assert row["tokens"] == ["[CLS]", "play", "##ing", "film", "##s", ".", "[SEP]"]
    assert row["offsets"][1:-1] == [[0, 4], [4, 7], [8, 12], [12, 13], [13, 14]]
    assert row["words"] == [None, 0, 0, 1, 1, 2, None]
    assert row["truncated"] is False
    (cut,) = lines(call("tokenize", vocab, "--max-length", 4, stdin="Playing films.\n").out)
    assert cut["truncated"] is True
    assert len(cut["ids"]) == 4


@pytest.mark.parametrize("kind", ["npy", "parquet", "jsonl"])
def test_embed_writes_one_vector_a_row_in_order(call, tiny_model, tmp_path, kind):
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / f"v.{kind}"
    assert call("embed", tiny_model, source, "--out", out).status == 0
    if kind == "npy":
        vectors = np.load(out)
    elif kind == "parquet":
        table = pyarrow.parquet.read_table(out)
        assert table["row"].to_pylist() == [0, 1, 2, 3]
        vectors = np.array(table["embedding"].to_pylist(), dtype=np.float32)
    else:
        vectors = np.array([row["embedding"] for row in lines(out.read_text())], dtype=np.float32)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, 32)
    model = Predictor.load(tiny_model)
    np.testing.assert_allclose(vectors, model.embed(TEXTS), atol=1e-7)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-6)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([source.name, out.name])


def test_embed_takes_a_prompt_by_name_and_cuts_vectors(call, tiny_model, tmp_path):
    folder, out = Path(shutil.copytree(tiny_model, tmp_path / "model")), tmp_path / "v.npy"
    vectors = SentenceVectors(normalize=True, prompts={"query": "he plays "})
    write_sentence_vectors(folder, vectors, 32)
    options = ("--prompt", "query", "--dimensions", 5)
    assert call("embed", folder, "--out", out, *options, stdin="\n".join(TEXTS)).status == 0
    wanted = Predictor.load(tiny_model).embed([f"he plays {text}" for text in TEXTS])[:, :5]
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(out), wanted, atol=1e-6)
    refused = call("embed", folder, "--out", out, "--overwrite", "--prompt", "doc", stdin="a")
    assert (refused.status, "it has query" in refused.err) == (2, True)


def test_embed_pools_normalises_and_joins_layers_as_asked(call, tiny_model, tmp_path):
    def vectors(*options: str) -> np.ndarray:
        out = tmp_path / "v.npy"
        assert call("embed", tiny_model, "--out", out, *options, stdin="\n".join(TEXTS)).status == 0
        return np.load(out)

    plain = vectors()
    unit = vectors("--pooling", "mean", "--normalize")
    np.testing.assert_allclose(
        unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6
    )
    layers = vectors("--layers", "-1,0", "--pooling", "cls")
    assert layers.shape == (4, 64)
    np.testing.assert_array_equal(layers[:, :32], vectors("--pooling", "cls"))
    np.testing.assert_array_equal(layers[0, 32:], layers[1, 32:])  # [CLS] before any attention
    out = tmp_path / "t.jsonl"
    call("embed", tiny_model, "--out", out, "--pooling", "none", stdin="\n".join(TEXTS))
    matrices = [np.array(row["embedding"]) for row in lines(out.read_text())]
    assert [len(m) for m in matrices] == [6, 3, 2, 15]
    np.testing.assert_allclose([m.mean(0) for m in matrices], plain, atol=1e-6)


def test_info_says_what_a_model_is(call, model):
    facts = json.loads(call("info", model, "--json").out)
    assert facts["family"] == "bert"
    assert facts["labels"] == ["neg", "pos"]
    assert facts["task"] == "classification"
    assert facts["config"]["num_hidden_layers"] == 2
    assert facts["tokenizer"]["kind"] == "wordpiece"
    assert facts["thresholds"]
    done = call("info", model)
    assert "classification" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_check_names_what_is_wrong_and_where_and_fails_for_errors_only(call, films, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("text,label\ngood,a\ngood,b\n,a\nbad,a,extra\nfilm,b\n")
    done = call("check", "--task", "classification", bad, bad, "--json")
    assert done.status == 2
    report = json.loads(done.out)
    kinds = {p["kind"] for p in report["problems"]}
    assert {"bad_row", "empty_text", "contradiction", "leakage"} <= kinds
    row = next(p for p in report["problems"] if p["kind"] == "bad_row")
    assert "bad.csv:5" in " ".join([row["message"], *row["where"]])
    assert [s["name"] for s in report["splits"]] == ["train", "bad"]
    done = call("check", "--task", "classification", films / "train.csv")
    assert done.status == 0
    assert "256" in done.out


def test_doctor_says_what_is_fast_here(call):
    facts = json.loads(call("doctor", "--json").out)
    assert set(facts["float32_products"]) == set(facts["bf16_gain"]) == set(facts["int8_gain"])
    assert facts["products_measured"] == "now" or facts["products_measured"] > "2026"
    assert facts["packages"]["torch"].startswith("2.")
    assert call("doctor").status == 0


def test_threads_are_set_for_any_command_and_below_one_refused(call):
    command = [sys.executable, "-m", "filbert", "doctor", "--json", "--threads", "2"]
    assert json.loads(subprocess.check_output(command))["torch_threads"] == 2
    for value in ("0", "1.5", "two"):
        done = call("doctor", "--threads", value)
        assert (done.status, "it must be a whole number" in done.err) == (2, True)
    assert "Did you mean --threads?" in call("doctor", "--thread=2").err
    code = "import torch\nfrom filbert.serve.app import *\nload_app({}, Settings(workers=2), 0)"
    command = [sys.executable, "-c", code + "\nprint(torch.get_num_threads())"]
    for env, threads in (({"FILBERT_THREADS": "2"}, b"2\n"), ({}, b"1\n")):  # all, a share
        # A test that ran in this process before may have set it.
        own = {key: value for key, value in os.environ.items() if key != "FILBERT_THREADS"}
        env = own | {"OMP_NUM_THREADS": "2"} | env
        assert subprocess.check_output(command, env=env) == threads


def test_torch_has_as_many_threads_as_the_quota_of_a_container_has_cores(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    code = f"""
from filbert import files
from filbert.cli import main
files._CPU_QUOTA = files.Path("{tmp_path}/cpu.max")
main.run = lambda words: print(__import__("torch").get_num_threads())
main.main()
"""
    for own, threads in ((None, "1\n"), ("2", "2\n")):
        env = os.environ | {"OMP_NUM_THREADS": own or ""}
        env = {name: value for name, value in env.items() if value}
        assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True) == threads


def test_finetune_takes_its_options_from_a_recipe_and_flags_win(call, tiny_model, films, tmp_path):
    recipe = tmp_path / "run.toml"
    recipe.write_text(
        f'task = "classification"\nmodel = "{tiny_model}"\ntrain = "{films / "train.csv"}"\n'
        f'dev = "{films / "dev.csv"}"\nout = "{tmp_path / "out"}"\n'
        'steps = 2\nlr = 1e-3\nlabels = ["pos", "neg"]\n'
    )
    done = call("finetune", "--recipe", recipe, "--steps", 3, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out).keys() == {"dev"}
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (facts["steps"], facts["options"]["lr"], facts["labels"]) == (3, 1e-3, ["pos", "neg"])
    recipe.write_text(recipe.read_text().replace("lr =", "learning_rat ="))
    done = call("finetune", "--recipe", recipe)
    assert done.status == 2
    assert "learning_rat" in done.err


@pytest.mark.parametrize("flags", [(), ("--toxic",)])
def test_quickstart_goes_from_text_to_report(call, model, tmp_path, monkeypatch, flags):
    # A tiny model and one row in eight of the comments: the whole takes minutes.
    few = {}
    for part in samples.PARTS if flags else ():
        path = samples.path(f"toxic_{part}.csv.gz")
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        few[path.name] = write_csv(tmp_path / f"{part}.csv", rows[::8], tuple(head))
    original = samples.path
    monkeypatch.setattr(samples, "path", lambda name: few.get(name) or original(name))
    monkeypatch.setitem(quickstart.OPTIONS["toxic"], "max_length", 64)
    done = call("quickstart", *flags, "--model", model, "--out", tmp_path / "q", "--steps", 3)
    assert done.status == 0, done.err
    assert "TF-IDF" in done.out and "95 % interval" in done.out
    assert done.out.count("\n  ") == 3
    facts = json.loads((tmp_path / "q" / "run.json").read_text())
    assert facts["baselines"][0]["metrics"]["roc_auc" if flags else "accuracy"] > 0.8
    page = (tmp_path / "q" / "report.html").read_text()
    with gzip.open(original("intents_test.csv.gz"), "rt", encoding="utf-8") as file:
        shown = [row["text"] for row in csv.DictReader(file) if f" {row['text']}<" in page]
    assert bool(shown) is ("Show the texts" in page) is not bool(flags)


def test_quickstart_searches_by_meaning(call):
    done = call("quickstart", "--search", "--question", "Strangers are buying things with my card!")
    assert done.status == 0, done.err
    assert "thief" in done.out
    found = re.search(r"intent for ([\d.]+)%; by TF-IDF for ([\d.]+)% .*p < 0\.001", done.out)
    assert float(found[1]) > 88
    assert float(found[2]) < 80


def test_a_dash_is_standard_input_and_output_everywhere(call, model, vocab, films, tmp_path):
    rows = (films / "test.csv").read_text()
    plain = call("predict", model, stdin="good\nbad\n").out
    assert call("predict", model, "-", "--out", "-", stdin="good\nbad\n").out == plain
    assert call("tokenize", vocab, "-", stdin="good\n").status == 0
    assert call("embed", model, "-", "--out", tmp_path / "v.npy", stdin="good\n").status == 0
    jsonl = "".join(
        json.dumps({"text": t, "label": y}) + "\n" for t, y in csv.reader(rows.splitlines()[1:])
    )
    assert call("check", "--task", "classification", "-", stdin=jsonl).status == 0
    done = call("evaluate", model, "--data", "-", "--json", stdin=jsonl)
    expected = call("evaluate", model, "--data", films / "test.csv", "--json")
    assert json.loads(done.out) == json.loads(expected.out)


def test_progress_is_silent_when_the_output_is_no_terminal(call, model):
    done = call("predict", model, stdin="good\n" * 600)
    assert "\x1b" not in done.err
    assert done.err.strip() == "600 rows"


def test_a_reader_that_goes_away_is_no_error(model):
    code = f"{sys.executable} -m filbert predict {model} --precision float32 | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"yes good | head -n 3000 | {code}"],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout.startswith('{"label"')
    assert "Traceback" not in done.stderr
    code = f"{sys.executable} -m filbert --help | true"
    subprocess.run(["bash", "-o", "pipefail", "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [("--version >&-", 0, ""), ("check - <&-", 2, "input is closed")],
)
def test_a_closed_stream_is_no_traceback(words, status, said):
    code = f"{sys.executable} -m filbert {words.replace('check', 'check --task classification')}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "tiny", "-", "--to", "google"),
        ("finetune", "--task", "classification", "--model", "tiny", "--data", "x", "--out", "-"),
    ],
)
def test_a_folder_is_not_written_to_standard_output(call, words):
    done = call(*words)
    assert (done.status, done.out) == (2, "") and "- is standard output" in done.err
