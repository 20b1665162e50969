"""SentencePiece model files, read and written without SentencePiece: pieces, scores, characters.

The file is one protocol buffer message, `ModelProto` of google/sentencepiece,
src/sentencepiece_model.proto: field 1 = pieces {1 text, 2 score, 3 type}, field 2 = training {3
algorithm, 40 unknown id}, field 3 = normalization {2 compiled character map}. Other fields are
skipped. SentencePiece reads the files written here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from filbert.errors import FormatError
from filbert.protobuf import Damaged, as_bytes, as_number, encode_field, encode_fixed32, fields

UNIGRAM = 1  # TrainerSpec.ModelType
SPACE = "▁"
COMMA_PENALTY = 100.0  # see `build_unigram`
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # ModelProto.SentencePiece.Type


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """A unigram vocabulary; a score is a natural log-probability."""

    pieces: tuple[tuple[str, float], ...]
    unk_id: int
    charsmap: bytes


@dataclass(frozen=True, slots=True)
class PieceOrder:
    """Ids that are not the model file's own: its first pieces are replaced by others.

    Attributes:
        head: The entries in their place, with scores.
        tail: The last entries.
        unknown: The entry of `head` for unknown text.
    """

    skipped: tuple[str, ...]
    head: tuple[tuple[str, float], ...]
    tail: tuple[str, ...]
    unknown: str

    def apply(self, model: SentencePieceModel, path: Path) -> SentencePieceModel:
        """Return the model of the file at `path` as the vocabulary numbers it."""
        begin = tuple(text for text, _ in model.pieces[: len(self.skipped)])
        if sorted(begin) != sorted(self.skipped) or model.unk_id >= len(begin):
            raise FormatError(
                f"{path}: begins with {' '.join(begin)}, where {' '.join(self.skipped)} is "
                "expected. Give a folder with its tokenizer.json instead."
            )
        tail = tuple((text, 0.0) for text in self.tail)
        pieces = (*self.head, *model.pieces[len(begin) :], *tail)
        if len({text for text, _ in pieces}) != len(pieces):
            names = " ".join(text for text, _ in (*self.head, *tail))
            raise FormatError(f"{path}: has a piece that is added to it here: one of {names}.")
        unk_id = [text for text, _ in self.head].index(self.unknown)
        return SentencePieceModel(pieces, unk_id, model.charsmap)

    def undo(self, model: SentencePieceModel) -> SentencePieceModel:
        """Return the model as the file numbers it, or raise a FormatError for another order."""
        end = len(model.pieces) - len(self.tail)
        head = tuple(text for text, _ in self.head)
        texts = tuple(text for text, _ in model.pieces)
        if texts[: len(head)] != head or texts[end:] != self.tail or end < len(head):
            raise FormatError(
                f"The vocabulary does not begin with {' '.join(head)} and end in "
                f"{' '.join(self.tail)}, so no SentencePiece model can express it."
            )
        begin = tuple((text, 0.0) for text in self.skipped)
        unk_id = self.skipped.index(self.unknown)
        return SentencePieceModel((*begin, *model.pieces[len(head) : end]), unk_id, model.charsmap)


def parse_spiece(data: bytes, path: Path) -> SentencePieceModel:
    """Return the model in the content of the file at `path`, or raise a FormatError."""
    pieces: list[tuple[str, float]] = []
    algorithm, unk_id, charsmap = UNIGRAM, 0, b""
    try:
        for field, value in fields(data):
            if field == 1:
                pieces.append(_piece(as_bytes(value)))
            elif field == 2:
                training = dict(fields(as_bytes(value)))
                algorithm = as_number(training.get(3, UNIGRAM))
                unk_id = as_number(training.get(40, 0))
            elif field == 3:
                charsmap = as_bytes(dict(fields(as_bytes(value))).get(2, b""))
        if not pieces:
            raise Damaged("it holds no pieces")
        if len({text for text, _ in pieces}) != len(pieces):
            raise Damaged("a piece is in it twice")
        if not 0 <= unk_id < len(pieces):
            raise Damaged("its unknown piece is not in it")
        if charsmap and (
            len(charsmap) < 4 or struct.unpack_from("<I", charsmap)[0] > len(charsmap) - 4
        ):
            raise Damaged("its character map is cut off")
    except (Damaged, struct.error) as error:
        raise FormatError(
            f"{path}: not a whole SentencePiece model: {error}. Fetch the file again."
        ) from error
    if algorithm != UNIGRAM:
        raise FormatError(
            f"{path}: a SentencePiece model that is not unigram (algorithm {algorithm}). "
            "Give a folder with its tokenizer.json instead."
        )
    return SentencePieceModel(tuple(pieces), unk_id, charsmap)


def write_spiece(model: SentencePieceModel, control: Collection[str]) -> bytes:
    """Return the content of a model file that SentencePiece itself reads, with the same ids.

    It normalizes by the model's character map, joins spaces and puts one before a text. Such a file
    cannot express other normalization, such as lower-casing. The pieces in `control` never occur in
    a text.
    """
    parts = []
    for number, (text, score) in enumerate(model.pieces):
        kind = _UNKNOWN if number == model.unk_id else _CONTROL if text in control else _NORMAL
        entry = encode_field(1, text) + encode_fixed32(2, struct.pack("<f", score))
        parts.append(encode_field(1, entry if kind == _NORMAL else entry + encode_field(3, kind)))
    ids = {text: number for number, (text, _) in enumerate(model.pieces)}
    training = encode_field(3, UNIGRAM) + encode_field(4, len(ids))
    # 40 unknown, 41 begin, 42 end, 43 padding; -1: there is none.
    marks = (model.unk_id, ids.get("<s>", -1), ids.get("</s>", -1), ids.get("<pad>", -1))
    for place, number in enumerate(marks, 40):
        training += encode_field(place, number)
    training += encode_field(45, model.pieces[model.unk_id][0])
    normalising = encode_field(1, "nmt_nfkc" if model.charsmap else "identity")
    if model.charsmap:
        normalising += encode_field(2, model.charsmap)
    for place in (3, 4, 5):  # a space before the text, spaces joined, spaces as SPACE
        normalising += encode_field(place, 1)
    return b"".join(parts) + encode_field(2, training) + encode_field(3, normalising)


def build_plain_unigram(model: SentencePieceModel) -> Tokenizer:
    """Return SentencePiece's own tokenizer, for a model that keeps case and accents."""
    backend = Tokenizer(models.Unigram(list(model.pieces), model.unk_id, byte_fallback=False))
    if model.charsmap:
        backend.normalizer = normalizers.Precompiled(model.charsmap)
    _split_on_spaces(backend)
    return backend


def build_unigram(model: SentencePieceModel, *, lowercase: bool, keep_accents: bool) -> Tokenizer:
    """Return the tokenizer of ALBERT's code: normalize, split on whitespace, best segmentation.

    Source: google-research/albert, tokenization.py, preprocess_text and encode_pieces. That code
    splits a piece such as "1," into "1" and ","; a score of -100 for those pieces has the same
    effect.
    """
    scored = [
        (text, score - COMMA_PENALTY if ends_in_digit_comma(text) else score)
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
    _split_on_spaces(backend)
    return backend


def _split_on_spaces(backend: Tokenizer) -> None:
    metaspace = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")


def ends_in_digit_comma(piece: str) -> bool:
    """Return whether it is a piece such as "1,"."""
    return len(piece) >= 2 and piece[-1] == "," and piece[-2].isdigit()


def _piece(data: bytes) -> tuple[str, float]:
    parts = dict(fields(data))
    try:
        text = as_bytes(parts.get(1, b"")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged("a piece is not UTF-8") from error
    score = struct.unpack("<f", as_bytes(parts.get(2, b"\0\0\0\0")))[0]
    if not text or not math.isfinite(score):
        raise Damaged("a piece is empty or its score is not a number")
    return text, score
