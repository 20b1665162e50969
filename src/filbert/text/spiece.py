"""Read a SentencePiece model file without SentencePiece: its pieces, scores and character map.

The file is one protocol buffer message, `ModelProto` of google/sentencepiece,
src/sentencepiece_model.proto: field 1 = pieces {1 text, 2 score, 3 type}, field 2 = training {3
algorithm, 40 unknown id}, field 3 = normalisation {2 compiled character map}. Everything else in it
is skipped.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from filbert.errors import FormatError

UNIGRAM = 1  # TrainerSpec.ModelType
SPACE = "▁"

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a unigram vocabulary is made of. A score is a natural log-probability."""

    pieces: tuple[tuple[str, float], ...]
    unk_id: int
    charsmap: bytes


@contextlib.contextmanager
def damage_named(what: str | Path) -> Iterator[None]:
    """Turn what the `tokenizers` library raises over damaged files into a FormatError about `what`.

    It raises bare Exception, or PanicException, which is no Exception, from within its Rust code.
    """
    try:
        yield
    except BaseException as error:
        if type(error) in (Exception, ValueError) or type(error).__name__ == "PanicException":
            raise FormatError(f"{what}: damaged ({error}). Fetch the file again.") from error
        raise


class _Damaged(ValueError):
    """The bytes are not the message they should be."""


def read_spiece(path: Path) -> SentencePieceModel:
    """Parse the file at `path`.

    Raises:
        FormatError: the file is cut off, damaged, or holds another algorithm than unigram.
    """
    data = path.read_bytes()
    pieces: list[tuple[str, float]] = []
    algorithm, unk_id, charsmap = UNIGRAM, 0, b""
    try:
        for field, value in _fields(data):
            if field == 1:
                pieces.append(_piece(_as_bytes(value)))
            elif field == 2:
                training = dict(_fields(_as_bytes(value)))
                algorithm = training.get(3, UNIGRAM)  # type: ignore[assignment]
                unk_id = training.get(40, 0)  # type: ignore[assignment]
            elif field == 3:
                charsmap = _as_bytes(dict(_fields(_as_bytes(value))).get(2, b""))
        if not pieces:
            raise _Damaged("it holds no pieces")
        if len({text for text, _ in pieces}) != len(pieces):
            raise _Damaged("a piece stands in it twice")
        if not isinstance(unk_id, int) or unk_id >= len(pieces):
            raise _Damaged("its unknown piece is not in it")
        if charsmap and (
            len(charsmap) < 4 or struct.unpack_from("<I", charsmap)[0] > len(charsmap) - 4
        ):
            raise _Damaged("its character map is cut off")
    except (_Damaged, struct.error) as error:
        raise FormatError(
            f"{path}: not a whole SentencePiece model: {error}. Fetch the file again."
        ) from error
    if algorithm != UNIGRAM:
        raise FormatError(
            f"{path}: a SentencePiece model that is not unigram (algorithm {algorithm}). "
            "Give a folder with its tokenizer.json instead."
        )
    return SentencePieceModel(tuple(pieces), unk_id, charsmap)


def build_unigram(model: SentencePieceModel, *, lowercase: bool, keep_accents: bool) -> Tokenizer:
    """The tokenizer that ALBERT's own code is: normalise, split on whitespace, best segmentation.

    Source: google-research/albert, tokenization.py, preprocess_text and encode_pieces. That code
    cuts a piece such as "1," again into "1" and ","; a score of -100 for those pieces has the same
    effect.
    """
    scored = [
        (text, score - 100.0 if _ends_in_digit_comma(text) else score)
        for text, score in model.pieces
    ]
    backend = Tokenizer(models.Unigram(scored, unk_id=model.unk_id, byte_fallback=False))
    steps: list[normalizers.Normalizer] = [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
    ]
    if not keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    backend.normalizer = normalizers.Sequence(steps)
    metaspace = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    return backend


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) >= 2 and piece[-1] == "," and piece[-2].isdigit()


def _piece(data: bytes) -> tuple[str, float]:
    parts = dict(_fields(data))
    try:
        text = _as_bytes(parts.get(1, b"")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Damaged("a piece is not UTF-8") from error
    score = struct.unpack("<f", _as_bytes(parts.get(2, b"\0\0\0\0")))[0]
    if not text or not math.isfinite(score):
        raise _Damaged("a piece is empty or its score is not a number")
    return text, score


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Damaged("a number stands where a text is expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of one message in file order: varints as int, all other kinds as their bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise _Damaged(f"unknown field kind {kind} at byte {at}")
        if at + size > len(data):
            raise _Damaged(f"it ends at byte {len(data)}, in the middle of a field")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Damaged(f"it ends at byte {len(data)}, in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _Damaged(f"a number at byte {at} does not end")
