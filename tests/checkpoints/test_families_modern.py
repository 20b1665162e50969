"""ModernBERT's config.json, its tokenizer, and what the verbs do with such a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Backend

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.errors import FormatError
from filbert.text.tokenizer import Tokenizer
from filbert.train.base_model import freeze
from filbert.train.optimizer import rate_shares

SIZES: dict[str, Any] = sizes(layers=4, width=32, heads=4, positions=64)


def modern_folder(folder: Path, tokenizer: Tokenizer, head: str = "masked_lm") -> Path:
    torch.manual_seed(0)
    checkpoint = fresh_checkpoint(
        "modernbert", vocab_size=tokenizer.vocab_size, head=head, pad_id=0, **SIZES
    )
    huggingface.write(checkpoint, folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def modern(tiny: Tokenizer, tmp_path: Path) -> Path:
    """A tiny ModernBERT with a masked-LM head, over the `vocab` fixture."""
    return modern_folder(tmp_path / "modern", tiny)


FULL, LOCAL = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layer_types": [LOCAL, FULL, FULL, FULL]}, "beginning with full_attention"),
        ({"layer_types": [FULL, LOCAL, FULL, FULL]}, "equal distances"),
        ({"layer_types": [FULL, LOCAL]}, "each of the 4 layers"),
        ({"layer_types": "full_attention"}, "layer_types is"),
        ({"rope_parameters": 7}, "rope_parameters is 7"),
        ({"rope_parameters": {"rope_theta": 5e5}}, "rope_parameters has 'rope_theta'"),
        ({"rope_parameters": {FULL: {"partial_rotary_factor": 0.5}}}, "reads a rope_theta"),
        ({"rope_parameters": {FULL: {"rope_type": "yarn"}}}, "reads only default"),
        ({"rope_parameters": {FULL: {"rope_theta": "x"}}}, "global_rope_theta is 'x'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling is"),
        ({"global_rope_theta": -1.0}, "global_rope_theta is -1.0"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0"),
        ({"local_attention": -2}, "local_attention is -2"),
        ({"local_attention": 10**9}, "local_attention is 1000000000"),
        ({"classifier_pooling": ["mean"]}, "classifier_pooling is"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"norm_bias": True}, "norm_bias is True"),
        ({"decoder_bias": False}, "decoder_bias is False"),
        ({"classifier_activation": "relu"}, "classifier_activation is 'relu'"),
        ({"hidden_activation": "relu"}, "requires the same in both"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"num_attention_heads": 32}, "even number"),
        ({"intermediate_size": 50}, "intermediate_size 50"),
        ({"vocab_size": 1}, "config.json says vocab_size 1, but"),
        ({"num_hidden_layers": 3}, "num_hidden_layers 3"),
        ({"causal_mask": True}, "causal_mask is True"),
    ],
)
def test_what_the_encoder_cannot_express_is_refused_by_name(changes, words, modern):
    path = modern / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(FormatError, match=words):
        huggingface.read(modern)


@pytest.mark.parametrize(
    ("kinds", "every"),
    [([FULL] * 4, 1), ([FULL, LOCAL] * 2, 2), ([FULL, *[LOCAL] * 2, FULL], 3)],
)
def test_layer_types_say_how_far_global_layers_are_apart(kinds, every, modern):
    path = modern / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_types": kinds}))
    assert huggingface.read(modern).config.attention.global_every == every


# What the config.json files of these releases add or change, beyond sizes.
_COMMON = {
    "position_embedding_type": "sans_pos",
    "layer_norm_eps": 1e-5,
    "sparse_prediction": False,
    "deterministic_flash_attn": False,
    "classifier_pooling": "mean",
}
PUBLISHED = {
    "mmBERT": {
        **_COMMON,
        "global_rope_theta": 160_000,
        "local_rope_theta": 160_000,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 1,
        "mask_token_id": 4,
    },
    "Ettin": {**_COMMON, "causal_mask": False, "is_causal": False, "local_rope_theta": 160_000.0},
    "granite-embedding-r2": {**_COMMON, "local_rope_theta": 10_000.0, "dtype": "bfloat16"},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_later_releases_are_modernberts(name, modern):
    path = modern / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **PUBLISHED[name]}))
    checkpoint = huggingface.read(modern)
    assert checkpoint.notes == () and checkpoint.config.pooling.token == "mean"
    assert checkpoint.config.positions.local_base == PUBLISHED[name]["local_rope_theta"]


def byte_level(folder: Path) -> Path:
    """A tokenizer.json as ModernBERT's is: byte-level BPE between [CLS] and [SEP]."""
    backend = Backend(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["|||IP_ADDRESS|||", "<|padding|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the film was not very good", "he was to see a bad play"], trainer)
    backend.add_special_tokens(names)
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    ids = {name: backend.token_to_id(name) for name in names}
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    settings = {f"{name.strip('[]').lower()}_token": name for name in [*names, "[MASK]"]}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_its_byte_level_tokenizer_is_read_and_its_model_predicts(tmp_path):
    folder = byte_level(tmp_path / "words")
    tokenizer = Tokenizer.load(folder)
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    for text in ("the film was good", "  naïve 日本 \n", "a [MASK] play", ("he was", "to see")):
        wanted = backend.encode(*text) if isinstance(text, tuple) else backend.encode(text)
        assert list(tokenizer.encode([text])[0].input_ids) == wanted.ids
    model = filbert.load(str(modern_folder(tmp_path / "modern", tokenizer)))
    answer = model.fill("the film was [MASK]")
    assert len(answer["candidates"][0]) == 5


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_its_pre_training_is_continued_or_begun(optimizer, modern, vocab, tmp_path):
    text = tmp_path / "train.txt"
    text.write_text("\n\n".join("the film was not very good .\n" * 4 for _ in range(40)))
    start: dict[str, Any] = {"model": str(modern)}
    if optimizer == "muon":
        start = {"family": "modernbert", "tokenizer": str(vocab), **SIZES}
    run = filbert.pretrain(
        corpus=str(text),
        out=str(tmp_path / "run"),
        optimizer=optimizer,
        steps=6,
        batch_size=4,
        max_tokens=128,
        max_length=32,
        lr=1e-3,
        precision="float32",
        device="cpu",
        **start,
    )
    after = huggingface.read(run.folder / "model")
    assert (after.family, after.head) == ("modernbert", "masked_lm")
    before = huggingface.read(modern)
    assert after.config == before.config
    if optimizer == "adamw":
        moved = {
            name for name, t in after.tensors.items() if not torch.equal(t, before.tensors[name])
        }
        assert moved == before.tensors.keys()


def test_the_last_norm_learns_with_the_last_layer(modern):
    model = huggingface.read(modern).build()
    shares = rate_shares(model, 0.5)
    assert shares["encoder.final_norm.weight"] == shares["encoder.layers.3.norm.weight"]
    freeze(model, "3")
    assert not model.encoder.final_norm.weight.requires_grad
    assert model.encoder.layers[2].norm.weight.requires_grad
