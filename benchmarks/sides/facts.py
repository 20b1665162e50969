"""What a figure is worth nothing without: cores and versions."""

from __future__ import annotations

from importlib import metadata

PEERS = ("transformers", "tokenizers", "onnxruntime", "ctranslate2", "openvino")


def package_versions(names: tuple[str, ...] = PEERS) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
