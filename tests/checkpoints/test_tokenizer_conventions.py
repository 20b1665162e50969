from __future__ import annotations

import json
from pathlib import Path

import pytest

from filbert.checkpoints.config_json import RECOGNISED
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.huggingface import CONVENTIONS, convention_of, read_tokenizer
from filbert.errors import FormatError
from filbert.text.spiece import SentencePieceModel, write_spiece
from filbert.text.vocabulary import NO_CONVENTION

PIECES = (("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁the", -1.0), ("▁film", -2.0))


def state(folder: Path, *, model_type: str | None = None, name: object = None) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))


@pytest.mark.parametrize(
    ("model_type", "name", "found"),
    [
        ("bert", None, "BertTokenizer"),
        ("bert", "XLMRobertaTokenizer", "XLMRobertaTokenizer"),
        ("bert", "BertTokenizerFast", "BertTokenizer"),
        ("camembert", "PreTrainedTokenizerFast", "CamembertTokenizer"),
        (None, "AlbertTokenizerFast", "AlbertTokenizer"),
    ],
)
def test_the_class_of_the_tokenizer_goes_before_the_type_of_the_model(
    tmp_path, model_type, name, found
):
    state(tmp_path, model_type=model_type, name=name)
    assert convention_of(tmp_path) is CONVENTIONS[found]


def test_what_is_not_known_has_no_convention(tmp_path):
    assert convention_of(tmp_path) is NO_CONVENTION
    state(tmp_path, model_type="modernbert", name=["odd"])
    assert convention_of(tmp_path) is NO_CONVENTION
    assert convention_of(tmp_path, "albert") is CONVENTIONS["AlbertTokenizer"]


def test_every_family_but_those_with_tokenizer_json_only_has_a_convention(tmp_path):
    without = {name for name in FAMILIES if convention_of(tmp_path, name) is NO_CONVENTION}
    assert without <= FAMILIES.keys() - set(RECOGNISED) | {"modernbert"}


@pytest.mark.parametrize(
    ("model_type", "entries"),
    [
        ("xlm-roberta", ["<s>", "<pad>", "</s>", "<unk>", "▁the", "▁film", "<mask>"]),
        (
            "camembert",
            ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
            + ["▁the", "▁film", "<mask>"],
        ),
    ],
)
def test_pieces_get_the_ids_of_the_family(tmp_path, model_type, entries):
    data = write_spiece(SentencePieceModel(PIECES, 0, b""), ("<s>", "</s>"))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(data)
    with pytest.raises(FormatError, match="the ids of its pieces are not recorded"):
        read_tokenizer(tmp_path)
    state(tmp_path, model_type=model_type)
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == entries
    single, pair = tokenizer.encode(["the film", ("the", "film x")])
    assert tokenizer.tokens(single.input_ids) == ["<s>", "▁the", "▁film", "</s>"]
    assert tokenizer.tokens(pair.input_ids)[2:5] == ["</s>", "</s>", "▁film"]
    assert not pair.token_type_ids.any() and tokenizer.unk_id in pair.input_ids


def test_a_class_that_does_more_than_its_files_say_is_refused(tmp_path, vocab):
    (tmp_path / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    state(tmp_path, model_type="bert", name="BertJapaneseTokenizer")
    with pytest.raises(FormatError, match="BertJapaneseTokenizer is not supported"):
        read_tokenizer(tmp_path)
    read_tokenizer(vocab).save(tmp_path / "whole")
    (tmp_path / "tokenizer.json").write_bytes((tmp_path / "whole/tokenizer.json").read_bytes())
    assert read_tokenizer(tmp_path).cls_id == 2


def test_mpnets_word_pieces_have_special_tokens_and_pairs_of_their_own(tmp_path):
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    entries = ["<s>", "<pad>", "</s>", "<unk>", *bert, "the", "film", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(entries) + "\n")
    state(tmp_path, model_type="mpnet")
    tokenizer = read_tokenizer(tmp_path)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (1, 5, 11)
    (pair,) = tokenizer.encode([("the", "film zebra")])
    assert pair.input_ids.tolist() == [0, 9, 2, 2, 10, 5, 2] and not pair.token_type_ids.any()
