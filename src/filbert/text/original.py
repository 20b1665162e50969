"""How google-research/bert's own code (tokenization.py) cleans and lower-cases text, in steps.

Hugging Face's normaliser, which all other WordPiece vocabularies are read with, differs in three
things that few texts show: it lower-cases letter by letter, so that a word never ends in a final
sigma; it drops private and unassigned characters with the control characters; and it leaves
U+2B820 to U+2B91F, which are Chinese, inside of words.
"""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

# A longer word is unknown, in characters.
LONGEST_WORD = 200

_DROPPED = r"[\x00\uFFFD]|(?![\t\n\r])[\p{Cc}\p{Cf}]"
# Unicode 3.13, "Final_Sigma": behind a cased letter and before none, but for what has no case.
_CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"
_IGNORED = (
    r"[\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:\u00B7\u2018\u2019\u2024\u2027\u0387\u055F\u05F4"
    r"\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A]"
)
_FINAL_SIGMA = rf"{_CASED}{_IGNORED}*\KΣ(?!{_IGNORED}*{_CASED})"
_LEFT_OUT = "[\U0002b820-\U0002b91f]"


def normalizer(lowercase: bool, strip_accents: bool | None, chinese: bool) -> Any:
    """What is done before a text is cut into words.

    Args:
        lowercase: as do_lower_case.
        strip_accents: None for exactly when it lower-cases.
        chinese: put blanks around Chinese characters.
    """
    steps: list[Any] = [normalizers.Replace(Regex(_DROPPED), "")]
    if lowercase:
        steps.append(normalizers.Replace(Regex(_FINAL_SIGMA), "ς"))
    steps.append(
        normalizers.BertNormalizer(
            clean_text=False,
            handle_chinese_chars=chinese,
            strip_accents=strip_accents,
            lowercase=lowercase,
        )
    )
    return normalizers.Sequence(steps)


def pre_tokenizer(chinese: bool) -> Any:
    """How a text is cut into words."""
    words = pre_tokenizers.BertPreTokenizer()
    if not chinese:
        return words
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_LEFT_OUT), "isolated"), words])
