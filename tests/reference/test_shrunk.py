"""Smaller models in transformers: those that its classes can express compute the same there."""

import warnings
from dataclasses import replace

import pytest
import torch
from tests.reference.theirs import transformers

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.data.examples import collate
from filbert.inference.predictor import Predictor
from filbert.shrinking import shrink
from filbert.tasks.rows import row_of_value

# A few units in the last place of float32 outputs of about one.
TOLERANCE = 1e-6


@pytest.fixture(scope="module", autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def checkpoint(tiny_model):
    torch.manual_seed(5)
    found = with_new_head(read_checkpoint(tiny_model), "sequence", labels=("no", "yes"))
    # Weights that are far from small and biases that are not 0.
    moved = {name: t + 0.1 * torch.randn_like(t) for name, t in found.tensors.items()}
    return replace(found, tensors=moved)


def test_fewer_layers_and_entries_load_there_by_the_folder_alone(
    checkpoint, tiny_model, films, tmp_path
):
    source, out = tmp_path / "source", tmp_path / "out"
    huggingface.write(checkpoint, source)
    read_tokenizer(tiny_model).save(source)
    files = (str(films / "train.csv"),)
    shrink(str(source), out, keep_layers=(1,), vocabulary_from=files)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    texts = ["the film was not very good", "he was great , a play", "bad"]
    with torch.no_grad():
        wanted = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    predictor = Predictor.load(out)
    examples = predictor.row_examples(
        [row_of_value(predictor.known_task(), text, i) for i, text in enumerate(texts)]
    )
    assert (predictor.model(collate(examples)) - wanted).abs().max() < TOLERANCE
    assert type(model).__name__ == "BertForSequenceClassification"
