"""What can be asked of a model: how inputs become sequences, sequences outputs, outputs answers.

The first and the last step run beside the model, in other threads; `outputs` takes sequences of
many requests at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch

from filbert.data.examples import Example, collate, rows_of
from filbert.data.texts import cleaned, text_of, text_row
from filbert.errors import ConfigError, FormatError, InputError
from filbert.fill import Scorer, candidates_of, mask_examples, scorer_of
from filbert.inspect.attention import attention_maps, layers_and_heads
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.speed.execution import run_model
from filbert.speed.onnx_session import HIDDEN
from filbert.text.masks import check_masked


class Done(NamedTuple):
    """The answer to one input.

    Attributes:
        value: what the kind of work gives; see `Predictions`, `Vectors`, `Fillings`, `Maps`.
        num_tokens: of the whole input, before any cutting.
        truncated: it was cut.
    """

    value: Any
    num_tokens: int
    truncated: bool


class Prepared(NamedTuple):
    """Inputs as the model reads them.

    Attributes:
        examples: their sequences, one or several an input, in order.
        about: what else the answers need.
    """

    examples: list[Example]
    about: Any = None


class Work(Protocol):
    """A kind of question with its options. Equal works go through the model together.

    Attributes:
        is_small: its answers are small enough to be kept.
    """

    @property
    def is_small(self) -> bool: ...  # noqa: D102

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """Inputs with their numbers in the request, tokenised.

        Raises:
            InputError: one is of another kind; with its number.
        """
        ...

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """One output an example, in order; in the model's thread."""
        ...

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """One answer an input, in order."""
        ...


@dataclass(frozen=True)
class Predictions:
    """The task's answers, in the shape of INTERFACE; items as `Predictor.predict` takes them.

    With `raw` they also hold `logits`: of the classes, or of the choices.
    """

    predictor: Predictor
    raw: bool = False

    def __post_init__(self) -> None:
        kind = self.predictor.known_task().head_kind
        if self.raw and kind not in ("sequence", "choices"):
            raise ConfigError("This model has no one score for each class.")

    is_small = True

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """Rows, and maybe several windows of each."""
        task = self.predictor.known_task()
        return Prepared(self.predictor.row_examples([task.row(item, i) for i, item in inputs]))

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """What the head says of every sequence."""
        predictor = self.predictor
        return run_model(
            predictor.model,
            examples,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
        )

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """Predictions."""
        task = self.predictor.known_task()
        found = task.decode(outputs, prepared.examples)
        if self.raw:
            rows = torch.split(torch.stack([*outputs]).float(), [*rows_of(prepared.examples)])
            logits = rows if task.head_kind == "choices" else [row.mean(0) for row in rows]
            found = [a | {"logits": one.tolist()} for a, one in zip(found, logits, strict=True)]
        return [Done(answer, answer["num_tokens"], answer["truncated"]) for answer in found]


@dataclass(frozen=True)
class Vectors:
    """The vector of a text or pair, float32 (H,); its matrix (tokens, H) with pooling "none"."""

    predictor: Predictor
    pooling: str | None = None
    normalize: bool | None = None
    layers: tuple[int, ...] = (-1,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        self.predictor.vector_size(self.pooling, self.layers)

    @property
    def is_small(self) -> bool:
        """One vector a text, of one layer."""
        return self.pooling != "none" and len(self.layers) == 1

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """A sequence each; a list of token ids stands for the text that it was made of."""
        ids = {at: item for at, (_, item) in enumerate(inputs) if _holds_ids(item)}
        texts = [
            "" if at in ids else text_of(text_row(item, i)) for at, (i, item) in enumerate(inputs)
        ]
        predictor = self.predictor
        made = predictor.text_examples(texts, pooling=self.pooling, layers=self.layers)
        for at, item in ids.items():
            e = predictor.tokenizer.encode_ids(item, max_length=predictor.max_length)
            made[at] = Example(at, e.input_ids, e.token_type_ids, e.num_tokens)
        return Prepared(made)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Vectors or matrices."""
        return self.predictor.vectors(
            examples, pooling=self.pooling, normalize=self.normalize, layers=self.layers
        )

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """The same."""
        return _one_each(prepared, outputs)


# Answers with more are not kept.
_FEW_CANDIDATES = 20


@dataclass(frozen=True)
class Fillings:
    """Candidates for the masks of a text; see `fill.fill_masks`."""

    predictor: Predictor
    top: int = 5

    def __post_init__(self) -> None:
        _scorer(self.predictor).with_top(self.top)

    @property
    def is_small(self) -> bool:
        """Each candidate repeats its sentence."""
        return self.top <= _FEW_CANDIDATES

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """Sequences around the masks."""
        predictor = self.predictor
        texts = [check_masked(text, predictor.tokenizer, f"Item {i}") for i, text in inputs]
        masked, examples = mask_examples(texts, predictor.tokenizer, predictor.max_length)
        return Prepared(examples, masked)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Scores and ids of the likeliest entries."""
        return _scorer(self.predictor).with_top(self.top).best(examples)

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """Candidates as words in their sentences."""
        predictor = self.predictor
        found = candidates_of(
            prepared.about, prepared.examples, outputs, predictor.tokenizer, predictor.max_length
        )
        return [Done(answer, answer["num_tokens"], answer["truncated"]) for answer in found]


# Made once a model: it goes through the whole vocabulary.
_scorers: WeakKeyDictionary[Predictor, Scorer] = WeakKeyDictionary()


def _scorer(predictor: Predictor) -> Scorer:
    if predictor not in _scorers:
        _scorers[predictor] = scorer_of(
            predictor.model,
            predictor.tokenizer,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
            top=1,
        )
    return _scorers[predictor]


class Attended(NamedTuple):
    """What every head looked at.

    Attributes:
        input_ids: of the tokens, integers (n,).
        maps: float32 (layers, heads, n, n); see `inspect.attention`.
    """

    input_ids: np.ndarray
    maps: np.ndarray


@dataclass(frozen=True)
class Maps:
    """The attention maps of a text or pair as an `Attended`, cut to `max_length` tokens."""

    predictor: Predictor
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    max_length: int | None = None

    is_small = False

    def __post_init__(self) -> None:
        chosen = layers_and_heads(self.predictor.model, self.layers, self.heads)
        for name, numbers in zip(("layers", "heads"), chosen, strict=True):
            object.__setattr__(self, name, tuple(numbers))

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """A sequence each."""
        predictor = self.predictor
        clean = getattr(predictor.task, "clean", None)
        texts = [cleaned(text_of(text_row(item, i)), clean) for i, item in inputs]
        limit = min(predictor.max_length, self.max_length or predictor.max_length)
        found = predictor.tokenizer.encode(texts, max_length=limit)
        return Prepared(
            [Example(i, e.input_ids, e.token_type_ids, e.num_tokens) for i, e in enumerate(found)]
        )

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Maps, one sequence after the other: they are large."""
        predictor = self.predictor
        model = cast(Model, predictor.model)
        found = []
        for example in examples:
            batch = collate([example]).to(predictor.device)
            with torch.inference_mode(), predictor.precision.autocast(predictor.device):
                (maps,) = attention_maps(model, batch, self.layers, self.heads)
            found.append(Attended(example.input_ids, maps.numpy()))
        return found

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """The same."""
        return _one_each(prepared, outputs)


@dataclass(frozen=True)
class Probe:
    """A forward pass over an empty text, to see that the model still works."""

    predictor: Predictor

    is_small = False

    def prepare(self, inputs: Sequence[tuple[int, Any]]) -> Prepared:
        """A sequence of special tokens."""
        found = self.predictor.tokenizer.encode([text for _, text in inputs])
        return Prepared([Example(0, e.input_ids, e.token_type_ids, e.num_tokens) for e in found])

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Whether the model's output is finite."""
        predictor = self.predictor
        batch = collate(examples).to(predictor.device)
        with torch.inference_mode(), predictor.precision.autocast(predictor.device):
            output = predictor.model(batch)
        parts = output if isinstance(output, tuple) else (output,)
        return [all(bool(part.isfinite().all()) for part in parts)] * len(examples)

    def answers(self, prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
        """The same."""
        return _one_each(prepared, outputs)


def _holds_ids(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], int)


class TooLong(InputError):
    """The model would have to read more for one input than it may."""


def check_lengths(
    inputs: Sequence[tuple[int, Any]], examples: Sequence[Example], most: int
) -> None:
    """See that no input became more than `most` tokens, all of its windows together.

    Raises:
        TooLong: one did; with its number.
    """
    sizes = [0] * len(inputs)
    for example in examples:
        sizes[example.row] += len(example.input_ids)
    for (number, _), size in zip(inputs, sizes, strict=True):
        if size > most:
            raise TooLong(
                f"Input {number} would be {size:,} tokens to read; at most {most:,} are. Send less "
                "at once."
            )


def _one_each(prepared: Prepared, outputs: Sequence[Any]) -> list[Done]:
    pairs = zip(prepared.examples, outputs, strict=True)
    return [Done(output, example.num_tokens, example.truncated) for example, output in pairs]


_KINDS = {"predict": Predictions, "embed": Vectors, "fill": Fillings, "attention": Maps}


def work_of(predictor: Predictor, kind: str, options: Mapping[str, Any]) -> Work:
    """A kind of question with its options.

    Args:
        predictor: who is asked.
        kind: "predict" with raw; "embed" with pooling, normalize, layers; "fill" with top;
            "attention" with layers, heads, max_length.
        options: of the kind.

    Raises:
        ConfigError: the model cannot do it, or an option is out of range.
    """
    made: Work = _KINDS[kind](predictor, **options)
    return made


def abilities(predictor: Predictor) -> tuple[str, ...]:
    """What a model can be asked for, its foremost ability first.

    "predict" (classes or a value), "tag", "answer", "choose" and "fill" where it has the head,
    "embed", "similarity" and "attention" where it shows its hidden states; always "tokenize".
    """
    found = []
    names = {
        "classification": "predict",
        "regression": "predict",
        "tagging": "tag",
        "span_qa": "answer",
        "multiple_choice": "choose",
    }
    if predictor.task is not None and predictor.task.name in names:
        found.append(names[predictor.task.name])
    with suppress(ConfigError, FormatError):
        _scorer(predictor)
        found.append("fill")
    model = predictor.model
    if isinstance(model, Model) or HIDDEN in model.session.outputs:
        found += ["embed", "similarity"]
    found.append("tokenize")
    with suppress(ConfigError):
        layers_and_heads(model)
        found.append("attention")
    return tuple(found)
