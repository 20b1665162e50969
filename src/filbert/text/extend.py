"""Adds entries to an existing vocabulary, and removes entries that a text does not need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer as Backend

from filbert.errors import ConfigError, FormatError, InputError, printable
from filbert.text.tokenizer import Tokenizer, chunked

# Adding entries.

# BERT's vocabularies have free entries for their users.
_UNUSED = re.compile(r"\[unused\d+\]")
_CONTINUATION = "##"
# Far below the difference of two pieces' scores, far above the rounding of a sum of them.
_MARGIN = 1e-3


class Extension(NamedTuple):
    """A tokenizer with more entries.

    Attributes:
        tokenizer: It has the old and the new entries; all old ids except those of re-used [unused]
            entries keep their meaning.
        rows_from: Id of every new entry to the old ids of its text's tokens; empty where they were
            unknown. `checkpoints.fresh.grow_vocabulary` computes the model's rows from it.
        notes: Sentences on the ids of the entries, and on entries that existed.
    """

    tokenizer: Tokenizer
    rows_from: dict[int, tuple[int, ...]]
    notes: tuple[str, ...]


def add_entries(
    tokenizer: Tokenizer, entries: Sequence[str], *, reuse_unused: bool = True
) -> Extension:
    """Make words whole vocabulary entries, in the vocabulary itself and not as added tokens.

    So they are found in a text as the old ones are: with the space before them, normalized, and by
    every tool that reads tokenizer.json. Other words change only if a new entry is a better piece.

    WordPiece finds an entry as the longest match, and takes "##" before a piece that continues a
    word. Byte-level BPE gets the form that follows a space and looks words up before it merges
    pieces (`ignore_merges`). Unigram scores an entry just above the sum of its pieces, so that it
    is preferred to them.

    Args:
        tokenizer: Not changed.
        entries: Words; normalized (lower-cased, for example) as the tokenizer does with any text.
        reuse_unused: WordPiece entries take the ids of [unused0], [unused1] ... first, as users of
            BERT do, so that the model's table need not grow.

    Raises:
        InputError: An entry that is not one word to this tokenizer, or is too long.
        FormatError: Ids that no entry can follow, or that would change.
    """
    content = json.loads(tokenizer.backend.to_str())
    forms, present = _new_forms(tokenizer, entries, content)
    pieces = {form: _pieces(tokenizer, form) for form in forms}
    free = _free_ids(content) if reuse_unused and tokenizer.kind == "wordpiece" else []
    ids = [number for number, _ in free[: len(forms)]]
    reused = len(ids)
    ids += range(tokenizer.vocab_size, tokenizer.vocab_size + len(forms) - reused)
    new_ids = dict(zip(forms, ids, strict=True))
    _store(content, new_ids, pieces)
    backend = Backend.from_str(json.dumps(content))
    old_ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    taken = set(ids)
    stay = {name: number for name, number in old_ids.items() if number not in taken}
    if backend.get_vocab(with_added_tokens=True) != stay | new_ids:
        raise FormatError("The tokenizer's entries cannot keep their ids when others are added.")
    notes = []
    if reused:
        first, last = free[0][1], free[reused - 1][1]
        where = first if reused == 1 else f"{first} to {last}"
        notes.append(f"{_count(reused)} in the place of {where}.")
    if len(forms) > reused:
        notes.append(f"{_count(len(forms) - reused)} at ids {ids[reused]} to {ids[-1]}.")
    if present:
        notes.append(f"in the vocabulary already: {_listed(present)}.")
    if unknown := [form for form in forms if not pieces[form]]:
        notes.append(f"of unknown characters until now: {_listed(unknown)}.")
    rows_from = {number: pieces[form] for form, number in new_ids.items()}
    return Extension(_with_backend(tokenizer, backend), rows_from, tuple(notes))


def _with_backend(tokenizer: Tokenizer, backend: Backend) -> Tokenizer:
    return Tokenizer(
        replace(tokenizer.vocabulary, backend=backend, max_length=tokenizer.max_length, spiece=None)
    )


def _count(number: int) -> str:
    return f"{number} new {'entry' if number == 1 else 'entries'}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(printable(name) for name in names[:5]) + more


def _new_forms(
    tokenizer: Tokenizer, entries: Iterable[str], content: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Return the new entries as the vocabulary writes them, and those that exist already."""
    forms: dict[str, None] = {}
    present: list[str] = []
    bad: list[str] = []
    limit = content["model"].get("max_input_chars_per_word")
    added = {token["content"] for token in content["added_tokens"]}
    for entry in entries:
        words = [entry] if entry in added else _words(tokenizer, entry)
        if len(words) != 1:
            parts = f" (cut into {' '.join(map(printable, words))})" if words else ""
            bad.append(f"{printable(entry)!r}{parts}")
        elif limit is not None and len(words[0].removeprefix(_CONTINUATION)) > limit:
            bad.append(f"{printable(entry)!r} (over {limit} characters)")
        elif tokenizer.id_of(words[0]) is not None:
            present.append(words[0])
        else:
            forms[words[0]] = None
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise InputError(
            f"A new vocabulary entry must be one word to this tokenizer, or it would never be "
            f"found: {', '.join(bad[:3])}{more}. Leave it out, or give its parts."
        )
    return list(forms), present


def _words(tokenizer: Tokenizer, entry: str) -> list[str]:
    """Return the words that the model sees of an entry after a space in a text."""
    prefix = ""
    if tokenizer.kind == "wordpiece":
        # Such as [unused7], which a text would never give as a whole.
        if tokenizer.id_of(entry) is not None:
            return [entry]
        if entry.startswith(_CONTINUATION):
            prefix, entry = _CONTINUATION, entry.removeprefix(_CONTINUATION)
    if not entry.strip():
        return []
    return [prefix + word for word in _split(tokenizer.backend, f" {entry.strip()}")]


def _split(backend: Backend, text: str) -> list[str]:
    """Return the words of a text, normalized."""
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        return [text] if text else []
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def _pieces(tokenizer: Tokenizer, form: str) -> tuple[int, ...]:
    """Return the ids of a form's tokens in the old vocabulary; empty if any is unknown."""
    if tokenizer.kind == "wordpiece" and form.startswith(_CONTINUATION):
        # The library tokenizes only from a word's beginning.
        rest = form.removeprefix(_CONTINUATION)
        ids, is_whole = _longest_matches(tokenizer, rest, _CONTINUATION)
        return tuple(ids) if is_whole else ()
    ids = [token.id for token in tokenizer.backend.model.tokenize(form)]
    return () if tokenizer.unk_id in ids else tuple(ids)


def _longest_matches(tokenizer: Tokenizer, word: str, prefix: str) -> tuple[list[int], bool]:
    """Return the ids of the longest match first, and whether the whole word was matched.

    Args:
        tokenizer: WordPiece.
        word: Without its prefix.
        prefix: "##" if the word continues another one, else empty.
    """
    ids: list[int] = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            number = tokenizer.id_of(prefix + word[start:end])
            if number is not None:
                break
        else:
            return ids, False
        ids.append(number)
        start, prefix = end, _CONTINUATION
    return ids, True


def _free_ids(content: dict[str, Any]) -> list[tuple[int, str]]:
    """Return ids and names of the [unused] entries, in order."""
    added = {token["content"] for token in content["added_tokens"]}
    vocab: dict[str, int] = content["model"]["vocab"]
    return sorted(
        (n, name) for name, n in vocab.items() if _UNUSED.fullmatch(name) and name not in added
    )


def _store(
    content: dict[str, Any], ids: dict[str, int], pieces: dict[str, tuple[int, ...]]
) -> None:
    """Write new entries into the content of a tokenizer.json."""
    model = content["model"]
    if isinstance(model["vocab"], list):
        return _store_unigram(content, ids, pieces)
    # Added tokens behind the vocabulary go into it: the library numbers them from its end.
    for token in content["added_tokens"]:
        model["vocab"].setdefault(token["content"], token["id"])
    taken = set(ids.values())
    model["vocab"] = {w: n for w, n in model["vocab"].items() if n not in taken} | ids
    if model["type"] == "BPE":
        model["ignore_merges"] = True


def _store_unigram(
    content: dict[str, Any], ids: dict[str, int], pieces: dict[str, tuple[int, ...]]
) -> None:
    """Write new entries; an id is a place in the list, so added tokens behind it come first."""
    vocab: list[list[Any]] = content["model"]["vocab"]
    behind = {token["id"]: token["content"] for token in content["added_tokens"]}
    scores = [score for _, score in vocab]
    least = min(scores, default=0.0)
    for form, number in ids.items():
        while len(vocab) < number:
            if len(vocab) not in behind:
                raise FormatError(
                    f"The tokenizer's id {len(vocab)} belongs to no entry, so none can follow it. "
                    "Its files are damaged, or not of a kind that can grow."
                )
            # Never scored: added tokens are found before the text is split into pieces.
            vocab.append([behind[len(vocab)], 0.0])
        whole = _MARGIN + sum(scores[piece] for piece in pieces[form])
        vocab.append([form, whole if pieces[form] else least])


# Removing entries.


class Use(NamedTuple):
    """How a text uses a vocabulary.

    Attributes:
        counts: int64 (V,), how often each entry occurs in the text.
        tried: Entries that occur in no result but made a word unknown: without them, shorter
            matches might make the word known.
    """

    counts: np.ndarray
    tried: frozenset[int]


class Narrowed(NamedTuple):
    """A smaller vocabulary.

    Attributes:
        tokenizer: Its ids are 0, 1, ... in the old order.
        kept: The old id of every new one, ascending.
    """

    tokenizer: Tokenizer
    kept: tuple[int, ...]


def count_entries(tokenizer: Tokenizer, texts: Iterable[str]) -> Use:
    """Count the entries in texts; memory does not grow with them."""
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    tried: set[int] = set()
    for chunk in chunked(texts, len):
        for text, encoding in zip(chunk, tokenizer.encode(chunk), strict=True):
            counts += np.bincount(encoding.input_ids, minlength=len(counts))
            if tokenizer.kind == "wordpiece" and tokenizer.unk_id in encoding.input_ids:
                for word in _split(tokenizer.backend, text):
                    tokens = tokenizer.backend.model.tokenize(word)
                    if all(token.id == tokenizer.unk_id for token in tokens):
                        tried.update(_longest_matches(tokenizer, word, "")[0])
    return Use(counts, frozenset(tried))


def useful_entries(
    tokenizer: Tokenizer, use: Use, *, min_count: int = 1, size: int | None = None
) -> frozenset[int]:
    """Return the ids to keep: the most frequent entries, and those that are always required.

    Required are the special and added tokens, and the text's letters, so that a word of known
    letters never becomes unknown; for byte-level BPE all bytes, and the entries from which an entry
    is merged. With `min_count` 1 and no `size`, the text is tokenized as before.

    Args:
        tokenizer: Not changed.
        use: Of its entries.
        min_count: The least number of times that an entry must occur in the text.
        size: The largest number of entries.

    Raises:
        ConfigError: `size` has no room for the required entries.
    """
    content = json.loads(tokenizer.backend.to_str())
    required = {*_required(tokenizer, content)} | _letters(tokenizer, content, use)
    if min_count <= 1 and size is None:
        required |= use.tried
    parts = _parts(content) if tokenizer.kind == "bytebpe" else {}
    kept: set[int] = set()
    for entry in sorted(required):
        kept |= _with_parts(entry, parts)
    if size is not None and size < len(kept):
        raise ConfigError(
            f"vocabulary_size {size}: the special tokens and the letters of the text take "
            f"{len(kept)} entries already. Give more."
        )
    order = np.lexsort((np.arange(len(use.counts)), -use.counts))
    for entry in order.tolist():
        if use.counts[entry] < max(1, min_count) or (size is not None and len(kept) >= size):
            break
        more = _with_parts(entry, parts) - kept
        if size is None or len(kept) + len(more) <= size:
            kept |= more
    return frozenset(kept)


def without_others(tokenizer: Tokenizer, entries: frozenset[int]) -> Narrowed:
    """Return the tokenizer with these entries only, renumbered without a gap.

    Args:
        tokenizer: Not changed.
        entries: Old ids; as `useful_entries` returns them, or at least all required ones.

    Raises:
        FormatError: The library does not give an added token its new id.
    """
    kept = tuple(sorted(entries))
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
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            merge
            for merge in model["merges"]
            if all(text in model["vocab"] for text in _trio(merge, prefix))
        ]
    for token in content["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    _processor_ids(content["post_processor"], new_ids)
    backend = Backend.from_str(json.dumps(content))
    old_ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    expected = {text: new_ids[old] for text, old in old_ids.items() if old in new_ids}
    if backend.get_vocab(with_added_tokens=True) != expected:
        raise FormatError("The tokenizer's added tokens cannot be renumbered.")
    return Narrowed(_with_backend(tokenizer, backend), kept)


def count_changed(
    tokenizer: Tokenizer, narrowed: Narrowed, texts: Iterable[str]
) -> tuple[int, int, int]:
    """Return how many texts have other tokens, and the tokens of all texts before and after."""
    kept = np.asarray(narrowed.kept)
    changed = before = after = 0
    for chunk in chunked(texts, len):
        pairs = zip(tokenizer.encode(chunk), narrowed.tokenizer.encode(chunk), strict=True)
        for old, new in pairs:
            before += len(old.input_ids)
            after += len(new.input_ids)
            changed += not np.array_equal(old.input_ids, kept[new.input_ids])
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


def _letters(tokenizer: Tokenizer, content: dict[str, Any], use: Use) -> set[int]:
    """Return the entries of one letter, for the letters of the text."""
    vocab = content["model"]["vocab"]
    ids: dict[str, int] = (
        {piece: number for number, (piece, _) in enumerate(vocab)}
        if isinstance(vocab, list)
        else vocab
    )
    if tokenizer.kind == "bytebpe":
        return {number for text, number in ids.items() if len(text) == 1}
    letters: set[str] = set()
    for text, number in ids.items():
        if use.counts[number]:
            letters.update(text.removeprefix(_CONTINUATION))
    forms = (form for letter in letters for form in (letter, _CONTINUATION + letter))
    return {ids[form] for form in forms if form in ids}


def _parts(content: dict[str, Any]) -> dict[int, set[int]]:
    """Return the two entries from which each entry of a BPE vocabulary is merged."""
    ids: dict[str, int] = content["model"]["vocab"]
    prefix = content["model"].get("continuing_subword_prefix") or ""
    parts: dict[int, set[int]] = {}
    for merge in content["model"]["merges"]:
        left, right, joined = _trio(merge, prefix)
        parts.setdefault(ids[joined], set()).update((ids[left], ids[right]))
    return parts


def _with_parts(entry: int, parts: dict[int, set[int]]) -> set[int]:
    """Return an entry and all entries from which it is merged."""
    entries, waiting = set(), [entry]
    while waiting:
        if (number := waiting.pop()) not in entries:
            entries.add(number)
            waiting += parts.get(number, ())
    return entries


def _trio(merge: str | Sequence[str], prefix: str) -> tuple[str, str, str]:
    """Return both parts of a merge and the result; tokenizers before 0.20 wrote it as one text.

    `prefix` marks entries that continue a word; mostly it is empty.
    """
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right.removeprefix(prefix)


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
