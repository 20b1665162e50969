"""Removes vocabulary entries that a text does not need."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend

from filbert.errors import FormatError
from filbert.text.tokenizer import Tokenizer, chunked

_CONTINUATION = "##"


def count_entries(tokenizer: Tokenizer, texts: Iterable[str]) -> np.ndarray:
    """Return how often each entry occurs in texts, int64 (V,); memory does not grow with them."""
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for chunk in chunked(texts, len):
        for encoding in tokenizer.encode(chunk):
            counts += np.bincount(encoding.input_ids, minlength=len(counts))
    return counts


def useful_entries(tokenizer: Tokenizer, counts: np.ndarray) -> list[int]:
    """Return the ids to keep, ascending: entries that occur in the text, and required ones.

    Required are the special and added tokens, and the text's letters, so that a word of known
    letters never becomes unknown; for byte-level BPE all bytes, and the entries from which an entry
    is merged. The known words of the text are tokenized as before.
    """
    content = json.loads(tokenizer.backend.to_str())
    wanted = {*_required(tokenizer, content)} | _letters(tokenizer, counts)
    wanted.update(np.flatnonzero(counts).tolist())
    parts = _parts(content) if tokenizer.kind == "bytebpe" else {}
    kept, waiting = set[int](), [*wanted]
    while waiting:
        if (number := waiting.pop()) not in kept:
            kept.add(number)
            waiting += parts.get(number, ())
    return sorted(kept)


def without_others(tokenizer: Tokenizer, kept: Sequence[int]) -> Tokenizer:
    """Return the tokenizer with these entries only, renumbered without a gap.

    They are those of `useful_entries`, or at least all required ones, ascending.
    """
    new_ids = {old: new for new, old in enumerate(kept)}
    content = json.loads(tokenizer.backend.to_str())
    model = content["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = [piece for old, piece in enumerate(model["vocab"]) if old in new_ids]
        if model.get("unk_id") is not None:
            model["unk_id"] = new_ids[model["unk_id"]]
    else:
        model["vocab"] = {
            text: new_ids[old] for text, old in model["vocab"].items() if old in new_ids
        }
    if "merges" in model:
        known = model["vocab"].keys()
        model["merges"] = [
            [left, right] for left, right in model["merges"] if known >= {left, right, left + right}
        ]
    for token in content["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    _processor_ids(content["post_processor"], new_ids)
    backend = Backend.from_str(json.dumps(content))
    old_ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    expected = {text: new_ids[old] for text, old in old_ids.items() if old in new_ids}
    if backend.get_vocab(with_added_tokens=True) != expected:
        raise FormatError("The tokenizer's added tokens cannot be renumbered.")
    vocabulary = replace(
        tokenizer.vocabulary, backend=backend, max_length=tokenizer.max_length, spiece=None
    )
    return Tokenizer(vocabulary)


def count_changed(
    tokenizer: Tokenizer, smaller: Tokenizer, kept: Sequence[int], texts: Iterable[str]
) -> tuple[int, int, int]:
    """Return how many texts have other tokens, and the tokens of all texts before and after."""
    old_ids = np.asarray(kept)
    changed = before = after = 0
    for chunk in chunked(texts, len):
        pairs = zip(tokenizer.encode(chunk), smaller.encode(chunk), strict=True)
        for old, new in pairs:
            before += len(old.input_ids)
            after += len(new.input_ids)
            changed += not np.array_equal(old.input_ids, old_ids[new.input_ids])
    return changed, before, after


def _required(tokenizer: Tokenizer, content: dict[str, Any]) -> Iterator[int]:
    """Yield the ids to which something other than a text refers."""
    for token in content["added_tokens"]:
        yield token["id"]
    for name in tokenizer.specials.values():
        number = tokenizer.id_of(name)
        assert number is not None, "specials are entries"
        yield number
    model = content["model"]
    if model.get("unk_token") is not None and model["unk_token"] in model["vocab"]:
        yield model["vocab"][model["unk_token"]]
    if model.get("unk_id") is not None:
        yield model["unk_id"]
    yield from _processor_ids(content["post_processor"])
    if isinstance(model["vocab"], list):
        # The score of an unknown letter depends on the lowest score.
        scores = [score for _, score in model["vocab"]]
        yield scores.index(min(scores))


def _letters(tokenizer: Tokenizer, counts: np.ndarray) -> set[int]:
    """Return the entries of one letter, for the letters of the text."""
    ids: dict[str, int] = tokenizer.backend.get_vocab(with_added_tokens=False)
    if tokenizer.kind == "bytebpe":
        return {number for text, number in ids.items() if len(text) == 1}
    if tokenizer.kind == "symbols":
        return set()
    letters: set[str] = set()
    for text, number in ids.items():
        if counts[number]:
            letters.update(text.removeprefix(_CONTINUATION))
    forms = (form for letter in letters for form in (letter, _CONTINUATION + letter))
    return {ids[form] for form in forms if form in ids}


def _parts(content: dict[str, Any]) -> dict[int, set[int]]:
    """Return the two entries from which each entry of a BPE vocabulary is merged."""
    ids: dict[str, int] = content["model"]["vocab"]
    parts: dict[int, set[int]] = {}
    for left, right in content["model"]["merges"]:
        parts.setdefault(ids[left + right], set()).update((ids[left], ids[right]))
    return parts


def _processor_ids(
    processor: dict[str, Any] | None, new_ids: dict[int, int] | None = None
) -> list[int]:
    """Return the ids in a post-processor, and replace them in place by `new_ids`."""
    if processor is None:
        return []
    ids: list[int] = []
    for part in processor["processors"] if processor["type"] == "Sequence" else [processor]:
        lists = [token["ids"] for token in part.get("special_tokens", {}).values()]
        for some in [*lists, *(part[role] for role in ("sep", "cls") if role in part)]:
            for place, number in enumerate(some):
                if isinstance(number, int):  # RobertaProcessing has [text, id]
                    ids.append(number)
                    some[place] = number if new_ids is None else new_ids[number]
    return ids
