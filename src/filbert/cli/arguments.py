"""Arguments that several verbs have, with their help."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

ModelName = Annotated[str, Parameter(help="folder, built-in name or Hub id.")]
Device = Annotated[str | None, Parameter(help="cpu, cuda, ...; the first GPU if there is one.")]
AsJson = Annotated[bool, Parameter(name="--json", help="print JSON.")]
TextColumn = Annotated[str, Parameter(help="name of the column with the text.")]
