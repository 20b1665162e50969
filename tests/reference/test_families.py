"""Every family and head against transformers' own classes: tiny random weights, float32, CPU."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.reference.theirs import judged, outputs, packed, padded, shaken, transformers

import filbert
from filbert.batch import PackedBatch
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.errors import ConfigError, FormatError
from filbert.inference.int8 import quantized
from filbert.model.heads import Model
from filbert.text.tokenizer import Tokenizer

VOCAB = 97
LENGTHS = (9, 3, 17, 1, 12)

# The order of the sums differs between implementations and between instruction sets. Allowed is one
# unit in the last place, of each implementation, for each of at most 6 stages: the embeddings, 4
# layers and the head. A wrong configuration is off by 2e-3 and more.
TOLERANCE = 2 * 6 * torch.finfo(torch.float32).eps

# Odd sizes and numbers that are nobody's default, so that a swapped or ignored field shows.
_SHARED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 41,
    "attn_implementation": "eager",
    "pad_token_id": 1,
}
_BERT: dict[str, Any] = {
    **_SHARED,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "hidden_dropout_prob": 0.15,
    "attention_probs_dropout_prob": 0.05,
    "layer_norm_eps": 1e-5,
}
_DISTILBERT = {
    **_SHARED,
    "dim": 48,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 80,
    "seq_classif_dropout": 0.25,
}
_ALBERT = {
    **_BERT,
    "embedding_size": 24,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "classifier_dropout_prob": 0.2,
}
_LLAMA: dict[str, Any] = {
    **_SHARED,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 80,
    "rms_norm_eps": 1e-4,
    "attention_dropout": 0.05,
}
_GEMMA = {
    **_LLAMA,
    "num_hidden_layers": 4,
    "query_pre_attn_scalar": 10,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "use_bidirectional_attention": True,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
    },
}
_GPT2 = {
    "vocab_size": VOCAB,
    "attn_implementation": "eager",
    "pad_token_id": 1,
    "n_positions": 41,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_inner": 80,
    "layer_norm_epsilon": 1e-4,
}
# Few buckets, so that those of several distances occur.
_DEBERTA = {
    **_BERT,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": "p2c|c2p",
    "position_buckets": 6,
    "max_relative_positions": 12,
    "cls_dropout": 0.25,
}
_T5 = {
    "vocab_size": VOCAB,
    "attn_implementation": "eager",
    "pad_token_id": 1,
    "n_positions": 41,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 80,
    "num_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 11,
    "dropout_rate": 0.15,
    "layer_norm_epsilon": 1e-4,
}
_XLNET = {
    "vocab_size": VOCAB,
    "attn_implementation": "eager",
    "pad_token_id": 1,
    "d_model": 48,
    "n_layer": 3,
    "n_head": 4,
    "d_inner": 80,
    "dropout": 0.15,
    "layer_norm_eps": 1e-5,
    "summary_last_dropout": 0.25,
}
_THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (transformers.BertConfig, {**_BERT, "classifier_dropout": 0.3}),
    "roberta": (transformers.RobertaConfig, {**_BERT, "type_vocab_size": 1}),
    "xlm-roberta": (transformers.XLMRobertaConfig, {**_BERT, "type_vocab_size": 1}),
    "camembert": (transformers.CamembertConfig, {**_BERT, "type_vocab_size": 1}),
    "distilbert": (transformers.DistilBertConfig, _DISTILBERT),
    "albert": (transformers.AlbertConfig, _ALBERT),
    "electra": (transformers.ElectraConfig, {**_BERT, "embedding_size": 24}),
    "nomic_bert": (transformers.NomicBertConfig, {**_BERT, **_THETA}),
    "gte": (transformers.GteConfig, {**_BERT, **_THETA, "type_vocab_size": 3}),
    "jina_embeddings_v3": (transformers.JinaEmbeddingsV3Config, {**_BERT, **_THETA}),
    "eurobert": (transformers.EuroBertConfig, {**_LLAMA, **_THETA}),
    "qwen3": (transformers.Qwen3Config, {**_LLAMA, **_THETA}),
    "gemma3_text": (transformers.Gemma3TextConfig, _GEMMA),
    "gpt2": (transformers.GPT2Config, _GPT2),
    # Positions are counted from row 2 in any case.
    "mpnet": (transformers.MPNetConfig, {**_BERT, "pad_token_id": 0}),
    "deberta-v2": (transformers.DebertaV2Config, _DEBERTA),
    "t5": (transformers.T5Config, _T5),
    "t5_gated": (transformers.T5Config, {**_T5, "feed_forward_proj": "gated-gelu"}),
    "mt5": (transformers.MT5Config, _T5),
    "xlnet": (transformers.XLNetConfig, _XLNET),
}
# Models of these families end in no dropout before the classifier of sequences.
_NO_DROPOUT = ("eurobert", "qwen3", "gemma3_text", "gpt2", "t5", "t5_gated", "mt5")
_SUFFIX = {
    None: "Model",
    "masked_lm": "ForMaskedLM",
    "pair": "ForNextSentencePrediction",
    "pretraining": "ForPreTraining",
    "discriminator": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "choices": "ForMultipleChoice",
}
_TASKS = ("masked_lm", "sequence", "tokens", "spans", "choices")
_KINDS: dict[str, tuple[str | None, ...]] = {
    "bert": (None, *_TASKS, "pair", "pretraining"),
    "roberta": (None, *_TASKS),
    "xlm-roberta": (None, *_TASKS),
    "camembert": (None, *_TASKS),
    "distilbert": (None, *_TASKS),
    "albert": (None, *_TASKS, "pretraining"),
    "electra": (None, *_TASKS, "discriminator"),
    "nomic_bert": (None, "masked_lm", "sequence", "tokens"),
    "gte": (None, "masked_lm", "sequence", "tokens"),
    "jina_embeddings_v3": (None, "masked_lm", "sequence", "tokens", "spans"),
    "eurobert": (None, "masked_lm", "sequence", "tokens"),
    "qwen3": (None, "sequence", "tokens"),
    "gemma3_text": (None, "sequence"),
    "gpt2": (None, "sequence", "tokens"),
    "mpnet": (None, *_TASKS),
    "deberta-v2": (None, *_TASKS),
    "t5": (None, "tokens"),
    "t5_gated": (None, "tokens"),
    "mt5": (None, "tokens"),
    "xlnet": (None, *_TASKS[1:]),
}
CASES = [(family, kind) for family, kinds in _KINDS.items() for kind in kinds]
every_case = pytest.mark.parametrize(("family", "kind"), CASES)


def judge_class(family: str, kind: str | None) -> Any:
    name = CONFIGS[family][0].__name__.removesuffix("Config") + _SUFFIX[kind]
    name = name.replace("T5Model", "T5EncoderModel")
    # The other class of XLNet searches its spans by beams.
    name = name.replace("XLNetForQuestionAnswering", "XLNetForQuestionAnsweringSimple")
    return getattr(transformers, name)


def make_judge(family: str, kind: str | None, **changes: Any) -> Any:
    """A model in eval mode whose every parameter is random, biases and LayerNorms too."""
    make, values = CONFIGS[family]
    labels = {"num_labels": 3} if kind in ("sequence", "tokens") else {}
    return shaken(judge_class(family, kind)(make(**{**values, **labels, **changes})))


def batch_of(family: str) -> dict[str, torch.Tensor]:
    """A right-padded batch without the pad id inside, as RoBERTa counts positions by it."""
    without = ("distilbert", "mpnet", *_NO_DROPOUT)
    own = {"xlnet": 3, **dict.fromkeys(without, 0), **CONFIGS[family][1]}
    types = own.get("type_vocab_size", own.get(family))
    types = CONFIGS[family][0]().type_vocab_size if types is None else types
    return padded(LENGTHS, VOCAB, types=types)


@cache
def judge_and_folder(family: str, kind: str | None, root: Path) -> tuple[Any, Path]:
    model = make_judge(family, kind)
    folder = root / f"{family}-{kind}"
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def given(model: Model, batch: PackedBatch) -> list[torch.Tensor]:
    """What filbert gives, in the same order."""
    with torch.no_grad():
        out = model(batch)
        pooled = model.head is None and model.encoder.pooler is not None
        more = [model.encoder.pool(out, batch)] if pooled else []
    return [*(out if isinstance(out, tuple) else (out,)), *more]


def difference(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest wanted value where that is above 1.

    Hidden states are about 1, so that smaller outputs are sums of values of that size.
    """
    assert [part.shape for part in found] == [part.shape for part in wanted]
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1))
        for a, b in zip(found, wanted, strict=True)
    )


@every_case
def test_hidden_states_pooled_vectors_and_logits_equal_transformers(family, kind, root):
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    batch = batch_of(family)
    assert (checkpoint.family, checkpoint.head, checkpoint.notes) == (family, kind, ())
    assert (
        difference(given(checkpoint.build(), packed(batch)), judged(model, kind, batch)) < TOLERANCE
    )


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "electra"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_norm_eps", 1e-1),
        ("hidden_act", "relu"),
        ("position_offset", 5),
        ("num_attention_heads", 6),
        ("num_hidden_layers", "one fewer"),
    ],
)
def test_a_wrong_config_field_shows(family, field, value, root):
    """The heads read the same encoder, so one class of a family is enough."""
    kind = None
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    tensors = dict(checkpoint.tensors)
    if field == "num_hidden_layers":
        value = checkpoint.config.num_hidden_layers - 1
        if checkpoint.config.layer_groups is None:
            tensors = {
                name: v for name, v in tensors.items() if f"encoder.layers.{value}." not in name
            }
    config = checkpoint.config.changed(**{field: value})
    wrong = dataclasses.replace(checkpoint, config=config, tensors=tensors).build()
    batch = batch_of(family)
    assert difference(given(wrong, packed(batch)), judged(model, kind, batch)) > 1e-4


@pytest.mark.parametrize(
    ("family", "act"),
    [("bert", "gelu_new"), ("bert", "relu"), ("albert", "gelu"), ("distilbert", "relu")],
)
def test_other_activations_equal_transformers(family, act, tmp_path):
    model = make_judge(
        family, "masked_lm", **{"activation" if family == "distilbert" else "hidden_act": act}
    )
    model.save_pretrained(tmp_path)
    batch = batch_of(family)
    found = given(huggingface.read(tmp_path).build(), packed(batch))
    assert difference(found, judged(model, "masked_lm", batch)) < TOLERANCE


@pytest.mark.parametrize("family", ["albert", "electra"])
def test_tables_as_wide_as_the_layers_equal_transformers(family, tmp_path):
    # ALBERT projects also then, ELECTRA does not.
    model = make_judge(family, "sequence", embedding_size=48)
    model.save_pretrained(tmp_path)
    checkpoint = huggingface.read(tmp_path)
    batch = batch_of(family)
    assert (
        difference(given(checkpoint.build(), packed(batch)), judged(model, "sequence", batch))
        < TOLERANCE
    )
    assert checkpoint.config.embeddings.width == {"albert": 48, "electra": None}[family]


@pytest.mark.parametrize(
    "family", [name for name in CONFIGS if name not in (*_NO_DROPOUT, "xlnet")]
)
def test_dropout_rates_are_those_of_transformers(family, root):
    rates = {}
    for kind in ("sequence", "tokens"):
        config = huggingface.read(judge_and_folder(family, kind, root)[1]).config
        rates[kind] = (config.dropout.hidden, config.dropout.attention, config.dropout.head)
        model = judge_and_folder(family, kind, root)[0]
        dropout = model.dropout if hasattr(model, "dropout") else model.classifier.dropout
        assert rates[kind][2] == dropout.p
    expected = (0.1, 0.1) if family == "distilbert" else (0.15, 0.05)
    assert rates["sequence"][:2] == expected


def test_dropout_rates_of_xlnet_are_those_of_transformers(root):
    for kind in ("sequence", "tokens"):
        model, folder = judge_and_folder("xlnet", kind, root)
        last = model.sequence_summary.last_dropout if kind == "sequence" else model.transformer
        rates = huggingface.read(folder).config.dropout
        assert rates.head == (last if kind == "sequence" else last.dropout).p
        assert rates.hidden == rates.attention == model.transformer.layer[0].rel_attn.dropout.p


def load_back(family: str, kind: str | None, folder: Path) -> Any:
    model, report = judge_class(family, kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert {name: found for name, found in report.items() if found} == {}
    return model.eval()


@every_case
def test_what_filbert_writes_transformers_loads_whole_with_the_same_output(
    family, kind, root, tmp_path
):
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    huggingface.write(checkpoint, tmp_path)
    back = load_back(family, kind, tmp_path)
    batch = batch_of(family)
    assert difference(judged(back, kind, batch), judged(model, kind, batch)) < TOLERANCE
    ours, theirs = (load_file(place / "model.safetensors").keys() for place in (tmp_path, folder))
    assert ours <= theirs
    again = huggingface.read(tmp_path)
    assert again.config == checkpoint.config
    assert again.tensors.keys() == checkpoint.tensors.keys()
    assert all(
        torch.equal(again.tensors[name], value) for name, value in checkpoint.tensors.items()
    )


def new_head(checkpoint: Checkpoint, kind: str | None) -> Checkpoint:
    labels = ("no", "yes", "perhaps", "né") if kind in ("sequence", "tokens") else None
    return with_new_head(checkpoint, kind, labels=labels)


@every_case
@pytest.mark.parametrize("old", [None, "sequence"])
def test_a_new_head_loads_whole_in_transformers_with_the_same_output(
    family, kind, old, root, tmp_path
):
    torch.manual_seed(5)
    # T5's class for sequences runs its decoder.
    old = old if old in _KINDS[family] else "tokens"
    checkpoint = new_head(huggingface.read(judge_and_folder(family, old, root)[1]), kind)
    bare = judge_and_folder(family, None, root)[0]
    always_has_pooler = kind is None and getattr(bare, "pooler", None) is not None
    if always_has_pooler and checkpoint.config.pooling.activation is None:
        pytest.skip("transformers always draws a pooler for this family's bare encoder")
    huggingface.write(checkpoint, tmp_path)
    back, batch = load_back(family, kind, tmp_path), batch_of(family)
    assert (
        difference(judged(back, kind, batch), given(checkpoint.build(), packed(batch))) < TOLERANCE
    )
    if kind in ("sequence", "tokens"):
        assert back.config.id2label == {0: "no", 1: "yes", 2: "perhaps", 3: "né"}


_NEW = ("nomic_bert", "gte", "jina_embeddings_v3", "mpnet", "deberta-v2", "xlnet", *_NO_DROPOUT)


@pytest.mark.parametrize("family", _NEW)
def test_gradients_equal_transformers_and_sequences_do_not_depend_on_their_company(
    family, root, tmp_path
):
    kind, batch = "sequence" if "sequence" in _KINDS[family] else "tokens", batch_of(family)
    _, folder = judge_and_folder(family, kind, root)
    judge, checkpoint = make_judge(family, kind), huggingface.read(folder)
    model = checkpoint.build()
    found = model(packed(batch))
    (wanted,) = outputs(judge, kind, batch)
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape)
    (found * weights).mean().backward()
    (wanted * weights).mean().backward()
    with torch.no_grad():
        for parameter in judge.parameters():
            # XLNet's vector of a token to predict is no part of its fine-tuning.
            parameter.copy_(torch.tensor(0.0) if parameter.grad is None else parameter.grad)
    judge.save_pretrained(tmp_path)
    theirs = huggingface.read(tmp_path).tensors
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    ours |= {name: torch.zeros_like(buffer) for name, buffer in model.named_buffers()}
    assert ours.keys() == theirs.keys()
    assert max(difference([ours[name]], [theirs[name]]) for name in ours) < 1e-5
    alone = [
        model(packed({name: rows[i : i + 1, :length] for name, rows in batch.items()}))
        for i, length in enumerate(LENGTHS)
    ]
    assert difference([torch.cat(alone).detach()], [found.detach()]) < TOLERANCE


# Files as the families' authors published them: other names in config.json and of tensors.


def rewritten(
    folder: Path, place: Path, config: dict[str, Any], names: dict[str, str], *dropped: str
) -> Path:
    """A copy with changed config.json and tensor names."""
    place.mkdir()
    raw = json.loads((folder / "config.json").read_text())
    raw = {key: value for key, value in raw.items() if key not in dropped} | config
    (place / "config.json").write_text(json.dumps(raw))
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for old, new in names.items():
            name = re.sub(old, new, name)
        tensors[name] = tensor
    save_file(tensors, place / "model.safetensors")
    return place


_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_PUBLISHED = {
    "nomic_bert": (
        {
            **dict(zip(("n_embd", "n_layer", "n_head", "n_inner"), (48, 3, 4, 80), strict=True)),
            "n_positions": 41,
            "activation_function": "swiglu",
            "layer_norm_epsilon": 1e-5,
            "rotary_emb_base": 300.0,
            "rotary_emb_fraction": 1.0,
            "rotary_scaling_factor": None,
            "auto_map": {"AutoModel": "nomic-ai/nomic-bert-2048--modeling.NomicBertModel"},
        },
        {r"^nomic_bert\.": "bert."},
        ("rope_parameters", "hidden_act", "layer_norm_eps", "max_position_embeddings", *_SIZES),
    ),
    "gte": (
        {
            "model_type": "new",
            "architectures": ["NewForMaskedLM"],
            "rope_theta": 300.0,
            "rope_scaling": None,
            "position_embedding_type": "rope",
            "pack_qkv": True,
        },
        {r"^gte\.": "new."},
        ("rope_parameters",),
    ),
    "jina_embeddings_v3": (
        {
            "model_type": "xlm-roberta",
            "architectures": ["XLMRobertaForMaskedLM"],
            "position_embedding_type": "rotary",
            "rotary_emb_base": 300.0,
            "lora_adaptations": ["retrieval.query", "text-matching"],
        },
        {r"((Wqkv|fc1|fc2|out_proj)\.)weight": r"\1parametrizations.weight.original"},
        ("rope_parameters",),
    ),
}


@pytest.mark.parametrize("family", _PUBLISHED)
def test_a_folder_as_its_authors_published_it_is_the_same_model(family, root, tmp_path):
    _, folder = judge_and_folder(family, "masked_lm", root)
    config, names, dropped = _PUBLISHED[family]
    published = huggingface.read(rewritten(folder, tmp_path / "p", config, names, *dropped))
    same = huggingface.read(folder)
    assert published.config == same.config
    assert all(torch.equal(published.tensors[name], t) for name, t in same.tensors.items())
    huggingface.write(published, tmp_path / "again")
    again = huggingface.read(tmp_path / "again")
    assert (again.config, again.family) == (published.config, published.family)
    assert all(torch.equal(again.tensors[name], t) for name, t in same.tensors.items())


def test_biases_that_old_files_lack_are_zeros_and_task_adapters_are_left_out(root, tmp_path):
    for family in ("nomic_bert", "jina_embeddings_v3"):
        _, folder = judge_and_folder(family, "masked_lm", root)
        place = rewritten(folder, tmp_path / family, {}, {})
        tensors = load_file(place / "model.safetensors")
        if family == "nomic_bert":
            gone = ("cls.predictions.bias", "cls.predictions.transform.dense.bias")
            tensors = {name: tensor for name, tensor in tensors.items() if name not in gone}
        else:
            layer = "roberta.encoder.layers.0.mlp.fc1.parametrizations.weight.0"
            tensors |= {f"{layer}.lora_{x}": torch.zeros(2, 4, 48) for x in "AB"}
        save_file(tensors, place / "model.safetensors")
        read, whole = huggingface.read(place), huggingface.read(folder)
        assert read.tensors.keys() == whole.tensors.keys()
        changed = {n for n, t in whole.tensors.items() if not torch.equal(read.tensors[n], t)}
        if family == "nomic_bert":
            assert changed == {"head.bias", "head.transform.bias"} and len(read.notes) == 2
            assert not any(read.tensors[name].any() for name in changed)
        else:
            assert not changed and "2 tensors of task adapters" in read.notes[0]


# A module of transformers' jina v3 to the file's weight, and which third of its rows.
_JINA_PLACES = {
    r"^layers\.(\d+)\.self_attn\.([qkv])_proj$": r"encoder.layers.\1.mixer.Wqkv",
    r"^layers\.(\d+)\.self_attn\.o_proj$": r"encoder.layers.\1.mixer.out_proj",
    r"^layers\.(\d+)\.mlp\.": r"encoder.layers.\1.mlp.",
}


@pytest.fixture(scope="module")
def adapted(root: Path, tmp_path_factory: pytest.TempPathFactory, tiny: Tokenizer) -> Path:
    """A jina v3 as its authors publish it, with low-rank adapters of three tasks everywhere."""
    _, folder = judge_and_folder("jina_embeddings_v3", None, root)
    config, _, dropped = _PUBLISHED["jina_embeddings_v3"]
    tasks = {"lora_adaptations": ["a.query", "b", "c"], "lora_rank": 4, "lora_alpha": 2}
    changes = {**config, **tasks, "architectures": ["XLMRobertaLoRA"]}
    place = rewritten(folder, tmp_path_factory.mktemp("jina") / "p", changes, {}, *dropped)
    drawn, tensors = torch.Generator().manual_seed(4), {}
    for name, tensor in load_file(place / "model.safetensors").items():
        if tensor.dim() < 2:
            tensors[name] = tensor
            continue
        rows, columns = tensor.shape
        shapes = [(4, columns), (rows, 4)]
        shapes = shapes[::-1] if "_embeddings." in name else shapes
        at = f"{name.removesuffix('weight')}parametrizations.weight"
        tensors[f"{at}.original"] = tensor
        for part, shape in zip("AB", shapes, strict=True):
            tensors[f"{at}.0.lora_{part}"] = 0.2 * torch.randn((3, *shape), generator=drawn)
    save_file(tensors, place / "model.safetensors")
    tiny.save(place)
    (place / "modules.json").write_text('[{"type": "custom_st.Transformer", "path": ""}]')
    prompts = {"prompts": {"a.query": "query: ", "c": ""}, "default_prompt_name": None}
    (place / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return place


@pytest.mark.parametrize(("number", "task"), [(0, "a.query"), (2, "c")])
def test_the_adapter_of_a_task_equals_its_authors_arithmetic(number, task, adapted):
    """Low-rank products of a layer's input, as in the paper, without merging."""
    judge, tensors = (
        make_judge("jina_embeddings_v3", None),
        load_file(adapted / "model.safetensors"),
    )

    def added(name: str) -> Any:
        place, thirds = name, name.partition("self_attn.")[2][:1]
        for old, new in _JINA_PLACES.items():
            place = re.sub(old, new, place)
        at = f"{place}.parametrizations.weight.0.lora_"
        first, second = tensors[f"{at}A"][number], tensors[f"{at}B"][number]
        if place.endswith("Wqkv"):
            second = second.chunk(3)["qkv".index(thirds)]

        def hook(module: Any, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            if isinstance(module, torch.nn.Embedding):
                return output + 2 / 4 * (first[inputs[0]] @ second)
            return output + 2 / 4 * (inputs[0] @ first.T) @ second.T

        return hook

    for name, module in judge.named_modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            module.register_forward_hook(added(name))
    batch = batch_of("jina_embeddings_v3")
    checkpoint = huggingface.read(adapted, adapter=task)
    wanted = judged(judge, None, batch)
    assert difference(given(checkpoint.build(), packed(batch)), wanted) < 2 * TOLERANCE
    base = huggingface.read(adapted)
    assert difference(given(base.build(), packed(batch)), wanted) > 1e-2
    assert "of the task" in checkpoint.notes[0] and "task adapters" in base.notes[0]


def test_an_adapter_is_merged_by_convert_with_its_prompt(adapted, tmp_path):
    facts = filbert.convert(adapted, tmp_path / "merged", to="huggingface", adapter="a.query")
    assert facts["adapter"] == "a.query"
    merged, again = (
        huggingface.read(adapted, adapter="a.query"),
        huggingface.read(tmp_path / "merged"),
    )
    assert all(torch.equal(again.tensors[n], tensor) for n, tensor in merged.tensors.items())
    stored = json.loads((tmp_path / "merged/config_sentence_transformers.json").read_text())
    assert stored["default_prompt_name"] == "a.query"
    for model, says in (
        (adapted, "it has a.query, b, c"),
        (tmp_path / "merged", "no task adapters"),
    ):
        with pytest.raises(ConfigError, match=says):
            filbert.convert(model, tmp_path / "other", to="huggingface", adapter="d")


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("gemma3_text", {"use_bidirectional_attention": False}, "predicts the next token"),
        ("gemma3_text", {"query_pre_attn_scalar": 7}, "query_pre_attn_scalar is 7"),
        ("gemma3_text", {"layer_types": ["full_attention"] * 3}, "layer_types"),
        ("gte", {"model_type": "new", "rope_scaling": {"type": "yarn"}}, "reads type ntk"),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("eurobert", {"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide"),
        ("nomic_bert", {"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True"),
    ],
)
def test_what_a_family_cannot_express_is_refused_by_its_key(family, changes, says, root, tmp_path):
    _, folder = judge_and_folder(family, None, root)
    with pytest.raises(FormatError, match=says):
        huggingface.read(rewritten(folder, tmp_path / "p", changes, {}))


def test_scaled_positions_of_gte_turn_as_its_authors_code_does(tmp_path):
    model = make_judge("gte", None)
    model.save_pretrained(tmp_path / "gte")
    ntk = {"model_type": "new", "rope_theta": 300.0, "rope_scaling": {"type": "ntk", "factor": 2.0}}
    folder = rewritten(tmp_path / "gte", tmp_path / "new", ntk, {}, "rope_parameters")
    # NTKScalingRotaryEmbedding: the base grows by the factor, then all frequencies shrink.
    pairs = torch.arange(0, 12, 2).float() / 12
    model.rotary_emb.inv_freq = 1 / (300.0 * 2.0) ** pairs / 2.0 ** (2 / 12)
    checkpoint, batch = huggingface.read(folder), batch_of("gte")
    assert difference(given(checkpoint.build(), packed(batch)), judged(model, None, batch)) < 1e-6
    huggingface.write(checkpoint, tmp_path / "again")
    assert huggingface.read(tmp_path / "again").config == checkpoint.config


def neobert(tensors: dict[str, torch.Tensor], ids: torch.Tensor, heads: int) -> torch.Tensor:
    """Hidden states of one sequence, as NeoBERT's authors' code computes them, from its file."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], tensors[f"{name}.weight"], 1e-4)

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        size = x.shape[-1]
        steps = torch.outer(torch.arange(len(x)), 10_000.0 ** -(torch.arange(0, size, 2) / size))
        spun = pairs * torch.polar(torch.ones_like(steps), steps)[:, None]
        return torch.view_as_real(spun).flatten(2)

    x = tensors["model.encoder.weight"][ids]
    for i in range(2):
        name = f"model.transformer_encoder.{i}"
        mixed = norm(x, f"{name}.attention_norm") @ tensors[f"{name}.qkv.weight"].T
        query, key, value = mixed.view(len(ids), heads, -1).chunk(3, -1)
        query, key = turned(query), turned(key)
        scores = torch.einsum("qad,kad->aqk", query, key) / query.shape[-1] ** 0.5
        seen = torch.einsum("aqk,kad->qad", scores.softmax(-1), value).flatten(1)
        x = x + seen @ tensors[f"{name}.wo.weight"].T
        first, second = (norm(x, f"{name}.ffn_norm") @ tensors[f"{name}.ffn.w12.weight"].T).chunk(
            2, -1
        )
        wide = torch.nn.functional.silu(first) * second
        x = x + wide @ tensors[f"{name}.ffn.w3.weight"].T
    return norm(x, "model.layer_norm")


@pytest.mark.parametrize("kind", ["masked_lm", "sequence"])
def test_neobert_equals_its_authors_arithmetic(kind, tmp_path):
    raw = {
        "model_type": "neobert",
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "max_length": 41,
        "num_attention_heads": 2,
        "intermediate_size": 60,
        "norm_eps": 1e-4,
        "num_labels": 3,
        "hidden_act": "SwiGLU",
        "vocab_size": VOCAB,
        "architectures": [{"masked_lm": "NeoBERTLMHead"}.get(kind, f"NeoBERT{_SUFFIX[kind]}")],
        "auto_map": {"AutoModel": "model.NeoBERT"},
    }
    # Two thirds of 60, to the next multiple of 8.
    shapes: dict[str, tuple[int, ...]] = {
        "model.encoder.weight": (VOCAB, 24),
        "model.layer_norm.weight": (24,),
    }
    for i in range(2):
        parts = {"qkv": (72, 24), "wo": (24, 24), "ffn.w12": (80, 24), "ffn.w3": (24, 40)}
        parts |= {"attention_norm": (24,), "ffn_norm": (24,)}
        shapes |= {f"model.transformer_encoder.{i}.{n}.weight": s for n, s in parts.items()}
    if kind == "masked_lm":
        shapes |= {"decoder.weight": (VOCAB, 24), "decoder.bias": (VOCAB,)}
    else:
        shapes |= {"dense.weight": (24, 24), "dense.bias": (24,)}
        shapes |= {"classifier.weight": (3, 24), "classifier.bias": (3,)}
    drawn = torch.Generator().manual_seed(2)
    tensors = {name: 0.3 * torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    for tensor in tensors.values():
        tensor.requires_grad_()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    checkpoint, batch = huggingface.read(tmp_path), padded(LENGTHS, VOCAB)
    wanted = []
    for ids, length in zip(batch["input_ids"], LENGTHS, strict=True):
        hidden = neobert(tensors, ids[:length], 2)
        if kind == "sequence":
            first = hidden[:1] @ tensors["dense.weight"].T + tensors["dense.bias"]
            hidden = torch.tanh(first)
        out = "decoder" if kind == "masked_lm" else "classifier"
        wanted.append(hidden @ tensors[f"{out}.weight"].T + tensors[f"{out}.bias"])
    found = given(checkpoint.build(), packed(batch))
    exact = torch.cat(wanted).detach()
    assert checkpoint.notes == () and difference(found, [exact]) < 2 * TOLERANCE
    huggingface.write(checkpoint, tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    model = checkpoint.build()
    model(packed(batch)).square().mean().backward()
    torch.cat(wanted).square().mean().backward()
    ours = {name: p.grad for name, p in model.named_parameters()}
    huggingface.write(dataclasses.replace(checkpoint, tensors=ours), tmp_path / "gradients")
    gradients = load_file(tmp_path / "gradients" / "model.safetensors")
    assert max(difference([gradients[n]], [t.grad]) for n, t in tensors.items()) < 1e-5


def jina(tensors: dict[str, torch.Tensor], ids: torch.Tensor, heads: int) -> torch.Tensor:
    """Hidden states of one sequence, as jina-embeddings-v2's authors' code computes them."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weights = (tensors[f"{name}.weight"], tensors[f"{name}.bias"])
        return torch.nn.functional.layer_norm(x, x.shape[-1:], *weights, 1e-5)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

    places = torch.arange(len(ids))
    # Six heads: the series of four, then every second value of the series of eight.
    slopes = torch.tensor([2**-2.0, 2**-4.0, 2**-6.0, 2**-8.0, 2**-1.0, 2**-3.0])
    bias = -slopes[:heads, None, None] * (places[:, None] - places).abs()
    tables = (
        tensors[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "token_type")
    )
    words, types = tables
    x = norm(words[ids] + types[0], "bert.embeddings.LayerNorm")
    for i in range(2):
        at = f"bert.encoder.layer.{i}"
        query, key, value = (
            linear(x, f"{at}.attention.self.{part}").view(len(ids), heads, -1)
            for part in ("query", "key", "value")
        )
        scores = torch.einsum("qad,kad->aqk", query, key) / query.shape[-1] ** 0.5 + bias
        seen = torch.einsum("aqk,kad->qad", scores.softmax(-1), value).flatten(1)
        seen = linear(seen, f"{at}.attention.output.dense")
        x = norm(x + seen, f"{at}.attention.output.LayerNorm")
        gated, plain = linear(x, f"{at}.mlp.gated_layers").chunk(2, -1)
        wide = torch.nn.functional.gelu(gated) * plain
        x = norm(x + linear(wide, f"{at}.mlp.wo"), f"{at}.mlp.layernorm")
    return x


def test_jina_v2_equals_its_authors_arithmetic(tmp_path):
    raw = {
        "model_type": "bert",
        "architectures": ["JinaBertForSequenceClassification"],
        "auto_map": {"AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"},
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "intermediate_size": 40,
        "max_position_embeddings": 41,
        "layer_norm_eps": 1e-5,
        "type_vocab_size": 2,
        "num_labels": 3,
    }
    names = {"bert.embeddings.word_embeddings": (VOCAB, 24), "bert.pooler.dense": (24, 24)}
    names |= {"bert.embeddings.token_type_embeddings": (2, 24), "classifier": (3, 24)}
    names |= {"bert.embeddings.LayerNorm": (24,)}
    for i in range(2):
        at = f"bert.encoder.layer.{i}"
        parts = ("self.query", "self.key", "self.value", "output.dense")
        names |= {f"{at}.attention.{part}": (24, 24) for part in parts}
        names |= {f"{at}.mlp.gated_layers": (80, 24), f"{at}.mlp.wo": (24, 40)}
        names |= {f"{at}.{part}": (24,) for part in ("attention.output.LayerNorm", "mlp.layernorm")}
    drawn = torch.Generator().manual_seed(2)
    tensors = {
        f"{name}.weight": 0.3 * torch.randn(shape, generator=drawn) for name, shape in names.items()
    }
    without = ("embeddings", "gated_layers")
    tensors |= {
        f"{name}.bias": 0.3 * torch.randn(shape[0], generator=drawn)
        for name, shape in names.items()
        if not name.endswith(without)
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    checkpoint, batch = huggingface.read(tmp_path), padded(LENGTHS, VOCAB)
    assert checkpoint.notes == () and checkpoint.family == "jina_bert"
    hidden = [
        jina(tensors, ids[:length], 6)
        for ids, length in zip(batch["input_ids"], LENGTHS, strict=True)
    ]
    model = checkpoint.build()
    with torch.no_grad():
        found = model.encoder(packed(batch))
    assert difference([found], [torch.cat(hidden)]) < TOLERANCE
    pooled = torch.tanh(
        torch.stack([rows[0] for rows in hidden]) @ tensors["bert.pooler.dense.weight"].T
        + tensors["bert.pooler.dense.bias"]
    )
    logits = pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]
    assert difference(given(model, packed(batch)), [logits]) < TOLERANCE
    huggingface.write(checkpoint, tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: written[key] for key in ("model_type", "position_embedding_type")} == {
        "model_type": "bert",
        "position_embedding_type": "alibi",
    }
    assert huggingface.read(tmp_path / "again").config == checkpoint.config


def test_the_masked_lm_head_of_deberta_v3_is_read_under_its_own_names(root, tmp_path):
    model = make_judge("deberta-v2", "masked_lm", legacy=False)
    model.save_pretrained(tmp_path)
    assert "lm_predictions.lm_head.bias" in load_file(tmp_path / "model.safetensors")
    batch = batch_of("deberta-v2")
    found = given(huggingface.read(tmp_path).build(), packed(batch))
    assert difference(found, judged(model, "masked_lm", batch)) < TOLERANCE


def test_a_deberta_that_computes_something_else_is_refused(root, tmp_path):
    _, folder = judge_and_folder("deberta-v2", None, root)
    odd = {"conv_kernel_size": 3, "share_att_key": False, "pos_att_type": "c2p"}
    for key, value in odd.items():
        place = rewritten(folder, tmp_path / key, {key: value}, {})
        with pytest.raises(FormatError, match=f"{key} is .*deberta-v3-base"):
            huggingface.read(place)


def test_the_decoder_of_a_t5_is_left_out(tmp_path):
    make, values = CONFIGS["t5_gated"]
    model = shaken(transformers.T5ForConditionalGeneration(make(**values)))
    model.save_pretrained(tmp_path)
    checkpoint, batch = huggingface.read(tmp_path), batch_of("t5_gated")
    with torch.no_grad():
        wanted = model.encoder(**batch).last_hidden_state[batch["attention_mask"].bool()]
    assert (checkpoint.family, checkpoint.head) == ("t5_gated", None)
    assert "T5ForConditionalGeneration" in checkpoint.notes[0] and "decoder" in checkpoint.notes[1]
    assert difference(given(checkpoint.build(), packed(batch)), [wanted]) < TOLERANCE


def test_models_that_predict_the_next_token_are_read_without_that_head(tmp_path):
    for family, suffix in (
        ("gpt2", "LMHeadModel"),
        ("qwen3", "ForCausalLM"),
        ("xlnet", "LMHeadModel"),
    ):
        make, values = CONFIGS[family]
        name = make.__name__.removesuffix("Config")
        model = shaken(getattr(transformers, name + suffix)(make(**values)))
        model.save_pretrained(tmp_path / family)
        checkpoint, batch = huggingface.read(tmp_path / family), batch_of(family)
        with torch.no_grad():
            wanted = model.base_model(**batch).last_hidden_state[batch["attention_mask"].bool()]
        assert checkpoint.head is None and "predicts the next token" in checkpoint.notes[0]
        assert difference(given(checkpoint.build(), packed(batch)), [wanted]) < TOLERANCE


@pytest.mark.parametrize("family", ["deberta-v2", "xlnet"])
def test_models_compute_in_bf16_and_int8_and_in_float32_after_it(family, root):
    """Vectors of distances are kept between batches."""
    model, folder = judge_and_folder(family, None, root)
    batch = batch_of(family)
    ours, wanted = huggingface.read(folder).build(), judged(model, None, batch)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        rounded = ours(packed(batch)).float()
    assert 1e-5 < difference([rounded], wanted) < 0.1
    for other in (quantized(ours), huggingface.read(folder).build(dtype=torch.bfloat16)):
        with torch.no_grad():
            rounded = other(packed(batch)).float()
        assert 1e-5 < difference([rounded], wanted) < 0.1
    assert difference(given(ours, packed(batch)), wanted) < TOLERANCE


def test_a_long_text_of_xlnet_equals_transformers(root):
    """On a CPU it has another product of its own, without a gradient."""
    model, folder = judge_and_folder("xlnet", "sequence", root)
    batch = padded((230, 3), VOCAB, types=3)
    ours, wanted = huggingface.read(folder).build(), judged(model, "sequence", batch)
    assert difference(given(ours, packed(batch)), wanted) < TOLERANCE
    assert difference([ours(packed(batch)).detach()], wanted) < TOLERANCE
