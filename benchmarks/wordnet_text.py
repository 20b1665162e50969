"""WordNet's definitions and examples as running text for pre-training.

    python benchmarks/wordnet_text.py /usr/share/wordnet wordnet.txt

The database is that of Debian's package `wordnet-base` (Princeton WordNet 3.0, whose licence allows
any use that keeps its notice). Every sense is one line, and those right below it follow: a kind and
its examples, a word and what is similar. A document is as long as a chapter of a novel, as the
false next sentence of a pair is drawn from any document: were these short and many, it would come
from the dictionary nearly always, and the style alone would tell.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# In the order of the files; the letters are WordNet's own (s: an adjective near another).
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
# Pointers to what a sense is a kind or an example of, or similar to.
ABOVE = ("@", "@i", "&")
# An example, and whose it is.
QUOTED = re.compile(r'[;,:]?\s*"[^"]*"?(?:\s*-+\s*(?:[A-Z][\w.]*[ ]?)+)?')
# Words of a document: the median of the chapters of ELTeC's novels is 3,129.
CHAPTER = 3_000


class Sense(NamedTuple):
    """A line of the database: its words, the sense above it, what it means, how it is used."""

    part: str
    words: list[str]
    above: str
    meaning: str
    examples: list[str]


def senses(folder: Path) -> dict[str, Sense]:
    """All senses by part of speech and offset."""
    found = {}
    for part, letter in PARTS.items():
        for line in (folder / f"data.{part}").read_text(encoding="ascii").splitlines():
            if line.startswith("  "):  # the licence
                continue
            fields, _, gloss = line.partition(" | ")
            offset, _, kind, many, *rest = fields.split()
            end = 2 * int(many, 16)
            # Adjectives carry where they may stand: `galore(ip)`.
            words = [re.sub(r"\(\w+\)$", "", w).replace("_", " ") for w in rest[:end:2]]
            pointers = rest[end + 1 :]
            steps = zip(pointers[::4], pointers[1::4], strict=False)
            above = next((f"{letter}{to}" for by, to in steps if by in ABOVE), "")
            if kind == "a":  # the head of its neighbours: `&` leads down, not up
                above = ""
            examples = re.findall(r'"([^"]+)"', gloss)
            meaning = QUOTED.sub("", gloss).strip(" ;,:")
            found[f"{letter}{offset}"] = Sense(part, words, above, meaning, examples)
    return found


def sentences(sense: Sense) -> str:
    """A sense as people would say it."""
    word, *others = sense.words
    meaning = sense.meaning
    if sense.part == "verb":
        told = [f"to {word} is to {meaning}"]
    elif sense.part == "noun" and re.match(r"(?:an?|the|any|one) ", meaning):
        article = "the" if meaning.startswith("the ") else "an" if word[0] in "aeiou" else "a"
        told = [f"{word} is {meaning}" if word[0].isupper() else f"{article} {word} is {meaning}"]
    else:
        told = [f"{word}: {meaning}"]
    if others:
        told.append(f"another word for {word} is {' or '.join(others)}")
    return " ".join(_sentence(each) for each in told + sense.examples)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def families(found: dict[str, Sense]) -> list[list[Sense]]:
    """A sense and those below it, in the order of the files; then those that have neither."""
    below: dict[str, list[Sense]] = {}
    for sense in found.values():
        below.setdefault(sense.above, []).append(sense)
    alone = [[sense] for key, sense in found.items() if not sense.above and key not in below]
    return [[sense, *below[key]] for key, sense in found.items() if key in below] + alone


def documents(lines: Iterable[list[str]], words: int = CHAPTER) -> Iterator[list[str]]:
    """Neighbouring families of lines put together until there are so many words."""
    held: list[str] = []
    size = 0
    for family in lines:
        held += family
        size += sum(len(line.split()) for line in family)
        if size >= words:
            yield held
            held, size = [], 0
    if held:
        yield held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with data.noun and the other three")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    made = list(documents([*map(sentences, each)] for each in families(senses(given.folder))))
    text = "\n\n".join(map("\n".join, made)) + "\n"
    given.out.write_text(text, encoding="utf-8")
    print(f"{given.out}: {len(made):,} documents, {len(text.split()):,} words")


if __name__ == "__main__":
    main()
