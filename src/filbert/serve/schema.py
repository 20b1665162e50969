"""Bodies of requests: the source of validation and of /openapi.json.

Limits that the operator sets are not part of it, because a body beyond them is well formed and gets
413. The work of validation is limited here: a list stops at its first invalid entry and has a
maximum length, and unions try their types in order. Otherwise a body of 2 MB could have a million
errors, which take minutes to list.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from filbert.serve.settings import MAX_LIST
from filbert.text.tokenizer import without_halves

_T = TypeVar("_T")


def _to_int(value: Any) -> Any:
    """Return a number such as 1.0 as an integer, since JSON has no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _describe_list(schema: dict[str, Any]) -> None:
    schema["minItems"] = 1
    del schema["maxItems"]


# Empty texts and lists get 400 from the routes, so minLength and minItems are documentation only;
# a longer list gets 413.
Some = Annotated[
    list[_T], Field(fail_fast=True, max_length=MAX_LIST, json_schema_extra=_describe_list)
]
Either = Annotated[_T, Field(union_mode="left_to_right")]
Whole = Annotated[int, BeforeValidator(_to_int)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_to_int)]
# JSON may contain unpaired surrogates, which an answer that quotes the text could not.
AnyText = Annotated[str, AfterValidator(without_halves)]
Line = Annotated[AnyText, Field(json_schema_extra={"minLength": 1})]
Lines = Some[Line]
Ids = Some[Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_to_int)]]
Numbers = Some[Whole]
Dimensions = Annotated[Count | None, Field(description="Keep only the first ones.")]
Pair = Annotated[list[Line], Field(fail_fast=True, min_length=2, max_length=2)]
One = Annotated[list[Line], Field(fail_fast=True, min_length=1, max_length=1)]


class _Body(BaseModel):
    """A request body: no type conversion, and unknown keys are ignored."""

    model_config = ConfigDict(strict=True)

    model: Annotated[
        str | None, Field(description="A name of /info; the best suited by default.")
    ] = None


class _OwnBody(_Body):
    """A request body in which unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, content: Any) -> Any:
        """Raise one error instead of one for each of a million keys."""
        for key in content if isinstance(content, dict) else ():
            if key not in cls.model_fields:
                message = "{key} is not a key of this request; see /openapi.json"
                raise PydanticCustomError("unknown_key", message, {"key": repr(key)})
        return content


# Requests in the shape of text-embeddings-inference


class Truncation(_Body):
    """What happens to texts that are too long: cut on one side, or refused with 413."""

    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] = "right"


class Prompted(Truncation):
    """The same for texts that may get a prompt of the model in front."""

    prompt_name: str | None = None


class EmbedAllRequest(Prompted):
    """Texts, or token ids without the special tokens."""

    inputs: Either[Line | Ids | Some[Either[Line | Ids]]]


class EmbedRequest(EmbedAllRequest):
    """The same, with how a vector is made."""

    normalize: bool = True
    dimensions: Dimensions = None
    pooling: str | None = None
    layers: Numbers | None = None


class Choices(BaseModel):
    """A context, which may be empty, and its possible continuations, for multiple choice."""

    model_config = ConfigDict(strict=True, extra="forbid")

    context: AnyText
    choices: Lines


class PredictRequest(Truncation):
    """A text (alone or in a list), a pair, or a list of [text] and [text, text]; or choices."""

    inputs: Either[Line | One | Pair | Choices | Some[Either[One | Pair | Choices]]]
    raw_scores: bool = False


class RerankRequest(Truncation):
    """A query, and texts to sort by relevance."""

    query: Line
    texts: Lines
    raw_scores: bool = False
    return_text: bool = False


class SimilarityInput(BaseModel):
    """A sentence, and those to compare it with."""

    model_config = ConfigDict(strict=True)

    source_sentence: Line
    sentences: Lines


class SimilarityRequest(_Body):
    """Sentences to compare."""

    inputs: SimilarityInput
    parameters: Prompted | None = None


class TokenizeRequest(_Body):
    """Texts to tokenise."""

    inputs: Either[Line | Lines]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeRequest(_Body):
    """Token ids to turn into text."""

    ids: Either[Ids | Some[Ids]]
    skip_special_tokens: bool = True


# Requests in the shapes of OpenAI and bert-as-service


class EmbeddingsRequest(_Body):
    """Texts, or lists of token ids of the model's own vocabulary; `user` is ignored."""

    input: Either[Line | Ids | Lines | Some[Ids]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions = None
    user: str | None = None


class EncodeRequest(_Body):
    """Texts; with `is_tokenized`, a list of tokens for each. `id` is returned unchanged."""

    id: Whole | AnyText | None = None
    texts: Either[Lines | Some[Lines]]
    is_tokenized: bool = False
    encoding_format: Literal["float", "base64"] = "float"


# Requests of filbert's own routes


class FillRequest(_OwnBody):
    """Texts with [MASK] in them."""

    inputs: Either[Line | Lines]
    top: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_to_int)] = 5


class TagRequest(_OwnBody):
    """Texts; a list inside the list is one text given as its words."""

    inputs: Either[Line | Some[Either[Line | Lines]]]


class AnswerRequest(_OwnBody):
    """A question, and one or several texts to find its answer in."""

    question: Line
    context: Either[Line | Lines]


class AttentionRequest(_OwnBody):
    """A text or a pair, and which layers and heads to return; all by default."""

    inputs: Either[Line | Pair]
    layers: Numbers | None = None
    heads: Numbers | None = None


# Errors; answers are described in the documentation of the routes


class ErrorReply(BaseModel):
    """An error."""

    error: str
    error_type: str


class OpenAIErrorReply(BaseModel):
    """An error below /v1, with `message`, `type`, `param` and `code`."""

    error: dict[str, str | None]
