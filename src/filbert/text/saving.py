"""Writes tokenizers: tokenizer.json with its companions, and the classic files of each kind."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from filbert.errors import FormatError, printable
from filbert.text.spiece import (
    COMMA_PENALTY,
    SentencePieceModel,
    ends_in_digit_comma,
    parse_spiece,
    write_spiece,
)
from filbert.text.vocabulary import (
    SPIECE_NAMES,
    Convention,
    Vocabulary,
    lowercases,
    read_vocabulary,
)

# The generic class takes tokenizer.json as it is. Those named after a family rebuild it from the
# classic files, which cannot express everything (transformers 5: words have at most 100 letters).
GENERIC_CLASS = "PreTrainedTokenizerFast"

# Copied when a loaded tokenizer is saved again; the rest of tokenizer_config.json is written new.
_KEPT_SETTINGS = ("clean_up_tokenization_spaces", "model_max_length", "padding_side")

# The library may change the last bits of a score, far below a difference between segmentations.
_SCORE_DIGITS = 6


def save_vocabulary(vocabulary: Vocabulary, folder: str | Path, *, token_type_ids: bool) -> None:
    """Write a folder that every reader of such folders understands; see `Tokenizer.save`."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    content, convention = _content(vocabulary), vocabulary.convention
    names = {f"{role}_token": name for role, name in vocabulary.specials.items()}
    given = vocabulary.settings
    settings = {key: given[key] for key in _KEPT_SETTINGS if key in given}
    settings |= {**names, **switches(vocabulary)}
    if convention.cls_last:
        settings["padding_side"] = "left"
    settings["tokenizer_class"] = GENERIC_CLASS
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    if token_type_ids:
        settings["model_input_names"].insert(1, "token_type_ids")
    if vocabulary.max_length is not None:
        settings["model_max_length"] = vocabulary.max_length
    settings["added_tokens_decoder"] = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"}
        for token in content["added_tokens"]
    }
    for name in _CLASSIC_NAMES:
        (target / name).unlink(missing_ok=True)
    (target / "tokenizer.json").write_text(vocabulary.backend.to_str(), encoding="utf-8")
    _write_json(target / "tokenizer_config.json", settings)
    _write_json(target / "special_tokens_map.json", names)
    try:
        files = vocabulary_files(vocabulary)
    except FormatError:
        return  # only tokenizer.json can express it
    for name, data in files.items():
        (target / name).write_bytes(data)
    file = target / next(iter(files))
    if _is_expressed_by(file, vocabulary, convention):
        settings["tokenizer_class"] = convention.class_name
        _write_json(target / "tokenizer_config.json", settings)


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the classic files of the vocabulary by name, as Google's and older tools read them.

    WordPiece: vocab.txt, one entry a line; an id without entry gets an [unused] one. Byte-level
    BPE: vocab.json and merges.txt. Unigram: spiece.model, or the name that the family has for it;
    the very file that was read, if nothing has changed since.
    Added tokens beyond the vocabulary are in vocab.txt, or else in added_tokens.json.

    Raises:
        FormatError: Such a file cannot hold this vocabulary.
    """
    if vocabulary.kind == "symbols":
        raise FormatError("Symbols have no classic file: a vocab.txt would be read as WordPiece.")
    content = _content(vocabulary)
    files = _WRITERS[vocabulary.kind](vocabulary, content)
    known = vocabulary.backend.get_vocab(with_added_tokens=False)
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    beyond = {name: number for name, number in added.items() if name not in known}
    if beyond and vocabulary.kind != "wordpiece":
        files["added_tokens.json"] = _json_bytes(beyond)
    return files


def switches(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the entries of tokenizer_config.json about case, accents and spaces."""
    content = _content(vocabulary)
    values: dict[str, Any] = {"do_lower_case": lowercases(vocabulary.backend)}
    steps = _steps(content["normalizer"])
    if vocabulary.kind == "wordpiece":
        for step in steps:
            if step["type"] == "BertNormalizer":
                values["strip_accents"] = step["strip_accents"]
                values["tokenize_chinese_chars"] = step["handle_chinese_chars"]
    elif vocabulary.kind == "unigram":
        values["keep_accents"] = all(step["type"] != "StripAccents" for step in steps)
    else:
        for step in _steps(content["pre_tokenizer"], "pretokenizers"):
            if step["type"] == "ByteLevel":
                values["add_prefix_space"] = step["add_prefix_space"]
    return values


def fingerprint(backend: Backend) -> str:
    """Return the SHA-256 of everything that decides which ids a text becomes."""
    content = json.loads(backend.to_str())
    model = content["model"]
    if isinstance(model["vocab"], list):
        vocab = [[piece, f"{score:.{_SCORE_DIGITS}g}"] for piece, score in model["vocab"]]
        content = {**content, "model": {**model, "vocab": vocab}}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_expressed_by(file: Path, vocabulary: Vocabulary, convention: Convention) -> bool:
    """Return whether the family's class rebuilds the same tokenizer from the file and settings."""
    if not convention.is_exact or vocabulary.specials != dict(convention.specials):
        return False
    if convention.unk_id not in (None, vocabulary.id_of("unk")):
        return False
    try:
        again = read_vocabulary(file, convention=convention)
    except FormatError:
        return False
    return fingerprint(again.backend) == fingerprint(vocabulary.backend)


def _wordpiece(vocabulary: Vocabulary, content: dict[str, Any]) -> dict[str, bytes]:
    ids = vocabulary.backend.get_vocab(with_added_tokens=True)
    lines: list[str | None] = [None] * vocabulary.size
    for token, number in ids.items():
        if "\n" in token or "\r" in token or not token:
            raise FormatError(
                f"The entry {printable(token)!r} with id {number} cannot be a line of vocab.txt."
            )
        lines[number] = token
    # No text is tokenized into these: a bracket is a word of its own.
    whole = [f"[unused-{n}]" if line is None else line for n, line in enumerate(lines)]
    return {"vocab.txt": ("\n".join(whole) + "\n").encode()}


def _bytebpe(vocabulary: Vocabulary, content: dict[str, Any]) -> dict[str, bytes]:
    lines = ["#version: 0.2"]
    for left, right in content["model"]["merges"]:
        if len(f"{left} {right}x".split()) != 2:
            raise FormatError(
                f"The merge of {printable(left)!r} and {printable(right)!r} cannot be a line of "
                "merges.txt."
            )
        lines.append(f"{left} {right}")
    return {
        "vocab.json": json.dumps(content["model"]["vocab"], ensure_ascii=False).encode(),
        "merges.txt": ("\n".join(lines) + "\n").encode(),
    }


def _unigram(vocabulary: Vocabulary, content: dict[str, Any]) -> dict[str, bytes]:
    order, name = vocabulary.convention.order, vocabulary.convention.file
    model = content["model"]
    pieces = tuple((text, score) for text, score in model["vocab"])
    if model.get("byte_fallback") or model["unk_id"] is None or not all(p[0] for p in pieces):
        raise FormatError("This unigram vocabulary cannot be written as a SentencePiece model.")
    if order is None:
        pieces = tuple((text, _unpenalised(text, score)) for text, score in pieces)
    maps = [step for step in _steps(content["normalizer"]) if step["type"] == "Precompiled"]
    charsmap = base64.b64decode(maps[0]["precompiled_charsmap"] or "") if maps else b""
    written = SentencePieceModel(pieces, model["unk_id"], charsmap)
    if order is not None:
        written = order.undo(written)
    if vocabulary.spiece is not None and _same(written, vocabulary.spiece):
        return {name: vocabulary.spiece}
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    control = special.union(order.skipped if order else ())
    return {name: write_spiece(written, control)}


_WRITERS = {"wordpiece": _wordpiece, "bytebpe": _bytebpe, "unigram": _unigram}
_CLASSIC_NAMES = ("vocab.txt", "vocab.json", "merges.txt", *SPIECE_NAMES, "added_tokens.json")


def _same(model: SentencePieceModel, data: bytes) -> bool:
    """Return whether the content of a model file gives these pieces."""
    try:
        other = parse_spiece(data, Path(SPIECE_NAMES[0]))
    except FormatError:
        return False
    return write_spiece(model, ()) == write_spiece(other, ())


def _unpenalised(text: str, score: float) -> float:
    # No score that was learned is so low.
    penalised = ends_in_digit_comma(text) and score < -COMMA_PENALTY
    return score + COMMA_PENALTY if penalised else score


def _steps(part: dict[str, Any] | None, inside: str = "normalizers") -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for one in part[inside] for step in _steps(one, inside)]


def _content(vocabulary: Vocabulary) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(vocabulary.backend.to_str())
    return content


def _json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(_json_bytes(content))
