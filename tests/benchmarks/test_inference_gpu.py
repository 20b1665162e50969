"""benchmarks/inference_gpu.py: all of it, tiny, on a CPU; its lengths, goals and checks."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
# torch warns of its own doing when it is asked to compile.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("inference_gpu")
    for name in ("inference_gpu", "inference_gpu_peers", "pretrain_gpu"):
        sys.modules.pop(name, None)


def test_one_command_measures_everything_and_writes_it_down(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "found.jsonl"
    assert bench.main(["--cpu-smoke", "--results", str(file)]) == 0
    records = [json.loads(line) for line in file.read_text().splitlines()]
    ways = {record["way"] for record in records}
    assert "packed" in ways
    if importlib.util.find_spec("transformers"):
        assert {"transformers sdpa", "transformers sdpa compiled"} <= ways
    for way in ways:
        found = {(r["what"], r["length"]) for r in records if r["way"] == way}
        assert found == {
            ("latency", 16),
            ("latency", 128),
            ("throughput", 16),
            ("throughput", 128),
            ("throughput", "log-normal"),
        }
    for record in records:
        figures = [value for value in record.values() if isinstance(value, float)]
        assert all(np.isfinite(figures)) and record["torch"] == torch.__version__
        if record["what"] == "throughput":
            share = record["flops_per_second"] / record["peak"]
            assert record["utilisation"] == pytest.approx(share)
    printed = capsys.readouterr().out
    assert "no goal is set" in printed, "a tiny model has none"
    assert printed.count("| tiny |") == 2 * len(records)


def test_without_a_gpu_it_says_what_works_instead(bench, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main([])
    assert "--cpu-smoke" in capsys.readouterr().err


def test_the_peer_reads_the_same_tokens(bench):
    pytest.importorskip("transformers")
    config = bench.config_of("tiny", 128)
    ((_, run),) = bench.peers_of(
        config, torch.device("cpu"), torch.float32, tokens=64, compile=False
    )
    examples = bench.examples_of([5, 30, 17, 30])
    together = torch.stack(run(examples))
    alone = torch.stack([run([example])[0] for example in examples])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    assert (together[1] - together[3]).abs().max() > 1e-4


def test_variable_lengths_are_those_of_the_issue(bench):
    lengths = np.array(bench.variable_lengths(2_000_000, longest=10_000))
    assert np.median(lengths) == pytest.approx(50, rel=0.03)
    assert lengths.mean() == pytest.approx(71, rel=0.03)
    cut = bench.variable_lengths(10_000, longest=256)
    assert max(cut) <= 256 and min(cut) >= 3
    assert 10_000 <= sum(cut) < 10_000 + 256
