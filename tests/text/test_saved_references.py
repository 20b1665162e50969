"""What is saved, judged by those who shall read it: transformers, tokenizers, SentencePiece."""

from __future__ import annotations

import io
import json
import lzma
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from filbert.checkpoints.huggingface import read_tokenizer
from filbert.text.saving import vocabulary_files
from filbert.text.spiece import parse_spiece
from filbert.text.tokenizer import Tokenizer

ODD = [
    "Ça va très bien, naïve façade, ﬁne ½ ｆｕｌｌ",
    "中文字符 and 日本語 together, 한국어 too",
    "ΌΔΟΣ İstanbul Straße e\u0301 e\u0308 \u0130",
    "``quoted'' text's end don't (we) #tag @user http://a.b/c?d=e&f",
    "\U0001f600\U0001f1e9\U0001f1ea \U0001f469\u200d\U0001f4bb zero\u200bwidth \ufeffmark",
    "tabs\tand\nnewlines\r\n and \u00a0 spaces \u3000 \u2028 \x00 \x07 \x7f \x85 end ",
    "  leading,   inner  and trailing   ",
    "a [MASK] b[SEP]c [CLS] [UNK] [PAD] and <mask> d</s> <s>e <unk> <pad> f",
    "",
    "   ",
]


@pytest.fixture(scope="module")
def novels(shared_data: Path) -> list[str]:
    """1,200 lines of novels in several languages."""
    with lzma.open(shared_data / "eltec_small/valid.txt.xz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in islice(file, 1200) if line.strip()]


def trained(novels: list[str], **marks: object) -> bytes:
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(novels + ODD[:4] * 5),
        model_writer=out,
        vocab_size=600,
        model_type="unigram",
        minloglevel=2,
        **marks,
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def pieces(novels: list[str]) -> bytes:
    """A model file as its own library trains it: <unk>, <s>, </s>, then 600 pieces."""
    return trained(novels)


SHARED = {
    "bert-base-uncased": "bert",
    "bert-base-cased": "distilbert",
    "bert-base-chinese": "electra",
    "roberta-base": "roberta",
    "albert-base-v2": "albert",
}
TRAINED = ("xlm-roberta", "camembert")


@pytest.fixture(scope="module", params=[*SHARED, *TRAINED])
def folder(request, shared_data, pieces, tmp_path_factory) -> Path:
    """The published or trained classic files, with a config.json."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    if name in SHARED:
        for path in (shared_data / "tokenizers" / name).iterdir():
            if path.suffix != ".gz":
                (folder / path.name).write_bytes(path.read_bytes())
    else:
        (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    if name == "bert-base-cased":
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    model_type = SHARED.get(name, name)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory) -> tuple[Tokenizer, Path]:
    tokenizer = read_tokenizer(folder)
    target = tmp_path_factory.mktemp("saved")
    (target / "config.json").write_bytes((folder / "config.json").read_bytes())
    tokenizer.save(target)
    return tokenizer, target


def ids(tokenizer: Tokenizer, texts: list) -> list[list[int]]:
    return [found.input_ids.tolist() for found in tokenizer.encode(texts)]


def plain(texts: list[str]) -> list[str]:
    """Where ALBERT's class in transformers, given spiece.model, does as the original code.

    It does not split "1,", and splits behind pieces that the file calls user-defined.
    """
    marks = dict.fromkeys(map(ord, '()"-.–£€'), " ")
    return [text.translate(marks).replace(",", " , ") for text in texts if "``" not in text]


def check(tokenizer: Tokenizer, judge, texts: list[str]) -> None:
    assert ids(tokenizer, texts) == judge(texts)["input_ids"]
    for pair in (("one text", "another"), ("", "x"), (texts[0], texts[1])):
        (found,) = tokenizer.encode([pair])
        expected = judge(*pair, return_token_type_ids=True)
        assert found.input_ids.tolist() == expected["input_ids"]
        assert found.token_type_ids.tolist() == expected["token_type_ids"]
    for role in ("cls", "sep", "mask", "pad", "unk"):
        assert getattr(judge, f"{role}_token_id") == getattr(tokenizer, f"{role}_id")


def test_the_saved_folder_loads_everywhere_with_the_same_ids(saved, novels):
    """By its own class, from tokenizer.json alone, and in the library below both."""
    from tokenizers import Tokenizer as Backend
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    tokenizer, target = saved
    texts = ODD + novels[::6]
    auto = AutoTokenizer.from_pretrained(str(target))
    assert type(auto).__name__ not in ("TokenizersBackend", "PreTrainedTokenizerFast")
    assert len(auto) == tokenizer.vocab_size
    check(tokenizer, auto, texts)
    generic = PreTrainedTokenizerFast.from_pretrained(str(target))
    check(tokenizer, generic, texts)
    backend = Backend.from_file(str(target / "tokenizer.json"))
    assert ids(tokenizer, texts) == [found.ids for found in backend.encode_batch(texts)]


def test_the_classic_files_alone_give_the_same_ids_in_transformers(saved, novels, tmp_path_factory):
    from transformers import AutoTokenizer

    tokenizer, target = saved
    classic = tmp_path_factory.mktemp("classic")
    for path in target.iterdir():
        if path.name != "tokenizer.json":
            (classic / path.name).write_bytes(path.read_bytes())
    judge = AutoTokenizer.from_pretrained(str(classic))
    texts = ODD + novels[::6]
    if tokenizer.vocabulary.convention.class_name == "AlbertTokenizer":
        texts = plain(texts)
    check(tokenizer, judge, texts)


def test_the_published_files_are_read_as_the_familys_class_reads_them(folder, novels):
    """The judges are classes by name, given the folder as it was published."""
    import transformers

    tokenizer = read_tokenizer(folder)
    name = tokenizer.vocabulary.convention.class_name
    judge = getattr(transformers, name).from_pretrained(
        str(folder), do_lower_case=tokenizer.lowercase
    )
    texts = ODD + novels[::6]
    if name == "AlbertTokenizer":
        texts = plain(texts)
    if name == "RobertaTokenizer":
        # The published tokenizer.json gives the mask the space before it; the class does not.
        texts = [text.replace(" <mask>", "<mask>") for text in texts]
    check(tokenizer, judge, texts)


def test_a_model_file_comes_back_as_it_was_or_as_its_own_library_writes_it(saved, folder):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as messages

    tokenizer, target = saved
    if tokenizer.kind != "unigram":
        pytest.skip("not a SentencePiece vocabulary")
    (name,) = vocabulary_files(tokenizer.vocabulary)
    original = (folder / name).read_bytes()
    assert (target / name).read_bytes() == original
    (written,) = vocabulary_files(replace(tokenizer.vocabulary, spiece=None)).values()
    message = messages.ModelProto()
    message.ParseFromString(written)
    assert message.SerializeToString() == written
    old, new = (
        sentencepiece.SentencePieceProcessor(model_proto=data) for data in (original, written)
    )
    assert new.serialized_model_proto() == written
    assert parse_spiece(written, target) == parse_spiece(original, target)
    assert new.unk_id() == old.unk_id() and new.pad_id() == old.pad_id()
    assert [new.is_control(n) for n in range(5)] == [old.is_control(n) for n in range(5)]


def test_a_written_model_file_gives_its_own_library_our_ids(folder, novels):
    import sentencepiece

    tokenizer = read_tokenizer(folder)
    if tokenizer.vocabulary.convention.order is None:
        pytest.skip("the file alone does not lower-case; test_references.py has that judge")
    (written,) = vocabulary_files(replace(tokenizer.vocabulary, spiece=None)).values()
    judge = sentencepiece.SentencePieceProcessor(model_proto=written)
    texts = [text for text in ODD[:7] if "\u200b" not in text and "\x85" not in text] + novels
    expected = judge.encode(texts, out_type=str)
    found = [tokenizer.tokens(one.input_ids[1:-1]) for one in tokenizer.encode(texts)]
    known = {piece for piece, _ in parse_spiece(written, folder).pieces}
    cleaned = [[p if p in known else "<unk>" for p in row] for row in expected]
    assert found == cleaned


MARKS = {
    "deberta-v2": {
        **{f"{mark}_id": number for number, mark in enumerate(("pad", "bos", "eos", "unk"))},
        "pad_piece": "[PAD]",
        "bos_piece": "[CLS]",
        "eos_piece": "[SEP]",
        "unk_piece": "[UNK]",
    },
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}
# File; what stands before and after a text, and after the pieces of the file; of a pair the first
# text's end and the types of its tokens.
LAYOUTS = {
    "deberta-v2": ("spm.model", ["[CLS]"], ["[SEP]"], ["[MASK]"], [0] * 3 + [1] * 2),
    "t5": ("spiece.model", [], ["</s>"], [f"<extra_id_{n}>" for n in range(99, -1, -1)], [0] * 4),
}


@pytest.mark.parametrize("family", MARKS)
def test_the_model_files_of_deberta_and_t5_give_the_ids_of_their_own_library(
    family, novels, tmp_path
):
    import sentencepiece
    from transformers import AutoTokenizer

    file, before, after, tail, types = LAYOUTS[family]
    data = trained(novels, **MARKS[family])
    (tmp_path / file).write_bytes(data)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    tokenizer = read_tokenizer(tmp_path)
    judge = sentencepiece.SentencePieceProcessor(model_proto=data)
    wanted = [before + row + after for row in judge.encode(novels[::3], out_type=str)]
    known = [judge.id_to_piece(n) for n in range(600)] + tail
    assert tokenizer.tokens(range(tokenizer.vocab_size)) == known
    ids_of = {piece: number for number, piece in enumerate(known)}
    unknown = tokenizer.unk_id
    assert ids(tokenizer, novels[::3]) == [
        [ids_of.get(piece, unknown) for piece in row] for row in wanted
    ]
    (pair,) = tokenizer.encode([("e", "a")])
    assert tokenizer.tokens(pair.input_ids) == [*before, "▁e", *after, "▁a", *after]
    assert pair.token_type_ids.tolist() == types
    tokenizer.save(tmp_path / "again")
    assert (tmp_path / "again" / file).read_bytes() == data
    (tmp_path / "again" / "config.json").write_text(json.dumps({"model_type": family}))
    auto = AutoTokenizer.from_pretrained(str(tmp_path / "again"))
    assert auto(novels[::3])["input_ids"] == ids(tokenizer, novels[::3])
