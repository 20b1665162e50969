"""filbert replay."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from filbert.cli.flags import print_json


def replay(
    model: str,
    /,
    *,
    out: str | None = None,
    tolerance: float | None = None,
    overwrite: bool = False,
    train: str | None = None,
    dev: str | None = None,
    test: str | None = None,
    corpus: str | None = None,
    base: Annotated[str | None, Parameter(name="--model")] = None,
    tokenizer: str | None = None,
    new_tokens: str | None = None,
    data_root: str | None = None,
    device: str | None = None,
    json: bool = False,
) -> int:
    """Train a model again as its filbert.json says, and compare the numbers.

    Exit status 1 when a figure is further away than the tolerance.

    Parameters
    ----------
    model:
        a model that filbert trained, or its run folder.
    out:
        the run folder to make; beside the recorded one when not given.
    tolerance:
        largest difference of a figure that passes; 0 where versions, device and threads are those
        of the recorded run, else 0.001.
    overwrite:
        replace an earlier run in OUT.
    train:
        where the training rows lie now.
    dev:
        where the dev rows, or the held-out text, lie now.
    test:
        where the test rows lie now.
    corpus:
        where the text or the token shards of a pre-training run lie now; several between commas.
    base:
        where the model that the run started from lies now.
    tokenizer:
        where the vocabulary of a pre-training run lies now.
    new_tokens:
        where the list of new vocabulary entries lies now.
    data_root:
        folder in which all of these are looked for by their names.
    device:
        cpu, cuda, ...; what the recorded run was told when not given.
    json:
        print JSON.
    """
    from rich.console import Console

    from filbert.cli.comparison import replay_table
    from filbert.train.replay import Places
    from filbert.train.replay import replay as run_again

    places = Places(
        train=train,
        dev=dev,
        test=test,
        corpus=corpus,
        model=base,
        tokenizer=tokenizer,
        new_tokens=new_tokens,
        data_root=data_root,
    )
    verdict = run_again(
        model, out=out, tolerance=tolerance, overwrite=overwrite, device=device, places=places
    )
    if json:
        figures = [
            figure._asdict() | {"difference": figure.difference} for figure in verdict.figures
        ]
        print_json(
            {
                "same": verdict.is_same,
                "same_weights": verdict.same_weights,
                "tolerance": verdict.tolerance,
                "differs": verdict.differs,
                "out": verdict.out,
                "figures": figures,
            }
        )
    else:
        console = Console(emoji=False)
        console.print(replay_table(verdict.figures, verdict.tolerance))
        print(_weights(verdict.same_weights))
        print(
            f"{'the same' if verdict.is_same else 'NOT THE SAME'} (tolerance {verdict.tolerance})"
        )
        print(f"run:     {verdict.out}")
    return 0 if verdict.is_same else 1


def _weights(same: bool | None) -> str:
    if same is None:
        return "weights: their hashes were not recorded"
    return f"weights: {'the same, bit for bit' if same else 'not bit for bit the same'}"
