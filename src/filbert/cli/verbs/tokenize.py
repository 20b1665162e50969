"""filbert tokenize."""

from __future__ import annotations

import json


def tokenize(
    model: str,
    file: str = "-",
    /,
    *,
    text_column: str = "text",
    text_pair_column: str | None = None,
    separator: str | None = None,
    max_length: int | None = None,
) -> None:
    """Show the tokens of texts as they are, without a model's cleaning: one JSON object a line.

    Parameters
    ----------
    model:
        folder with a tokenizer, built-in name or Hub id.
    file:
        CSV, TSV, JSONL, Parquet or one text per line; - is stdin.
    text_column:
        name of the column with the text.
    text_pair_column:
        name of the column with the second text.
    separator:
        character between the fields of a CSV or TSV file, such as ";".
    max_length:
        cut texts to this many tokens; not cut when not given.
    """
    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.columns import ColumnNames
    from filbert.data.texts import characters_in, chunks, read_texts, text_of

    tokenizer = read_tokenizer(find_model(model, tokenizer_only=True))
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    rows = read_texts(file, names)
    texts = (text_of(row) for row in rows)
    for chunk in chunks(texts, characters_in):
        for encoding in tokenizer.encode(chunk, max_length=max_length, with_offsets=True):
            assert encoding.offsets is not None and encoding.words is not None
            answer = {
                "tokens": tokenizer.tokens(encoding.input_ids),
                "ids": encoding.input_ids.tolist(),
                "offsets": encoding.offsets.tolist(),
                "words": [None if word < 0 else word for word in encoding.words.tolist()],
                "token_type_ids": encoding.token_type_ids.tolist(),
                "num_tokens": encoding.num_tokens,
                "truncated": encoding.truncated,
            }
            print(json.dumps(answer, ensure_ascii=False))
