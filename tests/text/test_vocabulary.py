from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from filbert.errors import FormatError
from filbert.text.tokenizer import Tokenizer


@pytest.fixture
def folder(vocab: Path, tmp_path: Path) -> Path:
    shutil.copy(vocab / "vocab.txt", tmp_path)
    return tmp_path


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.tokens(tokenizer.encode([text])[0].input_ids[1:-1])


def test_a_vocabulary_without_capitals_lower_cases(folder):
    assert Tokenizer.load(folder).lowercase is True
    with (folder / "vocab.txt").open("a") as file:
        file.write("Paris\n")
    assert Tokenizer.load(folder).lowercase is False


def test_what_the_folder_says_about_case_counts(folder):
    write(folder / "tokenizer_config.json", {"do_lower_case": False})
    assert tokens(Tokenizer.load(folder), "The film") == ["[UNK]", "film"]


def test_accents_and_chinese_characters_follow_the_folder(folder):
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("中\n文\nthé\n")
    assert tokens(Tokenizer.load(folder), "Thé 中文") == ["the", "中", "文"]
    write(
        folder / "tokenizer_config.json",
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
    )
    assert tokens(Tokenizer.load(folder), "Thé 中文") == ["thé", "[UNK]"]


@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"])
def test_a_tokenizer_json_that_says_otherwise_than_the_settings_is_read_as_its_class_does(
    folder, kind
):
    from transformers import AutoTokenizer

    with (folder / "vocab.txt").open("a") as file:
        file.write("The\n")
    write(folder / "tokenizer_config.json", {"do_lower_case": True})
    Tokenizer.load(folder).save(folder)
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    write(
        folder / "tokenizer_config.json", stated | {"do_lower_case": False, "tokenizer_class": kind}
    )
    wanted = AutoTokenizer.from_pretrained(str(folder)).tokenize("The the")
    assert tokens(Tokenizer.load(folder), "The the") == wanted
    assert wanted[0] == ("the" if kind.startswith("Pre") else "The")


def test_a_word_longer_than_the_limit_is_unknown(folder):
    with (folder / "vocab.txt").open("a") as file:
        file.write("##a\n")
    assert tokens(Tokenizer.load(folder), "a" * 100) == ["a"] + ["##a"] * 99
    assert tokens(Tokenizer.load(folder), "a" * 101) == ["[UNK]"]
    assert len(tokens(Tokenizer.load(folder, as_google=True), "a" * 200)) == 200


def test_a_tokenizer_json_keeps_its_word_limit_and_loses_its_truncation(folder):
    backend = Tokenizer.load(folder, as_google=True).backend
    backend.enable_truncation(4)
    backend.enable_padding(length=9)
    (folder / "tokenizer.json").write_text(backend.to_str())
    (folder / "vocab.txt").unlink()
    loaded = Tokenizer.load(folder)
    assert len(loaded.encode(["the film was not good"])[0].input_ids) == 7
    assert json.loads(loaded.backend.to_str())["model"]["max_input_chars_per_word"] == 200


def test_the_stated_limit_is_kept_and_a_placeholder_is_not(folder):
    assert Tokenizer.load(folder).max_length is None
    write(folder / "tokenizer_config.json", {"model_max_length": 10**30})
    assert Tokenizer.load(folder).max_length is None
    write(folder / "tokenizer_config.json", {"model_max_length": 512})
    assert Tokenizer.load(folder).max_length == 512
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    loaded = Tokenizer.load(folder)
    assert loaded.max_length == 256 and loaded.lowercase is True


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_the_limits_of_every_old_family_are_read(folder, family):
    with (folder / "vocab.txt").open("a") as file:
        file.write("Paris\n")
    settings = {"max_seq_length": 256, "do_lower_case": True}
    write(folder / f"sentence_{family}_config.json", settings)
    loaded = Tokenizer.load(folder)
    assert loaded.max_length == 256 and loaded.lowercase is True


def test_special_tokens_by_other_names_are_found(folder):
    text = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(text.replace("[CLS]", "<start>").replace("[SEP]", "<end>"))
    write(
        folder / "tokenizer_config.json",
        {"cls_token": "<start>", "sep_token": {"content": "<end>", "lstrip": False}},
    )
    loaded = Tokenizer.load(folder)
    assert (loaded.cls_id, loaded.sep_id) == (2, 3)
    assert loaded.encode(["the"])[0].input_ids.tolist() == [2, 5, 3]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (None, b"", "no tokenizer here. Expected tokenizer.json"),
        ("vocab.txt", b"the\nfilm\n", r"vocab.txt: no line for \[CLS\], \[SEP\], \[UNK\]"),
        ("vocab.txt", b"[CLS]\n\xff\n", "vocab.txt: byte 6 is not UTF-8"),
        ("tokenizer.json", b"{", "tokenizer.json: damaged"),
        ("vocab.json", b'{"a": 0}', "vocab.json without merges.txt"),
        ("vocab.json", b"[1]", "not an object"),
        ("spiece.model", b"\x0a\xff\xff", "not a whole SentencePiece model: it ends at byte 3"),
        ("spiece.model", b"", "it holds no pieces"),
    ],
)
def test_a_folder_that_cannot_be_a_tokenizer_is_refused_in_a_sentence(
    tmp_path, name, content, sentence
):
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=sentence):
        Tokenizer.load(tmp_path)


def test_a_merge_of_unknown_tokens_is_named_by_line(tmp_path):
    write(tmp_path / "vocab.json", {"a": 0, "b": 1, "ab": 2})
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\na c\n")
    with pytest.raises(FormatError, match=r"merges.txt:3: not a merge"):
        Tokenizer.load(tmp_path)


def test_a_gpt2_folder_loads_without_special_tokens(shared_data):
    loaded = Tokenizer.load(shared_data / "tokenizers/gpt2")
    text = "Hello world, déjà vu 中文"
    (found,) = loaded.encode([text], with_offsets=True)
    assert (loaded.cls_id, loaded.sep_id, loaded.kind) == (None, None, "bytebpe")
    assert loaded.decode(found.input_ids) == text
    assert found.input_ids[:2].tolist() == [15496, 995]  # GPT-2's published ids of "Hello world"


def test_added_tokens_get_the_ids_that_the_folder_states(folder):
    write(folder / "added_tokens.json", {"<b>": 35, "<a>": 34})
    write(
        folder / "tokenizer_config.json",
        {"added_tokens_decoder": {"34": {"content": "<a>", "lstrip": True, "special": True}}},
    )
    loaded = Tokenizer.load(folder)
    assert [loaded.id_of("<a>"), loaded.id_of("<b>"), loaded.vocab_size] == [34, 35, 36]
    assert tokens(loaded, "the <a>film<b>") == ["the", "<a>", "film", "<b>"]
    assert loaded.decode([34, 35]) == "<b>"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("added_tokens.json", {"<a>": 99}, "'<a>' has the id 99, but .* give it 34"),
        ("added_tokens.json", {"film": 34}, "'film' has the id 34, but .* give it 7"),
        ("added_tokens.json", {"<a>": "34"}, "has the id '34'"),
        ("tokenizer_config.json", {"added_tokens_decoder": []}, "is not an object of id: token"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"34": "<a>"}}, "is not an object of"),
    ],
)
def test_an_added_token_that_cannot_be_is_refused(folder, name, content, sentence):
    write(folder / name, content)
    with pytest.raises(FormatError, match=sentence):
        Tokenizer.load(folder)


def test_byte_level_entries_with_added_special_tokens_and_a_template_load(tmp_path):
    """As ModernBERT's tokenizer.json has them."""
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as Backend

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE({c: n for n, c in enumerate(letters)}, []))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("   ", normalized=True)])
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 258), ("[SEP]", 259)],
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path)
    assert (loaded.kind, loaded.cls_id, loaded.sep_id, loaded.mask_id) == ("bytebpe", 258, 259, 261)
    (found,) = loaded.encode(["a [MASK]"])
    assert loaded.tokens(found.input_ids) == ["[CLS]", "a", "[MASK]", "[SEP]"]
    loaded.save(tmp_path / "out")
    again = Tokenizer.load(tmp_path / "out")
    assert again.fingerprint == loaded.fingerprint
    added = json.loads((tmp_path / "out/added_tokens.json").read_text())
    assert added == {"   ": 256, **{name: 257 + n for n, name in enumerate([*names, "[MASK]"])}}
