"""The words that a model expects under a mask: `fill`, from texts to candidates.

T tokens in the batch, K masks in it, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from filbert.data.examples import Example, collate
from filbert.data.loader import by_length
from filbert.data.texts import characters_in, chunks, refuse_one_text
from filbert.errors import ConfigError, FormatError
from filbert.inference.onnx_session import SessionModel
from filbert.model.heads import HEADS, Features, MaskedLMHead, Model, PretrainingHead
from filbert.model.precision import Precision
from filbert.text.masks import Piece, check_masked, mask_name, mask_spans, piece_of, put, translated
from filbert.text.tokenizer import Encoding, Tokenizer

# Scores that are held at a time, in numbers: 64 MB of float32.
_MOST_SCORES = 2**24


def fill_masks(
    model: Model | SessionModel,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    *,
    max_length: int,
    max_tokens: int,
    precision: Precision,
    top: int = 5,
) -> Iterator[dict[str, Any]]:
    """Candidates for every mask of every text, in order and in fixed memory.

    The masks of a text are answered independently of each other; the model sees them all. A text
    beyond `max_length` tokens is cut around its masks; masks far apart get a sequence each.

    Args:
        model: with a masked-LM or a pre-training head, in eval mode. Its pooler does not run.
        tokenizer: of the same folder.
        texts: each with at least one mask.
        max_length: longest sequence, special tokens included.
        max_tokens: tokens per packed batch.
        precision: of the matrix products.
        top: candidates per mask.

    Returns:
        For each text `candidates` (per mask, in order, a list of `top` dicts with `token`, `score`,
        `sequence` and `id`, the likeliest first), `truncated` and `num_tokens`. The score is the
        probability among all V entries of the word table.

    Raises:
        ConfigError: the model has no masked-LM head, or `top` is no possible number.
        FormatError: the vocabulary has no mask.
        InputError: a text without a mask, or something that is no text; with its index.
    """
    scorer = scorer_of(model, tokenizer, max_tokens=max_tokens, precision=precision, top=top)
    return _fill(scorer, tokenizer, checked(texts, tokenizer), max_length)


def scorer_of(
    model: Model | SessionModel,
    tokenizer: Tokenizer,
    *,
    max_tokens: int,
    precision: Precision,
    top: int = 5,
) -> Scorer:
    """A model made ready to score masks; arguments and errors as of `fill_masks`."""
    masked_lm_part(model)
    assert not isinstance(model, SessionModel)
    mask_name(tokenizer)
    entries = tokenizer.backend.get_vocab(with_added_tokens=True)
    known = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    known[list(entries.values())] = True
    return Scorer(model, known, top, max_tokens, precision).with_top(top)


def has_masked_lm(model: Model | SessionModel) -> bool:
    """Whether the model can score the vocabulary at a mask."""
    return isinstance(model, Model) and isinstance(model.head, MaskedLMHead | PretrainingHead)


def masked_lm_part(model: Model | SessionModel) -> MaskedLMHead:
    """The head that scores the vocabulary.

    Raises:
        ConfigError: the model has none.
    """
    if isinstance(model, SessionModel):
        raise ConfigError("The backend onnxruntime does not fill masks. Use the original model.")
    if isinstance(model.head, MaskedLMHead):
        return model.head
    if isinstance(model.head, PretrainingHead):
        return model.head.masked_lm
    kinds = [kind for kind, made in HEADS.items() if type(model.head) is made]
    has = f"its head is {kinds[0]!r}" if kinds else "its head is of another kind"
    if model.head is None:
        has = "it is a bare encoder"
    if kinds == ["discriminator"]:
        has += ", so take the generator that was trained with it"
    raise ConfigError(
        f"This model has no masked-LM head ({has}). Use filbert-mini or bert-base-uncased, or give "
        "it such a head with filbert pretrain."
    )


def checked(texts: Iterable[Any], tokenizer: Tokenizer) -> Iterator[str]:
    """The same texts, each looked at by `check_masked`."""
    refuse_one_text(texts)
    return (check_masked(text, tokenizer, f"Item {i}") for i, text in enumerate(texts))


def _fill(
    scorer: Scorer, tokenizer: Tokenizer, texts: Iterable[str], max_length: int
) -> Iterator[dict[str, Any]]:
    for chunk in chunks(texts, characters_in):
        masked, examples = mask_examples(chunk, tokenizer, max_length)
        yield from candidates_of(masked, examples, scorer.best(examples), tokenizer, max_length)


# Texts to sequences


class Masked(NamedTuple):
    """A text with masks: characters [start, end) of each, and the tokens of the whole text."""

    text: str
    spans: list[tuple[int, int]]
    num_tokens: int


def mask_examples(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int
) -> tuple[list[Masked], list[Example]]:
    """Texts, looked at by `check_masked`, and their sequences; see `sequences_around`."""
    spans = [mask_spans(text, tokenizer) for text in texts]
    masked: list[Masked] = []
    examples: list[Example] = []
    for row, (encoding, places) in enumerate(_encode(texts, spans, tokenizer)):
        masked.append(Masked(texts[row], spans[row], encoding.num_tokens))
        examples += sequences_around(row, encoding, places, max_length)
    return masked, examples


def _encode(
    texts: Sequence[str], spans: Sequence[list[tuple[int, int]]], tokenizer: Tokenizer
) -> list[tuple[Encoding, list[int]]]:
    """Each text, uncut, and the rows of its masks in it.

    Raises:
        FormatError: the tokenizer does not read its own mask as one token.
    """
    pairs = [translated(*both, tokenizer) for both in zip(texts, spans, strict=True)]
    encodings = tokenizer.encode([text for text, _ in pairs], with_offsets=True)
    rows: list[tuple[Encoding, list[int]]] = []
    for encoding, (_, wanted) in zip(encodings, pairs, strict=True):
        assert encoding.offsets is not None and encoding.sequence is not None
        masks = np.flatnonzero((encoding.input_ids == tokenizer.mask_id) & (encoding.sequence == 0))
        starts, stops = encoding.offsets[masks].T
        # The mask of some vocabularies takes the blanks around it.
        at = np.searchsorted(stops, wanted)
        if at.max() == len(masks) or bool((starts[at] >= wanted).any()):
            raise FormatError(
                f"The tokenizer of this model does not read {mask_name(tokenizer)} as its mask; "
                "its tokenizer.json must list it among the added tokens."
            )
        rows.append((encoding, masks[at].tolist()))
    return rows


def sequences_around(
    row: int, encoding: Encoding, places: Sequence[int], max_length: int
) -> list[Example]:
    """One sequence where the text fits, else one for every group of masks that lie close.

    A group lies in the middle of its sequence and takes at most half of it, so that every mask has
    words on both sides.

    Args:
        row: of the text.
        encoding: the whole text, with offsets.
        places: rows of its masks, rising.
        max_length: longest sequence, special tokens included.

    Returns:
        Examples whose `target` holds the masks' places in the sequence, int64, and whose `source`
        their numbers in the text.
    """
    ids, types, count = encoding.input_ids, encoding.token_type_ids, encoding.num_tokens
    if len(ids) <= max_length:
        everything = np.asarray(places, dtype=np.int64)
        return [Example(row, ids, types, count, everything, range(len(places)))]
    room = encoding.room(max_length)
    groups: list[list[int]] = []
    for mask, place in enumerate(places):
        if groups and place - places[groups[-1][0]] < room // 2:
            groups[-1].append(mask)
        else:
            groups.append([mask])
    found = []
    for group in groups:
        middle = (places[group[0]] + places[group[-1]] + 1) // 2
        kept = encoding.around(middle, max_length)
        at = np.searchsorted(kept, [places[mask] for mask in group]).astype(np.int64)
        found.append(Example(row, ids[kept], types[kept], count, at, group))
    return found


# Sequences to scores


def mask_logits(
    model: Model,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    precision: Precision,
) -> Iterator[tuple[list[int], Tensor]]:
    """Scores over the vocabulary at every mask, in packed batches; no other row is projected.

    Args:
        model: with a masked-LM or a pre-training head. Its pooler does not run.
        examples: whose `target` holds the masks' places in the sequence, int64.
        max_tokens: tokens per packed batch.
        precision: of the matrix products.

    Returns:
        For some masks at a time, the examples that they belong to, those of an example in order,
        and their logits, float32 (K, V), which may be written to.
    """
    head, encoder = masked_lm_part(model), model.encoder
    table = encoder.embeddings.word.weight
    step = max(1, _MOST_SCORES // len(table))
    for indices in by_length([len(e.input_ids) for e in examples], max_tokens):
        chosen = [examples[i] for i in indices]
        batch = collate(chosen)
        starts = np.cumsum([0, *batch.lengths[:-1]])
        places = [e.target + start for e, start in zip(chosen, starts, strict=True)]
        owners = [i for i, own in zip(indices, places, strict=True) for _ in own]
        at = torch.from_numpy(np.concatenate(places)).to(table.device)
        batch = batch.to(table.device)
        with torch.inference_mode(), precision.autocast(table.device):
            found_KH = encoder(batch, at)
        for begin in range(0, len(at), step):
            rows = slice(begin, begin + step)
            with torch.inference_mode(), precision.autocast(table.device):
                features = Features(found_KH[rows], None, table, batch)
                logits_KV = head(features).float()
            yield owners[rows], logits_KV


class Best(NamedTuple):
    """The likeliest entries for the masks of a sequence, (masks, top) of both."""

    scores: list[list[float]]
    ids: list[list[int]]


class Scorer(NamedTuple):
    """A model at work on the masks of packed batches."""

    model: Model
    known: Tensor
    top: int
    max_tokens: int
    precision: Precision

    def with_top(self, top: int) -> Scorer:
        """The same for another number of candidates.

        Raises:
            ConfigError: it is no possible number.
        """
        count = int(self.known.sum())
        if isinstance(top, bool) or not isinstance(top, Integral) or not 1 <= top <= count:
            raise ConfigError(f"top is {top!r}; the vocabulary has 1..{count} candidates.")
        return self._replace(top=int(top))

    @torch.inference_mode()
    def best(self, examples: Sequence[Example]) -> list[Best]:
        """The candidates of every example, in order."""
        found = [Best([], []) for _ in examples]
        known = self.known.to(self.model.device)
        for owners, logits_KV in mask_logits(
            self.model,
            examples,
            max_tokens=self.max_tokens,
            precision=self.precision,
        ):
            total = logits_KV.logsumexp(-1, keepdim=True)
            # Rows that only pad the table have no token; they keep their share.
            best = logits_KV.masked_fill_(~known, -torch.inf).topk(self.top)
            scores = (best.values - total).exp().tolist()
            for owner, own_scores, own_ids in zip(
                owners, scores, best.indices.tolist(), strict=True
            ):
                found[owner].scores.append(own_scores)
                found[owner].ids.append(own_ids)
        return found


# Scores to answers


def candidates_of(
    masked: Sequence[Masked],
    examples: Sequence[Example],
    best: Sequence[Best],
    tokenizer: Tokenizer,
    max_length: int,
) -> Iterator[dict[str, Any]]:
    """The answers to texts, as `fill_masks` gives them, from those to their sequences."""
    pieces: dict[int, Piece] = {}
    found: list[list[list[dict[str, Any]]]] = [[[] for _ in own.spans] for own in masked]
    for example, (scores, ids) in zip(examples, best, strict=True):
        own = masked[example.row]
        for mask, own_scores, own_ids in zip(example.source, scores, ids, strict=True):
            for score, number in zip(own_scores, own_ids, strict=True):
                if number not in pieces:
                    pieces[number] = piece_of(number, tokenizer)
                piece = pieces[number]
                found[example.row][mask].append(
                    {
                        "token": piece.text,
                        "score": score,
                        "sequence": put(own.text, own.spans[mask], piece, tokenizer),
                        "id": number,
                    }
                )
    for own, candidates in zip(masked, found, strict=True):
        yield {
            "candidates": candidates,
            "truncated": own.num_tokens > max_length,
            "num_tokens": own.num_tokens,
        }
