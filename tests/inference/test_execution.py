"""How large batches are, and what the first pass leaves to be paid for."""

import pytest
import torch
from tests.conftest import sizes

import filbert
from filbert.inference.forward import default_max_tokens, run_vectors
from filbert.model.config import EncoderConfig

CPU = torch.device("cpu")
BASE = EncoderConfig.of(**sizes(vocab_size=100, layers=1, width=768, heads=12, inner=3072))


@pytest.mark.parametrize(
    ("number_format", "width", "tokens"),
    [
        ("float32", 3072, 1024),
        ("bf16", 3072, 2048),
        ("int8", 3072, 768),
        ("float32", 1536, 2048),
        ("bf16", 1536, 2048),
        ("int8", 1536, 1536),
        ("int8", 100_000, 512),
    ],
)
def test_batches_are_as_wide_as_each_format_bears(number_format, width, tokens):
    config = BASE.changed(intermediate_size=width)
    assert default_max_tokens(CPU, config, number_format) == tokens


def test_a_loaded_model_has_batches_of_its_format(film_run, monkeypatch):
    monkeypatch.setattr("filbert.inference.forward._WIDEST", {"float32": 2**16, "int8": 2**17})
    width = film_run.model.model.config.feed_forward.width
    for precision, values in (("float32", 2**16), ("int8", 2**17)):
        found = filbert.load(film_run.folder / "model", precision=precision)
        assert found.max_tokens == values // width


def test_a_model_has_been_asked_for_vectors_before_the_first_text(tiny_model, monkeypatch):
    """What hidden states go through afterwards is paid for, too."""
    asked = []

    def noted(model, examples, *how, **options):
        asked.append(len(examples))
        return run_vectors(model, examples, *how, **options)

    monkeypatch.setattr("filbert.inference.predictor.run_vectors", noted)
    model = filbert.load(tiny_model)
    assert asked == [1]
    model.embed(["one", "two"])
    assert asked == [1, 2]
