"""filbert doctor and bench."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from typing import Any

from filbert.cli.arguments import AsJson, Device, ModelName
from filbert.cli.output import print_json, print_table

PACKAGES = (
    "torch",
    "tokenizers",
    "safetensors",
    "huggingface-hub",
    "numpy",
    "scikit-learn",
    "pyarrow",
)
# Optional packages.
EXTRAS = ("fastapi", "uvicorn", "onnx", "onnxruntime", "ray", "tensorboard", "umap-learn")


def doctor(*, json: AsJson = False) -> None:
    """Print versions, devices and fast number formats, for bug reports."""
    import torch

    from filbert import __version__
    from filbert.files import available_cores
    from filbert.model.cpu import TRIALS, engine_of, float32_trial
    from filbert.model.precision import choose_device, choose_precision, gain
    from filbert.train.provenance import device_name

    device = choose_device()
    precision = choose_precision("auto", device)
    cpu = torch.device("cpu")
    facts: dict[str, Any] = {
        "filbert": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) or "not installed" for name in PACKAGES},
        "extras": {name: v for name in EXTRAS if (v := _version(name))} or "none",
        "cpu": device_name(cpu),
        "cores": available_cores(),
        "torch_threads": torch.get_num_threads(),
        "vector_units": torch.backends.cpu.get_cpu_capability(),
        "float32_products": {shape: engine_of(shape) for shape in TRIALS},
        "bf16_gain": {shape: round(gain("bf16", shape), 2) for shape in TRIALS},
        "int8_gain": {shape: round(gain("int8", shape), 2) for shape in TRIALS},
        "products_measured": float32_trial()[1],
        "gpu": device_name(device) if device.type == "cuda" else "none",
        "precision_in_training": f"{precision.name}: {precision.reason}",
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "free_disk_gb": round(shutil.disk_usage(".").free / 1e9, 1),
    }
    if json:
        print_json(facts)
        return
    rows = []
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        rows.append((name.replace("_", " "), str(value)))
    print_table(("", ""), rows, texts=(0, 1))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def bench(
    what: str | None = None,
    /,
    *,
    model: ModelName = "filbert-mini",
    seconds: float = 10.0,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Measure how fast this machine runs a model in its number formats; about a minute.

    Number formats take turns on the same texts; each value is a median. For comparisons with
    other tools see `benchmarks/` in the source repository.

    Parameters
    ----------
    what:
        tokenize, encode (vectors of texts) or latency (one text at a time); by default all three.
    seconds:
        approximate time of each table, without loading the model.
    """
    from filbert.bench import TABLES
    from filbert.bench import bench as measure

    measured = measure(what, model=model, seconds=seconds, device=device)
    if json:
        print_json(measured)
        return
    print("{model} on {device}, {threads} threads, {vector_units}".format(**measured))
    results = measured["results"]
    for table in TABLES:
        rows = {name: row for name, row in results.items() if name.split()[0] == table}
        if rows:
            cells = [
                [name.removeprefix(table).strip() or "all texts", *map(_number, row.values())]
                for name, row in rows.items()
            ]
            headings = [heading.replace(": ", ":\n") for heading in next(iter(rows.values()))]
            print_table((table, *headings), cells, texts=(0,))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
