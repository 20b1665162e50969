"""filbert neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from filbert.inspection.occurrences import Source


def neighbours(
    model: str,
    /,
    *texts: str,
    word: Annotated[tuple[str, ...], Parameter(consume_multiple=False)],
    layer: Annotated[int, Parameter(allow_leading_hyphen=True)] = -1,
    out: str | None = None,
    json: bool = False,
    senses: int | None = None,
    plot: str = "pca",
    match_case: bool = False,
    limit: int = 100,
    others: int = 200,
    text_column: str = "text",
    separator: str | None = None,
    sense_column: str | None = None,
    max_length: int | None = None,
    seed: int = 0,
    device: str | None = None,
) -> None:
    """Compare the vectors of one word in different sentences.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id; any encoder, its head plays no part.
    texts:
        a file (CSV, TSV, JSONL, Parquet or one text per line; - is stdin), or sentences.
    word:
        what to look for, as a whole word; once more for each further form: --word bank --word
        banks.
    layer:
        0 is the embedding layer, -1 the last.
    out:
        page to write, such as python.html: maps, matrices, every layer; - is stdout, with nothing
        else on it.
    json:
        print JSON instead of tables.
    senses:
        how many groups to make; chosen when not given.
    plot:
        pca, or umap where umap-learn is installed: how the page draws places.
    match_case:
        tell Bank from bank.
    limit:
        show at most so many places of the word, drawn at random.
    others:
        read so many further texts for the figures about all words.
    text_column:
        name of the column with the text.
    separator:
        character between the fields of a CSV or TSV file, such as ";".
    sense_column:
        name of a column with the known sense of the word in each text: adds how often the nearest
        place has the same one.
    max_length:
        cut texts around the word to this many tokens; the model's own limit when not given.
    seed:
        of what is drawn at random.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from filbert.cli.flags import print_json
    from filbert.cli.neighbours_tables import print_neighbours
    from filbert.cli.page_file import check_page, write_page
    from filbert.errors import InputError
    from filbert.inspection.neighbours import layer_number, word_in_context
    from filbert.inspection.occurrences import pattern_of
    from filbert.inspection.senses import check_projection
    from filbert.predict import Predictor
    from filbert.report.neighbours_page import neighbours_page

    check_page(out, printed="--json" if json else None)
    pattern_of(word)
    check_projection(plot)
    sources = _sources(texts, text_column, sense_column, separator)
    predictor = Predictor.load(model, device=device, max_length=max_length)
    layer_number(predictor, layer)
    found = word_in_context(
        predictor,
        word,
        sources,
        name=model,
        layer=layer,
        senses=senses,
        projection=plot,
        match_case=match_case,
        most=limit,
        others=others,
        seed=seed,
    )
    unknown = [one.source.where for one in found.occurrences if one.source.sense is None]
    if sense_column is not None and unknown:
        raise InputError(f"{unknown[0]}: no {sense_column}. Fill it in, or drop the row.")
    free = write_page(out, lambda: neighbours_page(found))
    if json:
        print_json(found.to_dict())
    elif free:
        print_neighbours(found)


def _sources(
    texts: tuple[str, ...], text_column: str, sense_column: str | None, separator: str | None
) -> Iterable[Source]:
    """The rows of a file, or the sentences of the command line.

    Raises:
        ConfigError: there is neither, or there are sentences and names of columns.
        InputError: no such file, or an empty sentence.
    """
    from filbert.cli.flags import STDIO
    from filbert.data.columns import ColumnNames
    from filbert.data.texts import read_texts
    from filbert.errors import ConfigError, InputError
    from filbert.inspection.occurrences import Source

    if not texts:
        raise ConfigError(
            "There is nothing to read: give a file, - for stdin, or at least two sentences."
        )
    only = texts[0] if len(texts) == 1 else None
    if only is None or not (only == STDIO or _is_file(only) or _looks_like_a_file(only)):
        files = [text for text in texts if text == STDIO or (" " not in text and _is_file(text))]
        if files:
            raise InputError(f"{files[0]} is a file; give one file, or sentences alone.")
        if empty := [i for i, text in enumerate(texts, start=1) if not text.strip()]:
            raise InputError(f"Sentence {empty[0]} is empty. Leave it out.")
        if sense_column is not None:
            raise ConfigError("--sense-column is for a file; these are sentences.")
        return [Source(text, f"sentence {i}") for i, text in enumerate(texts, start=1)]
    names = ColumnNames(text_column=text_column, separator=separator)
    extra = () if sense_column is None else (sense_column,)
    rows = read_texts(only, names, extra=extra)
    return (
        Source(
            row.values["text"],
            row.where,
            None if sense_column is None else _sense(row.values[sense_column]),
        )
        for row in rows
    )


def _sense(value: Any) -> str | None:
    """As text; None where nothing was written."""
    missing = value is None or value != value or not str(value).strip()
    return None if missing else str(value)


def _is_file(text: str) -> bool:
    """Whether there is such a file or pipe; a long sentence is no name of one."""
    from pathlib import Path

    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):
        return False


def _looks_like_a_file(text: str) -> bool:
    """One word alone, or a few with the ending of a file that is read: rather a file that is not
    there than the one sentence, in which no word would be compared with anything.
    """
    from pathlib import PurePath

    endings = (".csv", ".tsv", ".jsonl", ".parquet", ".txt", ".gz")
    return " " not in text.strip() or PurePath(text.strip()).suffix.lower() in endings
