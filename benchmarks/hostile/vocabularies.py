"""Valid tokenizer files, small, hostile SentencePiece messages, and how they are read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from filbert.text.tokenizer import Tokenizer
from hostile.damage import NASTY_INTEGERS, NASTY_LINES
from hostile.made import Files, encode_fields, folder_files

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "film", "was", "not", "very"),
    *("good", "bad", "he", "she", "it", "to", "see", "##ly", "##ing", "##s", ",", ".", "1", "2"),
]
TEXTS = (
    "The film was very good, not bad.",
    "",
    "x",
    ("a film", "to see it [MASK]"),
    "Ünï\u200b中文",
)


def read_tokenizer(folder: Path) -> None:
    """Load, use and save a tokenizer."""
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(4_000_000, 2, folder)
    for encoding in tokenizer.encode(TEXTS):
        tokenizer.decode(encoding.input_ids)
    tokenizer.save(folder / "saved")


def write_wordpiece(path: Path) -> None:
    """vocab.txt."""
    (path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")


def write_bytebpe(path: Path) -> None:
    """vocab.json and merges.txt."""
    letters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghijklmnopqrstuvwxyz,.Ġ"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "f"), ("i", "l"), ("il", "m"), ("Ġf", "ilm")]
    tokens = [*letters, *("".join(pair) for pair in merges)]
    (path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (path / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *(" ".join(pair) for pair in merges)]) + "\n"
    )


# A trie of 256 empty nodes and one text: a character map that maps nothing.
_MAP = (1024).to_bytes(4, "little") + bytes(1024) + b"ab\0"


def _spiece_fields() -> list[tuple[int, Any]]:
    pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁", "▁the", "▁film", *"abcdefgilmst,1"]
    made: list[tuple[int, Any]] = [
        (1, [(1, piece), (2, -float(index))]) for index, piece in enumerate(pieces)
    ]
    return [*made, (2, [(3, 1), (40, 1)]), (3, [(1, "nmt_nfkc"), (2, _MAP)])]


def write_spiece(path: Path) -> None:
    """spiece.model."""
    (path / "spiece.model").write_bytes(encode_fields(_spiece_fields()))


def hostile_spiece(rng: Random, data: bytes) -> bytes:
    """A message whose lengths are right, with hostile fields."""
    fields = _spiece_fields()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(fields)) if rng.random() < 0.6 else len(fields) - rng.randint(1, 2)
        number, inner = fields[at]
        kind = rng.randrange(7)
        if kind == 0:
            del fields[at]
        elif kind == 1:
            fields.insert(at, fields[at])
        elif kind == 2:
            fields[at] = (rng.choice((0, 1, 2, 3, 4, 40, 2**29 - 1)), _hostile_value(rng))
        elif isinstance(inner, list) and inner:
            place = rng.randrange(len(inner))
            changed = list(inner)
            changed[place] = (changed[place][0], _hostile_value(rng))
            fields[at] = (number, changed)
    return encode_fields(fields)


def _hostile_value(rng: Random) -> Any:
    return rng.choice(
        (
            rng.choice(NASTY_INTEGERS),
            rng.choice(NASTY_LINES),
            rng.choice((float("nan"), float("inf"), -3e38, 3e38, 1e-45, -0.0)),
            (4 * rng.randint(0, 8)).to_bytes(4, "little") + rng.randbytes(rng.randint(0, 40)),
            (1024).to_bytes(4, "little") + rng.randbytes(1024) + b"abc\0",
            [(rng.randint(1, 3), rng.choice(("a", 1, -1.0, b"\xff")))],
            "",
        )
    )


_VOCABULARIES = (write_wordpiece, write_bytebpe, write_spiece)


def saved_tokenizers() -> list[Files]:
    """tokenizer.json and its companions, of each kind."""
    made = []
    for fill in _VOCABULARIES:

        def save(path: Path, fill: Callable[[Path], None] = fill) -> None:
            with tempfile.TemporaryDirectory() as source:
                fill(Path(source))
                Tokenizer.load(source).save(path)
            (path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')

        files = folder_files(save)
        kept = ("tokenizer.json", "config.json", "special_tokens_map.json")
        made.append({name: data for name, data in files.items() if name.endswith(kept)})
    return made


def vocabulary_folders(*fills: Callable[[Path], None]) -> list[Files]:
    """The classic layouts, each alone and with settings."""
    settings = {"do_lower_case": True, "model_max_length": 16, "cls_token": {"content": "[CLS]"}}

    def with_settings(path: Path, fill: Callable[[Path], None]) -> None:
        fill(path)
        (path / "tokenizer_config.json").write_text(json.dumps(settings))
        (path / "special_tokens_map.json").write_text('{"unk_token": "[UNK]"}')
        (path / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')

    made = []
    for fill in fills or _VOCABULARIES:
        made.append(folder_files(fill))
        made.append(folder_files(lambda path, fill=fill: with_settings(path, fill)))
    return made
