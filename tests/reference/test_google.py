"""Google's checkpoints against others: transformers' models by its own names, and TensorFlow.

The variables come from transformers' state by rules written here, not by filbert's tables. A
difference of 1e-6 is a few units in the last place of what these models give out (about one).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.theirs import judged, packed, padded, shaken, transformers

from filbert.checkpoints import google, huggingface
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.checkpoints.tensor_bundle import TensorBundle, write_bundle
from filbert.text.tokenizer import Tokenizer

TOLERANCE = 1e-6
LENGTHS = (9, 3, 17, 1)
VOCAB = 34
BATCH = padded(LENGTHS, VOCAB, types=2)

_BERT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 41,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "hidden_dropout_prob": 0.15,
    "attn_implementation": "eager",
}
_ALBERT = {**_BERT, "embedding_size": 24, "num_hidden_layers": 4, "num_hidden_groups": 2}
CONFIGS: dict[str, Any] = {
    "bert": transformers.BertConfig(**_BERT),
    "albert": transformers.AlbertConfig(**_ALBERT, layer_norm_eps=1e-12),
    "electra": transformers.ElectraConfig(**_BERT, embedding_size=24),
}
_SUFFIX = {
    None: "Model",
    "masked_lm": "ForMaskedLM",
    "pair": "ForNextSentencePrediction",
    "pretraining": "ForPreTraining",
    "discriminator": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "spans": "ForQuestionAnswering",
}
CASES = [
    *(("bert", kind) for kind in _SUFFIX if kind != "discriminator"),
    *(("albert", kind) for kind in _SUFFIX if kind not in ("discriminator", "pair")),
    *(("electra", kind) for kind in (None, "masked_lm", "discriminator")),
]
every_case = pytest.mark.parametrize(("family", "kind"), CASES)

_RULES: dict[str, list[tuple[str, str]]] = {
    "bert": [
        (r"encoder/layer/(\d+)", r"encoder/layer_\1"),
        (r"^cls/predictions/bias", "cls/predictions/output_bias"),
    ],
    "albert": [
        (r"^albert/", "bert/"),
        (r"albert_layer_groups/(\d+)/albert_layers/0", r"transformer/group_\1/inner_group_0"),
        (r"attention/(query|key|value)", r"attention_1/self/\1"),
        (r"attention/dense", "attention_1/output/dense"),
        (r"attention/LayerNorm", "LayerNorm"),
        (r"full_layer_layer_norm", "LayerNorm_1"),
        (r"ffn_output", "ffn_1/intermediate/output/dense"),
        (r"ffn/(weight|bias)", r"ffn_1/intermediate/dense/\1"),
        (r"^bert/pooler", "bert/pooler/dense"),
        (r"^predictions/bias", "cls/predictions/output_bias"),
        (r"^predictions/(dense|LayerNorm)", r"cls/predictions/transform/\1"),
        (r"^sop_classifier/classifier", "cls/seq_relationship"),
    ],
    "electra": [
        (r"encoder/layer/(\d+)", r"encoder/layer_\1"),
        (r"dense_prediction", "dense_1"),
        (r"^generator_lm_head/bias", "generator_predictions/output_bias"),
    ],
}
_HAND_WRITTEN = {
    "cls/seq_relationship": "cls/seq_relationship/",
    "qa_outputs": "cls/squad/",
    "classifier": "",
}


def variables(model: Any, family: str, kind: str | None) -> dict[str, np.ndarray]:
    """A transformers model's state as the variables of Google's code."""
    found = {}
    for name, tensor in model.state_dict().items():
        if "decoder" in name or name.endswith(("_ids", "generator_lm_head.weight")):
            continue
        value = tensor.numpy()
        name = name if kind is not None else f"{family}.{name}"
        name = name.replace(".", "/")
        for pattern, new in _RULES[family]:
            name = re.sub(pattern, new, name)
        module, _, leaf = name.rpartition("/")
        if module in _HAND_WRITTEN:
            name = _HAND_WRITTEN[module] + f"output_{leaf}".replace("weight", "weights")
        elif "LayerNorm" in module:
            name = f"{module}/{'gamma' if leaf == 'weight' else 'beta'}"
        elif module.endswith("_embeddings"):
            name = module
        elif leaf == "weight":
            name, value = f"{module}/kernel", value.T
        if (
            family == "electra"
            and kind == "masked_lm"
            and not name.startswith("electra/embeddings/")
        ):
            name = re.sub("^electra/", "generator/", name)
        found[name] = np.ascontiguousarray(value)
    return dict(sorted(found.items()))


def make_judge(family: str, kind: str | None, **changes: Any) -> Any:
    config = type(CONFIGS[family])(**{**CONFIGS[family].to_dict(), "num_labels": 2, **changes})
    config._attn_implementation = "eager"
    name = type(config).__name__.removesuffix("Config") + _SUFFIX[kind]
    return shaken(getattr(transformers, name)(config))


def google_folder(model: Any, family: str, kind: str | None, vocab: Path, folder: Path) -> Path:
    """What Google would have published of it; the prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config.to_dict()
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    keys += ("intermediate_size", "max_position_embeddings", "type_vocab_size")
    keys += ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
    keys += ("embedding_size", "num_hidden_groups", "inner_group_num")
    raw = {key: config[key] for key in keys if key in config} | {"hidden_act": "gelu"}
    path = folder / ("albert_config.json" if family == "albert" else "bert_config.json")
    path.write_text(json.dumps(raw))
    (folder / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    write_bundle(folder / "bert_model.ckpt", variables(model, family, kind))
    return folder / "bert_model.ckpt"


def given(model: Any) -> list[torch.Tensor]:
    batch = packed(BATCH)
    with torch.no_grad():
        out = model(batch)
        if model.head is None and model.encoder.pooler is not None:
            return [out, model.encoder.pool(out, batch)]
    return list(out) if isinstance(out, tuple) else [out]


def difference(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    assert [part.shape for part in found] == [part.shape for part in wanted]
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))


@every_case
def test_what_google_published_computes_what_transformers_does(family, kind, vocab, tmp_path):
    model = make_judge(family, kind)
    checkpoint = google.read(google_folder(model, family, kind, vocab, tmp_path))
    assert (checkpoint.family, checkpoint.head) == (family, kind)
    assert difference(given(checkpoint.build()), judged(model, kind, BATCH)) < TOLERANCE


@every_case
def test_what_filbert_writes_are_googles_variables_bit_for_bit(family, kind, vocab, tmp_path):
    model = make_judge(family, kind)
    model.save_pretrained(tmp_path / "hf")
    checkpoint = huggingface.read(tmp_path / "hf")
    google.write(checkpoint, Tokenizer.load(vocab), tmp_path / "google")
    bundle = TensorBundle.open(tmp_path / "google" / google.PREFIX)
    wanted = variables(model, family, kind)
    assert bundle.entries.keys() == wanted.keys()
    assert all(np.array_equal(bundle.read(name), value) for name, value in wanted.items())
    back = google.read(tmp_path / "google" / google.PREFIX)
    assert back.config.changed(head_dropout=0) == checkpoint.config.changed(head_dropout=0)
    assert difference(given(back.build()), judged(model, kind, BATCH)) < TOLERANCE


@pytest.mark.parametrize(
    ("family", "theirs", "name"),
    [("bert", "gelu_new", "gelu_new"), ("albert", "gelu", "gelu_python")],
)
def test_the_form_of_gelu_makes_a_difference_and_can_be_chosen(
    family, theirs, name, vocab, tmp_path
):
    model = make_judge(family, "masked_lm", hidden_act=theirs)
    prefix = google_folder(model, family, "masked_lm", vocab, tmp_path)
    usual = read_checkpoint(prefix).build()
    assert difference(given(usual), judged(model, "masked_lm", BATCH)) > 1e-5
    (path,) = tmp_path.glob("*_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": name}))
    chosen = read_checkpoint(prefix).build()
    assert difference(given(chosen), judged(model, "masked_lm", BATCH)) < TOLERANCE


# A real model.


def test_minilm_goes_to_google_and_back_bit_for_bit(tmp_path):
    folder = find_model("minilm")
    original, tokenizer = read_checkpoint(folder), read_tokenizer(folder)
    google.write(original, tokenizer, tmp_path / "google")
    prefix = find_model(str(tmp_path / "google"))
    huggingface.write(read_checkpoint(prefix), tmp_path / "hf")
    read_tokenizer(prefix).save(tmp_path / "hf")
    back = read_checkpoint(tmp_path / "hf")
    assert back.config == original.config
    assert back.tensors.keys() == original.tensors.keys()
    assert all(torch.equal(back.tensors[name], t) for name, t in original.tensors.items())
    text = "A man is eating food. Überraschung! 今日は 1,234.5 ..."
    ids = [t.encode([text])[0].input_ids.tolist() for t in (tokenizer, read_tokenizer(prefix))]
    assert ids[0] == ids[1]
    judge = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert judge(text)["input_ids"] == ids[0]


# TensorFlow itself.

_SCRIPT = """
import hashlib, json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf
task, given, out = sys.argv[1:]
if task == "read":
    reader = tf.train.load_checkpoint(given)
    values = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    print(json.dumps({n: hashlib.sha256(v.tobytes()).hexdigest() for n, v in values.items()}))
elif task == "graph":
    values = np.load(given)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = {n: tf.compat.v1.get_variable(n, initializer=values[n]) for n in values}
        for name in list(made):
            for slot in ("adam_m", "adam_v"):
                shape = values[name].shape
                made[f"{name}/{slot}"] = tf.compat.v1.get_variable(
                    f"{name}/{slot}", shape=shape, initializer=tf.compat.v1.zeros_initializer())
        step = tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, out, write_meta_graph=False)
else:
    class Box(tf.Module):
        pass
    root = Box()
    values = np.load(given)
    for path in values:
        *modules, leaf = path.split("/")
        at = root
        for name in modules:
            name = name if not name.isdigit() else f"n{name}"
            if not hasattr(at, name):
                setattr(at, name, Box())
            at = getattr(at, name)
        setattr(at, leaf, tf.Variable(values[path], name=path))
    tf.train.Checkpoint(encoder=root, step=tf.Variable(3)).write(out)
"""


@pytest.fixture
def tensorflow(tmp_path: Path) -> Any:
    python = os.environ.get("FILBERT_TENSORFLOW_PYTHON")
    if not python:
        pytest.skip("FILBERT_TENSORFLOW_PYTHON names no interpreter with TensorFlow")
    script = tmp_path / "judge.py"
    script.write_text(_SCRIPT)

    def run(task: str, given: Path, out: Path) -> Any:
        command = [python, str(script), task, str(given), str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    return run


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "pretraining"), ("albert", "pretraining"), ("electra", "discriminator")],
)
def test_tensorflow_reads_what_filbert_writes(family, kind, vocab, tmp_path, tensorflow):
    model = make_judge(family, kind)
    model.save_pretrained(tmp_path / "hf")
    google.write(huggingface.read(tmp_path / "hf"), Tokenizer.load(vocab), tmp_path / "google")
    found = tensorflow("read", tmp_path / "google" / google.PREFIX, tmp_path)
    wanted = variables(model, family, kind)
    assert found == {n: hashlib.sha256(v.tobytes()).hexdigest() for n, v in wanted.items()}


@pytest.mark.parametrize(
    ("family", "kind"),
    [("bert", "pretraining"), ("albert", "pretraining"), ("electra", "discriminator")],
)
def test_filbert_reads_what_tensorflow_writes_of_a_training_run(
    family, kind, vocab, tmp_path, tensorflow
):
    model = make_judge(family, kind)
    prefix = google_folder(model, family, kind, vocab, tmp_path)
    values = variables(model, family, kind)
    np.savez(tmp_path / "values.npz", **values)
    tensorflow("graph", tmp_path / "values.npz", prefix)
    checkpoint = google.read(prefix)
    assert any(f"{len(values)} x optimizer slot adam_m" in note for note in checkpoint.notes)
    assert difference(given(checkpoint.build()), judged(model, kind, BATCH)) < TOLERANCE
