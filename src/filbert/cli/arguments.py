"""Arguments that several verbs share: types with their help, and groups of options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from filbert.cli.flags import flags_of
from filbert.data.columns import ColumnNames
from filbert.train.options import LabelledFileOptions

if TYPE_CHECKING:
    _LabelledFileFlags = Any
    _ColumnFlags = Any
else:
    _LabelledFileFlags, _ColumnFlags = flags_of(LabelledFileOptions), flags_of(ColumnNames)

# Models.
ModelName = Annotated[str, Parameter(help="folder, built-in name or Hub id.")]
MaskedLM = Annotated[
    str, Parameter(help="folder, built-in name or Hub id of a model with a masked-LM head.")
]
Device = Annotated[str | None, Parameter(help="cpu, cuda, ...; the first GPU if there is one.")]
Precision = Annotated[
    str, Parameter(help="float32, bf16, int8, or auto: bf16 if it is faster and keeps the answers.")
]
Backend = Annotated[
    str, Parameter(help="torch, or onnxruntime for a folder that filbert export wrote.")
]
MaxTokens = Annotated[int | None, Parameter(help="tokens per packed batch.")]
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
TextFile = Annotated[
    str,
    Parameter(help="CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin."),
]
TextColumn = Annotated[str, Parameter(help="name of the column with the text.")]
TextPairColumn = Annotated[
    str | None, Parameter(help="name of the column with the second text of a pair.")
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
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON.")]
OutFile = Annotated[str | None, Parameter(help="file to write instead of stdout.")]
OutPage = Annotated[str | None, Parameter(name="--out", help="HTML file to write; - is stdout.")]
OutFolder = Annotated[Path, Parameter(help="folder to write; it appears when it is complete.")]
Overwrite = Annotated[bool, Parameter(help="replace the folder if this command could write it.")]


@dataclass(frozen=True, kw_only=True)
class LoadFlags:
    """How a model is loaded: keywords of `Predictor.load`."""

    max_length: MaxLength = None
    max_tokens: MaxTokens = None
    precision: Precision = "float32"
    device: Device = None


Loading = Annotated[LoadFlags | None, Parameter(name="*")]
