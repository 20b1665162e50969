"""filbert bias."""

from __future__ import annotations


def bias(
    model: str,
    /,
    *,
    out: str | None = None,
    json: bool = False,
    only: str | None = None,
    words: str | None = None,
    label: str | None = None,
    vectors: str = "table,sentence,context",
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    device: str | None = None,
) -> None:
    """Ask a model what it associates with whom, with intervals and with what they cannot say.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id. Vectors are tested in every model, masked words with a
        masked-LM head, identity terms with a head for classification or regression.
    out:
        page to write: one HTML file; - is stdout, with nothing else on it.
    json:
        print JSON instead of tables.
    only:
        associations, log-probability or identity-terms; several with commas between.
    words:
        TOML file with word sets, terms and sentences of your own; see docs/bias.md.
    label:
        whose score the identity terms compare; the positive class of two when not given.
    vectors:
        what associations look at, with commas between: table (rows of the word table), sentence,
        context (a word's tokens in a sentence).
    resamples:
        draws for the intervals.
    level:
        share of the draws between the ends of an interval.
    seed:
        of all draws.
    device:
        cpu, cuda, ...; the first GPU when there is one.
    """
    from rich.console import Console

    from filbert.cli.bias_tables import print_bias
    from filbert.cli.flags import print_json
    from filbert.cli.page_file import check_page, write_page
    from filbert.inspection.bias.check import bias_check
    from filbert.inspection.bias.words import read_words
    from filbert.predict import Predictor
    from filbert.report.bias_page import bias_page

    check_page(out, printed="--json" if json else None)
    sets = read_words(words)
    report = bias_check(
        Predictor.load(model, device=device),
        name=model,
        words=sets,
        parts=None if only is None else _listed(only),
        vectors=_listed(vectors),
        label=label,
        resamples=resamples,
        level=level,
        seed=seed,
    )
    free = write_page(out, lambda: bias_page(report))
    if json:
        print_json(report.to_json())
    elif free:
        print_bias(report, Console(emoji=False))


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]
