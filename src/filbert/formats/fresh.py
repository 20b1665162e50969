"""Models drawn at random, for pre-training from nothing: every family at its usual size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from filbert.errors import ConfigError
from filbert.formats.checkpoint import Checkpoint, meta_model, with_new_head
from filbert.formats.config_json import check_head, config_values
from filbert.formats.families import FAMILIES
from filbert.model.config import EncoderConfig
from filbert.model.encoder import initialize

PRETRAINING_HEADS = ("masked_lm", "pretraining", "discriminator")

# Every published model of these families, base, large or small, has heads of this width.
_HEAD_SIZE = 64

_BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
}

# Where a family differs from Devlin et al. 2019, table 1 and section 3. Sources: Liu et al. 2019,
# appendix B; Sanh et al. 2019, section 3; Lan et al. 2020, table 1, and version 2 of its published
# models (no dropout); Clark et al. 2020, table 6 (small); Warner et al. 2024, table 4.
_USUAL: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert": {"num_hidden_layers": 6, "type_vocab_size": 0},
    "albert": {
        "embedding_size": 128,
        "num_hidden_groups": 1,
        "hidden_act": "gelu_tanh",
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "electra": {"hidden_size": 256, "embedding_size": 128},
    "modernbert": {
        **FAMILIES["modernbert"].constants,
        "num_hidden_layers": 22,
        "max_position_embeddings": 8192,
        "rotary_base": 160_000.0,
        "local_rotary_base": 10_000.0,
        "local_window": 128,
        "global_every": 3,
        "layer_norm_eps": 1e-5,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
}

# The padding id where nobody says otherwise: that of each family's published vocabulary.
_PAD_ID = {"roberta": 1}
# config.json's names for CLS and SEP, in the families whose own files have them. Other tools fall
# back on the ids of the published vocabularies when they are missing.
_MARKS = {
    "roberta": ("bos_token_id", "eos_token_id"),
    "albert": ("bos_token_id", "eos_token_id"),
    "modernbert": ("cls_token_id", "sep_token_id"),
}

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "embedding_size",
    "hidden_act",
    "max_position_embeddings",
    "dropout",
)


def fresh_config(
    family: str, *, vocab_size: int, head: str, pad_id: int | None = None, **sizes: Any
) -> EncoderConfig:
    """The shape of a new model; the arguments are those of `fresh_checkpoint`.

    With `checkpoint.meta_model` it tells the number of parameters at no cost.

    Raises:
        ConfigError: as `fresh_checkpoint`.
    """
    if family not in _USUAL:
        raise ConfigError(
            f"No new model of the family {family!r} can be made; choose {_choice(family, _USUAL)}."
        )
    table = FAMILIES[family]
    if head not in PRETRAINING_HEADS:
        raise ConfigError(f"head {head!r} is not one of {_choice(head, PRETRAINING_HEADS)}.")
    check_head(table, head)
    for name in sizes:
        if name not in _SIZES:
            raise ConfigError(f"{name!r} is not one of {_choice(name, _SIZES)}.")
    given = {name: value for name, value in sizes.items() if value is not None}
    values = {**_BASE, **_USUAL[family]}
    if table.offset_by_pad:
        pad = _PAD_ID[family] if pad_id is None else pad_id
        values["position_offset"] = pad + 1
        values["max_position_embeddings"] += pad + 1
    values |= {name: value for name, value in given.items() if name != "dropout"}
    if "dropout" in given:
        values |= {"hidden_dropout": given["dropout"], "attention_dropout": given["dropout"]}
    _fill_widths(values)
    slot = table.heads[head].pooler
    needs_pooler = slot is not None and slot.required
    values["pooler"] = slot.activation if slot is not None and needs_pooler else None
    config = EncoderConfig(vocab_size=vocab_size, **values)
    usual_dropout = table.heads[head].dropout[1]
    config = replace(
        config,
        head_dropout=config.hidden_dropout if usual_dropout is None else usual_dropout,
        embedding_size=None
        if config.embedding_size == config.hidden_size and not table.always_projects
        else config.embedding_size,
    )
    config_values(config, table, head)  # Refuses what no other tool could read back.
    return config


def fresh_checkpoint(
    family: str,
    *,
    vocab_size: int,
    head: str,
    pad_id: int | None = None,
    cls_id: int | None = None,
    sep_id: int | None = None,
    **sizes: Any,
) -> Checkpoint:
    """A model drawn from torch's default generator.

    Args:
        family: bert, roberta, distilbert, albert, electra or modernbert.
        vocab_size: rows of the word table.
        head: masked_lm, pretraining (with sentence pairs: bert, albert) or discriminator (electra).
        pad_id: the tokenizer's padding id, for config.json; the family's usual one when not given.
            RoBERTa counts positions from one more than it.
        cls_id: the tokenizer's, for the families whose config.json names it.
        sep_id: as `cls_id`.
        sizes: what differs from the family's base model (ELECTRA: small): num_hidden_layers,
            hidden_size, num_attention_heads (hidden_size / 64), intermediate_size
            (4 * hidden_size; ModernBERT 1.5), embedding_size, hidden_act, max_position_embeddings
            (rows of the table: RoBERTa's 514 serve 512 tokens) and dropout (inside the layers, of
            hidden states and attention). None is as good as not given.

    Raises:
        ConfigError: an unknown name (the nearest is given), or sizes that do not go together.
    """
    config = fresh_config(family, vocab_size=vocab_size, head=head, pad_id=pad_id, **sizes)
    for name, number in (("pad_id", pad_id), ("cls_id", cls_id), ("sep_id", sep_id)):
        if number is not None and not 0 <= number < vocab_size:
            raise ConfigError(f"{name} {number} is not one of the {vocab_size} entries.")
    extra = {"pad_token_id": _PAD_ID.get(family, 0) if pad_id is None else pad_id}
    for key, number in zip(_MARKS.get(family, ()), (cls_id, sep_id), strict=False):
        if number is not None:
            extra[key] = number
    # Laid out without numbers first: the layers' own random numbers would be thrown away.
    model = meta_model(config, None).to_empty(device="cpu")
    initialize(model, config.initializer_range)
    bare = Checkpoint(config, family, model.state_dict(), extra=extra)
    return replace(with_new_head(bare, head), config=config, notes=())


def _fill_widths(values: dict[str, Any]) -> None:
    """What follows from the hidden size where nothing else is said."""
    width = values["hidden_size"]
    if not isinstance(width, int):
        raise ConfigError(f"hidden_size is {width!r}; it must be a whole number.")
    if "num_attention_heads" not in values:
        if width % _HEAD_SIZE:
            raise ConfigError(
                f"hidden_size {width} is not a multiple of {_HEAD_SIZE}, the usual width of an "
                "attention head. Give num_attention_heads too."
            )
        values["num_attention_heads"] = width // _HEAD_SIZE
    values.setdefault("intermediate_size", 3 * width // 2 if values.get("gated") else 4 * width)


def _choice(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    near = get_close_matches(str(name), known, 1)
    return ", ".join(known) + (f" (did you mean {near[0]}?)" if near else "")
