"""A model made smaller step by step, with what each step saves and what it costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filbert.checkpoints.checkpoint import with_layers
from filbert.checkpoints.fresh import factorised
from filbert.checkpoints.opening import find_model
from filbert.data.columns import ColumnNames
from filbert.data.documents import read_documents
from filbert.data.examples import Example
from filbert.data.records import file_digest
from filbert.errors import ConfigError
from filbert.evaluate import evaluate_model, figure_names
from filbert.masked_text import pretraining_of
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.shrink.heads import most_important, named_heads, prune_heads
from filbert.shrink.importance import head_importance, metrics_without
from filbert.shrink.options import ShrinkOptions
from filbert.shrink.save import save_shrunk
from filbert.shrink.vocabulary import cut_vocabulary

log = logging.getLogger(__name__)


def shrink(
    name: str, out: Path, options: ShrinkOptions, names: ColumnNames | None = None
) -> dict[str, Any]:
    """Make a smaller model of one, as a starting point for fine-tuning or distillation.

    Layers go first, then heads, then vocabulary entries, then the tables' width, so that
    importance is that of heads in the model that they will be in.

    Args:
        name: of the model: a folder, a checkpoint, a built-in name or a Hub id.
        out: the model folder; it appears when all is complete.
        options: what to take away.
        names: columns of the labelled rows, and that of the second texts in the vocabulary's files.

    Returns:
        What filbert.json says under "shrunk": "steps", each with its name, parameters, bytes and
        metrics, the first being the model as it was.

    Raises:
        ConfigError: the model cannot lose what was asked for, or has neither a task nor a masked-LM
            head to be measured by.
        InputError, FormatError: the model or a file is wrong.
    """
    predictor = Predictor.load(name)
    assert predictor.checkpoint is not None
    if options.data and options.embedding_size is not None and predictor.task is None:
        raise ConfigError(
            "Narrower tables leave the masked-LM head out, so that nothing is left to be measured. "
            "Leave --data out, or fine-tune the model first."
        )
    if options.heads is not None:
        # Their importance is that for a task.
        predictor.known_task()
    work = _Work(predictor, options.data, names or ColumnNames())
    if options.keep_layers is not None:
        work.drop_layers(options.keep_layers)
    if options.heads is not None or options.keep_heads:
        work.drop_heads(options)
    if options.vocabulary_from:
        work.cut_vocabulary(options)
    if options.embedding_size is not None:
        work.narrow_tables(options.embedding_size)
    judged_by = predictor.task.selection_metric if predictor.task else "mlm_accuracy"
    facts = {
        "from": Path(name).name if Path(name).is_absolute() else name,
        "filbert": version("filbert"),
        "metric": judged_by if options.data else None,
        "data": _file(options.data) if options.data else None,
        "corpus": [_file(file) for file in options.vocabulary_from],
        "steps": work.steps,
        "notes": list(work.checkpoint.notes),
    }
    save_shrunk(
        out,
        work.checkpoint,
        work.tokenizer,
        source=find_model(name),
        stored=(predictor.checkpoint.filbert or {}) | work.told,
        facts=facts,
    )
    return facts


def study_heads(
    name: str, data: str, names: ColumnNames | None = None, *, max_length: int | None = None
) -> dict[str, Any]:
    """What every head of a model is worth for its task.

    Args:
        name: of the model.
        data: labelled rows.
        names: their columns.
        max_length: cut them to this many tokens; the model's own limit when not given.

    Returns:
        "metric" (what the model's best step was chosen by) and "value" of the whole model; "rows";
        by layer and head "importance" (see `importance.head_importance`) and "without": the same
        metric with this head alone masked. None stands for a head that was pruned.

    Raises:
        ConfigError: the model has no task, or its layers no heads of their own.
        InputError, FormatError: the model or the data is wrong.
    """
    predictor = Predictor.load(name, max_length=max_length)
    gold, examples = _labelled(predictor, data, names or ColumnNames())
    task, config = predictor.known_task(), predictor.model.config
    importance = head_importance(_model(predictor), task, examples, max_tokens=predictor.max_tokens)
    metric = task.selection_metric
    without: list[list[float | None]] = [
        [None] * config.num_attention_heads for _ in range(config.num_hidden_layers)
    ]
    for layer, head, metrics in metrics_without(predictor, gold, examples):
        without[layer][head] = metrics[metric]
        if head == config.heads_of(layer) - 1:
            log.info("masked every head of layer %d of %d", layer, config.num_hidden_layers - 1)
    return {
        "model": name,
        "data": _file(data),
        "rows": len(gold),
        "metric": metric,
        "value": task.metrics(gold, predictor.answers(examples))[metric],
        "importance": [[None if v != v else v for v in row] for row in importance.tolist()],
        "without": without,
    }


class _Work:
    """The model between two steps.

    Attributes:
        checkpoint, tokenizer: as they are now.
        told: what filbert.json goes on telling, so that every step is measured as the first was.
        predictor: of both.
        steps: what was done so far, with what is left and what it is worth.
    """

    def __init__(self, predictor: Predictor, data: str | None, names: ColumnNames) -> None:
        assert predictor.checkpoint is not None
        self.predictor, self.data, self.names = predictor, data, names
        self.checkpoint, self.tokenizer = predictor.checkpoint, predictor.tokenizer
        told = pretraining_of(self.checkpoint)
        self.told: dict[str, Any] = {"pretrained": told} if told else {}
        self.steps: list[dict[str, Any]] = []
        if data is not None:
            figure_names(predictor)
        self._record("as it was")

    def drop_layers(self, layers: Sequence[int]) -> None:
        before = self.checkpoint.config.num_hidden_layers
        self.checkpoint = with_layers(self.checkpoint, layers)
        self._rebuild()
        self._record(f"{len(layers)} of {before} layers", layers=list(layers))

    def drop_heads(self, options: ShrinkOptions) -> None:
        config = self.checkpoint.config
        before = sum(map(config.heads_of, range(config.num_hidden_layers)))
        if options.heads is None:
            kept = named_heads(options.keep_heads, config)
        else:
            assert options.data is not None
            _, examples = _labelled(self.predictor, options.data, self.names)
            task = self.predictor.known_task()
            importance = head_importance(
                _model(self.predictor), task, examples, max_tokens=self.predictor.max_tokens
            )
            kept = most_important(importance, options.heads)
        self.checkpoint = prune_heads(self.checkpoint, kept)
        self._rebuild()
        self._record(f"{sum(map(len, kept))} of {before} heads", heads=kept)

    def cut_vocabulary(self, options: ShrinkOptions) -> None:
        clean = getattr(self.predictor.task, "clean", None) or str
        prepared = self.predictor.sentence_vectors.prepared

        def read(text: str) -> str:
            """As the model is given it."""
            return str(prepared("\n".join(map(clean, text.split("\n")))))

        def texts() -> Iterator[str]:
            found = read_documents(
                options.vocabulary_from,
                text_column=options.text_column,
                pair_column=self.names.own("text_pair"),
            )
            return (read("\n".join(document.lines)) for document in found)

        cut = cut_vocabulary(
            self.checkpoint,
            self.tokenizer,
            texts,
            min_count=options.min_count,
            size=options.vocabulary_size,
        )
        self.checkpoint, self.tokenizer = cut.checkpoint, cut.tokenizer
        self._rebuild()
        entries, before = cut.facts["entries"], cut.facts["entries_before"]
        self._record(f"{entries:,} of {before:,} entries", **cut.facts)

    def narrow_tables(self, size: int) -> None:
        before = self.checkpoint.config.table_size
        self.checkpoint, share = factorised(self.checkpoint, size)
        self._rebuild()
        self._record(f"tables {size} wide instead of {before}", variance_kept=share)

    def _rebuild(self) -> None:
        """The predictor of the model as it is now, used as the one before."""
        self.checkpoint = replace(self.checkpoint, filbert=self.told or None)
        old, config = self.predictor, self.checkpoint.config
        self.tokenizer.check_fits(
            config.vocab_size, config.type_vocab_size, self.checkpoint.source or Path()
        )
        model = self.checkpoint.build().to(old.device)
        if old.task is not None and old.task.head_kind is None:
            model.head = old.task.head(config)
        self.predictor = Predictor(
            model,
            self.tokenizer,
            old.task,
            max_length=old.max_length,
            max_tokens=old.max_tokens,
            sentence_vectors=old.sentence_vectors,
            checkpoint=self.checkpoint,
        )

    def _record(self, what: str, **facts: Any) -> None:
        tensors = self.checkpoint.tensors.values()
        step = {
            "name": what,
            "parameters": sum(tensor.numel() for tensor in tensors),
            "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        }
        if self.data is not None:
            log.info("measuring the model: %s", what)
            metrics = evaluate_model(self.predictor, self.data, self.names)
            step["metrics"] = {key: metrics.get(key) for key in figure_names(self.predictor)}
        self.steps.append(step | facts)


def _labelled(
    predictor: Predictor, data: str, names: ColumnNames
) -> tuple[list[Any], list[Example]]:
    """The wanted answers of labelled rows, and their sequences with targets."""
    task = predictor.known_task().reading(names)
    rows = list(task.read(data, names))
    examples = task.examples(
        rows, predictor.tokenizer, max_length=predictor.max_length, with_targets=True
    )
    return [task.gold(row) for row in rows], examples


def _model(predictor: Predictor) -> Model:
    if not isinstance(predictor.model, Model):
        raise ConfigError("Only a model that torch runs has heads to look at.")
    return predictor.model


def _file(path: str) -> dict[str, str]:
    """A file's name, without the machine's folders, and its digest."""
    return {"file": Path(path).name, "sha256": file_digest(path)}
