"""Every optimiser under two processes: the steps of one process, and a state of any kind.

Run by torchrun, this file is also the worker that measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

CASES = ("adamw", "bert_adam", "lamb", "muon", "muon in bf16")
# FSDP is for AdamW only.
KINDS = {case: ("single", "ddp", *(["fsdp"] if case == "adamw" else [])) for case in CASES}
Measured = list[dict[str, dict[str, Any]]]
# A tenth of one step, as in test_state.py; LAMB's steps are as long as its weights are large.
CLOSE = 1e-4


@pytest.fixture(scope="module")
def optimizers(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """What each of two processes measured."""
    out = tmp_path_factory.mktemp("optimizers")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", __file__, str(out)]
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("case", "source", "target"),
    [(case, a, b) for case in CASES for a in KINDS[case] for b in KINDS[case]],
)
def test_a_state_of_any_kind_is_loaded_and_trained_on_as_if_nothing_had_happened(
    optimizers: Measured, case: str, source: str, target: str
) -> None:
    for rank in optimizers:
        found = rank[case][f"{source} to {target}"]
        assert found["loaded"]
        # The order of sums differs between kinds, and bf16 rounds such a difference up.
        assert found["distance"] < (0.02 if case == "muon in bf16" else CLOSE)
        if source == target:
            assert found["exact"]


@pytest.mark.parametrize("case", CASES)
def test_a_run_of_two_processes_changes_the_weights_by_much_more_than_the_tolerance(
    optimizers: Measured, case: str
) -> None:
    assert all(rank[case]["moved"] > 0.003 for rank in optimizers)


@pytest.mark.parametrize(
    ("case", "kind"), [(case, kind) for case in CASES for kind in KINDS[case][1:]]
)
def test_both_processes_hold_the_same_weights(optimizers: Measured, case: str, kind: str) -> None:
    assert all(rank[case][f"agree {kind}"] for rank in optimizers)


def measure(parallel: Any, name: str, precision: str) -> dict[str, Any]:
    """Every kind's state loaded into every kind, and trained on."""
    import torch
    import torch.distributed as dist
    import worker

    worker.OPTIONS, worker.PRECISION = replace(worker.OPTIONS, optimizer=name), precision
    kinds = {
        "single": replace(parallel, rank=0, world=1, kind="single"),
        "ddp": parallel,
    }
    if name == "adamw":
        kinds["fsdp"] = replace(parallel, kind="fsdp")
    found: dict[str, Any] = {}
    start = worker.Run(kinds["single"]).state()[0]
    middle = {kind: worker.Run(each).train(range(3)).state() for kind, each in kinds.items()}
    final = {kind: worker.Run(each).train(range(5)).state() for kind, each in kinds.items()}
    found["moved"] = worker.distance(start, final["ddp"][0])
    for target, each in kinds.items():
        for source, state in middle.items():
            # Another seed and a step of its own: everything it has must be replaced.
            run = worker.Run(each, seed=7).train(range(1))
            each.load_state(run.wrapped, run.optimizer, *state)
            loaded = run.state()
            after = run.train(range(3, 5)).state()
            found[f"{source} to {target}"] = {
                "loaded": all(worker.same(a, b) for a, b in zip(loaded, state, strict=True)),
                "distance": worker.distance(after[0], final["single"][0]),
                "exact": all(worker.same(a, b) for a, b in zip(after, final[target], strict=True)),
            }
        if target != "single":
            mine = {n: worker.full(t) for n, t in run.model.state_dict().items()}
            for tensor in mine.values():
                first = tensor.clone()
                dist.broadcast(first, 0)
                agree = found.get(f"agree {target}", True) and torch.equal(first, tensor)
                found[f"agree {target}"] = agree
    return found


def main(out: Path) -> None:
    """Write rank0.json and rank1.json into `out`."""
    import torch

    from filbert.train.distributed import start

    torch.set_num_threads(1)
    with start("ddp", "cpu") as parallel:
        found = {
            case: measure(parallel, case.split()[0], "auto" if "bf16" in case else "float32")
            for case in CASES
        }
        (out / f"rank{parallel.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
