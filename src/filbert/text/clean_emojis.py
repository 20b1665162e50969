"""Emojis and emoticons as words.

The words of an emoji are its Unicode name, tidied, but for the few in NAMES. Skin tones are left
out: they are not what is said. The parts of a joined emoji (a family, a profession) give their
words one after the other.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from filbert.text.clean_flags import COUNTRIES, REGIONS

# Unicode names that mislead: "black" there means filled, "white" an outline.
NAMES = {
    "❤": "red heart", "☹": "frowning face", "☺": "smiling face", "☻": "smiling face",
    "♀": "woman", "♂": "man", "🖕": "middle finger", "✌": "victory hand", "🙏": "folded hands",
    "💯": "hundred points", "🤘": "horns hand", "💁": "information desk person", "ℹ": "information",
    "👉": "pointing right", "👈": "pointing left", "👆": "pointing up", "👇": "pointing down",
    "☝": "pointing up", "🏳": "white flag", "🏴": "black flag", "㊗": "congratulation",
    "㊙": "secret", "🈶": "not free", "🈚": "free", "🅰": "a", "🅱": "b", "🅾": "o", "🅿": "p",
    "Ⓜ": "m", "#": "hash", "*": "asterisk",
}  # fmt: skip
# Colours that are meant.
_COLOURED = frozenset("🖤🤍💮🔲🔳⚪⚫⬛⬜◻◼◽◾▪▫🏿")
_SHAPE_WORDS = re.compile(r"\b(?:white|black|heavy|negative|squared|latin capital letter)\b")

# Where pictographs stand: emojis, and the signs beside them in the same blocks but the ornamental
# quotation marks.
_PICTURES = (
    "\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25fd\u25fe\u2600-\u275a\u275f-\u2767\u2794-\u27bf"
    "\u2b1b\u2b1c\u2b50\u2b55\U0001f004\U0001f0cf\U0001f170\U0001f171\U0001f17e\U0001f17f"
    "\U0001f18e\U0001f191-\U0001f19a\U0001f201\U0001f202\U0001f21a\U0001f22f\U0001f232-\U0001f23a"
    "\U0001f250\U0001f251\U0001f300-\U0001f3fa\U0001f400-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f7e0-\U0001f7f0\U0001f90c-\U0001f9ff\U0001fa70-\U0001faff"
)
# Signs and letters that are pictures only where the emoji selector U+FE0F follows.
_MAYBE_PICTURES = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u24c2\u25aa\u25ab\u25b6\u25c0"
    "\u25fb\u25fc\u2934\u2935\u2b05-\u2b07\u3030\u303d\u3297\u3299"
)
_TONE = "\U0001f3fb-\U0001f3ff"
_AFTER = rf"[\ufe0e\ufe0f{_TONE}]*\u200d?"
_EMOJI = re.compile(
    r"(?P<flag>[\U0001f1e6-\U0001f1ff]{2})"
    r"|\U0001f3f4(?P<region>[\U000e0061-\U000e007a\U000e0030-\U000e0039]{1,8})\U000e007f"
    r"|(?P<key>[0-9#*])\ufe0f?\u20e3"
    rf"|(?P<picture>[{_PICTURES}]|[{_MAYBE_PICTURES}](?=\ufe0f)){_AFTER}"
    rf"|[{_TONE}]"
)


def words_for_emojis(text: str) -> str:
    """The same with words, between spaces, in place of emojis; unknown ones stay."""
    return text if text.isascii() else _EMOJI.sub(_words, text)


def _words(found: re.Match[str]) -> str:
    if found["flag"]:
        country = "".join(chr(ord(c) - 0x1F1E6 + ord("A")) for c in found["flag"])
        return f" flag {COUNTRIES.get(country, '')} "
    if found["region"]:
        region = "".join(chr(ord(c) - 0xE0000) for c in found["region"])
        return f" flag {REGIONS.get(region, '')} "
    if found["key"]:
        return f" {NAMES.get(found['key'], found['key'])} "
    if found["picture"]:
        return f" {name_of(found['picture'])} "
    return " "


@lru_cache(maxsize=4096)
def name_of(emoji: str) -> str:
    """The words of one character; itself where Python's Unicode tables have no name for it."""
    if emoji in NAMES:
        return NAMES[emoji]
    name = unicodedata.name(emoji, "").lower().replace("-", " ")
    if not name:
        return emoji
    if "cjk unified ideograph" in name:  # 🈲 and its like: a Chinese character in a square
        return chr(int(name.rpartition(" ")[2], 16))
    tidy = name if emoji in _COLOURED else _SHAPE_WORDS.sub(" ", name)
    return " ".join(tidy.split()) or name


# Each row: what an emoticon looks like, and its words. Eyes, perhaps a nose, a mouth. No letter or
# digit may touch where it would make the sign part of a word, a time or an address.
_ALONE_BEFORE, _ALONE_AFTER = r"(?<![^\W_])", r"(?![^\W_])"
_NOSE = r"[-'^o]?"
EMOTICONS = (
    (r"¯\\_+\(ツ\)_+/¯", "shrug"),
    (r"</+3(?!\w)", "broken heart"),
    (r"(?<!\w)<3+(?!\w)", "heart"),
    (r"[:=;]['´`]-?\(+", "crying face"),
    (r"[:=]['´`]-?\)+", "tears of joy"),
    (r">:-?\(+", "angry face"),
    (rf"[:=]{_NOSE}[)\]]+", "smiling face"),
    (r"(?<!\S)\([-^]?[:=](?!\S)", "smiling face"),
    (rf"{_ALONE_BEFORE};{_NOSE}[)\]]+", "winking face"),
    # In a wiki a colon indents: ":[[a link]]", ":(a remark)", ":* a bullet" are no faces.
    (rf"[:=]{_NOSE}[(\[]+(?![\w(\[])", "sad face"),
    (rf"{_ALONE_BEFORE}[:=;]-?[Dd]+{_ALONE_AFTER}", "laughing face"),
    (rf"{_ALONE_BEFORE}[Xx]D+{_ALONE_AFTER}", "laughing face"),
    (rf"{_ALONE_BEFORE}[:=;]-?[Pp]+{_ALONE_AFTER}", "playful face"),
    (rf"{_ALONE_BEFORE}[:=]-?[Oo]{_ALONE_AFTER}", "surprised face"),
    (rf"{_ALONE_BEFORE}[:=]-?[Ss]{_ALONE_AFTER}", "confused face"),
    (rf"{_ALONE_BEFORE}:-?[Xx]{_ALONE_AFTER}", "silent face"),
    (rf"{_ALONE_BEFORE}[:=]-?[/\\](?![\w/\\])", "skeptical face"),
    (rf"{_ALONE_BEFORE}[:=]-?\|(?![\w|])", "neutral face"),
    (r":-\*+", "kissing face"),
    (r"(?<![\w^])\^[_-]?\^(?![\w^])", "happy face"),
    (r"(?<![\w-])-_+-(?![\w-])", "annoyed face"),
    (r"(?<!\w)[oO]_+[Oo](?!\w)", "astonished face"),
    (r"(?<!\w)(?:T_T|;_;)(?!\w)", "crying face"),
    (r"\\o/", "cheering"),
)
_EMOTICON_WORDS = [words for _, words in EMOTICONS]


# One of these is in every emoticon; most texts have none, and are passed on at once.
_SIGNS = re.compile(r"[:;=<^\\_]|[xX]D")


@lru_cache(maxsize=1)
def _emoticon() -> re.Pattern[str]:
    signs = "|".join(f"({sign})" for sign, _ in EMOTICONS)
    return re.compile(rf"(?=[:;=<>(^\\¯XxoOT-])(?:{signs})")


def words_for_emoticons(text: str) -> str:
    """The same with words, between spaces, in place of emoticons such as :-)."""
    if not _SIGNS.search(text):
        return text
    return _emoticon().sub(lambda found: f" {_EMOTICON_WORDS[(found.lastindex or 1) - 1]} ", text)
