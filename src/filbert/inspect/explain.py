"""Attribution of a model's answer to the words of the text, and the page that shows it.

n tokens of the text, S copies of it in a batch, C classes, E width of the word table, W words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.batch import pack
from filbert.data.conll import Sentence, sentence_of, spread
from filbert.errors import ConfigError, InputError, checked_keywords, did_you_mean, printable
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import Word, words_of
from filbert.inspect.page import render
from filbert.model.config import RotaryPositions
from filbert.model.heads import Model
from filbert.tasks.base import Prediction, Task
from filbert.tasks.rows import row_of_value, row_texts
from filbert.text.tokenizer import Encoding

METHODS = ("integrated-gradients", "gradient", "leave-one-out")
# With 64 points the completeness error of trained models is below 1 % of the difference.
STEPS = 64
# Tokens of one batch: gradients need the activations of every layer.
_TOKENS_WITH_GRADIENT, _TOKENS_WITHOUT = 1_024, 4_096

CAVEATS = {
    "integrated-gradients": "The shares divide the difference between this text and a text whose "
    "words are all replaced by the baseline. Another baseline gives other shares.",
    "gradient": "Gradient times input is a local approximation. The shares need not add up, and "
    "they are small for every word where the model is certain.",
    "leave-one-out": "Each word is removed alone, so words with the same meaning hide each other's "
    "effect. The shares need not add up.",
}
# Blue supports the answer, vermilion opposes it; distinguishable with any colour vision.
# Source: Okabe and Ito 2008, "Color Universal Design".
FOR, AGAINST = (0, 114, 178), (213, 94, 0)


# Description, label, score and unit of an `ExplainedScore`.
AnswerScore = tuple[str, str | None, Callable[[Tensor], Tensor], str]


@dataclass(frozen=True, eq=False)
class ExplainedScore:
    """The answer to explain, as one number that depends on the words.

    Attributes:
        texts: One or two texts, as the model reads them.
        description: The answer in words, such as '"toxic" with probability 0.91'.
        label: The label or tag; None for a number.
        score: The number for each of S copies, float64 (S,), from the head's output: (S, C) for
            heads over sequences and (S, n, C) for heads over tokens.
        unit: Unit of the number: "log-odds" or "value".
    """

    task: str
    texts: tuple[str, ...]
    encoding: Encoding
    words: tuple[Word, ...]
    description: str
    label: str | None
    score: Callable[[Tensor], Tensor]
    unit: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the texts."""
        return ("text", "second text")[: len(self.texts)]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The share of every word in an answer.

    Attributes:
        method: One of METHODS.
        shares: float64 (W,) in the unit of the target; positive shares support the answer.
        pieces: float64 (n,), the same for each token. Leave-one-out divides a word's share evenly.
        baseline_value: The number if all words are replaced by the baseline.
        baseline: What replaces words: the "mask" token or a "zero" vector.
        steps: Points of the integral; None for the other methods.
    """

    target: ExplainedScore
    method: str
    shares: np.ndarray
    pieces: np.ndarray
    value: float
    baseline_value: float
    baseline: str
    steps: int | None = None

    @property
    def error(self) -> float:
        """Completeness error: the sum of the shares minus the difference that they divide."""
        return float(self.pieces.sum()) - (self.value - self.baseline_value)

    def ranked(self) -> list[tuple[Word, float]]:
        """Return the words with their shares, the largest absolute share first."""
        order = np.argsort(-np.abs(self.shares), kind="stable")
        return [(self.target.words[i], float(self.shares[i])) for i in order.tolist()]

    def segments(self, which: int) -> Iterator[tuple[str, Word | None, float]]:
        """Split one of the texts into words with their shares, and None for text between them."""
        text, done = self.target.texts[which], 0
        for word, share in zip(self.target.words, self.shares.tolist(), strict=True):
            if word.side != which:
                continue
            # In some vocabularies two words share a character; it is shown once.
            start = max(word.start, done)
            if start > done:
                yield text[done:start], None, 0.0
            if word.end > start or word.start == word.end:
                yield (text[start : word.end] or word.text), word, share
            done = max(done, word.end)
        if done < len(text):
            yield text[done:], None, 0.0

    def colour(self, share: float) -> tuple[tuple[int, int, int], float]:
        """Return red, green and blue from 0 to 255, and the strength from 0 to 1."""
        largest = max(float(np.abs(self.shares).max(initial=0.0)), 1e-12)
        return FOR if share > 0 else AGAINST, min(1.0, abs(share) / largest)

    @property
    def summary(self) -> str:
        """One sentence on the sum of the shares."""
        text = (
            f"Sum of the shares: {self.pieces.sum():+.3f}. The {self.target.unit} is "
            f"{self.value:+.3f}, and {self.baseline_value:+.3f} with the {self.baseline} baseline "
            f"for every word; completeness error {self.error:+.3f}"
        )
        return text + (f" ({self.steps} steps)." if self.steps else ".")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        target = self.target
        return {
            "task": target.task,
            "says": target.description,
            "target": target.label,
            "method": self.method,
            "unit": target.unit,
            "value": self.value,
            "baseline": self.baseline,
            "baseline_value": self.baseline_value,
            "sum": float(self.pieces.sum()),
            "error": self.error,
            "steps": self.steps,
            "words": [
                {
                    "text": word.text,
                    "in": target.names[word.side],
                    "start": word.start,
                    "end": word.end,
                    "share": float(share),
                }
                for word, share in zip(target.words, self.shares, strict=True)
            ],
            "caveat": CAVEATS[self.method],
        }

    def _repr_html_(self) -> str:
        return render("explain_texts.html", one=self)


@checked_keywords
def explain(
    model: str | Path | Predictor,
    item: Any,
    *,
    method: str = METHODS[0],
    target: str | None = None,
    word: str | int | None = None,
    steps: int | None = None,
) -> Explanation:
    """Compute how much each word supports or opposes the model's answer.

    Args:
        model: A name as for `filbert.load`, or a loaded model in float32.
        item: An item as for `Predictor.predict`.
        method: "integrated-gradients" (Sundararajan et al. 2017), "gradient" times input (Shrikumar
            et al. 2017) or "leave-one-out" (Li et al. 2016). The first and the last replace words
            by the mask token, or by a zero vector if the vocabulary has none.
        target: Label or tag to explain; the model's own answer if None.
        word: For tagging the word or its number from 1; the first word with a tag if None.
        steps: Points of the integral (Gauss-Legendre); STEPS if None.

    Raises:
        ConfigError: The model has no such task, or an option does not fit the method.
        InputError: The item is empty or longer than the model reads.
    """
    check_method(method, steps)
    predictor = model if isinstance(model, Predictor) else Predictor.load(model)
    chosen = find_target(predictor, item, target=target, word=word)
    return attribute(predictor, chosen, method=method, steps=steps)


def check_method(method: str, steps: int | None) -> None:
    """Raise a ConfigError if there is no such method, or `steps` does not fit it."""
    if method not in METHODS:
        hint = did_you_mean(method, METHODS)
        raise ConfigError(f"--method {method!r} is not one of {', '.join(METHODS)}.{hint}")
    if steps is not None and method != METHODS[0]:
        raise ConfigError(f"--steps has no effect on {method}. Leave it out.")
    if steps is not None and not 1 <= steps <= 10_000:
        raise ConfigError(f"--steps is {steps}; give 1 to 10,000.")


# The target


def find_target(
    predictor: Predictor,
    item: Any,
    *,
    target: str | None = None,
    word: str | int | None = None,
) -> ExplainedScore:
    """Turn the model's answer about an item into one number.

    Classification: log-odds of a label at the model's temperature. Regression: the value. Tagging:
    log-odds of a tag at one word.
    """
    if not isinstance(predictor.model, Model) or predictor.number_format != "float32":
        raise ConfigError("Explanations need the original model in float32, not an export.")
    task = predictor.task
    kind = None if task is None else task.spec.head_kind
    if word is not None and kind != "tokens":
        raise ConfigError("--word is for tagging models. Leave it out.")
    if task is None or kind not in ("tokens", "sequence"):
        name = "no task" if task is None else f"the task {task.spec.name}"
        raise ConfigError(
            f"This model has {name}. Answers of classification, regression and tagging models are "
            "explained."
        )
    if kind == "tokens" and isinstance(item, tuple):
        raise ConfigError("A tagging model reads one text, and two are given.")
    row = row_of_value(task, item, 0)
    text = sentence_of(row).text if kind == "tokens" else row_texts(task, row)[0]
    texts = (text,) if isinstance(text, str) else text
    (encoding,) = predictor.tokenizer.encode([text], with_offsets=True)
    if encoding.num_tokens > predictor.max_length:
        raise InputError(
            f"The text has {encoding.num_tokens} tokens, and the model reads "
            f"{predictor.max_length} at once. Explain a part of it."
        )
    words = tuple(w for w in words_of(encoding, texts, predictor.tokenizer) if w.side >= 0)
    if not words or not any(part.strip() for part in texts):
        raise InputError("The text is empty. Give one with words in it.")
    (answer,) = predictor.predict_rows([row])
    if kind == "tokens":
        score = _tag_score(task, sentence_of(row), encoding, answer, target, word)
    else:
        score = _label_score(task, answer, target)
    return ExplainedScore(task.spec.name, texts, encoding, words, *score)


def _label_score(task: Task, answer: Prediction, asked: str | None) -> AnswerScore:
    if task.spec.problem_type == "regression":
        if asked is not None:
            raise ConfigError("--target has no effect on a regression model. Leave it out.")
        return f"{answer['value']:.4g}", None, lambda output: output.double()[:, 0], "value"
    scores, temperature = answer["scores"], task.spec.temperature
    label = answer.get("label", max(scores, key=scores.get)) if asked is None else asked
    index = _index(label, task.spec.labels, "label")

    def score(output: Tensor) -> Tensor:
        logits = output.double() / temperature
        return logits[:, index] if task.spec.multilabel else log_odds(logits, index)

    return f"{_quote(label)} with probability {scores[label]:.3f}", label, score, "log-odds"


def _tag_score(
    task: Task,
    sentence: Sentence,
    encoding: Encoding,
    answer: Prediction,
    asked: str | None,
    word: str | int | None,
) -> AnswerScore:
    index = _word_index(sentence.words, answer["tags"], word)
    name = sentence.words[index]
    # The same row as in prediction.
    window = spread(sentence, [encoding])[0]
    place = np.flatnonzero(window.words == window.leaders[index])
    if not len(place):
        raise InputError(
            f"The tokenizer drops the word {printable(name)!r}, so its tag is always O."
        )
    at = int(window.rows[place[0]])
    tag = answer["tags"][index] if asked is None else asked
    number = _index(tag, task.spec.labels, "tag")
    description = f"{_quote(tag)} for {_quote(name)}"
    return description, tag, lambda output: log_odds(output[:, at], number), "log-odds"


def _word_index(words: Sequence[str], tags: Sequence[str], word: str | int | None) -> int:
    """Return the index of the word asked for, else of the first word with a tag."""
    if word is None:
        tagged = [index for index, tag in enumerate(tags) if tag != "O"]
        if not tagged:
            raise ConfigError("The model tags every word O. Name a word with --word.")
        return tagged[0]
    name = str(word)
    if name in words:
        return words.index(name)
    if name.isdigit() and 1 <= int(name) <= len(words):
        return int(name) - 1
    raise ConfigError(
        f"--word {printable(name)!r} is neither a word of the text nor a number in 1..{len(words)}."
    )


def _index(label: str, labels: Sequence[str] | None, what: str) -> int:
    known = list(labels or ())
    if label not in known:
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise ConfigError(f"--target {printable(label)!r} is not a {what} of this model: {listed}.")
    return known.index(label)


def _quote(text: str) -> str:
    return f'"{printable(text, 80)}"'


def log_odds(logits: Tensor, index: int) -> Tensor:
    """Compute log(p / (1 - p)) of one class under a softmax, float64: (..., C) to (...).

    Unlike a logit it does not change if all logits are shifted. Unlike a probability it does not
    saturate where the model is certain.
    """
    values = logits.double()
    others = torch.cat([values[..., :index], values[..., index + 1 :]], -1)
    return values[..., index] - others.logsumexp(-1)


# Methods


def attribute(
    predictor: Predictor,
    target: ExplainedScore,
    *,
    method: str = METHODS[0],
    steps: int | None = None,
) -> Explanation:
    """Compute an explanation as `explain` does, for a target of this model."""
    assert isinstance(predictor.model, Model)
    model = predictor.model.eval()
    tables = model.config.embeddings
    is_alone = isinstance(model.config.positions, RotaryPositions) and not tables.token_types
    if method == "gradient" and is_alone and tables.normed:
        raise ConfigError(
            "This model normalises every word vector, so gradient times input is zero. Use another "
            "--method."
        )
    name, start_nE, end_nE = _endpoints(predictor, model, target, method)
    with torch.no_grad():
        value, baseline_value = _scores(model, target, torch.stack([end_nE, start_nE])).tolist()
    count = (steps or STEPS) if method == "integrated-gradients" else None
    if method == "leave-one-out":
        shares = _leave_one_out(model, target, start_nE, end_nE, value)
        pieces = np.zeros(target.encoding.num_tokens)
        for word, share in zip(target.words, shares.tolist(), strict=True):
            pieces[list(word.rows)] = share / len(word.rows)
    else:
        pieces = _integrate(model, target, start_nE, end_nE, count)
        shares = np.array([pieces[list(word.rows)].sum() for word in target.words])
    return Explanation(target, method, shares, pieces, value, baseline_value, name, count)


def _endpoints(
    predictor: Predictor, model: Model, target: ExplainedScore, method: str
) -> tuple[str, Tensor, Tensor]:
    """Return the baseline's name, and the word vectors (n, E) of the baseline and of the text.

    Special tokens keep their vectors, except for the gradient method, whose baseline is zero.
    """
    table = model.encoder.embeddings.word.weight.detach()
    end_nE = table[torch.from_numpy(target.encoding.input_ids.astype(np.int64)).to(table.device)]
    if method == "gradient":
        return "zero", torch.zeros_like(end_nE), end_nE
    mask_id = predictor.tokenizer.mask_id
    start_nE = end_nE.clone()
    rows = [row for word in target.words for row in word.rows]
    start_nE[rows] = 0.0 if mask_id is None else table[mask_id]
    return "zero" if mask_id is None else "mask", start_nE, end_nE


def _scores(model: Model, target: ExplainedScore, vectors_SnE: Tensor) -> Tensor:
    """Compute the number of the target for S sets of word vectors, float64 (S,).

    A hook replaces the output of the word table; positions and token types are added as usual. This
    does not go through inference/forward.py, because gradients are needed.
    """
    encoding, count = target.encoding, len(vectors_SnE)
    batch = pack([encoding.input_ids] * count, [encoding.token_type_ids] * count).to(model.device)
    vectors_TE = vectors_SnE.flatten(0, 1)
    table = model.encoder.embeddings.word
    hook = table.register_forward_hook(lambda module, inputs, output: vectors_TE)
    try:
        output = model(batch)
    finally:
        hook.remove()
    assert isinstance(output, Tensor) and model.head is not None
    is_of_tokens = model.head.per_token
    return target.score(output.view(count, -1, output.shape[-1]) if is_of_tokens else output)


def _leave_one_out(
    model: Model, target: ExplainedScore, start_nE: Tensor, end_nE: Tensor, value: float
) -> np.ndarray:
    """Compute the decrease of the number when one word is replaced, float64 (W,)."""
    shares = []
    size = max(1, _TOKENS_WITHOUT // target.encoding.num_tokens)
    for begin in range(0, len(target.words), size):
        words = target.words[begin : begin + size]
        vectors_SnE = end_nE.repeat(len(words), 1, 1)
        for one_nE, word in zip(vectors_SnE, words, strict=True):
            one_nE[list(word.rows)] = start_nE[list(word.rows)]
        with torch.no_grad():
            shares.append(value - _scores(model, target, vectors_SnE).cpu().numpy())
    return np.concatenate(shares)


def _integrate(
    model: Model,
    target: ExplainedScore,
    start_nE: Tensor,
    end_nE: Tensor,
    count: int | None,
) -> np.ndarray:
    """Multiply (end - start) by the mean gradient at `count` points between, float64 (n,).

    Without a count, the gradient is that at the end. Source: Sundararajan et al. 2017, equations 1
    and 3, with Gauss-Legendre quadrature.
    """
    nodes, weights = np.ones(1), np.ones(1)
    if count is not None:
        nodes, weights = np.polynomial.legendre.leggauss(count)
        nodes, weights = (nodes + 1) / 2, weights / 2
    path_nE = end_nE - start_nE
    total_nE = torch.zeros_like(path_nE, dtype=torch.float64)
    size = max(1, _TOKENS_WITH_GRADIENT // target.encoding.num_tokens)
    for begin in range(0, len(nodes), size):
        part = torch.from_numpy(nodes[begin : begin + size]).to(path_nE)
        weight = torch.from_numpy(weights[begin : begin + size]).to(total_nE)
        points = (start_nE + part[:, None, None] * path_nE).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(_scores(model, target, points).sum(), points)
        total_nE += torch.einsum("s,sne->ne", weight, gradient.double())
    return (total_nE * path_nE.double()).sum(-1).cpu().numpy()


def explanation_page(explanations: Sequence[Explanation], model: str) -> str:
    """Return an HTML page with explanations of one target by one or several methods."""
    return render(
        "explain_page.html", model=model, target=explanations[0].target, caveats=CAVEATS,
        explanations=explanations,
    )  # fmt: skip
