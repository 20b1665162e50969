"""What may be said about a contestant that is made from another one of its study.

A student learns from its teacher; a quantised one is the other's model in another number format.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from filbert.data.streams import require_file
from filbert.errors import ConfigError
from filbert.study.contestant_options import (
    STUDYS,
    check_running,
    merged,
    named_contestant,
    near,
    refuse_unknown,
)
from filbert.train.distill_options import DistillOptions

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.study.recipe import Contestant

# By kind, the option that names the other contestant.
SOURCE_KEYS = {"distilled": "teacher", "quantised": "of"}
# Whose models others can be made from, by kind.
_SOURCES = {"distilled": ("encoder", "distilled"), "quantised": ("encoder", "distilled")}
QUANTISED: dict[str, Any] = {"precision": "int8", "backend": "torch"}
# By what runs it: the formats that are not those of the contestant itself.
_PRECISIONS = {"torch": ("int8", "bf16"), "onnxruntime": ("int8", "float32")}


def title_of(name: str, titles: Collection[str]) -> str:
    """The table that a contestant's folder comes from: "minilm" of "minilm-cleaned"."""
    fits = [title for title in titles if name == title or name.startswith(f"{title}-")]
    return max(fits, key=len, default=name)


def source_of(
    where: str, kind: str, said: Mapping[str, Any], others: Sequence[Contestant]
) -> Contestant:
    """The contestant that another one is made from.

    Args:
        where: the other's table, for sentences.
        kind: of `SOURCE_KEYS`.
        said: in the table.
        others: who is there to be named, by folder, or by title where that has one cleaning alone.

    Raises:
        ConfigError: there is none of that name, or none that has a model for this.
    """
    key = SOURCE_KEYS[kind]
    name = said.get(key)
    if name is None:
        raise ConfigError(f"{where}: {key!r} is missing; name another contestant of this study.")
    fits = [one for one in others if one.folder == name]
    fits = fits or [one for one in others if one.name.split(",")[0] == name]
    if len(fits) != 1:
        names = [one.folder for one in others if one.kind in _SOURCES[kind]]
        raise ConfigError(
            f"{where}: {key} {name!r} is not one contestant of this study. Give one of {names}."
            f"{near(name, names)}"
        )
    if fits[0].kind not in _SOURCES[kind]:
        raise ConfigError(
            f"{where}: {key} {name!r} is of kind {fits[0].kind!r}; it must be one of "
            f"{[*_SOURCES[kind]]}."
        )
    return fits[0]


def derived_options(
    where: str,
    kind: str,
    said: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    source: Contestant,
    labels: int | None,
) -> dict[str, Any]:
    """Its options with those of all contestants; see `contestant_options`.

    Raises:
        ConfigError, InputError, FormatError: an option that is not there or cannot be, or teacher
            and student do not go together.
    """
    if "cleaning" in said:
        raise ConfigError(
            f"{where}: it reads texts as {source.name} does; leave cleaning out, or name the one "
            f"with that cleaning as {SOURCE_KEYS[kind]}."
        )
    said = {**said, SOURCE_KEYS[kind]: source.folder}
    if kind == "quantised":
        return _quantised(where, said, shared, own, source)
    known = {f.name for f in fields(DistillOptions)} - STUDYS - {"corpus", "cache"}
    if "cache" in said:
        raise ConfigError(
            f"{where}: a study asks teachers on the way, so that a student's cost is all its own; "
            "leave cache out."
        )
    refuse_unknown(where, said, known, trained=True)
    options = merged({}, shared, said, own)
    with named_contestant(where, options):
        _check_distilled(options, source, labels)
    return options


def _quantised(
    where: str,
    said: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    source: Contestant,
) -> dict[str, Any]:
    refuse_unknown(where, said, {"of", "device", *QUANTISED}, trained=False)
    # The precision of the others' training says nothing about it.
    device = {k: v for k, v in {**shared, **own}.items() if k == "device"}
    options = {**QUANTISED, **device, **said}
    backend, precision = options["backend"], options["precision"]
    if backend not in _PRECISIONS:
        raise ConfigError(
            f"{where}: backend {backend!r} is not one of {[*_PRECISIONS]}."
            f"{near(backend, _PRECISIONS)}"
        )
    if precision not in _PRECISIONS[backend]:
        raise ConfigError(
            f"{where}: precision {precision!r} is not one of {[*_PRECISIONS[backend]]}, those that "
            f"{backend} adds.{near(precision, _PRECISIONS[backend])}"
        )
    if precision == "int8" and "device" not in said and options.get("device") != "cpu":
        # It is for processors, wherever the others are trained.
        options.pop("device", None)
    with named_contestant(where, options):
        from filbert.speed.precision import choose_device

        place = choose_device(options.get("device"))
        if precision == "int8" and place.type != "cpu" and "device" in options:
            raise ConfigError(f"int8 is for processors, and device is {place}. Leave it out.")
        if backend == "onnxruntime":
            from filbert.checkpoints.onnx_folder import check_installed

            check_installed()
    return options


def _check_distilled(options: dict[str, Any], source: Contestant, labels: int | None) -> None:
    """Refuse what `distill` would, as far as it can be told before the teacher is trained."""
    if options.get("student") is None and options.get("keep_layers") is None:
        raise ConfigError(
            'It needs a student: some of the teacher\'s layers (keep_layers = "0,2,4") or another '
            'model (student = "...").'
        )
    given = {key: value for key, value in options.items() if key != "teacher"}
    places = {"teacher": source.folder, "train": "train", "dev": "dev", "out": "out"}
    chosen = DistillOptions.from_keywords({**given, **places})
    check_running(chosen, labels)
    if chosen.augment_with is not None:
        from filbert.checkpoints.opening import find_model

        find_model(chosen.augment_with)
    if chosen.extra is not None:
        require_file(chosen.extra)
    teacher = _start_of(source.kind, source.options, source.source)
    student = _start_of("distilled", options, source)

    from filbert.stored_task import check_max_length

    check_max_length(chosen.max_length, student.config)
    if chosen.method == "soft":
        return

    from filbert.train.distill_task import lessons_of

    lessons_of(chosen, student.config, teacher.config)


def _start_of(kind: str, options: Mapping[str, Any], source: Contestant | None) -> Checkpoint:
    """The checkpoint that a contestant's training begins with.

    Raises:
        ConfigError: layers to keep that are not there.
    """
    from filbert.checkpoints.checkpoint import with_layers
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.train.trainable import layers_to_keep

    named = options.get("model") if kind == "encoder" else options.get("student")
    if named is not None:
        checkpoint = read_checkpoint(find_model(str(named)))
    else:
        assert source is not None
        checkpoint = _start_of(source.kind, source.options, source.source)
    if options.get("keep_layers") is None:
        return checkpoint
    layers = layers_to_keep(options["keep_layers"], checkpoint.config.num_hidden_layers)
    return with_layers(checkpoint, layers)
