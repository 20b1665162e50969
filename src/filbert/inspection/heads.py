"""What every attention head does, in numbers: how wide it looks, how far, and at what.

L layers, A heads, n tokens of one sequence, r of them the text's own (no added specials).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from filbert.batch import pack
from filbert.errors import InputError
from filbert.inspection.maps import attention_maps, check_size
from filbert.model.heads import Model
from filbert.text.encoding import Encoding
from filbert.text.tokenizer import Tokenizer

# Entries of the maps that are computed at once, float32: 128 MiB.
MAX_ENTRIES = 2**25


@dataclass(frozen=True)
class Number:
    """One thing that is measured of a head.

    Attributes:
        name: its key in JSON.
        heading: of its column.
        meaning: one line for people.
        is_share: between 0 and 1.
    """

    name: str
    heading: str
    meaning: str
    is_share: bool = True

    @property
    def title(self) -> str:
        """Its full name."""
        return self.heading if self.heading[0] == "[" else self.name.replace("_", " ")


NUMBERS = (
    Number("entropy", "entr.", "of the weights, in nats", is_share=False),
    Number("distance", "dist.", "mean distance to what is looked at, in tokens", is_share=False),
    Number("confidence", "conf.", "largest weight on a token of the text"),
    Number("cls", "[CLS]", "share to the first special token"),
    Number("sep", "[SEP]", "share to the separators"),
    Number("itself", "itself", "share to the token itself"),
    Number("previous", "prev.", "share to the token before"),
    Number("next", "next", "share to the token after"),
    Number("same_word", "word", "share to the other pieces of its word, where it has any"),
    Number("same_token", "same", "share to the same token elsewhere, where there is one"),
)


@dataclass(frozen=True)
class HeadNumbers:
    """Means over all tokens of the texts, added specials aside.

    Attributes:
        values: by name of NUMBERS float64 (L, A). NaN for heads that were pruned, and where no
            token could be counted.
        counts: how many tokens each mean is over.
        num_texts, num_tokens: what was looked at; tokens with added specials.
    """

    values: dict[str, np.ndarray]
    counts: dict[str, int]
    num_texts: int
    num_tokens: int


def maps_of(
    model: Model, encodings: Sequence[Encoding], *, max_entries: int = MAX_ENTRIES
) -> Iterator[Tensor]:
    """The attention maps of every encoding in turn, float32 (L, A, n, n), in bounded memory.

    Raises:
        ConfigError: the model has no attention, or a text is too long; see `check_size`.
    """
    config = model.config
    check_size(config, max((len(encoding.input_ids) for encoding in encodings), default=0))
    each = config.num_hidden_layers * config.num_attention_heads
    group: list[Encoding] = []
    entries = 0
    for encoding in encodings:
        size = each * len(encoding.input_ids) ** 2
        if group and entries + size > max_entries:
            yield from _maps(model, group)
            group, entries = [], 0
        group.append(encoding)
        entries += size
    if group:
        yield from _maps(model, group)


def _maps(model: Model, encodings: Sequence[Encoding]) -> list[Tensor]:
    ids = [encoding.input_ids for encoding in encodings]
    types = [encoding.token_type_ids for encoding in encodings]
    return attention_maps(model, pack(ids, types).to(model.device))


class HeadStudy:
    """Adds up what NUMBERS say of one text after the other."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        config = model.config
        self.tokenizer = tokenizer
        self.shape = (config.num_hidden_layers, config.num_attention_heads)
        self.is_lost = lost_heads(model)
        self.sums = {number.name: np.zeros(self.shape) for number in NUMBERS}
        self.counts = {number.name: 0 for number in NUMBERS}
        self.num_texts = self.num_tokens = 0

    def add(self, maps: Tensor, encoding: Encoding) -> None:
        """Count one text.

        Args:
            maps: float32 (L, A, n, n), as `attention_maps` gives them.
            encoding: the same text, made with offsets.
        """
        assert encoding.words is not None
        assert encoding.sequence is not None
        self.num_texts += 1
        self.num_tokens += len(encoding.input_ids)
        rows = np.flatnonzero(encoding.sequence >= 0)
        if not len(rows):
            return
        own = torch.from_numpy(rows)
        places = torch.arange(maps.shape[-1])
        apart = (places[own][:, None] - places).abs().double()
        shares = {}
        for name, looked in _wanted(encoding, self.tokenizer).items():
            counted = np.flatnonzero(looked.any(1))
            shares[name] = torch.from_numpy(counted), torch.from_numpy(looked[counted]).double()
            self.counts[name] += len(counted)
        for name in ("entropy", "distance", "confidence"):
            self.counts[name] += len(rows)
        for layer, of_layer in enumerate(maps):  # one at a time: float64 takes twice the room
            seen = of_layer[:, own].double()  # (A, r, n)
            self._add("entropy", layer, torch.special.entr(seen).sum(-1))
            self._add("distance", layer, (seen * apart).sum(-1))
            self._add("confidence", layer, seen[..., own].amax(-1))
            for name, (counted_rows, mask) in shares.items():
                self._add(name, layer, (seen[:, counted_rows] * mask).sum(-1))

    def _add(self, name: str, layer: int, of_rows: Tensor) -> None:
        self.sums[name][layer] += of_rows.sum(-1).numpy()

    def result(self) -> HeadNumbers:
        """The means so far."""
        values = {}
        for name, total in self.sums.items():
            mean = total / self.counts[name] if self.counts[name] else np.full(self.shape, np.nan)
            values[name] = np.where(self.is_lost, np.nan, mean)
        return HeadNumbers(values, dict(self.counts), self.num_texts, self.num_tokens)


def _wanted(encoding: Encoding, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """What a share is of: bool (r, n), for each of the text's own tokens what it looks at."""
    assert encoding.words is not None
    assert encoding.sequence is not None
    ids, sequence, words = encoding.input_ids, encoding.sequence, encoding.words
    rows = np.flatnonzero(sequence >= 0)
    places = np.arange(len(ids))
    step = places - rows[:, None]
    is_added = np.broadcast_to(sequence < 0, step.shape)
    same_word = (words == words[rows][:, None]) & (sequence == sequence[rows][:, None])
    same_word &= (words >= 0) & (step != 0)
    same_token = (ids == ids[rows][:, None]) & (step != 0) & ~is_added
    return {
        "cls": is_added & (ids == (-1 if tokenizer.cls_id is None else tokenizer.cls_id)),
        "sep": is_added & (ids == (-1 if tokenizer.sep_id is None else tokenizer.sep_id)),
        "itself": step == 0,
        "previous": step == -1,
        "next": step == 1,
        "same_word": same_word,
        "same_token": same_token,
    }


def lost_heads(model: Model) -> np.ndarray:
    """Which places of (L, A) hold no head, because it was pruned: bool (L, A)."""
    config = model.config
    left = np.array([config.heads_of(layer) for layer in range(config.num_hidden_layers)])
    return np.arange(config.num_attention_heads) >= left[:, None]


def study(
    model: Model,
    tokenizer: Tokenizer,
    encodings: Sequence[Encoding],
    also: Iterable[Callable[[Tensor, Encoding], None]] = (),
) -> HeadNumbers:
    """The numbers of all heads over some texts.

    Args:
        model: a transformer in eval mode.
        tokenizer: its own.
        encodings: of the texts, made with offsets.
        also: is told every map too, so that they are computed once.

    Raises:
        InputError: there is nothing to look at.
        ConfigError: the model has no attention.
    """
    if not any((e.sequence >= 0).any() for e in encodings if e.sequence is not None):
        raise InputError("There is no text to look at: every one of them is empty.")
    found = HeadStudy(model, tokenizer)
    listeners = (found.add, *also)
    for encoding, maps in zip(encodings, maps_of(model, encodings), strict=True):
        for listener in listeners:
            listener(maps, encoding)
    return found.result()
