"""Creates checkpoints: new and continued models, ELECTRA pairs, students, narrower tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from filbert.checkpoints.checkpoint import Checkpoint, meta_model, with_layers, with_new_head
from filbert.checkpoints.config_json import check_head, config_values, default_settings
from filbert.checkpoints.families import FAMILIES
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import initialize
from filbert.model.heads import DiscriminatorHead, new_head
from filbert.model.replaced import ReplacedTokenModel, generator_config

# Parts of each kind of head, and the prefixes of their tensors.
_PARTS = {
    "masked_lm": {"masked_lm": "head."},
    "pair": {"pair": "head."},
    "pretraining": {"masked_lm": "head.masked_lm.", "pair": "head.pair."},
    "discriminator": {"discriminator": "head."},
}

# Every published model of these families, base, large or small, has heads of this width.
_HEAD_SIZE = 64
# The base models, where they differ from Devlin et al. 2019 (table 1 and section 3) and from the
# defaults of the table of families. Sources: Liu et al. 2019, appendix B; Sanh et al. 2019, section
# 3; Lan et al. 2020, table 1, and version 2 of its models (no dropout); Clark et al. 2020,
# table 6 (small); Warner et al. 2024, table 4; Nussbaum et al. 2024, section 4; Zhang et al. 2024,
# appendix A; Le Breton et al. 2025, table 1; Boizard et al. 2025, table 1.
_BASE: dict[str, Any] = {"hidden_size": 768, "num_hidden_layers": 12}
_OWN: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert": {"num_hidden_layers": 6},
    "albert": {"embedding_size": 128},
    "electra": {"hidden_size": 256},
    "modernbert": {"num_hidden_layers": 22},
    "nomic_bert": {},
    "gte": {"type_vocab_size": 2},
    "neobert": {"num_hidden_layers": 28, "max_position_embeddings": 4096, "layer_norm_eps": 1e-5},
    "eurobert": {"rotary_base": 250_000.0},
    "mpnet": {"max_position_embeddings": 514, "layer_norm_eps": 1e-5},
    "deberta-v2": {"distance_buckets": 256, "max_distance": 512},
}
# Widths of the feed-forward network by the hidden size, where it is not four times as wide.
_WIDE: dict[str, Callable[[int], int]] = {
    "modernbert": lambda width: 3 * width // 2,
    # Its config.json can express multiples of 8.
    "neobert": lambda width: -(-width // 3) * 8,
}
# The default padding id, that of each family's published vocabulary; 0 for the others.
_PAD_ID = {"roberta": 1, "mpnet": 1}
# Keys of config.json for CLS and SEP, in the families that have them. Without them, other tools use
# the ids of the published vocabularies.
_MARKS = {
    "roberta": ("bos_token_id", "eos_token_id"),
    "albert": ("bos_token_id", "eos_token_id"),
    "modernbert": ("cls_token_id", "sep_token_id"),
}


def fresh_config(
    family: str, *, vocab_size: int, head: str, pad_id: int | None = None, **sizes: Any
) -> EncoderConfig:
    """Return the configuration of a new model, for the arguments of `fresh_checkpoint`."""
    if family not in _OWN:
        raise ConfigError(
            f"No new model of the family {family!r} can be made; choose {', '.join(_OWN)}."
        )
    table = FAMILIES[family]
    check_head(table, head)
    if family == "mpnet" and pad_id not in (None, _PAD_ID[family]):
        raise ConfigError(
            f"The tokenizer's padding id is {pad_id}, and MPNet's is always {_PAD_ID[family]}. "
            "Learn the vocabulary with --kind bytebpe, or choose another family."
        )
    given = {name: value for name, value in sizes.items() if value is not None}
    values = {**default_settings(table), **_BASE, **_OWN[family]}
    if key := table.keys.get("position_offset"):
        offset = key.read(_PAD_ID[family] if pad_id is None else pad_id)
        values["position_offset"] = offset
        values["max_position_embeddings"] += offset
    if "dropout" in given:
        rate = given.pop("dropout")
        values |= {"hidden_dropout": rate, "attention_dropout": rate}
    values |= given
    width = values["hidden_size"]
    if "num_attention_heads" not in values:
        if width % _HEAD_SIZE:
            raise ConfigError(
                f"hidden_size {width} is not a multiple of {_HEAD_SIZE}, the usual width of an "
                "attention head. Give num_attention_heads too."
            )
        values["num_attention_heads"] = width // _HEAD_SIZE
    wide = _WIDE[family](width) if family in _WIDE else 4 * width
    values["intermediate_size"] = given.get("intermediate_size", wide)
    slot, usual_dropout = table.required_pooler(head), table.dropout_key(head).default
    values["pooler"] = None if slot is None else slot.activation
    values["head_dropout"] = values["hidden_dropout"] if usual_dropout is None else usual_dropout
    if values.get("embedding_size") == width and not table.always_projects:
        values["embedding_size"] = None
    config = EncoderConfig.of(vocab_size=vocab_size, **values)
    config_values(config, table, head)  # refuses what config.json cannot express
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
    """Create a model with weights from torch's default generator.

    Args:
        family: A key of `_OWN`.
        head: masked_lm, pretraining (with sentence pairs: bert, albert) or discriminator (electra).
        pad_id: The tokenizer's padding id; by default that of the family's published vocabulary.
            RoBERTa's first position is `pad_id` + 1.
        cls_id, sep_id: The tokenizer's, for the families whose config.json has them.
        sizes: Differences from the family's base model (ELECTRA: small): num_hidden_layers,
            hidden_size, num_attention_heads (hidden_size / 64), intermediate_size
            (4 * hidden_size; ModernBERT 1.5, NeoBERT 8 / 3), embedding_size, hidden_act,
            max_position_embeddings (RoBERTa's 514 rows are for 512 tokens) and dropout (of hidden
            states and attention). None means the default.

    Raises:
        ConfigError: An unknown family or head, or sizes that contradict each other.
    """
    config = fresh_config(family, vocab_size=vocab_size, head=head, pad_id=pad_id, **sizes)
    pad_id = _PAD_ID.get(family, 0) if pad_id is None else pad_id
    extra = id_entries(family, (pad_id, cls_id, sep_id))
    bare = Checkpoint(config, family, _drawn_encoder(config), extra=extra)
    return replace(with_new_head(bare, head), config=config, notes=())


def id_entries(family: str, ids: Sequence[int | None]) -> dict[str, int]:
    """Return the entries of config.json for the ids of padding, CLS and SEP; None for no token."""
    keys = ("pad_token_id", *_MARKS.get(family, ()))
    return {key: number for key, number in zip(keys, ids, strict=False) if number is not None}


def _drawn_encoder(config: EncoderConfig) -> dict[str, Tensor]:
    """Draw the weights of an encoder from torch's default generator."""
    # On the meta device first, because the layers' own initialisation would be discarded.
    model = meta_model(config, None).to_empty(device="cpu")
    initialize(model, config.initializer_range)
    return model.state_dict()


# Models whose pre-training is continued.


def for_pretraining(checkpoint: Checkpoint, head: str) -> Checkpoint:
    """Return the checkpoint with the head of a pre-training objective.

    Parts of the head that the checkpoint has are kept; the others are drawn from torch's default
    generator. The notes name new and removed parts.

    Raises:
        ConfigError: The family has no such head.
    """
    check_head(FAMILIES[checkpoint.family], head)
    if checkpoint.head == head:
        return checkpoint
    drawn = with_new_head(checkpoint, head)
    old, new = _PARTS.get(checkpoint.head or "", {}), _PARTS[head]
    tensors = dict(drawn.tensors)
    for part in old.keys() & new.keys():
        for name, tensor in checkpoint.tensors.items():
            if name.startswith(old[part]):
                tensors[new[part] + name.removeprefix(old[part])] = tensor
    # The last note is about the whole head, of which only some parts may be new here.
    notes = list(drawn.notes[:-1])
    has = f"the checkpoint has {'a ' + checkpoint.head if checkpoint.head else 'no'} head"
    notes += [f"new head: {part}, drawn at random: {has}." for part in new if part not in old]
    left = [part for part in old if part not in new]
    if checkpoint.head is not None and not old:
        left = [checkpoint.head]
    notes += [f"head left out: {part}." for part in left]
    return replace(drawn, tensors=tensors, notes=tuple(notes))


# ELECTRA: pairs of generator and discriminator.


_TABLES = "encoder.embeddings."
_PROJECT = "encoder.embeddings.project."
# Settings of the shared embedding tables.
_SHARED = (
    "vocab_size", "embedding_size", "max_position_embeddings", "type_vocab_size", "layer_norm_eps",
)  # fmt: skip
# Our name in a masked-LM model of its own, and in the two together.
_RENAMED = {
    _PROJECT: "generator.project.",
    "encoder.layers.": "generator.layers.",
    "head.": "generator.head.",
}


def replaced_model(
    checkpoint: Checkpoint, *, share: float = 0.25, generator: Checkpoint | None = None
) -> ReplacedTokenModel:
    """Build ELECTRA's discriminator and generator, in eval mode, with their own tensors.

    Args:
        checkpoint: A checkpoint with the head "discriminator".
        share: Width of a new generator as a share of the discriminator's.
        generator: A checkpoint with the head "masked_lm", to continue with instead. Its embedding
            tables are not used, because both share the discriminator's.

    Raises:
        ConfigError: The family's config.json cannot express the generator, `share` is out of
            range, or the vocabulary or table width of `generator` differs.
    """
    family = FAMILIES[checkpoint.family]
    check_head(family, "discriminator")
    built = checkpoint.build()
    assert isinstance(built.head, DiscriminatorHead), "for_pretraining gives it this head"
    config = generator_config(checkpoint.config, share) if generator is None else generator.config
    if generator is not None:
        _check_pair(checkpoint, generator)
    # Refuse what cannot be written before the training starts.
    config_values(config, family, "masked_lm")
    model = ReplacedTokenModel(built.encoder, built.head, config)
    initialize(model.generator, config.initializer_range)
    if generator is not None:
        tensors = {
            together.removeprefix("generator.") + name.removeprefix(alone): tensor.float()
            for alone, together in _RENAMED.items()
            for name, tensor in generator.tensors.items()
            if name.startswith(alone)
        }
        model.generator.load_state_dict(tensors, strict=True)
    return model.eval()


def split_replaced(
    checkpoint: Checkpoint, weights: Mapping[str, Tensor], generator: EncoderConfig
) -> tuple[Checkpoint, Checkpoint]:
    """Return discriminator and generator as two checkpoints that share the embedding tables.

    `weights` has the names of ReplacedTokenModel.state_dict(); `generator` is its configuration.
    """
    own = {name: value for name, value in weights.items() if not name.startswith("generator.")}
    tables = {
        name: value
        for name, value in own.items()
        if name.startswith(_TABLES) and not name.startswith(_PROJECT)
    }
    rest = {
        alone + name.removeprefix(together): value
        for alone, together in _RENAMED.items()
        for name, value in weights.items()
        if name.startswith(together)
    }
    small = replace(checkpoint, config=generator, tensors=tables | rest, head="masked_lm")
    return replace(checkpoint, tensors=own), replace(small, notes=(), filbert=None)


def _check_pair(checkpoint: Checkpoint, generator: Checkpoint) -> None:
    """Check that a generator fits to the embedding tables of a discriminator."""
    one, two = (
        model.config.settings() | {"embedding_size": model.config.table_size}
        for model in (checkpoint, generator)
    )
    differing = [name for name in _SHARED if one[name] != two[name]]
    if (generator.family, generator.head) != (checkpoint.family, "masked_lm") or differing:
        raise ConfigError(
            f"The generator ({generator.head or 'no'} head of a {generator.family}) does not fit "
            f"the discriminator: {', '.join(differing) or 'it needs a masked-LM head'}."
        )


# Students of distillation.


# The family that differs only by having no token types.
_WITHOUT_TYPES = {"bert": "distilbert"}
_POSITIONS = "encoder.embeddings.position.weight"
_TYPES = "encoder.embeddings.token_type.weight"


def _with_head_of(teacher: Checkpoint, head: str | None) -> Checkpoint:
    """Return the teacher without a head, or with its masked-LM head."""
    if head == "masked_lm" and teacher.head not in ("masked_lm", "pretraining"):
        has = f"a {teacher.head} head" if teacher.head else "no head"
        raise ConfigError(
            f"The teacher has {has}, so it scores no words. Take one with a masked-LM head, or "
            "method tinybert or minilm, which look at its layers alone."
        )
    return with_new_head(teacher, None) if head is None else for_pretraining(teacher, head)


def student_checkpoint(
    teacher: Checkpoint,
    *,
    layers: Sequence[int],
    head: str | None = None,
    token_types: bool = True,
    hidden_size: int | None = None,
    num_attention_heads: int | None = None,
    intermediate_size: int | None = None,
) -> Checkpoint:
    """Create a smaller model from the teacher's tensors of the same shape.

    The others are drawn from torch's default generator. It has no pooler, which nothing trains.

    Args:
        layers: Indices of the teacher's layers to start from.
        head: "masked_lm" or None.
        token_types: False removes token types if a family without them exists (DistilBERT); the
            row of the first segment is added to the position table.
        hidden_size, num_attention_heads: By default the teacher's.
        intermediate_size: By default in the teacher's proportion to the hidden size.

    Raises:
        ConfigError: `head` is "masked_lm" and the teacher has no such head, there is no such
            layer, or the sizes contradict each other.
    """
    start = _with_head_of(teacher, head)
    shared = start.config.num_groups < start.config.num_hidden_layers
    if not shared:
        start = with_layers(start, layers)
    if not token_types and start.family in _WITHOUT_TYPES:
        start = _without_types(start)
    old, width = start.config, hidden_size or start.config.hidden_size
    heads = num_attention_heads or old.attention.heads
    is_same = (width, heads) == (old.hidden_size, old.attention.heads)
    in_proportion = max(1, round(old.feed_forward.width * width / old.hidden_size))
    config = old.changed(
        hidden_size=width,
        num_hidden_layers=len(layers),
        num_attention_heads=heads,
        heads_per_layer=old.attention.heads_per_layer if is_same else None,
        intermediate_size=intermediate_size or in_proportion,
        pooler=None,
        pooler_dropout=False,
    )
    # Refuse what config.json cannot express.
    config_values(config, FAMILIES[start.family], head)
    tensors = _drawn_encoder(config)
    if head is not None:
        tensors |= {f"head.{k}": v for k, v in new_head(head, config).state_dict().items()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    fitting = {n: one for n, one in start.tensors.items() if shapes.get(n) == one.shape}
    note = f"student: {len(fitting)} of {len(tensors)} tensors begin as the teacher's"
    is_cut = not shared and config.hidden_size == old.hidden_size
    note += f", of its layers {', '.join(map(str, layers))}." if is_cut else "."
    tensors |= fitting
    start = replace(start, config=config, tensors=tensors, source=teacher.source)
    return replace(start, notes=(note,), filbert=None)


def _without_types(checkpoint: Checkpoint) -> Checkpoint:
    tensors = dict(checkpoint.tensors)
    types = tensors.pop(_TYPES, None)
    if types is not None:
        tensors[_POSITIONS] = tensors[_POSITIONS] + types[0]
    return replace(
        checkpoint,
        family=_WITHOUT_TYPES[checkpoint.family],
        config=checkpoint.config.changed(type_vocab_size=0),
        tensors=tensors,
    )
