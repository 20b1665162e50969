"""Bodies of requests and answers: the source of validation and of /openapi.json.

Limits that the operator sets are not part of it, because a body beyond them is well formed and gets
413. The work of validation is limited here: a list stops at its first invalid entry and has a
maximum length, and unions try their types in order. Otherwise a body of 2 MB could have a million
errors, which take minutes to list.
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

from filbert.serve.settings import MAX_LIST
from filbert.text.tokenizer import without_halves

# The error type of a list that is too long.
TOO_MANY = "too_many_entries"

_MAX_KEYS = 50

_T = TypeVar("_T")


def _limit_length(entries: Any) -> Any:
    if isinstance(entries, list) and len(entries) > MAX_LIST:
        raise PydanticCustomError(TOO_MANY, "a list has too many entries")
    return entries


def _to_int(value: Any) -> Any:
    """JSON has no integers: 1.0 is one too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Empty texts and lists get 400 from the routes, so minLength and minItems are documentation only.
Some = Annotated[
    list[_T],
    Field(fail_fast=True, json_schema_extra={"minItems": 1}),
    BeforeValidator(_limit_length),
]
Either = Annotated[_T, Field(union_mode="left_to_right")]
Whole = Annotated[int, BeforeValidator(_to_int)]
Count = Annotated[int, Field(ge=1), BeforeValidator(_to_int)]
# JSON may contain unpaired surrogates, which an answer that quotes the text could not.
AnyText = Annotated[str, AfterValidator(without_halves)]
Line = Annotated[
    AnyText, Field(json_schema_extra={"minLength": 1}, examples=["What is deep learning?"])
]
Lines = Some[Line]
Ids = Some[Annotated[int, Field(ge=0, lt=2**31), BeforeValidator(_to_int)]]
Model = Annotated[str | None, Field(description="A name of /info; the best suited by default.")]
Numbers = Some[Whole]
Dimensions = Annotated[Count | None, Field(description="Keep only the first ones.")]
Pair = Annotated[list[Line], Field(fail_fast=True, min_length=2, max_length=2)]
One = Annotated[list[Line], Field(fail_fast=True, min_length=1, max_length=1)]


class _Body(BaseModel):
    """A request body: no type conversion, and unknown keys are ignored."""

    model_config = ConfigDict(strict=True)

    model: Model = None


class _Closed(BaseModel):
    """An object in which unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _limit_keys(cls, content: Any) -> Any:
        if isinstance(content, dict) and len(content) > _MAX_KEYS:
            raise ValueError(f"an object has {len(content)} keys")
        return content


class _OwnBody(_Closed):
    model: Model = None


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
    pooling: Annotated[str | None, Field(examples=["mean"])] = None
    layers: Numbers | None = None


class Choices(_Closed):
    """A context, which may be empty, and its possible continuations, for multiple choice."""

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


# Answers


class Score(BaseModel):
    """A label and its probability."""

    score: float
    label: str


class Rank(BaseModel):
    """The index of a text and its score."""

    index: int
    score: float
    text: str | None = None


class Token(BaseModel):
    """A token and its characters [start, stop) in the text; None for special tokens."""

    id: int
    text: str
    token: str
    special: bool
    start: int | None
    stop: int | None


class Embedding(BaseModel):
    """A vector of unit length: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """One vector per input; `usage` has `prompt_tokens` and `total_tokens`."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: dict[str, int]


class ModelEntry(BaseModel):
    """A loaded model; `created` is when it was loaded, in seconds since 1970."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["filbert"] = "filbert"


class ModelList(BaseModel):
    """All loaded models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Encoded(BaseModel):
    """One vector per text, in order."""

    id: int | str | None
    result: list[list[float]] | list[str]
    status: int


class _Measured(BaseModel):
    """Whether a text was cut, and its whole length."""

    truncated: bool
    num_tokens: int


class Candidate(BaseModel):
    """A token for a mask, and the text with it."""

    token: str
    score: float
    sequence: str
    id: int


class Filled(_Measured):
    """Candidates for each mask of a text, best first."""

    candidates: list[list[Candidate]]


class Entity(BaseModel):
    """A span of words: characters [start, end) of the text."""

    label: str
    start: int
    end: int
    text: str
    score: float


class Tagged(_Measured):
    """One tag per word, and the entities that they form."""

    tokens: list[str]
    tags: list[str]
    entities: list[Entity]


class Alternative(BaseModel):
    """A possible answer, and its share among the candidates."""

    text: str
    score: float


class Answer(_Measured):
    """An answer: characters [start, end) of a document; "" if there is none.

    `score` is its share in a softmax over the candidates of all documents; `null_score` is the
    margin of "no answer" over the best candidate.
    """

    answer: str
    start: int | None
    end: int | None
    score: float
    null_score: float
    document: int
    nbest: list[Alternative]


class Answered(Answer):
    """The best answer; with several documents also the answer of each, best first."""

    answers: list[Answer] | None = None


class Attention(_Measured):
    """Attention maps[layer][head][from][to], rounded to four digits.

    `words` numbers the words of each text, -1 for special tokens; `sequences` is the index of a
    token's text in the pair.
    """

    tokens: list[str]
    ids: list[int]
    words: list[int]
    sequences: list[int]
    maps: list[list[list[list[float]]]]
    layers: list[int]
    heads: list[int]


class ModelCard(BaseModel):
    """One loaded model."""

    name: str
    task: str | None
    labels: list[str] | None
    positive: str | None
    threshold: float | list[float] | None
    can: list[str]
    max_length: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    precision: str


class Info(BaseModel):
    """The server; all keys but `version` and `models` are those of text-embeddings-inference."""

    model_config = ConfigDict(protected_namespaces=())

    version: str
    models: list[ModelCard]
    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int


class ErrorReply(BaseModel):
    """An error."""

    error: str
    error_type: str


class OpenAIErrorReply(BaseModel):
    """An error below /v1, with `message`, `type`, `param` and `code`."""

    error: dict[str, str | None]
