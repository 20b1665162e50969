"""Weights of one byte each: read by the rule of the documentation, and by no other tool."""

import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

import filbert
from filbert.checkpoints.opening import find_model, read_checkpoint
from filbert.checkpoints.weights import open_weights
from filbert.conversion import convert_model
from filbert.errors import FormatError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers
    import transformers

FOUR = {"a": torch.tensor([[4, -127], [0, 1]], dtype=torch.int8), "b": torch.tensor([3.0]).half()}
SCALES = torch.tensor([0.5, 2.0]).half()
TEXTS = ["A man is eating food.", "Überraschung! 今日は 1,234.5 ...", "word " * 100]


def test_a_weight_is_its_whole_number_times_the_scale_of_its_row(tmp_path):
    save_file(FOUR | {"a.scale": SCALES}, tmp_path / "packed.safetensors")
    weights = open_weights(tmp_path)
    assert weights.shapes == {"a": (2, 2), "b": (1,)}
    assert {stored.dtype for stored in weights.tensors.values()} == {"F32"}
    assert weights.read("a").tolist() == [[2.0, -63.5], [0.0, 2.0]]
    assert weights.read("b").tolist() == [3.0]


@pytest.mark.parametrize(
    "change",
    [{}, {"a.scale": SCALES[:1]}, {"a.scale": SCALES.float()}],
)
def test_rows_without_their_scales_are_refused(change, tmp_path):
    save_file(FOUR | change, tmp_path / "packed.safetensors")
    with pytest.raises(FormatError, match="neither float16 nor int8"):
        open_weights(tmp_path)


def test_a_model_may_hold_the_difference_from_another(tmp_path):
    for name in ("base", "model"):
        (tmp_path / name).mkdir()
    base = FOUR | {"a.scale": SCALES}
    base |= {"x.pooler.a": FOUR["a"].clone(), "x.pooler.a.scale": SCALES.clone()}
    save_file(base, tmp_path / "base" / "packed.safetensors")
    own = {"a": FOUR["a"].flip(0), "a.scale": SCALES, "c": FOUR["a"].clone(), "c.scale": SCALES * 2}
    own |= {"x.pooler.a": own["a"].clone(), "x.pooler.a.scale": SCALES.clone()}
    path = tmp_path / "model" / "packed.safetensors"
    save_file(own | {"b": FOUR["b"]}, path, {"base": "base"})
    weights = open_weights(tmp_path / "model")
    assert weights.read("a").tolist() == [[2.0, -63.0], [8.0, -252.0]]
    assert weights.read("b").tolist() == [3.0], "only matrices are differences"
    assert weights.read("c").tolist() == [[4.0, -127.0], [0.0, 4.0]], "the base has none"
    assert torch.equal(weights.read("x.pooler.a"), own["a"] * SCALES.float()[:, None])
    for wrong in ("missing", "../model/../base"):
        save_file(own, path, {"base": wrong})
        with pytest.raises(FormatError, match="not next to it"):
            open_weights(tmp_path / "model")


def test_the_built_in_models_are_read_by_these_rules():
    minilm, mini = (
        load_file(find_model(n) / "packed.safetensors") for n in ("minilm", "filbert-mini")
    )
    table = "bert.embeddings.word_embeddings.weight"
    base, own = (m[table].float() * m[f"{table}.scale"].float()[:, None] for m in (minilm, mini))
    for name, expected in (("minilm", base), ("filbert-mini", own + base)):
        tensors = read_checkpoint(find_model(name)).tensors
        assert torch.equal(tensors["encoder.embeddings.word.weight"], expected)
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


def test_other_tools_refuse_the_folder_and_load_what_convert_writes(tmp_path):
    with pytest.raises(OSError, match="no file named"):
        transformers.AutoModel.from_pretrained(find_model("minilm"))
    with pytest.raises(OSError, match="no file named"):
        sentence_transformers.SentenceTransformer(str(find_model("minilm")), device="cpu")
    convert_model("minilm", tmp_path / "plain", to="huggingface")
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "plain"), device="cpu")
    expected = torch.tensor(peer.encode(TEXTS, show_progress_bar=False))
    vectors = torch.tensor(filbert.load("minilm").embed(TEXTS))
    # As in tests/reference/test_minilm.py: twelve products of up to 1,536 terms.
    assert torch.allclose(vectors, expected, atol=1e-5)
