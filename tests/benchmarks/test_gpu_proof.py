"""The table of gpu_proof.py, at toy size on a CPU."""

import json


def test_a_part_that_fails_ends_with_status_1_and_the_others_still_run(load, monkeypatch, tmp_path):
    proof = load("gpu_proof")
    command = ["--toy", "--parts", "gradients", "inference", "--out", str(tmp_path)]
    monkeypatch.setattr(proof.gpu_speed, "find_spec", lambda name: None)
    assert proof.main(command) == 0
    content = json.loads((tmp_path / "gpu-proof.json").read_text("utf-8"))
    assert {"device", "torch", "commit", "date"} <= content["machine"].keys()
    checks = [row for row in content["rows"] if row["part"] == "gradients"]
    assert len(checks) == 16 and all(row["value"] <= row["bound"] for row in checks)
    units = [row.get("unit") for row in content["rows"][16:]]
    assert units == ["ms", "ms", "texts/s", "pairs/s", "texts/s", None]
    monkeypatch.setitem(proof.gpu_equality.MODEL_BOUNDS, "bf16", 1e-9)
    assert proof.main(command) == 1
    lines = (tmp_path / "gpu-proof.md").read_text("utf-8").splitlines()
    assert len([line for line in lines if "| FAIL |" in line]) == 8 and "not installed" in lines[-1]
