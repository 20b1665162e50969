"""Google's own rules for WordPiece, against a plain rendering of what tokenization.py does."""

from __future__ import annotations

import json
import unicodedata
from itertools import chain

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from filbert.text.tokenizer import Tokenizer

# Where the Unicode of Python and that of the tokenizers library agree on every category.
RANGES = [
    range(0x250), range(0x300, 0x370), range(0x384, 0x3D0), range(0x400, 0x482),
    range(0x1F00, 0x1FFF), range(0x2000, 0x2060), range(0x3000, 0x3100), range(0x4DF0, 0x4E10),
    range(0xE000, 0xE010), range(0xFE00, 0xFE10), range(0xFF00, 0xFF20), range(0xFFF9, 0xFFFE),
    range(0x1F600, 0x1F610), range(0x2A6D0, 0x2A6F0), range(0x2B810, 0x2B930),
    range(0x2CEA0, 0x2CEC0), range(0xF0000, 0xF0004),
]  # fmt: skip
LETTERS = "".join(map(chr, [0x2BC, *chain(*RANGES)]))  # 2BC: a letter without case
# What the rules differ in, to be met often.
MOST = "ΣσΑα'.\u0301\u02bc- a\u4e00\ue000"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHINESE = [
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
]  # fmt: skip


def is_chinese(letter: str) -> bool:
    return any(low <= ord(letter) <= high for low, high in CHINESE)


def is_dropped(letter: str) -> bool:
    if letter in "\t\n\r":
        return False
    return letter in "\0\ufffd" or unicodedata.category(letter) in ("Cc", "Cf")


def is_mark(letter: str) -> bool:
    """Punctuation, and all of ASCII that is neither letter nor digit."""
    is_ascii = letter.isascii() and letter.isprintable() and not letter.isalnum()
    return (is_ascii and letter != " ") or unicodedata.category(letter).startswith("P")


def words_of(text: str, lowercase: bool) -> list[str]:
    """Words as BasicTokenizer gives them."""
    kept = (c for c in text if not is_dropped(c))
    spaced = "".join(f" {c} " if is_chinese(c) else c for c in kept)
    found = []
    for word in spaced.split():
        if lowercase:
            plain = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in plain if unicodedata.category(c) != "Mn")
        found += "".join(f" {c} " if is_mark(c) else c for c in word).split()
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    """Every letter is an entry, at the beginning and inside of a word."""
    folder = tmp_path_factory.mktemp("vocabulary")
    letters = sorted({*LETTERS, *LETTERS.lower(), *unicodedata.normalize("NFD", LETTERS), "ς"})
    letters = [c for c in letters if not c.isspace() and not is_dropped(c)]
    lines = [*SPECIAL, *letters, *(f"##{c}" for c in letters)]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stated = json.dumps({"do_lower_case": request.param})
    (folder / "tokenizer_config.json").write_text(stated)
    return Tokenizer.load(folder, as_google=True)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    (found,) = tokenizer.encode([text])
    return tokenizer.tokens(found.input_ids)[1:-1]


def wanted(tokenizer: Tokenizer, text: str) -> list[str]:
    return [
        letter if place == 0 else f"##{letter}"
        for word in words_of(text, tokenizer.lowercase)
        for place, letter in enumerate(word)
    ]


def test_every_letter_is_read_as_google_reads_it(tokenizer):
    for letter in LETTERS:
        text = f"x{letter}y"
        assert pieces(tokenizer, text) == wanted(tokenizer, text), hex(ord(letter))


@settings(max_examples=300)
@given(text=st.text(st.sampled_from(MOST + LETTERS), max_size=12))
def test_texts_are_read_as_google_reads_them(tokenizer, text):
    assume(not any(special in text for special in SPECIAL))  # "[MASK]" is one here, by intent
    assert pieces(tokenizer, text) == wanted(tokenizer, text)


@pytest.mark.parametrize(
    ("text", "last"),
    [("ΟΔΟΣ", "##ς"), ("ΟΔΟΣ.", "."), ("Σ", "σ"), ("ΑΣ'", "'"), ("ΑΣ'Α", "α"), ("ΑΣΑ", "##α")],
)
def test_a_final_sigma_is_one(tmp_path, text, last):
    lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"αδοσς.'", *(f"##{c}" for c in "αδοσς")]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path, as_google=True)
    assert pieces(tokenizer, text)[-1] == last
    tokenizer.save(tmp_path / "saved")
    assert pieces(Tokenizer.load(tmp_path / "saved"), text) == pieces(tokenizer, text)
    # Others keep the rules that Hugging Face's library reads them with.
    assert "##ς" not in pieces(Tokenizer.load(tmp_path), text)
