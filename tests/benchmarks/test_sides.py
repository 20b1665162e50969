"""Who takes part, and that every side gives the same vectors for the same ids."""

import numpy as np
import pytest

from sides import sides
from sides.job import Job
from sides.workload import drawn


def test_a_side_whose_package_is_missing_is_left_out_with_a_sentence(monkeypatch):
    known = sides.find_spec
    monkeypatch.setattr(
        sides, "find_spec", lambda name: None if name == "openvino" else known(name)
    )
    names, reasons = sides.take_part("encode", ["openvino-bf16", "filbert-float32"], "cpu")
    assert names == ["filbert-float32"]
    assert reasons[0].startswith("openvino-bf16: openvino ")
    assert reasons[0].endswith("not here.")


# What a number format may cost on this tiny model, and rounding in another order of sums.
TOLERANCE = {"float32": 1e-5, "bf16": 5e-3, "int8": 5e-2}
ENGINES = ("onnxruntime", "ctranslate2", "openvino")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in sides.SIDES["encode"] if not n.startswith(ENGINES)])
def test_every_torch_side_gives_the_vectors_of_the_padded_reference(name, tiny_model, tmp_path):
    if sides.why_not("encode", name, "cpu"):
        pytest.skip(sides.why_not("encode", name, "cpu"))
    job = Job("encode", name, str(tiny_model), "", str(tmp_path), 1)
    check(job, name, tiny_model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in sides.SIDES["encode"] if n.startswith(ENGINES)])
def test_every_other_engine_gives_the_vectors_of_the_padded_reference(name, tiny_model, tmp_path):
    if sides.why_not("encode", name, "cpu"):
        pytest.skip(sides.why_not("encode", name, "cpu"))
    job = Job("encode", name, str(tiny_model), "", str(tmp_path), 1)
    check(job, name, tiny_model)


def check(job, name, tiny_model):
    transformers = pytest.importorskip("transformers")
    import torch

    texts = drawn([5, 12, 3, 12, 40], vocab_size=34, cls_id=2, sep_id=3).texts
    found = sides.load("encode", name, job)(texts)
    judge = transformers.AutoModel.from_pretrained(tiny_model).eval()
    with torch.inference_mode():
        wanted = np.stack(
            [judge(torch.from_numpy(ids)[None]).last_hidden_state[0].mean(0) for ids in texts]
        )
    assert found.dtype == np.float32
    cosine = (found * wanted).sum(1) / np.linalg.norm(found, axis=1)
    cosine /= np.linalg.norm(wanted, axis=1)
    assert cosine.min() > 1 - TOLERANCE[name.rpartition("-")[2]]
