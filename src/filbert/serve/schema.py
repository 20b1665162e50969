"""What requests hold: the source of the checks and of /openapi.json.

Numbers that the operator sets (how many texts, how long) are no part of it: a body beyond them is
well formed and gets 413. What bounds the work of checking does stand here: a list ends its check
at the first wrong entry and has a greatest length, and unions try their types in order. Else a body
of two megabytes could hold a million mistakes, which takes minutes to list.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from filbert.serve.settings import MOST_INPUTS
from filbert.text.tokenizer import without_halves

# Told to readers, but checked by the routes, which answer with 400 and say which text it is.
_FILLED: dict[str, Any] = {"minLength": 1}
_SOME: dict[str, Any] = {"minItems": 1}

# More keys than any body has.
_MOST_KEYS = 50
TOO_MANY = "too_many_entries"

_T = TypeVar("_T")


def _bounded(entries: Any) -> Any:
    """What is longer than any request needs is refused before its entries are looked at."""
    if isinstance(entries, list) and len(entries) > MOST_INPUTS:
        raise PydanticCustomError(TOO_MANY, "a list has too many entries")
    return entries


Some = Annotated[
    list[_T], Field(fail_fast=True, json_schema_extra=_SOME), BeforeValidator(_bounded)
]
Either = Annotated[_T, Field(union_mode="left_to_right")]


def _whole(value: Any) -> Any:
    """JSON knows no integers: 1.0 is one, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_whole)]

# JSON can hold halves of surrogate pairs, and no answer that quotes a text could.
Line = Annotated[
    str,
    AfterValidator(without_halves),
    Field(json_schema_extra=_FILLED, examples=["What is deep learning?"]),
]
Lines = Some[Line]
Id = Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_whole)]
Ids = Some[Id]
Model = Annotated[str | None, Field(description="A name of /info; the first that can do it.")]
Layers = Some[Whole]
Direction = Literal["left", "right", "Left", "Right"]


class _Body(BaseModel):
    """A request's body: nothing is converted, and unknown keys are ignored as elsewhere."""

    model_config = ConfigDict(strict=True)

    model: Model = None


class _Closed(BaseModel):
    """An object in which a misspelt key is refused."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, content: Any) -> Any:
        if isinstance(content, dict) and len(content) > _MOST_KEYS:
            raise ValueError(f"an object has {len(content)} keys")
        return content


class _OwnBody(_Closed):
    """A body of the dialect that is ours."""

    model: Model = None


class Cutting(_Body):
    """What happens to texts that are too long.

    `truncate` false refuses them with 413. The side that loses tokens is `truncation_direction`.
    """

    truncate: bool | None = None
    truncation_direction: Direction = "right"


class Prompted(Cutting):
    """The same for texts that may get a prompt of the model put before them."""

    prompt_name: str | None = None


# text-embeddings-inference


class EmbedAllRequest(Prompted):
    """Texts, or token ids without the special tokens."""

    inputs: Either[Line | Ids | Some[Either[Line | Ids]]]


class EmbedRequest(EmbedAllRequest):
    """The same, with how a vector is made."""

    normalize: bool = True
    dimensions: Annotated[Count | None, Field(description="Keep only the first ones.")] = None
    pooling: Annotated[str | None, Field(examples=["mean"])] = None
    layers: Layers | None = None


Pair = Annotated[list[Line], Field(fail_fast=True, min_length=2, max_length=2)]
One = Annotated[list[Line], Field(fail_fast=True, min_length=1, max_length=1)]


class Choices(_Closed):
    """A context, which may be empty, and what may go with it, for models of multiple choice."""

    context: Annotated[str, AfterValidator(without_halves)]
    choices: Some[Line]


class PredictRequest(Cutting):
    """A text (alone or in a list), a pair, or a list of [text] and [text, text]; or choices."""

    inputs: Either[Line | One | Pair | Choices | Some[Either[One | Pair | Choices]]]
    raw_scores: bool = False


class RerankRequest(Cutting):
    """A query, and texts to be put in order."""

    query: Line
    texts: Lines
    raw_scores: bool = False
    return_text: bool = False


class SimilarityInput(BaseModel):
    """One sentence, and those it is compared with."""

    model_config = ConfigDict(strict=True)

    source_sentence: Line
    sentences: Lines


class SimilarityRequest(_Body):
    """What is compared, and how."""

    inputs: SimilarityInput
    parameters: Prompted | None = None


class TokenizeRequest(_Body):
    """Texts to cut into tokens."""

    inputs: Either[Line | Lines]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeRequest(_Body):
    """Token ids to read."""

    ids: Either[Ids | Some[Ids]]
    skip_special_tokens: bool = True


# Ours


class FillRequest(_OwnBody):
    """Texts with [MASK] in them."""

    inputs: Either[Line | Lines]
    top: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)] = 5


class TagRequest(_OwnBody):
    """Texts; a list within the list is one text as its words."""

    inputs: Either[Line | Some[Either[Line | Lines]]]


class AnswerRequest(_OwnBody):
    """One question, and a text or several to find its answer in."""

    question: Line
    context: Either[Line | Lines]


class AttentionRequest(_OwnBody):
    """A text or a pair, and which layers and heads; all when not given."""

    inputs: Either[Line | Pair]
    layers: Layers | None = None
    heads: Layers | None = None
