"""Who takes part, and that every side gives the same vectors for the same ids."""

import numpy as np
import pytest

from filbert.checkpoints.opening import read_checkpoint
from sides import products, sides
from sides.job import Job
from sides.products import layer_shapes, product_rates
from sides.torch_sides import _near_equal, padded
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


def test_sides_of_the_processor_are_left_out_of_a_table_of_a_gpu():
    names, reasons = sides.take_part("encode", ["plain-torch-int8", "plain-torch-bf16"], "cuda")
    assert names == ["plain-torch-bf16"]
    assert "processor only" in reasons[0]


def test_plain_batches_hold_every_row_once_within_their_tokens():
    lengths = [5, 60, 7, 8, 300, 30, 31]
    batches = _near_equal(lengths, 64)
    assert sorted(row for batch in batches for row in batch) == list(range(7))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * longest <= 64


def test_padding_is_marked_in_the_mask():
    ids, mask = padded([np.array([2, 9, 3]), np.array([2, 3])])
    assert ids.tolist() == [[2, 9, 3], [2, 3, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]


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


def test_bare_products_are_measured_at_the_shapes_of_the_layers(tiny_model):
    config = read_checkpoint(tiny_model).config
    shapes = layer_shapes(config)
    assert shapes == {(32, 96): 1, (32, 32): 1, (32, 64): 1, (64, 32): 1}
    rates = product_rates(shapes, tokens=8, seconds=1e-3)
    assert rates["float32"] > 0
    assert set(rates) <= {"float32", "bf16", "int8"}


def test_products_have_the_threads_of_the_sides_and_give_them_back(monkeypatch):
    import torch

    seen = []
    monkeypatch.setattr(products, "_best", lambda *_: seen.append(torch.get_num_threads()) or 1.0)
    before = torch.get_num_threads()
    product_rates({(8, 8): 1}, threads=before + 1)
    assert set(seen) == {before + 1} and torch.get_num_threads() == before


@pytest.mark.parametrize(("device", "has_units"), [("cpu", False), ("cuda", True)])
def test_integer_products_that_filbert_would_not_use_are_no_ceiling(device, has_units, monkeypatch):
    monkeypatch.setattr(products, "has_integer_products", lambda: has_units)
    assert list(products._int8(8, 8, 8, device)) == []
