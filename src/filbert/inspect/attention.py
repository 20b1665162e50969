"""Attention maps of a model, and one text with its tokens, words and attention.

T tokens in the batch, L layers, A heads, D head size, n tokens of one sequence.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch, split
from filbert.data.examples import Example
from filbert.data.texts import cleaned, text_of, text_row
from filbert.errors import ConfigError, InputError
from filbert.inference.forward import forward
from filbert.inference.predictor import Predictor
from filbert.model.attention import probabilities
from filbert.model.config import EncoderConfig
from filbert.model.distances import PositionVectors
from filbert.model.encoder import Encoder, Layer, traced
from filbert.model.heads import Model
from filbert.model.positions import rotate
from filbert.text.tokenizer import Encoding, Text, Tokenizer, without_halves

# Attention weights of one text over all layers and heads: at most 2 GiB in float32. Those that are
# computed at once for short texts: 128 MiB.
MOST_WEIGHTS, BATCH_WEIGHTS = 2**29, 2**25


def attention_maps(
    model: Model,
    batch: PackedBatch,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[Tensor]:
    """Return the maps of `attention_and_vectors`."""
    return attention_and_vectors(model, batch, layers, heads)[0]


def attention_and_vectors(
    model: Model,
    batch: PackedBatch,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Compute the attention probabilities of every sequence as the model computes them.

    Args:
        model: A Transformer in eval mode.
        batch: On the model's device.
        layers: Layer numbers from 0; all layers if None.
        heads: Head numbers from 0; all heads if None.

    Returns:
        For each sequence its maps, float32 (L, A, n, n) on the CPU, in the order of `layers` and
        `heads`. Entry [l, a, i, j] is the weight that token i gives to token j. Rows sum to one.
        Then the queries and keys that they are made of, float32 (L, 2, A, n, D), queries first,
        after the rotation of rotary positions. Pruned heads are zeros.

    Raises:
        ConfigError: The model has no attention, or a layer or head does not exist.
    """
    layers, heads = layers_and_heads(model, layers, heads)
    maps, vectors, chosen = [], [], torch.tensor(heads)
    encoder = model.encoder
    # A trace counts layers from 1.
    numbers = [layer + 1 for layer in layers]
    with torch.inference_mode(), traced(encoder, (), numbers) as trace:
        encoder(batch)
        for number in numbers:
            qkv_T3AD, plan = trace.qkv[number], trace.plans[number]
            layer = cast(Layer, encoder.layer(number - 1))
            qkv_T3AD = layer.operands(qkv_T3AD, plan)
            if plan.angles is not None:
                qkv_T3AD = rotate(qkv_T3AD, plan.angles)
            is_present_A = chosen < qkv_T3AD.shape[2]
            shape = (len(qkv_T3AD), 2, len(heads), qkv_T3AD.shape[-1])
            qk_T2AD = torch.zeros(shape, device=qkv_T3AD.device)
            qk_T2AD[:, :, is_present_A] = qkv_T3AD[:, :2, chosen[is_present_A]].float()
            sequences = split(qk_T2AD, plan.batch)
            # The values by distance of the chosen heads.
            by_distance = layer.position_vectors(plan)
            if by_distance is not None:
                tables = (part for part in by_distance if part is not None)
                by_distance = PositionVectors(*(part[heads] for part in tables))
            if plan.bias_AP is not None:
                plan = replace(plan, bias_AP=plan.bias_AP[heads])
            weights = [probabilities(qk, plan, by_distance).cpu() for qk in sequences]
            maps.append([one.mul_(is_present_A[:, None, None]) for one in weights])
            vectors.append([qk.permute(1, 2, 0, 3).cpu() for qk in sequences])
        return (
            [torch.stack(by_layer) for by_layer in zip(*maps, strict=True)],
            [torch.stack(by_layer) for by_layer in zip(*vectors, strict=True)],
        )


def layers_and_heads(
    model: nn.Module, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """Return layer and head numbers, all for None; a wrong one or no attention is a ConfigError."""
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, Encoder):
        raise ConfigError(
            "An exported graph has no attention to show. Use the folder that it was exported from."
        )
    config = encoder.config
    counts = {"layer": config.num_hidden_layers, "head": config.attention.heads}
    found = []
    for (name, count), asked in zip(counts.items(), (layers, heads), strict=True):
        if asked is not None and (isinstance(asked, int | str) or not asked):
            raise ConfigError(f"{name}s is {asked!r}; give a list of integers, such as [0].")
        for number in asked or ():
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
                raise ConfigError(f"{name} {number!r} is not in 0..{count - 1}.")
        found.append(list(range(count) if asked is None else asked))
    return found[0], found[1]


def pruned_heads(config: EncoderConfig) -> np.ndarray:
    """Return which of the (L, A) heads were pruned, bool."""
    left = np.array([config.heads_of(layer) for layer in range(config.num_hidden_layers)])
    return np.arange(config.attention.heads) >= left[:, None]


def attention_of_texts(
    predictor: Predictor, encodings: Sequence[Encoding]
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the number of each text, by length, with its maps, and its queries and keys.

    They are those of `attention_and_vectors`. More than MOST_WEIGHTS numbers are a ConfigError.
    """
    model = predictor.model
    assert isinstance(model, Model)
    heads = model.config.num_hidden_layers * model.config.attention.heads
    longest = max((len(encoding.input_ids) for encoding in encodings), default=1)
    if heads * longest**2 > MOST_WEIGHTS:
        fits = math.isqrt(MOST_WEIGHTS // heads)
        raise ConfigError(
            f"The attention of {heads} heads over {longest:,} tokens takes "
            f"{4 * heads * longest**2 / 1e9:.1f} GB. Cut the text with --max-length {fits}."
        )
    examples = [Example.of(i, encoding) for i, encoding in enumerate(encodings)]

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        maps, vectors = attention_and_vectors(model, batch)
        return (*maps, *vectors)

    outputs = forward(
        model,
        examples,
        read,
        max_tokens=BATCH_WEIGHTS // (heads * longest),
        precision=predictor.precision,
        one_at_a_time=True,
    )
    for indices, found in outputs:
        yield from zip(indices, found[: len(indices)], found[len(indices) :], strict=True)


# One text


@dataclass(frozen=True, eq=False)
class View:
    """One text or pair with the attention of one model.

    Attributes:
        texts: The text, or the two texts of a pair, as the model reads them.
        sequence: int8 (n,), 0 first text, 1 second text, -1 added special token.
        units: int32 (n,), the word of each token. Each special token is a word of its own.
        maps: float32 (L, A, n, n); see `attention_maps`.
        is_pruned: bool (L, A); the maps of these heads are zeros.
        queries_keys: float32 (L, 2, A, n, D); see `attention_and_vectors`.
        num_tokens: Tokens before truncation.
    """

    model: str
    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    sequence: np.ndarray
    units: np.ndarray
    words: tuple[str, ...]
    maps: np.ndarray
    is_pruned: np.ndarray
    queries_keys: np.ndarray
    num_tokens: int

    @property
    def truncated(self) -> bool:
        """Whether tokens were cut off."""
        return self.num_tokens > len(self.tokens)


def view_text(predictor: Predictor, item: Any, *, name: str, max_length: int | None = None) -> View:
    """Run one text or pair through a model and collect its attention.

    It is cut to `max_length` tokens. If that is None, a text that is too long is refused.
    """
    model = predictor.model
    layers_and_heads(model)
    assert isinstance(model, Model)
    model.config.check_max_length(max_length)
    limit = max_length or predictor.max_length
    text = cleaned(text_of(text_row(item, 0)), predictor.cleaning)
    texts = tuple(without_halves(part) for part in ((text,) if isinstance(text, str) else text))
    if not all(part.strip() for part in texts):
        which = "The text" if len(texts) == 1 else "One of the two texts"
        raise InputError(f"{which} is empty. Give a sentence.")
    both: Text = texts[0] if len(texts) == 1 else (texts[0], texts[1])
    (encoding,) = predictor.tokenizer.encode([both], max_length=limit, with_offsets=True)
    if encoding.truncated and max_length is None:
        raise InputError(
            f"The text has {encoding.num_tokens} tokens, {name} reads {limit}. Shorten it, or cut "
            f"it with --max-length {limit}."
        )
    ((_, maps, vectors),) = attention_of_texts(predictor, [encoding])
    words = words_of(encoding, texts, predictor.tokenizer)
    assert encoding.sequence is not None
    return View(
        model=name,
        texts=texts,
        tokens=tuple(readable_tokens(encoding, texts, predictor.tokenizer)),
        sequence=encoding.sequence,
        units=np.repeat(np.arange(len(words)), [len(word.rows) for word in words]),
        words=tuple(word.text for word in words),
        maps=maps.numpy(),
        is_pruned=pruned_heads(model.config),
        queries_keys=vectors.numpy(),
        num_tokens=encoding.num_tokens,
    )


def readable_tokens(encoding: Encoding, texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return WordPiece entries and symbols as they are, of other vocabularies the characters."""
    entries = tokenizer.tokens(encoding.input_ids)
    if tokenizer.kind in ("wordpiece", "symbols"):
        return entries
    assert encoding.offsets is not None and encoding.sequence is not None
    pairs = zip(encoding.offsets.tolist(), encoding.sequence.tolist(), strict=True)
    pieces = [texts[side][start:end].strip() if side >= 0 else "" for (start, end), side in pairs]
    return [piece or entry for piece, entry in zip(pieces, entries, strict=True)]


class Word(NamedTuple):
    """A word of a text, or an added special token.

    Attributes:
        text: As written, or the names of its tokens if it has no characters.
        side: 0 for the first text, 1 for the second, -1 for a special token.
        start, end: Characters [start, end) of that text.
        rows: Its tokens.
    """

    text: str
    side: int
    start: int
    end: int
    rows: tuple[int, ...]


def words_of(encoding: Encoding, texts: Sequence[str], tokenizer: Tokenizer) -> list[Word]:
    """Return the words in order; each special token is a word of its own.

    White space and punctuation separate words in every vocabulary. SentencePiece by itself attaches
    a full stop to its word, and Gemma's vocabulary treats a whole text as one word. Byte-level
    vocabularies have tokens of white space only; these belong to the word that follows, or to the
    last word of the text.
    """
    offsets, sequence, numbers = encoding.offsets, encoding.sequence, encoding.words
    assert offsets is not None and sequence is not None and numbers is not None
    runs = [_character_runs(text) for text in texts]
    # What tokens of one word have in common; None for white space.
    keys: list[tuple[int, ...] | None] = []
    for row, (side, number) in enumerate(zip(sequence.tolist(), numbers.tolist(), strict=True)):
        start, end = offsets[row].tolist()
        piece = texts[side][start:end].lstrip() if side >= 0 else ""
        of_text = (side, number, runs[side][end - len(piece)]) if piece else None
        keys.append(of_text if side >= 0 else (side, row))
    count = len(keys)
    for row in reversed(range(count - 1)):
        if keys[row] is None and sequence[row] == sequence[row + 1]:
            keys[row] = keys[row + 1]
    for row in range(1, count):
        if keys[row] is None and sequence[row] == sequence[row - 1]:
            keys[row] = keys[row - 1]
    words = []
    for _, group in groupby(range(count), key=keys.__getitem__):
        rows = list(group)
        side = int(sequence[rows[0]])
        first, last = int(offsets[rows, 0].min()), int(offsets[rows, 1].max())
        piece = texts[side][first:last] if side >= 0 else ""
        start, end = last - len(piece.lstrip()), first + len(piece.rstrip())
        name = piece.strip()
        if not name:
            start = end = last
            name = "".join(tokenizer.tokens(encoding.input_ids[rows]))
        words.append(Word(name, side, start, end, tuple(rows)))
    return words


def _character_runs(text: str) -> list[int]:
    """Number the runs of characters between white space and punctuation marks."""
    runs, number = [], 0
    for character in text:
        # Vowel signs of a script are neither punctuation (P) nor symbols (S).
        separates = character.isspace() or unicodedata.category(character)[0] in "PS"
        number += separates
        runs.append(number)
        number += separates
    return runs


def check_head(view: View, layer: int | None, head: int | None) -> None:
    """Raise a ConfigError for a layer or head that does not exist or was pruned; None means any."""
    for axis, (kind, number) in enumerate((("layer", layer), ("head", head))):
        count = view.maps.shape[axis]
        if number is not None and not 0 <= number < count:
            raise ConfigError(f"{kind} {number} is not in 0..{count - 1} of {view.model}.")
    layers = slice(None) if layer is None else layer
    if head is not None and view.is_pruned[layers, head].all():
        where = "every layer" if layer is None else f"layer {layer}"
        raise ConfigError(f"head {head} of {where} of {view.model} was pruned.")
