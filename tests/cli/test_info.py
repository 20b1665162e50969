"""`filbert info`: one model with its story, two models with what differs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.differences import differences, group_of, tensor_differences
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.cli.verbs.info import info, print_differences
from filbert.text.tokenizer import Tokenizer


def shown(first: Path, second: Path, width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        print_differences(differences(("one", "two"), (first, second)), console)
    return captured.get()


def test_it_tells_how_the_model_came_to_be(model, capsys):
    info(str(model), json=True)
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["trained on"] == "train.csv"
    assert run["rows"] == 256
    assert run["seed"] == 42
    info(str(model))
    text = " ".join(capsys.readouterr().out.split())
    assert "trained on train.csv" in text
    assert "test roc_auc" in text


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
    assert found.same_weights and found.same_answers
    assert not (found.config or found.tokenizer or found.task or found.options or found.data)
    assert "so are the predictions" in shown(model, model)


def test_what_fine_tuning_changed_is_told_part_by_part(tiny_model, model, capsys):
    info(str(tiny_model), str(model), json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["about"]["head"] == [None, "sequence"]
    assert found["about"]["labels"] == [[], ["neg", "pos"]]
    assert found["tokenizer"] == {}
    assert found["same_weights"] is False
    groups = {group["name"]: group for group in found["tensors"]}
    assert list(groups) == ["embeddings", "layer 0", "layer 1", "pooler", "head"]
    assert groups["head"]["only"] == [[], ["head.out.weight", "head.out.bias"]]
    ours = huggingface.read(tiny_model).tensors
    theirs = huggingface.read(model).tensors
    layer = [name for name in ours if name.startswith("encoder.layers.1.")]
    gaps = [(ours[name].double() - theirs[name].double()) for name in layer]
    # The same sums in another order, in float64.
    assert groups["layer 1"]["largest"] == max(float(gap.abs().max()) for gap in gaps)
    norm = sum(float(ours[name].double().square().sum()) for name in layer) ** 0.5
    gap = sum(float(one.square().sum()) for one in gaps) ** 0.5
    assert groups["layer 1"]["relative"] == pytest.approx(gap / norm, rel=1e-12)
    info(str(tiny_model), str(model))
    text = capsys.readouterr().out
    assert "only in B: head.out.weight" in text
    assert "0 of 33 tensors are equal" in text


def test_other_sizes_tokenizers_and_shapes_are_told_by_name(tiny_model, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    words = [*(tiny_model / "vocab.txt").read_text().split()[:-2], "zebra"]
    (other / "vocab.txt").write_text("\n".join(words) + "\n")
    Tokenizer.load(other, lowercase=False).save(other)
    checkpoint = huggingface.read(tiny_model)
    name = "encoder.embeddings.word.weight"
    assert name in checkpoint.tensors
    changed = dataclasses.replace(
        checkpoint,
        config=checkpoint.config.changed(vocab_size=len(words)),
        tensors=checkpoint.tensors | {name: checkpoint.tensors[name][: len(words)].clone()},
    )
    huggingface.write(changed, other)
    found = differences(("a", "b"), (tiny_model, other))
    assert found.config == {"vocab_size": (34, 33)}
    assert found.tokenizer["lowercase"] == (True, False)
    assert found.tokenizer["entries of its own"] == (2, 1)
    assert found.tokenizer["such as"] == (["2", "3"], ["zebra"])
    assert found.groups[0].shapes == {name: ((34, 32), (33, 32))}
    assert found.groups[0].equal == 4
    assert [group.is_same for group in found.groups[1:]] == [True] * 3
    assert f"{name}: 34 x 32 in A, 33 x 32 in B" in shown(tiny_model, other)
    assert "sizes, tokenizer differ" in shown(tiny_model, other)


def test_two_runs_are_told_apart_by_options_data_and_figures(model, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(model, twin)
    path = twin / "filbert.json"
    story = json.loads(path.read_text())
    story["options"]["lr"] = 1e-5
    story["data"]["train"]["sha256"] = "0" * 64
    story["metrics"]["test"]["roc_auc"] = 0.5
    story["task"]["thresholds"] = [0.25]
    path.write_text(json.dumps(story))
    found = differences(("a", "b"), (model, twin))
    assert found.options == {"lr": (3e-3, 1e-5)}
    assert list(found.data) == ["train sha256"]
    assert found.metrics["test"]["roc_auc"][1] == 0.5
    assert list(found.task) == ["thresholds"]
    assert found.same_weights and not found.same_answers
    text = shown(model, twin)
    assert "0.0030" in text and "1e-05" in text
    assert "000000000000" in text


def test_one_changed_number_is_found(tiny_model):
    ours = huggingface.read(tiny_model).tensors
    name = "encoder.layers.1.down.weight"
    theirs = ours | {name: ours[name].clone()}
    theirs[name][0, 0] += 0.5
    groups = {group.name: group for group in tensor_differences(ours, theirs)}
    assert groups["layer 1"].different == [name]
    assert groups["layer 1"].largest == pytest.approx(0.5, abs=1e-6)
    assert all(group.is_same for key, group in groups.items() if key != "layer 1")


def test_other_labels_or_another_pooling_do_not_give_the_same_answers(tiny_model, tmp_path):
    for name, labels in (("a", ("neg", "pos")), ("b", ("pos", "neg"))):
        torch.manual_seed(0)
        checkpoint = with_new_head(huggingface.read(tiny_model), "sequence", labels=labels)
        huggingface.write(checkpoint, tmp_path / name)
        Tokenizer.load(tiny_model).save(tmp_path / name)
    found = differences(("a", "b"), (tmp_path / "a", tmp_path / "b"))
    assert found.same_weights
    assert found.unlike == ("labels",)
    assert not found.same_answers
    vectors = SentenceVectors(pooling="cls")
    write_sentence_vectors(tmp_path / "a", vectors, huggingface.read(tiny_model).config.hidden_size)
    shown_text = shown(tmp_path / "a", tmp_path / "b")
    assert "labels, sentence vectors differ" in shown_text.replace("\n", " ")


def test_layers_stand_in_their_order_and_a_group_of_zeros_has_no_relative_difference():
    assert group_of("encoder.layers.10.qkv.weight") == "layer 10"
    assert group_of("head.out.bias") == "head"
    first = {f"encoder.layers.{i}.up.weight": torch.zeros(2) for i in (10, 2)}
    second = {name: torch.ones(2) for name in first}
    groups = tensor_differences(first, second)
    assert [group.name for group in groups] == ["layer 2", "layer 10"]
    assert groups[0].relative is None
