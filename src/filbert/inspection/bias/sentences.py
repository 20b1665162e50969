"""Words in sentences: where they stand, which tokens they are, and their vectors.

H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from filbert.data.examples import Example
from filbert.errors import ConfigError, InputError, printable
from filbert.inspection.bias.words import GAP
from filbert.inspection.context_vectors import table_means
from filbert.inspection.occurrences import tokens_within
from filbert.predict import Predictor
from filbert.speed.onnx_session import SessionModel
from filbert.text.tokenizer import Tokenizer

# How a word is looked at.
VECTORS = {
    "table": "word table",
    "sentence": "sentence",
    "context": "word in a sentence",
}


class Placed(NamedTuple):
    """A sentence and the characters [start, end) of a word in it."""

    text: str
    start: int
    end: int


def placed(template: str, word: str) -> Placed:
    """A template with a word in its gap; at the beginning of the sentence with a capital."""
    start = template.index(GAP)
    if not template[:start].strip():
        word = word[:1].upper() + word[1:]
    return Placed(template.replace(GAP, word), start, start + len(word))


def cleaning_of(predictor: Predictor) -> Callable[[str], str] | None:
    """What the model's task does to a text before it is read, if anything."""
    clean: Callable[[str], str] | None = getattr(predictor.task, "clean", None)
    return clean


def known_words(
    words: Sequence[str], tokenizer: Tokenizer, clean: Callable[[str], str] | None = None
) -> dict[str, bool]:
    """Whether the vocabulary can write each word, without the token for unknown ones.

    A word of which cleaning leaves nothing cannot be written either.
    """
    found = zip(words, _word_ids(words, tokenizer, clean), strict=True)
    return {word: bool(ids) and tokenizer.unk_id not in ids for word, ids in found}


def _word_ids(
    words: Sequence[str], tokenizer: Tokenizer, clean: Callable[[str], str] | None
) -> list[list[int]]:
    """The tokens of every word as in the middle of a sentence."""
    # There it comes after a blank, which some vocabularies keep with it.
    texts = [f" {clean(word) if clean else word}" for word in words]
    found = []
    for encoding in tokenizer.encode(texts, with_offsets=True):
        assert encoding.sequence is not None
        found.append(encoding.input_ids[encoding.sequence >= 0].tolist())
    return found


def vectors_of(
    predictor: Predictor, words: Sequence[str], sentences: Sequence[str], kind: str
) -> dict[str, np.ndarray]:
    """What a model makes of words.

    Args:
        predictor: a loaded model.
        words: all known to its vocabulary.
        sentences: templates with a gap; of no use to the word table. They are cleaned as the
            model's task wants its texts.
        kind: "table": the mean of the word's rows in the word table, without any context; as WEAT
            has it. "sentence": the vector of every sentence with the word in it, made as `embed`
            makes it; as SEAT has it. "context": the mean over the word's own tokens in every
            sentence.

    Returns:
        For every word float32 (vectors, H): one for the word table, else one a sentence.

    Raises:
        ConfigError: the model is an exported graph.
        InputError: a sentence is longer than the model reads, or its cleaning takes the word away.
    """
    if isinstance(predictor.model, SessionModel):
        raise ConfigError("An exported graph shows no vectors of words. Use the original model.")
    if not words:
        return {}
    if kind == "table":
        ids = _word_ids(words, predictor.tokenizer, cleaning_of(predictor))
        means = table_means(predictor.model, ids)
        return {word: means[i : i + 1] for i, word in enumerate(words)}
    texts = [placed(sentence, word) for word in words for sentence in sentences]
    if kind == "sentence":
        examples = predictor.text_examples([text.text for text in texts])
        _refuse_long(texts, examples, predictor)
        found = predictor.vectors(examples)
    else:
        found = _context_vectors(predictor, texts)
    size = len(sentences)
    return {word: np.stack(found[i * size : (i + 1) * size]) for i, word in enumerate(words)}


def _context_vectors(predictor: Predictor, texts: Sequence[Placed]) -> list[np.ndarray]:
    if (clean := cleaning_of(predictor)) is not None:
        texts = [_cleaned(text, clean) for text in texts]
    encodings = predictor.tokenizer.encode(
        [text.text for text in texts], max_length=predictor.max_length, with_offsets=True
    )
    examples = [
        Example(i, one.input_ids, one.token_type_ids, one.num_tokens)
        for i, one in enumerate(encodings)
    ]
    _refuse_long(texts, examples, predictor)
    matrices = predictor.vectors(examples, pooling="none")
    return [
        matrix[tokens_within(one, text.start, text.end)].mean(0)
        for matrix, one, text in zip(matrices, encodings, texts, strict=True)
    ]


def _cleaned(text: Placed, clean: Callable[[str], str]) -> Placed:
    """A sentence as the model reads it, and where its word stands there."""
    whole, word = clean(text.text), clean(text.text[text.start : text.end])
    # Not before what is left of the words in front of it, where the same letters may stand.
    start = whole.find(word, len(clean(text.text[: text.start])))
    if not word or start < 0:
        raise InputError(
            f"{printable(text.text)!r}: the cleaning of this model's task takes the word away."
        )
    return Placed(whole, start, start + len(word))


def _refuse_long(
    texts: Sequence[Placed], examples: Sequence[Example], predictor: Predictor
) -> None:
    """A sentence without its end may be one without its word."""
    for text, example in zip(texts, examples, strict=True):
        if example.truncated:
            raise InputError(
                f"{printable(text.text)!r} has {example.num_tokens} tokens; this model reads "
                f"{predictor.max_length}. Shorten the sentence."
            )
