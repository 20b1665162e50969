"""Queries: what a request asks of a model.

A query turns inputs into sequences, sequences into outputs, and outputs into results. The first and
last step run in threads next to the model; the second gets sequences of many requests at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from filbert.batch import PackedBatch
from filbert.data.examples import Example, rows_of
from filbert.data.texts import text_of, text_row
from filbert.errors import ConfigError, FormatError
from filbert.inference.fill import best_entries, candidates_of, check_fill, mask_examples
from filbert.inference.forward import forward
from filbert.inference.onnx_session import HIDDEN
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import attention_maps, layers_and_heads
from filbert.model.heads import Model
from filbert.tasks.rows import row_of_value
from filbert.text.masks import check_masked

# An input and its number in the request.
NumberedInput = tuple[int, Any]


class Result(NamedTuple):
    """The result for one input.

    Attributes:
        num_tokens: Tokens of the whole input, before any cutting.
        truncated: Whether the input was cut.
    """

    value: Any
    num_tokens: int
    truncated: bool


class PreparedInputs(NamedTuple):
    """Tokenised inputs."""

    examples: list[Example]
    context: Any = None


@dataclass(frozen=True)
class Query:
    """One kind of question with its options.

    Attributes:
        key: Equal for queries that may share a forward pass.
        prepare: Tokenises inputs. Raises InputError with the number of a wrong one.
        outputs: Runs the model; one output per example, in order. Only the model's thread calls it.
        results: From prepared inputs and outputs, one result per input, in order.
    """

    key: tuple[Any, ...]
    prepare: Callable[[Sequence[NumberedInput]], PreparedInputs]
    outputs: Callable[[Sequence[Example]], Sequence[Any]]
    results: Callable[[PreparedInputs, Sequence[Any]], list[Result]]


def query_of(predictor: Predictor, kind: str, **options: Any) -> Query:
    """Make a query.

    Args:
        kind: "predict", "embed", "fill", "attention" or "health".
        options: Keywords of the function with that name.

    Raises:
        ConfigError: The model does not support it, or an option is out of range.
    """
    key = (kind, *((k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()))
    return Query(key, *_KINDS[kind](predictor, **options))


def _predict(predictor: Predictor, raw: bool = False) -> tuple[Any, ...]:
    """Return the predictions of the task; with `raw` also the `logits` of classes or choices."""
    task = predictor.known_task()
    kind = task.spec.head_kind
    if raw and kind not in ("sequence", "choices"):
        raise ConfigError("This model does not have one score per class.")

    def prepare(inputs: Sequence[NumberedInput]) -> PreparedInputs:
        # A list of token ids is one sequence as it is.
        if inputs and _is_ids(inputs[0][1]):
            return PreparedInputs([_ids_example(predictor, *numbered) for numbered in inputs])
        rows = [row_of_value(task, item, number) for number, item in inputs]
        return PreparedInputs(predictor.row_examples(rows))

    def results(prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:
        predictions = task.decode(outputs, prepared.examples)
        if raw:
            rows = torch.split(torch.stack([*outputs]).float(), [*rows_of(prepared.examples)])
            logits = rows if kind == "choices" else [row.mean(0) for row in rows]
            pairs = zip(predictions, logits, strict=True)
            predictions = [one | {"logits": values.tolist()} for one, values in pairs]
        return _from_predictions(predictions)

    return prepare, predictor.outputs, results


def _embed(predictor: Predictor, **how: Any) -> tuple[Any, ...]:
    """Return the vector of a text, pair or ids, float32 (H,); with pooling "none" (tokens, H)."""
    predictor.vector_size(**how)

    def prepare(inputs: Sequence[NumberedInput]) -> PreparedInputs:
        texts = ["" if _is_ids(item) else text_of(text_row(item, i)) for i, item in inputs]
        examples = predictor.text_examples(texts, **how)
        for at, (_, item) in enumerate(inputs):
            if _is_ids(item):
                examples[at] = _ids_example(predictor, at, item)
        return PreparedInputs(examples)

    return prepare, partial(predictor.vectors, **how), _one_per_example


def _fill(predictor: Predictor, top: int = 5) -> tuple[Any, ...]:
    """Return candidates for the masks of a text; see `fill.fill_masks`."""
    check_fill(predictor, top)

    def prepare(inputs: Sequence[NumberedInput]) -> PreparedInputs:
        texts = [check_masked(text, predictor.tokenizer, f"Item {i}") for i, text in inputs]
        masked, examples = mask_examples(predictor, texts)
        return PreparedInputs(examples, masked)

    def results(prepared: PreparedInputs, outputs: Sequence[Any]) -> list[Result]:
        masked, examples = prepared.context, prepared.examples
        return _from_predictions(candidates_of(predictor, masked, examples, outputs))

    return prepare, lambda examples: best_entries(predictor, examples, top), results


def _attention(
    predictor: Predictor,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    max_length: int | None = None,
) -> tuple[Any, ...]:
    """Return the attention maps of a text or pair, float32 (layers, heads, n, n)."""
    model = predictor.model
    layers, heads = layers_and_heads(model, layers, heads)
    limit = min(predictor.max_length, max_length or predictor.max_length)

    def prepare(inputs: Sequence[NumberedInput]) -> PreparedInputs:
        texts = [text_of(text_row(item, i), predictor.cleaning) for i, item in inputs]
        encodings = predictor.tokenizer.encode(texts, max_length=limit)
        return PreparedInputs([Example.of(i, encoding) for i, encoding in enumerate(encodings)])

    def maps(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        return tuple(attention_maps(cast(Model, model), batch, layers, heads))

    def outputs(examples: Sequence[Example]) -> Sequence[Any]:
        # One sequence at a time, because maps are large.
        batches = forward(
            model, examples, maps, max_tokens=1, precision=predictor.precision, one_at_a_time=True
        )
        by_example = {index: maps.numpy() for (index,), (maps,) in batches}
        return [by_example[index] for index in range(len(examples))]

    return prepare, outputs, _one_per_example


def _health(predictor: Predictor) -> tuple[Any, ...]:
    """Return whether a forward pass over an empty text gives finite numbers."""

    def prepare(inputs: Sequence[NumberedInput]) -> PreparedInputs:
        (encoding,) = predictor.tokenizer.encode([""])
        return PreparedInputs([Example.of(0, encoding)])

    def read(batch: PackedBatch, chosen: Sequence[Example]) -> tuple[Tensor, ...]:
        output = predictor.model(batch)
        parts = output if isinstance(output, tuple) else (output,)
        return (torch.stack([part.isfinite().all() for part in parts]).all(),)

    def outputs(examples: Sequence[Example]) -> Sequence[Any]:
        batches = forward(
            predictor.model,
            examples,
            read,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
        )
        return [all(bool(is_finite) for _, (is_finite,) in batches)] * len(examples)

    return prepare, outputs, _one_per_example


_KINDS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "predict": _predict,
    "embed": _embed,
    "fill": _fill,
    "attention": _attention,
    "health": _health,
}


def abilities(predictor: Predictor) -> tuple[str, ...]:
    """Return what a model can answer, the purpose of its head first.

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


def _ids_example(predictor: Predictor, row: int, ids: Sequence[int]) -> Example:
    return Example.of(row, predictor.tokenizer.encode_ids(ids, max_length=predictor.max_length))


def _from_predictions(predictions: Iterable[dict[str, Any]]) -> list[Result]:
    return [Result(one, one["num_tokens"], one["truncated"]) for one in predictions]


def _one_per_example(prepared: PreparedInputs, outputs: Sequence[np.ndarray]) -> list[Result]:
    pairs = zip(prepared.examples, outputs, strict=True)
    return [Result(output, example.num_tokens, example.truncated) for example, output in pairs]
