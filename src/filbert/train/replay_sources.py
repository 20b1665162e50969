"""The files that a recorded run was made from: found again, and compared by their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.columns import ColumnNames
from filbert.data.records import file_digest
from filbert.data.shards import Corpus
from filbert.errors import FilbertError, InputError
from filbert.files import read_json
from filbert.train.folder import read_run
from filbert.train.options import names_of
from filbert.train.provenance import BUILT_IN, base_model

_SHORT = 12


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the files of a run lie now; what is not given is looked for where it was.

    Attributes:
        train: training rows.
        dev: dev rows; for pre-training held-out text, files between commas.
        test: test rows.
        corpus: text or token shards, files between commas.
        model: the model that the run started from.
        tokenizer: folder of the vocabulary, for pre-training.
        new_tokens: the list of new vocabulary entries.
        data_root: folder in which all of them are looked for by their names.
    """

    train: str | None = None
    dev: str | None = None
    test: str | None = None
    corpus: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    new_tokens: str | None = None
    data_root: str | None = None


def found_sources(folder: Path, story: Mapping[str, Any], places: Places) -> dict[str, Any]:
    """Options that name files, with the paths of today.

    Looked for, in this order: where `places` says; as recorded, from here, from the folders around
    the model and from `data_root`; where run.json beside the model says. Only a file with the
    recorded hash is taken.

    Args:
        folder: of the model.
        story: its filbert.json.
        places: what the user said.

    Raises:
        InputError: a file is missing, or the ones found are not the recorded one.
    """
    search = _Search(folder, story, places)
    found: dict[str, Any] = {}
    is_pretraining = story.get("command") == "pretrain"
    for split in ("train", "dev", "test"):
        option = "corpus" if is_pretraining and split == "train" else split
        if not (search.options.get(option) or getattr(places, option)):
            if split == "train":
                raise InputError(
                    f"{folder / 'filbert.json'} does not say what the model was trained on. Name "
                    f"it with --{option}."
                )
            continue
        facts = story["data"].get(split) or {}
        found[option] = (
            search.corpus(option, facts)
            if is_pretraining
            else search.file(option, facts.get("path"), facts.get("sha256"), file_digest)
        )
    if is_pretraining:
        for option in ("tokenizer", "new_tokens"):
            recorded = search.options.get(option)
            if recorded:
                found[option] = getattr(places, option) or search.any_of(option, recorded)
    if search.options.get("model"):
        found["model"] = _same_base(search, story, places)
    return found


def dev_rows(folder: Path) -> tuple[str, ColumnNames] | None:
    """The rows that a fine-tuned model was judged by in training, and their columns.

    Args:
        folder: of the model.

    Returns:
        None where filbert.json names none, or they do not lie any more where they lay, unchanged.
    """
    try:
        story = read_json(folder / "filbert.json")
        facts = story["data"]["dev"]
        file = _Search(folder, story, Places()).file(
            "dev", facts["path"], facts["sha256"], file_digest
        )
        return file, ColumnNames.recorded(story["options"])
    except (OSError, FilbertError, AttributeError, LookupError, TypeError, ValueError):
        return None


class _Search:
    def __init__(self, folder: Path, story: Mapping[str, Any], places: Places) -> None:
        self.options: dict[str, Any] = story["options"]
        self.places = places
        self._around = [Path.cwd(), *folder.absolute().parents]
        if places.data_root is not None:
            self._around.insert(0, Path(places.data_root))
        run = read_run(folder.absolute().parent) or {}
        self._run_options = run.get("options") if isinstance(run.get("options"), dict) else {}

    def candidates(self, option: str, recorded: str, index: int = 0) -> Iterator[Path]:
        """Places where a file may be, each one once."""
        given = getattr(self.places, option)
        if given is not None:
            yield Path(_listed(given)[index] if index < len(_listed(given)) else given)
            return
        paths = [place / recorded for place in self._around]
        if self.places.data_root is not None:
            paths.insert(0, Path(self.places.data_root) / Path(recorded).name)
        typed = _listed((self._run_options or {}).get(option) or ())
        paths += [place / typed[index] for place in self._around if index < len(typed)]
        yield from dict.fromkeys(paths)

    def file(
        self,
        option: str,
        recorded: str | None,
        digest: str | None,
        digest_of: Callable[[Path], str | None],
        index: int = 0,
    ) -> str:
        """The path of the file with the recorded hash."""
        name = recorded or str(self.options.get(option))
        other: tuple[Path, str] | None = None
        for path in self.candidates(option, name, index):
            found = digest_of(path) if path.exists() else None
            if found is not None and digest in (None, found):
                return str(path)
            if found is not None:
                other = other or (path, found)
        flag = f"--{option.replace('_', '-')}"
        if other is None:
            given = getattr(self.places, option)
            raise InputError(
                f"{given or name} of the recorded run is not there. Name it with {flag}, or its "
                f"folder with --data-root."
            )
        raise InputError(
            f"{other[0]} has changed: its sha256 is {other[1][:_SHORT]}..., that of the recorded "
            f"run {str(digest)[:_SHORT]}.... Name the old file with {flag}."
        )

    def any_of(self, option: str, recorded: str) -> str:
        """The first place that exists; the recorded name where none does, as it may be an id."""
        paths = (path for path in self.candidates(option, recorded) if path.exists())
        return str(next(paths, recorded))

    def corpus(self, option: str, facts: Mapping[str, Any]) -> list[str]:
        """Token shards, or text files."""
        inputs = facts.get("inputs") or []
        recorded = _listed(self.options.get(option) or getattr(self.places, option))
        if len(recorded) == 1 and not self._is_text(option, recorded[0], inputs):
            return [self.file(option, recorded[0], facts.get("sha256"), _digest_of_shards)]
        digests = [entry.get("sha256") for entry in inputs]
        digests += [None] * (len(recorded) - len(digests))
        return [
            self.file(option, name, digests[index], file_digest, index)
            for index, name in enumerate(recorded)
        ]

    def _is_text(self, option: str, recorded: str, inputs: Sequence[Any]) -> bool:
        if any(path.is_file() for path in self.candidates(option, recorded)):
            return True
        names = {entry.get("path") for entry in inputs}
        return Path(recorded).name in names


def _digest_of_shards(path: Path) -> str | None:
    return Corpus.open(path).digest if (path / "manifest.json").is_file() else None


def _listed(given: str | Iterable[str]) -> list[str]:
    return list(names_of(given))


def _same_base(search: _Search, story: Mapping[str, Any], places: Places) -> str:
    """The base model's name of today, once its files are seen to be the recorded ones."""
    recorded = str(search.options["model"])
    base = story.get("base_model") or {}
    paths = [path for path in search.candidates("model", recorded) if _is_model(path)]
    names = [str(path) for path in paths]
    if places.model is not None:
        names = [places.model]
    elif base.get("hub_id") or not base or recorded in BUILT_IN:
        names.append(recorded)
    wrong = ""
    for name in names:
        try:
            unlike = _unlike_base(name, find_model(name), story)
        except FilbertError as error:  # a folder of the same name that is no model
            unlike = str(error)
        if not unlike:
            return name
        wrong = wrong or unlike
    raise InputError(
        wrong
        or f"{recorded}, the model that the run started from, is not there. Name it with --model."
    )


def _is_model(path: Path) -> bool:
    # A folder, an archive, or the prefix of a TensorFlow checkpoint; `find_model` judges the rest.
    return path.exists() or Path(f"{path}.index").is_file()


def _unlike_base(name: str, place: Path, story: Mapping[str, Any]) -> str:
    """A sentence on what is not as recorded; empty when all is."""
    base = story.get("base_model") or {}
    now = base_model(name, place if place.is_dir() else place.parent)["files"]
    for file, entry in (base.get("files") or {}).items():
        found, wanted = (now.get(file) or {}).get("sha256"), entry.get("sha256")
        if found != wanted:
            state = f"has the sha256 {found[:_SHORT]}..." if found else "is not there"
            return (
                f"{name} is not the model that the run started from: {file} {state}, "
                f"{str(wanted)[:_SHORT]}... was recorded. Name the right one with --model."
            )
    tokens = (story.get("tokenizer") or {}).get("fingerprint")
    if story.get("command") != "pretrain" and tokens is not None:
        found = read_tokenizer(place).fingerprint
        if found != tokens:
            return (
                f"{name} has another tokenizer than the recorded run: its fingerprint is "
                f"{found[:_SHORT]}..., not {tokens[:_SHORT]}.... Name the right model with --model."
            )
    return ""
