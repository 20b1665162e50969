"""New whole entries for an existing vocabulary, and the old pieces that each was cut into."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Backend

from filbert.errors import FormatError, InputError, printable
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import Vocabulary

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
