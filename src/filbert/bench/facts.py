"""What a figure is worth nothing without: cores and versions."""

from __future__ import annotations

import os
from importlib import metadata

PEERS = ("transformers", "tokenizers", "onnxruntime", "ctranslate2", "openvino")


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_versions(names: tuple[str, ...] = PEERS) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
