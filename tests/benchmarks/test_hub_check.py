"""benchmarks/hub_check.py against a Hub on this machine, with tiny folders of four families."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import hub_server
from tests.conftest import sizes

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.text.tokenizer import Tokenizer

SIZES: dict[str, Any] = sizes(layers=2, width=32, heads=4, positions=64)
HEADS = {"bert": "masked_lm", "modernbert": "sequence", "deberta-v2": "tokens", "distilbert": None}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Tokenizer) -> Iterator[Any]:
    """A Hub with a model of each family, and one that filbert does not read."""
    with hub_server.running() as running, hub_server.client(monkeypatch, running, tmp_path / "hf"):
        for family, head in HEADS.items():
            torch.manual_seed(0)
            fresh = fresh_checkpoint(
                family, vocab_size=tiny.vocab_size, head="masked_lm", pad_id=0, **SIZES
            )
            labels = ("a", "b", "c") if head in ("sequence", "tokens") else None
            (folder := tmp_path / family).mkdir()
            huggingface.write_folder(
                folder,
                fresh if head == "masked_lm" else with_new_head(fresh, head, labels=labels),
                tiny,
                {},
                source=tmp_path,
            )
            running.add(f"tiny/{family}", folder)
        llama = json.dumps({"model_type": "llama"}).encode()
        running.add("tiny/llama", {"config.json": llama, "model.safetensors": b""})
        yield running


def test_models_are_compared_once_and_a_run_goes_on(server, load, tmp_path, capsys):
    check, out, names = load("hub_check"), tmp_path / "out.jsonl", tmp_path / "names.txt"
    names.write_text("".join(f"tiny/{n}\n" for n in HEADS) + "# a line\ntiny/llama refused\n")
    command = ["--list", str(names), "--out", str(out)]
    assert check.main(command) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["status"] for one in found] == ["same"] * 4 + ["refused"]
    assert [(one["family"], one["head"]) for one in found[:4]] == list(HEADS.items())
    assert all(one["difference"] < 1e-5 for one in found[:4])
    printed = capsys.readouterr().out
    assert "predicts the next token" in printed and "4 same, 1 refused" in printed
    server.requests.clear()
    names.write_text(names.read_text() + "tiny/gone\n")
    assert check.main(command) == 1
    assert {path.split("/models/")[-1] for path in server.requests} == {"tiny/gone"}
    server.add("tiny/gone", tmp_path / "bert")
    capsys.readouterr()
    assert check.main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["counts"], summary["wrong"]) == ({"same": 5, "refused": 1}, [])


def test_a_difference_and_an_unexpected_refusal_are_wrong(server, load, tmp_path, monkeypatch):
    check, names = load("hub_check"), tmp_path / "names.txt"
    theirs = check.their_output
    monkeypatch.setattr(check, "their_output", lambda *given: theirs(*given) * 1.01)
    for name, status in (("bert", "differs"), ("llama", "refused")):
        names.write_text(f"tiny/{name}\n")
        out = tmp_path / f"{name}.jsonl"
        assert check.main(["--list", str(names), "--out", str(out)]) == 1
        assert json.loads(out.read_text())["status"] == status
