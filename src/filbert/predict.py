"""From texts to answers: load a model folder once, then predict, fill or embed any number of rows.

T tokens, S sequences, H hidden size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
import torch
from torch import nn

from filbert.data.chunks import characters_in, chunks
from filbert.data.examples import Example, collate
from filbert.data.loader import by_length
from filbert.data.records import Row
from filbert.data.texts import Text, checked_texts
from filbert.errors import ConfigError, FormatError, InputError, printable
from filbert.fill import fill_masks
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.find import find_model
from filbert.formats.opening import is_google, read_checkpoint, read_tokenizer
from filbert.formats.sentence_transformers import SentenceVectors, read_sentence_vectors
from filbert.model.config import EncoderConfig
from filbert.model.heads import Model
from filbert.model.pooling import check_pooling, hidden_states, pool
from filbert.speed.execution import default_max_tokens, run_model
from filbert.speed.precision import Precision, choose_device, choose_precision
from filbert.tasks.base import Prediction, Task, task_class, task_names
from filbert.text.masks import check_masked
from filbert.text.tokenizer import Encoding, Tokenizer

log = logging.getLogger(__name__)


class Predictor:
    """A loaded model.

    Attributes:
        model: encoder and head, in eval mode.
        tokenizer: of the same folder.
        task: what the head answers; None for a bare encoder.
        max_length: longest sequence, special tokens included; longer texts are cut, counted and
            marked.
        max_tokens: tokens per packed batch.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        task: Task | None = None,
        *,
        max_length: int | None = None,
        max_tokens: int | None = None,
        precision: Precision | None = None,
        sentence_vectors: SentenceVectors | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.model = model.eval()
        self.checkpoint = checkpoint
        self.tokenizer = tokenizer
        self.task = task
        self.device = next(model.parameters()).device
        limits = (tokenizer.max_length, model.config.max_tokens_per_sequence)
        self.max_length = max_length or min(limit for limit in limits if limit)
        self.max_tokens = max_tokens or default_max_tokens(self.device)
        self.precision = precision or Precision("float32", "default")
        self.sentence_vectors = sentence_vectors or SentenceVectors()

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        precision: str = "float32",
        device: str | None = None,
        max_length: int | None = None,
        max_tokens: int | None = None,
    ) -> Predictor:
        """Load a folder, a built-in name ("filbert-mini", "minilm") or a Hugging Face Hub id.

        Args:
            name: what to load.
            precision: "float32" (the default: exact), "bf16", or "auto": the faster one here.
            device: "cpu", "cuda" ...; the first GPU when there is one.
            max_length: cut texts to this many tokens; the model's own limit when not given.
            max_tokens: tokens per packed batch.

        Raises:
            InputError, FormatError: there is no such model, or it is damaged.
            ConfigError: the precision is unknown or `max_length` is beyond the model's positions.
        """
        folder = find_model(str(name))
        checkpoint = read_checkpoint(folder)
        tokenizer = read_tokenizer(folder)
        config = checkpoint.config
        notes = tokenizer.check_fits(config.vocab_size, config.type_vocab_size, folder)
        for note in (*(checkpoint.notes if is_google(folder) else ()), *notes):
            log.info(note)
        stored = checkpoint.filbert or {}
        vectors = read_sentence_vectors(folder, config.hidden_size)
        limit = stored.get("max_length")
        if limit is not None and not _fits(limit, config):
            raise FormatError(
                f"{folder / 'filbert.json'}: max_length is {short(limit)}, not in "
                f"3..{config.max_tokens_per_sequence}, what this model serves."
            )
        max_length = check_max_length(max_length or limit, config)
        if max_length is None and vectors.max_length is not None:
            max_length = min(vectors.max_length, config.max_tokens_per_sequence)
        if max_tokens is not None and max_tokens < 1:
            raise ConfigError(f"max_tokens is {max_tokens}; it must be above zero.")
        target = choose_device(device)
        chosen = choose_precision(precision, target)
        task = _task_of(checkpoint, folder)
        model = checkpoint.build(dtype=chosen.dtype)
        if task is not None and task.head_kind is None:
            model.head = task.head(checkpoint.config)
        return cls(
            model.to(target),
            tokenizer,
            task,
            max_length=max_length,
            max_tokens=max_tokens,
            sentence_vectors=vectors,
            checkpoint=checkpoint,
        )

    # Answers

    def predict(self, items: Sequence[Any]) -> list[Prediction]:
        """One answer an item, in order, in the shape of INTERFACE.

        Args:
            items: texts or pairs of texts; for other tasks what their rows hold: lists of words or
                texts (tagging), {"question", "context"}, {"context", "choices"}.

        Raises:
            ConfigError: the model has no task head.
            InputError: an item is of another kind; with its index.
        """
        task = self.known_task()
        if isinstance(items, str):
            raise InputError(
                "A list of texts is wanted, and this is one text. Put it in a list: [text]."
            )
        return list(self.predict_rows([task.row(item, i) for i, item in enumerate(items)]))

    def answer(self, question: str, context: str) -> Prediction:
        """The answer to a question within a text of any length, with its place there."""
        return self._only("span_qa", {"question": question, "context": context})

    def tag(self, text: str | Sequence[str]) -> Prediction:
        """One tag per word of a text or list of words, and the entities they make."""
        return self._only("tagging", text if isinstance(text, str) else list(text))

    def _only(self, task: str, item: Any) -> Prediction:
        if self.task is None or self.task.name != task:
            name = "no task head" if self.task is None else f"a {self.task.name} head"
            raise ConfigError(f"This model has {name}; it must be fine-tuned for {task}.")
        return self.predict([item])[0]

    def known_task(self) -> Task:
        """The task of the model.

        Raises:
            ConfigError: it has none.
        """
        if self.task is None:
            raise ConfigError(
                "This model has no task head, so there is nothing to predict. Fine-tune it "
                "(filbert finetune), or use embed."
            )
        return self.task

    def predict_rows(
        self, rows: Iterable[Row], on_batch: Callable[[int], None] = lambda num_tokens: None
    ) -> Iterator[Prediction]:
        """Answers in the order of `rows`, in fixed memory however many there are."""
        task = self.known_task()
        for chunk in chunks(rows, lambda row: sum(map(characters_in, task.sequences(row)))):
            examples = task.examples(
                chunk, self.tokenizer, max_length=self.max_length, with_targets=False
            )
            outputs = run_model(
                self.model,
                examples,
                max_tokens=self.max_tokens,
                precision=self.precision,
                on_batch=on_batch,
            )
            yield from task.decode(outputs, examples)

    def fill(
        self, texts: str | Sequence[str], *, top: int = 5
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """The words that the model expects in place of every [MASK]; see `fill.fill_masks`.

        Args:
            texts: one text, which gets one answer, or a list of texts, which gets a list.
            top: candidates per mask.
        """
        if not isinstance(texts, str):
            return list(self.fill_texts(texts, top=top))
        (answer,) = self.fill_texts([check_masked(texts, self.tokenizer, "The text")], top=top)
        return answer

    def fill_texts(
        self,
        texts: Iterable[str],
        *,
        top: int = 5,
        on_batch: Callable[[int], None] = lambda num_tokens: None,
    ) -> Iterator[dict[str, Any]]:
        """As `fill`, one answer at a time, in order and in fixed memory."""
        return fill_masks(
            self.model,
            self.tokenizer,
            texts,
            max_length=self.max_length,
            max_tokens=self.max_tokens,
            precision=self.precision,
            top=top,
            on_batch=on_batch,
        )

    # Vectors

    def embed(
        self,
        texts: Sequence[Text],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        layers: Sequence[int] = (-1,),
    ) -> np.ndarray | list[np.ndarray]:
        """Vectors of texts.

        Args:
            texts: n texts or pairs.
            pooling: "mean" over all tokens, "cls" (the first token; of a causal encoder the last),
                "last", "max", "mean_sqrt_len" (the sum, divided by the root of the length), several
                with "+" between, or "none" for one vector a token. When not given: what the folder
                says (sentence-transformers' modules.json, which may also ask for a prompt before
                every text, dense layers and unit length), else the mean.
            normalize: scale to unit length.
            layers: which layers' outputs to join end to end; 0 is the embedding layer, -1 the last.

        Returns:
            float32 (n, `vector_size`); for pooling "none" a list of n arrays (tokens, H * layers).
        """
        vectors = list(self.embed_texts(texts, pooling=pooling, normalize=normalize, layers=layers))
        if pooling == "none":
            return vectors
        if not vectors:
            return np.zeros((0, self.vector_size(pooling, layers)), dtype=np.float32)
        return np.stack(vectors)

    def embed_texts(
        self,
        texts: Iterable[Text],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        layers: Sequence[int] = (-1,),
        on_batch: Callable[[int], None] = lambda num_tokens: None,
        on_encoding: Callable[[Encoding], None] = lambda encoding: None,
    ) -> Iterator[np.ndarray]:
        """As `embed`, one vector at a time, in order and in fixed memory."""
        way = self._way(pooling, layers)
        normalize = way.normalize if normalize is None else normalize
        dense = [layer.to(self.device) for layer in way.dense]
        chosen = self._layer_numbers(layers)
        encoder = self.model.encoder
        for chunk in chunks(checked_texts(texts), characters_in):
            prepared = [_prepared(text, way) for text in chunk]
            encodings = self.tokenizer.encode(prepared, max_length=self.max_length)
            examples = []
            for i, encoding in enumerate(encodings):
                on_encoding(encoding)
                examples.append(
                    Example(i, encoding.input_ids, encoding.token_type_ids, encoding.num_tokens)
                )
            vectors: list[np.ndarray] = [np.empty(0)] * len(chunk)
            for indices in by_length([len(e.input_ids) for e in examples], self.max_tokens):
                batch = collate([examples[i] for i in indices]).to(self.device)
                with torch.inference_mode():
                    with self.precision.autocast(self.device):
                        hidden = hidden_states(encoder, batch, chosen).float()
                    pooled = pool(hidden, batch, way.pooling, causal=encoder.config.causal)
                    for layer in dense:
                        pooled = list(layer(torch.stack(pooled)))
                    if normalize:
                        pooled = [nn.functional.normalize(p, dim=-1) for p in pooled]
                for index, vector in zip(indices, pooled, strict=True):
                    vectors[index] = vector.cpu().numpy()
                on_batch(batch.num_tokens)
            yield from vectors

    def vector_size(self, pooling: str | None = None, layers: Sequence[int] = (-1,)) -> int:
        """The width of what `embed` gives for a pooling and layers."""
        width = sum(map(self.model.config.width_of, self._layer_numbers(layers)))
        return self._way(pooling, layers).dimension(width)

    def _way(self, pooling: str | None, layers: Sequence[int]) -> SentenceVectors:
        """How vectors are made: the folder's way, unless a pooling is named."""
        if pooling is not None:
            check_pooling(pooling)
            return SentenceVectors(pooling)
        way = self.sentence_vectors
        if way.dense and tuple(layers) != (-1,):
            raise ConfigError(
                "This model's vectors go through a dense layer over the last layer alone. Name a "
                "pooling to have other layers, as they are."
            )
        return way

    def _layer_numbers(self, layers: Sequence[int]) -> tuple[int, ...]:
        """0 for the embeddings, 1..N for the layers."""
        count = self.model.config.num_hidden_layers
        if isinstance(layers, int) or not layers:
            raise ConfigError(f"layers is {layers!r}; give a list of whole numbers, such as [-1].")
        for layer in layers:
            if not -count - 1 <= layer <= count:
                raise ConfigError(f"layer {layer} is not in {-count - 1}..{count}.")
        return tuple(layer % (count + 1) for layer in layers)


def _prepared(text: Text, way: SentenceVectors) -> Text:
    """A text, or the first of a pair with the second as it is, as the folder's way has it."""
    return way.prepared(text) if isinstance(text, str) else (way.prepared(text[0]), text[1])


def _fits(max_length: object, config: EncoderConfig) -> bool:
    return isinstance(max_length, int) and 3 <= max_length <= config.max_tokens_per_sequence


def check_max_length(max_length: int | None, config: EncoderConfig) -> int | None:
    """The same number, if the position table serves it.

    Raises:
        ConfigError: it does not.
    """
    positions = config.max_tokens_per_sequence
    if max_length is not None and not _fits(max_length, config):
        raise ConfigError(
            f"max_length {max_length} is not in 3..{positions}, what this model serves."
        )
    return max_length


def _task_of(checkpoint: Checkpoint, folder: Path) -> Task | None:
    """The task that filbert.json describes, else the one a Hugging Face config implies.

    Raises:
        FormatError: filbert.json describes no built-in task, or other labels than config.json.
    """
    stored = (checkpoint.filbert or {}).get("task") or _implied(checkpoint)
    if stored is None:
        return None
    try:
        # A folder may name a built-in task only: a module of its choosing must never be imported.
        if stored["name"] not in task_names():
            raise ValueError(f"{stored['name']!r} is no task of filbert")
        task = task_class(stored["name"]).from_dict(stored)
        if task.labels is None and stored["name"] in ("classification", "tagging"):
            raise ValueError("it names no labels")
        if None not in (checkpoint.labels, task.labels) and task.labels != checkpoint.labels:
            raise ValueError(f"its labels {task.labels} are not those of config.json")
        if task.head_kind != checkpoint.head:
            raise ValueError(f"{task.name} needs the head {task.head_kind!r}")
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"{folder / 'filbert.json'}: the task cannot be read: {printable(str(error), 300)}."
        ) from error
    return task


def _implied(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What a head and its labels say about the task, as `Task.to_dict` would."""
    labels, problem = checkpoint.labels, checkpoint.problem_type
    if checkpoint.head == "tokens":
        return {"name": "tagging", "labels": labels}
    if checkpoint.head in ("spans", "choices"):
        return {"name": "span_qa" if checkpoint.head == "spans" else "multiple_choice"}
    if checkpoint.head != "sequence" or labels is None:
        return None
    multilabel = problem == "multi_label_classification"
    # One output without a word on the problem means regression, as in transformers.
    if problem == "regression" or (len(labels) == 1 and not multilabel):
        return {"name": "regression"} if len(labels) == 1 else None
    task = {"name": "classification", "labels": labels, "multilabel": multilabel}
    return task | {"declared": True}
