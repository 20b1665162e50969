"""Arguments of the command line: how they are read, and those that several verbs share."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number

from filbert.errors import InputError
from filbert.train.options import NAME_LISTS, Option, options_in, with_options

STDIO = "-"
# What `--help` calls the value of an option, instead of its type.
_WORDS = {
    "task": "TASK", "model": "MODEL", "teacher": "MODEL", "student": "MODEL", "tokenizer": "FOLDER",
    "out": "FOLDER", "corpus": "PATH", "embeddings": "FILE", "data": "FILE", "train": "FILE",
    "dev": "FILE", "test": "FILE",
}  # fmt: skip
# cyclopts 4 prints no words for values.
_PRINTS_WORDS = "metavar" in inspect.signature(Parameter).parameters

Verb = TypeVar("Verb", bound=Callable[..., Any])


def shown_as(word: str, text: str | None = None, **settings: Any) -> Parameter:
    """Return the settings of an argument whose value `--help` calls `word`, and its text."""
    settings |= {"help": text} if text else {}
    return Parameter(**settings, metavar=word) if _PRINTS_WORDS else Parameter(**settings)


def flags_of(
    kind: type, *, required: Sequence[str] = (), hidden: Sequence[str] = ()
) -> Callable[[Verb], Verb]:
    """Decorate a verb whose `**options` are those of a class, so that each of them is a flag.

    `--help` does not list those in `hidden`, which the verb refuses.
    """
    options = options_in(kind)

    def annotation(option: Option) -> Any:
        return Annotated[option.type, _settings(option, options, hidden)]

    def decorated(verb: Verb) -> Verb:
        with_options(verb, options, annotation, required=required)
        return verb

    return decorated


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


def _settings(option: Option, names: Collection[str], hidden: Sequence[str]) -> Parameter:
    """Return the parser's settings for an option of a verb that has the options `names`."""
    settings: dict[str, Any] = {"show": option.name not in hidden}
    settings["help"] = help_text(option, names)
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


def text_on_stdin() -> str:
    """Return all of stdin, without white space at both ends."""
    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError as error:
        raise InputError("The text on stdin is not UTF-8.") from error


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
