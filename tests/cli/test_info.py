"""`filbert info`: one model with its story, two models with what differs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.differences import differences
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.cli.verbs.models import info, print_differences
from filbert.text.tokenizer import Tokenizer


def shown(first: Path, second: Path) -> str:
    with redirect_stdout(StringIO()) as printed:
        print_differences(differences(("one", "two"), (first, second)))
    return printed.getvalue()


def test_it_tells_how_the_model_came_to_be(model, capsys):
    info(str(model), json=True)
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["trained on"] == "train.csv"
    assert run["rows"] == 256
    assert run["seed"] == 42
    info(str(model))
    text = " ".join(capsys.readouterr().out.split())
    assert "trained on train.csv" in text
    assert "roc_auc" in text and "layer_norm_eps" not in text
    assert "(2 layers, width 32, " in text and "precision float32 " in text


def test_a_strangers_file_does_not_steer_the_terminal(model, tmp_path, capsys):
    twin = tmp_path / "twin"
    shutil.copytree(model, twin)
    path = twin / "filbert.json"
    story = json.loads(path.read_text())
    story["command"] = "\x1b[31mred"
    story["metrics"]["test"]["\x1b[2J"] = 0.5
    path.write_text(json.dumps(story))
    vectors = SentenceVectors(prompts={"q\x1b[1m": "\x1b]0;pwned\x07"})
    write_sentence_vectors(twin, vectors, 32)
    info(str(twin))
    out = "".join(capsys.readouterr().out.split())
    for escaped in (r"\x1b[31mred", r"\x1b[2J", r"q\x1b[1m", r"\x1b]0;pwned\x07"):
        assert escaped in out
    info(str(model), str(twin))
    compared = capsys.readouterr().out
    assert r"\x1b[2J" in compared
    assert not {"\x1b", "\x07"} & set(out + compared)


def test_a_model_and_itself_give_the_same_answers(model):
    found = differences(("a", "b"), (model, model))
    assert found["same_weights"] and found["same_answers"]
    assert not found["values"]
    assert "The predictions are the same" in shown(model, model)


def test_what_fine_tuning_changed_is_listed_part_by_part(tiny_model, model, capsys):
    info(str(tiny_model), str(model), json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["values"]["head"] == [None, "sequence"]
    assert found["values"]["labels"] == [[], ["neg", "pos"]]
    assert not any(name.startswith("tokenizer") for name in found["values"])
    assert found["same_weights"] is False
    parts = {part["name"]: part for part in found["tensors"]}
    assert list(parts) == ["embeddings", "layer 0", "layer 1", "pooler", "head"]
    assert parts["head"]["different"] == ["head.out.weight", "head.out.bias"]
    ours = huggingface.read(tiny_model).tensors
    theirs = huggingface.read(model).tensors
    layer = [name for name in ours if name.startswith("encoder.layers.1.")]
    gaps = [(ours[name].double() - theirs[name].double()) for name in layer]
    assert parts["layer 1"]["largest"] == max(float(gap.abs().max()) for gap in gaps)
    info(str(tiny_model), str(model))
    assert "The predictions differ" in capsys.readouterr().out


def test_other_sizes_tokenizers_and_shapes_are_named(tiny_model, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    words = [*(tiny_model / "vocab.txt").read_text().split()[:-2], "zebra"]
    (other / "vocab.txt").write_text("\n".join(words) + "\n")
    (other / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    Tokenizer.load(other).save(other)
    checkpoint = huggingface.read(tiny_model)
    name = "encoder.embeddings.word.weight"
    changed = dataclasses.replace(
        checkpoint,
        config=checkpoint.config.changed(vocab_size=len(words)),
        tensors=checkpoint.tensors | {name: checkpoint.tensors[name][: len(words)].clone()},
    )
    huggingface.write(changed, other)
    found = differences(("a", "b"), (tiny_model, other))
    assert found["values"]["config vocab_size"] == found["values"]["tokenizer entries"] == (34, 33)
    assert found["values"]["tokenizer lowercase"] == (True, False)
    assert found["tensors"][0]["different"] == [name]
    assert found["tensors"][0]["equal"] == 4
    assert not any(part["different"] for part in found["tensors"][1:])


def test_two_runs_differ_in_options_data_and_metrics(model, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(model, twin)
    path = twin / "filbert.json"
    record = json.loads(path.read_text())
    record["options"]["lr"] = 1e-5
    record["data"]["train"]["sha256"] = "0" * 64
    record["metrics"]["test"]["roc_auc"] = 0.5
    record["task"]["thresholds"] = [0.25]
    path.write_text(json.dumps(record))
    found = differences(("a", "b"), (model, twin))
    assert found["values"].keys() == {"task thresholds", "options lr", "data train sha256"}
    assert found["values"]["options lr"] == (3e-3, 1e-5)
    assert found["metrics"]["test roc_auc"][1] == 0.5
    assert found["same_weights"] and not found["same_answers"]
    text = shown(model, twin)
    assert "0.0030" in text and "1e-05" in text
    assert "000000000000" in text


def test_other_labels_do_not_give_the_same_answers(tiny_model, tmp_path):
    for name, labels in (("a", ("neg", "pos")), ("b", ("pos", "neg"))):
        torch.manual_seed(0)
        checkpoint = with_new_head(huggingface.read(tiny_model), "sequence", labels=labels)
        huggingface.write(checkpoint, tmp_path / name)
        Tokenizer.load(tiny_model).save(tmp_path / name)
    found = differences(("a", "b"), (tmp_path / "a", tmp_path / "b"))
    assert found["same_weights"] and not found["same_answers"]
    assert list(found["values"]) == ["labels"]
    assert "The weights are the same; other values" in shown(tmp_path / "a", tmp_path / "b")
