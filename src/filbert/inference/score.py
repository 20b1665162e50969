"""How probable a text is to a model: each token is masked in turn and its probability read.

K masks, V vocabulary.

Source: Salazar et al. 2020, section 2: pseudo-log-likelihood and pseudo-perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.batch import onto
from filbert.data.examples import Example
from filbert.data.texts import chunks, refuse_one_text
from filbert.errors import InputError, printable
from filbert.inference.fill import masked_lm_part, read_masks, sequences_around
from filbert.inference.forward import LoadedModel
from filbert.text.masks import mask_name, mask_spans
from filbert.text.tokenizer import Encoding, Tokenizer, characters_in

# Each token becomes a sequence of its own, so this is as much work as a chunk is elsewhere.
_CHUNK_CHARACTERS = 2**16
# A larger exponent overflows a float.
_LARGEST_EXPONENT = 700.0


def score_texts(
    loaded: LoadedModel,
    texts: Iterable[str],
    *,
    with_tokens: bool = False,
    on_share: Callable[[int, float], None] = lambda rows, share: None,
) -> Iterator[dict[str, Any]]:
    """Yield the pseudo-log-likelihood of every text, in order and in fixed memory.

    A text of n tokens becomes n sequences, each with another token masked. In a text beyond
    `max_length` tokens the model reads so many around each mask; every token is scored.

    Args:
        loaded: With a masked-LM or a pre-training head. Its pooler does not run.
        texts: Without masks of their own.
        on_share: Called with the number of texts in work and the share of their masks that is done.

    Returns:
        For each text `pll` (the sum over its tokens of the natural logarithm of the probability of
        the token, among all V entries of the word table), `perplexity`, `num_scored` (tokens
        without the special ones that are added), `num_unknown` of them that the vocabulary could
        not write, `truncated` and `num_tokens`; with `with_tokens`, `tokens`: `token`, `start` and
        `end` (characters of the text) and `log_probability` of each.

    Raises:
        ConfigError: The model has no masked-LM head.
        FormatError: The vocabulary has no mask.
        InputError: A text with a mask in it, or an item that is no text; with its index.
    """
    masked_lm_part(loaded.model)
    tokenizer = loaded.tokenizer
    mask_name(tokenizer)
    refuse_one_text(texts)
    whole = (check_whole(text, tokenizer, f"Item {i}") for i, text in enumerate(texts))

    def scored() -> Iterator[dict[str, Any]]:
        for chunk in chunks(whole, characters_in, _CHUNK_CHARACTERS):
            encodings = tokenizer.encode(chunk, with_offsets=True)
            logs = _log_probabilities(loaded, encodings, on_share)
            for encoding, own in zip(encodings, logs, strict=True):
                answer = _answer(encoding, own, tokenizer, loaded.max_length)
                if with_tokens:
                    answer["tokens"] = _tokens(encoding, own, tokenizer)
                yield answer

    return scored()


def check_whole(text: Any, tokenizer: Tokenizer, where: str) -> str:
    """Return the text, or raise an InputError that begins with `where` if a word is masked."""
    if not isinstance(text, str):
        raise InputError(f"{where} is a {type(text).__name__}; a text is expected.")
    spans = mask_spans(text, tokenizer)
    if spans:
        raise InputError(
            f"{where} has the mask {text[slice(*spans[0])]} in it: {printable(text)!r}. Write the "
            "word that is meant; filbert fill says which ones fit there."
        )
    return text


def perplexity(pll: float, num_scored: int) -> float | None:
    """Return the exponential of a token's mean surprise (nats); None where no token was scored."""
    return math.exp(min(-pll / num_scored, _LARGEST_EXPONENT)) if num_scored else None


def _own(encoding: Encoding) -> np.ndarray:
    """Return the places of the text's own tokens, int64."""
    assert encoding.sequence is not None
    return np.flatnonzero(encoding.sequence == 0)


def _log_probabilities(
    loaded: LoadedModel, encodings: Sequence[Encoding], on_share: Callable[[int, float], None]
) -> list[np.ndarray]:
    """Return the logarithm of the probability of each text's own tokens, float64."""
    places = [_own(encoding) for encoding in encodings]
    logs = [np.empty(len(own)) for own in places]
    total, done = sum(map(len, places)), 0
    order = sorted(range(len(encodings)), key=lambda row: len(encodings[row].input_ids))
    masks = ((row, number) for row in order for number in range(len(places[row])))
    for piece in chunks(masks, lambda mask: 1):
        examples = [
            _masked(row, encodings[row], int(places[row][number]), loaded) for row, number in piece
        ]
        outputs = read_masks(loaded, examples, _of_right_tokens)
        for (row, number), (value,) in zip(piece, outputs, strict=True):
            logs[row][number] = float(value)
        done += len(piece)
        on_share(len(encodings), done / total)
    return logs


def _of_right_tokens(logits_KV: Tensor, owners: Sequence[Example]) -> tuple[Tensor, ...]:
    ids = onto(logits_KV.device, torch.tensor([example.source for example in owners]))
    right = logits_KV.gather(1, ids[:, None]).squeeze(1)
    return (right - logits_KV.logsumexp(-1),)


def _masked(row: int, encoding: Encoding, place: int, loaded: LoadedModel) -> Example:
    """Return the text with the token at `place` masked, or a part of it; `source` is the token."""
    (example,) = sequences_around(row, encoding, [place], loaded.max_length)
    ids = example.input_ids.copy()
    ids[example.target] = loaded.tokenizer.mask_id
    return replace(example, input_ids=ids, source=int(encoding.input_ids[place]))


def _answer(
    encoding: Encoding, logs: np.ndarray, tokenizer: Tokenizer, max_length: int
) -> dict[str, Any]:
    ids = encoding.input_ids[_own(encoding)]
    unknown = 0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum())
    pll = math.fsum(logs)
    return {
        "pll": pll,
        "perplexity": perplexity(pll, len(logs)),
        "num_scored": len(logs),
        "num_unknown": unknown,
        "truncated": encoding.num_tokens > max_length,
        "num_tokens": encoding.num_tokens,
    }


def _tokens(encoding: Encoding, logs: np.ndarray, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    own = _own(encoding)
    assert encoding.offsets is not None
    return [
        {"token": token, "start": start, "end": end, "log_probability": log}
        for token, (start, end), log in zip(
            tokenizer.tokens(encoding.input_ids[own]),
            encoding.offsets[own].tolist(),
            logs.tolist(),
            strict=True,
        )
    ]
