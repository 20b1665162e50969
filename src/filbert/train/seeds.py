"""One recipe trained several times, with several seeds or on the folds of a table.

Fine-tuning on small data sets varies more between seeds than between methods (Dodge et al. 2020;
Mosbach et al. 2021), so the spread is part of the result.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, RunError
from filbert.files import read_json, write_json
from filbert.train.finetune import finetune
from filbert.train.log import say
from filbert.train.model_folder import record_seeds
from filbert.train.options import FinetuneOptions, changed
from filbert.train.progress import FALLING
from filbert.train.run_folder import check_out, finished_otherwise, finished_run, run_folder

# What the folder of the best seed gives to the run's own folder.
_TAKEN = ("model", "metrics.jsonl", "predictions")


def run(options: FinetuneOptions) -> dict[str, Any]:
    """Fine-tune once, with several seeds or on folds; see `train_seeds` and `train_folds`."""
    if options.data.folds and options.data.fold is None:
        return train_folds(options)
    return train_seeds(options) if options.run.seeds > 1 else finetune(options)


def train_seeds(options: FinetuneOptions) -> dict[str, Any]:
    """Train with `run.seeds` seeds, from `run.seed` on; the best one becomes the run.

    Each seed's run is in out/seeds/N. A seed that fails is named and counts as failed.

    Returns:
        The content of run.json: that of the best seed's run, and "seeds" with mean, deviation
        (sample standard deviation, None of a single seed) and all values of every figure.

    Raises:
        ConfigError: there are no dev rows to choose by, there is more than one process, or the
            first seed finds an option wrong.
        RunError: no seed came to its end.
    """
    if not options.data.has_dev:
        raise ConfigError("--seeds chooses the best run on dev rows; give --dev.")
    numbers = range(options.run.seed, options.run.seed + options.run.seeds)
    variants = {str(n): changed(options, seed=n, seeds=1, overwrite=False) for n in numbers}
    done = _finished(options, variants, "seeds")
    if done is not None:
        return done
    with _folder(options) as folder:
        runs, failed = _train_each(variants, folder / "seeds", "seed")
        best = max(runs, key=lambda number: _value(runs[number]))
        run = runs[best] | {"seeds": _spread(runs, failed, best)}
        for name in _TAKEN:
            _copy(folder / "seeds" / best / name, folder / name)
        record_seeds(folder / "model", run)
        write_json(folder / "run.json", run)
    return run


def train_folds(options: FinetuneOptions) -> dict[str, Any]:
    """Cross-validate on the table, then train the model of the run on all of its rows.

    The run of each fold is in out/folds/N. All runs have the same options and no dev rows, so the
    metrics of the folds are an estimate for the model that was trained on all rows.

    Returns:
        The content of run.json: that of the run on all rows, and "folds" with mean, deviation and
        all values of every metric.

    Raises:
        ConfigError, RunError: As for `train_seeds`.
    """
    if options.run.seeds > 1:
        raise ConfigError("--folds and --seeds both train several times; give one of them.")
    numbers = range(1, options.data.folds + 1)
    variants = {str(n): changed(options, fold=n, overwrite=False) for n in numbers}
    done = _finished(options, variants, "folds")
    if done is not None:
        return done
    with _folder(options) as folder:
        runs, failed = _train_each(variants, folder / "folds", "fold")
        say("all rows: the model of the run")
        whole = folder / "folds" / "all"
        all_rows = changed(
            options, folds=0, dev="0", test="0", group_column=None, out=str(whole), overwrite=False
        )
        run = finetune(all_rows, prints_findings=False)
        folds = {
            "runs": {n: {"metrics": one["metrics"]["test"]} for n, one in runs.items()},
            "failed": failed,
            "metrics": _summaries([one["metrics"]["test"] for one in runs.values()]),
            "baseline": _baseline(list(runs.values())),
        }
        run |= {"folds": folds}
        for name in _TAKEN:
            _copy(whole / name, folder / name)
        record = read_json(folder / "model" / "filbert.json")
        write_json(folder / "model" / "filbert.json", record | {"folds": folds})
        write_json(folder / "run.json", run)
        shutil.rmtree(whole)
    return run


def _baseline(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The mean of the simple predictor, where it is the same one in every fold."""
    found = [run.get("baseline") or {} for run in runs]
    names = {(one.get("name"), one.get("metric")) for one in found}
    if len(names) > 1 or not all(isinstance(one.get("value"), float) for one in found):
        return None
    (name, metric), values = names.pop(), [one["value"] for one in found]
    return {"name": name, "metric": metric} | _summary(values)


@contextmanager
def _folder(options: FinetuneOptions) -> Iterator[Path]:
    with run_folder(Path(options.run.out).absolute(), resume=options.run.resume) as folder:
        write_json(folder / "run.json", {"status": "running", "command": "finetune"})
        yield folder


def _train_each(
    variants: Mapping[str, FinetuneOptions], place: Path, what: str
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Train each variant in a folder of `place`; return the runs, and what failed and why."""
    runs: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for index, (number, options) in enumerate(variants.items(), 1):
        say(f"{what} {number}: run {index} of {len(variants)}")
        try:
            one = changed(options, out=str(place / number))
            # The rows are the same in every run.
            runs[number] = finetune(one, prints_findings=index == 1)
        except (RunError, ConfigError) as error:
            # An option that is wrong is wrong for all; want of memory may come later.
            if isinstance(error, ConfigError) and not runs and not failed:
                raise
            failed[number] = str(error)
            say(f"{what} {number} failed: {error}")
    if not runs:
        raise RunError(f"All {len(variants)} {what}s failed: {next(iter(failed.values()))}")
    return runs, failed


def _finished(
    options: FinetuneOptions, variants: Mapping[str, FinetuneOptions], kind: str
) -> dict[str, Any] | None:
    """Check the run folder; with --resume return a finished run with the same options.

    Raises:
        ConfigError: The folder is taken, a run with other options, data or model is finished in it,
            or there is more than one process.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"--{kind} trains one run after the other; start it without torchrun.")
    out = Path(options.run.out).absolute()
    check_out(out, overwrite=options.run.overwrite, resume=options.run.resume)
    done = finished_run(out) if options.run.resume else None
    if done is None:
        return None
    several = done.get(kind) or {}
    if {*several.get("runs", ()), *several.get("failed", ())} != {*variants}:
        raise finished_otherwise(options.run.out)
    for number in several["runs"]:
        # Each run refuses other options, data and models than its own.
        place = out / kind / number
        if (place / "run.json").is_file():
            finetune(changed(variants[number], out=str(place)))
    if several.get("failed"):
        # A run that is trained now would have no part in the choice that was made.
        what, names = kind.removesuffix("s"), ", ".join(several["failed"])
        say(f"failed before: {what} {names}; --overwrite trains all again")
    return done


def spread_lines(seeds: dict[str, Any]) -> list[str]:
    """Mean, deviation and best of the metric that chose, as sentences."""
    summary = seeds["figures"]["dev"].get(seeds["metric"])
    about = "not defined for every seed"
    if summary is not None:
        deviation = summary["deviation"]
        about = f"mean {summary['mean']:.4f}"
        about += "" if deviation is None else f", deviation {deviation:.4f}"
    if seeds["best_value"] is not None:
        about += f", best {seeds['best_value']:.4f} (seed {seeds['best']})"
    lines = [f"{len(seeds['runs'])} seeds, dev {seeds['metric']}: {about}"]
    if seeds["failed"]:
        lines.append(f"failed: seed {', '.join(seeds['failed'])}")
    return lines


def _value(run: dict[str, Any]) -> float:
    best = run["best"]
    if best["value"] is None:
        return -math.inf
    return float(-best["value"] if best["metric"] in FALLING else best["value"])


def _spread(runs: dict[str, Any], failed: dict[str, str], best: str) -> dict[str, Any]:
    names = next(iter(runs.values()))["metrics"]
    summaries = {n: _summaries([run["metrics"][n] for run in runs.values()]) for n in names}
    chosen = runs[best]["best"]
    return {
        "runs": {n: {"best": run["best"], "metrics": run["metrics"]} for n, run in runs.items()},
        "failed": failed,
        "best": best,
        "metric": chosen["metric"],
        "best_value": runs[best]["metrics"]["dev"].get(chosen["metric"], chosen["value"]),
        "figures": summaries,
    }


def _summaries(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: _summary([metrics[name] for metrics in found])
        for name, value in found[0].items()
        if all(isinstance(metrics.get(name), float) for metrics in found)
    }


def _summary(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "deviation": deviation, "values": values}


def _copy(source: Path, target: Path) -> None:
    """Link files rather than copying them, where the disk can."""
    if not source.exists():
        return
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, copy_function=_link)
    else:
        target.unlink(missing_ok=True)
        _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
