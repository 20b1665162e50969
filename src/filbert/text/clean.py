"""The cleaning steps of the toxic comment study, each one named and optional.

They always run in the order of `STEPS`, whatever order the user names them in, since each needs
something that a later one takes away:

    urls              first: an address may hold an emoji, ":/", an IP address or "@name"
    user-names        before IP addresses: on Wikipedia "User:192.0.2.1" is a name
    ip-addresses      while dots and colons are there
    emojis            before emoticons, which have letters in common with keycaps
    emoticons         before lowercase: "XD" is a face, "xd" is not
    contractions      need their apostrophe, and must be words of their own before stop words go
    lowercase         anywhere before stop words would do
    stop-words        while "it's" is still one word
    non-alphanumerics last: all others look at the signs that it removes

The whole study's cleaning is idempotent. Two things see to that: words never grow together after
the first step that looks at words (invisible characters, which split words, go before that), and
stop words are looked up in the very words that the last step leaves.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from filbert.errors import ConfigError, printable
from filbert.text.clean_addresses import without_ip_addresses, without_urls, without_user_names
from filbert.text.clean_emojis import words_for_emojis, words_for_emoticons
from filbert.text.clean_words import NEGATED, NEGATED_BARE, NEGATIONS, STOP_WORDS

# Name of a step -> what it does, in the order in which they run.
STEPS: dict[str, str] = {
    "urls": "remove addresses of web pages",
    "user-names": "remove names of users and mail addresses",
    "ip-addresses": "remove IP addresses",
    "emojis": "write emojis as words",
    "emoticons": "write emoticons as words",
    "contractions": "write negative contractions out",
    "lowercase": "make all letters small",
    "stop-words": "remove words such as the, of and is",
    "non-alphanumerics": "remove all but letters and digits",
}
STUDY = "study"
# Goes with "stop-words": remove not, no, never ... as well.
DROP_NEGATIONS = "drop-negations"


@dataclass(frozen=True)
class Cleaning:
    """Some of the steps, to be called with a text.

    Attributes:
        steps: keys of STEPS, in its order.
        keep_negations: not, no, never and their like are no stop words: they turn the meaning of
            what follows.

    Raises:
        ConfigError: an unknown step, or negations dropped without stop words.
    """

    steps: tuple[str, ...]
    keep_negations: bool = True

    def __post_init__(self) -> None:
        for step in self.steps:
            _check(step)
        object.__setattr__(self, "steps", tuple(step for step in STEPS if step in self.steps))
        if not self.keep_negations and "stop-words" not in self.steps:
            raise ConfigError(
                f"clean: {DROP_NEGATIONS} says which words the step stop-words removes. Add "
                f"stop-words, or leave it out."
            )

    @classmethod
    def parse(cls, given: str | Sequence[str] | None) -> Cleaning | None:
        """What a user or filbert.json names: see `names`; "study" stands for all steps.

        Args:
            given: names between commas or in a list, in any order; None, "none" and nothing at all
                mean no cleaning.

        Raises:
            ConfigError: an unknown name (the nearest one is given), or "none" beside others.
        """
        if given is None:
            return None
        listed = given.split(",") if isinstance(given, str) else given
        if not isinstance(listed, list | tuple) or not all(isinstance(n, str) for n in listed):
            raise ConfigError(f"clean is {_short(given)}; give names of steps, such as {STUDY}.")
        named = [part.strip().lower() for name in listed for part in name.split(",")]
        named = [name for name in named if name]
        if not named or set(named) == {"none"}:
            return None
        if "none" in named:
            raise ConfigError("clean: none goes with no other name. Leave it out.")
        steps = list(STEPS) if STUDY in named else []
        steps += [name for name in named if name not in (STUDY, DROP_NEGATIONS)]
        return cls(tuple(steps), keep_negations=DROP_NEGATIONS not in named)

    @property
    def names(self) -> list[str]:
        """The steps in the order in which they run, then "drop-negations" where that was asked for.

        `parse` gives the same cleaning for it, in later versions too.
        """
        return [*self.steps, *([] if self.keep_negations else [DROP_NEGATIONS])]

    def __str__(self) -> str:
        """As short as `parse` takes it: "study", or names between commas."""
        if self.steps == tuple(STEPS):
            return ",".join([STUDY, *self.names[len(STEPS) :]])
        return ",".join(self.names)

    def __call__(self, text: str) -> str:
        """The text after all steps, words with one space between; may be empty.

        Any string will do, halves of surrogate pairs included. Time grows with its length alone.
        """
        for step, work in _WORK:
            if step in self.steps:
                text = work(text)
        if "stop-words" in self.steps:
            text = _without_stop_words(text, _dropped(self.keep_negations))
        if "non-alphanumerics" in self.steps:
            text = " ".join(_visible(word) for word in _word().findall(text))
        return " ".join(text.split())


def _check(name: object) -> None:
    if name in STEPS:
        return
    known = [STUDY, *STEPS, DROP_NEGATIONS, "none"]
    near = get_close_matches(str(name), known, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"clean: there is no step {_short(name)}; there are {', '.join(known)}.{hint}"
    )


def _short(given: object) -> str:
    return printable(repr(given))


# Joiners, soft hyphens, byte order marks, direction marks, variation selectors: nobody sees them,
# and between the letters of a word they hide it.
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
    # No letter or digit beside it, nor one with accents before it (lower case makes two characters
    # of "\u0130"); an underscore may be, which the last step takes for a gap.
    rf"(?<![^\W_])(?<![^\W_][\u0300-\u036f])(?<![^\W_][\u0300-\u036f]{{2}})"
    rf"(?:({'|'.join(NEGATED)})n[{_APOSTROPHES}]t|({'|'.join(NEGATED_BARE)}))(?![^\W_])",
    re.IGNORECASE,
)
_CONTRACTED = frozenset(f"{form}n't" for form in NEGATED)
_FIRST = {form: NEGATED[form[: -len("nt")]] for form in NEGATED_BARE}


def _written_out(text: str) -> str:
    return _CONTRACTION.sub(_negation, text)


def _negation(found: re.Match[str]) -> str:
    written, bare = found[0], found[2]
    words = _FIRST.get(bare.lower()) if bare else NEGATED.get(found[1].lower())
    if words is None:  # a letter of another kind that only counts as the same: long s, say
        return written
    if written.isupper():
        return words.upper()
    return words.capitalize() if written[0].isupper() else words


_WORK: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("urls", without_urls),
    ("user-names", without_user_names),
    ("ip-addresses", without_ip_addresses),
    ("emojis", words_for_emojis),
    # After emojis, which are built with them; before whatever looks at words.
    ("non-alphanumerics", _visible),
    ("emoticons", words_for_emoticons),
    ("contractions", _written_out),
    ("lowercase", str.lower),
)


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    """A word: letters, digits and the marks on them (vowel signs, accents), from a letter on."""
    # Those of Unicode stand below U+1F000. Python's \w knows letters and digits, but no marks.
    marks = [c for c in range(0x300, 0x1F000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
    ranges: list[list[int]] = []
    for c in marks:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    kept = "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)
    return re.compile(rf"[^\W_](?:[^\W_]|[{kept}{_INVISIBLE}])*")


@lru_cache(maxsize=2)
def _dropped(keep_negations: bool) -> frozenset[str]:
    if keep_negations:
        return STOP_WORDS
    return STOP_WORDS | NEGATIONS | _CONTRACTED | set(NEGATED_BARE)


@lru_cache(maxsize=1)
def _joined_words() -> re.Pattern[str]:
    word = _word().pattern
    return re.compile(f"{word}(?:[{_APOSTROPHES}]{word})*")


def _without_stop_words(text: str, dropped: frozenset[str]) -> str:
    """Words with an apostrophe are looked up whole, and if unknown in their parts."""

    def kept(found: re.Match[str]) -> str:
        written = found[0]
        key = _QUOTES.sub("'", _visible(written).lower())
        if key in dropped:
            return " "
        if "'" not in key or key in _CONTRACTED:
            return written
        return _word().sub(lambda w: " " if _visible(w[0]).lower() in dropped else w[0], written)

    return _joined_words().sub(kept, text)
