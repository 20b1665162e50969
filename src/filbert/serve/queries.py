"""Queries: what a request asks of a model.

A query turns inputs into sequences, sequences into outputs, and outputs into results. The first and
last step run in threads next to the model; `outputs` gets sequences of many requests at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.data.examples import Example, rows_of
from filbert.data.texts import cleaned, text_of, text_row
from filbert.errors import ConfigError, FormatError
from filbert.inference.fill import best_entries, candidates_of, check_fill, mask_examples
from filbert.inference.forward import forward, run_model
from filbert.inference.onnx_session import HIDDEN
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import attention_maps, layers_and_heads
from filbert.model.heads import Model
from filbert.tasks.base import cleaning_of
from filbert.tasks.rows import row_of_value
from filbert.text.masks import check_masked
from filbert.text.tokenizer import Encoding

# An input and its number in the request.
NumberedInput = tuple[int, Any]


class Result(NamedTuple):
    """The result for one input.

    Attributes:
        value: A prediction (dict), a vector (ndarray) or whatever the query produces.
        num_tokens: Tokens of the whole input, before any cutting.
        truncated: Whether the input was cut.
    """

    value: Any
    num_tokens: int
    truncated: bool


class PreparedInputs(NamedTuple):
    """Tokenised inputs.

    Attributes:
        examples: One or several sequences per input, in order.
        context: Whatever else `results` needs.
    """

    examples: list[Example]
    context: Any = None


class Query(Protocol):
    """One kind of question with its options. Equal queries share forward passes."""

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:
        """Tokenise inputs.

        Raises:
            InputError: An input has the wrong kind; the message has its number.
        """
        ...

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Run the model; one output per example, in order. Only the model's thread calls this."""
        ...

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:
        """One result per input, in order."""
        ...


@dataclass(frozen=True)
class PredictQuery:
    """Predictions of the task; with `raw` they also contain `logits` of classes or choices."""

    predictor: Predictor
    raw: bool = False

    def __post_init__(self) -> None:
        kind = self.predictor.known_task().spec.head_kind
        if self.raw and kind not in ("sequence", "choices"):
            raise ConfigError("This model does not have one score per class.")

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:  # noqa: D102
        task = self.predictor.known_task()
        return PreparedInputs(
            self.predictor.row_examples([row_of_value(task, item, i) for i, item in inputs])
        )

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:  # noqa: D102
        predictor = self.predictor
        return run_model(
            predictor.model,
            examples,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
        )

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:  # noqa: D102
        task = self.predictor.known_task()
        predictions = task.decode(outputs, prepared.examples)
        if self.raw:
            rows = torch.split(torch.stack([*outputs]).float(), [*rows_of(prepared.examples)])
            logits = rows if task.spec.head_kind == "choices" else [row.mean(0) for row in rows]
            pairs = zip(predictions, logits, strict=True)
            predictions = [one | {"logits": values.tolist()} for one, values in pairs]
        return _from_predictions(predictions)


@dataclass(frozen=True)
class EmbedQuery:
    """The vector of a text or pair, float32 (H,); with pooling "none" a matrix (tokens, H)."""

    predictor: Predictor
    pooling: str | None = None
    normalize: bool | None = None
    layers: tuple[int, ...] = (-1,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        self.predictor.vector_size(self.pooling, self.layers)

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:
        """Make one sequence per input. A list of token ids is used as it is."""
        ids = {at: item for at, (_, item) in enumerate(inputs) if _is_ids(item)}
        texts = [
            "" if at in ids else text_of(text_row(item, i)) for at, (i, item) in enumerate(inputs)
        ]
        predictor = self.predictor
        examples = predictor.text_examples(texts, pooling=self.pooling, layers=self.layers)
        for at, item in ids.items():
            encoding = predictor.tokenizer.encode_ids(item, max_length=predictor.max_length)
            examples[at] = _example(at, encoding)
        return PreparedInputs(examples)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:  # noqa: D102
        return self.predictor.vectors(
            examples, pooling=self.pooling, normalize=self.normalize, layers=self.layers
        )

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:  # noqa: D102
        return _one_per_example(prepared, outputs)


@dataclass(frozen=True)
class FillQuery:
    """Candidates for the masks of a text; see `fill.fill_masks`."""

    predictor: Predictor
    top: int = 5

    def __post_init__(self) -> None:
        check_fill(self.predictor, self.top)

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:  # noqa: D102
        predictor = self.predictor
        texts = [check_masked(text, predictor.tokenizer, f"Item {i}") for i, text in inputs]
        masked, examples = mask_examples(texts, predictor.tokenizer, predictor.max_length)
        return PreparedInputs(examples, masked)

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:  # noqa: D102
        return best_entries(self.predictor, examples, self.top)

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:  # noqa: D102
        predictor = self.predictor
        candidates = candidates_of(
            prepared.context, prepared.examples, outputs, predictor.tokenizer, predictor.max_length
        )
        return _from_predictions(candidates)


@dataclass(frozen=True)
class AttentionQuery:
    """The attention maps of a text or pair, float32 (layers, heads, n, n), cut to `max_length`."""

    predictor: Predictor
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        chosen = layers_and_heads(self.predictor.model, self.layers, self.heads)
        for name, numbers in zip(("layers", "heads"), chosen, strict=True):
            object.__setattr__(self, name, tuple(numbers))

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:  # noqa: D102
        predictor = self.predictor
        clean = cleaning_of(predictor.task)
        texts = [cleaned(text_of(text_row(item, i)), clean) for i, item in inputs]
        limit = min(predictor.max_length, self.max_length or predictor.max_length)
        encodings = predictor.tokenizer.encode(texts, max_length=limit)
        return PreparedInputs([_example(i, encoding) for i, encoding in enumerate(encodings)])

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:
        """Run one sequence at a time, because maps are large."""
        model = cast(Model, self.predictor.model)

        def maps(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
            return tuple(attention_maps(model, batch, self.layers, self.heads))

        outputs = forward(
            model,
            examples,
            maps,
            max_tokens=1,
            precision=self.predictor.precision,
            one_at_a_time=True,
        )
        by_example = {index: maps.numpy() for (index,), (maps,) in outputs}
        return [by_example[index] for index in range(len(examples))]

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:  # noqa: D102
        return _one_per_example(prepared, outputs)


@dataclass(frozen=True)
class HealthQuery:
    """Whether a forward pass over an empty text gives finite numbers."""

    predictor: Predictor

    def prepare(self, inputs: Sequence[NumberedInput]) -> PreparedInputs:  # noqa: D102
        encodings = self.predictor.tokenizer.encode([text for _, text in inputs])
        return PreparedInputs([_example(0, encoding) for encoding in encodings])

    def outputs(self, examples: Sequence[Example]) -> Sequence[Any]:  # noqa: D102
        predictor = self.predictor

        def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
            output = predictor.model(batch)
            parts = output if isinstance(output, tuple) else (output,)
            return (torch.stack([part.isfinite().all() for part in parts]).all(),)

        outputs = forward(
            predictor.model,
            examples,
            read,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
        )
        return [all(bool(is_finite) for _, (is_finite,) in outputs)] * len(examples)

    def results(self, prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:  # noqa: D102
        return _one_per_example(prepared, outputs)


_KINDS = {
    "predict": PredictQuery,
    "embed": EmbedQuery,
    "fill": FillQuery,
    "attention": AttentionQuery,
}


def query_of(predictor: Predictor, kind: str, options: Mapping[str, Any]) -> Query:
    """Make the query of a kind ("predict", "embed", "fill", "attention") with its options.

    Raises:
        ConfigError: The model does not support it, or an option is out of range.
    """
    query: Query = _KINDS[kind](predictor, **options)
    return query


def abilities(predictor: Predictor) -> tuple[str, ...]:
    """What a model can be asked for, the purpose of its head first.

    "predict" (classes or a value), "tag", "answer", "choose" or "fill" by its head; "embed",
    "similarity" and "attention" if its hidden states are available; always "tokenize".
    """
    names = {"sequence": "predict", "tokens": "tag", "spans": "answer", "choices": "choose"}
    kind = None if predictor.task is None else predictor.task.spec.head_kind
    can = [] if kind is None else [names[kind]]
    with suppress(ConfigError, FormatError):
        check_fill(predictor)
        can.append("fill")
    model = predictor.model
    if isinstance(model, Model) or HIDDEN in model.session.outputs:
        can += ["embed", "similarity"]
    can.append("tokenize")
    with suppress(ConfigError):
        layers_and_heads(model)
        can.append("attention")
    return tuple(can)


def _is_ids(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and isinstance(item[0], int)


def _example(row: int, encoding: Encoding) -> Example:
    return Example(row, encoding.input_ids, encoding.token_type_ids, encoding.num_tokens)


def _from_predictions(predictions: Iterable[dict[str, Any]]) -> list[Result]:
    return [Result(one, one["num_tokens"], one["truncated"]) for one in predictions]


def _one_per_example(prepared: PreparedInputs, outputs: Sequence[np.ndarray]) -> list[Result]:
    pairs = zip(prepared.examples, outputs, strict=True)
    return [Result(output, example.num_tokens, example.truncated) for example, output in pairs]
