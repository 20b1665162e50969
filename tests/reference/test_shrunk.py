"""Smaller models in transformers: those that its classes can express compute the same there."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from filbert.batch import pack, to_padded
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_layers, with_new_head
from filbert.checkpoints.fresh import factorised
from filbert.checkpoints.opening import read_checkpoint, read_tokenizer
from filbert.data.examples import collate
from filbert.predict import Predictor
from filbert.shrink.heads import prune_heads
from filbert.shrink.options import ShrinkOptions
from filbert.shrink.run import shrink

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.utils.logging.disable_progress_bar()

TEXTS = ["the film was not very good", "she was great !", "he"]
# A few units in the last place of float32 outputs of about one.
TOLERANCE = 1e-6
KEPT = ((0, 2), (3,))


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


def test_fewer_layers_entries_and_narrower_tables_load_there_by_the_folder_alone(
    checkpoint, tiny_model, films, tmp_path
):
    source, out = tmp_path / "source", tmp_path / "out"
    huggingface.write(checkpoint, source)
    read_tokenizer(tiny_model).save(source)
    options = ShrinkOptions(
        keep_layers=(1,), vocabulary_from=(str(films / "train.csv"),), embedding_size=12
    )
    shrink(str(source), out, options)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(out).eval()
    texts = ["the film was not very good", "he was great , a play", "bad"]
    with torch.no_grad():
        wanted = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    predictor = Predictor.load(out)
    examples = predictor.row_examples(
        [predictor.known_task().row(text, i) for i, text in enumerate(texts)]
    )
    assert (predictor.model(collate(examples)) - wanted).abs().max() < TOLERANCE
    assert type(model).__name__ == "AlbertForSequenceClassification"


def test_a_model_without_some_heads_computes_what_transformers_does_without_their_columns(
    checkpoint, tiny_model, tmp_path
):
    huggingface.write(checkpoint, tmp_path)
    judge = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    size = checkpoint.config.head_size
    with torch.no_grad():
        for layer, kept in enumerate(KEPT):
            columns = judge.bert.encoder.layer[layer].attention.output.dense.weight
            for head in set(range(4)) - set(kept):
                columns[:, head * size : (head + 1) * size] = 0.0
    encodings = read_tokenizer(tiny_model).encode(TEXTS)
    batch = pack([e.input_ids for e in encodings], [e.token_type_ids for e in encodings])
    mask = torch.zeros(3, batch.max_seqlen, dtype=torch.int64)
    mask[batch.sequence_ids, batch.position_ids] = 1
    with torch.no_grad():
        wanted = judge(to_padded(batch.input_ids, batch), mask).logits
        found = prune_heads(checkpoint, KEPT).build()(batch)
    assert (found - wanted).abs().max() < TOLERANCE


def test_transformers_5_refuses_a_folder_with_pruned_heads(checkpoint, tmp_path):
    # It knows no pruning; what must not happen is that it computes something else.
    huggingface.write(prune_heads(checkpoint, KEPT), tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch|mismatch"):
        transformers.BertForSequenceClassification.from_pretrained(tmp_path)


def test_narrower_tables_are_an_albert_whose_layers_share_nothing(checkpoint, tmp_path):
    small = with_layers(factorised(checkpoint, 12).checkpoint, (0, 1))
    huggingface.write(small, tmp_path)
    model = transformers.AlbertForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = pack([[2, 5, 6, 7, 3]])
    with torch.no_grad():
        wanted = model(batch.input_ids[None]).logits
        found = small.build()(batch)
    assert (found - wanted).abs().max() < TOLERANCE
