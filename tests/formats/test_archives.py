from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from filbert.errors import FormatError, InputError
from filbert.formats import archives
from filbert.formats.archives import unpacked

FILES = {
    "bert_config.json": b"{}",
    "vocab.txt": b"[PAD]\n",
    "bert_model.ckpt.index": b"index",
    "bert_model.ckpt.data-00000-of-00001": bytes(range(256)) * 40,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "filbert" / "archives"


def make_zip(path: Path, files: dict[str, bytes], inside: str = "bert/") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(inside + name, content)
    return path


def make_tar(path: Path, files: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./bert/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "unpacked.json"
    }


def refusal(archive: Path, cache: Path, kind: type[Exception] = FormatError) -> str:
    before = sorted(path.name for path in archive.parent.iterdir())
    with pytest.raises(kind) as caught:
        unpacked(archive)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500 and archive.name in text
    assert not [path for path in cache.rglob("*") if path.suffix != ".lock"], "nothing is left"
    after = {path.name for path in archive.parent.iterdir()} - {"cache"}
    assert after == set(before) - {"cache"}, "nothing is written elsewhere"
    return text


@pytest.mark.parametrize("name", ["m.zip", "m.tar.gz", "m.tgz", "m.tar"])
def test_only_the_files_of_the_model_are_unpacked(tmp_path: Path, name: str) -> None:
    more = {
        "graph.pbtxt": b"x",
        "bert_model.ckpt.meta": b"x",
        "run.sh": b"x",
        "sub/vocab.txt": b"x",
    }
    make = make_zip if name == "m.zip" else make_tar
    assert contents(unpacked(make(tmp_path / name, FILES | more))) == FILES


def test_a_flat_archive_and_one_with_modules_in_folders_are_read(tmp_path: Path) -> None:
    files = {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "1_Pooling/config.json": b"{}",
        "2_Dense/model.safetensors": b"dense",
    }
    assert contents(unpacked(make_zip(tmp_path / "a.zip", files, ""))) == files
    assert contents(unpacked(make_zip(tmp_path / "b.zip", files, "deep/er/"))) == files


def test_an_archive_is_unpacked_once_and_again_when_a_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    calls = []
    extract = archives.extract
    monkeypatch.setattr(
        archives, "extract", lambda *args, **options: calls.append(1) or extract(*args, **options)
    )
    folder = unpacked(archive)
    archive.rename(tmp_path / "moved.zip")
    assert unpacked(tmp_path / "moved.zip") == folder
    assert len(calls) == 1
    (folder / "vocab.txt").unlink()
    assert unpacked(tmp_path / "moved.zip") == folder
    assert contents(folder) == FILES
    assert len(calls) == 2


def test_those_who_ask_at_once_get_the_same_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    calls, found = [], []
    extract = archives.extract
    monkeypatch.setattr(
        archives, "extract", lambda *args, **options: calls.append(1) or extract(*args, **options)
    )
    threads = [threading.Thread(target=lambda: found.append(unpacked(archive))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and len(found) == 4
    assert contents(found[0]) == FILES
    assert len(calls) == 1


# Hostile names and kinds.


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/etc/vocab.txt", "outside its folder"),
        ("../vocab.txt", "outside its folder"),
        ("bert/../../vocab.txt", "outside its folder"),
        ("..", "outside its folder"),
        ("bert\\vocab.txt", "outside its folder"),
        ("bert/a\nb", "control characters"),
        ("bert/\x1b[2J", "control characters"),
        ("bert/vocab.txt\0.png", "control characters"),
        ("bert/" + "x" * 300, "longer than file names"),
        ("x/" * 600 + "y", "longer than file names"),
        ("bert/./vocab.txt", "twice"),
        ("bert//vocab.txt", "twice"),
        ("bert/vocab.txt/config.json", "both as a file and a folder"),
        ("bert/vocab.txt/", "both as a file and a folder"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(
    tmp_path: Path, cache: Path, name: str, says: str
) -> None:
    archive = tmp_path / "m.zip"
    with zipfile.ZipFile(make_zip(archive, FILES), "a") as content:
        info = zipfile.ZipInfo("placeholder")
        info.filename = info.orig_filename = name
        content.writestr(info, b"")
    assert says in refusal(archive, cache)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path, cache: Path) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    with zipfile.ZipFile(archive, "a") as content, pytest.warns(UserWarning, match="Duplicate"):
        content.writestr("bert/vocab.txt", b"another")
    assert "twice" in refusal(archive, cache)


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, cache: Path, mode: int) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    with zipfile.ZipFile(archive, "a") as content:
        info = zipfile.ZipInfo("bert/config.json")
        info.external_attr = (mode | 0o777) << 16
        content.writestr(info, b"/etc/passwd")
    assert "only plain files" in refusal(archive, cache)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, cache: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("bert/config.json")
    info.type, info.linkname = kind, "/etc/passwd"
    assert "only plain files" in refusal(make_tar(tmp_path / "m.tar.gz", FILES, info), cache)


@pytest.mark.parametrize("name", ["/etc/vocab.txt", "../../vocab.txt", "bert/a\nb"])
def test_a_name_in_a_tar_that_leads_elsewhere_is_refused(
    tmp_path: Path, cache: Path, name: str
) -> None:
    archive = make_tar(tmp_path / "m.tar.gz", FILES, tarfile.TarInfo(name))
    assert refusal(archive, cache)


def edit(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


def in_central_directory(data: bytearray, field: int, value: int, size: str = "<H") -> None:
    struct.pack_into(size, data, data.rfind(b"PK\1\2") + field, value)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [(8, 1, "encrypted"), (10, 14, "another method"), (10, 99, "another method")],
)
def test_an_encrypted_or_oddly_compressed_member_is_refused(
    tmp_path: Path, cache: Path, field: int, value: int, says: str
) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    edit(archive, lambda data: in_central_directory(data, field, value))
    assert says in refusal(archive, cache)


# Bombs.


def test_more_than_a_models_files_can_shrink_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_RATIO_ALLOWANCE", 2**20)
    bomb = {"vocab.txt": bytes(4 * 2**20)}
    assert "more than a model's files" in refusal(make_zip(tmp_path / "m.zip", bomb), cache)
    monkeypatch.setattr(archives, "_TAR_FRAME", 0)
    assert "unpacks to more than" in refusal(make_tar(tmp_path / "m.tgz", bomb), cache)


def test_a_size_that_lies_is_found_while_unpacking(tmp_path: Path, cache: Path) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    edit(archive, lambda data: in_central_directory(data, 24, 100, "<L"))
    assert "damaged" in refusal(archive, cache)
    edit(archive, lambda data: in_central_directory(data, 24, 20_000, "<L"))
    assert "damaged" in refusal(archive, cache)


def test_an_archive_of_countless_files_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 5)
    files = {f"{i}.txt": b"" for i in range(6)}
    assert "more than 5 files" in refusal(make_zip(tmp_path / "m.zip", files), cache)
    assert "more than 5 files" in refusal(make_tar(tmp_path / "m.tar", files), cache)


def test_tables_of_contents_and_long_names_are_bounded_in_memory(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MAX_READ", 2**17)
    files = {f"{i:0200}.txt": b"" for i in range(800)}
    assert "beyond all measure" in refusal(make_zip(tmp_path / "m.zip", files), cache)
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**30
    header = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "m.tar.gz").write_bytes(gzip.compress(header + bytes(2**20)))
    assert "beyond all measure" in refusal(tmp_path / "m.tar.gz", cache)


def test_too_little_room_is_known_before_unpacking(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_zip(tmp_path / "m.zip", FILES)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda path: type("D", (), {"free": 9}))
    assert "Free some space" in refusal(archive, cache, InputError)


# Damage.


@pytest.mark.parametrize("name", ["m.zip", "m.tar.gz"])
def test_a_flipped_bit_is_found_and_a_cut_archive_too(
    tmp_path: Path, cache: Path, name: str
) -> None:
    make = make_zip if name == "m.zip" else make_tar
    whole = make(tmp_path / name, FILES).read_bytes()
    for at in (len(whole) // 3, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        (tmp_path / name).write_bytes(damaged)
        assert "damaged" in refusal(tmp_path / name, cache)
    for length in (0, 10, len(whole) // 2, len(whole) - 9):
        (tmp_path / name).write_bytes(whole[:length])
        assert "damaged" in refusal(tmp_path / name, cache)


def test_a_wrong_checksum_at_the_end_of_a_gzip_is_found(tmp_path: Path, cache: Path) -> None:
    archive = make_tar(tmp_path / "m.tar.gz", FILES)

    def flip(data: bytearray) -> None:
        data[-6] ^= 1

    assert "damaged" in refusal(edit(archive, flip), cache)


def test_something_else_under_the_name_of_an_archive_is_one_sentence(
    tmp_path: Path, cache: Path
) -> None:
    for name in ("m.zip", "m.tar.gz", "m.tar"):
        (tmp_path / name).write_bytes(b"<html>not found</html>" * 100)
        assert "damaged" in refusal(tmp_path / name, cache)
        (tmp_path / name).unlink()


def test_an_archive_without_a_model_or_with_several_says_so(tmp_path: Path, cache: Path) -> None:
    text = refusal(make_zip(tmp_path / "m.zip", {"a.csv": b""}), cache)
    assert "holds no model (found: bert/a.csv)" in text
    both = {"a/config.json": b"{}", "b/config.json": b"{}"}
    assert "several models: bert/a, bert/b" in refusal(make_zip(tmp_path / "m.zip", both), cache)


def test_a_cache_that_cannot_be_written_to_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="cannot be written to"):
        unpacked(make_zip(tmp_path / "m.zip", FILES))


@pytest.mark.parametrize("name", ["m.zip", "m.tar.gz", "m.tar"])
def test_archives_with_any_byte_changed_unpack_whole_or_not_at_all(
    tmp_path: Path, cache: Path, name: str
) -> None:
    make = make_zip if name == "m.zip" else make_tar
    whole = make(tmp_path / name, {n: c[:200] for n, c in FILES.items()}).read_bytes()
    step = max(1, len(whole) // 100)
    for at in range(0, len(whole), step):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        (tmp_path / name).write_bytes(damaged)
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        try:
            archives.extract(tmp_path / name, folder)
        except FormatError as error:
            assert "\n" not in str(error)
        archives.shutil.rmtree(folder)
        assert {path.name for path in tmp_path.iterdir()} <= {name, "cache"}
