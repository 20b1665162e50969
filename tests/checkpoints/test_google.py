"""Google's checkpoints are read, written back byte for byte, and refused if they do not fit.

The checkpoints are tiny, with the variables that Google's own code creates, written out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.checkpoints import google, huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.checkpoints.tensor_bundle import write_bundle
from filbert.errors import ConfigError, FilbertError, FormatError
from filbert.inference.predictor import Predictor
from filbert.text.tokenizer import Tokenizer

VOCAB, POSITIONS, TYPES = 34, 24, 2
WIDTH, NARROW, INNER, LAYERS, HEADS = 32, 16, 48, 3, 4

BERT_CONFIG: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": WIDTH,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": TYPES,
    "vocab_size": VOCAB,
}
ALBERT_CONFIG = {
    **BERT_CONFIG,
    "down_scale_factor": 1,
    "embedding_size": NARROW,
    "gap_size": 0,
    "inner_group_num": 1,
    "net_structure_type": 0,
    "num_hidden_groups": 1,
    "num_memory_blocks": 0,
}

Shapes = dict[str, tuple[int, ...]]


def _dense(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}/beta": (width,), f"{name}/gamma": (width,)}


def _tables(scope: str, width: int) -> Shapes:
    return {
        f"{scope}/word_embeddings": (VOCAB, width),
        f"{scope}/token_type_embeddings": (TYPES, width),
        f"{scope}/position_embeddings": (POSITIONS, width),
        **_norm(f"{scope}/LayerNorm", width),
    }


def _layers(scope: str, width: int = WIDTH, inner: int = INNER, count: int = LAYERS) -> Shapes:
    shapes: Shapes = {}
    for i in range(count):
        layer = f"{scope}/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention/self/{part}", width, width)
        shapes |= _dense(f"{layer}/attention/output/dense", width, width)
        shapes |= _norm(f"{layer}/attention/output/LayerNorm", width)
        shapes |= _dense(f"{layer}/intermediate/dense", width, inner)
        shapes |= _dense(f"{layer}/output/dense", inner, width)
        shapes |= _norm(f"{layer}/output/LayerNorm", width)
    return shapes


def _predictions(table_width: int) -> Shapes:
    return {
        **_dense("cls/predictions/transform/dense", WIDTH, table_width),
        **_norm("cls/predictions/transform/LayerNorm", table_width),
        "cls/predictions/output_bias": (VOCAB,),
    }


POOLER = _dense("bert/pooler/dense", WIDTH, WIDTH)
PAIR: Shapes = {
    "cls/seq_relationship/output_weights": (2, WIDTH),
    "cls/seq_relationship/output_bias": (2,),
}
CLASSIFIER: Shapes = {"output_weights": (3, WIDTH), "output_bias": (3,)}
SQUAD: Shapes = {"cls/squad/output_weights": (2, WIDTH), "cls/squad/output_bias": (2,)}

BERT_ENCODER: Shapes = {**_tables("bert/embeddings", WIDTH), **_layers("bert"), **POOLER}
BERT: Shapes = {**BERT_ENCODER, **_predictions(WIDTH), **PAIR}


def albert_encoder(groups: int = 1) -> Shapes:
    """As google-research/albert, modeling.py, names them."""
    shapes = _tables("bert/embeddings", NARROW)
    shapes |= _dense("bert/encoder/embedding_hidden_mapping_in", NARROW, WIDTH)
    for group in range(groups):
        layer = f"bert/encoder/transformer/group_{group}/inner_group_0"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{layer}/attention_1/self/{part}", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}/attention_1/output/dense", WIDTH, WIDTH)
        shapes |= _dense(f"{layer}/ffn_1/intermediate/dense", WIDTH, INNER)
        shapes |= _dense(f"{layer}/ffn_1/intermediate/output/dense", INNER, WIDTH)
        shapes |= _norm(f"{layer}/LayerNorm", WIDTH) | _norm(f"{layer}/LayerNorm_1", WIDTH)
    return shapes | POOLER


ALBERT: Shapes = {**albert_encoder(), **_predictions(NARROW), **PAIR}

# Heads of width 64, as sizes without a configuration need: one for the generator, two else.
ELECTRA: Shapes = {
    **_tables("electra/embeddings", NARROW),
    **_dense("electra/embeddings_project", NARROW, 128),
    **_layers("electra", 128, 256),
    **_dense("discriminator_predictions/dense", 128, 128),
    **_dense("discriminator_predictions/dense_1", 128, 1),
}
GENERATOR: Shapes = {
    **_dense("generator/embeddings_project", NARROW, 64),
    **_layers("generator", 64, 256, 2),
    **_dense("generator_predictions/dense", 64, NARROW),
    **_norm("generator_predictions/LayerNorm", NARROW),
    "generator_predictions/output_bias": (VOCAB,),
}
CONFIGS = {
    "bert": ("bert_config.json", BERT_CONFIG),
    "albert": ("albert_config.json", ALBERT_CONFIG),
    "electra": (None, {}),
}


def drawn(shapes: Shapes, seed: int = 3) -> dict[str, np.ndarray]:
    """Random variables of these shapes; gammas lie around one."""
    generator = np.random.default_rng(seed)
    return {
        name: (0.1 * generator.standard_normal(shape) + name.endswith("gamma")).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def with_slots(variables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with Adam's slots and the counter of a training run."""
    slots = {
        f"{name}/{slot}": np.zeros_like(value)
        for name, value in variables.items()
        for slot in ("adam_m", "adam_v")
    }
    return {**variables, **slots, "global_step": np.array(1000, np.int64)}


def save(
    folder: Path,
    variables: dict[str, np.ndarray],
    vocab: Path,
    config: tuple[str | None, dict[str, Any]] = CONFIGS["bert"],
    prefix: str = "bert_model.ckpt",
) -> Path:
    """Write a folder as Google's archives have it; the prefix of its checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    name, raw = config
    if name is not None:
        (folder / name).write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
    (folder / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    write_bundle(folder / prefix, variables)
    return folder / prefix


SHAPES = {
    "bert pretraining": ("bert", BERT),
    "bert encoder": ("bert", BERT_ENCODER),
    "bert masked_lm": ("bert", {k: v for k, v in BERT.items() if k not in PAIR}),
    "bert sequence": ("bert", {**BERT_ENCODER, **CLASSIFIER}),
    "albert pretraining": ("albert", ALBERT),
    "albert sequence": ("albert", {**albert_encoder(), **CLASSIFIER}),
    "electra discriminator": ("electra", ELECTRA),
}
every_shape = pytest.mark.parametrize("name", list(SHAPES))


def saved(name: str, folder: Path, vocab: Path) -> tuple[Path, dict[str, np.ndarray]]:
    family, shapes = SHAPES[name]
    variables = drawn(shapes)
    return save(folder, variables, vocab, CONFIGS[family]), variables


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every_shape
def test_every_variable_of_googles_code_has_its_place(
    name: str, tmp_path: Path, vocab: Path
) -> None:
    prefix, variables = saved(name, tmp_path, vocab)
    checkpoint = google.read(prefix)
    family, _, kind = name.partition(" ")
    assert (checkpoint.family, checkpoint.head or "encoder") == (family, kind)
    assert checkpoint.source == tmp_path
    assert sum(t.numel() for t in checkpoint.tensors.values()) == sum(
        v.size for v in variables.values()
    )
    assert not any("left out" in note for note in checkpoint.notes)
    checkpoint.build()


def test_kernels_are_transposed_and_hand_written_heads_are_not(tmp_path: Path, vocab: Path) -> None:
    prefix, variables = saved("bert pretraining", tmp_path, vocab)
    tensors = {name: tensor.numpy() for name, tensor in google.read(prefix).tensors.items()}
    self = "bert/encoder/layer_1/attention/self"
    qkv = np.concatenate([variables[f"{self}/{n}/kernel"].T for n in ("query", "key", "value")])
    assert np.array_equal(tensors["encoder.layers.1.qkv.weight"], qkv)
    assert np.array_equal(
        tensors["encoder.layers.2.up.weight"],
        variables["bert/encoder/layer_2/intermediate/dense/kernel"].T,
    )
    assert np.array_equal(
        tensors["head.pair.out.weight"], variables["cls/seq_relationship/output_weights"]
    )
    assert np.array_equal(
        tensors["encoder.embeddings.norm.weight"], variables["bert/embeddings/LayerNorm/gamma"]
    )


@every_shape
def test_from_google_to_hugging_face_and_back_is_the_same_bytes(
    name: str, tmp_path: Path, vocab: Path
) -> None:
    prefix, _ = saved(name, tmp_path / "original", vocab)
    if name.startswith("electra"):  # no configuration was there, so there is none to compare
        google.write(google.read(prefix), Tokenizer.load(vocab), tmp_path / "first")
        prefix = tmp_path / "first" / google.PREFIX
    huggingface.write(google.read(prefix), tmp_path / "hf")
    google.read_google_tokenizer(prefix.parent).save(tmp_path / "hf")
    google.write(
        huggingface.read(tmp_path / "hf"), Tokenizer.load(tmp_path / "hf"), tmp_path / "back"
    )
    assert files(tmp_path / "back") == files(prefix.parent)


def test_a_training_runs_slots_and_counters_are_left_out_with_their_number(
    tmp_path: Path, vocab: Path
) -> None:
    plain = google.read(save(tmp_path / "a", drawn(BERT), vocab))
    run = google.read(save(tmp_path / "b", with_slots(drawn(BERT)), vocab))
    assert all(torch.equal(run.tensors[name], value) for name, value in plain.tensors.items())
    note = next(note for note in run.notes if "left out" in note)
    assert f"{len(BERT)} x optimizer slot adam_m" in note
    assert f"{len(BERT)} x optimizer slot adam_v" in note
    assert "1 x counter (global_step)" in note


def test_a_span_head_leaves_the_pooler_out_and_says_so(tmp_path: Path, vocab: Path) -> None:
    checkpoint = google.read(save(tmp_path, drawn({**BERT_ENCODER, **SQUAD}), vocab))
    assert (checkpoint.head, checkpoint.config.pooling.activation) == ("spans", None)
    assert any("2 x pooler, which this head does not read" in note for note in checkpoint.notes)


def test_a_fine_tuned_head_goes_before_those_of_pretraining(tmp_path: Path, vocab: Path) -> None:
    checkpoint = google.read(save(tmp_path, drawn({**BERT, **CLASSIFIER}), vocab))
    assert (checkpoint.head, checkpoint.labels) == ("sequence", ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert any("7 x another head" in note for note in checkpoint.notes)


@pytest.mark.parametrize(
    "head",
    [
        {"output_weights": (3, 31), "output_bias": (3,)},
        {"output_weights": (3, 32)},
        {"start_logits/dense/kernel": (32, 1)},
        {"cls/squad/output_weights": (1, 32), "cls/squad/output_bias": (1,)},
    ],
)
def test_a_head_that_is_none_of_ours_is_left_out_by_name(
    head: dict[str, tuple[int, ...]], tmp_path: Path, vocab: Path
) -> None:
    checkpoint = google.read(save(tmp_path, drawn({**BERT_ENCODER, **head}), vocab))
    assert checkpoint.head is None
    assert any(next(iter(head)) in note for note in checkpoint.notes)


def test_albert_groups_are_read_each_in_its_place(tmp_path: Path, vocab: Path) -> None:
    config = {**ALBERT_CONFIG, "num_hidden_layers": 4, "num_hidden_groups": 2}
    variables = drawn(albert_encoder(groups=2))
    checkpoint = google.read(save(tmp_path, variables, vocab, ("albert_config.json", config)))
    assert checkpoint.config.num_groups == 2
    name = "bert/encoder/transformer/group_1/inner_group_0/LayerNorm_1/gamma"
    assert np.array_equal(
        checkpoint.tensors["encoder.layers.1.norm.weight"].numpy(), variables[name]
    )


def test_electra_without_configuration_has_the_sizes_of_its_tensors(
    tmp_path: Path, vocab: Path
) -> None:
    prefix = save(
        tmp_path,
        drawn({**ELECTRA, **GENERATOR}),
        vocab,
        CONFIGS["electra"],
    )
    checkpoint = google.read(prefix)
    config = checkpoint.config
    assert (config.hidden_size, config.attention.heads, config.table_size) == (128, 2, 16)
    assert (config.num_hidden_layers, config.feed_forward.width) == (3, 256)
    assert (config.positions.rows, config.vocab_size) == (24, VOCAB)
    assert any("no configuration: 3 layers" in note and "64" in note for note in checkpoint.notes)
    count = len(GENERATOR)
    assert any(f"{count} x of ELECTRA's generator" in n for n in checkpoint.notes)


# What is written.


def test_the_report_names_every_tensor_once(tmp_path: Path, vocab: Path) -> None:
    variables = with_slots(drawn(BERT))
    report = google.tensor_report(save(tmp_path, variables, vocab))
    assert sorted(row["name"] for row in report) == sorted(variables)
    rows = {row["name"]: row for row in report}
    row = rows["bert/encoder/layer_0/attention/self/key/kernel"]
    assert row["becomes"] == "encoder.layers.0.qkv.weight, part 2 of 3"
    assert (row["shape"], row["dtype"]) == ([32, 32], "float32")
    assert row["file"] == "bert_model.ckpt.data-00000-of-00001"
    assert rows["global_step"]["becomes"] == "left out: counter"


FAMILIES = {
    "bert": (BERT, "gelu", "erf form, as the checkpoints of 2018"),
    "albert": (ALBERT, "gelu_tanh", "tanh form, which google-research/albert"),
    "electra": (ELECTRA, "gelu", "erf form, which google-research/electra"),
}
every_family = pytest.mark.parametrize("family", list(FAMILIES))


def said(notes: tuple[str, ...]) -> str:
    (note,) = (note for note in notes if "hidden_act" in note)
    return note


@every_family
def test_each_family_has_its_default_and_says_so(family: str, tmp_path: Path, vocab: Path) -> None:
    shapes, act, words = FAMILIES[family]
    checkpoint = google.read(save(tmp_path, drawn(shapes), vocab, CONFIGS[family]))
    assert checkpoint.config.feed_forward.activation == act
    assert words in said(checkpoint.notes)


@every_family
@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
def test_what_is_written_is_read_back_with_the_same_activation(
    family: str, act: str, tmp_path: Path, vocab: Path
) -> None:
    shapes, usual, _ = FAMILIES[family]
    prefix = save(tmp_path / "a", drawn(shapes), vocab, CONFIGS[family])
    google.write(google.read(prefix, hidden_act=act), Tokenizer.load(vocab), tmp_path / "b")
    back = google.read(tmp_path / "b" / google.PREFIX)
    assert back.config.feed_forward.activation == act
    path = next((tmp_path / "b").glob("*_config.json"))
    raw = json.loads(path.read_text())
    assert raw["hidden_act"] == "gelu"  # the only name that Google's code knows
    assert ("gelu_form" in raw) == (act != usual)


QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def refusal(prefix: Path, kind: type[FilbertError] = FormatError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        google.read(prefix, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


@pytest.fixture
def changed(tmp_path: Path, vocab: Path) -> Callable[..., Path]:
    def make(change: Callable[[dict[str, np.ndarray]], object], **config: Any) -> Path:
        variables = drawn(BERT)
        change(variables)
        raw = {k: v for k, v in {**BERT_CONFIG, **config}.items() if v is not ...}
        return save(tmp_path, variables, vocab, ("bert_config.json", raw))

    return make


def test_a_missing_tensor_is_named(changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: v.pop(QUERY)))
    assert f"1 missing ({QUERY})" in text
    assert "bert_config.json describes" in text


def test_a_tensor_of_another_shape_is_named_with_both_shapes(changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: v.update({QUERY: np.zeros((32, 31), np.float32)})))
    assert QUERY in text
    assert "(32, 31)" in text
    assert "requires (32, 32)" in text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_name(
    value: float, changed: Callable[..., Path]
) -> None:
    def spoil(variables: dict[str, np.ndarray]) -> None:
        variables["bert/pooler/dense/kernel"][3, 4] = value

    text = refusal(changed(spoil))
    assert "bert/pooler/dense/kernel" in text
    assert "not finite" in text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_size", ..., "no hidden_size"),
        ("hidden_size", "wide", "hidden_size is 'wide'"),
        ("num_attention_heads", 5, "not a multiple of num_attention_heads 5"),
        ("num_hidden_layers", 10**9, "num_hidden_layers"),
        ("vocab_size", -3, "vocab_size"),
        ("hidden_act", "quick_gelu", "'quick_gelu'"),
        ("hidden_act", 3, "hidden_act is 3"),
        ("gelu_form", "cubic", "gelu_form is 'cubic'"),
        ("net_structure_type", 1, "net_structure_type is 1"),
    ],
)
def test_a_wrong_configuration_is_refused_by_its_key(
    key: str, value: Any, words: str, changed: Callable[..., Path]
) -> None:
    text = refusal(changed(lambda v: None, **{key: value}))
    assert words in text
    assert "bert_config.json" in text


def test_bert_without_configuration_is_refused(tmp_path: Path, vocab: Path) -> None:
    text = refusal(save(tmp_path, drawn(BERT), vocab, (None, {})))
    assert "no bert_config.json" in text
    assert "attention heads" in text


def test_a_checkpoint_of_something_else_is_refused_with_some_of_its_names(
    tmp_path: Path, vocab: Path
) -> None:
    text = refusal(save(tmp_path, drawn({"resnet/conv/kernel": (3, 3)}), vocab))
    assert "no BERT, ALBERT or ELECTRA" in text
    assert "resnet/conv/kernel" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden_act": "quick_gelu"}, 'two forms of "gelu": gelu, gelu_tanh'),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, str], words: str, changed: Callable[..., Path]
) -> None:
    assert words in refusal(changed(lambda v: None), ConfigError, **options)


# Writing.


def write_refusal(checkpoint: Checkpoint, vocab: Path, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        google.write(checkpoint, Tokenizer.load(vocab), folder)
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


SIZES = {"vocab_size": 34, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_families_without_a_google_format_are_refused(
    family: str, tmp_path: Path, vocab: Path
) -> None:
    text = write_refusal(
        fresh_checkpoint(family, head="masked_lm", **SIZES), vocab, tmp_path / "out"
    )
    assert "bert, albert, electra" in text
    assert f"a {family}" in text


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", "tokens"),
        ("bert", "choices"),
        ("albert", "choices"),
        ("electra", "sequence"),
        ("electra", "spans"),
    ],
)
def test_heads_without_a_google_format_are_refused(
    family: str, head: str, tmp_path: Path, vocab: Path
) -> None:
    torch.manual_seed(0)
    made = fresh_checkpoint(family, head="masked_lm", embedding_size=32, **SIZES)
    count = 3 if head in ("tokens", "sequence") else None
    text = write_refusal(with_new_head(made, head, count), vocab, tmp_path / "out")
    assert f"{family} has no {head!r} head" in text


def test_numbers_that_the_configuration_cannot_say_are_refused(tmp_path: Path, vocab: Path) -> None:
    made = fresh_checkpoint("bert", head="masked_lm", **SIZES)
    changed = replace(made, config=made.config.changed(layer_norm_eps=1e-5))
    text = write_refusal(changed, vocab, tmp_path / "out")
    assert "cannot express layer_norm_eps 1e-05" in text
    assert "1e-12" in text


@pytest.fixture
def prefix(tmp_path: Path, vocab: Path) -> Path:
    return save(tmp_path / "google", drawn(BERT), vocab)


def test_a_google_tokenizer_knows_words_of_200_characters(prefix: Path) -> None:
    (prefix.parent / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n")
    tokenizer = read_tokenizer(prefix)
    known, unknown = (tokenizer.encode(["a" * length])[0].input_ids for length in (200, 201))
    assert len(known) == 202
    assert unknown.tolist() == [2, 1, 3]
    tokenizer.save(prefix.parent / "hf")  # and keeps its limit in the other layout
    again = Tokenizer.load(prefix.parent / "hf")
    assert len(again.encode(["a" * 200])[0].input_ids) == 202


@pytest.mark.parametrize(("entry", "lowercase"), [("Film", False), ("film", True)])
def test_case_is_told_by_the_vocabulary_and_not_by_the_folders_name(
    entry: str, lowercase: bool, tmp_path: Path, vocab: Path
) -> None:
    folder = tmp_path / ("uncased_L-2" if not lowercase else "cased_L-2")
    prefix = save(folder, drawn(BERT), vocab)
    (folder / "vocab.txt").write_text(f"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{entry}\n")
    assert read_tokenizer(prefix).lowercase == lowercase
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lowercase}))
    assert read_tokenizer(prefix).lowercase != lowercase


def test_a_sentencepiece_model_of_any_name_is_found(
    tmp_path: Path, vocab: Path, shared_data: Path
) -> None:
    prefix = save(tmp_path, drawn(ALBERT), vocab, CONFIGS["albert"])
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="no vocabulary"):
        read_tokenizer(prefix)
    model = (shared_data / "tokenizers/albert-base-v2/spiece.model").read_bytes()
    (tmp_path / "30k-clean.model").write_bytes(model)
    tokenizer = read_tokenizer(prefix)
    assert (tokenizer.kind, tokenizer.vocab_size) == ("unigram", 30_000)
    assert tokenizer.encode(["Hello world"])[0].input_ids.tolist() == [2, 10975, 126, 3]
    (tmp_path / "other.model").write_bytes(model)
    with pytest.raises(FormatError, match="2 vocabularies"):
        read_tokenizer(prefix)


def test_a_google_checkpoint_can_be_used_like_any_model(prefix: Path) -> None:
    for name in (prefix, prefix.parent, f"{prefix}.index"):
        assert find_model(str(name)) == prefix
    predictor = Predictor.load(prefix.parent)
    assert len(predictor.fill("the film was [MASK]", top=2)["candidates"][0]) == 2
    vectors = predictor.embed(["the film was good"])
    assert torch.from_numpy(vectors).isfinite().all()
