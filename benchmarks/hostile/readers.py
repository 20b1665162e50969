"""What is fuzzed: for each reader valid files, which of them are damaged, and how they are read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from filbert.errors import FormatError, RunError
from hostile import bundles, corpora, models, vocabularies
from hostile.damage import damage_bytes, damage_json, damage_lines
from hostile.made import Files
from hostile.tensor_files import damage_pickle_file, damage_safetensors


@dataclass(frozen=True)
class Reader:
    """One reader under fire.

    Attributes:
        name: as it is asked for.
        make: the valid files to start from, each variant a table of contents by file name.
        targets: the names of the files to damage, by their ends.
        read: what is under test; takes the folder.
        allowed: the exceptions that are no failure.
    """

    name: str
    make: Callable[[], list[Files]]
    targets: tuple[str, ...]
    read: Callable[[Path], object]
    allowed: tuple[type[Exception], ...] = (FormatError,)

    def bases(self) -> list[Files]:
        """The valid files, made once; those that hold a target."""
        made = _made(self.make)
        return [files for files in made if any(name.endswith(self.targets) for name in files)]

    def damage(self, rng: Random, files: Files) -> Files:
        """The files with one of the targets, sometimes two, damaged."""
        files = dict(files)
        names = sorted(name for name in files if name.endswith(self.targets))
        for name in rng.sample(names, 1 if rng.random() < 0.85 or len(names) < 2 else 2):
            if rng.random() < 0.01:
                del files[name]
            else:
                files[name] = _damage(rng, name, files[name])
        return files


@functools.cache
def _made(make: Callable[[], list[Files]]) -> list[Files]:
    return make()


_STRUCTURED: dict[str, Callable[[Random, bytes], bytes]] = {
    ".json": damage_json,
    ".safetensors": damage_safetensors,
    ".bin": damage_pickle_file,
    ".txt": damage_lines,
    ".model": vocabularies.hostile_spiece,
    ".index": bundles.hostile_index,
}


def _damage(rng: Random, name: str, data: bytes) -> bytes:
    structured = next((how for end, how in _STRUCTURED.items() if name.endswith(end)), None)
    if structured is None or rng.random() < 0.2:
        return damage_bytes(rng, data)
    return structured(rng, data)


def _vocabulary(fill: Callable[[Path], None]) -> Callable[[], list[Files]]:
    return functools.partial(vocabularies.vocabulary_folders, fill)


_TABLE = (
    Reader("config", models.model_folders, ("config.json",), models.read_model),
    Reader("safetensors", models.model_folders, (".safetensors",), models.read_tensors),
    Reader("shards", models.sharded_folders, (".json", ".bin", ".safetensors"), models.read_model),
    Reader("pickle", models.pickle_folders, (".bin",), models.read_tensors),
    Reader(
        "tokenizer",
        vocabularies.saved_tokenizers,
        ("tokenizer.json",),
        vocabularies.read_tokenizer,
    ),
    Reader(
        "settings",
        vocabularies.vocabulary_folders,
        ("_config.json", "_map.json"),
        vocabularies.read_tokenizer,
    ),
    Reader(
        "wordpiece",
        _vocabulary(vocabularies.write_wordpiece),
        ("vocab.txt",),
        vocabularies.read_tokenizer,
    ),
    Reader(
        "bytebpe",
        _vocabulary(vocabularies.write_bytebpe),
        ("vocab.json", "merges.txt"),
        vocabularies.read_tokenizer,
    ),
    Reader(
        "spiece",
        _vocabulary(vocabularies.write_spiece),
        ("spiece.model",),
        vocabularies.read_tokenizer,
    ),
    Reader(
        "vectors",
        models.finished_folders,
        (
            "modules.json",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
        ),
        models.read_vectors,
    ),
    Reader(
        "filbert",
        models.finished_folders,
        ("filbert.json",),
        models.read_predictor,
    ),
    Reader("bundle", bundles.google_folders, (".index", "-of-00001"), bundles.read_google),
    Reader("google", bundles.google_folders, ("_config.json",), bundles.read_google),
    Reader("corpus", corpora.corpus_folders, (".json", ".npy"), corpora.read_corpus),
    Reader(
        "state",
        corpora.state_folders,
        (".json", ".safetensors"),
        corpora.read_state,
        (FormatError, RunError),
    ),
)
READERS = {reader.name: reader for reader in _TABLE}
