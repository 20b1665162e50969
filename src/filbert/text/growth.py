"""How much longer a tokenizer's rules can make a text: a small file must not fill the memory.

A rule that writes "aa" for "a" doubles a text; thirty of them, which fit into a kilobyte of
tokenizer.json, make a gigabyte of one letter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from filbert.errors import FormatError

# SentencePiece's own map, which writes an Arabic formula of one character out, needs 36.
MAX_GROWTH = 4096


def check_growth(backend: Tokenizer, path: Path) -> None:
    """Refuse rules that can make texts, or what is decoded, very much longer.

    Args:
        backend: as read from a file that nobody has to trust.
        path: of the file, for messages.

    Raises:
        FormatError: a letter could become more than MAX_GROWTH.
    """
    growth = 1.0
    for part in (backend.normalizer, backend.pre_tokenizer, backend.decoder):
        state = None if part is None else json.loads(part.__getstate__())
        for rule in _rules(state):
            growth *= _factor(rule)
            if growth > MAX_GROWTH:
                raise FormatError(
                    f"{path}: its rules can make a text more than {MAX_GROWTH:,} times as long, "
                    "which no tokenizer needs and which would fill the memory."
                )


def _rules(state: Any) -> Iterator[dict[str, Any]]:
    """All objects with a type within a state, in their order."""
    if isinstance(state, list):
        for item in state:
            yield from _rules(item)
    elif isinstance(state, dict):
        yield state
        for item in state.values():
            yield from _rules(item)


def _factor(rule: dict[str, Any]) -> float:
    kind = rule.get("type")
    if kind == "Replace":
        pattern = rule.get("pattern", {}).get("String")
        # An expression can match between any two characters, without taking one away.
        found = len(rule["content"]) / len(pattern) if pattern else len(rule["content"]) + 1
        return max(1.0, found)
    if kind == "Prepend":
        return 1.0 + len(rule["prepend"])
    if kind == "ByteLevel":
        return 2.0
    if kind == "Precompiled":
        return _longest_mapped(base64.b64decode(rule["precompiled_charsmap"] or ""))
    return 1.0


def _longest_mapped(charsmap: bytes) -> float:
    """Bytes of the longest text that a compiled character map puts in place of something.

    The map is the size of a trie in bytes (4 bytes, little-endian), the trie, and texts that end
    in a zero. Source: google/sentencepiece, src/normalizer.cc, DecodePrecompiledCharsMap.
    """
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    return float(max(1, max(map(len, texts))))
