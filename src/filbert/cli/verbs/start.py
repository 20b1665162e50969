"""filbert quickstart, doctor and bench."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from typing import Any

from filbert.cli.arguments import AsJson, Device, Folder, ModelName, Overwrite
from filbert.cli.output import print_json, print_run, print_table
from filbert.errors import ConfigError

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


def quickstart(
    *,
    toxic: bool = False,
    search: bool = False,
    question: str | None = None,
    out: Folder = "runs/quickstart",
    model: ModelName = "minilm",
    seed: int = 42,
    steps: int | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Run an embedded example, from text to report: what does a bank's customer want?

    Fine-tunes a small model on 240 sentences with 30 intents and compares it with TF-IDF on 900
    others. It takes about a minute on a CPU and needs no network.

    Parameters
    ----------
    toxic:
        4,000 comments instead, toxic or not: real and offensive, so the report shows none of them.
    search:
        find sentences by their meaning instead, without any training.
    question:
        with --search, the sentence to search with.
    out:
        the run folder.
    seed:
        random seed for the new head, shuffling and dropout.
    steps:
        stop after this many optimizer steps, for a test.
    """
    if search:
        _search(model, question)
        return
    if question is not None:
        raise ConfigError("--question is for --search. Give both, or neither.")
    from filbert import api
    from filbert.quickstart import options_of

    options = options_of("toxic" if toxic else "intents") | {"model": model, "seed": seed}
    run = api.finetune(**options, out=out, steps=steps, overwrite=overwrite)
    print_run(run.facts)
    example = "Thank you for your help." if toxic else "I think somebody has stolen my card."
    print(f"report: {run.folder / 'report.html'}")
    print("Try next:")
    print(f"  echo '{example}' | filbert predict {run.folder / 'model'}")
    print("  filbert quickstart --search --question 'Am I short of money?'")
    print(f"  filbert serve {run.folder / 'model'}")


def _search(model: str, question: str | None) -> None:
    """Print what was found, and how often it has the intent of the question."""
    from filbert import quickstart
    from filbert.report.numbers import probability

    questions = quickstart.QUESTIONS if question is None else (question,)
    result = quickstart.search(model, questions)
    print(f"The nearest of {result.num_texts} sentences by the cosine of their vectors:")
    for asked, hits in zip(questions, result.hits, strict=True):
        print(f"\n{asked}")
        for text, cosine in hits:
            print(f"  {cosine:.2f}  {text}")
    shares = result.shares
    print(
        f"\nOf {result.num_tested} other sentences, the nearest one has the same intent for "
        f"{shares['vectors']:.1%}; by TF-IDF for {shares['TF-IDF']:.1%} (McNemar's test: "
        f"p {probability(result.test.p)})."
    )
    print("Try next:")
    print("  filbert quickstart --search --question 'Am I short of money?'")
    print(f"  echo 'Am I short of money?' | filbert embed {model} --out vector.jsonl")
    print(f"  filbert serve {model}")


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
