"""What run.json says of a pre-training run, before the first step and after the last."""

from __future__ import annotations

import dataclasses
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from filbert.data.shards import Corpus
from filbert.speed.precision import Precision
from filbert.train.distributed import Parallel, Trainable
from filbert.train.facts import device_name
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.pretrain_sources import Sources
from filbert.train.trainer import Outcome


def opening(
    options: PretrainOptions,
    sources: Sources,
    model: Trainable,
    started: datetime,
    precision: Precision,
    parallel: Parallel,
) -> dict[str, Any]:
    """What run.json knows before the first step."""
    data = {"train": _corpus_facts(sources.corpus)}
    if sources.dev is not None:
        data["dev"] = _corpus_facts(sources.dev)
    return {
        "filbert": version("filbert"),
        "command": "pretrain",
        "name": Path(options.out or "").name,
        "started": started.isoformat(timespec="seconds"),
        "options": {k: v for k, v in dataclasses.asdict(options).items() if v is not None},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "device": {
            "name": device_name(parallel.device),
            "threads": torch.get_num_threads(),
            "processes": parallel.world,
        },
        "precision": precision.name,
        "precision_reason": precision.reason,
        "model": {
            "source": options.model,
            "family": sources.checkpoint.family,
            "parameters": sum(p.numel() for p in model.parameters()),
            "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "config": dataclasses.asdict(sources.checkpoint.config),
            "notes": list(sources.checkpoint.notes),
        },
        "tokenizer": {
            "kind": sources.tokenizer.kind,
            "vocab_size": sources.tokenizer.vocab_size,
            "fingerprint": sources.tokenizer.fingerprint,
        },
        "data": data,
    }


def closing(
    outcome: Outcome, metrics: dict[str, dict[str, float]], seconds: float
) -> dict[str, Any]:
    """What it knows after the last one."""
    return {
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": seconds,
        "status": outcome.status,
        "steps": outcome.steps,
        "tokens": outcome.num_tokens,
        "training_seconds": outcome.seconds,
        "tokens_per_second": outcome.num_tokens / max(outcome.seconds, 1e-9),
        "fill": outcome.fill,
        "metrics": metrics,
    }


def _corpus_facts(corpus: Corpus) -> dict[str, Any]:
    return {
        "path": str(corpus.folder.name),
        "sha256": corpus.digest,
        "documents": corpus.num_documents,
        "sentences": corpus.num_sentences,
        "tokens": corpus.num_tokens,
    }
