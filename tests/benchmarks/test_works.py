"""The other works: tokenising and training, with the same texts for every side."""

import pytest

from filbert import samples
from filbert.text.tokenizer import Tokenizer
from sides import sides
from sides.job import Job
from sides.tokenizing import sample_texts

SAMPLE = str(samples.path("toxic_train.csv.gz"))


def turn(work, name, model, tmp_path):
    if reason := sides.why_not(work, name, "cpu"):
        pytest.skip(reason)
    job = Job(work, name, str(model), SAMPLE, str(tmp_path), 1)
    return sides.load(work, name, job)()


def tokens_in(model, count=None, *, max_length):
    """Tokens of the sample's first texts; the model's positions end at 64."""
    found = Tokenizer.load(model).encode(sample_texts(SAMPLE, count), max_length=max_length)
    return sum(len(encoding.input_ids) for encoding in found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sides.SIDES["train"])
def test_every_side_trains_on_the_same_tokens(name, tiny_model, tmp_path):
    found = turn("train", name, tiny_model, tmp_path)
    assert found["seconds"] > 0
    assert (found["texts"], found["tokens"]) == (64, tokens_in(tiny_model, 64, max_length=64))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sides.SIDES["tokenize"])
def test_every_side_makes_the_same_number_of_tokens(name, tiny_model, tmp_path):
    found = turn("tokenize", name, tiny_model, tmp_path)
    assert (found["texts"], found["tokens"]) == (4_000, tokens_in(tiny_model, max_length=256))
