"""Hostile indexes of TensorFlow checkpoints whose CRCs are right, and how checkpoints are read."""

from __future__ import annotations

import contextlib
import functools
import struct
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from filbert.checkpoints import google
from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer
from filbert.checkpoints.tensor_bundle import TensorBundle, crc32c, masked, read_table
from filbert.errors import FormatError
from filbert.protobuf import Damaged, fields
from filbert.text.tokenizer import Tokenizer
from hostile.damage import NASTY_INTEGERS, damage_bytes
from hostile.made import Files, Fixed, encode_fields, folder_files, varint
from hostile.models import small_checkpoint
from hostile.vocabularies import write_wordpiece

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_KEYS = (
    *(b"", b"\0", b"\xff\xfe", b"x" * 5000, b"../x", b"\x1b[2J", b"bert/pooler/dense/kernel"),
    *(b"bert/encoder/layer_" + b"9" * 5000 + b"/output/dense/kernel", b"global_step"),
    *(b"_CHECKPOINTABLE_OBJECT_GRAPH", b"a/.ATTRIBUTES/VARIABLE_VALUE", b"\xe2\x80\xae", b"a\nb"),
)


def google_folders() -> list[Files]:
    """A BERT with the heads of its pre-training, and an ALBERT, as Google's code saves them."""

    def fill(path: Path, family: str) -> None:
        write_wordpiece(path)
        tokenizer = Tokenizer.load(path)
        more = {"embedding_size": 4, "num_hidden_groups": 1, "hidden_act": "gelu_tanh"}
        model = small_checkpoint(
            family,
            "pretraining" if family == "bert" else None,
            vocab_size=tokenizer.vocab_size,
            **(more if family == "albert" else {}),
        )
        google.write(model, tokenizer, path)

    return [
        folder_files(lambda path, family=family: fill(path, family))
        for family in ("bert", "albert")
    ]


@functools.lru_cache(16)
def _entries(data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "x.index"
        path.write_bytes(data)
        return tuple(read_table(path).items())


def hostile_index(rng: Random, data: bytes) -> bytes:
    """An index with hostile entries, keys, blocks, compression or footer, and right CRCs."""
    entries = list(_entries(data))
    kind = rng.randrange(8)
    if kind <= 2:
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(entries))
            key, value = entries[at]
            with contextlib.suppress(Damaged):  # the second change may find the first
                entries[at] = (key, encode_fields(_changed(rng, _parsed(value, not key))))
    elif kind == 3:
        _change_keys(rng, entries)
    return _table(rng, entries, hostile=kind >= 4)


def _parsed(value: bytes, is_header: bool) -> list[tuple[int, Any]]:
    """A header or an entry as nested fields."""
    found: list[tuple[int, Any]] = []
    for number, content in fields(value):
        if isinstance(content, int):
            found.append((number, content))
        elif number == 6 and not is_header:
            found.append((number, Fixed(int.from_bytes(content, "little"))))
        elif number == 2 and not is_header:
            found.append((number, [(n, list(fields(c))) for n, c in fields(content)]))  # type: ignore[arg-type]
        else:
            found.append((number, list(fields(content))))
    return found


def _changed(rng: Random, content: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    content = list(content)
    kind = rng.randrange(8)
    at = rng.randrange(len(content)) if content else 0
    if kind == 0 and content:
        del content[at]
    elif kind == 1 and content:
        content.insert(at, content[at])
    elif kind == 2 or not content:
        content.append((rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 2**28)), _hostile_value(rng)))
    elif kind == 3:
        content.append((7, _hostile_slice(rng)))
    else:
        number, value = content[at]
        if isinstance(value, list) and value and rng.random() < 0.8:
            content[at] = (number, _changed(rng, value))
        else:
            content[at] = (number, _hostile_value(rng))
    return content


def _hostile_value(rng: Random) -> Any:
    whole = rng.choice(NASTY_INTEGERS) * rng.choice((1, 1, -1))
    sizes = [(2, [(1, rng.choice(NASTY_INTEGERS))]) for _ in range(rng.choice((1, 2, 3, 40)))]
    return rng.choice((whole, whole, whole, Fixed(whole % 2**32), b"", b"\xff" * 9, sizes, 1.5))


def _hostile_slice(rng: Random) -> list[tuple[int, Any]]:
    extents = []
    for _ in range(rng.choice((0, 1, 2, 2, 3))):
        ends = [(n, rng.choice((0, 1, 2, 4, -1, *NASTY_INTEGERS))) for n in (1, 2)]
        extents.append((1, ends[: rng.randint(0, 2)]))
    return extents


def _change_keys(rng: Random, entries: list[tuple[bytes, bytes]]) -> None:
    at, other = rng.randrange(len(entries)), rng.randrange(len(entries))
    kind = rng.randrange(6)
    if kind == 0:
        entries[at] = (rng.choice(_KEYS), entries[at][1])
    elif kind == 1:
        entries[at], entries[other] = entries[other], entries[at]
    elif kind == 2:
        entries.insert(at, entries[other])
    elif kind == 3:
        del entries[at : at + rng.choice((1, 1, 3, len(entries)))]
    else:
        added = [(rng.choice(_KEYS), entries[other][1]) for _ in range(rng.choice((1, 3)))]
        added += [(b"z%d" % i, entries[other][1]) for i in range(rng.choice((0, 10, 2000)))]
        entries[:] = sorted([*entries, *added])


def _table(rng: Random, entries: list[tuple[bytes, bytes]], *, hostile: bool) -> bytes:
    out = bytearray()
    middle = rng.randrange(len(entries) + 1) if entries else 0
    listed = []
    for part in (entries[:middle], entries[middle:]):
        if part:
            handle = _put(rng, out, _block(rng, part, hostile), hostile)
            listed.append((part[-1][0], handle))
    if hostile and listed and rng.random() < 0.2:
        listed *= rng.choice((2, 100))
    footer = _put(rng, out, _block(rng, [], hostile), hostile)
    footer += _put(rng, out, _block(rng, listed, hostile and rng.random() < 0.3), hostile)
    if hostile and rng.random() < 0.1:
        footer = b"".join(varint(rng.choice(NASTY_INTEGERS)) for _ in range(4))[:40]
    return bytes(out) + footer.ljust(40, b"\0") + _MAGIC


def _block(rng: Random, entries: list[tuple[bytes, bytes]], hostile: bool) -> bytes:
    out, restarts, last = bytearray(), [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % 16:
            shared = next(
                (i for i, (a, b) in enumerate(zip(last, key, strict=False)) if a != b),
                min(len(last), len(key)),
            )
        else:
            restarts.append(len(out))
        numbers = [shared, len(key) - shared, len(value)]
        if hostile and rng.random() < 0.02:
            numbers[rng.randrange(3)] = rng.choice(NASTY_INTEGERS)
        out += b"".join(varint(number) for number in numbers) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    if hostile and rng.random() < 0.15:
        restarts = rng.choice(([], restarts * 2, restarts[::-1], [rng.getrandbits(32)], [1]))
    count = len(restarts)
    if hostile and rng.random() < 0.15:
        count = rng.choice(NASTY_INTEGERS) % 2**32
    data = bytes(out) + struct.pack(f"<{len(restarts) + 1}I", *restarts, count)
    return damage_bytes(rng, data) if hostile and rng.random() < 0.2 else data


def _put(rng: Random, out: bytearray, block: bytes, hostile: bool) -> bytes:
    """Append a block with its trailer; where it lies, or is said to."""
    kind = rng.randrange(256) if hostile and rng.random() < 0.03 else 0
    offset, size = len(out), len(block)
    content = block + bytes([kind])
    crc = masked(crc32c(content)) if rng.random() < 0.97 else rng.getrandbits(32)
    out += content + struct.pack("<I", crc)
    if hostile and rng.random() < 0.1:
        offset, size = rng.choice(
            ((offset, rng.choice(NASTY_INTEGERS)), (rng.choice(NASTY_INTEGERS), size), (0, size))
        )
    return varint(offset) + varint(size)


def read_google(folder: Path) -> None:
    """Every tensor by itself, then the model and its tokenizer through the front door."""
    prefix = folder / "bert_model.ckpt"
    bundle = TensorBundle.open(prefix)
    for name in bundle.entries:
        with contextlib.suppress(FormatError):
            bundle.read(name)
    place = find_model(str(folder))
    read_checkpoint(place).build()
    google.tensor_report(place)
    read_tokenizer(place)
