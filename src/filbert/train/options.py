"""Options of a training run: small values inside one value, and their flat names.

Flags, keywords, the records in run.json and older recipes have one flat name per option, such as
`lr`. `options_in` lists the options of a class by these names; `from_flat` and `flat` convert.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from filbert.data.columns import ColumnNames
from filbert.data.labels import label_name
from filbert.errors import ConfigError, did_you_mean, install_hint, printable
from filbert.model.config import PRECISIONS
from filbert.tasks.base import TaskOptions, check_name

# Options that hold several names.
NAME_LISTS = ("labels", "label_columns", "merge_labels", "choice_columns")
# Options that name files or folders.
PATHS = (
    "data", "train", "dev", "test", "out", "model", "corpus", "tokenizer", "teacher",
    "student", "embeddings",
)  # fmt: skip
# Options that do not change what a run computes, so that they may change when it is resumed.
FREE = (
    "out", "overwrite", "resume", "tensorboard", "save_every", "hide_texts", "license",
    "language", "keep_states", "baseline",
)  # fmt: skip
# What a model card may declare, in the Hub's spelling.
DECLARED = {"license": r"[a-z0-9][a-z0-9.-]{0,63}", "language": r"[a-z]{2,3}|multilingual|code"}
SCHEDULES = ("linear", "bert", "electra", "cosine", "trapezoid", "constant")
OPTIMIZERS = ("adamw", "bert_adam", "lamb", "muon")
# Texts that may also be given as a list. A number alone in keep_layers counts the first layers, so
# a list becomes spans.
LISTS_AS_TEXT = {
    "class_weights": "{}", "clean": "{}", "layer_map": "{}", "keep_layers": "{0}-{0}",
}  # fmt: skip
# Texts that may be given as numbers.
_NUMBERS_AS_TEXT = ("keep_layers", "dev", "test")
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in _SECONDS), re.ASCII)
_LARGEST_SEED = 2**31 - 1
# Of dev and of test rows in one file with all rows.
_USUAL_SHARE = 0.1
Options = TypeVar("Options")
T = TypeVar("T")


def chosen_value(value: T | None) -> T:
    """Return the value of an option that is chosen where the user gives none, such as `lr`."""
    assert value is not None
    return value


def check_range(options: Any, names: Iterable[str], allowed: str, test: Any) -> None:
    """Refuse numbers of options that do not pass a test; None is not checked.

    `allowed` is the range in words, such as "be above zero".
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not test(value):
            raise ConfigError(f"{name} is {value}; it must {allowed}.")


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Refuse a value that is not among the known ones; the nearest is given."""
    if value not in known:
        hint = did_you_mean(value, known)
        raise ConfigError(f"{name} is {value!r}; it must be one of {list(known)}.{hint}")


def check_files(**paths: str | None) -> None:
    """Refuse standard input for files that are read more than once."""
    for name, path in paths.items():
        if path == "-":
            raise ConfigError(f"--{name} must be a file: it is read more than once.")


def share_in(text: str) -> float | None:
    """Return a share of rows such as "0.1"; None for the name of a file."""
    try:
        share = float(text)
    except ValueError:
        return None
    if not 0 <= share < 1:
        raise ConfigError(f"The share {text} must be in [0, 1), such as 0.1.")
    return share


def parse_time(text: str) -> float:
    """Return the seconds of a time such as 90s, 20m, 1h30m or 1d, the larger units first.

    Raises:
        ConfigError: It is no such time, or zero.
    """
    parts = _TIME.fullmatch(text.strip().lower())
    numbers = [float(part or 0) for part in parts.groups()] if parts else []
    seconds = sum(n * unit for n, unit in zip(numbers, _SECONDS.values(), strict=False))
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"time is {printable(text)!r}; give numbers with units, such as 90s, 20m or 1h30m."
        )
    return seconds


def names_of(given: str | Iterable[Any]) -> tuple[str, ...]:
    """Return names in a list, or between commas in one text or several: `a,b`, ["a,b", "c"]."""
    items = [given] if isinstance(given, str | Path) else given
    try:
        # A number may be the name of a label; texts are of any length, as lists of paths are.
        texts = [str(i) if isinstance(i, str | Path) else label_name(i) for i in items]
    except (TypeError, ValueError):
        raise ConfigError(f"{given!r} is no list of names.") from None
    parts = (part.strip() for text in texts for part in text.split(","))
    return tuple(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which rows, and how they are read.

    Attributes:
        data: all labelled rows, which are split into train, dev and test: 80, 10 and 10 % unless
            `dev` and `test` say otherwise. Near-duplicates are kept together.
        train: training rows.
        dev: rows to choose the best step, the threshold and the temperature on: a file, or a share
            such as 0.1 that is cut out of `data` or `train`; 0 for none.
        test: rows that are only measured, at the end: a file or a share, as for `dev`.
        group_column: rows with the same value in this column, such as an author, are in the same
            part of a split.
        split_seed: random seed of the split; that of the run (`seed`) when not given.
        folds: cross-validation: number of trainings on `data`, each time without one part, which is
            then measured; the model that is kept is trained on all rows.
        fold: train for one fold only, from 1 to `folds`.
        max_length: cut texts to this many tokens; the model's own limit when not given, for
            questions (span_qa) 384 at most.
        hide_texts: the report has no text of the data; by default it shows those of the worst
            errors on a click.
        columns: the names of the columns.
    """

    data: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    group_column: str | None = None
    split_seed: int | None = None
    folds: int = 0
    fold: int | None = None
    max_length: int | None = None
    hide_texts: bool = False
    columns: ColumnNames = ColumnNames()

    def __post_init__(self) -> None:
        check_files(data=self.data, train=self.train, dev=self.dev, test=self.test)
        if (self.data is None) == (self.train is None):
            given = "--data and --train are both given" if self.data else "No rows are given"
            raise ConfigError(
                f"{given}. Give --data FILE, which is split into train, dev and test, or --train "
                "FILE."
            )
        if sum(self.cut.values()) >= 1:
            raise ConfigError("The shares --dev and --test leave nothing to train on.")
        if self.folds or self.fold is not None:
            if self.data is None or self.dev is not None or self.test is not None:
                raise ConfigError(
                    "--folds measures every row of --data once. Give --data, without --dev and "
                    "--test."
                )
            if self.folds < 2 or not 1 <= (self.fold or 1) <= self.folds:
                raise ConfigError(
                    f"folds is {self.folds}, fold {self.fold}; give 2 folds or more, and the "
                    "number of one of them."
                )
        if self.group_column is not None and not self.is_split:
            raise ConfigError("--group-column is for rows that are split; give --data or a share.")
        check_range(self, ("split_seed",), "not be negative", lambda value: value >= 0)

    @property
    def source(self) -> str:
        """The file with the training rows."""
        return str(self.data or self.train)

    @property
    def cut(self) -> dict[str, float]:
        """The shares of dev and test that are cut out of `source`, above zero."""
        usual = None if self.data is None or self.folds else _USUAL_SHARE
        given = {"dev": self.dev, "test": self.test}
        shares = {n: usual if text is None else share_in(text) for n, text in given.items()}
        return {name: share for name, share in shares.items() if share}

    @property
    def is_split(self) -> bool:
        """Whether the rows of `source` are split."""
        return bool(self.cut) or self.folds > 0

    @property
    def files(self) -> dict[str, str]:
        """The files of dev and test rows that have their own."""
        given = {"dev": self.dev, "test": self.test}
        return {n: text for n, text in given.items() if text and share_in(text) is None}

    @property
    def has_dev(self) -> bool:
        """Whether there are dev rows."""
        return "dev" in self.cut or "dev" in self.files


@dataclass(frozen=True, kw_only=True)
class TaskChoice:
    """Which task, and its own options.

    Attributes:
        name: classification, regression, tagging, span_qa, multiple_choice or embedding.
        options: those of the task.
    """

    name: str = field(metadata={"flat": "task"})
    options: TaskOptions = TaskOptions()

    def __post_init__(self) -> None:
        check_name(self.name)


@dataclass(frozen=True, kw_only=True)
class BaseModelOptions:
    """Which model training starts from.

    Attributes:
        name: model to start from: a folder, a built-in name (filbert-mini, minilm) or a Hub id.
        causal: every token attends only to itself and to those before it; the last token then
            represents the text, instead of the first.
        keep_layers: start from a smaller model with some of the layers: 3 for the first three, or
            their numbers from 0 such as 0,2,5 or 0-2,5; other options count those that are left.
        reinit_layers: initialise this many of the top layers, and the pooler, at random.
        new_head: initialise the head at random even if the model has one that was trained for the
            same task and labels.
        lora: freeze the encoder, and train low-rank additions of this rank to its dense layers,
            such as 16; the run folder also has them alone, as `adapter/` in PEFT's layout.
        embeddings: file of vectors by word or symbol, a line each, as word2vec and GloVe write
            them; the rows of those that are entries of the vocabulary begin with them.
    """

    name: str = field(metadata={"flat": "model"})
    causal: bool = False
    keep_layers: str | None = None
    reinit_layers: int = 0
    new_head: bool = False
    lora: int | None = None
    embeddings: str | None = None

    def __post_init__(self) -> None:
        check_range(self, ("reinit_layers",), "not be negative", lambda value: value >= 0)
        check_range(self, ("lora",), "be above zero", lambda value: value > 0)
        if self.lora and (self.causal or self.keep_layers or self.reinit_layers):
            raise ConfigError(
                "lora trains additions to a model that stays as it is; leave out causal, "
                "keep_layers and reinit_layers."
            )


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Hyper-parameters: batches, optimizer, learning rate, and the choice of the best step.

    Attributes:
        batch_size: rows per optimizer step, over all processes; 16 or 32 by the number of training
            rows when not given.
        max_tokens: tokens per micro-batch in one process; 8,192 on a CPU, 65,536 on a GPU when not
            given, of which fine-tuning with `lora` takes a sixteenth.
        lr: peak learning rate; by the width of the model and the number of rows when not given: of
            a new head 1e-3 or 1e-4 for MiniLM and 1e-4 for BERT-base, of a head that was trained
            before 4e-5 and 2e-5, with `lora` 1e-3 and 5e-4.
        epochs: passes over the training rows (a fraction is allowed); 3 to 50 when not given, for
            about 200 steps or more.
        steps: optimizer steps; overrides `epochs`.
        time: how long the run may take, such as 20m or 1h30m, evaluations and saving included; it
            overrides `steps`, and the schedule is fitted to it.
        optimizer: adamw (with bias correction), bert_adam (Google's, without), lamb (for very large
            batches) or muon (for the matrices of the layers, adamw for the rest).
        schedule: of the learning rate after warm-up: linear (down to 0), bert (Google's), electra,
            cosine, trapezoid (constant, then down) or constant.
        warmup: share of the run over which the learning rate rises from 0.
        weight_decay: decoupled decay of matrices and tables; biases and LayerNorm are left out.
        beta1: decay of Adam's mean.
        beta2: decay of Adam's square mean.
        eps: added to the root of Adam's square mean; 1e-8 when not given, 1e-6 for bert_adam and
            lamb, as in their authors' code.
        clip: largest global gradient norm; 0 for no clipping.
        layer_decay: each layer learns at this share of the rate of the layer above it; 1 when not
            given, but with a new head and without `lr` so that the embeddings learn at a tenth.
        freeze: what is not trained, between commas: embeddings, layers such as 0-7 or 3, or encoder
            for all of it (its outputs are then computed once and kept).
        dropout: overrides the checkpoint's dropout on hidden states, attention and head.
        eval_every: optimizer steps between evaluations on dev; once an epoch when not given, and
            without `epochs` at most 10 times.
        patience: stop after this many evaluations without a better one; 0 never stops early.
        metric: what "better" means, a key of the dev metrics; the task's own choice when not given.
    """

    batch_size: int | None = None
    max_tokens: int | None = None
    lr: float | None = None
    epochs: float | None = None
    steps: int | None = None
    time: str | None = None
    optimizer: str = "adamw"
    schedule: str = "linear"
    warmup: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float | None = None
    clip: float = 1.0
    layer_decay: float | None = None
    freeze: str | None = None
    dropout: float | None = None
    eval_every: int | None = None
    patience: int = 0
    metric: str | None = None

    def __post_init__(self) -> None:
        above_zero = ("batch_size", "max_tokens", "lr", "epochs", "steps", "eps", "eval_every")
        check_range(self, above_zero, "be above zero", lambda value: value > 0)
        shares = ("warmup", "beta1", "beta2", "dropout")
        check_range(self, shares, "be in [0, 1)", lambda value: 0 <= value < 1)
        not_negative = ("weight_decay", "clip", "patience")
        check_range(self, not_negative, "not be negative", lambda value: value >= 0)
        check_range(self, ("layer_decay",), "be in (0, 1]", lambda value: 0 < value <= 1)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.time is not None:
            parse_time(self.time)

    @property
    def time_seconds(self) -> float | None:
        """The time budget in seconds; None without one."""
        return None if self.time is None else parse_time(self.time)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run writes, on which device it computes, and from which seed.

    Attributes:
        out: the run folder to make.
        overwrite: replace an earlier run in `out`.
        resume: continue an interrupted run in the same run folder.
        seed: random seed for the new head, shuffling and dropout.
        seeds: number of trainings, with consecutive seeds; the best is kept.
        precision: auto, float32 or bf16.
        device: cpu, cuda, ...; the first GPU when there is one.
        save_every: optimizer steps between saved states, from which --resume continues; after every
            evaluation when not given, 0 for none.
        keep_states: keep the saved states of a finished run; they are several times the model.
        baseline: measure simple predictors, such as TF-IDF + logistic regression, on the same rows.
        tensorboard: also write TensorBoard event files.
        license: for the model card, an identifier of the Hub's such as apache-2.0; that of the
            model it starts from when not given.
        language: for the model card, codes such as en or en,de; likewise.
    """

    out: str = ""
    overwrite: bool = False
    resume: bool = False
    seed: int = 42
    seeds: int = 1
    precision: str = "auto"
    device: str | None = None
    save_every: int | None = None
    keep_states: bool = False
    baseline: bool = True
    tensorboard: bool = False
    license: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise ConfigError(
                "--resume continues an earlier run, --overwrite replaces it. Give one; an "
                "interrupted --overwrite is continued with --resume alone."
            )
        check_range(
            self, ("seed",), f"be from 0 to {_LARGEST_SEED}", lambda v: 0 <= v <= _LARGEST_SEED
        )
        check_range(self, ("seeds",), "be above zero", lambda value: value > 0)
        check_range(self, ("save_every",), "not be negative", lambda value: value >= 0)
        check_choice("precision", self.precision, PRECISIONS)
        for name, example in (("license", "apache-2.0"), ("language", "en or en,de")):
            for declared in names_of(getattr(self, name) or ""):
                if not re.fullmatch(DECLARED[name], declared):
                    raise ConfigError(
                        f"{name} is {declared!r}; write it as the Hugging Face Hub does, such as "
                        f"{example}."
                    )
        if self.tensorboard and find_spec("tensorboard") is None:
            raise ConfigError(
                f"--tensorboard needs the tensorboard package. {install_hint('tensorboard')}"
            )


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """A whole fine-tuning run.

    Attributes:
        contrast: weight of a second loss, which draws the vectors of texts with one label together;
            above 0, the new head starts from a logistic regression. 1 when not given for fewer than
            1,000 rows of one label each (without lr, epochs, steps, time, freeze and lora), else 0.
    """

    task: TaskChoice
    model: BaseModelOptions
    data: DataOptions
    train: TrainOptions = TrainOptions()
    run: RunOptions = RunOptions()
    contrast: float | None = None

    def __post_init__(self) -> None:
        train = self.train
        check_range(self, ("contrast",), "not be negative", lambda value: value >= 0)
        if not self.data.has_dev and (train.metric or train.patience or train.eval_every):
            raise ConfigError("metric, patience and eval_every need dev rows; give --dev.")
        if self.model.lora and train.freeze:
            raise ConfigError("lora freezes the whole encoder; leave out freeze.")

    @classmethod
    def from_keywords(cls, given: Mapping[str, Any]) -> FinetuneOptions:
        """Return the options for flat names; see `from_flat`."""
        return from_flat(cls, given, required=("task", "model", "out"))


@dataclass(frozen=True, kw_only=True)
class LabelledFileOptions:
    """How a file of labelled rows is read: its columns, and the options of its task."""

    columns: ColumnNames = ColumnNames()
    task: TaskOptions = TaskOptions()


# Conversion between flat names and composed values


class Option(NamedTuple):
    """One option of a class of options.

    `path` has the names of the fields that lead to it, `default` is `dataclasses.MISSING` without
    one, and `doc` is its entry in the docstring of its class.
    """

    name: str
    path: tuple[str, ...]
    type: Any
    default: Any
    doc: str


def options_in(kind: type, defaults: Any = None) -> dict[str, Option]:
    """Return all options of a class by flat name, those of inner values included.

    `defaults` is a value of the class that has the defaults instead of the class itself.
    """
    types = get_type_hints(kind)
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        doc = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        docs |= dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", doc, re.MULTILINE))
    found: dict[str, Option] = {}
    for part in fields(kind):
        default = part.default if defaults is None else getattr(defaults, part.name)
        if is_dataclass(types[part.name]):
            inner = options_in(types[part.name], None if default is MISSING else default)
            found |= {n: o._replace(path=(part.name, *o.path)) for n, o in inner.items()}
        else:
            name = part.metadata.get("flat", part.name)
            doc = docs.get(part.name, "")
            found[name] = Option(name, (part.name,), types[part.name], default, doc)
    return found


def with_options(
    function: Callable[..., Any],
    options: Mapping[str, Option],
    annotation: Callable[[Option], Any],
    *,
    required: Collection[str] = (),
) -> list[str]:
    """List options as keywords in the signature of a function, which takes them as `**options`.

    Returns:
        The added keywords: those that the function does not list itself, the required ones first.
    """
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    empty, kind = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    added: list[inspect.Parameter] = []
    for name, option in options.items():
        if name not in signature.parameters:
            default = empty if name in required or option.default is MISSING else option.default
            parameter = inspect.Parameter(
                name, kind, default=default, annotation=annotation(option)
            )
            added.append(parameter)
    added.sort(key=lambda parameter: parameter.default is not empty)
    # Help pages list the form of the output last.
    parameters = sorted([*own, *added], key=lambda parameter: parameter.name == "json")
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return [parameter.name for parameter in added]


def flat(options: Any) -> dict[str, Any]:
    """Return the values of all options by flat name."""
    known = options_in(type(options)).items()
    return {name: attrgetter(".".join(option.path))(options) for name, option in known}


def changed(options: Options, **values: Any) -> Options:
    """Return a copy with other values, by flat name; they are not converted."""
    return _built(type(options), flat(options) | values)


def from_flat(
    kind: type[Options], given: Mapping[str, Any], required: Iterable[str] = ()
) -> Options:
    """Return options from values by flat name, in the types that they have in Python or TOML.

    Paths may be `Path`s, lists of names lists or text with commas, whole numbers 1e5.

    Raises:
        ConfigError: A name is unknown (the nearest one is given) or missing, or a value is wrong.
    """
    known = options_in(kind)
    for name in given:
        if name not in known:
            raise ConfigError(f"There is no option {name!r}.{did_you_mean(name, known)}")
    for name in required:
        if not given.get(name):
            raise ConfigError(
                f"The option {name!r} is missing. Give it as --{name.replace('_', '-')}, as a key "
                "of the recipe or, in Python, as a keyword."
            )
    values = {n: option.default for n, option in known.items() if option.default is not MISSING}
    return _built(kind, values | {n: _converted(known[n], value) for n, value in given.items()})


def keys_of_tables(content: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], list[str]]:
    """Return the options of a recipe by flat name, and the names of those outside of its table.

    The tables are the inner values of `kind`: `[train] lr = 3e-5`.
    """
    types = get_type_hints(kind)
    tables = [part.name for part in fields(kind) if is_dataclass(types[part.name])]
    if not tables:
        return dict(content), []
    found: dict[str, Any] = {}
    for name, value in content.items():
        if not isinstance(value, Mapping):
            found[name] = value
            continue
        if name not in tables:
            raise ConfigError(f"there is no table [{name}]; it must be one of {tables}.")
        keys = {o.path[-1]: o for o in options_in(kind).values() if o.path[0] == name}
        for key, inner in value.items():
            if key not in keys:
                raise ConfigError(f"[{name}] has no option {key!r}.{did_you_mean(key, keys)}")
            found[keys[key].name] = inner
    return found, [name for name, value in content.items() if not isinstance(value, Mapping)]


def _built(kind: type[Options], values: Mapping[str, Any]) -> Options:
    types = get_type_hints(kind)
    arguments = {}
    for part in fields(kind):  # type: ignore[arg-type]
        name = part.metadata.get("flat", part.name)
        if is_dataclass(types[part.name]):
            arguments[part.name] = _built(types[part.name], values)  # type: ignore[arg-type]
        elif name in values:
            arguments[part.name] = values[name]
    return kind(**arguments)


def _converted(option: Option, value: Any) -> Any:
    """Return a value in the type of its option."""
    name = option.name
    types = get_args(option.type) or (option.type,)
    if value is None and NoneType in types:
        return None
    if any("tuple" in str(one) for one in (*types, option.type)):
        names = names_of(value)
        if "tuple[float" not in str(option.type):
            return names
        try:
            return tuple(map(float, names))
        except ValueError:
            raise ConfigError(f"{name} is {value!r}; it must be a list of numbers.") from None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if str in types:
        if isinstance(value, Path) or (name in _NUMBERS_AS_TEXT and is_number):
            return str(value)
        if name in LISTS_AS_TEXT and isinstance(value, list | tuple):
            return ",".join(LISTS_AS_TEXT[name].format(item) for item in value)
        if not isinstance(value, str):
            raise ConfigError(f"The option {name!r} is {value!r}; it must be text.")
    if bool in types and not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; it must be true or false.")
    if int in types or float in types:
        if not is_number or not math.isfinite(value):
            raise ConfigError(f"{name} is {value!r}; it must be a finite number.")
        if float not in types:
            if value != int(value):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number.")
            return int(value)
    return value
