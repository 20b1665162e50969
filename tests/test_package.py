"""What is in the wheel and in the archive of sources."""

import subprocess
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import filbert

ROOT = Path(__file__).parents[1]


def test_the_wheel_has_types_models_recipes_and_the_page():
    found = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    source = Path(filbert.__file__).parent
    own = [
        path.relative_to(source.parent).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert found == set(own)
    assert "filbert/py.typed" in found
    assert {Path(name).suffix for name in found} >= {".py", ".toml", ".safetensors", ".html", ".js"}


def test_the_archive_of_sources_can_test_itself():
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout")
    found = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    assert set(filter(None, listed)) - found <= {".gitignore", "pyproject.toml"}
    assert not any(name.startswith(("runs/", ".venv/", "../")) for name in found)
