"""filbert heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from filbert.data.columns import ColumnNames


def heads(
    model: str,
    file: str | None = None,
    /,
    *,
    data: str | None = None,
    treebank: str | None = None,
    probe: str | None = None,
    limit: int = 1000,
    clusters: int | None = None,
    min_count: int = 5,
    subtypes: bool = False,
    max_length: int | None = None,
    columns: Annotated[ColumnNames | None, Parameter(name="*")] = None,
    out: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Say in numbers what every attention head does, and what it knows of grammar.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    file:
        texts to look at: CSV, TSV, JSONL, Parquet, CoNLL-U or one text per line; - is stdin. When
        not given: the sentences of --treebank, else those that ship with filbert.
    data:
        labelled rows of the model's own task: the importance of every head, and what the metric
        loses with that head masked.
    treebank:
        CoNLL-U file: the best head for each relation, beside the best fixed offset; who is meant
        by a mention, where the file has Entity marks. "sample" are the 40 sentences that ship.
    probe:
        CoNLL-U file to train dependency classifiers on, which read all heads at once; --treebank
        judges them.
    limit:
        look at so many texts or sentences of each file, the first ones (not of --data).
    clusters:
        put heads that do alike in so many clusters; 6, or as many as there are heads.
    min_count:
        leave out relations that fewer words have.
    subtypes:
        tell nsubj:pass from nsubj.
    max_length:
        cut texts to so many tokens; the model's own limit, but at most 512, when not given.
    columns:
        names of the columns of FILE and --data.
    out:
        folder for heads.json, heads.tsv and plots; it appears when everything in it is complete.
    overwrite:
        replace the folder if this command made it.
    json:
        print heads.json.
    """
    from filbert.checkpoints.opening import find_model
    from filbert.cli.flags import columns_of, print_json
    from filbert.cli.head_study import HeadJob, run_job
    from filbert.cli.head_tables import print_heads
    from filbert.cli.targets import check_target
    from filbert.errors import ConfigError

    if limit < 1 or min_count < 1:
        raise ConfigError("--limit and --min-count must be above zero.")
    if probe is not None and treebank is None:
        raise ConfigError("--probe trains classifiers; give --treebank FILE too, to judge them.")
    if (
        probe is not None
        and treebank is not None
        and Path(probe).resolve() == Path(treebank).resolve()
    ):
        raise ConfigError(
            "--probe and --treebank are one file; classifiers must be judged on other sentences "
            "than those that they learn from."
        )
    if out is not None:
        check_target(out, find_model(model), overwrite=overwrite, markers=("heads.json",))
    job = HeadJob(
        model=model,
        file=file,
        data=data,
        treebank=treebank,
        probe=probe,
        limit=limit,
        clusters=clusters,
        min_count=min_count,
        subtypes=subtypes,
        max_length=max_length,
        names=columns_of(columns),
    )
    facts = run_job(job, out)
    if json:
        print_json(facts)
        return
    print_heads(facts)
    if out is not None:
        print(f"\nplots: {out}")
