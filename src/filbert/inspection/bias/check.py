"""A bias check of one model: every test that its heads allow, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from filbert.errors import ConfigError, FormatError
from filbert.fill import masked_lm_part
from filbert.inspection.bias.association import Associated, associations
from filbert.inspection.bias.identity import Compared, compared, score_label, scoring_task
from filbert.inspection.bias.log_probability import Shifted, shifts
from filbert.inspection.bias.sentences import VECTORS
from filbert.inspection.bias.words import WordSets, read_words
from filbert.metrics.intervals import check
from filbert.predict import Predictor
from filbert.speed.onnx_session import SessionModel
from filbert.text.masks import mask_name

PARTS = ("associations", "log-probability", "identity-terms")

LIMITS = (
    "No figure here shows that a model is free of bias. The tests can find something, not its "
    "absence: they ask what they ask, in these words and these sentences, and others may show "
    "more, or less.",
    "An association in the vectors is no harm by itself, and says little about what a system that "
    "uses the model will do to people; the two were found hardly to go together (Goldfarb-Tarrant "
    "et al. 2021). Test the finished system on its own inputs too.",
    "An interval says what other words or sentences of the same kind would have changed. It knows "
    "nothing of other seeds, other training texts, other languages or other groups.",
    "With 8 words a side only large effects stand out, and a p-value that is not small is no proof "
    "that nothing is there. Look at the control first: a test that does not find that flowers are "
    "pleasanter than insects would not find much else.",
    "Names stand for groups only loosely, groups are more than the few named here, and people are "
    "in several of them at once. The word sets are of the United States and of English.",
    "Sentences made from templates are not how people write, and figures of this kind change with "
    "the templates (Delobelle et al. 2022).",
    "A figure of zero can be made to order. Do not train or choose a model by these figures: they "
    "would cease to measure anything.",
)


@dataclass(frozen=True, slots=True)
class BiasReport:
    """What the tests found.

    Attributes:
        model: as the user named it.
        words: what was asked.
        left_out: parts that the model's heads or the word sets do not allow, each with the reason.
        label: whose score the identity terms compare; None without them, and for regression.
        level: of all intervals.
        resamples, seed: of the draws.
        associations, log_probabilities, identity_terms: None for a part that was not run.
    """

    model: str
    words: WordSets
    left_out: Mapping[str, str]
    label: str | None
    level: float
    resamples: int
    seed: int
    associations: tuple[Associated, ...] | None
    log_probabilities: tuple[Shifted, ...] | None
    identity_terms: tuple[Compared, ...] | None

    def to_json(self) -> dict[str, Any]:
        """Everything, with the limits of what it says."""
        content = asdict(self)
        content["words"] = {
            "source": self.words.source,
            "bleached": self.words.bleached,
            "templates": self.words.templates,
        }
        return {**content, "limits": LIMITS}


def bias_check(
    predictor: Predictor,
    *,
    name: str = "the model",
    words: WordSets | None = None,
    parts: Sequence[str] | None = None,
    vectors: Sequence[str] = tuple(VECTORS),
    label: str | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> BiasReport:
    """Run the tests.

    Args:
        predictor: a loaded model.
        name: what to call it.
        words: what to ask; the built-in sets when not given.
        parts: some of `PARTS`; all that the model's heads and the word sets allow when not given.
        vectors: kinds of vectors for the associations, keys of `sentences.VECTORS`.
        label: whose score the identity terms compare.
        resamples: B, for the intervals.
        level: of the intervals.
        seed: of all draws; equal seeds give equal figures.

    Raises:
        ConfigError: an unknown part or kind of vectors, a part that was asked for and that the
            model's heads do not allow, or no part at all.
    """
    check(resamples, level)
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must not be negative.")
    _check_names("--only", parts or (), PARTS)
    _check_names("--vectors", vectors, tuple(VECTORS))
    words = words or read_words()
    left_out: dict[str, str] = {}
    asked = [part for part in PARTS if parts is None or part in parts]
    for part in asked:
        try:
            _check_part(part, predictor, words, label)
        except (ConfigError, FormatError) as error:
            # Who names a label wants the identity terms.
            if parts is not None or (part == "identity-terms" and label is not None):
                raise
            left_out[part] = str(error)
    if len(left_out) == len(asked):
        raise ConfigError("There is nothing to test: " + " ".join(dict.fromkeys(left_out.values())))
    draw: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
    with_vectors, with_masks, with_terms = (
        part in asked and part not in left_out for part in PARTS
    )
    groups, templates = words.groups, words.templates
    return BiasReport(
        name,
        words,
        left_out,
        score_label(scoring_task(predictor.task), label) if with_terms else None,
        level,
        resamples,
        seed,
        tuple(associations(predictor, words.associations, words.bleached, kinds=vectors, **draw))
        if with_vectors
        else None,
        tuple(shifts(predictor, words.log_probabilities, **draw)) if with_masks else None,
        tuple(compared(predictor, groups, templates, label=label, **draw)) if with_terms else None,
    )


def _check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    for one in given:
        if one not in known:
            near = get_close_matches(one, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{option} {one!r} is not one of {', '.join(known)}.{hint}")


def _check_part(part: str, predictor: Predictor, words: WordSets, label: str | None) -> None:
    """Refuse what cannot be done.

    Raises:
        ConfigError, FormatError: the model's heads, its vocabulary or the word sets forbid it.
    """
    if part == "associations":
        if isinstance(predictor.model, SessionModel):
            raise ConfigError("An exported graph shows no vectors of words.")
        _check_words("[[association]]", words.associations)
    elif part == "log-probability":
        masked_lm_part(predictor.model)
        mask_name(predictor.tokenizer)
        _check_words("[[log_probability]]", words.log_probabilities)
    else:
        score_label(scoring_task(predictor.task), label)
        _check_words("[[group]]", words.groups)


def _check_words(name: str, entries: Sequence[object]) -> None:
    if not entries:
        raise ConfigError(f"The word sets have no {name}.")
