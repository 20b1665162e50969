"""Models out of .zip and .tar.gz archives that nobody has to trust: bounded and checked.

Nothing is written outside of the folder asked for, and nothing is left of an archive that is
refused or damaged.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import logging
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filbert.errors import FormatError, InputError, printable, unreadable_as
from filbert.formats.files import replace_folder, sha256_of
from filbert.formats.model_files import GOOGLE_CONFIGS, TENSOR_BUNDLE, beside_bundle, is_model_file

# Ten times the largest published BERT, with its optimiser's state.
_MAX_BYTES = 40 * 2**30
_MAX_MEMBERS = 10_000
# Deflate can do 1,000; numbers of a model do at most 2, or all if they are zero.
_MAX_RATIO = 200
_RATIO_ALLOWANCE = 64 * 2**20
# One read: the table of contents of a .zip, or a long name in a .tar.
_MAX_READ = 4 * 2**20
_BLOCK = 2**20
# What a .tar adds to its files: a header for each, filled up to whole blocks of 512.
_TAR_FRAME = 4 * 512 * _MAX_MEMBERS

_MARKER = "unpacked.json"
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    gzip.BadGzipFile,
    EOFError,
    struct.error,
    UnicodeError,
    ValueError,
    OverflowError,
    RecursionError,
    # What zipfile raises for flags and methods that it does not know.
    NotImplementedError,
    RuntimeError,
    # What it stumbles over when tables of contents are nonsense.
    IndexError,
    KeyError,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Member:
    """A regular file in an archive; `name` has / between its parts, and only plain parts."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def cache_folder() -> Path:
    """Where filbert keeps what it fetched and unpacked: below XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "filbert"


@unreadable_as(InputError)
def unpacked(archive: Path) -> Path:
    """The folder of the model in an archive, in the cache; unpacked there once.

    The folder is named by the archive's SHA-256, so the archive may move, and another one under the
    same name is another model. Several processes may ask at once: one unpacks, the others wait.

    Args:
        archive: .zip, .tar, .tar.gz or .tgz.

    Raises:
        FormatError: damaged, hostile, or without a model.
        InputError: it cannot be read, or the cache cannot be written to.
    """
    folder = cache_folder() / "archives" / sha256_of(archive)
    if _is_whole(folder):
        return folder
    with _alone(folder):
        if not _is_whole(folder):
            log.info("unpacking %s into %s, once", archive.name, folder)
            with replace_folder(folder, marker=_MARKER) as staging:
                sizes = extract(archive, staging)
                note = {"archive": archive.name, "sizes": sizes}
                (staging / _MARKER).write_text(json.dumps(note, indent=2) + "\n", "utf-8")
    return folder


def _is_whole(folder: Path) -> bool:
    """Whether everything that was unpacked is still there; tidying programs empty caches."""
    try:
        sizes = json.loads((folder / _MARKER).read_bytes())["sizes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time is in this block for the same folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.with_name(f".{folder.name}.lock"), os.O_CREAT | os.O_RDWR)
    except OSError as error:
        raise InputError(
            f"The cache {folder.parent} cannot be written to: {error.strerror}. Set XDG_CACHE_HOME "
            "to a folder of yours, or unpack the archive yourself."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def extract(
    archive: Path, folder: Path, *, root: str | None = None, max_bytes: int = _MAX_BYTES
) -> dict[str, int]:
    """Write the files of the one model in an archive into a folder.

    Args:
        archive: a .zip (or .whl), else a .tar, plain or compressed by gzip.
        folder: exists, and nobody else writes into it; the caller throws it away after an error.
        root: the folder in the archive that holds the model; looked for when not given.
        max_bytes: of everything in the archive, unpacked.

    Returns:
        Bytes by name, relative to `folder`.

    Raises:
        FormatError: damaged, hostile, or without a model.
        InputError: there is not enough room on the disk.
    """
    is_zip = archive.name.lower().endswith((".zip", ".whl"))
    read = _zip_members if is_zip else _tar_members
    try:
        with archive.open("rb") as file, read(file, archive.name, max_bytes) as members:
            chosen = _model_in(members, archive.name, root)
            _check_room(folder, sum(member.size for member in chosen.values()), archive.name)
            for name, member in chosen.items():
                _write(member, folder / name, archive.name)
    except _DAMAGE as error:
        reason = printable("".join(str(error).splitlines()[:1]), 100) or type(error).__name__
        raise FormatError(f"{archive.name} is damaged: {reason}. Fetch it again.") from error
    return {name: member.size for name, member in chosen.items()}


def _write(member: _Member, target: Path, archive: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with member.open() as source, target.open("xb") as file:
        while block := source.read(_BLOCK):
            written += len(block)
            if written > member.size:
                break
            file.write(block)
    if written != member.size:
        raise FormatError(
            f"{archive} is damaged: {member.name} has not the {member.size:,} bytes it announces."
        )


def _check_room(folder: Path, size: int, archive: str) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{archive} unpacks to {size / 2**20:,.0f} MiB, and {folder.parent} has room for "
            f"{free / 2**20:,.0f}. Free some space, or set XDG_CACHE_HOME to a larger disk."
        )


def _model_in(members: list[_Member], archive: str, root: str | None) -> dict[str, _Member]:
    """The files of the model, by their names relative to its folder, in the archive's order."""
    folders: dict[str, set[str]] = {}
    for member in members:
        parent, _, name = member.name.rpartition("/")
        folders.setdefault(parent, set()).add(name)
    if root is None:
        root = _root(folders, archive)
    inside = f"{root}/" if root else ""
    relative = {m.name.removeprefix(inside): m for m in members if m.name.startswith(inside)}
    beside = beside_bundle(relative)
    return {n: member for n, member in relative.items() if is_model_file(n) or n in beside}


def _root(folders: dict[str, set[str]], archive: str) -> str:
    marks = ({"config.json", "modules.json", *GOOGLE_CONFIGS}, {"tokenizer.json", "vocab.txt"})
    for mark in marks:
        roots = [
            folder
            for folder, names in folders.items()
            if names & mark or (mark is marks[0] and _has_bundle(names))
        ]
        if not roots:
            continue
        # A folder of a sentence-transformers module has a config.json too, further down.
        depth = min(len(folder.split("/")) if folder else 0 for folder in roots)
        top = sorted(r for r in roots if (len(r.split("/")) if r else 0) == depth)
        if len(top) > 1:
            raise FormatError(
                f"{archive} holds several models: {', '.join(map(printable, top[:8]))}. "
                "Unpack it and name one of them."
            )
        return top[0]
    names = sorted(f"{folder}/{name}".lstrip("/") for folder in folders for name in folders[folder])
    listed = ", ".join(map(printable, names[:8])) or "nothing"
    more = ", ..." if len(names) > 8 else ""
    raise FormatError(f"{archive} holds no model (found: {listed}{more}).")


def _has_bundle(names: set[str]) -> bool:
    return any(part and part[0].endswith(".index") for part in map(TENSOR_BUNDLE.fullmatch, names))


class _Bounded:
    """A file whose readers cannot be talked into taking everything into memory."""

    def __init__(self, file: Any, archive: str, end: int | None = None) -> None:
        self._file, self._archive, self._end = file, archive, end

    def read(self, size: int = -1) -> bytes:
        is_huge = size is None or not 0 <= size <= _MAX_READ
        data: bytes = self._file.read(_MAX_READ + 1 if is_huge else size)
        if (size is not None and size > _MAX_READ) or len(data) > _MAX_READ:
            raise FormatError(f"{self._archive} has a table of contents beyond all measure.")
        self._check(self._file.tell() if self._end is not None else 0)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._check(offset)
        if whence == 0 and offset < 0:
            raise ValueError("a place before its beginning")
        return int(self._file.seek(offset, whence))

    def _check(self, offset: int) -> None:
        if self._end is not None and offset > self._end:
            raise FormatError(
                f"{self._archive} unpacks to more than {self._end / 2**20:,.0f} MiB, which no "
                "archive of this size with a model does."
            )

    def tell(self) -> int:
        return int(self._file.tell())

    def seekable(self) -> bool:
        return True


def _check_sizes(sizes: list[int], packed: int, max_bytes: int, archive: str) -> None:
    total = sum(sizes)
    if total > min(max_bytes, _MAX_RATIO * packed + _RATIO_ALLOWANCE):
        raise FormatError(
            f"{archive} has {packed:,} bytes and unpacks to {total:,}, more than a model's files "
            "can; it was not unpacked."
        )


def _plain_name(name: str, archive: str) -> str:
    """A member's name with plain parts only; "" for the archive's own folder."""
    if not name.isprintable():
        raise FormatError(f"{archive} names {printable(name)!r}, with control characters in it.")
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or ".." in parts:
        raise FormatError(
            f"{archive} names {printable(name)!r}, outside its folder; it was not unpacked."
        )
    parts = [part for part in parts if part not in ("", ".")]
    if len(name) > 1024 or len(parts) > 32 or any(len(part.encode()) > 255 for part in parts):
        raise FormatError(f"{archive} names {printable(name)!r}, longer than file names can be.")
    return "/".join(parts)


def _check_names(files: list[str], folders: list[str], archive: str) -> None:
    known = set(files)
    if len(known) < len(files):
        counts = Counter(files)
        twice = next(name for name in files if counts[name] > 1)
        raise FormatError(f"{archive} holds {printable(twice)!r} twice; it was not unpacked.")
    for name in (*files, *folders):
        parents = name.split("/")
        above = {"/".join(parents[:i]) for i in range(1, len(parents))}
        if above & known or (name in known and name in folders):
            raise FormatError(f"{archive} holds {printable(name)!r} both as a file and a folder.")


def _check_count(count: int, archive: str) -> None:
    if count > _MAX_MEMBERS:
        raise FormatError(f"{archive} holds more than {_MAX_MEMBERS:,} files, so it is no model's.")


def _refuse_kind(name: str, kind: str, archive: str) -> None:
    raise FormatError(
        f"{archive} holds {printable(name)!r}, {kind}; only plain files are unpacked. "
        "Unpack it yourself where you trust it."
    )


@contextmanager
def _zip_members(file: IO[bytes], archive: str, max_bytes: int) -> Iterator[list[_Member]]:
    packed = os.fstat(file.fileno()).st_size
    bounded: Any = _Bounded(file, archive)
    with zipfile.ZipFile(bounded) as content:
        infos = content.infolist()
        _check_count(len(infos), archive)
        members, folders = [], []
        for info in infos:
            name = _plain_name(info.orig_filename, archive)
            mode = stat.S_IFMT(info.external_attr >> 16)
            if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
                _refuse_kind(name, "a link or a device", archive)
            if info.flag_bits & 1:
                _refuse_kind(name, "which is encrypted", archive)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                _refuse_kind(name, "compressed by another method than deflate", archive)
            if info.is_dir() or mode == stat.S_IFDIR:
                folders.append(name)
                continue
            members.append(_Member(name, info.file_size, lambda info=info: content.open(info)))  # type: ignore[misc]
        if sum(info.compress_size for info in infos) > packed:
            raise FormatError(f"{archive} is damaged: its files overlap each other.")
        _check_names([member.name for member in members], folders, archive)
        _check_sizes([member.size for member in members], packed, max_bytes, archive)
        yield members


@contextmanager
def _tar_members(file: IO[bytes], archive: str, max_bytes: int) -> Iterator[list[_Member]]:
    packed = os.fstat(file.fileno()).st_size
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    bounded: Any = _Bounded(file, archive)
    if is_gzip:
        end = min(max_bytes, _MAX_RATIO * packed + _RATIO_ALLOWANCE)
        bounded = _Bounded(gzip.GzipFile(fileobj=file), archive, end + _TAR_FRAME)
    with tarfile.open(fileobj=bounded, mode="r:") as content:
        members, folders, count = [], [], 0
        while (info := content.next()) is not None:
            count += 1
            _check_count(count, archive)
            name = _plain_name(info.name, archive)
            if info.isdir():
                folders.append(name)
                continue
            if not info.isreg() or info.issparse():
                _refuse_kind(name, "a link, a device or a sparse file", archive)
            if info.size < 0:
                raise FormatError(f"{archive} is damaged: {printable(name)!r} has no size.")
            members.append(_Member(name, info.size, lambda info=info: _opened(content, info)))  # type: ignore[misc]
        _check_names([member.name for member in members], folders, archive)
        _check_sizes([member.size for member in members], packed, max_bytes, archive)
        # gzip's checksum stands at the very end, where tarfile never looks.
        while bounded.read(_BLOCK):
            pass
        yield members


def _opened(content: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = content.extractfile(info)
    assert file is not None, "only regular files are members"
    return file
