"""The cleaning steps of the toxic comment study.

They always run in the order of `STEPS`, because each depends on what a later one removes:

    urls              first: an address may hold an emoji, an IP address or "@name"
    user-names        before IP addresses: on Wikipedia "User:192.0.2.1" is a name
    ip-addresses      while dots and colons are there
    emojis            before the signs are removed
    contractions      before the apostrophe and the stop words are removed
    lowercase         before stop words
    stop-words        while "it's" is still one word
    non-alphanumerics last: all others read the signs that it removes

Cleaning with all steps is idempotent: no step joins words, because invisible characters inside
words are removed before the first step that reads words, and stop words are looked up as the words
that the last step returns.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from filbert.errors import ConfigError, did_you_mean, printable

# Words

# What precedes "n't" -> the whole, written out. "cannot" is one word in English, and in every table
# of word vectors. "ain't" has five meanings; this is the most frequent.
_REGULAR = """
    are could dare did do does had has have is am may might must need ought should used use was were
    would
"""
NEGATED = {"ai": "is not", "ca": "cannot", "sha": "shall not", "wo": "will not"}
NEGATED |= {word: f"{word} not" for word in _REGULAR.split()}

# The same without apostrophe. "cant", "wont" and "usent" are other words or names.
_BARE = """
    aint arent couldnt didnt doesnt dont hadnt hasnt havent isnt mightnt mustnt neednt shouldnt
    wasnt werent wouldnt
"""
NEGATED_BARE = tuple(_BARE.split())

# Articles, pronouns, prepositions, conjunctions, auxiliaries, and their contractions. "Not", "no",
# "never" and others are no stop words, because they reverse the meaning of what follows.
_STOP_WORDS = """
    a an the this that these those such
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    one's who whom whose which what whoever whatever whichever
    someone somebody something anyone anybody anything everyone everybody everything
    some any each every either both all few many much more most other others another
    own same several
    am is are was were be been being do does did doing done have has had having
    can could will would shall should may might must ought
    about above across after against along among around as at before behind below beneath beside
    besides between beyond by despite down during except for from in inside into near of off
    on onto out outside over past per since through throughout till to toward towards under until
    up upon via with within
    and but or so yet if because although though while whereas unless whether than then once
    also again already always ever even just only quite rather really still too very perhaps
    here there where when why how now today
    i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll
    it's it'd it'll we're we've we'd we'll they're they've they'd they'll
    that's that'd that'll this'll these're those're there's there'd there'll there're here's
    who's who'd who'll who're who've what's what'd what'll what're what've which's
    where's where'd when's why's how's how'd let's
    someone's somebody's something's everyone's everybody's everything's anyone's anybody's
    could've should've would've might've must've y'all
    im ive youre youve hes shes theyre theyve thats whats theres
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


# Addresses and user names

# The endings of bare domains. Two letters only where they are no English word.
_ENDINGS = "com|org|net|edu|gov|mil|int|info|biz|uk|de|fr|eu|ca|au|jp|ru|cn|nl|es|se|ch|io|tv|ly"
_URL = re.compile(
    r"(?:(?:https?|ftps?)://|(?<![\w.])www\.(?=\w))[^\s<>\"\[\]{}|]+"
    rf"|(?<![\w.@-])(?:[a-z0-9-]{{1,63}}\.)+(?:{_ENDINGS})/[^\s<>\"\[\]{{}}|]*",
    re.IGNORECASE,
)
# What ends a sentence around an address rather than the address.
_CLOSING = ".,;:!?'\u2019\u201d*"


def without_urls(text: str) -> str:
    """Remove addresses that begin with http://, https://, ftp:// or www.

    A bare domain is removed only if a path follows (example.org/page): without one it is as often
    the name of a firm, or a full stop without its space.
    """
    return _URL.sub(_after_url, text) if "." in text or "://" in text else text


def _after_url(match: re.Match[str]) -> str:
    url = match[0]
    address = url.rstrip(_CLOSING)
    if address.endswith(")") and "(" not in address:
        address = address.rstrip(_CLOSING + ")")
    return f" {url[len(address) :]}"


_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d|0\d\d)"
_HIDDEN = r"(?:x{1,3}|X{1,3}|\*)"  # as in 192.168.1.xxx, where a site hides the end
_V4 = re.compile(
    rf"(?<![\w.]){_BYTE}\.{_BYTE}\.(?:{_BYTE}\.{_BYTE}|{_BYTE}\.{_HIDDEN}|{_HIDDEN}\.{_HIDDEN})"
    r"(?:/\d{1,2}|:\d{1,5})?(?!\w|\.\w)",
    re.ASCII,
)


def without_ip_addresses(text: str) -> str:
    """Remove IP addresses of version 4, also with their end hidden by x or *.

    A version number of four parts looks the same, and is removed too.
    """
    return _V4.sub(" ", text) if "." in text else text


_NAME_END = r"\s|\[\]{}()<>,;:!?\"/#"
_USER = re.compile(
    # [[User talk:Name|Name]], [[Special:Contributions/Name]], {{ping|Name}}
    r"\[\[ ?:?(?:user(?:[ _]talk)?:|special:contributions/)[^\[\]\n]{0,300}\]\]"
    r"|\{\{ ?(?:user|u|ping|re|reply ?to) ?\|[^{}\n]{0,300}\}\}"
    # User:Name, user_talk:Name
    rf"|(?<!\w)user(?:[ _]talk)?:[^{_NAME_END}]+"
    # name@example.org
    r"|(?<![\w.+@-])[\w.+-]{1,64}@\w[\w-]{0,62}(?:\.\w[\w-]{0,62})+"
    # @name, @first.last
    r"|(?<![\w@])@\w+(?:[.-]\w+)*"
    # u/name, /u/name
    r"|(?:(?<![\w/])|(?<=\s))/?u/[\w-]{3,20}(?![\w/-])",
    re.IGNORECASE,
)
_USER_SIGNS = re.compile(r"[@:/|]")


def without_user_names(text: str) -> str:
    """Remove @name, User:Name and [[User talk:Name]] (Wikipedia), u/name (Reddit).

    Mail addresses are removed too. Of a name of several words outside brackets, only the first is.
    """
    return _USER.sub(" ", text) if _USER_SIGNS.search(text) else text


# Emojis

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

# Emojis, and the signs next to them in the same blocks without the ornamental quotation marks.
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
    # Two regional letters, or a black flag with the tag letters of a region.
    r"(?P<flag>[\U0001f1e6-\U0001f1ff]{2}"
    r"|\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{1,8}\U000e007f)"
    r"|(?P<key>[0-9#*])\ufe0f?\u20e3"
    rf"|(?P<picture>[{_PICTURES}]|[{_MAYBE_PICTURES}](?=\ufe0f)){_AFTER}"
    rf"|[{_TONE}]"
)


def words_for_emojis(text: str) -> str:
    """Replace emojis by words between spaces; unknown ones stay."""
    return text if text.isascii() else _EMOJI.sub(_words, text)


def _words(match: re.Match[str]) -> str:
    if match["flag"]:
        return " flag "
    if match["key"]:
        return f" {NAMES.get(match['key'], match['key'])} "
    if match["picture"]:
        return f" {name_of(match['picture'])} "
    return " "


@lru_cache(maxsize=4096)
def name_of(emoji: str) -> str:
    """Return the words of one character; itself if Python's Unicode tables have no name for it."""
    if emoji in NAMES:
        return NAMES[emoji]
    name = unicodedata.name(emoji, "").lower().replace("-", " ")
    if not name:
        return emoji
    if "cjk unified ideograph" in name:  # 🈲 and its like: a Chinese character in a square
        return chr(int(name.rpartition(" ")[2], 16))
    tidy = name if emoji in _COLOURED else _SHAPE_WORDS.sub(" ", name)
    return " ".join(tidy.split()) or name


# Steps

# In the order in which they run.
STEPS = (
    "urls", "user-names", "ip-addresses", "emojis",
    "contractions", "lowercase", "stop-words", "non-alphanumerics",
)  # fmt: skip
STUDY = "study"


@dataclass(frozen=True)
class Cleaning:
    """Some of the steps; call it with a text. An unknown step is a ConfigError."""

    steps: tuple[str, ...]

    def __post_init__(self) -> None:
        for step in self.steps:
            if step not in STEPS:
                known = [STUDY, *STEPS, "none"]
                problem = f"there is no step {printable(repr(step))}; there are {', '.join(known)}"
                raise ConfigError(f"clean: {problem}.{did_you_mean(step, known)}")
        object.__setattr__(self, "steps", tuple(step for step in STEPS if step in self.steps))

    @classmethod
    def parse(cls, given: str | Sequence[str] | None) -> Cleaning | None:
        """Return the cleaning that a user or filbert.json names; "study" means all steps.

        Names are between commas or in a list, in any order; None, "none" and no name mean no
        cleaning.
        """
        listed = [] if given is None else given.split(",") if isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(n, str) for n in listed):
            problem = f"clean is {printable(repr(given))}; give names of steps, such as {STUDY}."
            raise ConfigError(problem)
        named = [part.strip().lower() for name in listed for part in name.split(",")]
        named = [name for name in named if name not in ("", "none")]
        if not named:
            return None
        steps = STEPS if STUDY in named else ()
        return cls((*steps, *(name for name in named if name != STUDY)))

    def __str__(self) -> str:
        """Return the shortest form that `parse` reads: "study", or names between commas."""
        return STUDY if self.steps == STEPS else ",".join(self.steps)

    def __call__(self, text: str) -> str:
        """Return the text after all steps, with one space between words; it may be empty."""
        for step, work in _WORK:
            if step in self.steps:
                text = work(text)
        return " ".join(text.split())


# Joiners, soft hyphens, byte order marks, direction marks, variation selectors: they are invisible,
# and may split a word.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff"
)
_INVISIBLES = re.compile(f"[{_INVISIBLE}]+")


def _visible(text: str) -> str:
    return text if text.isascii() else _INVISIBLES.sub("", text)


# Typographic and typed apostrophes: right and left quote, modifier letter, full width, accents.
_APOSTROPHES = "'\u2019\u2018\u02bc\uff07\u00b4`"
_QUOTES = re.compile(f"[{_APOSTROPHES}]")
_CONTRACTION = re.compile(
    # No letter or digit next to it, nor one with accents before it (the lower case of "\u0130" has
    # two characters); an underscore may be, which the last step replaces by a space.
    rf"(?<![^\W_])(?<![^\W_][\u0300-\u036f])(?<![^\W_][\u0300-\u036f]{{2}})"
    rf"(?:({'|'.join(NEGATED)})n[{_APOSTROPHES}]t|({'|'.join(NEGATED_BARE)}))(?![^\W_])",
    re.IGNORECASE,
)
_CONTRACTED = frozenset(f"{form}n't" for form in NEGATED)


def _negation(match: re.Match[str]) -> str:
    written = match[0]
    words = NEGATED.get((match[1] or match[2][: -len("nt")]).lower())
    if words is None:  # a letter of another kind that only counts as the same: long s, say
        return written
    if written.isupper():
        return words.upper()
    return words.capitalize() if written[0].isupper() else words


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    """Return the pattern of a word: letters, digits and their marks (vowel signs, accents)."""
    # Marks are below U+1F000. Python's \w includes letters and digits, but no marks.
    marks = [c for c in range(0x300, 0x1F000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for c in marks:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    classes = "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)
    return re.compile(rf"[^\W_](?:[^\W_]|[{classes}{_INVISIBLE}])*")


@lru_cache(maxsize=1)
def _joined_words() -> re.Pattern[str]:
    word = _word().pattern
    return re.compile(f"{word}(?:[{_APOSTROPHES}]{word})*")


def _without_stop_word(match: re.Match[str]) -> str:
    """Return a word, or a space for a stop word; with an apostrophe, whole and then its parts."""
    written = match[0]
    key = _QUOTES.sub("'", _visible(written).lower())
    if key in STOP_WORDS:
        return " "
    if "'" not in key or key in _CONTRACTED:
        return written
    return _word().sub(lambda w: " " if _visible(w[0]).lower() in STOP_WORDS else w[0], written)


_WORK: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("urls", without_urls),
    ("user-names", without_user_names),
    ("ip-addresses", without_ip_addresses),
    ("emojis", words_for_emojis),
    # After emojis, which contain them; before the steps that read words.
    ("non-alphanumerics", _visible),
    ("contractions", lambda text: _CONTRACTION.sub(_negation, text)),
    ("lowercase", str.lower),
    ("stop-words", lambda text: _joined_words().sub(_without_stop_word, text)),
    ("non-alphanumerics", lambda text: " ".join(map(_visible, _word().findall(text)))),
)
