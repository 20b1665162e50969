"""From the words of `filbert bench` to what is measured."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from filbert.bench.measure import TABLES, Setup, threads_of
from filbert.bench.sides import SIDES
from filbert.errors import ConfigError


def chosen_tables(what: str | None) -> tuple[str, ...]:
    """The tables that a word asks for.

    Raises:
        ConfigError: there is no such table.
    """
    if what is None:
        return TABLES
    if what not in TABLES:
        near = get_close_matches(what, TABLES, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"There is no bench {what!r}; there is {', '.join(TABLES)}.{hint}")
    return (what,)


def chosen_sides(tables: Sequence[str], asked: str | None) -> dict[str, list[str] | None]:
    """By table the sides between commas that it has; None for its usual ones.

    Tables that have none of the sides are left out.

    Raises:
        ConfigError: a name is a side of none of them.
    """
    if asked is None:
        return dict.fromkeys(tables)
    names = list(dict.fromkeys(name.strip() for name in asked.split(",")))
    known = dict.fromkeys(side for table in tables for side in SIDES[table])
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"There is no side {name!r} of {', '.join(tables)}; there is "
                f"{', '.join(known)}.{hint}"
            )
    found = {table: [name for name in names if name in SIDES[table]] for table in tables}
    return {table: some for table, some in found.items() if some}


def set_up(
    model: str,
    place: Path,
    *,
    device: str | None,
    threads: int | None,
    seconds: float,
    texts: int,
) -> Setup:
    """Find the model and check the numbers.

    A model of another layout is written down in Hugging Face's, which the other tools read.

    Raises:
        ConfigError: a number that cannot be.
        InputError, FormatError: there is no such model.
    """
    if texts < 1 or not 0 < seconds < 1e6:
        raise ConfigError(f"texts is {texts} and seconds {seconds:g}; both must be above zero.")
    count = threads_of(threads)

    from filbert.checkpoints import huggingface
    from filbert.checkpoints.opening import find_model, is_google, read_checkpoint, read_tokenizer
    from filbert.speed.precision import choose_device

    on = choose_device(device)
    folder = find_model(model)
    checkpoint, tokenizer = read_checkpoint(folder), read_tokenizer(folder)
    if is_google(folder):
        folder = place / "model"
        folder.mkdir()
        huggingface.write(checkpoint, folder)
        tokenizer.save(folder)
    return Setup(folder, checkpoint, tokenizer, place, str(on), count, seconds, texts)
