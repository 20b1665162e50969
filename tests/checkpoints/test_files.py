from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from filbert import files
from filbert.errors import InputError


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below, hidden ones too, and every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"(folder)"
        for path in folder.rglob("*")
    }


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to the disk finds no room, as it does on file systems that allocate late."""

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("old")
    (folder / "sub" / "more").write_text("old too")
    yield folder


def test_write_atomically_replaces_the_whole_content(tmp_path):
    for content in ("a longer first text", "é"):
        files.write_atomically(tmp_path / "new" / "x.json", content)
        assert tree(tmp_path) == {"new": b"(folder)", "new/x.json": content.encode()}


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files.write_atomically(tmp_path / "link" / "x", b"1")
    with files.replace_folder(tmp_path / "link", marker="x") as staging:
        (staging / "y").write_bytes(b"2")
    assert (tmp_path / "link").is_symlink()
    assert tree(tmp_path / "real") == {"y": b"2"}


def test_replace_folder_swaps_everything(old):
    with files.replace_folder(old) as staging:
        (staging / "config.json").write_text("new")
        assert (old / "config.json").read_text() == "old"
    assert tree(old.parent) == {"model": b"(folder)", "model/config.json": b"new"}


@pytest.mark.parametrize("name", ["model", "brand/new"])
def test_a_block_that_fails_changes_nothing(old, name):
    before = tree(old.parent)
    with pytest.raises(KeyboardInterrupt), files.replace_folder(old.parent / name) as staging:
        (staging / "config.json").write_text("new")
        raise KeyboardInterrupt
    assert tree(old.parent) == before


@pytest.mark.parametrize("name", ["model", "brand/new"])
def test_a_full_disk_is_one_sentence_and_changes_nothing(old, name, full_disk):
    before = tree(old.parent)
    with (
        pytest.raises(InputError, match="No space left on the disk"),
        files.replace_folder(old.parent / name) as staging,
    ):
        (staging / "config.json").write_text("new")
    assert tree(old.parent) == before


def test_a_full_disk_while_writing_one_file_keeps_the_old_one(old, full_disk):
    before = tree(old)
    with pytest.raises(InputError, match=r"writing .*config.json"):
        files.write_atomically(old / "config.json", "new")
    assert tree(old) == before


def test_a_folder_with_somebody_elses_files_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not replaced"), files.replace_folder(tmp_path):
        raise AssertionError("the block must not start")
    assert tree(tmp_path) == {"thesis.tex": b"years of work"}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "x").write_text("1")
    with pytest.raises(InputError, match="is a file"), files.replace_folder(tmp_path / "x"):
        raise AssertionError("the block must not start")
    with (
        pytest.raises(InputError, match="Cannot create"),
        files.replace_folder(tmp_path / "x" / "below"),
    ):
        raise AssertionError("the block must not start")
