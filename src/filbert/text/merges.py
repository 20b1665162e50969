"""Learn which neighbouring symbols to join: byte-level BPE, and WordPiece as everybody trains it.

The `tokenizers` library has such trainers too. They cannot be given counted words, and its
WordPiece differs from run to run, since the numbers that break ties follow a hash table's order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

_HALF = 32  # a pair of ids is one integer, first << _HALF | second, so that it sorts as the pair
_LOW = (1 << _HALF) - 1


def learn_merges(
    words: Sequence[tuple[list[int], int]],
    tokens: list[str],
    *,
    size: int,
    min_count: int,
    prefix: str = "",
    progress: Callable[[int], None] = lambda count: None,
) -> list[tuple[str, str]]:
    """Join the most frequent neighbours again and again; of equals, those with the smaller ids.

    Args:
        words: each word's symbols as ids into `tokens`, and its count. The lists are changed.
        tokens: the vocabulary so far; it grows up to `size` entries.
        size: where to stop.
        min_count: neighbours seen less often are not joined.
        prefix: marks a token that continues a word; a joined token carries it at most in front.
        progress: is told about each new token.

    Returns:
        The pairs in the order in which they were joined.

    Source: Sennrich et al. 2016, algorithm 1; ties as in the `tokenizers` library.
    """
    ids = {token: number for number, token in enumerate(tokens)}
    counts: dict[int, int] = {}
    where: dict[int, array[int]] = {}
    for index, (symbols, count) in enumerate(words):
        for pair in zip(symbols, symbols[1:], strict=False):
            key = pair[0] << _HALF | pair[1]
            if key in counts:
                counts[key] += count
                # A pair twice in a word: its place is known.
                if where[key][-1] != index:
                    where[key].append(index)
            else:
                counts[key] = count
                where[key] = array("I", (index,))
    queue = [(-count, key) for key, count in counts.items()]
    heapify(queue)
    merges: list[tuple[str, str]] = []
    while queue and len(tokens) < size:
        negative, key = heappop(queue)
        count = counts.get(key, 0)
        if count != -negative:
            # Its count has sunk since it was queued.
            if count > 0:
                heappush(queue, (-count, key))
            continue
        if count < max(1, min_count):
            break
        left, right = key >> _HALF, key & _LOW
        joined = tokens[left] + tokens[right].removeprefix(prefix)
        if joined not in ids:
            ids[joined] = len(tokens)
            tokens.append(joined)
            progress(1)
        merges.append((tokens[left], tokens[right]))
        raised: set[int] = set()
        for index in where.pop(key):
            symbols, count = words[index]
            _join(symbols, left, right, ids[joined], count, index, counts, where, raised)
        counts.pop(key, None)
        raised.discard(key)
        for pair_key in raised:
            if counts[pair_key] > 0:
                heappush(queue, (-counts[pair_key], pair_key))
    return merges


def _join(
    symbols: list[int],
    left: int,
    right: int,
    joined: int,
    count: int,
    index: int,
    counts: dict[int, int],
    where: dict[int, array[int]],
    raised: set[int],
) -> None:
    """Join left and right in one word, and keep the counts of its pairs right."""
    at = 0
    while True:
        try:
            at = symbols.index(left, at)
        except ValueError:
            return
        if at + 1 >= len(symbols):
            return
        if symbols[at + 1] != right:
            at += 1
            continue
        changed = []
        if at:
            before = symbols[at - 1] << _HALF
            counts[before | left] = counts.get(before | left, 0) - count
            changed.append(before | joined)
        if at + 2 < len(symbols):
            after = symbols[at + 2]
            gone = right << _HALF | after
            counts[gone] = counts.get(gone, 0) - count
            changed.append(joined << _HALF | after)
        for pair_key in changed:
            counts[pair_key] = counts.get(pair_key, 0) + count
            if pair_key in where:
                where[pair_key].append(index)
            else:
                where[pair_key] = array("I", (index,))
            raised.add(pair_key)
        symbols[at : at + 2] = [joined]
        at += 1
