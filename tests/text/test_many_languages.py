"""Tokenizers of every kind against transformers' AutoTokenizer on the same folder, 71 languages.

Vocabularies are published ones, or learned on the same lines where none is at hand.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from filbert.checkpoints.huggingface import read_tokenizer


@pytest.fixture(scope="module", params=[400, pytest.param(10_000, marks=pytest.mark.slow)])
def lines(request: pytest.FixtureRequest, shared_data: Path) -> list[str]:
    """So many sentences, spread over all languages."""
    with gzip.open(shared_data / "ntrex_sample/sentences.tsv.gz", "rt", encoding="utf-8") as file:
        every = [line.rstrip("\n").split("\t")[-1] for line in file][1:]
    step = len(every) / request.param
    return [every[int(number * step)] for number in range(request.param)]


def learned(folder: Path, name: str, lines: list[str], **marks: object) -> None:
    """Write a SentencePiece model of the lines, as its own library learns it."""
    import sentencepiece

    with (folder / name).open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=out,
            vocab_size=len(lines) if len(lines) > 5000 else 4000,
            character_coverage=0.99,
            minloglevel=2,
            **marks,
        )


def published(name: str, *files: str) -> Callable[[Path, list[str], Path], None]:
    """Return a maker of a folder with some files of a published vocabulary."""

    def make(folder: Path, lines: list[str], shared_data: Path) -> None:
        for file in files:
            shutil.copyfile(shared_data / "tokenizers" / name / file, folder / file)

    return make


def wordpiece(folder: Path, lines: list[str], shared_data: Path) -> None:
    from tokenizers import BertWordPieceTokenizer

    backend = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    backend.train_from_iterator(lines, vocab_size=8000, show_progress=False)
    backend.save_model(str(folder))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def xlm_roberta(folder: Path, lines: list[str], shared_data: Path) -> None:
    learned(folder, "sentencepiece.bpe.model", lines)


def deberta(folder: Path, lines: list[str], shared_data: Path) -> None:
    """With transformers' tokenizer.json: its class reads the model file otherwise."""
    from transformers import DebertaV2Tokenizer

    ids = {f"{mark}_id": n for n, mark in enumerate(("pad", "bos", "eos", "unk"))}
    names = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
    pieces = {
        f"{mark}_piece": n for mark, n in zip(("pad", "bos", "eos", "unk"), names, strict=True)
    }
    learned(folder, "spm.model", lines, **ids, **pieces)
    DebertaV2Tokenizer.from_pretrained(str(folder)).save_pretrained(folder)


def t5(folder: Path, lines: list[str], shared_data: Path) -> None:
    learned(folder, "spiece.model", lines, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def xlnet(folder: Path, lines: list[str], shared_data: Path) -> None:
    """With transformers' tokenizer.json: its class reads the model file otherwise."""
    from transformers import XLNetTokenizer

    marks = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    learned(folder, "spiece.model", lines, control_symbols=marks)
    XLNetTokenizer.from_pretrained(str(folder)).save_pretrained(folder)


def jina_v2(folder: Path, lines: list[str], shared_data: Path) -> None:
    """As published: tokenizer.json of a BERT, next to vocab.txt."""
    from transformers import BertTokenizer

    source = shared_data / "tokenizers/bert-base-uncased"
    shutil.copyfile(source / "vocab.txt", folder / "vocab.txt")
    BertTokenizer.from_pretrained(str(source)).save_pretrained(folder)


def jina_v3(folder: Path, lines: list[str], shared_data: Path) -> None:
    """As published: tokenizer.json of an XLM-RoBERTa alone."""
    from transformers import XLMRobertaTokenizer

    learned(folder, "sentencepiece.bpe.model", lines)
    XLMRobertaTokenizer.from_pretrained(str(folder)).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()


KINDS: dict[str, tuple[dict[str, str], Callable[[Path, list[str], Path], None]]] = {
    "bert-base-uncased": ({"model_type": "bert"}, published("bert-base-uncased", "vocab.txt")),
    "bert-base-chinese": ({"model_type": "bert"}, published("bert-base-chinese", "vocab.txt")),
    "wordpiece": ({"model_type": "bert"}, wordpiece),
    "roberta-base": (
        {"model_type": "roberta"},
        published("roberta-base", "vocab.json", "merges.txt"),
    ),
    "gpt2": ({"model_type": "gpt2"}, published("gpt2", "vocab.json", "merges.txt")),
    "xlm-roberta": ({"model_type": "xlm-roberta"}, xlm_roberta),
    "deberta-v2": ({"model_type": "deberta-v2"}, deberta),
    "t5": ({"model_type": "t5"}, t5),
    "xlnet": ({"model_type": "xlnet"}, xlnet),
    "jina-v2": ({"model_type": "bert", "position_embedding_type": "alibi"}, jina_v2),
    "jina-v3": ({"model_type": "xlm-roberta", "position_embedding_type": "rotary"}, jina_v3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_71_languages_equal_transformers(kind, lines, shared_data, tmp_path):
    from transformers import AutoTokenizer

    config, make = KINDS[kind]
    (tmp_path / "config.json").write_text(json.dumps(config))
    make(tmp_path, lines, shared_data)
    tokenizer = read_tokenizer(tmp_path)
    found = [encoding.input_ids.tolist() for encoding in tokenizer.encode(lines)]
    wanted = AutoTokenizer.from_pretrained(str(tmp_path))(lines)["input_ids"]
    differing = [number for number, ids in enumerate(found) if ids != wanted[number]]
    assert not differing, f"{len(differing)} of {len(lines)} lines differ"
