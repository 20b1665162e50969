"""From texts to answers: load a model folder once, then predict, fill, score or embed texts."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import numpy as np
from torch import Tensor

from filbert.checkpoints import google
from filbert.checkpoints.checkpoint import Checkpoint, meta_model
from filbert.checkpoints.onnx_folder import is_export, read_export
from filbert.checkpoints.opening import (
    find_model,
    is_google,
    open_folder,
    read_checkpoint,
    read_tokenizer,
)
from filbert.checkpoints.sentence_transformers import (
    ModelFolder,
    SentenceVectors,
    read_sentence_vectors,
)
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.tables import as_data_frame, items_of
from filbert.data.texts import checked_texts, chunks, cleaned, refuse_one_text
from filbert.errors import ConfigError, InputError, checked_keywords, printable
from filbert.inference.ensemble import ensemble
from filbert.inference.fill import fill_masks
from filbert.inference.forward import default_max_tokens, first_pass, run_model, run_vectors
from filbert.inference.onnx_session import SessionModel, check_backend
from filbert.inference.precision import number_format, open_model
from filbert.inference.score import score_texts
from filbert.inference.stored_task import as_standard_columns, stored_max_length, task_of
from filbert.model.cpu import keep_freed_memory
from filbert.model.heads import Model, VectorHead
from filbert.model.pooling import check_pooling
from filbert.model.precision import Precision
from filbert.tasks.base import Prediction, Task, set_vector_head, task_class, task_from_dict
from filbert.tasks.rows import row_of_value, row_texts
from filbert.text.clean import Cleaning
from filbert.text.masks import check_masked
from filbert.text.tokenizer import Text, Tokenizer, characters_in

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger(__name__)


class VectorOptions(TypedDict, total=False):
    """Options of vectors; see `Predictor.embed`."""

    pooling: str | None
    normalize: bool | None
    layers: Sequence[int]
    prompt: str | None
    dimensions: int | None


class Predictor:
    """A loaded model.

    Attributes:
        model: encoder and head, in eval mode.
        tokenizer: of the same folder.
        task: what the head answers; None for a bare encoder.
        max_length: tokens of the longest sequence; longer texts are cut, counted and marked.
        max_tokens: tokens per packed batch.
        number_format: what products are in: "float32", "bf16" or "int8".
        checkpoint: without tensors where there is none, as of an exported model.
        routes: of a folder with a Router, the models of its other routes, by the prompts for them.
    """

    def __init__(
        self,
        model: Model | SessionModel,
        tokenizer: Tokenizer,
        task: Task | None = None,
        *,
        max_length: int | None = None,
        max_tokens: int | None = None,
        precision: Precision | None = None,
        sentence_vectors: SentenceVectors | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.model: Model | SessionModel = model.eval()
        self.checkpoint = checkpoint or Checkpoint(model.config, "encoder", tensors={})
        self.tokenizer = tokenizer
        self.task = task
        self.device = model.device
        if self.device.type == "cpu":
            keep_freed_memory()
        positions = model.config.max_tokens_per_sequence
        self.max_length = max_length or min(tokenizer.max_length or positions, positions)
        self.precision = precision or Precision("float32", "default")
        self.number_format = number_format(model, self.precision, self.checkpoint)
        usual = default_max_tokens(self.device, model.config, self.number_format)
        if max_tokens is not None and not (isinstance(max_tokens, int) and max_tokens > 0):
            raise ConfigError(f"max_tokens is {max_tokens!r}; it must be a number above zero.")
        self.max_tokens = max_tokens or usual
        self.sentence_vectors = sentence_vectors or SentenceVectors()
        self.routes: dict[str, Predictor] = {}

    @property
    def cleaning(self) -> Cleaning | None:
        """The cleaning of texts before tokenisation, if any."""
        return None if self.task is None else self.task.spec.clean

    @classmethod
    @checked_keywords
    def load(
        cls,
        name: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        precision: str = "float32",
        backend: str = "torch",
        device: str | None = None,
        max_length: int | None = None,
        max_tokens: int | None = None,
        packed: bool = False,
        null_threshold: float | None = None,
    ) -> Predictor:
        """Load a folder, a built-in name ("filbert-mini", "minilm") or a Hugging Face Hub id.

        Several names, in a list or between commas, answer as one model, see `ensemble`.

        Args:
            precision: "float32" (exact), "bf16", "int8" or "auto"; see docs/precision.md.
            backend: "torch", or "onnxruntime" for a folder that `filbert export` made.
            device: "cpu", "cuda" ...; the first GPU if there is one.
            max_length: Cut texts to this many tokens; the model's own limit when not given.
            max_tokens: Tokens per packed batch.
            packed: Lay weights out for speed on a CPU; see `pack_layers`.
            null_threshold: A question with a null score above it gets the answer ""; the stored
                threshold when not given.

        Raises:
            InputError, FormatError: There is no such model, or it is damaged.
            ConfigError: An option is unknown or does not fit the model.
        """
        options: dict[str, Any] = {"precision": precision, "backend": backend, "device": device}
        options |= {"packed": packed, "max_length": max_length, "max_tokens": max_tokens}
        options |= {"null_threshold": null_threshold}
        members = []
        for one in names_of(name):
            opened = open_folder(find_model(one))
            predictor = cls._of(opened, options)
            for route in list(opened.routes)[1:]:
                predictor.routes[route] = cls._of(open_folder(opened.path, route), options)
            members.append(predictor)
        return _together(members) if members[1:] else predictor

    @classmethod
    def _of(cls, opened: ModelFolder, options: Mapping[str, Any]) -> Predictor:
        """Load one route of a folder; the options are those of `load`."""
        folder, backend = opened.path, options["backend"]
        check_backend(folder, backend, precision=options["precision"], device=options["device"])
        checkpoint = read_checkpoint(opened) if backend == "torch" else read_export(folder)
        tokenizer, config = read_tokenizer(opened), checkpoint.config
        notes = tokenizer.check_fits(config.vocab_size, config.embeddings.token_types, folder)
        for note in (*(checkpoint.notes if is_google(folder) else opened.notes), *notes):
            log.info(note)
        vectors = read_sentence_vectors(opened, config.hidden_size)
        max_length = options["max_length"]
        if max_length is None:
            max_length = stored_max_length(checkpoint, folder, vectors)
        config.check_max_length(max_length)
        task = task_of(checkpoint, folder, options["null_threshold"])
        model, cast_to = open_model(folder, checkpoint, task, options)
        set_vector_head(model, task)
        if vectors.scores is not None:
            # A reranker of modules is a regression with another head.
            if vectors.modules:
                steps = [step.to(model.device) for step in vectors.modules]
                model.head = VectorHead(model.config, vectors.pooling, steps)
                task = task_from_dict(task_class("regression"), {"activation": vectors.scores})
            vectors = replace(vectors, modules=(), scores=None)
        predictor = cls(
            model,
            tokenizer,
            task,
            max_length=max_length,
            max_tokens=options["max_tokens"],
            precision=cast_to,
            sentence_vectors=vectors,
            checkpoint=checkpoint,
        )
        if predictor.device.type == "cpu":
            predictor.warm_up()
        return predictor

    def warm_up(self) -> None:
        """Run a few short passes, so that the first request does not wait for them."""
        first_pass(self.model, self.precision, self.max_length)
        if self.model.head is None:
            self.embed(["."])

    def __repr__(self) -> str:
        config = self.model.config
        labels = f" ({_few(self.labels)})" if self.labels else ""
        what = "encoder" if self.task is None else f"{self.task.spec.name}{labels}"
        sizes = f"{self.checkpoint.family} {config.num_hidden_layers} x {config.hidden_size}"
        return f"<filbert model: {what}, {sizes}, on {self.device}>"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the task, in the order of the head; () where it has none."""
        return () if self.task is None else tuple(self.task.spec.labels or ())

    @overload
    def predict(self, items: str | Mapping[str, Any]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, items: Any, *, as_frame: Literal[False] = False) -> list[Prediction]: ...
    @overload
    def predict(self, items: Any, *, as_frame: bool) -> Any: ...
    @checked_keywords
    def predict(self, items: Any, *, as_frame: bool = False) -> Any:
        """Answer one item or many, in order.

        Args:
            items: One text, or many texts or pairs of texts: a list, a column of a DataFrame, or a
                DataFrame with the columns of training, or `text` and maybe `text_pair`. For other
                tasks what their rows hold: lists of words or texts (tagging), {"question",
                "context"}, {"context", "choices"}.
            as_frame: Return a pandas DataFrame with one row an item and a column for each score.

        Returns:
            A dict for one text or one dict, else a list of dicts, or the DataFrame.

        Raises:
            ConfigError: The model has no task head.
            InputError: An item is of another kind; with its index.
        """
        task = self.known_task()
        is_one = isinstance(items, str | Mapping)
        values = [items] if is_one else items_of(items)
        refuse_one_text(values)
        named = (as_standard_columns(self.checkpoint, value) for value in values)
        answers = list(self.predict_rows(row_of_value(task, x, i) for i, x in enumerate(named)))
        if as_frame:
            return as_data_frame(answers, getattr(items, "index", None))
        return answers[0] if is_one else answers

    @overload
    def answer(self, question: str, context: str) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, question: Sequence[str], context: str | Sequence[str]) -> list[Prediction]: ...
    @checked_keywords
    def answer(
        self, question: str | Sequence[str], context: str | Sequence[str]
    ) -> Prediction | list[Prediction]:
        """Answer a question from a text of any length, or each of many questions.

        Many questions have one text, or one each. An answer has its place in the text.
        """
        self._require("span_qa")
        questions = [question] if isinstance(question, str) else list(question)
        contexts = [context] * len(questions) if isinstance(context, str) else list(context)
        if len(questions) != len(contexts):
            raise InputError(f"{len(questions)} questions and {len(contexts)} texts: give as many.")
        pairs = zip(questions, contexts, strict=True)
        answers = self.predict([{"question": one, "context": text} for one, text in pairs])
        return answers[0] if isinstance(question, str) else answers

    @overload
    def tag(self, text: str | Sequence[str]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, text: Sequence[Sequence[str]]) -> list[Prediction]: ...
    @checked_keywords
    def tag(self, text: str | Sequence[Any]) -> Prediction | list[Prediction]:
        """Return one tag per word of a text or list of words, and the entities that they form.

        A list of lists of words is many sentences; for a list of texts use `predict`.
        """
        self._require("tagging")
        if isinstance(text, str):
            return self.predict([text])[0]
        items = [one if isinstance(one, str) else list(one) for one in text]
        if items and all(isinstance(one, list) for one in items):
            return self.predict(items)
        return self.predict([items])[0]

    def _require(self, task: str) -> None:
        if self.task is None or self.task.spec.name != task:
            name = "no task head" if self.task is None else f"a {self.task.spec.name} head"
            raise ConfigError(f"This model has {name}; it must be fine-tuned for {task}.")

    def known_task(self) -> Task:
        """Return the task of the model, or raise a ConfigError."""
        if self.task is None:
            raise ConfigError(
                "This model has no task head, so there is nothing to predict. Fine-tune it "
                "(filbert finetune), or use embed."
            )
        return self.task

    def predict_rows(self, rows: Iterable[Row]) -> Iterator[Prediction]:
        """Yield answers in the order of `rows`, in fixed memory however many there are."""
        task = self.known_task()

        def size_of(row: Row) -> int:
            return sum(map(characters_in, row_texts(task, row, clean=False)))

        for chunk in chunks(rows, size_of):
            yield from self.answers(self.row_examples(chunk))

    def row_examples(self, rows: Sequence[Row]) -> list[Example]:
        """Return rows as `answers` takes them: tokenised, nothing computed."""
        return self.known_task().examples(
            rows, self.tokenizer, max_length=self.max_length, with_targets=False
        )

    def outputs(
        self, examples: Sequence[Example], on_batch: Callable[[int], None] = lambda num_tokens: None
    ) -> list[Tensor]:
        """Return the head's output for every example; see `run_model`."""
        return run_model(
            self.model,
            examples,
            max_tokens=self.max_tokens,
            precision=self.precision,
            on_batch=on_batch,
        )

    def answers(
        self, examples: Sequence[Example], on_batch: Callable[[int], None] = lambda num_tokens: None
    ) -> list[Prediction]:
        """Return one answer per row of the examples, in order."""
        return self.known_task().decode(self.outputs(examples, on_batch), examples)

    @overload
    def fill(self, texts: str, *, top: int = 5) -> dict[str, Any]: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, texts: Iterable[str], *, top: int = 5) -> list[dict[str, Any]]: ...
    @checked_keywords
    def fill(
        self, texts: str | Iterable[str], *, top: int = 5
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the `top` most probable words in place of every [MASK]; see `fill.fill_masks`.

        One text gets one answer, a list of texts a list.
        """
        if not isinstance(texts, str):
            return list(fill_masks(self, texts, top=top))
        (answer,) = fill_masks(self, [check_masked(texts, self.tokenizer, "The text")], top=top)
        return answer

    @overload
    def score(self, texts: str) -> dict[str, Any]: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, texts: Iterable[str]) -> list[dict[str, Any]]: ...
    @checked_keywords
    def score(self, texts: str | Iterable[str]) -> dict[str, Any] | list[dict[str, Any]]:
        """Return how probable one text is, or each of a list; see `score.score_texts`."""
        scores = list(score_texts(self, [texts] if isinstance(texts, str) else texts))
        return scores[0] if isinstance(texts, str) else scores

    @checked_keywords
    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        layers: Sequence[int] = (-1,),
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> np.ndarray | list[np.ndarray]:
        """Return vectors of texts.

        Args:
            texts: One text, or n texts or pairs.
            pooling: "mean" over all tokens, "cls" (the first token; of a causal encoder the last),
                "last", "max", "mean_sqrt_len" (sum by root of the length), several with "+" between
                or "none" for one vector a token. When not given: as sentence-transformers' files in
                the folder say (with prompt, dense layers and unit length), else the mean.
            normalize: scale to unit length.
            layers: which layers' outputs to join end to end; 0 is the embedding layer, -1 the last.
            prompt: the folder's prompt to put before every text, by its name ("query"); when not
                given, its default one. A Router also has a route for it.
            dimensions: keep only the first numbers, before the unit length (Matryoshka models).

        Returns:
            float32 (n, `vector_size`); for pooling "none" a list of n arrays (tokens, H * layers).
            Of one text, its vector or array alone.
        """
        how = VectorOptions(pooling=pooling, normalize=normalize, layers=layers)
        how |= VectorOptions(prompt=prompt, dimensions=dimensions)
        vectors = list(self.embed_texts([texts] if isinstance(texts, str) else texts, **how))
        if isinstance(texts, str):
            return vectors[0]
        if pooling == "none":
            return vectors
        return np.array(vectors, np.float32).reshape(-1, self.vector_size(**how))

    def embed_texts(
        self, texts: Iterable[Text], **how: Unpack[VectorOptions]
    ) -> Iterator[np.ndarray]:
        """Yield what `embed` returns, one at a time, in order and in fixed memory."""
        num_cut = 0
        for chunk in chunks(checked_texts(texts), characters_in):
            examples = self.text_examples(chunk, **how)
            num_cut += sum(example.truncated for example in examples)
            yield from self.vectors(examples, **how)
        if num_cut:
            log.warning("%s texts have more than %s tokens and were cut", num_cut, self.max_length)

    def text_examples(self, texts: Sequence[Text], **how: Unpack[VectorOptions]) -> list[Example]:
        """Return texts as `vectors` takes them: tokenised, nothing computed."""
        predictor, settings, _ = self._for_vectors(**how)
        prepared = [settings.prepared(cleaned(text, predictor.cleaning)) for text in texts]
        encodings = predictor.tokenizer.encode(prepared, max_length=predictor.max_length)
        return [Example.of(i, encoding) for i, encoding in enumerate(encodings)]

    def vectors(
        self,
        examples: Sequence[Example],
        *,
        on_batch: Callable[[int], None] = lambda num_tokens: None,
        **how: Unpack[VectorOptions],
    ) -> list[np.ndarray]:
        """Return the vector of every example, in order; with pooling "none" its matrix."""
        predictor, settings, layers = self._for_vectors(**how)
        skip = 0
        if settings.prompt and not settings.include_prompt:
            (alone,) = predictor.tokenizer.encode([settings.prompt])
            skip = alone.num_tokens - len(predictor.tokenizer.template(pair=False).specials[-1])
        return run_vectors(
            predictor.model,
            examples,
            settings,
            layers=layers,
            skip=skip,
            max_tokens=predictor.max_tokens,
            precision=predictor.precision,
            on_batch=on_batch,
        )

    def vector_size(self, **how: Unpack[VectorOptions]) -> int:
        """Return the width of the vectors that `embed` returns for these options."""
        predictor, settings, layers = self._for_vectors(**how)
        return settings.dimension(len(layers) * predictor.model.config.hidden_size)

    def vector_settings(self, **how: Unpack[VectorOptions]) -> SentenceVectors:
        """Return how vectors are made: as set in the folder, unless options differ.

        Raises:
            ConfigError: An option is unknown or out of range, or does not fit the folder.
        """
        settings, layers = self.sentence_vectors, how.get("layers", (-1,))
        prompt, pooling = how.get("prompt"), how.get("pooling")
        if prompt is not None and prompt not in settings.prompts:
            known = ", ".join(map(printable, settings.prompts)) or "none"
            raise ConfigError(f"This model has no prompt {printable(prompt)!r}; it has {known}.")
        if pooling is not None:
            check_pooling(pooling)
            settings = SentenceVectors(pooling, prompts=settings.prompts)
        elif (settings.modules or settings.before) and tuple(layers) != (-1,):
            raise ConfigError(
                "Dense layers take this model's last layer alone. Name a pooling to have others."
            )
        if (dimensions := how.get("dimensions")) is not None:
            wide = len(self._layer_numbers(layers)) * self.model.config.hidden_size
            width = replace(settings, dimensions=None).dimension(wide)
            if not 1 <= dimensions <= width or pooling == "none":
                known = f"vectors of this model have {width}"
                raise ConfigError(f"dimensions is {dimensions}; {known}.")
        given: dict[str, Any] = {"normalize": how.get("normalize"), "dimensions": dimensions}
        given["default_prompt"] = prompt
        return replace(settings, **{k: value for k, value in given.items() if value is not None})

    def _for_vectors(
        self, **how: Unpack[VectorOptions]
    ) -> tuple[Predictor, SentenceVectors, tuple[int, ...]]:
        """Return the model for these vectors, since a Router has several, how, and the layers."""
        predictor = self.routes.get(how.get("prompt") or "", self)
        layers = predictor._layer_numbers(how.get("layers", (-1,)))
        return predictor, predictor.vector_settings(**how), layers

    def _layer_numbers(self, layers: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of the layers: 0 for the embeddings, 1..N for the layers."""
        count = self.model.config.num_hidden_layers
        if isinstance(layers, int | str) or not layers:
            raise ConfigError(f"layers is {layers!r}; give a list of numbers, such as [-1].")
        for layer in layers:
            if not isinstance(layer, int | np.integer) or not -count - 1 <= layer <= count:
                raise ConfigError(f"layer {layer!r} is not in {-count - 1}..{count}.")
        chosen = tuple(layer % (count + 1) for layer in layers)
        if len(set(chosen)) < len(chosen):
            raise ConfigError("layers names a layer twice; -1 is the last. Give each once.")
        if isinstance(self.model, SessionModel) and chosen != (count,):
            raise ConfigError("An exported model gives its last layer alone. Leave layers out.")
        return chosen


load = Predictor.load


def names_of(name: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the names of a list, or of a text with commas that is no path."""
    if not isinstance(name, str | os.PathLike):
        return [str(one) for one in name]
    if "," not in str(name) or os.path.exists(name):
        return [str(name)]
    return [one.strip() for one in str(name).split(",")]


def _together(members: Sequence[Predictor]) -> Predictor:
    """Return one predictor for several; see `ensemble`."""
    first = members[0]
    if len({(one.tokenizer.fingerprint, one.max_length) for one in members}) > 1:
        raise ConfigError(
            "These models have different tokenizers or lengths, so their outputs cannot be "
            "averaged. Name models that were trained from one checkpoint."
        )
    first.model, first.task = ensemble(
        [one.model for one in members], [one.known_task() for one in members]
    )
    # What is computed is resumed only with the weights of all members.
    tensors = {
        f"{number}{name}": tensor
        for number, one in enumerate(members)
        for name, tensor in one.checkpoint.tensors.items()
    }
    first.checkpoint = replace(first.checkpoint, tensors=tensors)
    return first


def _few(names: Sequence[str]) -> str:
    more = len(names) - 4
    return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")


# Entries of filbert.json that `filbert convert --to int8` writes, without the metrics.
_INT8 = ("float_layers", "layers", "cosine", "worst", "loss")


def model_facts(name: str) -> dict[str, Any]:
    """Return what a model is: sizes, task, tokenizer, metrics, and how it was trained."""
    place = find_model(name)
    exported = is_export(place)
    predictor = Predictor.load(name, device="cpu", backend="onnxruntime" if exported else "torch")
    checkpoint, tokenizer, task = predictor.checkpoint, predictor.tokenizer, predictor.task
    stored = checkpoint.filbert or {}
    int8, stored_task = stored.get("int8"), stored.get("task") or {}
    # The weights of an exported model are in its graph.
    count = len(checkpoint.labels) if checkpoint.labels else None
    model = meta_model(checkpoint.config, checkpoint.head, count) if exported else predictor.model
    causal = "causal: every token attends to itself and those before it"
    export = {k: v for k, v in stored.get("onnx", {}).items() if k != "data"}
    facts = {
        "model": name,
        "folder": str(checkpoint.source) if checkpoint.source else None,
        "family": checkpoint.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
        "attention": causal if checkpoint.config.attention.causal else None,
        "head": checkpoint.head,
        "task": task.spec.name if task else None,
        "labels": list(checkpoint.labels or ()),
        "problem_type": checkpoint.problem_type,
        "thresholds": stored_task.get("thresholds"),
        "temperature": stored_task.get("temperature"),
        "cleaning": stored_task.get("clean"),
        "max_length": predictor.max_length,
        "precision": predictor.precision.name,
        "tokenizer": {
            "kind": tokenizer.kind,
            "entries": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "sha256": tokenizer.fingerprint,
        },
        "sentence_vectors": predictor.sentence_vectors.facts(),
        "config": checkpoint.config.settings(),
        "metrics": stored.get("metrics"),
        "int8": {k: int8[k] for k in _INT8 if k in int8} if isinstance(int8, dict) else None,
        "export": export if exported else None,
        "run": _run(stored),
        "notes": list(checkpoint.notes),
    }
    return facts | ({"tensors": google.tensor_report(place)} if is_google(place) else {})


def _run(stored: dict[str, Any]) -> dict[str, Any] | None:
    """Return the base model, data and time of a training run from its filbert.json."""
    options, data = stored.get("options"), stored.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        return None
    train = data.get("train") or {}
    same = ("steps", "seconds", "finished", "filbert", "commit")
    return {
        "command": stored.get("command"),
        "started from": (stored.get("base_model") or {}).get("name") or options.get("model"),
        "trained on": train.get("path"),
        "rows": train.get("rows"),
        "tokens": stored.get("tokens") or train.get("tokens"),
        "seed": options.get("seed"),
        "torch": (stored.get("versions") or {}).get("torch"),
        **{name: stored.get(name) for name in same},
    }
