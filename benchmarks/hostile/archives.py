"""Valid and hostile .zip and .tar.gz archives of a model, and how they are read."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path
from random import Random

from filbert.checkpoints.opening import find_model, unpack
from hostile.damage import NASTY_INTEGERS, damage_bytes
from hostile.made import Files
from hostile.models import model_folders

_NAMES = (
    *("../evil", "../../evil", "/evil", "/tmp/evil", "a/../../evil", "a/../b", "..", ".", "", "/"),
    *("..\\evil", "C:\\evil", "C:/evil", "~/evil", "~root/x", "\\\\host\\x", "a\0b", "a\nb"),
    *("\x1b[2J", "x" * 300, "a/" * 400 + "x", "x" * 70_000, "config.json/x", "./config.json"),
    *("unpacked.json", "model.safetensors", "CONFIG.JSON", "\u202econfig.json", "é/config.json"),
    *("config.json ", "config.json.", "1_Pooling/../../x", "sub//config.json", "sub/config.json"),
)
_MODES = (stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK, stat.S_IFREG)
_TAR_KINDS = (*(bytes([code]) for code in b"0123457SKLgxX"), b"\0", b"?")


def archive_folders() -> list[Files]:
    """One small model in a .zip, plain and deflated, a .tar and a .tar.gz, in a folder or not."""
    files = model_folders()[0]
    return [
        {"model.zip": _zip(files, "", zipfile.ZIP_STORED)},
        {"model.zip": _zip(files, "folder/", zipfile.ZIP_DEFLATED)},
        {"model.tar": _tar(files, "")},
        {"model.tar.gz": gzip.compress(_tar(files, "folder/"), 1, mtime=0)},
    ]


def _zip(files: Files, root: str, kind: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(root + name), content, kind)
    return out.getvalue()


def _tar(files: Files, root: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(root + name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def hostile_zip(rng: Random, data: bytes) -> bytes:
    """A .zip with hostile names, kinds, doubles, bombs, or tables that lie about it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        members = [(info, old.read(info)) for info in old.infolist()]
        for _ in range(rng.choice((0, 1, 1, 2))):
            info = zipfile.ZipInfo("x")
            info.filename = rng.choice((*_NAMES, members[0][0].filename))
            info.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            if rng.random() < 0.4:
                info.external_attr = rng.choice(_MODES) << 16
            content = rng.choice((b"../../evil", b"/etc/passwd", b"", b"x" * 100))
            if rng.random() < 0.03:
                content = bytes(rng.choice((10**6, 2 * 10**7)))
                info.filename, info.compress_type = "pytorch_model.bin", zipfile.ZIP_DEFLATED
            members.insert(rng.randint(0, len(members)), (info, content))
        for info, content in members:
            if rng.random() < 0.02:
                info.compress_type = rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            _write(new, info, content)
    made = out.getvalue()
    return _with_lies(rng, made) if rng.random() < 0.6 else made


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, content: bytes) -> None:
    import warnings

    with warnings.catch_warnings():  # about doubles, which are wanted here
        warnings.simplefilter("ignore")
        try:
            archive.writestr(info, content)
        except (ValueError, zipfile.LargeZipFile, struct.error):  # a name too long to be written
            archive.writestr("y", content)


def _with_lies(rng: Random, data: bytes) -> bytes:
    """Change fields of local headers, of the table of contents or of its end record."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        signature, size = rng.choice(((b"PK\3\4", 30), (b"PK\1\2", 46), (b"PK\5\6", 22)))
        places = [i for i in range(len(data) - size) if data[i : i + 4] == signature]
        if not places:
            continue
        at = rng.choice(places) + rng.randrange(4, size)
        width, value = rng.choice((1, 2, 4)), rng.choice((*NASTY_INTEGERS, rng.getrandbits(32)))
        changed[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(changed)


def hostile_tar(rng: Random, data: bytes) -> bytes:
    """A .tar, compressed or not, with hostile names, kinds, sizes, links or headers."""
    packed = data[:2] == b"\x1f\x8b"
    plain = gzip.decompress(data) if packed else data
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(plain)) as old:
        members = [(info, old.extractfile(info).read()) for info in old.getmembers()]  # type: ignore[union-attr]
    form = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=out, mode="w", format=form) as new:
        for _ in range(rng.choice((1, 1, 2))):
            info = tarfile.TarInfo(rng.choice((*_NAMES, members[0][0].name)).replace("\0", "0"))
            info.type = rng.choice(_TAR_KINDS)
            info.linkname = rng.choice(("../../evil", "/etc/passwd", "config.json", ""))
            if form == tarfile.PAX_FORMAT and rng.random() < 0.4:
                key = rng.choice(("size", "path", "linkpath", "GNU.sparse.size", "GNU.sparse.map"))
                info.pax_headers = {key: str(rng.choice((*NASTY_INTEGERS, -1, "../x", "1,2,3")))}
            members.insert(rng.randint(0, len(members)), (info, b""))
        for info, content in members:
            new.addfile(info, io.BytesIO(content))
    made = bytearray(out.getvalue())
    if rng.random() < 0.5:
        _lie_in_tar(rng, made)
    if not packed:
        return bytes(made)
    if rng.random() < 0.02:
        made += bytes(10**8)
    zipped = gzip.compress(made, 1, mtime=0)
    return damage_bytes(rng, zipped) if rng.random() < 0.2 else zipped


def _lie_in_tar(rng: Random, data: bytearray) -> None:
    """Overwrite a field of one header and set its checksum right again."""
    headers = [i for i in range(0, len(data) - 512, 512) if data[i + 257 : i + 262] == b"ustar"]
    at = rng.choice(headers)
    begin, size = rng.choice(((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100)))
    new = rng.choice(
        (
            b"\xff" * size,
            b"\x80" + bytes(size - 1) if size > 1 else b"L",
            oct(rng.choice(NASTY_INTEGERS))[2:].encode(),
            b"-1",
            rng.randbytes(size),
        )
    )
    data[at + begin : at + begin + size] = new[:size].ljust(size, b"\0")
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])


def read_archive(folder: Path) -> None:
    """Unpack into a cache within the folder, and find the model there."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for path in sorted(folder.glob("model.*")):
        unpack(path)
        find_model(str(path))
