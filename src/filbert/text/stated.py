"""What the small JSON files of a tokenizer's folder state, and what its family leaves unsaid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from reprlib import repr as short
from typing import Any

from tokenizers import AddedToken, Tokenizer

from filbert.errors import FormatError, printable
from filbert.text.spiece import PieceOrder

_SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# The largest published tokenizer.json has half of this. An empty line costs far more than its byte.
MAX_BYTES = 64 * 2**20
MAX_JSON_BYTES = 4 * 2**20
_MAX_LINES = 4_000_000
_LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Convention:
    """What a family's classic files (vocab.txt and the like) do not say themselves.

    Attributes:
        class_name: the class of transformers that reads those files, for tokenizer_config.json.
        specials: the special tokens by role (cls, sep, mask, pad, unk).
        double_separator: a pair is CLS A SEP SEP B SEP, all of token type 0, and the mask takes the
            space before it.
        order: how the pieces of a SentencePiece model become ids; None: as they stand.
        unk_id: the one that the class insists on, if it does.
    """

    class_name: str
    specials: Mapping[str, str] = field(default_factory=dict)
    double_separator: bool = False
    order: PieceOrder | None = None
    unk_id: int | None = None

    def settings(self) -> dict[str, str]:
        """The special tokens as tokenizer_config.json would state them."""
        return {f"{role}_token": name for role, name in self.specials.items()}


def read_settings(folder: Path) -> dict[str, Any]:
    """special_tokens_map.json and, over it, tokenizer_config.json; empty without them."""
    settings = read_json(folder / "special_tokens_map.json")
    path = folder / "tokenizer_config.json"
    settings.update(read_json(path))
    for key in _SWITCHES:
        if not isinstance(settings.get(key), bool | None):
            raise FormatError(f"{path}: {key} is {short(settings[key])}; it must be true or false.")
    return settings


def read_json(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object in a JSON file of at most `most` bytes; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(read_text(path, most=most))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: broken JSON: {error}.") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: expected a JSON object.")
    return content


def read_data(path: Path, *, most: int = MAX_BYTES) -> bytes:
    """The content of a file.

    Raises:
        FormatError: it has more than `most` bytes.
    """
    size = path.stat().st_size
    if size > most:
        raise FormatError(f"{path} has {size:,} bytes; no tokenizer's {path.name} has so many.")
    return path.read_bytes()


def read_text(path: Path, *, most: int = MAX_BYTES) -> str:
    """A UTF-8 file, without its byte order mark."""
    data = read_data(path, most=most)
    if path.suffix == ".txt" and data.count(b"\n") > _MAX_LINES:
        raise FormatError(f"{path} has more than {_MAX_LINES:,} lines, so it is no vocabulary.")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{path}: byte {error.start} is not UTF-8. Fetch the file again."
        ) from error


def add_tokens(
    backend: Tokenizer, specials: list[AddedToken], folder: Path, settings: dict[str, Any]
) -> None:
    """Make known which tokens are found before a text is cut: the specials, and what is stated.

    `added_tokens_decoder` of tokenizer_config.json (id: token with flags) goes over
    added_tokens.json (token: id), that over `specials`.

    Raises:
        FormatError: an entry that is no token, or an id that cannot be given to it.
    """
    tokens = {token.content: token for token in specials}
    ids: dict[str, int] = {}
    path = folder / "added_tokens.json"
    for content, number in read_json(path).items():
        ids[content] = _id(path, content, number)
        tokens.setdefault(content, AddedToken(content, normalized=False))
    path = folder / "tokenizer_config.json"
    stated = settings.get("added_tokens_decoder", {})
    if not isinstance(stated, dict):
        raise FormatError(f"{path}: added_tokens_decoder is not an object of id: token.")
    for number, entry in stated.items():
        flags = {flag: entry.get(flag, False) for flag in _FLAGS} if isinstance(entry, dict) else {}
        text = entry.get("content") if flags else None
        if not isinstance(text, str) or not all(isinstance(v, bool) for v in flags.values()):
            raise FormatError(f"{path}: added_tokens_decoder: {short(entry)} is not a token.")
        digits = number.isdecimal() and len(number) <= 10
        ids[text] = _id(path, text, int(number) if digits else number)
        tokens[text] = AddedToken(text, **flags)
    # Ids are given by the library, in the order of adding: those without one come last.
    order = sorted(tokens, key=lambda name: ids.get(name, _LARGEST_ID))
    for special, names in groupby(order, lambda name: tokens[name].special):
        adding = backend.add_special_tokens if special else backend.add_tokens
        adding([tokens[name] for name in names])
    for content, number in ids.items():
        found = backend.token_to_id(content)
        if found != number:
            raise FormatError(
                f"{folder}: the added token {printable(content)!r} has the id {number}, but the "
                f"vocabulary's files give it {found}. They belong to different models, or a token "
                "is missing."
            )


def _id(path: Path, content: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST_ID:
        raise FormatError(f"{path}: {printable(content)!r} has the id {short(number)}.")
    return number
