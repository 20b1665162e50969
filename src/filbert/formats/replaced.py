"""ELECTRA's two models: built together from a checkpoint, and taken apart again into two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from filbert.errors import ConfigError
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.config_json import check_head, config_values
from filbert.formats.families import FAMILIES
from filbert.model.config import EncoderConfig
from filbert.model.encoder import initialize
from filbert.model.heads import DiscriminatorHead
from filbert.model.replaced import ReplacedTokenModel, generator_config

_TABLES = "encoder.embeddings."
_PROJECT = "encoder.embeddings.project."
# Our name in a masked-LM model of its own, and in the two together.
_RENAMED = {
    _PROJECT: "generator.project.",
    "encoder.layers.": "generator.layers.",
    "head.": "generator.head.",
}


def replaced_model(
    checkpoint: Checkpoint, *, share: float = 0.25, generator: Checkpoint | None = None
) -> ReplacedTokenModel:
    """The discriminator of a checkpoint beside a generator; in eval mode, with its own tensors.

    Args:
        checkpoint: with the head "discriminator".
        share: width of the generator, of the discriminator's, when it is drawn anew (from torch's
            default generator).
        generator: a checkpoint with the head "masked_lm" to continue with instead. Its embedding
            tables are left out: those of the discriminator serve both.

    Raises:
        ConfigError: the family cannot write such a generator, `share` is out of range, or
            `generator` is of another vocabulary or width of tables.
    """
    family = FAMILIES[checkpoint.family]
    check_head(family, "discriminator")
    built = checkpoint.build()
    assert isinstance(built.head, DiscriminatorHead), "for_pretraining gives it this head"
    config = generator_config(checkpoint.config, share) if generator is None else generator.config
    if generator is not None:
        _check_pair(checkpoint, generator)
    # Said now and not after days of training.
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
    """Discriminator and generator as two checkpoints, which share the embedding tables' memory.

    Args:
        checkpoint: that the model was built from: family, configuration, special ids.
        weights: by the names of ReplacedTokenModel.state_dict().
        generator: the generator's configuration, `model.generator.config`.
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
    small = replace(
        checkpoint,
        config=generator,
        tensors=tables | rest,
        head="masked_lm",
        notes=(),
        filbert=None,
    )
    return replace(checkpoint, tensors=own), small


def _check_pair(checkpoint: Checkpoint, generator: Checkpoint) -> None:
    if (generator.family, generator.head) != (checkpoint.family, "masked_lm"):
        raise ConfigError(
            f"The generator's class is {FAMILIES[generator.family].class_name(generator.head)}; it "
            f"must be {FAMILIES[checkpoint.family].class_name('masked_lm')}."
        )
    for name in (
        "vocab_size",
        "table_size",
        "max_position_embeddings",
        "type_vocab_size",
        "layer_norm_eps",
    ):
        ours, theirs = getattr(checkpoint.config, name), getattr(generator.config, name)
        if ours != theirs:
            shown = "embedding_size" if name == "table_size" else name
            raise ConfigError(
                f"The generator has {shown} {theirs}, the discriminator {ours}; they share their "
                "embedding tables and must agree."
            )
