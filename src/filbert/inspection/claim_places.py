"""Claims about a place in a text: a word's tag, an answer, the word under a mask.

K rows that a head answers for, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.conll import sentence_of, spread, stride_of
from filbert.data.spans import best_windows, place_in, tokens_of
from filbert.errors import ConfigError, InputError, printable
from filbert.fill import masked_lm_part
from filbert.inspection.claims import (
    Claim,
    asked_label,
    differentiable,
    evaluated,
    log_odds,
    new_claim,
    quoted,
    whole,
)
from filbert.predict import Predictor
from filbert.speed.execution import run_model
from filbert.tasks.span_qa import SpanQA
from filbert.tasks.tagging import Tagging
from filbert.text.masks import check_masked, mask_spans, piece_of, translated

# A word of a text, or its number from 1; None for the one that the model speaks of.
Which = str | int | None


def tag_claim(
    predictor: Predictor, task: Tagging, item: Any, target: str | None, word: Which
) -> Claim:
    """The tag of one word."""
    row = task.row(item, 0)
    sentence = sentence_of(row)
    if not sentence.words:
        raise InputError("The text is empty. Give one with words in it.")
    length = predictor.max_length
    (encodings,) = predictor.tokenizer.windows(
        [sentence.text], max_length=length, stride=stride_of(length)
    )
    windows = spread(sentence, encodings)
    (answer,) = predictor.predict_rows([row])
    index = _word_number(sentence.words, answer["tags"], word)
    leader = int(windows[0].leaders[index])
    found = [i for i, window in enumerate(windows) if leader in window.words]
    if not found:
        name = printable(sentence.words[index])
        raise InputError(f"The tokenizer drops the word {name!r}, so its tag is always O.")
    window = windows[found[0]]
    place = int(window.rows[np.flatnonzero(window.words == leader)[0]])
    claim = new_claim(
        predictor,
        (sentence.text,),
        [encodings[found[0]]],
        kind="tagging",
        names=("text",),
        rows=[place],
    )
    logits = evaluated(claim, differentiable(predictor))[0]
    labels = task.labels or ()
    tag = asked_label(target, labels, labels[int(logits.argmax())], "tag")
    notes = _window_notes(found[0], len(encodings))
    if target is None and (printed := answer["tags"][index]) != tag:
        # I-X that continues nothing, or a word without a token of its own.
        notes += (
            f"A prediction says {quoted(printed)} here, which makes the tags of neighbouring words "
            f"agree; explained is {quoted(tag)}, the likeliest at the word's first token.",
        )
    at = labels.index(tag)
    share = torch.softmax(logits.double(), -1)[at]
    return replace(
        claim,
        says=f"{quoted(tag)} for {quoted(sentence.words[index])} with probability {share:.3f}",
        target=tag,
        number=lambda output: log_odds(output[:, 0], at),
        marks=((0, int(sentence.starts[index]), int(sentence.ends[index])),),
        notes=notes,
    )


def _word_number(words: Sequence[str], tags: Sequence[str], word: Which) -> int:
    """Which word of a sentence is meant, from 0: the one asked for, else the first with a tag."""
    if word is None:
        tagged = [index for index, tag in enumerate(tags) if tag != "O"]
        if not tagged:
            raise ConfigError("The model tags every word O. Name one with --word.")
        return tagged[0]
    number = _as_number(word)
    same = [i for i, found in enumerate(words) if found == word]
    same = same or [i for i, found in enumerate(words) if found.lower() == str(word).lower()]
    if same:
        return same[0]
    if number is None or not 1 <= number <= len(words):
        raise ConfigError(
            f"--word {printable(str(word))!r} is not a word of the text, nor a number in "
            f"1..{len(words)}."
        )
    return number - 1


def answer_claim(predictor: Predictor, task: SpanQA, item: Any, target: str | None) -> Claim:
    """Where the answer to a question begins and ends in its context."""
    if isinstance(item, str):
        raise InputError("A question and its context are wanted, and this is one text.")
    row = task.row(item, 0)
    question, context = row.values["question"], row.values["context"]
    if not question.strip() or not context.strip():
        raise InputError("A question and a context are wanted, and one of them is empty.")
    examples = predictor.row_examples([row])
    (encodings,) = predictor.tokenizer.windows(
        [(question, context)],
        max_length=predictor.max_length,
        stride=task.stride,
        max_first=task.max_question_length,
    )
    (answer,) = predictor.answers(examples)
    start, end, text = answer["start"], answer["end"], answer["answer"]
    if target is not None:
        start = context.find(target)
        end, text = start + len(target), target
        if start < 0 or not target.strip():
            raise ConfigError(f"--target {printable(target)!r} does not stand in the context.")
    windows = [example.source for example in examples]
    number, places = 0, (0, 0)
    if start is not None:
        tokens = tokens_of(windows[0].question.offsets, start, end)
        assert tokens is not None
        best = int(best_windows([(w.start, w.length) for w in windows])[tokens[0]])
        # The answer may go on behind the window that shows most around its first token.
        for number in (best, *range(len(windows))):
            places = place_in(windows[number], tokens)
            if places != (0, 0):
                break
        else:
            raise ConfigError("The --target is longer than one window of this model.")
    elif len(windows) > 1:
        # The score of "no answer" is that of the window which is least sure of it.
        outputs = run_model(
            predictor.model,
            examples,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
        )
        number = int(np.argmin([float(output[0].sum()) for output in outputs]))
    claim = new_claim(
        predictor,
        (question, context),
        [encodings[number]],
        kind="span_qa",
        names=("question", "context"),
    )
    first, last = places

    def added(output: Tensor) -> Tensor:
        return log_odds(output[..., 0], first) + log_odds(output[..., 1], last)

    return replace(
        claim,
        says=quoted(text) if start is not None else "no answer",
        target=text,
        unit="log-odds of start and end",
        reads=tuple(sorted({first, last})),
        number=added,
        marks=() if start is None else ((1, start, end),),
        notes=_window_notes(number, len(encodings)),
    )


def mask_claim(predictor: Predictor, item: Any, target: str | None, word: Which) -> Claim:
    """The word that a masked LM expects under a mask."""
    tokenizer, model = predictor.tokenizer, differentiable(predictor)
    if not isinstance(item, str):
        raise InputError("A masked LM reads one text with a [MASK]; this is not one text.")
    text = check_masked(item, tokenizer, "The text")
    text, _ = translated(text, mask_spans(text, tokenizer), tokenizer)
    spans = mask_spans(text, tokenizer)
    number = 1 if word is None else _as_number(word)
    if number is None or not 1 <= number <= len(spans):
        raise ConfigError(f"--word {printable(str(word))!r}: the masks are 1..{len(spans)}.")
    encoding = whole(predictor, text)
    assert encoding.sequence is not None
    rows = np.flatnonzero((encoding.input_ids == tokenizer.mask_id) & (encoding.sequence == 0))
    claim = new_claim(
        predictor,
        (text,),
        [encoding],
        kind="fill",
        names=("text",),
        rows=[int(rows[number - 1])],
        head=masked_lm_part(model),
    )
    logits = evaluated(claim, model)[0][: tokenizer.vocab_size]
    at = int(logits.argmax()) if target is None else _single_token(predictor, target)
    name = piece_of(at, tokenizer).text
    share = torch.softmax(logits.double(), -1)[at]
    return replace(
        claim,
        says=f"{quoted(name)} under the mask with probability {share:.3f}",
        target=name,
        number=lambda output: log_odds(output[:, 0], at),
        marks=((0, *spans[number - 1]),),
    )


def _single_token(predictor: Predictor, word: str) -> int:
    """The id of a word that is one token."""
    # A blank before it: byte-level vocabularies tell a word from the inside of one.
    (encoding,) = predictor.tokenizer.encode([" " + word], with_offsets=True)
    assert encoding.sequence is not None
    ids = encoding.input_ids[encoding.sequence == 0]
    if predictor.tokenizer.unk_id in ids.tolist():
        raise ConfigError(
            f"--target {printable(word)!r} is unknown to this model's vocabulary. "
            "Name another word."
        )
    if len(ids) != 1 or not word.strip():
        raise ConfigError(
            f"--target {printable(word)!r} is {len(ids)} tokens to this model; a mask stands for 1."
        )
    return int(ids[0])


def _window_notes(number: int, count: int) -> tuple[str, ...]:
    if count == 1:
        return ()
    return (f"The text is read in {count} windows; this is number {number + 1}, which answered.",)


def _as_number(word: Which) -> int | None:
    if isinstance(word, int):
        return word
    return int(word) if word is not None and word.isascii() and word.isdigit() else None
