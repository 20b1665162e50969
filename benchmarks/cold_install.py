"""How long a first install takes, and whether what it installed works.

For every Python from 3.10 to 3.13 that is found, and for the minimal install and each extra: a new
virtual environment, an empty download cache, `pip install` of the built wheel, then `filbert
doctor` and a filled mask in it. One line each, and a JSON file with the figures of all.

    make cold-installs
    python benchmarks/cold_install.py dist/filbert-0.1.0-py3-none-any.whl --pythons 3.11 --extras ""
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# The empty one is the minimal install.
EXTRAS = ("", "onnx", "ray", "serve", "tensorboard")
SENTENCE = "Paris is the [MASK] of France."


def interpreter(version: str) -> str | None:
    """A Python of this version: on the PATH, or one that uv or pyenv keeps; None without one."""
    candidates = [shutil.which(f"python{version}")]
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(path) for path in kept.glob(f"{version}.*/bin/python")]
    if uv := shutil.which("uv"):
        found = subprocess.run(
            [uv, "python", "find", "--offline", version], capture_output=True, text=True
        )
        candidates.append(found.stdout.strip() or None)
    ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for path in candidates:
        if path is None:
            continue
        said = subprocess.run([path, "-c", ask], capture_output=True, text=True)
        if said.stdout.strip() == version:
            return path
    return None


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def install(python: str, wheel: Path, extra: str, cached: bool) -> dict[str, Any]:
    """Seconds of each step and bytes of one install; the error in place of what did not work."""
    with tempfile.TemporaryDirectory(prefix="filbert-install-") as name:
        folder = Path(name)
        bin_ = folder / "venv" / "bin"
        wanted = f"filbert[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        pip = [str(bin_ / "python"), "-m", "pip", "install", "--quiet"]
        steps = {
            "venv": [python, "-m", "venv", str(folder / "venv")],
            "install": [*pip, *([] if cached else ["--no-cache-dir"]), wanted],
            "import": [str(bin_ / "python"), "-W", "error", "-c", "import filbert"],
            "doctor": [str(bin_ / "filbert"), "doctor"],
            "fill": [str(bin_ / "filbert"), "fill", SENTENCE, "--json"],
        }
        # Neither the sources nor another environment may help.
        surroundings = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        result: dict[str, Any] = {}
        for step, command in steps.items():
            start = time.perf_counter()
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=folder, env=surroundings
            )
            result[f"{step}_seconds"] = round(time.perf_counter() - start, 1)
            if done.returncode:
                lines = (done.stderr or done.stdout).strip().splitlines()
                result["error"] = f"{step}: {' | '.join(lines[-3:])}"
                break
        result["megabytes"] = round(size_of(folder / "venv") / 1e6)
        return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS)
    parser.add_argument("--extras", nargs="*", default=EXTRAS, help='"" is the minimal install')
    parser.add_argument("--cached", action="store_true", help="allow pip's download cache")
    parser.add_argument("--out", type=Path, default=Path("runs/cold_install.json"))
    chosen = parser.parse_args()
    results, failed = [], 0
    for version in chosen.pythons:
        python = interpreter(version)
        if python is None:
            print(f"python {version}: not found here", flush=True)
            continue
        for extra in chosen.extras:
            figures = install(python, chosen.wheel.resolve(), extra, chosen.cached)
            results.append({"python": version, "extra": extra or "minimal", **figures})
            failed += "error" in figures
            print(json.dumps(results[-1]), flush=True)
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps(results, indent=2) + "\n")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
