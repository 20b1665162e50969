"""Damage to bytes, lines and JSON: a valid file in, a hostile one out, decided by a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

# Values as JSON text, so that also what json.dumps would not write can stand there.
NASTY_JSON = (
    *("null", "true", "false", "0", "-1", "1", "2", "3", "7", "-0", "1.0", "2.0", "0.5", "1e3"),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1e308",
        "5e-324",
        "10000",
        "512",
        "513",
        "65536",
        "1000000",
        "4000000",
    ),
    *(str(2**power + more) for power in (31, 32, 53, 63, 64) for more in (-1, 0, 1)),
    *("-2147483649", "-9223372036854775809", "1" + "0" * 18, "1" + "0" * 30, "1" + "0" * 5000),
    *('""', '" "', '"10"', '"1e9"', '"NaN"', '"true"', '"None"', '"\\u0000"', '"\\ud800"'),
    *('"../../../etc/passwd"', '"/etc/passwd"', '"a/../b"', '"\\u001b[2J"', '"\\u202e"', '"a\\nb"'),
    *('"' + "x" * 300 + '"', '"' + "y" * 100_000 + '"', '"\\u00e9"', '"\U0001f600"', '"##"'),
    *("[]", "{}", "[null]", "[[]]", "[0,0]", "[-1]", "[1000000000000]", '[""]', '{"":0}'),
    *('{"a":[]}', '{"0":"x"}', '{"content":[]}', '["[CLS]"]', '["BertModel"]', '[{"type":1}]'),
    *("[" * depth + "]" * depth for depth in (120, 900, 100_000)),
    *('{"a":' * depth + "0" + "}" * depth for depth in (130, 100_000)),
    "[" + "0," * 50_000 + "0]",
    "{" + ",".join(f'"{i}":{i}' for i in range(20_000)) + "}",
    "{" + ",".join(f'"{i}":"L{i // 2}"' for i in range(20_000)) + "}",
)
NASTY_INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 100, 127, 128, 255, 256, 1000, 65_535, 65_536, 10**6, 10**9, 10**12),
    *(2**power + more for power in (31, 32, 53, 62, 63, 64) for more in (-1, 0)),
)
NASTY_LINES = (
    *(b"", b" ", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\r"),
    *(b"[CLS]", b"[UNK]", b"##", b"##a", b"#version: 0.2", b"a b c", b" a", b"a ", b"\x1b[2J"),
    *(b"x" * 100_000, "é".encode() * 50, "\U0001f600".encode(), b"the", b"a", b"-1", b"\t"),
)
_MARK = "@@hostile@@"


def damage_bytes(rng: Random, data: bytes) -> bytes:
    """Flip, cut, insert, delete, repeat, overwrite or splice; one to three times."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_BYTE_DAMAGE)(rng, data)
    return data


def _flip(rng: Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        # The heads of files hold what steers a parser, so half of the flips go there.
        end = len(data) if rng.random() < 0.5 else min(len(data), 256)
        changed[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _span(rng: Random, data: bytes) -> tuple[int, int]:
    begin = rng.randint(0, len(data))
    longest = rng.choice((1, 4, 8, 64, len(data)))
    return begin, min(len(data), begin + rng.randint(0, longest))


def _cut(rng: Random, data: bytes) -> bytes:
    where = rng.choice((rng.randint(0, len(data)), rng.randint(0, min(64, len(data)))))
    return data[:where] if rng.random() < 0.8 else data[where:]


def _insert(rng: Random, data: bytes) -> bytes:
    begin, _ = _span(rng, data)
    new = rng.choice((rng.randbytes(rng.randint(1, 40)), b"\0" * 64, b"\xff" * 10, b"\x80" * 11))
    return data[:begin] + new + data[begin:]


def _delete(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 2, 50)) + data[end:]


def _splice(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    piece = data[begin:end]
    at = rng.randint(0, len(data))
    return data[:at] + piece + data[at + len(piece) :]


def _overwrite(rng: Random, data: bytes) -> bytes:
    at = rng.randint(0, rng.choice((len(data), min(len(data), 64))))
    size, value = rng.choice((1, 2, 4, 8)), rng.choice(NASTY_INTEGERS)
    new = (value % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
    return data[:at] + new + data[at + size :]


def _replace_all(rng: Random, data: bytes) -> bytes:
    return rng.choice((b"", b"\0", b"{}", b"[]", rng.randbytes(300), b"PK\x03\x04", b"\x80\x02."))


_BYTE_DAMAGE = (
    *(_flip, _flip, _flip, _cut, _cut, _insert, _delete, _repeat, _splice, _overwrite),
    *(_overwrite, _replace_all),
)


def damage_lines(rng: Random, data: bytes) -> bytes:
    """Drop, repeat, shuffle or replace lines of a text file; one to three times."""
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines)) if lines else 0
        kind = rng.randrange(6)
        if kind == 0 and lines:
            del lines[at : at + rng.choice((1, 1, 5, len(lines)))]
        elif kind == 1 and lines:
            lines[at : at + 1] = [lines[at]] * rng.choice((2, 3, 1000))
        elif kind == 2:
            rng.shuffle(lines)
        elif kind == 3 and lines:
            lines[at] = damage_bytes(rng, lines[at])
        else:
            lines.insert(at, rng.choice(NASTY_LINES))
    return rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)


def damage_json(rng: Random, data: bytes, *, dumps: Any = json.dumps) -> bytes:
    """Put hostile values, keys and doubles into a valid JSON text; one to three times."""
    try:
        value = json.loads(data)
    except ValueError:
        return damage_bytes(rng, data)
    raw: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(rng, value, raw)
    text = dumps(value, ensure_ascii=rng.random() < 0.5)
    for index, nasty in enumerate(raw):
        text = text.replace(f'"{_MARK}{index}"', nasty)
    if rng.random() < 0.03:
        text += rng.choice((" ", "\0", "}", "{}", ",", "\n//"))
    return text.encode("utf-8", "surrogatepass")


def _changed(rng: Random, value: Any, raw: list[str]) -> Any:
    """A copy of a JSON value with one place in it changed, found by a random walk from the top."""
    keys = sorted(value) if isinstance(value, dict) else range(len(value)) if value else ()
    if not isinstance(value, (dict, list)) or not keys or rng.random() < 0.02:
        return _nasty(rng, raw)
    value = value.copy()
    key = rng.choice(keys)
    inner = value[key]
    if isinstance(inner, (dict, list)) and inner and rng.random() < 0.75:
        value[key] = _changed(rng, inner, raw)
        return value
    kind = rng.randrange(10)
    if kind == 0:
        del value[key]
    elif kind == 1 and isinstance(value, dict):
        name = rng.choice(("", key + "x", key.upper(), "\0", "../x", "x" * 300, "\x1b[2J", "9" * 9))
        value[name] = value.pop(key)
    elif kind == 2 and isinstance(value, dict):
        # The second of two equal keys wins in Python; other parsers keep the first.
        raw.append(f"{json.dumps(inner)}, {json.dumps(key)}: {rng.choice(NASTY_JSON)}")
        value[key] = f"{_MARK}{len(raw) - 1}"
    elif kind == 3 and isinstance(value, list):
        value = value * rng.choice((2, 100)) if rng.random() < 0.5 else value[::-1]
    elif kind == 4 and isinstance(inner, (int, float)):
        value[key] = rng.choice((inner + 1, inner - 1, -inner, inner * 2, float(inner), str(inner)))
    elif kind == 5:
        value[key] = value[rng.choice(keys)]
    else:
        value[key] = _nasty(rng, raw)
    return value


def _nasty(rng: Random, raw: list[str]) -> str:
    raw.append(rng.choice(NASTY_JSON))
    return f"{_MARK}{len(raw) - 1}"
