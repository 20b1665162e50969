"""One text before one model: its tokens and words, and the attention between them.

L layers, A heads, D head size, n tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.batch import pack
from filbert.data.texts import Text, cleaned, text_of, text_row
from filbert.errors import ConfigError, InputError
from filbert.inspection.heads import lost_heads
from filbert.inspection.maps import check_size, numbers_of
from filbert.inspection.queries_keys import maps_queries_keys
from filbert.inspection.word_numbers import with_words
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.stored_task import check_max_length
from filbert.text.encoding import Encoding
from filbert.text.surrogates import without_halves
from filbert.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class View:
    """What a page or a terminal shows of one text before one model.

    Attributes:
        model: its name, as the user gave it.
        texts: the text, or the two of a pair, as the model read them.
        tokens: n of them, readable.
        sequence: int8 (n,), 0 first text, 1 second text, -1 added special token.
        units: int32 (n,), which word a token belongs to, counted through; a special token is a
            word of its own.
        words: the words, in order.
        maps: float32 (L, A, n, n), rows sum to one; see `attention_maps`.
        is_lost: bool (L, A), places of heads that were pruned, whose maps are zeros.
        queries_keys: float32 (L, 2, A, n, D); see `queries_and_keys`.
        num_tokens: tokens before cutting.
    """

    model: str
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    sequence: np.ndarray
    units: np.ndarray
    words: tuple[str, ...]
    maps: np.ndarray
    is_lost: np.ndarray
    queries_keys: np.ndarray
    num_tokens: int

    @property
    def truncated(self) -> bool:
        """Whether tokens were cut off."""
        return self.num_tokens > len(self.tokens)


def view_of(predictor: Predictor, item: Any, *, name: str, max_length: int | None = None) -> View:
    """Run one text or pair through a model and keep what its heads did.

    Args:
        predictor: the model.
        item: a text or a pair of texts.
        name: of the model, for people.
        max_length: tokens that a longer text is cut to; without it a text beyond
            `predictor.max_length` is refused.

    Raises:
        ConfigError: the model shows no attention, or does not serve `max_length`, or there is too
            much attention to keep.
        InputError: the text is empty, too long, or no text.
    """
    numbers_of(predictor.model)
    limit = check_max_length(max_length, predictor.model.config) or predictor.max_length
    assert isinstance(predictor.model, Model)
    text = cleaned(text_of(text_row(item, 0)), getattr(predictor.task, "clean", None))
    texts = tuple(without_halves(part) for part in ((text,) if isinstance(text, str) else text))
    if not all(part.strip() for part in texts):
        which = "The text" if len(texts) == 1 else "One of the two texts"
        raise InputError(f"{which} is empty. Give a sentence.")
    asked: Text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    (encoding,) = predictor.tokenizer.encode([asked], max_length=limit, with_offsets=True)
    if encoding.truncated and max_length is None:
        raise InputError(
            f"The text has {encoding.num_tokens} tokens, {name} reads {limit}. Shorten it, or look "
            f"at its first part with --max-length {limit}."
        )
    check_size(predictor.model.config, len(encoding.input_ids))
    batch = pack([encoding.input_ids], [encoding.token_type_ids]).to(predictor.device)
    (maps,), (vectors,) = maps_queries_keys(predictor.model, batch)
    units, words = words_of(encoding, texts, predictor.tokenizer)
    assert encoding.sequence is not None
    return View(
        model=name,
        texts=texts,
        tokens=tuple(shown_tokens(encoding, texts, predictor.tokenizer)),
        sequence=encoding.sequence,
        units=units,
        words=words,
        maps=maps.numpy(),
        is_lost=lost_heads(predictor.model),
        queries_keys=vectors.numpy(),
        num_tokens=encoding.num_tokens,
    )


def shown_tokens(encoding: Encoding, texts: tuple[str, ...], tokenizer: Tokenizer) -> list[str]:
    """WordPiece entries as they are; of other vocabularies, whose entries are not for eyes, the
    characters that they stand for.
    """
    entries = tokenizer.tokens(encoding.input_ids)
    if tokenizer.kind == "wordpiece":
        return entries
    assert encoding.offsets is not None and encoding.sequence is not None
    found = []
    for entry, (start, end), side in zip(
        entries, encoding.offsets.tolist(), encoding.sequence.tolist(), strict=True
    ):
        characters = texts[side][start:end].strip() if side >= 0 else ""
        found.append(characters or entry)
    return found


def words_of(
    encoding: Encoding, texts: tuple[str, ...], tokenizer: Tokenizer
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The word of every token, and what the words are."""
    encoding = with_words(encoding, texts)
    offsets, sequence, numbers = encoding.offsets, encoding.sequence, encoding.words
    assert offsets is not None and sequence is not None and numbers is not None
    begins = np.ones(len(numbers), dtype=bool)
    begins[1:] = (numbers[1:] < 0) | (numbers[1:] != numbers[:-1]) | (sequence[1:] != sequence[:-1])
    units = (np.cumsum(begins) - 1).astype(np.int32)
    entries = tokenizer.tokens(encoding.input_ids)
    words = []
    for first, after in zip(
        np.flatnonzero(begins), [*np.flatnonzero(begins)[1:], len(begins)], strict=True
    ):
        side = int(sequence[first])
        start, end = int(offsets[first, 0]), int(offsets[after - 1, 1])
        characters = texts[side][start:end].strip() if side >= 0 else ""
        words.append(characters or entries[first])
    return units, tuple(words)


def check_head(view: View, layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that the model lacks; None is any.

    Raises:
        ConfigError: the model never had it, or lost it to pruning.
    """
    for axis, (kind, number) in enumerate((("layer", layer), ("head", head))):
        count = view.maps.shape[axis]
        if number is not None and not 0 <= number < count:
            raise ConfigError(f"{kind} {number} is not in 0..{count - 1}, those of {view.model}.")
    if head is not None and view.is_lost[_some(layer), head].all():
        where = "every layer" if layer is None else f"layer {layer}"
        raise ConfigError(f"head {head} of {where} of {view.model} was pruned: there is no map.")


def chosen_map(view: View, layer: int | None, head: int | None) -> np.ndarray:
    """One head's map, or the mean over all heads of a layer, of a head's layers, or of everything.

    Heads that were pruned count nowhere.

    Returns:
        float (n, n).

    Raises:
        ConfigError: there is no such layer or head.
    """
    check_head(view, layer, head)
    layers, heads = _some(layer), _some(head)
    living = int((~view.is_lost[layers, heads]).sum())
    found: np.ndarray = view.maps[layers, heads].sum((0, 1)) / living
    return found


def _some(number: int | None) -> slice:
    return slice(None) if number is None else slice(number, number + 1)
