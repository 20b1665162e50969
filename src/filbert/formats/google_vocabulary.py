"""The vocabulary beside a Google checkpoint: vocab.txt, or ALBERT's SentencePiece model.

Google's format has no word on case: its scripts take it as a flag. Without a tokenizer_config.json,
which is honoured, a vocabulary with no upper-case entry lower-cases.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, FormatError, printable
from filbert.formats.model_files import BUNDLE_VOCABULARY, matching
from filbert.formats.tokenizer_conventions import read_tokenizer
from filbert.text.saving import switches
from filbert.text.tokenizer import Tokenizer

_WORDPIECE, _UNIGRAM = "vocab.txt", "spiece.model"
_SWITCHES = ("strip_accents", "tokenize_chinese_chars", "keep_accents")
# What tokenizers differ in: case, accents, Chinese, punctuation, blanks, numbers, special tokens.
_PROBES = (
    "The Film was GOOD, wasn't it? (ÉCOLE naïve Straße İstanbul Ångström)",
    "東京 は 日本の首都です。 数字 1,234.56 x² 3½ ﬁne",
    "  tabs\tand\nlines\u00a0and\u200bzero\u0000width  `` quoted '' unaffableness-es",
    "[MASK] of [SEP] [UNK] [CLS] <unk> [mask] e\u0301 \u1100\u1161",
)


def vocabulary_file(folder: Path) -> Path:
    """The vocabulary in a checkpoint's folder.

    Raises:
        FormatError: there is none, or there are several.
    """
    for name in (_WORDPIECE, _UNIGRAM):
        if (folder / name).is_file():
            return folder / name
    found = matching(folder, BUNDLE_VOCABULARY)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(printable(path.name) for path in found[:5])
    raise FormatError(
        f"{folder} holds {len(found)} vocabularies ({listed}); rename the right one to "
        f"{_WORDPIECE} or {_UNIGRAM}."
        if found
        else f"{folder} has no vocabulary: no {_WORDPIECE} and no SentencePiece model (*.model). "
        "Google's archives hold it beside the checkpoint."
    )


def read_google_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Google checkpoint, by the rules of Google's own code.

    Raises:
        FormatError: no vocabulary, or a damaged one.
    """
    path = vocabulary_file(folder)
    family = "albert" if path.suffix == ".model" else "bert"
    return read_tokenizer(path, model_type=family, as_google=True)


def write_vocabulary(tokenizer: Tokenizer, family: str, folder: Path) -> None:
    """Write the vocabulary, and a tokenizer_config.json where the file alone would be misread.

    Raises:
        ConfigError: the tokenizer does something that these files cannot say.
    """
    name = {"wordpiece": _WORDPIECE, "unigram": _UNIGRAM}.get(tokenizer.kind)
    if name is None or (name == _UNIGRAM and family != "albert"):
        allowed = "WordPiece or unigram" if family == "albert" else "WordPiece"
        raise ConfigError(
            f"Google's code for {family} reads {allowed} vocabularies; this tokenizer is "
            f"{tokenizer.kind}. Keep Hugging Face's layout."
        )
    whole = folder / "tokenizer"
    tokenizer.save(whole)
    if not (whole / name).is_file():
        raise ConfigError(
            f"This tokenizer cannot be written as a {name}. Keep Hugging Face's layout."
        )
    (whole / name).replace(folder / name)
    shutil.rmtree(whole)
    stated = {key: value for key, value in switches(tokenizer).items() if key in _SWITCHES}
    settings: list[dict[str, Any]] = [
        {},
        {"do_lower_case": tokenizer.lowercase},
        {"do_lower_case": tokenizer.lowercase, **stated},
    ]
    path, probe = folder / "tokenizer_config.json", ""
    for values in settings:
        if values:
            path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        found = _difference(tokenizer, read_google_tokenizer(folder))
        if found is None:
            return
        probe = found
    raise ConfigError(
        f"A {name} cannot say all that this tokenizer does: it would read {printable(probe)!r} "
        "differently. Keep Hugging Face's layout."
    )


def _difference(left: Tokenizer, right: Tokenizer) -> str | None:
    """A text that two tokenizers read differently, None where none was found."""
    added = [token.content for token in left.backend.get_added_tokens_decoder().values()]
    probes = [*_PROBES, *(f"a {content} b" for content in added[:100])]
    for first, second in zip(probes, [*probes[1:], probes[0]], strict=True):
        for text in (first, (first, second)):
            one, two = (tokenizer.encode([text])[0] for tokenizer in (left, right))
            if one.input_ids.tolist() != two.input_ids.tolist():
                return first
            if one.token_type_ids.tolist() != two.token_type_ids.tolist():
                return first
    return None


def special_ids(tokenizer: Tokenizer, family: str) -> dict[str, int]:
    """What Hugging Face's config.json says of the vocabulary; Google's configuration does not."""
    ids = {"pad_token_id": tokenizer.pad_id}
    if family == "albert":
        ids |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    return {key: number for key, number in ids.items() if number is not None}
