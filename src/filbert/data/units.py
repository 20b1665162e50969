"""Masks of more than one token: whole words, n-grams and spans.

A row's W words are given by their sizes in tokens; a choice is a list of (word, word behind the
last one). No choice covers more than the wanted number of tokens; a candidate that would is made
shorter or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

# Longest n-gram (Lan et al. 2019, section 3.1), longest span and the parameter of its geometric
# distribution (Joshi et al. 2020, section 3.1).
LONGEST_NGRAM = 3
LONGEST_SPAN = 10
SPAN_P = 0.2


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [part / total for part in accumulate(weights)]


# Running sums of p(n), by the largest n that is possible.
_NGRAM = {
    most: _shares([1 / n for n in range(1, most + 1)]) for most in range(1, LONGEST_NGRAM + 1)
}
# The geometric distribution over 1 to 10 alone: its mean is 3.8, as the paper says.
_SPAN = _shares([(1 - SPAN_P) ** n for n in range(LONGEST_SPAN)])


def _draw(running: Sequence[float], chance: float) -> int:
    """1 + the first place whose running sum is above `chance`."""
    for index, part in enumerate(running):
        if chance < part:
            return index + 1
    return len(running)


def choose_words(sizes: Sequence[int], order: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Whole words in the order given, without those that would overshoot.

    Source: google-research/bert, create_pretraining_data.py, create_masked_lm_predictions.
    """
    chosen = []
    for word in order:
        if sizes[word] <= wanted:
            chosen.append((word, word + 1))
            wanted -= sizes[word]
            if not wanted:
                break
    return chosen


def choose_ngrams(
    sizes: Sequence[int], order: Sequence[int], wanted: int, chances: Sequence[float]
) -> list[tuple[int, int]]:
    """One to three whole words from each start, n with a probability proportional to 1/n.

    One that overshoots is shortened, else left out, as is one that would meet an earlier one. As in
    the reference, an n-gram may go on behind the separator of two segments.

    Args:
        sizes: tokens of every word.
        order: in which words begin an n-gram.
        wanted: tokens.
        chances: uniform draws, one per word.

    Source: google-research/albert, create_pretraining_data.py, create_masked_lm_predictions.
    """
    begins = [0, *accumulate(sizes)]
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        end = word + _draw(_NGRAM[min(LONGEST_NGRAM, len(sizes) - word)], chances[word])
        while begins[end] - begins[word] > wanted:
            end -= 1
        if any(covered[word:end]):
            continue
        covered[word:end] = b"\1" * (end - word)
        chosen.append((word, end))
        wanted -= begins[end] - begins[word]
        if not wanted:
            break
    return chosen


def choose_spans(
    sizes: Sequence[int],
    breaks: Sequence[bool],
    order: Sequence[int],
    wanted: int,
    chances: Sequence[float],
) -> list[tuple[int, int]]:
    """Spans of whole words, of geometric length, from the word of each token drawn.

    A span ends early at the end of its segment, before a word that is covered and before one that
    would overshoot.

    Args:
        sizes: tokens of every word.
        breaks: whether a segment begins with the word.
        order: words in the order in which they are drawn; each may come once per token.
        wanted: tokens.
        chances: uniform draws, one per word.

    Source: Joshi et al. 2020 (SpanBERT), section 3.1.
    """
    covered = bytearray(len(sizes))
    chosen = []
    for word in order:
        if covered[word] or sizes[word] > wanted:
            continue
        most = word + _draw(_SPAN, chances[word])
        end = word
        while end < min(most, len(sizes)) and sizes[end] <= wanted and not covered[end]:
            if breaks[end] and end > word:
                break
            covered[end] = 1
            wanted -= sizes[end]
            end += 1
        chosen.append((word, end))
        if not wanted:
            break
    return chosen
