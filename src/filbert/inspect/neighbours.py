"""Nearest contextual neighbours of one word across sentences.

N occurrences of the word, H hidden size, L layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.data.texts import cleaned
from filbert.errors import ConfigError, InputError, printable
from filbert.inference.predictor import Predictor
from filbert.inspect.layers import states_by_layer
from filbert.text.tokenizer import UNSPACED


class LocatedSentence(NamedTuple):
    """A text, its file and line, and the known sense of the word in it."""

    text: str
    where: str
    sense: str | None = None


class Occurrence(NamedTuple):
    """The word at characters [start, end) of a text."""

    text: str
    where: str
    start: int
    end: int
    sense: str | None


@dataclass(frozen=True, eq=False)
class WordNeighbours:
    """Cosine similarities between the occurrences of a word.

    Attributes:
        words: The word, or several forms of it.
        layer: Layer of `cosines`, 0 for the embeddings.
        num_found: Occurrences in the text; more than N beyond the limit.
        cosines: float64 (N, N) in that layer; the diagonal is one.
        mean_cosine: Mean cosine of two occurrences in each layer from 0 to L (self-similarity,
            Ethayarajh 2019, section 3.3).
        same_sense: In each layer the share of occurrences whose nearest neighbour has the same
            sense; None without known senses.
    """

    words: tuple[str, ...]
    layer: int
    occurrences: tuple[Occurrence, ...]
    num_found: int
    cosines: np.ndarray
    mean_cosine: tuple[float, ...]
    same_sense: tuple[float, ...] | None

    def nearest(self, number: int) -> int:
        """Return the nearest other occurrence."""
        others = (other for other in range(len(self.occurrences)) if other != number)
        return max(others, key=lambda other: float(self.cosines[number, other]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "words": list(self.words),
            "layer": self.layer,
            "found": self.num_found,
            "occurrences": [
                one._asdict() | {"nearest": self.nearest(number)}
                for number, one in enumerate(self.occurrences)
            ],
            "cosines": np.round(self.cosines, 6).tolist(),
            "mean_cosine": list(self.mean_cosine),
            "same_sense": None if self.same_sense is None else list(self.same_sense),
        }


def find_neighbours(
    predictor: Predictor,
    words: str | Sequence[str],
    sentences: Iterable[str | LocatedSentence],
    *,
    layer: int = -1,
    limit: int = 100,
) -> WordNeighbours:
    """Compare the contextual vectors of a word's occurrences.

    The vector of an occurrence is the mean over its tokens. A long text is cut around the word.

    Args:
        words: The word, or several forms of it; whole words are matched.
        layer: 0 is the embedding layer, -1 the last layer.
        limit: Largest number of occurrences; the first ones if there are more.

    Raises:
        InputError: The word occurs less than twice, or has no token.
        ConfigError: The layer does not exist, or the model is an exported graph.
    """
    num_layers = predictor.model.config.num_hidden_layers
    if not -num_layers - 1 <= layer <= num_layers:
        raise ConfigError(f"--layer {layer} is not in {-num_layers - 1}..{num_layers}.")
    if limit < 2:
        raise ConfigError(f"--limit is {limit}; at least 2 occurrences are compared.")
    forms = (words,) if isinstance(words, str) else tuple(words)
    occurrences = _occurrences(word_pattern(forms), sentences, predictor.cleaning)
    num_found = len(occurrences)
    if num_found < 2:
        times = "once" if num_found else "nowhere"
        raise InputError(
            f"The word occurs {times}; at least two occurrences are compared. Whole words are "
            "matched: name further forms with another --word."
        )
    occurrences = occurrences[:limit]
    by_layer = [_cosines(vectors) for vectors in _vectors(predictor, occurrences)]
    count = len(occurrences)
    chosen = layer % (num_layers + 1)
    return WordNeighbours(
        words=forms,
        layer=chosen,
        occurrences=tuple(occurrences),
        num_found=num_found,
        cosines=by_layer[chosen],
        mean_cosine=tuple(float((one.sum() - count) / (count * (count - 1))) for one in by_layer),
        same_sense=_same_sense(by_layer, [one.sense for one in occurrences]),
    )


def word_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a pattern of whole words in any case; none, or an empty one, is a ConfigError."""
    if not words or not all(word.strip() for word in words):
        raise ConfigError("--word is empty; name the word to look for, such as --word bank.")
    parts = []
    # The longest first, because an alternation takes the first match.
    for word in sorted((" ".join(word.split()) for word in words), key=len, reverse=True):
        before = r"(?<!\w)" if _has_boundary(word[0]) else ""
        after = r"(?!\w)" if _has_boundary(word[-1]) else ""
        parts.append(before + r"\s+".join(map(re.escape, word.split(" "))) + after)
    return re.compile("|".join(parts), re.IGNORECASE)


def _has_boundary(character: str) -> bool:
    # In scripts without spaces a word is found wherever its characters are.
    return bool(re.match(r"\w", character)) and not UNSPACED.match(character)


def _occurrences(
    pattern: re.Pattern[str], sentences: Iterable[str | LocatedSentence], clean: Any
) -> list[Occurrence]:
    if isinstance(sentences, str):
        raise InputError("A list of texts is expected, not one text. Write [text].")
    found = []
    for number, one in enumerate(sentences, start=1):
        given, where, sense = (one, f"text {number}", None) if isinstance(one, str) else one
        text = cleaned(given, clean)
        assert isinstance(text, str)
        found += [Occurrence(text, where, *m.span(), sense) for m in pattern.finditer(text)]
    return found


def _vectors(predictor: Predictor, occurrences: Sequence[Occurrence]) -> np.ndarray:
    """Return the vectors of all occurrences in each layer, float32 (L + 1, N, H)."""
    inputs = [_input(predictor, one) for one in occurrences]
    every = states_by_layer(predictor, [example for example, _ in inputs])
    vectors = [
        states[torch.from_numpy(rows)].mean(0).numpy()
        for (_, rows), states in zip(inputs, every, strict=True)
    ]
    return np.stack(vectors, axis=1)


def _input(predictor: Predictor, occurrence: Occurrence) -> tuple[Example, np.ndarray]:
    """Tokenise a sentence, cut around the word if it is too long; also the word's rows."""
    text, where = occurrence.text, occurrence.where
    (encoding,) = predictor.tokenizer.encode([text], with_offsets=True)
    assert encoding.offsets is not None and encoding.sequence is not None
    begins, stops = encoding.offsets.T
    is_within = (begins < occurrence.end) & (stops > occurrence.start)
    rows = np.flatnonzero((encoding.sequence == 0) & is_within)
    if not len(rows):
        word = printable(text[occurrence.start : occurrence.end])
        raise InputError(f"{where}: this model has no token for {word!r}.")
    kept = np.arange(len(encoding.input_ids))
    if len(kept) > predictor.max_length:
        if len(rows) > encoding.max_text_tokens(predictor.max_length):
            raise InputError(f"{where}: the word has more tokens than the model reads.")
        kept = encoding.around(int(rows.mean()), predictor.max_length)
    example = Example(
        0, encoding.input_ids[kept], encoding.token_type_ids[kept], encoding.num_tokens
    )
    return example, np.searchsorted(kept, rows)


def _cosines(vectors_NH: np.ndarray) -> np.ndarray:
    wide = vectors_NH.astype(np.float64)
    units = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    cosines: np.ndarray = np.clip(units @ units.T, -1, 1)
    np.fill_diagonal(cosines, 1.0)
    return cosines


def _same_sense(
    by_layer: Sequence[np.ndarray], senses: Sequence[str | None]
) -> tuple[float, ...] | None:
    if None in senses:
        return None
    names = np.array(senses)
    others = [cosines - 4.0 * np.eye(len(names)) for cosines in by_layer]
    return tuple(float((names[one.argmax(1)] == names).mean()) for one in others)
