"""Python functions for whole jobs: what `import filbert` offers, under the names of the verbs.

Keywords are the options of the command line, which `filbert VERB --help` describes: those that come
from option classes (`_options_of`) and those that a function lists itself. Docstrings say only what
is different in Python. Functions import what they need once the options are known to be right:
torch takes a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from filbert.compare.recipe import StudyOptions
from filbert.data.columns import ColumnNames
from filbert.data.shards import CorpusOptions
from filbert.data.tables import Rows, as_files
from filbert.errors import ConfigError, checked_keywords
from filbert.train.distill_options import DistillOptions
from filbert.train.options import (
    LISTS_AS_TEXT,
    PATHS,
    FinetuneOptions,
    LabelledFileOptions,
    Option,
    from_flat,
    names_of,
    options_in,
    with_options,
)
from filbert.train.pretrain_options import PretrainOptions

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

    from filbert import keywords
    from filbert.inference.predictor import Predictor, VectorOptions
    from filbert.tasks.doctor import Report
    from filbert.text.tokenizer import Text, Tokenizer

P = ParamSpec("P")
R = TypeVar("R")
PathLike: TypeAlias = str | os.PathLike[str]

# Options that take rows in memory as well as a file.
ROWS = ("data", "train", "dev", "test", "predictions")
# Modules that pre-train models of `lineage`, by objective.
LINEAGE = {
    "translation": "filbert.lineage.translation",
    **dict.fromkeys(("elmo", "ulmfit"), "filbert.lineage.pretraining"),
    "permutation": "filbert.lineage.xlnet",
}
# Short names in Python of two options.
_SHORT = {"text": "text_column", "label": "label_column"}


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder: run.json, metrics.jsonl, model/, report.html, plots/.
        facts: the content of run.json.
    """

    folder: Path
    facts: dict[str, Any]

    def __repr__(self) -> str:
        parts = [f"<filbert run in {self.folder}"]
        for split, metrics in self.metrics.items():
            first = list(_numbers_in(metrics).items())[:3]
            parts.append(f"{split} " + ", ".join(f"{name} {value:.4f}" for name, value in first))
        return "; ".join(parts) + ">"

    def _repr_html_(self) -> str:
        names = [*dict.fromkeys(n for m in self.metrics.values() for n in _numbers_in(m))]
        cells = "".join(f"<th>{escape(name)}</th>" for name in ["", *names])
        rows = ""
        for split, metrics in self.metrics.items():
            numbers = _numbers_in(metrics)
            values = (f"{numbers[n]:.4f}" if n in numbers else "" for n in names)
            rows += f"<tr><th>{escape(split)}</th>{''.join(f'<td>{v}</td>' for v in values)}</tr>"
        return f"<p>{escape(str(self.folder))}</p><table><tr>{cells}</tr>{rows}</table>"

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Metrics by split: {"dev": {...}, "test": {...}}."""
        return self.facts.get("metrics", {})  # type: ignore[no-any-return]

    @property
    def baseline(self) -> dict[str, Any] | None:
        """The best simple predictor on dev, otherwise on test; None if there is none."""
        return self.facts.get("baseline")

    @cached_property
    def model(self) -> Predictor:
        """The model that the run left, loaded."""
        return _loaded(self.folder / "model")


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Attributes:
        folder: the study's folder: results.json, report.html, plots/, contestants/.
        results: the content of results.json.
    """

    folder: Path
    results: dict[str, Any]


def _numbers_in(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if isinstance(value, float)}


# Options as keywords


def _options_of(
    kind: type, *, required: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose `**options` are those of a class, so that its signature lists them.

    Type checkers and editors read the same list in keywords.pyi, which docs/figures/signatures.py
    writes.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        known = dict(options_in(kind))
        known |= {name: known[long] for name, long in _SHORT.items() if long in known}
        added = with_options(function, known, _annotation, required=required)
        checked = checked_keywords(function)
        checked.options = kind, added  # type: ignore[attr-defined]
        return checked

    return decorated


def _annotation(option: Option) -> str:
    """Return the type of an option in Python, which may also be a path, rows or a list."""
    kind = option.type.__name__ if isinstance(option.type, type) else str(option.type)
    optional = " | None" if "None" in kind else ""
    if option.name in ROWS:
        return ("Rows | float" if option.name in ("dev", "test") else "Rows") + optional
    if "tuple[" in kind:
        return f"str | Iterable[Any]{optional}"
    if option.name in PATHS:
        return f"PathLike{optional}"
    return f"str | int | Sequence[Any]{optional}" if option.name in LISTS_AS_TEXT else kind


@contextmanager
def _chosen(kind: type[R], options: Mapping[str, Any]) -> Iterator[R]:
    """Check options and yield their value; rows in memory are files until the end."""
    named = {_SHORT.get(name, name): value for name, value in options.items()}
    with as_files(named, ROWS) as given:
        make = getattr(kind, "from_keywords", None)
        yield make(given) if make else from_flat(kind, given)


# Training


@_options_of(FinetuneOptions, required=("out",))
def finetune(**options: Unpack[keywords.FinetuneKeywords]) -> Run:
    """Fine-tune a model on labelled rows and write a run folder; see `filbert finetune`.

    `train`, `dev` and `test` are files or rows in memory, such as a DataFrame. `text` and `label`
    are short for `text_column` and `label_column`.

    Raises:
        ConfigError: An unknown or missing option, or options that contradict each other.
        InputError, FormatError: The data or the model is wrong; nothing has been written then.
        Interrupted: Ctrl-C, or "interrupt" in a notebook; with resume=True the run continues.
    """
    with _chosen(FinetuneOptions, options) as chosen:
        from filbert.train.seeds import run

        facts = run(chosen)
        return _reported(chosen.run.out, facts, hide_texts=chosen.data.hide_texts)


@_options_of(PretrainOptions, required=("out",))
def pretrain(**options: Unpack[keywords.PretrainKeywords]) -> Run:
    """Pre-train a model on raw text; see `filbert pretrain`. Raises what `finetune` does."""
    with _chosen(PretrainOptions, options) as chosen:
        if chosen.model.objective in LINEAGE:
            train = import_module(LINEAGE[chosen.model.objective]).pretrain
            return Run(Path(chosen.run.out), train(chosen))
        from filbert.train.pretrain import pretrain as run_pretraining

        return _reported(chosen.run.out, run_pretraining(chosen))


@_options_of(DistillOptions, required=("out",))
def distill(**options: Unpack[keywords.DistillKeywords]) -> Run:
    """Train a small model on the answers of a large one; see `filbert distill`.

    Raises what `finetune` does.
    """
    with _chosen(DistillOptions, options) as chosen:
        from filbert.train.distill import distill as distill_rows
        from filbert.train.distill_text import distill_text

        facts = distill_text(chosen) if chosen.from_text else distill_rows(chosen)
        return _reported(chosen.run.out, facts, hide_texts=chosen.data.hide_texts)


def _reported(out: str, facts: dict[str, Any], *, hide_texts: bool = False) -> Run:
    """Write the report of a run; only the first of several processes has facts."""
    if facts:
        from filbert.report.run import write_run_report

        write_run_report(Path(out), hide_texts=hide_texts)
    return Run(Path(out), facts)


@_options_of(StudyOptions)
def compare(
    recipe: PathLike | Mapping[str, Any],
    *,
    out: PathLike,
    only: str | Sequence[str] | None = None,
    overwrite: bool | None = None,
    **options: Unpack[keywords.StudyKeywords],
) -> Comparison:
    """Compare several models on the same rows; see `filbert compare`.

    An interrupted comparison goes on with the same call.

    Args:
        recipe: a TOML file, the name of a built-in study, or its content, with a table
            "contestants". The other arguments take precedence over it.

    Raises:
        ConfigError: an unknown keyword, key or contestant, or finished runs are of other rows or
            options, and `overwrite` is off.
        InputError, FormatError: the data, a model or a file of the study is wrong. After the
            training has begun, a contestant that fails raises nothing: its `status` says so.
        Interrupted: Ctrl-C or SIGTERM.
    """
    from filbert.compare.recipe import read_study
    from filbert.recipes import call_of_study, read_recipe, recipe_path

    name = "study"
    if not isinstance(recipe, Mapping):
        path = recipe_path(str(recipe), "compare")
        name, recipe = path.stem, read_recipe(path)
    call = call_of_study(recipe)
    of_study = {key: value for key, value in recipe.items() if key not in call}
    with _chosen(StudyOptions, options) as flags:
        study = read_study(of_study, flags, name=name)

        from filbert.compare.study import run_study

        results = run_study(
            study,
            str(out),
            only=names_of(call.get("only", ()) if only is None else only),
            overwrite=call.get("overwrite", False) if overwrite is None else overwrite,
        )
    return Comparison(Path(out), results)


# Measuring and checking


@_options_of(LabelledFileOptions)
def evaluate(
    model: PathLike | Sequence[PathLike] | Predictor | None = None,
    *,
    data: Rows,
    task: str | None = None,
    predictions: Rows | None = None,
    out: PathLike | None = None,
    **options: Unpack[keywords.LabelledFileKeywords],
) -> dict[str, Any]:
    """Return the metrics of a model on labelled rows, or those of predictions made elsewhere.

    See `filbert evaluate`; several models are measured as one, as `predict` has it. With
    `predictions`, one for each row of `data`, give their `task` and no model.
    """
    from filbert.evaluation import evaluate_model, score_predictions
    from filbert.tasks.base import task_class

    rows: dict[str, Any] = {"data": data, "predictions": predictions}
    with as_files(rows, rows) as files, _chosen(LabelledFileOptions, options) as chosen:
        if predictions is not None:
            if model is not None or task is None:
                raise ConfigError("Give either a model, or predictions and their task.")
            scored = task_class(task).from_options(chosen.task, chosen.columns)
            return score_predictions(
                scored, files["data"], files["predictions"], chosen.columns, out
            )
        if model is None:
            raise ConfigError("Give a model, or predictions and their task.")
        measured, path = _loaded(model), files["data"]
        return evaluate_model(measured, path, chosen.columns, out, options=chosen.task)


@_options_of(LabelledFileOptions)
def check(
    data: Rows,
    *,
    task: str,
    dev: Rows | None = None,
    test: Rows | None = None,
    model: PathLike | None = None,
    max_length: int | None = None,
    near_duplicates: bool = False,
    **options: Unpack[keywords.LabelledFileKeywords],
) -> Report:
    """Report what is wrong with a data set before anything is trained; see `filbert check`.

    `data` are the training rows.

    Returns:
        `problems`, the most serious first, and counts for each file in `splits`.
    """
    from filbert.tasks.base import task_class
    from filbert.tasks.doctor import check as check_rows

    rows = {"train": data, "dev": dev, "test": test}
    with as_files(rows, rows) as files, _chosen(LabelledFileOptions, options) as chosen:
        checked = task_class(task).from_options(chosen.task, chosen.columns)
        tokenizer = None
        if model is not None:
            from filbert.inference.stored_task import as_model_reads

            keeps = chosen.task.clean is not None
            tokenizer, checked = as_model_reads(str(model), checked, keeps_cleaning=keeps)
            max_length = max_length or tokenizer.max_length
        return check_rows(
            [(name, path) for name, path in files.items() if path is not None],
            checked,
            chosen.columns,
            tokenizer=tokenizer,
            max_length=max_length or 512,
            near=near_duplicates,
        )


# Vocabularies and corpora


@checked_keywords
def vocab(
    corpus: PathLike | Sequence[PathLike],
    *,
    out: PathLike,
    kind: str,
    size: int,
    cased: bool = False,
    min_count: int = 2,
    text_column: str = "text",
    overwrite: bool = False,
    progress: Callable[[str, int], None] = lambda stage, done: None,
) -> dict[str, Any]:
    """Learn a vocabulary from text, write its folder, and return how well it fits.

    See `filbert vocab`. `progress` is called with the name of a stage and what was done in it since
    the last call.
    """
    from importlib.metadata import version

    from filbert.data.documents import read_documents
    from filbert.data.records import file_digest
    from filbert.files import replace_folder, write_json
    from filbert.text.learning import LearnOptions, learn

    options = LearnOptions(kind=kind, size=size, cased=cased, min_count=min_count)
    folder, files = Path(out), _paths(corpus)
    if (folder / "vocabulary.json").is_file() and not overwrite:
        raise ConfigError(f"{folder} exists. Name another folder, or add --overwrite.")
    with replace_folder(folder, marker="vocabulary.json") as new:
        digests = [{"name": Path(file).name, "sha256": file_digest(file)} for file in files]
        tokenizer, report = learn(
            lambda: read_documents(files, text_column=text_column), options, progress=progress
        )
        report["files"] = digests
        report["versions"] = {name: version(name) for name in ("filbert", "tokenizers")}
        tokenizer.save(new)
        write_json(new / "vocabulary.json", report)
    return report


@_options_of(CorpusOptions)
def corpus(
    corpus: PathLike | Sequence[PathLike],
    *,
    tokenizer: PathLike,
    out: PathLike,
    workers: int | None = None,
    overwrite: bool = False,
    **options: Unpack[keywords.CorpusKeywords],
) -> dict[str, Any]:
    """Turn text into token shards for pre-training, and return their counts.

    See `filbert corpus`. After a kill the same call continues.
    """
    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.build import build_corpus

    with _chosen(CorpusOptions, options) as chosen:
        built = build_corpus(
            _paths(corpus),
            read_tokenizer(find_model(str(tokenizer), tokenizer_only=True)),
            Path(out),
            options=chosen,
            workers=workers,
            overwrite=overwrite,
        )
    return built.manifest["counts"]  # type: ignore[no-any-return]


@checked_keywords
def tokenize(
    model: PathLike | Predictor | Tokenizer,
    texts: str | Iterable[Text],
    *,
    max_length: int | None = None,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the tokens of a text, or those of many texts.

    Args:
        model: A model, its name, a folder with a tokenizer, or a tokenizer.
        texts: One text, or an iterable of texts and pairs of texts. They are read as they are,
            without a model's cleaning.
        max_length: Truncate texts to this many tokens; None never does.

    Returns:
        For each text `tokens`, `ids`, `offsets`, `words` (None for special tokens),
        `token_type_ids`, `num_tokens` before truncation, and `truncated`.
    """
    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.text.tokenizer import Tokenizer

    if isinstance(model, str | os.PathLike):
        tokenizer = read_tokenizer(find_model(str(model), tokenizer_only=True))
    else:
        tokenizer = model if isinstance(model, Tokenizer) else model.tokenizer
    given: list[Text] = [texts] if isinstance(texts, str) else list(texts)
    tokens = []
    for encoding in tokenizer.encode(given, max_length=max_length, with_offsets=True):
        assert encoding.offsets is not None and encoding.words is not None
        tokens.append(
            {
                "tokens": tokenizer.tokens(encoding.input_ids),
                "ids": encoding.input_ids.tolist(),
                "offsets": encoding.offsets.tolist(),
                "words": [None if word < 0 else word for word in encoding.words.tolist()],
                "token_type_ids": encoding.token_type_ids.tolist(),
                "num_tokens": encoding.num_tokens,
                "truncated": encoding.truncated,
            }
        )
    return tokens[0] if isinstance(texts, str) else tokens


def _paths(given: PathLike | Sequence[PathLike]) -> list[str]:
    return [str(given)] if isinstance(given, str | os.PathLike) else list(map(str, given))


# Using a model


def _loaded(model: PathLike | Sequence[PathLike] | Predictor) -> Predictor:
    from filbert.inference.predictor import Predictor

    return model if isinstance(model, Predictor) else Predictor.load(model)


@checked_keywords
def predict(
    model: PathLike | Sequence[PathLike] | Predictor, items: Any, *, as_frame: bool = False
) -> Any:
    """Answer one item or many; see `Predictor.predict`. To use a model often, `load` it once.

    Several models answer with the mean of their probabilities, or of start and end scores.
    """
    return _loaded(model).predict(items, as_frame=as_frame)


@checked_keywords
def embed(
    model: PathLike | Predictor,
    texts: Text | Iterable[Text],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    layers: Sequence[int] = (-1,),
    prompt: str | None = None,
    dimensions: int | None = None,
) -> np.ndarray | list[np.ndarray]:
    """Return the vector of a text, or those of many; see `Predictor.embed`."""
    how: VectorOptions = {"pooling": pooling, "normalize": normalize, "layers": layers}
    how |= {"prompt": prompt, "dimensions": dimensions}
    return _loaded(model).embed(texts, **how)


@checked_keywords
def fill(
    model: PathLike | Predictor, texts: str | Iterable[str], *, top: int = 5
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the most probable words in place of every [MASK]; see `Predictor.fill`."""
    return _loaded(model).fill(texts, top=top)


@checked_keywords
def score(
    model: PathLike | Predictor, texts: str | Iterable[str]
) -> dict[str, Any] | list[dict[str, Any]]:
    """Return how probable texts are to a masked-LM model; see `Predictor.score`."""
    return _loaded(model).score(texts)


# Making models smaller, and other formats


@_options_of(ColumnNames)
def export(
    model: PathLike,
    *,
    out: PathLike,
    format: str = "onnx",
    int8: bool = False,
    pooling: str | None = None,
    data: Rows | None = None,
    max_loss: float | None = None,
    overwrite: bool = False,
    **columns: Unpack[keywords.ColumnNamesKeywords],
) -> dict[str, Any]:
    """Write a model for other runtimes, after comparing what it computes with the original.

    See `filbert export`.

    Returns:
        The largest difference to the original, and the metrics of both.
    """
    from filbert.checkpoints.opening import find_model
    from filbert.files import check_target
    from filbert.onnx_export import export_onnx

    if format != "onnx":
        raise ConfigError(f"--format {format} is not one of onnx.")
    check_target(Path(out), find_model(str(model)), overwrite=overwrite)
    with as_files({"data": data}, ROWS) as files, _chosen(ColumnNames, columns) as names:
        return export_onnx(
            str(model),
            Path(out),
            int8=int8,
            pooling=pooling,
            data=files["data"],
            names=names,
            max_loss=max_loss,
        )


@_options_of(ColumnNames)
def shrink(
    model: PathLike,
    *,
    out: PathLike,
    keep_layers: str | int | None = None,
    vocabulary_from: PathLike | Sequence[PathLike] = (),
    overwrite: bool = False,
    **columns: Unpack[keywords.ColumnNamesKeywords],
) -> dict[str, Any]:
    """Make a model smaller without training, as a start for finetune or distill.

    See `filbert shrink`.

    Returns:
        "steps", each with its parameters and bytes; the first is the original model.
    """
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.files import check_target
    from filbert.shrinking import shrink as shrink_model
    from filbert.train.base_model import layers_to_keep

    place = find_model(str(model))
    check_target(Path(out), place, overwrite=overwrite)
    with _chosen(ColumnNames, columns) as names:
        layers = None
        if keep_layers is not None:
            count = read_checkpoint(place).config.num_hidden_layers
            layers = layers_to_keep(str(keep_layers), count)
        return shrink_model(
            str(model),
            Path(out),
            keep_layers=layers,
            vocabulary_from=_paths(vocabulary_from),
            names=names,
        )


@_options_of(ColumnNames)
def convert(
    source: PathLike,
    target: PathLike,
    *,
    to: str,
    data: Rows | None = None,
    max_loss: float | None = None,
    adapter: str | None = None,
    overwrite: bool = False,
    **columns: Unpack[keywords.ColumnNamesKeywords],
) -> dict[str, Any]:
    """Write a model in another format; see `filbert convert`."""
    from filbert.conversion import convert_model

    with as_files({"data": data}, ROWS) as files, _chosen(ColumnNames, columns) as names:
        return convert_model(
            str(source),
            Path(target),
            to=to,
            data=files["data"],
            names=names,
            max_loss=max_loss,
            adapter=adapter,
            overwrite=overwrite,
        )


@checked_keywords
def info(model: PathLike, other: PathLike | None = None) -> dict[str, Any]:
    """Return what a model is and how it was trained; of two, what differs."""
    from filbert.checkpoints.differences import differences
    from filbert.checkpoints.opening import find_model
    from filbert.inference.predictor import model_facts

    if other is None:
        return model_facts(str(model))
    names = str(model), str(other)
    return differences(names, (find_model(names[0]), find_model(names[1])))


@checked_keywords
def push(model: PathLike, repo: str, *, private: bool = False) -> str:
    """Upload a model folder to the Hugging Face Hub and return its address."""
    from filbert.checkpoints import upload

    return upload.push(Path(model).expanduser(), repo, private=private)
