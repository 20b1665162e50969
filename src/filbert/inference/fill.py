"""Masked words: from texts with masks to the most probable vocabulary entries at each.

T tokens in the batch, K masks in it, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch, onto
from filbert.data.examples import Example
from filbert.data.texts import chunks, refuse_one_text
from filbert.errors import ConfigError, FormatError
from filbert.inference.forward import LoadedModel, forward, in_order
from filbert.inference.onnx_session import SessionModel
from filbert.model.heads import HEADS, HeadInput, MaskedLMHead, Model, PretrainingHead
from filbert.text.masks import Piece, check_masked, mask_name, mask_spans, piece_of, put, translated
from filbert.text.tokenizer import Encoding, Tokenizer, characters_in

# Scores that a batch holds at a time, in numbers: 32 MB of float32.
_MOST_SCORES = 2**23

# From the scores at some masks, float32 (K, V), which may be overwritten, and the example of each
# mask, to tensors (K, ...).
FromScores = Callable[[Tensor, Sequence[Example]], tuple[Tensor, ...]]


def fill_masks(
    loaded: LoadedModel, texts: Iterable[str], *, top: int = 5
) -> Iterator[dict[str, Any]]:
    """Yield candidates for every mask of every text, in order and in fixed memory.

    The masks of a text are filled independently of each other; the model reads them all. A text
    beyond `max_length` tokens is cut around its masks; masks far apart get a sequence each.

    Args:
        loaded: With a masked-LM or a pre-training head. Its pooler does not run.

    Returns:
        For each text `candidates` (per mask, in order, a list of `top` dicts with `token`, `score`,
        `sequence` and `id`, the most probable first), `truncated` and `num_tokens`. The score is
        the probability among all V entries of the word table.

    Raises:
        ConfigError: The model has no masked-LM head, or `top` is out of range.
        FormatError: The vocabulary has no mask.
        InputError: A text without a mask, or an item that is no text; with its index.
    """
    check_fill(loaded, top)
    refuse_one_text(texts)
    checked = (check_masked(text, loaded.tokenizer, f"Item {i}") for i, text in enumerate(texts))

    def filled() -> Iterator[dict[str, Any]]:
        for chunk in chunks(checked, characters_in):
            masked, examples = mask_examples(loaded, chunk)
            yield from candidates_of(loaded, masked, examples, best_entries(loaded, examples, top))

    return filled()


def check_fill(loaded: LoadedModel, top: int = 1) -> None:
    """Raise ConfigError or FormatError as `fill_masks`."""
    masked_lm_part(loaded.model)
    mask_name(loaded.tokenizer)
    count = int(_known_entries(loaded.tokenizer, loaded.model.config.vocab_size).sum())
    if isinstance(top, bool) or not isinstance(top, Integral) or not 1 <= top <= count:
        raise ConfigError(f"top is {top!r}; the vocabulary has 1..{count} candidates.")


def has_masked_lm(model: Model | SessionModel) -> bool:
    """Return whether the model can score the vocabulary at a mask."""
    return isinstance(model, Model) and isinstance(model.head, MaskedLMHead | PretrainingHead)


def masked_lm_part(model: Model | SessionModel) -> MaskedLMHead:
    """Return the head that scores the vocabulary, or raise a ConfigError."""
    if isinstance(model, SessionModel):
        raise ConfigError("The backend onnxruntime does not fill masks. Use the original model.")
    if isinstance(model.head, MaskedLMHead):
        return model.head
    if isinstance(model.head, PretrainingHead):
        return model.head.masked_lm
    kind = next((kind for kind, head in HEADS.items() if type(model.head) is head), None)
    has = "it is a bare encoder" if model.head is None else f"its head is {kind or 'another'!r}"
    if kind == "discriminator":
        has += ", so take the generator that was trained with it"
    raise ConfigError(
        f"This model has no masked-LM head ({has}). Use filbert-mini or bert-base-uncased, or give "
        "it such a head with filbert pretrain."
    )


# A tokenizer needs 30 ms to list 30,000 entries, a third of the time of a text.
@lru_cache(maxsize=4)
def _known_entries(tokenizer: Tokenizer, size: int) -> Tensor:
    """Return which rows of the word table have an entry, bool (V,); some tables are padded."""
    known_V = torch.zeros(size, dtype=torch.bool)
    known_V[list(tokenizer.backend.get_vocab(with_added_tokens=True).values())] = True
    return known_V


# Texts to sequences


class Masked(NamedTuple):
    """A text with masks: characters [start, end) of each, and the tokens of the whole text."""

    text: str
    spans: list[tuple[int, int]]
    num_tokens: int


def mask_examples(loaded: LoadedModel, texts: Sequence[str]) -> tuple[list[Masked], list[Example]]:
    """Return texts that passed `check_masked`, and their sequences; see `sequences_around`."""
    tokenizer = loaded.tokenizer
    spans = [mask_spans(text, tokenizer) for text in texts]
    pairs = [translated(*both, tokenizer) for both in zip(texts, spans, strict=True)]
    encodings = tokenizer.encode([text for text, _ in pairs], with_offsets=True)
    masked: list[Masked] = []
    examples: list[Example] = []
    for row, (encoding, (_, wanted)) in enumerate(zip(encodings, pairs, strict=True)):
        assert encoding.offsets is not None and encoding.sequence is not None
        masks = np.flatnonzero((encoding.input_ids == tokenizer.mask_id) & (encoding.sequence == 0))
        starts, stops = encoding.offsets[masks].T
        # The mask of some vocabularies takes the spaces around it.
        at = np.searchsorted(stops, wanted)
        if at.max() == len(masks) or bool((starts[at] >= wanted).any()):
            raise FormatError(
                f"The tokenizer of this model does not read {mask_name(tokenizer)} as its mask; "
                "its tokenizer.json must list it among the added tokens."
            )
        masked.append(Masked(texts[row], spans[row], encoding.num_tokens))
        typed = _of_streams(encoding, tokenizer)
        examples += sequences_around(row, typed, masks[at].tolist(), loaded.max_length)
    return masked, examples


def _of_streams(encoding: Encoding, tokenizer: Tokenizer) -> Encoding:
    """Return symbols with token type 1 after a separator that is written in the text."""
    if tokenizer.kind != "symbols" or not tokenizer.pair_has_types:
        return encoding
    written = (encoding.input_ids == tokenizer.sep_id) & (encoding.sequence == 0)
    types = (written.cumsum() - written > 0).astype(np.uint8)
    return replace(encoding, token_type_ids=types)


def sequences_around(
    row: int, encoding: Encoding, places: Sequence[int], max_length: int
) -> list[Example]:
    """Return one sequence if the text fits, else one for every group of masks close together.

    A group is in the middle of its sequence and takes at most half of it, so that every mask has
    words on both sides.

    Args:
        encoding: The whole text.
        places: Rows of its masks, rising.

    Returns:
        Examples whose `target` holds the masks' places in the sequence, int64, and whose `source`
        their numbers in the text.
    """
    ids, types, count = encoding.input_ids, encoding.token_type_ids, encoding.num_tokens
    if len(ids) <= max_length:
        everything = np.asarray(places, dtype=np.int64)
        return [Example(row, ids, types, count, everything, range(len(places)))]
    size = encoding.max_text_tokens(max_length)
    groups: list[list[int]] = []
    for mask, place in enumerate(places):
        if groups and place - places[groups[-1][0]] < size // 2:
            groups[-1].append(mask)
        else:
            groups.append([mask])
    examples = []
    for group in groups:
        middle = (places[group[0]] + places[group[-1]] + 1) // 2
        rows = encoding.around(middle, max_length)
        at = np.searchsorted(rows, [places[mask] for mask in group]).astype(np.int64)
        examples.append(Example(row, ids[rows], types[rows], count, at, group))
    return examples


# Sequences to scores


def read_masks(
    loaded: LoadedModel, examples: Sequence[Example], from_scores: FromScores
) -> list[tuple[Tensor, ...]]:
    """Compute something from the vocabulary scores at every mask; no other row is projected.

    The examples are those of `sequences_around`; each gets its rows of the tensors from
    `from_scores`.
    """
    model = loaded.model
    assert isinstance(model, Model)
    head, table_VE = masked_lm_part(model), model.encoder.embeddings.word.weight
    step = max(1, _MOST_SCORES // len(table_VE))

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        starts = np.cumsum([0, *batch.lengths[:-1]])
        at = np.concatenate([e.target + start for e, start in zip(chosen, starts, strict=True)])
        owners = [example for example in chosen for _ in example.target]
        masks_KH = model.encoder(batch, onto(model.device, torch.from_numpy(at)))
        parts = []
        for begin in range(0, len(owners), step):
            part = slice(begin, begin + step)
            logits_KV = head(HeadInput(masks_KH[part], None, table_VE, batch)).float()
            parts.append(from_scores(logits_KV, owners[part]))
        return tuple(map(torch.cat, zip(*parts, strict=True)))

    outputs = forward(
        model, examples, read, max_tokens=loaded.max_tokens, precision=loaded.precision
    )
    return in_order(outputs, len(examples), [len(example.target) for example in examples])


def best_entries(
    loaded: LoadedModel, examples: Sequence[Example], top: int
) -> list[tuple[Tensor, ...]]:
    """Return the scores and the ids of the best entries for each example, both (masks, top)."""
    known_V = _known_entries(loaded.tokenizer, loaded.model.config.vocab_size)
    unknown_V = ~known_V.to(loaded.model.device)

    def from_scores(logits_KV: Tensor, owners: Sequence[Example]) -> tuple[Tensor, ...]:
        total = logits_KV.logsumexp(-1, keepdim=True)
        # Rows that only pad the table have no token; they keep their share of the probability.
        best = logits_KV.masked_fill_(unknown_V, -torch.inf).topk(top)
        return (best.values - total).exp(), best.indices

    return read_masks(loaded, examples, from_scores)


# Scores to answers


def candidates_of(
    loaded: LoadedModel,
    masked: Sequence[Masked],
    examples: Sequence[Example],
    best: Sequence[tuple[Tensor, ...]],
) -> Iterator[dict[str, Any]]:
    """Yield the answers of `fill_masks` from texts, their sequences and `best_entries`."""
    tokenizer, pieces = loaded.tokenizer, dict[int, Piece]()
    answers: list[list[list[dict[str, Any]]]] = [[[] for _ in own.spans] for own in masked]
    for example, (scores, ids) in zip(examples, best, strict=True):
        own = masked[example.row]
        rows = zip(example.source, scores.tolist(), ids.tolist(), strict=True)
        for mask, mask_scores, mask_ids in rows:
            for score, number in zip(mask_scores, mask_ids, strict=True):
                if number not in pieces:
                    pieces[number] = piece_of(number, tokenizer)
                piece = pieces[number]
                answers[example.row][mask].append(
                    {
                        "token": piece.text,
                        "score": score,
                        "sequence": put(own.text, own.spans[mask], piece, tokenizer),
                        "id": number,
                    }
                )
    for own, candidates in zip(masked, answers, strict=True):
        yield {
            "candidates": candidates,
            "truncated": own.num_tokens > loaded.max_length,
            "num_tokens": own.num_tokens,
        }
