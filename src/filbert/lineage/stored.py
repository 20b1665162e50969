"""Folders of pre-trained models that contestants of a comparison start from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import check_target, read_json, write_json
from filbert.lineage.elmo import Elmo, ElmoConfig, read_allennlp
from filbert.lineage.ulmfit import AwdLstm, AwdLstmConfig
from filbert.train.options import flat
from filbert.train.pretrain_options import PretrainOptions

FACTS, _TENSORS = "lineage.json", "model.safetensors"


def read_options(options: PretrainOptions, known: Collection[str]) -> dict[str, Any]:
    """Return the options by flat name; the training reads those named `known`.

    Raises:
        ConfigError: Another option is set.
        InputError: The folder exists.
    """
    given, usual = flat(options), flat(PretrainOptions())
    for name in sorted({*given} - {*known}):
        if given[name] != usual[name]:
            raise ConfigError(f"{name} is not an option of this recipe. Leave it out.")
    out, source = Path(options.run.out), Path(given["corpus"][0])
    check_target(out, source, overwrite=options.run.overwrite)
    return given


def save(model: Elmo | AwdLstm, listed: list[str], folder: Path) -> None:
    """Write the folder; `listed` are the words of a language model's table."""
    facts = {"kind": "ulmfit", "config": asdict(model.config), "words": listed}
    if isinstance(model, Elmo):
        facts = {"kind": "elmo", "config": asdict(model.config)}
    write_json(folder / FACTS, facts)
    save_file(model.state_dict(), folder / _TENSORS)


def load(folder: Path, kind: str) -> tuple[Elmo | AwdLstm, list[str]]:
    """Read a pre-trained model and its words; of ELMo also AllenNLP's weights, *.hdf5 and *.json.

    Raises:
        InputError, FormatError: The folder is missing, of the other kind or damaged.
    """
    published = sorted(folder.glob("*.hdf5"))
    if kind == "elmo" and published:
        options = sorted(folder.glob("*options.json"))
        if not options:
            raise InputError(f"{folder} has no options.json next to {published[0].name}.")
        return read_allennlp(published[0], read_json(options[0])), []
    if not (folder / FACTS).is_file():
        command = f"filbert pretrain {kind}-small --corpus FILE --out {folder}"
        raise InputError(f"{folder} has no {FACTS}. Make it with: {command}")
    facts = read_json(folder / FACTS)
    if facts.get("kind") != kind:
        raise FormatError(f"{folder} is of the kind {facts.get('kind')}, not {kind}.")
    model: Elmo | AwdLstm
    if kind == "elmo":
        filters = tuple(tuple(pair) for pair in facts["config"].pop("filters"))
        model = Elmo(ElmoConfig(**facts["config"], filters=filters))
    else:
        model = AwdLstm(AwdLstmConfig(**facts["config"]))
    model.load_state_dict(load_file(folder / _TENSORS))
    return model.eval(), facts.get("words", [])
