"""Hostile safetensors files and pickles, right in all but one thing, so that it is reached."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import zipfile
from random import Random
from typing import Any

from hostile.damage import NASTY_INTEGERS, damage_bytes, damage_json

_DTYPES = ("F32", "F16", "BF16", "F64", "I64", "I8", "BOOL", "U8", "F8_E4M3", "F4", "C64", "X", "")

# What a pickle would call. Each leaves a mark where it runs; see `CANARY` in watch.py.
GLOBALS = (
    *("os system", "posix system", "builtins eval", "builtins exec", "builtins open"),
    *("builtins getattr", "os mkdir", "subprocess Popen", "subprocess check_output"),
    *("pickle loads", "torch load", "torch.storage _load_from_bytes", "runpy _run_code"),
    *("numpy.core.multiarray _reconstruct", "numpy load", "torch.hub load", "shutil rmtree"),
    *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "torch FloatStorage"),
    *("torch._utils _rebuild_sparse_tensor", "torch._utils _rebuild_meta_tensor_no_storage"),
    *("torch._utils _rebuild_qtensor", "torch._utils _rebuild_device_tensor_from_numpy"),
    *("torch._utils _rebuild_wrapper_subclass", "torch._tensor _rebuild_from_type_v2"),
    *("torch Tensor", "torch device", "torch Size", "torch.nn.parameter Parameter", "torch int8"),
    *("collections OrderedDict", "collections Counter", "builtins set", "builtins bytearray"),
    *("_codecs encode", "torch bfloat16", "torch.storage UntypedStorage", "torch HalfStorage"),
)


def damage_safetensors(rng: Random, data: bytes) -> bytes:
    """A file with a hostile header over whole data, a lying header length, or damaged bytes."""
    size = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + size], data[8 + size :]
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice(NASTY_INTEGERS).__mod__(2**64).to_bytes(8, "little") + data[8:]
    if kind == 1:
        return damage_bytes(rng, data)
    if kind <= 4:
        header = damage_json(rng, header)
    else:
        header = json.dumps(_other_header(rng, json.loads(header), len(body))).encode()
    if rng.random() < 0.1:
        body = rng.choice((body[:-1], body + b"\0" * 8, b"", body * 2))
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + body


def _other_header(rng: Random, header: dict[str, Any], size: int) -> dict[str, Any]:
    names = [name for name in header if name != "__metadata__"]
    for _ in range(rng.choice((1, 1, 2))):
        name, other = rng.choice(names), rng.choice(names)
        entry = header[name]
        kind = rng.randrange(9)
        if kind == 0:  # the same bytes under other dimensions
            entry["shape"] = rng.choice(
                (
                    entry["shape"][::-1],
                    [1, *entry["shape"]],
                    [*entry["shape"], 1],
                    [],
                    [0],
                    [0, 2**40],
                )
            )
        elif kind == 1:
            entry["shape"] = [rng.choice(NASTY_INTEGERS) for _ in range(rng.randint(0, 4))]
        elif kind == 2:
            entry["shape"] = [2**32, 2**32, 0, 2**33][: rng.randint(1, 4)] + entry["shape"]
        elif kind == 3:
            entry["dtype"] = rng.choice(_DTYPES)
        elif kind == 4:
            entry["data_offsets"] = header[other]["data_offsets"]
        elif kind == 5:
            entry["data_offsets"] = [
                rng.choice((*NASTY_INTEGERS, size, *entry["data_offsets"])) for _ in range(2)
            ]
        elif kind == 6:
            entry["data_offsets"] = entry["data_offsets"][::-1]
        elif kind == 7:
            header[rng.choice(("", "\x1b[2J", "x" * 5000, "a.0.b", f"{name}.weight"))] = entry
        else:
            header[name], header[other] = header[other], entry
    return header


def damage_pickle_file(rng: Random, data: bytes) -> bytes:
    """A torch.save file, zip or legacy, with hostile pickles in it, or with damaged bytes."""
    if rng.random() < 0.25:
        return damage_bytes(rng, data)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return damage_pickle(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    for name in list(parts):
        if name.endswith("data.pkl"):
            if rng.random() < 0.85:
                parts[name] = damage_pickle(rng, parts[name])
        elif rng.random() < 0.05:
            parts[name] = rng.choice((b"", parts[name][:-1], parts[name] * 2, b"\xff" * 64))
        elif rng.random() < 0.02:
            parts[rng.choice((name + "x", "../evil", "/evil", "x/../../evil"))] = parts.pop(name)
        elif rng.random() < 0.02:
            del parts[name]
    if rng.random() < 0.1:
        parts[f"archive/.data/{rng.choice(('serialization_id', 'x'))}"] = b"\0" * 9
    new = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
    with zipfile.ZipFile(new, "w", kind) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return new.getvalue()


def damage_pickle(rng: Random, data: bytes) -> bytes:
    """A pickle stream with instructions dropped, doubled, swapped or replaced by hostile ones."""
    try:
        # A legacy file is several pickles one after the other; what follows them stays as it is.
        end, parts = 0, []
        while end < len(data) and data[end : end + 1] == b"\x80" and len(parts) < 5:
            stream = io.BytesIO(data[end:])
            starts = [at for _, _, at in pickletools.genops(stream)]
            stop = stream.tell()
            borders = [*starts, stop]
            parts.append(
                [data[end + a : end + b] for a, b in zip(starts, borders[1:], strict=True)]
            )
            end += stop
    except (ValueError, IndexError, UnicodeDecodeError):
        return damage_bytes(rng, data)
    if not parts:
        return damage_bytes(rng, data)
    ops = rng.choice(parts)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(ops) or 1)
        kind = rng.randrange(8)
        numbers = [i for i, op in enumerate(ops) if op[:1] in b"KMJ\x8a"]
        names = [i for i, op in enumerate(ops) if op[:1] == b"c"]
        if kind == 0:
            del ops[at : at + 1]
        elif kind == 1 and ops:
            ops.insert(at, ops[rng.randrange(len(ops))])
        elif kind == 2 and numbers:
            ops[rng.choice(numbers)] = _number(rng)
        elif kind in (3, 4) and names:
            ops[rng.choice(names)] = _global(rng.choice(GLOBALS))
        elif kind == 5:
            ops.insert(at, rng.choice(_OPS))
        else:
            ops.insert(at, hostile_call(rng))
    return b"".join(b"".join(part) for part in parts) + data[end:]


def hostile_call(rng: Random) -> bytes:
    """Instructions that call one of GLOBALS with an argument that leaves a mark if it is run."""
    name, argument = rng.choice(GLOBALS), rng.choice(CALL_ARGUMENTS)
    call = _global(name) + b"X" + len(argument).to_bytes(4, "little") + argument
    if rng.random() < 0.3:  # sizes: some classes allocate what they are called with
        call = _global(name) + _number(rng) + rng.choice((b"", b"\x85"))
    return call + rng.choice((b"\x85R", b"\x85R0", b"\x85\x81", b"\x85\x81b", b"\x85Rb"))


# Relative to the worker's folder, where `watch.run_case` looks for it.
CALL_ARGUMENTS = (
    *(b"touch ../canary", b"../canary", b"open('../canary','w')", b"__import__('os')"),
    *(b"cpu", b"meta", b"cuda", b"latin1", b""),
)
_OPS = (
    *(b"0", b"1", b"2", b"(", b"t", b"l", b"]", b"}", b"e", b"u", b"s", b"a", b"b", b"R", b"Q"),
    *(
        b"N",
        b"\x88",
        b"\x81",
        b"\x85",
        b"\x86",
        b"\x87",
        b"\x94",
        b"\x93",
        b".",
        b"h\x00",
        b"h\xff",
    ),
    *(b"j\xff\xff\xff\x7f", b"q\x00", b"r\xff\xff\xff\xff", b"\x95" + b"\xff" * 8),
    *(b"X\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 7 + b"\x7f", b"\x8b\xff\xff\xff\x7f", b"C\x01x"),
    *(b"T\xff\xff\xff\x7f", b"\x8e" + b"\xff" * 7 + b"\x7f", b"I99999999999999999999\n"),
    *(b"(" * 1000, b"]" * 1000, b"(" * 200_000, b"}" * 100, b"\x82\x01", b"P1\n", b"i", b"o"),
)


def _global(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def _number(rng: Random) -> bytes:
    return pickle.dumps(rng.choice((*NASTY_INTEGERS, -1, -2, -(2**31), -(2**63))), 2)[2:-1]
