"""filbert tokenize."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from filbert.cli.arguments import ModelName, Separator, TextColumn, TextFile, TextPairColumn
from filbert.data.columns import ColumnNames


def tokenize(
    model: ModelName,
    file: TextFile = "-",
    /,
    *,
    text_column: TextColumn = "text",
    text_pair_column: TextPairColumn = None,
    separator: Separator = None,
    max_length: Annotated[
        int | None, Parameter(help="truncate texts to this many tokens; by default never.")
    ] = None,
) -> None:
    """Show the tokens of texts as they are, without a model's cleaning: one JSON object a line."""
    from filbert import api
    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.texts import chunks, read_texts, text_of
    from filbert.text.tokenizer import characters_in

    tokenizer = read_tokenizer(find_model(model, tokenizer_only=True))
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    texts = (text_of(row) for row in read_texts(file, names))
    for chunk in chunks(texts, characters_in):
        for tokens in api.tokenize(tokenizer, chunk, max_length=max_length):
            print(json.dumps(tokens, ensure_ascii=False))
