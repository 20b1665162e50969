"""The special tokens around one segment or two, learnt from the vocabulary's own template."""

from __future__ import annotations

import numpy as np

from filbert.text.tokenizer import Tokenizer


class Frame:
    """The special tokens around one segment or two, as the vocabulary itself puts them.

    Attributes:
        specials: ids before, between and after the segments.
        types: token types of the specials, in the same order.
        segment_types: token type of each segment.
    """

    def __init__(self, tokenizer: Tokenizer, *, pair: bool) -> None:
        probe = tokenizer.encode([("a", "a") if pair else "a"], with_offsets=True)[0]
        assert probe.sequence is not None
        count = 2 if pair else 1
        found: list[tuple[list[int], list[int]]] = [([], []) for _ in range(count + 1)]
        types = [0] * count
        gap = 0
        for number, kind, side in zip(
            probe.input_ids.tolist(),
            probe.token_type_ids.tolist(),
            probe.sequence.tolist(),
            strict=True,
        ):
            if side < 0:
                found[gap][0].append(number)
                found[gap][1].append(kind)
            else:
                gap = side + 1
                types[side] = kind
        self.specials = [np.array(ids, dtype=np.int32) for ids, _ in found]
        self.types = [np.array(kinds, dtype=np.uint8) for _, kinds in found]
        self.segment_types = types

    @property
    def size(self) -> int:
        """How many special tokens there are."""
        return sum(map(len, self.specials))
