"""filbert export: the folder, the proof at export, and onnxruntime with and without filbert."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

import filbert
from filbert import onnx_export
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.cli.main import run
from filbert.errors import ConfigError, FormatError, RunError
from filbert.onnx_export import agreement_of, export_onnx

ROOT = Path(__file__).parents[1]
TEXTS = ["good", "the film was bad", "a play , a play , a play and he", "", "great film " * 40]


@pytest.fixture(scope="module")
def films_onnx(film_run, tmp_path_factory) -> Path:
    """The fine-tuned tiny model, exported."""
    out = tmp_path_factory.mktemp("onnx") / "films-onnx"
    export_onnx(str(film_run.folder / "model"), out)
    return out


def with_head(tiny_model: Path, folder: Path, kind: str | None, **head) -> Path:
    """The tiny model of conftest under another head."""
    shutil.copytree(tiny_model, folder)
    torch.manual_seed(5)
    checkpoint = with_new_head(huggingface.read(folder), kind, **head)
    checkpoint.tensors = {n: t + 0.1 * torch.randn(t.shape) for n, t in checkpoint.tensors.items()}
    huggingface.write(checkpoint, folder)
    return folder


def test_the_command_writes_a_folder_and_says_how_near_it_is(film_run, tmp_path, capsys):
    out = tmp_path / "out"
    assert (
        run(["export", str(film_run.folder / "model"), "--out", str(out), "--format", "onnx"]) == 0
    )
    printed = capsys.readouterr().out
    assert "float32, opset 23" in printed and "cosine 1.000000" in printed
    names = {path.name for path in out.iterdir()}
    assert {"model.onnx", "tokenizer.json", "config.json", "filbert.json", "vocab.txt"} <= names
    assert not any(name.endswith(".safetensors") for name in names)
    facts = json.loads((out / "filbert.json").read_text())["onnx"]
    assert facts["largest_difference"] < 1e-4
    assert facts["inputs"] == ["input_ids", "attention_mask", "token_type_ids"]


def test_predictions_are_those_of_the_original(film_run, films_onnx):
    exact = film_run.model.predict(TEXTS)
    found = filbert.load(films_onnx, backend="onnxruntime").predict(TEXTS)
    for one, other in zip(exact, found, strict=True):
        assert (one["label"], one["truncated"]) == (other["label"], other["truncated"])
        assert other["scores"] == pytest.approx(one["scores"], abs=1e-5)


def test_vectors_are_those_of_the_original(tiny_model, tmp_path, capsys):
    out, rows = tmp_path / "out", tmp_path / "rows.txt"
    arguments = ["--out", str(out), "--format", "onnx"]
    assert run(["export", str(tiny_model), *arguments, "--pooling", "max"]) == 0
    model = filbert.load(out, backend="onnxruntime")
    original = filbert.load(tiny_model)
    np.testing.assert_allclose(model.embed(TEXTS), original.embed(TEXTS, pooling="max"), atol=1e-5)
    for one, other in zip(
        model.embed(TEXTS, pooling="none"), original.embed(TEXTS, pooling="none"), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)
    rows.write_text("good\nthe film was bad\n")
    vectors = tmp_path / "v.npy"
    assert (
        run(["embed", str(out), str(rows), "--out", str(vectors), "--backend", "onnxruntime"]) == 0
    )
    np.testing.assert_allclose(
        np.load(vectors), original.embed(TEXTS[:2], pooling="max"), atol=1e-5
    )
    with pytest.raises(ConfigError, match="last layer alone"):
        model.embed(TEXTS, layers=[-2])


def assert_near(found, wanted) -> None:
    """The same words and structure, and numbers within 1e-4."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-4)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("kind", "head", "item"),
    [
        ("tokens", {"labels": ("O", "B-A", "I-A")}, "he was not very good"),
        (
            "spans",
            {},
            {"question": "was it good ?", "context": "the film was good , and long " * 20},
        ),
        ("choices", {}, {"context": "the film", "choices": ["was good", "he", "run to see it"]}),
        ("sequence", {"labels": ("value",), "problem_type": "regression"}, "the film was good"),
        (
            "sequence",
            {"labels": ("a", "b", "c"), "problem_type": "multi_label_classification"},
            ("the film", "was not good"),
        ),
    ],
    ids=["tagging", "span_qa", "multiple_choice", "regression", "multi-label"],
)
def test_every_task_answers_as_before(kind, head, item, tiny_model, tmp_path):
    source = with_head(tiny_model, tmp_path / "source", kind, **head)
    export_onnx(str(source), tmp_path / "out")
    items = [item, item]
    exact = filbert.load(source).predict(items)
    found = filbert.load(tmp_path / "out", backend="onnxruntime").predict(items)
    assert_near(found, exact)


def test_a_model_for_sentence_vectors_scores_pairs_as_before(tiny_model, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(tiny_model, source)
    task = {"name": "embedding", "loss_kind": "cosine", "pooling": "max", "score_max": 1.0}
    (source / "filbert.json").write_text(json.dumps({"task": task}))
    export_onnx(str(source), tmp_path / "out")
    pairs = [("the film was good", "he was not"), ("good", "great film " * 20)]
    exact = filbert.load(source).predict(pairs)
    assert_near(filbert.load(tmp_path / "out", backend="onnxruntime").predict(pairs), exact)


def test_the_example_of_the_page_runs_without_filbert(films_onnx, film_run, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/export.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line]) <= 18
    shutil.copytree(films_onnx, tmp_path / "films-onnx")
    code = code.replace("import json", "import json, sys\nsys.modules['filbert'] = None", 1)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    texts = ["the film was good", "he was not very bad , and she was great !"]
    labels = film_run.model.task.labels
    wanted = [labels.index(max(a["scores"], key=a["scores"].get))
              for a in film_run.model.predict(texts)]  # fmt: skip
    assert done.stdout.split() == f"[{wanted[0]} {wanted[1]}]".split()


def test_int8_says_how_far_it_is_and_loads(film_run, films, tmp_path, capsys):
    out = tmp_path / "int8"
    source, dev = str(film_run.folder / "model"), str(films / "dev.csv")
    arguments = ["--out", str(out), "--format", "onnx", "--int8", "--data", dev]
    assert run(["export", source, *arguments, "--max-loss", "0.5"]) == 0
    assert "accuracy  " in capsys.readouterr().out
    facts = json.loads((out / "filbert.json").read_text())["onnx"]
    assert facts["precision"] == "int8"
    assert 0.9 < facts["cosine"] < 1 and facts["largest_difference"] > 1e-4
    assert facts["data"]["float32"]["accuracy"] > 0.8
    assert facts["data"]["exported"].keys() == facts["data"]["float32"].keys()
    assert (facts["from"], facts["data"]["file"]) == ("model", "dev.csv"), "no folders of a machine"
    found = filbert.load(out, backend="onnxruntime").predict(TEXTS)
    exact = film_run.model.predict(TEXTS)
    for one, other in zip(exact, found, strict=True):
        assert other["scores"] == pytest.approx(one["scores"], abs=0.1)


def test_a_metric_that_falls_by_more_than_max_loss_leaves_no_folder(
    film_run, films, tmp_path, capsys, monkeypatch
):
    from filbert.checkpoints import onnx_graph

    build_graph = onnx_graph.build_graph

    def ruined(checkpoint, vectors, **settings):
        weight = checkpoint.tensors["head.out.weight"]
        tensors = {**checkpoint.tensors, "head.out.weight": -weight}
        return build_graph(replace(checkpoint, tensors=tensors), vectors, **settings)

    monkeypatch.setattr(onnx_graph, "build_graph", ruined)
    out = tmp_path / "new" / "out"
    source, dev = str(film_run.folder / "model"), str(films / "dev.csv")
    arguments = ["--out", str(out), "--format", "onnx", "--int8", "--data", dev]
    assert run(["export", source, *arguments, "--max-loss", "0.005"]) == 2
    error = capsys.readouterr().err
    assert re.search(r"falls from \d\.\d{4} to \d\.\d{4}, by \d\.\d{4}", error)
    assert "filbert convert --to int8 chooses layers" in error
    assert not out.parent.exists(), "nothing is left, not even the folder above"


def test_a_graph_that_computes_something_else_leaves_no_folder(film_run, tmp_path, monkeypatch):
    from filbert.checkpoints import onnx_graph

    monkeypatch.setattr(onnx_graph, "_UNSEEN", 0.0)
    with pytest.raises(RunError, match="outputs differ by"):
        export_onnx(str(film_run.folder / "model"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_fit_are_refused(film_run, films_onnx, tiny_model, tmp_path, capsys):
    source, out = str(film_run.folder / "model"), str(tmp_path / "out")
    for arguments, words in (
        (["--format", "onyx"], "--format onyx is not one of onnx"),
        (["--format", "onnx", "--max-loss", "0.1"], "give --data FILE too"),
        (["--format", "onnx", "--pooling", "mean"], "ends in a sequence head"),
    ):
        assert run(["export", source, "--out", out, *arguments]) == 2
        assert words in capsys.readouterr().err
    assert run(["export", source, "--out", str(films_onnx), "--format", "onnx"]) == 2
    assert "exists. Name another folder, or add --overwrite" in capsys.readouterr().err
    assert not Path(out).exists()
    for folder, options, words in (
        (films_onnx, {}, "add `backend` onnxruntime"),
        (source, {"backend": "onnxruntime"}, "Export one: filbert export"),
        (source, {"backend": "onyx"}, "not one of"),
        (films_onnx, {"backend": "onnxruntime", "precision": "bf16"}, "as it was exported"),
        (films_onnx, {"backend": "onnxruntime", "device": "cuda"}, "runs on the cpu"),
    ):
        with pytest.raises((ConfigError, FormatError), match=words):
            filbert.load(folder, **options)
    model = filbert.load(films_onnx, backend="onnxruntime")
    with pytest.raises(ConfigError, match="no hidden states"):
        model.embed(TEXTS)
    with pytest.raises(ConfigError, match="does not fill masks"):
        model.fill("the [MASK]")


def test_a_changed_file_and_a_hostile_configuration_are_refused(films_onnx, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(films_onnx, folder)
    path = folder / "model.onnx"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(FormatError, match="damaged or was changed"):
        filbert.load(folder, backend="onnxruntime")
    path.write_bytes(content)
    record = json.loads((folder / "filbert.json").read_text())
    del record["files"]["config.json"]
    (folder / "filbert.json").write_text(json.dumps(record))
    config = json.loads((folder / "config.json").read_text())
    for change in (
        {"architectures": ["\x1b[2J"]},
        {"hidden_size": -1},
        {"model_type": ["bert"]},
        {"id2label": {"0": [3]}},
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(FormatError, match="config.json") as caught:
            filbert.load(folder, backend="onnxruntime")
        assert str(caught.value).isprintable()


def test_without_the_extra_the_sentence_names_it(film_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r'pip install -e "\.\[onnx\]"'):
        export_onnx(str(film_run.folder / "model"), tmp_path / "out")


def test_every_output_is_held_to_its_own_size():
    """Vectors of unit length that are wrong by 5e-4, beside hidden states of up to 6."""
    hidden, vectors = torch.tensor([[6.0, -3.0]]), torch.tensor([[0.6, 0.8]])
    found = agreement_of((hidden, vectors), (hidden + 3e-4, vectors + 5e-4))
    assert found.difference == pytest.approx(5e-4, rel=1e-2) and found.scale == 6
    assert found.share == pytest.approx(5e-4, rel=1e-2), "not a sixth of it"
    alone = agreement_of((hidden,), (hidden + 3e-4,))
    assert alone.share == pytest.approx(5e-5, rel=1e-2)
    nan = agreement_of((hidden, vectors), (hidden, vectors * torch.nan))
    assert not nan.share < 1


def test_metrics_of_a_model_without_a_task_are_refused_before_a_graph_is_made(
    tiny_model, tmp_path, monkeypatch
):
    from filbert.checkpoints import onnx_graph

    monkeypatch.setattr(onnx_graph, "build_graph", None)
    with pytest.raises(ConfigError, match="has no task"):
        export_onnx(str(tiny_model), tmp_path / "out", data="rows.csv")


def test_cleaning_that_another_program_would_leave_out_is_told_of(film_run, tmp_path, caplog):
    source = shutil.copytree(film_run.folder / "model", tmp_path / "source")
    story = json.loads((source / "filbert.json").read_text())
    story["task"]["clean"] = ["urls"]
    (source / "filbert.json").write_text(json.dumps(story))
    with caplog.at_level(logging.WARNING, logger="filbert.onnx_export"):
        export_onnx(str(source), tmp_path / "out")
    assert "does not contain the model's cleaning (urls)" in caplog.text


def test_without_vectors_in_the_graph_they_are_still_made_as_the_folder_says(tiny_model, tmp_path):
    source = shutil.copytree(tiny_model, tmp_path / "source")
    write_sentence_vectors(source, SentenceVectors("cls", normalize=True), 32)
    export_onnx(str(source), tmp_path / "out", pooling="none")
    found = filbert.load(tmp_path / "out", backend="onnxruntime").embed(TEXTS)
    np.testing.assert_allclose(found, filbert.load(source).embed(TEXTS), atol=1e-5)


LIMITED = """
import numpy as np
from filbert import load, samples
from filbert.cli.main import run
from filbert.data.columns import ColumnNames
from filbert.data.texts import read_texts
from filbert.files import cache_folder
rows = read_texts(str(samples.path("toxic_dev.csv.gz")), ColumnNames())
texts = [" ".join(row.values["text"].split()[:20]) for _, row in zip(range(100), rows)]
open("rows.txt", "w").write("\\n".join(texts))
for name in ("float32", "int8"):
    assert run(["embed", "minilm", "rows.txt", "--out", name + ".npy", "--precision", name]) == 0
exact, found = np.load("float32.npy"), np.load("int8.npy")
exported = load(next(cache_folder().glob("int8/*")), backend="onnxruntime").embed(texts)
print((exact * found).sum(1).min(), np.abs(found - exported).max())
"""


def test_int8_without_vnni_is_by_onnxruntime(tmp_path):
    limits = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
    env = {**os.environ, **limits, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert "int8 by onnxruntime" in done.stderr
    cosine, difference = map(float, done.stdout.split())
    assert cosine >= 0.99 and difference < 1e-6


def test_int8_without_vnni_and_onnx_is_slow_and_names_the_extra(monkeypatch, caplog):
    loading = {"precision": "int8", "backend": "torch", "device": "cpu"}
    monkeypatch.setattr(onnx_export, "has_integer_products", lambda: True)
    assert onnx_export.int8_engine("minilm", loading) == ("minilm", loading)
    assert not caplog.text
    monkeypatch.setattr(onnx_export, "has_integer_products", lambda: False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert onnx_export.int8_engine("minilm", loading) == ("minilm", loading)
    assert "[onnx]" in caplog.text
