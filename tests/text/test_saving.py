from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import ByteLevel

from filbert.checkpoints.huggingface import CONVENTIONS
from filbert.errors import FormatError
from filbert.text.saving import vocabulary_files
from filbert.text.spiece import SentencePieceModel, write_spiece
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

LETTERS = "abcéß中12,"
words = st.lists(st.text(LETTERS, min_size=1, max_size=4), unique=True, max_size=20)
lines = st.text(f"{LETTERS}ABÉ \t\n.!<>[]\u3000\u200b\U0001f600", max_size=40)
texts = st.lists(
    st.lists(
        st.one_of(lines, st.sampled_from(["[MASK]", "<mask>", " </s>", "[SEP] "])), max_size=5
    ).map("".join),
    min_size=1,
    max_size=5,
)
BRACKETS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def wordpiece(folder: Path, entries: list[str], cased: bool) -> Tokenizer:
    more = [f"##{entry}" for entry in entries[::2]]
    vocab = list(dict.fromkeys([*BRACKETS, *entries, *more]))
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not cased}))
    return Tokenizer.load(folder, convention=CONVENTIONS["BertTokenizer"])


def bytebpe(folder: Path, entries: list[str], cased: bool) -> Tokenizer:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(ByteLevel.alphabet()), "<mask>"]
    merges = {}
    for entry in entries:
        (form,) = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(entry)
        for size in range(2, len(form[0]) + 1):
            merges[form[0][: size - 1], form[0][size - 1]] = None
            tokens.append(form[0][:size])
    ids = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    pairs = "".join(f"{left} {right}\n" for left, right in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + pairs, encoding="utf-8")
    config = {"add_prefix_space": cased}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder, convention=CONVENTIONS["RobertaTokenizer"])


def scored(entries: list[str], names: tuple[str, ...], unk_id: int) -> bytes:
    pieces = dict.fromkeys(names, 0.0) | {"▁": -2.5}
    for number, entry in enumerate(entries):
        pieces |= {entry: -3.125 - number, f"▁{entry}": -1.5 - number / 3}
    return write_spiece(SentencePieceModel(tuple(pieces.items()), unk_id, b""), names)


def albert(folder: Path, entries: list[str], cased: bool) -> Tokenizer:
    data = scored(entries, ("<pad>", "<unk>", *BRACKETS[2:]), 1)
    (folder / "spiece.model").write_bytes(data)
    config = {"do_lower_case": not cased, "keep_accents": cased}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder, convention=CONVENTIONS["AlbertTokenizer"])


def fairseq(name: str):
    def load(folder: Path, entries: list[str], cased: bool) -> Tokenizer:
        data = scored(entries, ("<unk>", "<s>", "</s>"), 0)
        (folder / "sentencepiece.bpe.model").write_bytes(data)
        return Tokenizer.load(folder, convention=CONVENTIONS[name])

    return load


KINDS = {
    "BertTokenizer": wordpiece,
    "RobertaTokenizer": bytebpe,
    "AlbertTokenizer": albert,
    "XLMRobertaTokenizer": fairseq("XLMRobertaTokenizer"),
    "CamembertTokenizer": fairseq("CamembertTokenizer"),
}


def ids(tokenizer: Tokenizer, some: list) -> list[list[int]]:
    return [found.input_ids.tolist() for found in tokenizer.encode(some)]


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=25)
@given(entries=words, cased=st.booleans(), some=texts)
def test_saved_and_loaded_it_is_the_same_even_from_its_classic_files_alone(
    name, entries, cased, some
):
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place) / "source", Path(place) / "target"
        source.mkdir()
        before = KINDS[name](source, entries, cased)
        before.save(target)
        whole = Tokenizer.load(target, convention=CONVENTIONS[name])
        assert whole.fingerprint == before.fingerprint and whole.specials == before.specials
        (target / "tokenizer.json").unlink()
        classic = Tokenizer.load(target, convention=CONVENTIONS[name])
        pairs = [*some, *zip(some, reversed(some), strict=True)]
        assert ids(before, pairs) == ids(whole, pairs) == ids(classic, pairs)
        assert classic.fingerprint == before.fingerprint
        config = json.loads((target / "tokenizer_config.json").read_text("utf-8"))
        assert config["tokenizer_class"] == name


@pytest.fixture(params=KINDS)
def kind(request, tmp_path) -> tuple[str, Tokenizer]:
    (tmp_path / "source").mkdir()
    name = request.param
    return name, KINDS[name](tmp_path / "source", ["the", "film", "1,"], False)


def test_a_limit_is_written_where_the_files_had_none_and_the_tokenizer_stays_as_it_was(
    kind, tmp_path
):
    name, tokenizer = kind
    assert tokenizer.max_length is None
    tokenizer.save(tmp_path / "limited", max_length=7)
    assert tokenizer.max_length is None
    limited = Tokenizer.load(tmp_path / "limited", convention=CONVENTIONS[name])
    assert limited.max_length == 7
    limited.save(tmp_path / "again", max_length=9)
    again = Tokenizer.load(tmp_path / "again", convention=CONVENTIONS[name])
    assert again.max_length == 7


def test_added_tokens_keep_ids_and_flags_without_tokenizer_json(kind, tmp_path):
    name, tokenizer = kind
    tokenizer.backend.add_tokens([AddedToken("[new]", lstrip=True, single_word=True)])
    tokenizer.backend.add_special_tokens([AddedToken("<tag>", rstrip=True, normalized=False)])
    before = Tokenizer(
        Vocabulary(
            tokenizer.backend, tokenizer.specials, convention=tokenizer.vocabulary.convention
        )
    )
    before.save(tmp_path / "out")
    (tmp_path / "out/tokenizer.json").unlink()
    after = Tokenizer.load(tmp_path / "out", convention=CONVENTIONS[name])
    some = ["the [new] film<tag>  film", "a[new]", "the[new]the <tag>"]
    assert ids(after, some) == ids(before, some)
    added = {n: str(t) for n, t in after.backend.get_added_tokens_decoder().items()}
    assert added == {n: str(t) for n, t in before.backend.get_added_tokens_decoder().items()}


def test_rules_that_no_class_knows_make_the_class_the_generic_one(tmp_path):
    bert = CONVENTIONS["BertTokenizer"]
    wordpiece(tmp_path, ["the"], False)
    for as_google, expected in ((False, "BertTokenizer"), (True, "PreTrainedTokenizerFast")):
        Tokenizer.load(tmp_path / "vocab.txt", as_google=as_google, convention=bert).save(
            tmp_path / "out"
        )
        config = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == expected
        assert (tmp_path / "out/vocab.txt").is_file()


def test_the_switches_are_what_the_tokenizer_does_and_not_what_a_file_said(tmp_path):
    tokenizer = albert(tmp_path, ["the"], True)
    tokenizer.save(tmp_path / "out")
    (tmp_path / "out/tokenizer_config.json").unlink()
    Tokenizer.load(tmp_path / "out").save(tmp_path / "again")
    config = json.loads((tmp_path / "again/tokenizer_config.json").read_text())
    assert (config["do_lower_case"], config["keep_accents"]) == (False, True)


def test_a_model_file_that_nothing_has_changed_stays_byte_for_byte(tmp_path):
    tokenizer = albert(tmp_path, ["the", "1,"], False)
    path = tmp_path / "spiece.model"
    # A field that is not read here: its presence shows whose file it is.
    marked = path.read_bytes() + b"\x9a\x06\x05later"
    path.write_bytes(marked)
    same = Tokenizer.load(tmp_path, convention=CONVENTIONS["AlbertTokenizer"])
    assert same.fingerprint == tokenizer.fingerprint
    assert vocabulary_files(same.vocabulary) == {"spiece.model": marked}
    same.save(tmp_path / "out")
    assert vocabulary_files(Tokenizer.load(tmp_path / "out").vocabulary) == {"spiece.model": marked}


def holes(tmp_path: Path, number: int, token: str = "film") -> Tokenizer:
    tokenizer = wordpiece(tmp_path, ["the"], False)
    content = json.loads(tokenizer.backend.to_str())
    content["model"]["vocab"][token] = number
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    return Tokenizer.load(tmp_path)


def test_an_id_without_entry_gets_one_that_no_text_is_cut_into(tmp_path):
    tokenizer = holes(tmp_path, 12)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/vocab.txt").write_bytes(vocabulary_files(tokenizer.vocabulary)["vocab.txt"])
    classic = Tokenizer.load(tmp_path / "out")
    some = ["the film", "[unused-9] the [unused-10]film"]
    assert ids(classic, some) == ids(tokenizer, some)
    assert classic.tokens([12]) == ["film"] and classic.vocab_size == 13


def test_a_vocabulary_that_lines_cannot_hold_is_refused_and_saved_without_them(tmp_path):
    tokenizer = holes(tmp_path, 7, "fi\nlm")
    with pytest.raises(FormatError, match="with id 7 cannot be a line of vocab.txt"):
        vocabulary_files(tokenizer.vocabulary)
    tokenizer.save(tmp_path / "out")
    assert not (tmp_path / "out/vocab.txt").exists()
    assert Tokenizer.load(tmp_path / "out").fingerprint == tokenizer.fingerprint


def test_ids_that_would_fill_the_memory_are_refused(tmp_path):
    with pytest.raises(FormatError, match="8 entries, but ids up to 2147483648"):
        holes(tmp_path, 2**31)
