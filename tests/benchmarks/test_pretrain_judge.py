"""The masked-LM loss with which benchmarks/against/pretrain_mlm.py compares both sides."""

from __future__ import annotations

import pytest
import torch

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
LINES = ["the film was good", "a play , bad"] * 40


@pytest.fixture
def tokenizer(load, vocab):
    return load("pretrain_data").bert_tokenizer(vocab)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_the_judge_finds_the_loss_that_transformers_finds(load, tokenizer, tmp_path, activation):
    from transformers import BertConfig, BertForMaskedLM

    data, judge = load("pretrain_data"), load("pretrain_judge")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, hidden_act=activation, initializer_range=0.5, **SHAPE
    )
    model = BertForMaskedLM(config).eval()
    # Drawn as zeros, and then their place would not matter.
    torch.nn.init.normal_(model.cls.predictions.bias)
    found = data.mask(data.framed(tokenizer, LINES, 10), tokenizer, seed=0)
    ids = torch.from_numpy(found.input_ids).long()
    labels = torch.full_like(ids, -100)
    labels[found.rows, found.columns] = torch.from_numpy(found.labels)
    with torch.no_grad():
        theirs = model(input_ids=ids, labels=labels)
    right = (theirs.logits.argmax(-1) == labels).sum() / len(found.labels)
    model.save_pretrained(tmp_path)
    ours = judge.judge_folder(tmp_path, {"framed": found})["framed"]
    # Float32, in another order of summation.
    assert ours["loss"] == pytest.approx(float(theirs.loss), rel=1e-5)
    assert ours["accuracy"] == pytest.approx(float(right))
    state = judge.judge(model.state_dict(), config.to_dict(), found)
    assert state["loss"] == pytest.approx(ours["loss"], rel=1e-6)


def test_the_judge_reads_a_folder_that_filbert_wrote(load, tokenizer, tmp_path):
    from transformers import BertForMaskedLM

    from filbert.checkpoints import huggingface
    from filbert.checkpoints.checkpoint import Checkpoint
    from filbert.model.config import EncoderConfig
    from filbert.model.encoder import Encoder, initialize
    from filbert.model.heads import Model, new_head

    data, judge = load("pretrain_data"), load("pretrain_judge")
    torch.manual_seed(0)
    config = EncoderConfig.of(vocab_size=tokenizer.vocab_size, pooler=None, **SHAPE)
    model = Model(Encoder(config), new_head("masked_lm", config))
    initialize(model, 0.5)
    written = Checkpoint(config, "bert", model.state_dict(), head="masked_lm")
    huggingface.write(written, tmp_path)
    found = data.mask(data.framed(tokenizer, LINES, 10), tokenizer, seed=0)
    ours = judge.judge_folder(tmp_path, {"framed": found})["framed"]
    theirs = BertForMaskedLM.from_pretrained(tmp_path).eval()
    again = judge.judge(theirs.state_dict(), theirs.config.to_dict(), found)
    assert ours["loss"] == pytest.approx(again["loss"], rel=1e-6)
