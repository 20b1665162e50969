"""New whole entries for an existing vocabulary, and the old pieces that each was cut into."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer as Backend

from filbert.errors import ConfigError, FormatError, InputError, printable
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

# Adding entries

# Places that BERT's vocabularies keep free for their users.
_UNUSED = re.compile(r"\[unused\d+\]")
_CONTINUATION = "##"
# Far below the difference of two pieces' scores, far above the rounding of a sum of them.
_MARGIN = 1e-3


class Extension(NamedTuple):
    """A tokenizer with more entries.

    Attributes:
        tokenizer: knows the old and the new entries; all old ids but those of re-used [unused]
            entries mean what they meant.
        rows_from: id of every new entry to the old ids that its text was cut into; none where it
            was unknown. `checkpoints.fresh.grow_vocabulary` makes the model's rows of it.
        notes: sentences on where the entries went, and which were there already.
    """

    tokenizer: Tokenizer
    rows_from: dict[int, tuple[int, ...]]
    notes: tuple[str, ...]


def add_entries(
    tokenizer: Tokenizer, entries: Sequence[str], *, reuse_unused: bool = True
) -> Extension:
    """Make words whole vocabulary entries, in the vocabulary itself and not beside it.

    So they are cut out of a text as the old ones are: with the space before them, with their
    normalisation, and in every tool that reads tokenizer.json. Of other words, only those change
    that a new entry is a better piece of.

    WordPiece finds an entry as the longest match, and takes "##" before a piece that continues a
    word. Byte-level BPE gets the form that follows a space and looks words up before it merges
    pieces (`ignore_merges`). Unigram scores an entry just above the sum of its pieces, so that it
    is as likely as they were and wins against them.

    Args:
        tokenizer: stays as it is.
        entries: words; normalised (lower-cased, say) as the tokenizer does with any text.
        reuse_unused: WordPiece entries take the ids of [unused0], [unused1] ... first, as users of
            BERT do, so that the model's table need not grow.

    Raises:
        InputError: an entry that is not one word to this tokenizer, so that it would never be
            found, or one that is too long.
        FormatError: ids that no entry can follow or that would change, or a vocabulary of whole
            words.
    """
    if tokenizer.kind not in _STORE:
        raise FormatError("A vocabulary of whole words takes no new entries; learn it anew.")
    content = json.loads(tokenizer.backend.to_str())
    forms, present = _new_forms(tokenizer, entries, content)
    pieces = {form: _pieces(tokenizer, form) for form in forms}
    free = _free_ids(tokenizer, content) if reuse_unused and tokenizer.kind == "wordpiece" else []
    ids = [number for number, _ in free[: len(forms)]]
    reused = len(ids)
    ids += range(tokenizer.vocab_size, tokenizer.vocab_size + len(forms) - reused)
    new_ids = dict(zip(forms, ids, strict=True))
    _STORE[tokenizer.kind](content, new_ids, pieces)
    backend = Backend.from_str(json.dumps(content))
    old_ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    taken = set(ids)
    stay = {name: number for name, number in old_ids.items() if number not in taken}
    if backend.get_vocab(with_added_tokens=True) != stay | new_ids:
        raise FormatError("The tokenizer's entries cannot keep their ids when others are added.")

    vocabulary = Vocabulary(
        backend,
        dict(tokenizer.specials),
        tokenizer.max_length,
        dict(tokenizer.settings),
        tokenizer.convention,
    )
    rows_from = {number: pieces[form] for form, number in new_ids.items()}
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
    return Extension(Tokenizer(vocabulary), rows_from, tuple(notes))


def _count(number: int) -> str:
    return f"{number} new {'entry' if number == 1 else 'entries'}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(printable(name) for name in names[:5]) + more


def _new_forms(
    tokenizer: Tokenizer, entries: Iterable[str], content: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """The entries as the vocabulary writes them, each once; and those that it has already."""
    forms: dict[str, None] = {}
    present: list[str] = []
    bad: list[str] = []
    limit = content["model"].get("max_input_chars_per_word")
    added = {token["content"] for token in content["added_tokens"]}
    for entry in entries:
        words = [entry] if entry in added else _words(tokenizer, entry)
        if len(words) != 1:
            shown = f" (cut into {' '.join(map(printable, words))})" if words else ""
            bad.append(f"{printable(entry)!r}{shown}")
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
    """What reaches the model of an entry that stands in a text, after a space."""
    backend = tokenizer.backend
    prefix = ""
    if tokenizer.kind == "wordpiece":
        # Such as [unused7], of which a text would have only the parts.
        if tokenizer.id_of(entry) is not None:
            return [entry]
        if entry.startswith(_CONTINUATION):
            prefix, entry = _CONTINUATION, entry.removeprefix(_CONTINUATION)
    if not entry.strip():
        return []
    text = f" {entry.strip()}"
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        return [text] if text else []
    return [prefix + word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def _pieces(tokenizer: Tokenizer, form: str) -> tuple[int, ...]:
    """The ids that a form is cut into by the old vocabulary; none if anything is unknown."""
    model = tokenizer.backend.model
    if tokenizer.kind == "wordpiece" and form.startswith(_CONTINUATION):
        return _continuing_pieces(tokenizer, form.removeprefix(_CONTINUATION))
    ids = tuple(token.id for token in model.tokenize(form))
    return () if tokenizer.unk_id in ids else ids


def _continuing_pieces(tokenizer: Tokenizer, rest: str) -> tuple[int, ...]:
    """Longest match first, as inside a word; the library cuts only from a word's beginning."""
    ids: list[int] = []
    while rest:
        for end in range(len(rest), 0, -1):
            number = tokenizer.id_of(_CONTINUATION + rest[:end])
            if number is not None:
                break
        else:
            return ()
        ids.append(number)
        rest = rest[end:]
    return tuple(ids)


def _free_ids(tokenizer: Tokenizer, content: dict[str, Any]) -> list[tuple[int, str]]:
    """Ids and names of the [unused] entries, in order."""
    added = {token["content"] for token in content["added_tokens"]}
    vocab: dict[str, int] = content["model"]["vocab"]
    found = [(number, name) for name, number in vocab.items() if _UNUSED.fullmatch(name)]
    return sorted(pair for pair in found if pair[1] not in added)


def _keep_behind(content: dict[str, Any]) -> None:
    """Write tokens that were added behind the vocabulary into it.

    The library numbers them anew, from the end of the vocabulary, and that is about to move.
    """
    for token in content["added_tokens"]:
        content["model"]["vocab"].setdefault(token["content"], token["id"])


def _store_wordpiece(
    content: dict[str, Any], ids: dict[str, int], pieces: dict[str, tuple[int, ...]]
) -> None:
    _keep_behind(content)
    taken = set(ids.values())
    old = content["model"]["vocab"]
    content["model"]["vocab"] = {w: n for w, n in old.items() if n not in taken} | ids


def _store_bpe(
    content: dict[str, Any], ids: dict[str, int], pieces: dict[str, tuple[int, ...]]
) -> None:
    _keep_behind(content)
    content["model"]["vocab"] |= ids
    content["model"]["ignore_merges"] = True


def _store_unigram(
    content: dict[str, Any], ids: dict[str, int], pieces: dict[str, tuple[int, ...]]
) -> None:
    """An id is a place in the list here, so tokens added behind it must be in it first."""
    vocab: list[list[Any]] = content["model"]["vocab"]
    behind = {token["id"]: token["content"] for token in content["added_tokens"]}
    least = min((score for _, score in vocab), default=0.0)
    scores = [score for _, score in vocab]
    for form, number in ids.items():
        while len(vocab) < number:
            if len(vocab) not in behind:
                raise FormatError(
                    f"The tokenizer's id {len(vocab)} belongs to no entry, so none can follow it. "
                    "Its files are damaged, or not of a kind that can grow."
                )
            # Never scored: added tokens are found before the text is cut into pieces.
            vocab.append([behind[len(vocab)], 0.0])
        whole = _MARGIN + sum(scores[piece] for piece in pieces[form])
        vocab.append([form, whole if pieces[form] else least])


_STORE = {"wordpiece": _store_wordpiece, "bytebpe": _store_bpe, "unigram": _store_unigram}


# Removing entries

_CHUNK_TEXTS, _CHUNK_CHARACTERS = 1024, 2**21


class Use(NamedTuple):
    """What a text needs of a vocabulary.

    Attributes:
        counts: int64 (V,): how often each entry stands in the text.
        tried: entries that no token came of, but that decided that a word is unknown: without
            them, shorter ones might be found, and the word would be known.
    """

    counts: np.ndarray
    tried: frozenset[int]


class Narrowed(NamedTuple):
    """A smaller vocabulary.

    Attributes:
        tokenizer: its ids are 0, 1, ... in the old order.
        kept: the old id of every new one, rising.
    """

    tokenizer: Tokenizer
    kept: tuple[int, ...]


def count_entries(tokenizer: Tokenizer, texts: Iterable[str]) -> Use:
    """Count the entries in texts; memory does not grow with them."""
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    tried: set[int] = set()
    for chunk in _chunks(texts):
        for text, encoding in zip(chunk, tokenizer.encode(chunk), strict=True):
            ids = np.asarray(encoding.input_ids)
            counts += np.bincount(ids, minlength=len(counts))
            if tokenizer.kind == "wordpiece" and tokenizer.unk_id in ids:
                tried |= _tried(tokenizer, text)
    return Use(counts, frozenset(tried))


def useful_entries(
    tokenizer: Tokenizer, use: Use, *, min_count: int = 1, size: int | None = None
) -> frozenset[int]:
    """Which entries to keep: the most frequent, and those that must be there whatever their count.

    Those are the special and added tokens, and the text's letters, so that a word of known letters
    never becomes unknown; of byte-level BPE all bytes, and of an entry also the entries that it is
    merged from. With `min_count` 1 and no `size`, the text is cut into the same tokens as before.

    Args:
        tokenizer: stays as it is.
        use: of its entries.
        min_count: an entry must stand so often in the text.
        size: at most so many entries in all.

    Raises:
        ConfigError: `size` has no room for what must be there.
    """
    content = json.loads(tokenizer.backend.to_str())
    required = set(_required(tokenizer, content))
    required |= _letters(tokenizer, content, use)
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
    """The tokenizer with these entries alone, numbered anew without a gap.

    Args:
        tokenizer: stays as it is.
        entries: old ids; as `useful_entries` gives them, or at least all that must be there.

    Raises:
        FormatError: the library does not give an added token the id that is left for it.
    """
    kept = tuple(sorted(entries))
    places = {old: new for new, old in enumerate(kept)}
    content = json.loads(tokenizer.backend.to_str())
    model = content["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = [piece for old, piece in enumerate(model["vocab"]) if old in places]
        if model.get("unk_id") is not None:
            model["unk_id"] = places[model["unk_id"]]
    else:
        model["vocab"] = {
            text: places[old] for text, old in model["vocab"].items() if old in places
        }
    if "merges" in model:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            merge
            for merge in model["merges"]
            if all(text in model["vocab"] for text in _trio(merge, prefix))
        ]
    for token in content["added_tokens"]:
        token["id"] = places[token["id"]]
    _renumber(content["post_processor"], places)
    backend = Backend.from_str(json.dumps(content))
    found = backend.get_vocab(with_added_tokens=True)
    old_ids = tokenizer.backend.get_vocab(with_added_tokens=True)
    if found != {text: places[old] for text, old in old_ids.items() if old in places}:
        raise FormatError("The tokenizer's added tokens cannot be numbered anew.")
    vocabulary = Vocabulary(
        backend,
        dict(tokenizer.specials),
        tokenizer.max_length,
        dict(tokenizer.settings),
        tokenizer.convention,
    )
    return Narrowed(Tokenizer(vocabulary), kept)


def count_changed(
    tokenizer: Tokenizer, narrowed: Narrowed, texts: Iterable[str]
) -> tuple[int, int, int]:
    """How many texts are cut otherwise, and the tokens of all texts before and after."""
    kept = np.asarray(narrowed.kept)
    changed = before = after = 0
    for chunk in _chunks(texts):
        pairs = zip(tokenizer.encode(chunk), narrowed.tokenizer.encode(chunk), strict=True)
        for old, new in pairs:
            before += len(old.input_ids)
            after += len(new.input_ids)
            changed += not np.array_equal(old.input_ids, kept[new.input_ids])
    return changed, before, after


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    room = _CHUNK_CHARACTERS
    for text in texts:
        chunk.append(text)
        room -= len(text)
        if room <= 0 or len(chunk) == _CHUNK_TEXTS:
            yield chunk
            chunk, room = [], _CHUNK_CHARACTERS
    if chunk:
        yield chunk


def _tried(tokenizer: Tokenizer, text: str) -> set[int]:
    """What longest match first takes of the words in which it gets stuck."""
    backend, found = tokenizer.backend, set()
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    words = [(text, (0, 0))]
    if backend.pre_tokenizer is not None:
        words = backend.pre_tokenizer.pre_tokenize_str(text)
    for word, _ in words:
        if any(token.id != tokenizer.unk_id for token in backend.model.tokenize(word)):
            continue
        start = 0
        while start < len(word):
            prefix = _CONTINUATION if start else ""
            for end in range(len(word), start, -1):
                number = tokenizer.id_of(prefix + word[start:end])
                if number is not None:
                    found.add(number)
                    break
            else:
                break
            start = end
    return found


def _required(tokenizer: Tokenizer, content: dict[str, Any]) -> Iterator[int]:
    """Ids that something other than a text refers to."""
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
        # The score of an unknown letter hangs on the lowest score there is.
        scores = [score for _, score in model["vocab"]]
        yield scores.index(min(scores))


def _letters(tokenizer: Tokenizer, content: dict[str, Any], use: Use) -> set[int]:
    """The entries of one letter, of those letters that stand in the text."""
    vocab = content["model"]["vocab"]
    ids = (
        {piece: number for number, (piece, _) in enumerate(vocab)}
        if isinstance(vocab, list)
        else vocab
    )
    if tokenizer.kind == "bytebpe":
        return {number for text, number in ids.items() if len(text) == 1}
    seen: set[str] = set()
    for text, number in ids.items():
        if use.counts[number]:
            seen.update(text.removeprefix(_CONTINUATION))
    forms = (form for letter in seen for form in (letter, _CONTINUATION + letter))
    return {ids[form] for form in forms if form in ids}


def _parts(content: dict[str, Any]) -> dict[int, set[int]]:
    """What each entry of a BPE vocabulary is merged from, directly."""
    ids: dict[str, int] = content["model"]["vocab"]
    prefix = content["model"].get("continuing_subword_prefix") or ""
    parts: dict[int, set[int]] = {}
    for merge in content["model"]["merges"]:
        left, right, joined = _trio(merge, prefix)
        parts.setdefault(ids[joined], set()).update((ids[left], ids[right]))
    return parts


def _with_parts(entry: int, parts: dict[int, set[int]]) -> set[int]:
    found, waiting = set(), [entry]
    while waiting:
        if (number := waiting.pop()) not in found:
            found.add(number)
            waiting += parts.get(number, ())
    return found


def _trio(merge: str | Sequence[str], prefix: str) -> tuple[str, str, str]:
    """Both parts and what they become; tokenizers wrote a merge as one text before version 0.20.

    `prefix` is that of entries inside of a word, mostly empty.
    """
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right.removeprefix(prefix)


def _processor_ids(processor: dict[str, Any] | None) -> Iterator[int]:
    for part in _processors(processor):
        for token in part.get("special_tokens", {}).values():
            yield from token["ids"]
        for role in ("sep", "cls"):
            if role in part:
                yield part[role][1]


def _renumber(processor: dict[str, Any] | None, places: dict[int, int]) -> None:
    for part in _processors(processor):
        for token in part.get("special_tokens", {}).values():
            token["ids"] = [places[number] for number in token["ids"]]
        for role in ("sep", "cls"):
            if role in part:
                part[role][1] = places[part[role][1]]


def _processors(processor: dict[str, Any] | None) -> list[dict[str, Any]]:
    if processor is None:
        return []
    return processor["processors"] if processor["type"] == "Sequence" else [processor]
