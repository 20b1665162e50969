"""One recipe trained several times, with several seeds or on the folds of a table.

Fine-tuning on small data sets varies more between seeds than between methods (Dodge et al. 2020;
Mosbach et al. 2021), so the spread is part of the result.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, RunError
from filbert.files import read_json, write_atomically, write_json
from filbert.tasks.base import gain
from filbert.train.finetune import finetune
from filbert.train.log import say
from filbert.train.model_folder import card
from filbert.train.options import FinetuneOptions, changed
from filbert.train.run_folder import check_out, finished_otherwise, finished_run, run_folder

# What the folder of the kept run gives to the run's own folder.
_TAKEN = ("model", "adapter", "metrics.jsonl", "predictions")

Runs = dict[str, dict[str, Any]]


def run(options: FinetuneOptions) -> dict[str, Any]:
    """Fine-tune once, with several seeds or on the folds of a table.

    With `seeds`, the run of each seed is in out/seeds/N and the best one becomes the run. With
    `folds`, the run of each fold is in out/folds/N, and the model is then trained on all rows with
    the same options; no run has dev rows, so the metrics of the folds estimate that model.

    Returns:
        The content of run.json: that of the kept run, and "seeds" or "folds" with mean, deviation
        (sample standard deviation, None of a single run) and all values of every metric.

    Raises:
        ConfigError: There are no dev rows to choose a seed by, there is more than one process, or
            the first run finds an option wrong.
        RunError: No run came to its end.
    """
    data, first, seeds = options.data, options.run.seed, options.run.seeds
    if data.folds and data.fold is None:
        if seeds > 1:
            raise ConfigError("--folds and --seeds both train several times; give one of them.")
        variants = {str(n): changed(options, fold=n) for n in range(1, data.folds + 1)}
        return _repeated(options, "folds", variants)
    if seeds == 1:
        return finetune(options)
    if not data.has_dev:
        raise ConfigError("--seeds chooses the best run on dev rows; give --dev.")
    # All seeds train on the same split.
    split_seed = first if data.split_seed is None else data.split_seed
    variants = {
        str(n): changed(options, seed=n, seeds=1, split_seed=split_seed)
        for n in range(first, first + seeds)
    }
    return _repeated(options, "seeds", variants)


def _repeated(
    options: FinetuneOptions, kind: str, variants: Mapping[str, FinetuneOptions]
) -> dict[str, Any]:
    """Train every variant, keep one model, and summarise the metrics."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"--{kind} trains one run after the other; start it without torchrun.")
    out, resume = Path(options.run.out).absolute(), options.run.resume
    check_out(options.run)
    done = finished_run(out) if resume else None
    if done is not None:
        several = done.get(kind) or {}
        if {*several.get("runs", ()), *several.get("failed", ())} != {*variants}:
            raise finished_otherwise(options.run.out)
        for number in several["runs"]:
            # Each run refuses other options, data and models than its own.
            finetune(_placed(variants[number], out / kind / number))
        return done
    with run_folder(out, resume=resume) as folder:
        write_json(folder / "run.json", {"status": "running", "command": "finetune"})
        runs, failed = _train_each(variants, folder / kind, kind.removesuffix("s"))
        if kind == "seeds":
            chosen = {number: run["best"] for number, run in runs.items()}
            best = max(runs, key=lambda n: gain(chosen[n]["metric"], chosen[n]["value"]))
            kept, source = runs[best], folder / kind / best
            summary = _of_seeds(runs, best) | {"failed": failed}
        else:
            say("all rows: the model of the run")
            source = folder / kind / "all"
            whole = changed(options, folds=0, dev="0", test="0", group_column=None)
            kept = finetune(_placed(whole, source), prints_findings=False)
            summary = _of_folds(runs) | {"failed": failed}
        for name in _TAKEN:
            _replace(source / name, folder / name)
        record = read_json(folder / "model" / "filbert.json") | {kind: summary}
        write_json(folder / "model" / "filbert.json", record)
        write_atomically(folder / "model" / "README.md", card(record))
        kept = kept | {kind: summary}
        write_json(folder / "run.json", kept)
        if kind == "folds":
            shutil.rmtree(source)
    return kept


def _placed(options: FinetuneOptions, folder: Path) -> FinetuneOptions:
    return changed(options, out=str(folder), overwrite=False)


def _train_each(
    variants: Mapping[str, FinetuneOptions], place: Path, what: str
) -> tuple[Runs, dict[str, str]]:
    """Train each variant in a folder of `place`; return the runs, and what failed and why."""
    runs: Runs = {}
    failed: dict[str, str] = {}
    for index, (number, options) in enumerate(variants.items(), 1):
        say(f"{what} {number}: run {index} of {len(variants)}")
        try:
            # The rows are the same in every run.
            runs[number] = finetune(_placed(options, place / number), prints_findings=index == 1)
        except (RunError, ConfigError) as error:
            # An option that is wrong is wrong for all; memory may run out later.
            if isinstance(error, ConfigError) and not runs and not failed:
                raise
            failed[number] = str(error)
            say(f"{what} {number} failed: {error}")
    if not runs:
        raise RunError(f"All {len(variants)} {what}s failed: {next(iter(failed.values()))}")
    return runs, failed


def _of_seeds(runs: Runs, best: str) -> dict[str, Any]:
    """Summarise the metrics of every split over the seeds; `best` is the seed that is kept."""
    splits, chosen = next(iter(runs.values()))["metrics"], runs[best]["best"]
    return {
        "runs": {n: {"best": run["best"], "metrics": run["metrics"]} for n, run in runs.items()},
        "best": best,
        "metric": chosen["metric"],
        "best_value": runs[best]["metrics"]["dev"].get(chosen["metric"], chosen["value"]),
        "metrics": {n: _summaries([run["metrics"][n] for run in runs.values()]) for n in splits},
    }


def _of_folds(runs: Runs) -> dict[str, Any]:
    """Summarise the test metrics over the folds, and those of the baseline if it is one."""
    baselines = [run.get("baseline") or {} for run in runs.values()]
    names = {(one.get("name"), one.get("metric")) for one in baselines}
    values, baseline = [one.get("value") for one in baselines], None
    if len(names) == 1 and all(isinstance(value, float) for value in values):
        name, metric = names.pop()
        baseline = {"name": name, "metric": metric} | _summary(values)
    return {
        "runs": {n: {"metrics": one["metrics"]["test"]} for n, one in runs.items()},
        "metrics": _summaries([one["metrics"]["test"] for one in runs.values()]),
        "baseline": baseline,
    }


def _summaries(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [n for n in metrics[0] if all(isinstance(one.get(n), float) for one in metrics)]
    return {name: _summary([one[name] for one in metrics]) for name in names}


def _summary(values: Sequence[Any]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "values": list(values)}


def _replace(source: Path, target: Path) -> None:
    """Copy a file or folder over another one, if it exists."""
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copyfile(source, target)
