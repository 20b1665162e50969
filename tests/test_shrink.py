from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch

import filbert
from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.shrinking import cut_vocabulary, shrink


@pytest.fixture(scope="module")
def source(film_run):
    return film_run.model.checkpoint.source


@pytest.fixture(scope="module")
def shrunk(source, films, tmp_path_factory):
    """All that can be taken away, taken away."""
    out = tmp_path_factory.mktemp("shrunk") / "model"
    files = (str(films / "train.csv"),)
    return out, shrink(str(source), out, keep_layers=(1,), vocabulary_from=files)


def test_every_step_saves_something_and_the_last_is_the_model_in_the_folder(shrunk):
    out, facts = shrunk
    assert [step["name"] for step in facts["steps"]] == [
        "as it was",
        "1 of 2 layers",
        "18 of 34 entries",
    ]
    sizes = [step["bytes"] for step in facts["steps"]]
    assert sizes == sorted(sizes, reverse=True)
    model = filbert.load(out)
    parameters = sum(parameter.numel() for parameter in model.model.parameters())
    assert parameters == facts["steps"][-1]["parameters"]


def test_the_folder_tells_where_it_comes_from_and_claims_no_figures_of_the_original(shrunk, source):
    out, facts = shrunk
    story = json.loads((out / "filbert.json").read_text("utf-8"))
    assert story["shrunk"] == json.loads(json.dumps(facts))
    assert story["task"] == json.loads((source / "filbert.json").read_text("utf-8"))["task"]
    assert "metrics" not in story
    assert "options" not in story
    text = (out / "filbert.json").read_text("utf-8") + (out / "README.md").read_text("utf-8")
    assert str(source.parent) not in text
    assert "| 1 of 2 layers |" in text


def test_a_cut_vocabulary_changes_no_answer_on_its_corpus(source, films, tmp_path):
    shrink(
        str(source),
        tmp_path / "cut",
        vocabulary_from=(str(films / "train.csv"),),
    )
    with (films / "train.csv").open(encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)][:20]
    one, other = filbert.load(source), filbert.load(tmp_path / "cut")
    assert other.model.config.vocab_size < one.model.config.vocab_size
    assert [p["scores"] for p in one.predict(texts)] == [p["scores"] for p in other.predict(texts)]


@pytest.mark.parametrize("column", ["text_pair", "reply"])
def test_the_second_texts_of_pairs_count_for_the_vocabulary(column, source, tmp_path):
    corpus = tmp_path / "pairs.csv"
    corpus.write_text(f"text,{column}\nthe film,she plays\ngood,\n", "utf-8")
    names = ColumnNames(text_pair_column=None if column == "text_pair" else column)
    shrink(str(source), tmp_path / "cut", vocabulary_from=(str(corpus),), names=names)
    one, other = filbert.load(source), filbert.load(tmp_path / "cut")
    assert other.model.config.vocab_size < one.model.config.vocab_size
    pair = [("the film", "she plays")]
    tokens = [m.tokenizer.tokens(m.tokenizer.encode(pair)[0].input_ids) for m in (one, other)]
    assert tokens[0] == tokens[1]


def test_the_vocabulary_is_that_of_texts_as_the_model_is_given_them(source, tmp_path):
    folder = shutil.copytree(source, tmp_path / "cleaned")
    story = json.loads((folder / "filbert.json").read_text())
    story["task"]["clean"] = ["contractions"]
    (folder / "filbert.json").write_text(json.dumps(story))
    corpus = tmp_path / "text.txt"
    corpus.write_text("the film isn't bad\n", "utf-8")
    shrink(str(folder), tmp_path / "cut", vocabulary_from=(str(corpus),))
    one, other = filbert.load(folder), filbert.load(tmp_path / "cut")
    texts = ["the film isn't bad"]
    assert [p["scores"] for p in one.predict(texts)] == [p["scores"] for p in other.predict(texts)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Nothing to remove"),
        ({"vocabulary_from": ("-",)}, "read twice"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        shrink("nowhere", tmp_path / "out", **options)


TEXTS = ["the film was good", "she sees films"]


def drawn(kind: str | None = "sequence", **fields) -> Checkpoint:
    """A checkpoint of random numbers."""
    torch.manual_seed(3)
    shape = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
             "intermediate_size": 24, "max_position_embeddings": 20}  # fmt: skip
    config = EncoderConfig.of(**{**shape, **fields})
    encoder = Encoder(config)
    initialize(encoder, 0.2)
    return with_new_head(
        Checkpoint(config, "bert", Model(encoder).state_dict()),
        kind,
        labels=("no", "yes") if kind == "sequence" else None,
    )


@pytest.mark.parametrize("bias", ["head.bias", "head.scores.bias"])
def test_a_masked_lm_head_scores_the_kept_entries_as_before(bias, tiny):
    checkpoint = drawn("masked_lm", vocab_size=64, lm_tied=bias == "head.bias")
    checkpoint.tensors[bias] += torch.randn(64)
    small_model, tokenizer, facts = cut_vocabulary(checkpoint, tiny, lambda: TEXTS)
    kept = [tiny.id_of(text) for text in tokenizer.tokens(range(tokenizer.vocab_size))]
    before = tiny.encode(TEXTS)
    after = tokenizer.encode(TEXTS)
    whole = checkpoint.build()(pack([e.input_ids for e in before]))
    small = small_model.build()(pack([e.input_ids for e in after]))
    # A product over fewer rows may be summed in another order.
    assert (small - whole[:, kept]).abs().max() < 1e-5
    assert small_model.config.vocab_size == facts["entries"] == len(kept) < 34
    assert facts["texts_cut_otherwise"] == 0


def test_ids_in_config_json_follow_their_tokens(tiny, tmp_path):
    ids = {"mask_token_id": 4, "sep_token_id": 3, "bos_token_id": 33}
    checkpoint = replace(drawn(vocab_size=34), extra={**ids, "tokenizer_class": "X"})
    small_model, tokenizer, facts = cut_vocabulary(checkpoint, tiny, lambda: TEXTS)
    assert small_model.extra["mask_token_id"] == tokenizer.mask_id
    assert small_model.extra["sep_token_id"] == tokenizer.sep_id
    # The entry "3" does not occur.
    assert "bos_token_id" not in small_model.extra
    assert small_model.extra["tokenizer_class"] == "X"
    huggingface.write(small_model, tmp_path)


def test_a_padding_token_that_positions_hang_on_is_refused(tiny):
    # Its positions begin behind a padding token that is said to be at id 5.
    shifted = drawn(vocab_size=64, position_offset=6)
    with pytest.raises(ConfigError, match="positions from the id of the padding token"):
        cut_vocabulary(shifted, tiny, lambda: TEXTS)
