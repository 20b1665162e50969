"""Arguments of the command line: how they are read, and those that several verbs share."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import App, Parameter
from cyclopts.validators import Number

from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError
from filbert.train.options import NAME_LISTS, LabelledFileOptions, Option, from_flat, options_in

STDIO = "-"
# cyclopts reads a lone - as a misspelt flag, so `main` passes this instead.
_DISGUISED = "(standard input or output)"
# What `--help` calls the value of an option, instead of its type.
_WORDS = {
    "task": "TASK", "model": "MODEL", "teacher": "MODEL", "student": "MODEL", "tokenizer": "FOLDER",
    "out": "FOLDER", "corpus": "PATH", "embeddings": "FILE", "data": "FILE", "train": "FILE",
    "dev": "FILE", "test": "FILE",
}  # fmt: skip
# cyclopts 4 prints no words for values.
_PRINTS_WORDS = "metavar" in inspect.signature(Parameter).parameters
_FRACTION = re.compile(r"[+-]?\d*\.\d+")


def shown_as(word: str, text: str | None = None, **settings: Any) -> Parameter:
    """Return the settings of an argument whose value `--help` calls `word`, and its text."""
    settings |= {"help": text} if text else {}
    return Parameter(**settings, metavar=word) if _PRINTS_WORDS else Parameter(**settings)


def flags_of(kind: type, *, required: Sequence[str] = (), hidden: Sequence[str] = ()) -> type:
    """Return a flat dataclass with one field per option of `kind`, for the command line parser.

    `--help` does not list those in `hidden`, which the verb refuses.
    """
    options = options_in(kind).values()
    flat = make_dataclass(
        f"{kind.__name__.removesuffix('Options')}Flags",
        [
            (
                one.name,
                Annotated[one.type, _settings(one, hidden)],
                field(default=MISSING if one.name in required else one.default),
            )
            for one in options
        ],
        frozen=True,
        kw_only=True,
    )
    flat.__module__ = kind.__module__  # cyclopts ignores classes of the standard library
    names = {one.name for one in options}
    entries = "\n".join(f"    {one.name}: {help_text(one, names)}" for one in options)
    flat.__doc__ = f"{kind.__doc__}\n\nAttributes:\n{entries}\n"
    return flat


def help_text(option: Option, names: Collection[str]) -> str:
    """Return an option's text for a verb: options of that verb, `names`, are written as flags.

    What holds without a default is left out if the verb has one.
    """
    text = " ".join(option.doc.split())
    if option.default not in (None, MISSING, ()):
        text = re.sub(r"; [^;]*when not given.*", ".", text)
    return re.sub(
        r"`(\w+)`",
        lambda name: "--" + name[1].replace("_", "-") if name[1] in names else name[0],
        text,
    )


def _settings(option: Option, hidden: Sequence[str]) -> Parameter:
    """Return the parser's settings for an option."""
    settings: dict[str, Any] = {"show": option.name not in hidden}
    if option.default is True:
        settings["negative"] = f"--no-{option.name.replace('_', '-')}"
    if option.name in NAME_LISTS:
        # Names are separated by commas, so that a file may follow.
        settings["consume_multiple"] = False
    if option.name == "merge_as":  # "as" is no name in Python.
        settings["name"] = ("--merge-as", "--as")
    word = _WORDS.get(option.name, "NAME" if "_column" in option.name else None)
    if word is None:
        return Parameter(**settings)
    return shown_as(word + "..." * ("tuple" in str(option.type)), **settings)


def disguised(token: str) -> str:
    """Return a word of the command line in the form that cyclopts accepts as a value."""
    return _DISGUISED if token == STDIO else token


def undisguised(value: Any) -> Any:
    """Return a value, list or dataclass of options with every - as the user typed it."""
    if isinstance(value, str):
        return STDIO if value == _DISGUISED else value
    if isinstance(value, Path):
        return Path(STDIO) if str(value) == _DISGUISED else value
    if isinstance(value, list | tuple):
        return type(value)(map(undisguised, value))
    if is_dataclass(value) and not isinstance(value, type):
        now = {part.name: getattr(value, part.name) for part in fields(value) if part.init}
        changed = {name: new for name, v in now.items() if (new := undisguised(v)) != v}
        return replace(value, **changed) if changed else value
    return value


def refuse_stdout(values: Mapping[str, Any]) -> None:
    """Raise a ConfigError if the folder to write is named -."""
    for name, value in values.items():
        if name in ("out", "target") and str(value) == STDIO:
            raise ConfigError(f"- is standard output; name a folder as {name}.")
        if is_dataclass(value):
            refuse_stdout(vars(value))


def columns_of(given: Any) -> ColumnNames:
    """Return the names of columns, with lists between commas split."""
    return from_flat(ColumnNames, vars(given) if given else {})


def text_on_stdin() -> str:
    """Return all of stdin, without white space at both ends."""
    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError as error:
        raise InputError("The text on stdin is not UTF-8.") from error


def refuse_fractions(app: App, pairs: Iterable[tuple[str, Any]], source: str = "") -> None:
    """Refuse a fraction for a whole number, which cyclopts would round silently.

    Args:
        pairs: Names of options, as flags or as keys of the recipe `source`, with their values.
    """
    fractions = [(name, str(value)) for name, value in pairs if _FRACTION.fullmatch(str(value))]
    if not fractions:
        return
    whole = {
        name.removeprefix("--")
        for argument in app.assemble_argument_collection()
        for name in argument.names
        if argument.hint is int or int in get_args(argument.hint)
    }
    for name, value in fractions:
        if name.removeprefix("--").replace("_", "-") in whole:
            place = f"{source}: {name}" if source else name
            raise ConfigError(f"{place} is {value}; it must be a whole number.")


def flags_with_values(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each `--flag value` and `--flag=value` of a command line."""
    for at, token in enumerate(tokens):
        flag, equals, value = token.partition("=")
        if flag.startswith("--"):
            yield flag, value if equals else "".join(tokens[at + 1 : at + 2])


if TYPE_CHECKING:
    _LabelledFileFlags = Any
    _ColumnFlags = Any
else:
    _LabelledFileFlags, _ColumnFlags = flags_of(LabelledFileOptions), flags_of(ColumnNames)

# Models.
ModelName = Annotated[str, shown_as("MODEL", "folder, built-in name or Hub id.")]
OptionalModel = Annotated[str | None, shown_as("MODEL")]
MaskedLM = Annotated[
    str, Parameter(help="folder, built-in name or Hub id of a model with a masked-LM head.")
]
Device = Annotated[str | None, Parameter(help="cpu, cuda, ...; the first GPU if there is one.")]
MaxLength = Annotated[
    int | None,
    Parameter(help="truncate texts to this many tokens; by default the model's own limit."),
]
Pooling = Annotated[
    str | None,
    Parameter(
        help="mean, cls, last, max, mean_sqrt_len, several with + between, or none; by default "
        "that of the folder's modules.json, otherwise mean."
    ),
]
NullThreshold = Annotated[
    float | None,
    Parameter(
        help='of question answering: the answer is "" if the null score is higher; by default the '
        "threshold stored with the model."
    ),
]

# Rows and texts.
OneText = Annotated[str, Parameter(help="text that the model reads; - is stdin.")]
SecondText = Annotated[str | None, Parameter(help="second text of a pair; - is stdin.")]
TextFile = Annotated[
    str,
    Parameter(help="CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin."),
]
TextColumn = Annotated[str, shown_as("NAME", "name of the column with the text.")]
TextPairColumn = Annotated[
    str | None, shown_as("NAME", "name of the column with the second text of a pair.")
]
Separator = Annotated[
    str | None,
    Parameter(help='character between the fields of a CSV or TSV file, such as ";".'),
]
Columns = Annotated[_ColumnFlags | None, Parameter(name="*")]
LabelledFile = Annotated[_LabelledFileFlags | None, Parameter(name="*")]
TASKS = "classification, regression, tagging, span_qa, multiple_choice or embedding."

MaxLoss = Annotated[
    float | None,
    Parameter(
        validator=Number(gte=0),
        help="largest allowed loss of a metric on --data, such as 0.005; a larger one is refused. "
        "int8 conversions keep more layers in float32 until it holds.",
    ),
]

# What is written.
File = Annotated[str, shown_as("FILE")]
OptionalFile = Annotated[str | None, shown_as("FILE")]
Folder = Annotated[str, shown_as("FOLDER")]
OptionalFolder = Annotated[str | None, shown_as("FOLDER")]
AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON.")]
OutFile = Annotated[str | None, shown_as("FILE", "file to write instead of stdout.")]
OutPage = Annotated[str | None, shown_as("FILE", "HTML file to write; - is stdout.")]
OutFolder = Annotated[Path, shown_as("FOLDER", "folder to write; it appears when it is complete.")]
Overwrite = Annotated[bool, Parameter(help="replace the folder if this command could write it.")]


@dataclass(frozen=True, kw_only=True)
class LoadFlags:
    """How a model is loaded: keywords of `Predictor.load`.

    Attributes:
        max_tokens: tokens per packed batch.
        precision: float32, bf16, int8, or auto: bf16 if it is faster and keeps the answers.
        backend: torch, or onnxruntime for a folder that filbert export wrote.
    """

    max_length: MaxLength = None
    max_tokens: int | None = None
    precision: str = "float32"
    backend: str = "torch"
    device: Device = None


Loading = Annotated[LoadFlags | None, Parameter(name="*")]
