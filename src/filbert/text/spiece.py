"""SentencePiece model files, read and written without SentencePiece: pieces, scores, characters.

The file is one protocol buffer message, `ModelProto` of google/sentencepiece,
src/sentencepiece_model.proto: field 1 = pieces {1 text, 2 score, 3 type}, field 2 = training {3
algorithm, 40 unknown id}, field 3 = normalization {2 compiled character map}. Other fields are
skipped. SentencePiece reads the files written here.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from reprlib import repr as short
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from filbert import files
from filbert.errors import FormatError, printable
from filbert.files import MAX_JSON_BYTES
from filbert.protobuf import Damaged, as_bytes, as_number, encode_field, encode_fixed32, fields

# SentencePiece files

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


@contextlib.contextmanager
def damage_named(what: str | Path) -> Iterator[None]:
    """Convert exceptions of the `tokenizers` library about damaged files into a FormatError.

    It raises bare Exception, or PanicException, which is no Exception, from its Rust code.
    """
    try:
        yield
    except BaseException as error:
        known = (Exception, ValueError, OverflowError, TypeError, UnicodeEncodeError)
        if type(error) in known or type(error).__name__ == "PanicException":
            reason = printable(str(error), 200)
            raise FormatError(f"{what}: damaged ({reason}). Fetch the file again.") from error
        raise


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
    cannot express other normalization, such as lower-casing.

    Args:
        control: The pieces that never occur in a text.
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


# JSON files

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# The largest published tokenizer.json has half of this.
MAX_BYTES = 64 * 2**20
_MAX_LINES = 4_000_000
LARGEST_ID = 2**31 - 1


@dataclass(frozen=True)
class Convention:
    """What a family's classic files (vocab.txt and others) do not contain.

    Attributes:
        class_name: The class of transformers that reads those files, for tokenizer_config.json.
        specials: The special tokens by role (cls, sep, mask, pad, unk).
        double_separator: A pair is CLS A SEP SEP B SEP, all of token type 0, and the mask takes the
            space before it.
        cls_last: CLS, of a token type of its own, ends a sequence, and the mask takes the space
            before it (XLNet). Other tools have to pad on the left.
        order: How the pieces of a SentencePiece model become ids; None: in their order.
        unk_id: The one that the class requires, if any.
        file: Usual name of the SentencePiece model.
        is_exact: Whether that class of transformers 5 gives the ids of the model file.
    """

    class_name: str
    specials: Mapping[str, str] = field(default_factory=dict)
    double_separator: bool = False
    cls_last: bool = False
    order: PieceOrder | None = None
    unk_id: int | None = None
    file: str = "spiece.model"
    is_exact: bool = True


def read_settings(folder: Path) -> dict[str, Any]:
    """Return special_tokens_map.json updated by tokenizer_config.json; empty without them."""
    return read_json(folder / "special_tokens_map.json") | read_json(
        folder / "tokenizer_config.json"
    )


def read_json(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file of at most `most` bytes; empty without the file."""
    return files.read_json(path, most=most) if path.is_file() else {}


def read_data(path: Path) -> bytes:
    """Return the content of a file, or raise a FormatError above MAX_BYTES."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(f"{path} has {size:,} bytes; no tokenizer's {path.name} has so many.")
    return path.read_bytes()


def read_text(path: Path) -> str:
    """Return a UTF-8 file, without its byte order mark."""
    data = read_data(path)
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
    """Add the tokens that are found before a text is split: special ones, and those of the files.

    `added_tokens_decoder` of tokenizer_config.json (id: token with flags) takes precedence over
    added_tokens.json (token: id), and that over `specials`.

    Raises:
        FormatError: An entry that is no token, or an id that cannot be given to it.
    """
    tokens = {token.content: token for token in specials}
    ids: dict[str, Any] = read_json(folder / "added_tokens.json")
    for content in ids:
        tokens.setdefault(content, AddedToken(content, normalized=False))
    try:
        for number, entry in settings.get("added_tokens_decoder", {}).items():
            text = entry["content"]
            tokens[text] = AddedToken(text, **{flag: entry.get(flag, False) for flag in _FLAGS})
            ids[text] = int(number)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{folder / 'tokenizer_config.json'}: damaged: added_tokens_decoder is not an object "
            f"of id: token ({printable(str(error))}). Fetch the file again."
        ) from error
    # The library gives ids in the order of adding; those without a stated id come last.
    known = {name: number for name, number in ids.items() if type(number) is int}
    order = sorted(tokens, key=lambda name: known.get(name, LARGEST_ID))
    for special, names in groupby(order, lambda name: tokens[name].special):
        adding = backend.add_special_tokens if special else backend.add_tokens
        adding([tokens[name] for name in names])
    for content, number in ids.items():
        given = backend.token_to_id(content)
        if type(number) is not int or given != number:
            raise FormatError(
                f"{folder}: the added token {printable(content)!r} has the id {short(number)}, but "
                f"the vocabulary's files give it {given}. They belong to different models, or a "
                "token is missing."
            )
