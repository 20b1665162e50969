"""One recipe with several seeds: the spread is part of the result.

Fine-tuning on small data sets varies more between seeds than between methods (Dodge et al. 2020;
Mosbach et al. 2021), so one figure is not a finding.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, RunError
from filbert.files import write_json
from filbert.train.finetune import finetune
from filbert.train.log import say
from filbert.train.model_folder import record_seeds
from filbert.train.options import FinetuneOptions, changed
from filbert.train.progress import FALLING
from filbert.train.run_folder import check_out, finished_otherwise, finished_run, run_folder

# What the folder of the best seed gives to the run's own folder.
_TAKEN = ("model", "metrics.jsonl", "predictions")


def run(options: FinetuneOptions) -> dict[str, Any]:
    """Fine-tune with one seed or with several; see `finetune` and `train_seeds`."""
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
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("--seeds trains one run after the other; start it without torchrun.")
    out = Path(options.run.out).absolute()
    check_out(out, overwrite=options.run.overwrite, resume=options.run.resume)
    numbers = range(options.run.seed, options.run.seed + options.run.seeds)
    done = finished_run(out) if options.run.resume else None
    if done is not None:
        _check_finished(options, done, numbers)
        return done
    with run_folder(out, resume=options.run.resume) as folder:
        write_json(folder / "run.json", {"status": "running", "command": "finetune"})
        runs: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for number in numbers:
            say(f"seed {number}: run {number - options.run.seed + 1} of {options.run.seeds}")
            place = folder / "seeds" / str(number)
            try:
                one = changed(options, seed=number, seeds=1, out=str(place), overwrite=False)
                # The rows are the same for every seed.
                is_first = number == options.run.seed
                runs[str(number)] = finetune(one, prints_findings=is_first)
            except (RunError, ConfigError) as error:
                # An option that is wrong is wrong for all; want of memory may come later.
                if isinstance(error, ConfigError) and not runs and not failed:
                    raise
                failed[str(number)] = str(error)
                say(f"seed {number} failed: {error}")
        if not runs:
            raise RunError(f"All {options.run.seeds} seeds failed: {next(iter(failed.values()))}")
        best = max(runs, key=lambda number: _value(runs[number]))
        run = runs[best] | {"seeds": _spread(runs, failed, best)}
        for name in _TAKEN:
            _copy(folder / "seeds" / best / name, folder / name)
        record_seeds(folder / "model", run)
        write_json(folder / "run.json", run)
    return run


def _check_finished(options: FinetuneOptions, done: dict[str, Any], numbers: range) -> None:
    """Refuse a finished run with other options, data, model or seeds."""
    seeds = done.get("seeds") or {}
    if {*seeds.get("runs", ()), *seeds.get("failed", ())} != {*map(str, numbers)}:
        raise finished_otherwise(options.run.out)
    for number in map(int, seeds["runs"]):
        # Each run refuses other options, data and models than its own.
        place = Path(options.run.out).absolute() / "seeds" / str(number)
        if (place / "run.json").is_file():
            finetune(changed(options, seed=number, seeds=1, out=str(place)))
    if seeds.get("failed"):
        # A seed that is trained now would have no part in the choice that was made.
        say(f"failed before: seed {', '.join(seeds['failed'])}; --overwrite trains all again")


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
    summaries: dict[str, dict[str, Any]] = {}
    for split in next(iter(runs.values()))["metrics"]:
        found = [run["metrics"][split] for run in runs.values()]
        summaries[split] = {
            name: _summary([metrics[name] for metrics in found])
            for name, value in found[0].items()
            if all(isinstance(metrics.get(name), float) for metrics in found)
        }
    chosen = runs[best]["best"]
    return {
        "runs": {n: {"best": run["best"], "metrics": run["metrics"]} for n, run in runs.items()},
        "failed": failed,
        "best": best,
        "metric": chosen["metric"],
        "best_value": runs[best]["metrics"]["dev"].get(chosen["metric"], chosen["value"]),
        "figures": summaries,
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
