"""Import time, help time and wheel size.

    python benchmarks/sizes.py

Each time is the median and spread of seven fresh processes with warm file caches.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "import filbert": ["-c", "import filbert"],
    "from filbert import load": ["-c", "from filbert import load"],
    "filbert --help": ["-m", "filbert", "--help"],
    "filbert finetune --help": ["-m", "filbert", "finetune", "--help"],
}


def main() -> None:
    for name, arguments in COMMANDS.items():
        times = []
        for _ in range(8):
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - start)
        times = times[1:]
        spread = f"{min(times):.2f}-{max(times):.2f}"
        print(f"{name:26} {statistics.median(times):6.2f} s  ({spread})")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
        ]
        subprocess.run([*command, str(ROOT)], check=True, stderr=subprocess.DEVNULL)
        for wheel in Path(folder).glob("*.whl"):
            print(f"{wheel.name:26} {wheel.stat().st_size / 1e6:6.2f} MB")


if __name__ == "__main__":
    main()
