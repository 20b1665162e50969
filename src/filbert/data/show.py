"""Pre-training examples as people read them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np

from filbert.data.examples import Example
from filbert.data.instances import Instances, Text
from filbert.data.masking import Masker
from filbert.data.objective import ObjectiveOptions
from filbert.text.tokenizer import Tokenizer

LINE_WIDTH = 100

_PAIR_WORDS = {
    "nsp": ("B follows A (label 0)", "B comes from somewhere else (label 1)"),
    "sop": ("A and B are in order (label 0)", "A and B are not in order (label 1)"),
}


def show_examples(
    corpus: Text, tokenizer: Tokenizer, options: ObjectiveOptions, count: int, seed: int = 0
) -> Iterator[str]:
    """The first `count` rows of the first epoch's shuffle, each as a few lines of plain text.

    A masked word is written as [MASK→word], one that stays but is to be guessed as [kept word], one
    with another in its place as [other→word]. Pieces of a word that fare alike stand together.

    Args:
        corpus: the text.
        tokenizer: its vocabulary.
        options: what is learnt.
        count: examples; fewer where the corpus has fewer.
        seed: as of the run.
    """
    instances = Instances(corpus, tokenizer, options, seed)
    rows = instances.order(0)[:count]
    for number, example in enumerate(instances.examples(0, rows), 1):
        yield _example_text(number, example, tokenizer, instances.masker, options)


def _example_text(
    number: int,
    example: Example,
    tokenizer: Tokenizer,
    masker: Masker,
    options: ObjectiveOptions,
) -> str:
    found = example.target
    kinds = np.zeros(len(example.input_ids), dtype=np.int8)
    now = example.input_ids[found.positions]
    kinds[found.positions] = np.where(
        now == masker.mask_id, _MASKED, np.where(now == found.labels, _KEPT, _OTHER)
    )
    before = example.input_ids.astype(np.int64)
    before[found.positions] = found.labels
    counts = np.bincount(kinds, minlength=4)
    head = (
        f"example {number} (row {example.row}): {example.num_tokens} tokens, "
        f"{len(found.positions)} to guess: {counts[_MASKED]} masked, {counts[_KEPT]} kept, "
        f"{counts[_OTHER]} replaced at random"
    )
    lines = [head]
    if found.pair is not None:
        lines.append(_PAIR_WORDS[options.pair][found.pair])
    names = iter(("A: ", "B: ") if found.pair is not None else ("text: ",))
    edges = np.flatnonzero(masker.never[before] & (kinds == 0))
    for begin, end in zip([-1, *edges.tolist()], [*edges.tolist(), len(before)], strict=True):
        if begin + 1 == end:
            continue
        words = _marked(example.input_ids, before, kinds, begin + 1, end, tokenizer, masker)
        lines += textwrap.wrap(
            next(names, "next document: ") + " ".join(words),
            LINE_WIDTH,
            initial_indent="  ",
            subsequent_indent="     ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


_PLAIN, _MASKED, _KEPT, _OTHER = range(4)


def _marked(
    now: np.ndarray,
    before: np.ndarray,
    kinds: np.ndarray,
    begin: int,
    end: int,
    tokenizer: Tokenizer,
    masker: Masker,
) -> list[str]:
    """Plain stretches and marked words of one segment."""
    found: list[str] = []
    at = begin
    while at < end:
        kind, upto = kinds[at], at + 1
        while (
            upto < end
            and kinds[upto] == kind
            and (kind == _PLAIN or masker.continues[before[upto]])
        ):
            upto += 1
        word = _readable(before[at:upto], tokenizer)
        if kind == _MASKED:
            word = f"[MASK→{word}]"
        elif kind == _KEPT:
            word = f"[kept {word}]"
        elif kind == _OTHER:
            word = f"[{_readable(now[at:upto], tokenizer)}→{word}]"
        found.append(word)
        at = upto
    return found


def _readable(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    """Text of some tokens; entries that decode to nothing, such as specials, by their name."""
    return tokenizer.decode(ids).strip() or " ".join(tokenizer.tokens(ids))
