"""The log-probability bias score: what a word does to the odds of "he" and "she" under a mask.

K masks, V vocabulary.

Source: Kurita et al. 2019, section 2. In their terms: target, attribute, prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from filbert.data.examples import Example
from filbert.errors import InputError, printable
from filbert.fill import mask_logits, masked_lm_part
from filbert.inspection.bias.sentences import known_words, placed
from filbert.inspection.bias.statistics import difference_intervals, effect_size, permuted
from filbert.inspection.bias.words import TARGET, LogProbability
from filbert.inspection.occurrences import tokens_within
from filbert.metrics.paired import holm
from filbert.predict import Predictor
from filbert.speed.onnx_session import SessionModel
from filbert.text.masks import mask_name
from filbert.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Shifted:
    """The answer to one question.

    All scores are natural logarithms of odds: 0.69 doubles the odds of the first target.

    Attributes:
        test: the question, with the words and targets that the vocabulary knows.
        unknown: words and targets that were left out.
        prior: log odds of the first target over the second where the word is masked too, averaged;
            None where too few words or no targets are left.
        scores: by word, how far it moves these log odds, averaged over templates and targets.
        difference: mean score of the words of a minus that of b, in log odds.
        low, high: ends of its interval, with other words.
        effect, effect_low, effect_high: the same in standard deviations of the scores.
        p_two_sided: of the permutation test over words.
        p_holm: corrected for the number of questions.
        is_exact: all permutations were counted.
        by_template: the difference in every template alone.
    """

    test: LogProbability
    unknown: tuple[str, ...]
    prior: float | None = None
    scores: Mapping[str, float] | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    p_two_sided: float | None = None
    p_holm: float | None = None
    is_exact: bool = True
    by_template: Mapping[str, float] | None = None


def shifts(
    predictor: Predictor,
    tests: Sequence[LogProbability],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Shifted]:
    """The answers to all questions.

    Args:
        predictor: a model with a masked-LM head.
        tests: the questions.
        resamples: for the intervals.
        level: of the intervals.
        seed: of all draws.

    Raises:
        ConfigError: the model has no masked-LM head.
        FormatError: its vocabulary has no mask.
        InputError: a sentence is longer than the model reads.
    """
    masked_lm_part(predictor.model)
    mask_name(predictor.tokenizer)
    found = []
    for test in tests:
        answer = _known(test, predictor.tokenizer)
        kept = answer.test
        if kept.targets and min(len(kept.a.words), len(kept.b.words)) >= 2:
            answer = _judged(
                answer, *_scores(predictor, kept), resamples=resamples, level=level, seed=seed
            )
        found.append(answer)
    asked = [i for i, one in enumerate(found) if one.p_two_sided is not None]
    corrected = holm([found[i].p_two_sided or 0.0 for i in asked])
    for i, p in zip(asked, corrected, strict=True):
        found[i] = replace(found[i], p_holm=p)
    return found


def _judged(
    answer: Shifted,
    scores: np.ndarray,
    priors: np.ndarray,
    *,
    resamples: int,
    level: float,
    seed: int,
) -> Shifted:
    """The answer from scores and priors, (templates, targets, words) of both."""
    a, b = answer.test.a.words, answer.test.b.words
    by_word = scores.mean((0, 1))
    first, second = by_word[: len(a)], by_word[len(a) :]
    ends, effect_ends = difference_intervals(
        first, second, resamples=resamples, level=level, seed=seed
    )
    chance = permuted(first, second, seed=seed)
    by_template = scores.mean(1)
    return replace(
        answer,
        prior=float(priors.mean()),
        scores=dict(zip((*a, *b), map(float, by_word), strict=True)),
        difference=float(first.mean() - second.mean()),
        low=ends[0],
        high=ends[1],
        effect=effect_size(first, second),
        effect_low=effect_ends[0],
        effect_high=effect_ends[1],
        p_two_sided=chance.two_sided,
        is_exact=chance.is_exact,
        by_template={
            template: float(row[: len(a)].mean() - row[len(a) :].mean())
            for template, row in zip(answer.test.templates, by_template, strict=True)
        },
    )


def _known(test: LogProbability, tokenizer: Tokenizer) -> Shifted:
    """The question with what the vocabulary can write: targets must be one token each."""
    known = known_words([*test.a.words, *test.b.words], tokenizer)
    a, b = (
        replace(one, words=tuple(word for word in one.words if known[word]))
        for one in (test.a, test.b)
    )
    example = next(iter((*a.words, *b.words)), "it")
    targets = tuple(
        pair
        for pair in test.targets
        if all(
            target_id(template, target, example, tokenizer) is not None
            for template in test.templates
            for target in pair
        )
    )
    missing = [" and ".join(pair) for pair in test.targets if pair not in targets]
    unknown = (*missing, *(word for word in known if not known[word]))
    return Shifted(replace(test, a=a, b=b, targets=targets), unknown)


class _Sentence(NamedTuple):
    """A sentence, and the characters [start, end) of its target and of its word."""

    text: str
    target: tuple[int, int]
    word: tuple[int, int]


def _written(template: str, target: str, word: str) -> _Sentence:
    """A template with both; what begins the sentence gets a capital."""
    text, start, end = placed(template, word)
    at = text.index(TARGET)
    if not text[:at].strip():
        target = target[:1].upper() + target[1:]
    if at < start:
        moved = len(target) - len(TARGET)
        start, end = start + moved, end + moved
    return _Sentence(text.replace(TARGET, target), (at, at + len(target)), (start, end))


def target_id(template: str, target: str, word: str, tokenizer: Tokenizer) -> int | None:
    """The token that stands for a target in a template with a word; None if it takes several."""
    sentence = _written(template, target, word)
    (encoding,) = tokenizer.encode([sentence.text], with_offsets=True)
    rows = tokens_within(encoding, *sentence.target)
    found = encoding.input_ids[rows].tolist()
    return found[0] if len(found) == 1 and found[0] != tokenizer.unk_id else None


def _scores(predictor: Predictor, test: LogProbability) -> tuple[np.ndarray, np.ndarray]:
    """How far every word moves the log odds, and the log odds before; (templates, targets, words).

    A word is masked token by token, so that its sentence keeps its length.
    """
    tokenizer, words = predictor.tokenizer, (*test.a.words, *test.b.words)
    shape = (len(test.templates), len(test.targets), len(words))
    scores, priors = np.empty(shape), np.empty(shape)
    for row, template in enumerate(test.templates):
        ids = [
            [target_id(template, target, words[0], tokenizer) for target in pair]
            for pair in test.targets
        ]
        wanted = np.array(ids, dtype=np.int64)
        examples = _masked(test, template, predictor)
        logs = mask_log_probabilities(predictor, examples, wanted.ravel())
        pairs = logs.reshape(2, len(words), len(wanted), 2)
        odds = pairs[..., 0] - pairs[..., 1]
        scores[row], priors[row] = (odds[0] - odds[1]).T, odds[1].T
    return scores, priors


def _masked(test: LogProbability, template: str, predictor: Predictor) -> list[Example]:
    """The sentences of all words with the target masked, then those with the word masked too.

    The target is masked where its token stands. A mask within a text is no such place: some
    vocabularies make the blank before it a token of its own.
    """
    mask_id = predictor.tokenizer.mask_id
    sentences = [
        _written(template, test.targets[0][0], word) for word in (*test.a.words, *test.b.words)
    ]
    encodings = predictor.tokenizer.encode([one.text for one in sentences], with_offsets=True)
    with_word, without = [], []
    for sentence, encoding in zip(sentences, encodings, strict=True):
        if encoding.num_tokens > predictor.max_length:
            raise InputError(
                f"{test.name}: {printable(sentence.text)!r} has {encoding.num_tokens} tokens; this "
                f"model reads {predictor.max_length}. Shorten the template."
            )
        at = tokens_within(encoding, *sentence.target)
        ids = encoding.input_ids.copy()
        ids[at] = mask_id
        bare = ids.copy()
        bare[tokens_within(encoding, *sentence.word)] = mask_id
        types, count = encoding.token_type_ids, encoding.num_tokens
        with_word.append(Example(0, ids, types, count, at))
        without.append(Example(0, bare, types, count, at))
    return with_word + without


def mask_log_probabilities(
    predictor: Predictor, examples: Sequence[Example], ids: np.ndarray
) -> np.ndarray:
    """Log-probabilities of some tokens under the mask of every example.

    Args:
        predictor: a model with a masked-LM head.
        examples: whose `target` is the place of one mask, int64 (1,).
        ids: tokens, int64 (n,).

    Returns:
        float64 (examples, n); probabilities are among all V entries of the word table.
    """
    model = predictor.model
    assert not isinstance(model, SessionModel)
    chosen = torch.from_numpy(ids).to(predictor.device)
    found = np.empty((len(examples), len(ids)))
    scored = mask_logits(
        model, examples, max_tokens=predictor.max_tokens, precision=predictor.precision
    )
    for owners, logits_KV in scored:
        found[owners] = logits_KV.log_softmax(-1)[:, chosen].double().cpu().numpy()
    return found
