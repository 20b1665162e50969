"""Why this answer: how much each word speaks for it or against it, by four methods.

n tokens of the claim, S fillings in a batch, W words, E width of the word table.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.errors import ConfigError
from filbert.inspection.claim_kinds import claim_of
from filbert.inspection.claims import Claim, Word, differentiable
from filbert.inspection.coloured import texts_html
from filbert.inspection.rollout import rolled_out
from filbert.model.heads import Model
from filbert.predict import Predictor

METHODS = ("integrated-gradients", "gradient", "leave-one-out", "rollout")
BASELINES = ("mask", "pad", "zero")

# Steps that are doubled until the words add up to this share of the difference.
FIRST_STEPS, LAST_STEPS, WANTED_ERROR = 16, 256, 0.01
# Tokens at a time: the tape of a pass keeps every layer's activations.
_TOKENS_WITH_TAPE, _TOKENS_WITHOUT = 1_024, 4_096

# What a reader has to know before believing the colours.
CAVEATS = {
    "integrated-gradients": "Shares between this text and one whose words all give way to the "
    "baseline; another baseline gives other shares.",
    "gradient": "Gradient times input says how the number would move at first; it need not add up, "
    "and where the model is sure it is small for every word.",
    "leave-one-out": "Each word is taken away alone, so words that say the same thing cover for "
    "each other; the shares need not add up.",
    "rollout": "Attention rollout says from where the reading token gathers, not what decides: it "
    "is the same for every answer, has no sign, and sees neither values nor feed-forward layers. "
    "A baseline for the other methods, no explanation.",
}


@dataclass(frozen=True, eq=False)
class Explanation:
    """What every word of a text has to do with a claim.

    Attributes:
        claim: the answer, its number and the words.
        method: one of METHODS.
        shares: float64 (W,), one a word, in the claim's unit: above 0 for the answer, below against
            it. For rollout parts of 1, never below 0.
        pieces: float64 (n,), the same by token; for leave-one-out a word's share is spread evenly.
        value: the claim's number; None for rollout.
        empty: the number when all words have given way to the baseline; None for rollout, and for
            two texts, which then are the same.
        baseline: what words give way to; None for rollout.
        steps: points of the integral; None for the other methods.
    """

    claim: Claim
    method: str
    shares: np.ndarray
    pieces: np.ndarray
    value: float | None = None
    empty: float | None = None
    baseline: str | None = None
    steps: int | None = None

    @property
    def specials(self) -> float:
        """What belongs to no word: the part of [CLS], [SEP] and their like."""
        others = np.ones(len(self.pieces), dtype=bool)
        others[[row for word in self.claim.words for row in word.rows]] = False
        return float(self.pieces[others].sum())

    @property
    def difference(self) -> float | None:
        """What the shares should add up to: `value` less `empty`."""
        if self.value is None or self.empty is None:
            return None
        return self.value - self.empty

    @property
    def error(self) -> float | None:
        """By how much they add up to something else: the completeness error."""
        difference = self.difference
        return None if difference is None else float(self.pieces.sum()) - difference

    @property
    def largest(self) -> float:
        """The share of the word with the largest one, without its sign; above 0."""
        return max(float(np.abs(self.shares).max(initial=0.0)), 1e-12)

    def ranked(self) -> list[tuple[Word, float]]:
        """The words with their shares, the largest first, whatever their sign."""
        order = np.argsort(-np.abs(self.shares), kind="stable")
        return [(self.claim.words[i], float(self.shares[i])) for i in order.tolist()]

    def _repr_html_(self) -> str:
        """For notebooks."""
        return texts_html(self)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        claim = self.claim
        words = [
            {
                "text": word.text,
                "in": claim.names[word.which],
                "start": word.start,
                "end": word.end,
                "share": float(share),
                "pieces": [
                    {"token": claim.tokens[row], "share": float(self.pieces[row])}
                    for row in word.rows
                ],
            }
            for word, share in zip(claim.words, self.shares, strict=True)
        ]
        return {
            "task": claim.kind,
            "says": claim.says,
            "target": claim.target,
            "method": self.method,
            "unit": "part of 1" if self.value is None else claim.unit,
            "value": self.value,
            "baseline": self.baseline,
            "baseline_value": self.empty,
            "sum": float(self.pieces.sum()),
            "error": self.error,
            "steps": self.steps,
            "specials": self.specials,
            "words": words,
            "notes": list(claim.notes),
            "caveat": CAVEATS[self.method],
        }


def explain(
    model: str | Path | Predictor,
    item: Any,
    *,
    method: str | None = None,
    target: str | None = None,
    word: str | int | None = None,
    baseline: str | None = None,
    steps: int | None = None,
) -> Explanation:
    """How much each word of an item speaks for the model's answer.

    Args:
        model: a name as of `filbert.load`, or a loaded model in float32.
        item: what `Predictor.predict` takes; see `claim_of`.
        method: "integrated-gradients" (Sundararajan et al. 2017), "gradient" (times input;
            Shrikumar et al. 2017, section 1), "leave-one-out" (Li et al. 2016) or "rollout" (Abnar
            and Zuidema 2020). When not given, the first; for the likeness of two texts, which has
            no other, leave-one-out.
        target, word: what is to be explained; see `claim_of`.
        baseline: what words give way to, in place of their own vector: that of the vocabulary's
            "mask" (the default where there is one), of its "pad", or "zero". Special tokens,
            positions and token types stay. Gradient times input always means zero.
        steps: points of the integral (Gauss-Legendre); when not given 16, doubled until the
            completeness error is at most 1 % of the difference, or there are 256.

    Raises:
        ConfigError, InputError: as `claim_of`; or an option does not go with the method.
    """
    predictor = model if isinstance(model, Predictor) else Predictor.load(model, graphs=False)
    claim = claim_of(predictor, item, target=target, word=word)
    return explained(predictor, claim, method=method, baseline=baseline, steps=steps)


def usual_method(claim: Claim) -> str:
    """The method for those who name none."""
    return "leave-one-out" if claim.kind == "similarity" else METHODS[0]


def methods_of(claim: Claim) -> tuple[str, ...]:
    """The methods that a claim can be explained by."""
    return tuple(method for method in METHODS if _unfit(claim, method) is None)


def _unfit(claim: Claim, method: str) -> str | None:
    """Why a method has nothing to say about a claim; None where it has."""
    if claim.kind == "similarity" and method != "leave-one-out":
        return (
            f"Two texts whose words have all given way are perfectly alike, so {method} has "
            "nothing to start from here. Use --method leave-one-out."
        )
    if method == "gradient" and claim.is_scale_free:
        return (
            "This model normalises every word vector by itself, so its length plays no part and "
            "gradient times input is zero for every word. Use another --method."
        )
    return None


def check_method(
    claim: Claim,
    method: str | None,
    *,
    baseline: str | None = None,
    steps: int | None = None,
) -> str:
    """The method for a claim, if there is such a one and it has these options.

    Raises:
        ConfigError: there is not, or it has not; with the nearest name.
    """
    method = method or usual_method(claim)
    if method not in METHODS:
        near = get_close_matches(str(method), METHODS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"--method {method!r} is not one of {', '.join(METHODS)}.{hint}")
    if (reason := _unfit(claim, method)) is not None:
        raise ConfigError(reason)
    if baseline is not None and baseline not in BASELINES:
        raise ConfigError(f"--baseline {baseline!r} is not one of {', '.join(BASELINES)}.")
    if baseline is not None and method in ("gradient", "rollout"):
        raise ConfigError(f"--baseline has no meaning for {method}. Leave it out.")
    if baseline == "zero" and method == METHODS[0] and claim.is_scale_free:
        raise ConfigError(
            "This model normalises every word vector by itself, so nothing changes on the way from "
            "a zero vector until its very start. Use --baseline mask or pad."
        )
    if steps is not None and method != METHODS[0]:
        raise ConfigError(f"--steps are those of {METHODS[0]}, not of {method}. Leave it out.")
    if steps is not None and not 1 <= steps <= 10_000:
        raise ConfigError(f"--steps is {steps}; give 1 to 10,000.")
    return method


def explained(
    predictor: Predictor,
    claim: Claim,
    *,
    method: str | None = None,
    baseline: str | None = None,
    steps: int | None = None,
) -> Explanation:
    """As `explain`, for a claim of this predictor that is already made."""
    model = differentiable(predictor).eval()
    method = check_method(claim, method, baseline=baseline, steps=steps)
    if method == "rollout":
        pieces = rolled_out(model, claim)
        return Explanation(claim, method, _by_word(pieces, claim), pieces)
    name, start_nE, end_nE = _ends(predictor, model, claim, baseline, method)
    both = _numbers(model, claim, torch.stack([end_nE, start_nE]))
    value, empty = both.tolist()
    if method == "leave-one-out":
        shares = _left_out(model, claim, start_nE, end_nE, value)
        pieces = np.zeros(claim.num_tokens)
        for word, share in zip(claim.words, shares.tolist(), strict=True):
            pieces[list(word.rows)] = share / len(word.rows)
        known = None if claim.kind == "similarity" else empty
        return Explanation(claim, method, shares, pieces, value, known, name)
    if method == "gradient":
        pieces = _integral(model, claim, start_nE, end_nE, np.ones(1), np.ones(1))
        return Explanation(claim, method, _by_word(pieces, claim), pieces, value, empty, name)
    count = steps or FIRST_STEPS
    while True:
        nodes, weights = np.polynomial.legendre.leggauss(count)
        pieces = _integral(model, claim, start_nE, end_nE, (nodes + 1) / 2, weights / 2)
        error = abs(pieces.sum() - (value - empty))
        if steps or count >= LAST_STEPS or error <= WANTED_ERROR * abs(value - empty):
            break
        count *= 2
    shares = _by_word(pieces, claim)
    return Explanation(claim, method, shares, pieces, value, empty, name, count)


def _ends(
    predictor: Predictor, model: Model, claim: Claim, baseline: str | None, method: str
) -> tuple[str, Tensor, Tensor]:
    """The baseline's name, and the word vectors there and in the text, (n, E) both."""
    table = model.encoder.embeddings.word.weight.detach()
    end_nE = table[claim.batch(1).input_ids.to(table.device)]
    if method == "gradient":
        return "zero", torch.zeros_like(end_nE), end_nE
    tokenizer = predictor.tokenizer
    ids = {"mask": tokenizer.mask_id, "pad": tokenizer.pad_id, "zero": None}
    name = baseline or ("zero" if tokenizer.mask_id is None else "mask")
    number = ids[name]
    if name != "zero" and number is None:
        raise ConfigError(f"The vocabulary of this model has no {name} token. Use --baseline zero.")
    rows = [row for word in claim.words for row in word.rows]
    start_nE = end_nE.clone()
    start_nE[rows] = 0.0 if number is None else table[number]
    return name, start_nE, end_nE


def _numbers(model: Model, claim: Claim, vectors_SnE: Tensor) -> Tensor:
    """The claim's number for every filling, float64 (S,) on the host."""
    size = max(1, _TOKENS_WITHOUT // claim.num_tokens)
    with torch.no_grad():
        return torch.cat(
            [claim.numbers(model, part) for part in torch.split(vectors_SnE, size)]
        ).cpu()


def _left_out(
    model: Model, claim: Claim, start_nE: Tensor, end_nE: Tensor, value: float
) -> np.ndarray:
    """By how much the number falls when one word gives way, float64 (W,)."""
    found = []
    size = max(1, _TOKENS_WITHOUT // claim.num_tokens)
    for begin in range(0, len(claim.words), size):
        some = claim.words[begin : begin + size]
        filled = end_nE.repeat(len(some), 1, 1)
        for own_nE, word in zip(filled, some, strict=True):
            rows = list(word.rows)
            own_nE[rows] = start_nE[rows]
        found.append(value - _numbers(model, claim, filled).numpy())
    return np.concatenate(found)


def _integral(
    model: Model,
    claim: Claim,
    start_nE: Tensor,
    end_nE: Tensor,
    nodes: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """(end - start) times the weighted sum of the gradients on the way, float64 (n,).

    Source: Sundararajan et al. 2017, equations 1 and 3, with a better rule than Riemann's.

    Args:
        nodes: shares of the way from start to end.
        weights: of the gradient at each.
    """
    way_nE = end_nE - start_nE
    total_nE = torch.zeros_like(way_nE, dtype=torch.float64)
    size = max(1, _TOKENS_WITH_TAPE // claim.num_tokens)
    for begin in range(0, len(nodes), size):
        part = torch.from_numpy(nodes[begin : begin + size]).to(way_nE)
        share = torch.from_numpy(weights[begin : begin + size]).to(way_nE.device)
        points = (start_nE + part[:, None, None] * way_nE).requires_grad_()
        with torch.enable_grad():
            number = claim.numbers(model, points)
            (gradient,) = torch.autograd.grad(number.sum(), points)
            total_nE += torch.einsum("s,sne->ne", share, gradient.double())
    return (total_nE * way_nE.double()).sum(-1).cpu().numpy()


def _by_word(pieces: np.ndarray, claim: Claim) -> np.ndarray:
    return np.array([pieces[list(word.rows)].sum() for word in claim.words])
