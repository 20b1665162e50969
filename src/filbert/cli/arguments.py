"""Arguments that several verbs have, with their help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

ModelName = Annotated[str, Parameter(help="folder, built-in name or Hub id.")]
Device = Annotated[str | None, Parameter(help="cpu, cuda, ...; the first GPU if there is one.")]
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON.")]
TextColumn = Annotated[str, Parameter(help="name of the column with the text.")]
Separator = Annotated[
    str | None,
    Parameter(help='character between the fields of a CSV or TSV file, such as ";".'),
]
MaxTokens = Annotated[int | None, Parameter(help="tokens per packed batch.")]
OutFile = Annotated[str | None, Parameter(help="file to write instead of stdout.")]
Precision = Annotated[
    str, Parameter(help="float32, bf16, or auto for the faster of the two on this machine.")
]
MaskedLM = Annotated[
    str, Parameter(help="folder, built-in name or Hub id of a model with a masked-LM head.")
]
TextFile = Annotated[
    str,
    Parameter(help="CSV, TSV, JSONL, Parquet or one text per line, compressed or not; - is stdin."),
]
