r"""Masked LM from scratch for a fixed time on two cores: filbert and transformers' Trainer.

    python benchmarks/against/pretrain_mlm.py --data DIR [--minutes 10] [--target-minutes 3] \
        [--seeds 1] [--out DIR] [--set lr=2e-3 batch_size=64 ...]
    python benchmarks/against/pretrain_mlm.py --data DIR --search 2 --lrs 5e-4 1e-3 2e-3 4e-3 \
        [--sides transformers]

A BERT of 4 layers, hidden size 256, 4 heads, feed-forward 1024, bert-base-uncased's vocabulary,
sequences of 128 tokens, on the 24 novels of eltec_small. The peer is set up as transformers'
run_mlm.py sets it up (peer_pretrain.py), in float32; filbert runs `filbert pretrain` with `RECIPE`,
its own default precision. Neither has dropout; optimiser, learning rate and batch are each side's
own: `--search` tries peak learning rates. Both get a linear schedule fitted to their time.

Three runs, each a process of its own, alone: the peer for --minutes, filbert for --minutes, and
filbert for --target-minutes. The peer's time is that of training alone: reading, tokenising and
evaluating are not counted. filbert's evaluations are counted against its own time, though its
tokens/s are tokens over training seconds, as the peer's.

The judge (pretrain_judge.py) is neither side's code: a plain forward pass over the saved model, at
masks that were drawn once, in two shapes of the held-out novel, each side's own: "framed" ([CLS],
126 tokens, [SEP]) and "grouped" (as run_mlm.py cuts, with [SEP] [CLS] between paragraphs). A goal
is met when it is met in both. filbert's curve comes from its own dev figures, on other masks of the
beginning of the same text, so it says only about when a loss was reached.

Goals: at least 4 times the peer's tokens/s; the peer's loss after --minutes in --target-minutes.
A result is written as soon as it is there, and the same command goes on where it was stopped.
`--small` is a look at the machinery in a minute and proves nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import runs
from pretrain_data import HeldOut, bert_tokenizer, held_out_sets, read_lines
from pretrain_table import report
from runs import Kept

SHAPE = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
# The peer: 32 blocks as run_mlm.py's users take, the Trainer's optimiser, BERT's decay and warm-up.
PEER = {"batch_size": 32, "lr": 1e-3, "warmup": 0.1, "weight_decay": 0.01}
# filbert, keys of `filbert pretrain`; `--set` overrides them.
RECIPE: dict[str, Any] = {
    "objective": "mlm",
    "pair": "none",
    "mask_rate": 0.15,
    "dropout": 0.0,
    "batch_size": 32,
    "optimizer": "muon",
    "lr": 3e-3,
    "schedule": "linear",
    "warmup": 0.1,
    "weight_decay": 0.01,
}
LOOKS = 15  # at the peer's model and at filbert's dev figures, over a run
CURVE_BLOCKS = 128
SMALL = {
    "shape": {**SHAPE, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128},
    "max_length": 64,
    "minutes": 0.1,
    "target_minutes": 0.05,
    "lines": 300,
    "batch_size": 8,
}


# The data, once


def prepare(given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Texts and held-out masks, in files that every run reads; what all requests share."""
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    source = given.data / "eltec_small"
    paths = {name: source / f"{name}.txt.xz" for name in ("train", "valid")}
    if given.small:
        for name, path in paths.items():
            paths[name] = folder / f"{name}.txt"
            paths[name].write_text("\n".join(read_lines(path)[: SMALL["lines"]]), encoding="utf-8")
    vocabulary = given.data / "tokenizers" / "bert-base-uncased"
    max_length = SMALL["max_length"] if given.small else 128
    sets = held_out_sets(bert_tokenizer(vocabulary), read_lines(paths["valid"]), max_length)
    for name, held_out in sets.items():
        held_out.save(folder / f"{name}.npz")
    return {
        "shape": SMALL["shape"] if given.small else SHAPE,
        "max_length": max_length,
        "train": str(paths["train"]),
        "valid": str(paths["valid"]),
        "tokenizer": str(vocabulary),
        "held_out": {name: held_out.digest for name, held_out in sets.items()},
        "masked": {name: len(held_out.labels) for name, held_out in sets.items()},
        "sets": str(folder),
    }


def request_of(
    side: str, minutes: float, seed: int, common: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """What a child is told."""
    seconds = 60.0 * minutes
    own = {"look_every": seconds / LOOKS, "curve_blocks": CURVE_BLOCKS}
    return {"side": side, "seconds": seconds, "seed": seed, **common, **settings, **own}


# One run, in a process of its own


def toml(values: dict[str, Any]) -> str:
    """Flat values; JSON writes texts, numbers and booleans as TOML does."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def train_filbert(request: dict[str, Any], sets: dict[str, HeldOut]) -> dict[str, Any]:
    """`filbert pretrain` in a process; returns what `train_peer` does."""
    from pretrain_judge import judge_folder

    out = Path(request["out"])
    out.mkdir(parents=True)
    recipe = {
        **request["recipe"],
        **request["shape"],
        "family": "bert",
        "dev_rows": request["curve_blocks"],
        "max_length": request["max_length"],
        "time": f"{request['seconds']:g}s",
        "seed": request["seed"],
        "device": "cpu",
        "save_every": 0,
    }
    path = out / "recipe.toml"
    path.write_text(toml(recipe), encoding="utf-8")
    command = [sys.executable, "-m", "filbert", "pretrain", str(path), "--out", str(out / "run")]
    command += ["--corpus", request["train"], "--dev", request["valid"]]
    command += ["--tokenizer", request["tokenizer"]]
    # stdout carries this child's RESULT line.
    subprocess.run(command, check=True, stdout=sys.stderr)
    run = json.loads((out / "run" / "run.json").read_text(encoding="utf-8"))
    return {
        **read_metrics(out / "run" / "metrics.jsonl"),
        "precision": run["precision"],
        "parameters": run["model"]["parameters"],
        "judged": judge_folder(out / "run" / "model", sets),
    }


def read_metrics(path: Path) -> dict[str, Any]:
    """Tokens, seconds of training, steps and the dev curve of a metrics.jsonl."""
    tokens, seconds, steps = 0.0, 0.0, 0
    curve = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry.get("split") == "dev":
            found = entry["metrics"]
            metrics = {"loss": found["mlm_loss"], "accuracy": found["mlm_accuracy"]}
            curve.append((seconds, round(tokens), metrics))
        else:
            tokens += entry["tokens_per_second"] * (entry["seconds"] - seconds)
            seconds, steps = entry["seconds"], entry["step"]
    return {
        "tokens": round(tokens),
        "training_seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "steps": steps,
        "curve": curve,
    }


def child(request: dict[str, Any]) -> dict[str, Any]:
    """Train, and be judged on all held-out sets."""
    began = time.perf_counter()
    folder = Path(request["sets"])
    sets = {name: HeldOut.load(folder / f"{name}.npz") for name in request["held_out"]}
    if request["side"] == "filbert":
        runner = train_filbert
    else:
        from peer_pretrain import train_peer as runner
    found = runner(request, sets)
    return found | {"whole_seconds": time.perf_counter() - began}


# All runs

run_alone = partial(runs.run_alone, __file__)


def plans(given: argparse.Namespace) -> list[tuple[str, float, dict[str, Any]]]:
    """Side, minutes and settings of every run, in order."""
    peer, recipe = dict(PEER), {**RECIPE, **given.set}
    if given.small:
        peer["batch_size"] = recipe["batch_size"] = SMALL["batch_size"]
    if given.peer_lr:
        peer["lr"] = given.peer_lr
    if given.search:
        return [
            (side, given.search, settings)
            for lr in given.lrs
            for side, settings in (
                ("transformers", {**peer, "lr": lr}),
                ("filbert", {"recipe": {**recipe, "lr": lr}}),
            )
            if side in given.sides
        ]
    return [
        ("transformers", given.minutes, peer),
        ("filbert", given.target_minutes, {"recipe": recipe}),
        ("filbert", given.minutes, {"recipe": recipe}),
    ]


# What runs that need not be made twice have in common; folders may differ.
SAME = ("side", "seconds", "seed", "shape", "max_length", "held_out", "recipe", *PEER)


def compare(given: argparse.Namespace, out: Path, results: Path | None) -> tuple[list[Any], int]:
    """Make the runs that are missing; the records of all that were asked for, and the failures."""
    kept, chosen, failures = Kept(out, results, *SAME), [], 0
    (out / "logs").mkdir(parents=True, exist_ok=True)
    common = prepare(given, out)
    for seed in range(given.seeds):
        for side, minutes, settings in plans(given):
            about = request_of(side, minutes, seed, common, settings)
            if kept.missing([about]):
                lr = settings.get("recipe", settings)["lr"]
                name = f"{side}-{minutes:g}min-lr{lr:g}-{seed}"
                place = out / "runs" / name
                shutil.rmtree(place, ignore_errors=True)
                print(name, flush=True)
                found = run_alone(about | {"out": str(place)}, out / "logs" / f"{name}.log")
                if found is None:
                    failures += 1
                    continue
                record = about | found
                for path in ("train", "valid", "tokenizer", "sets"):
                    del record[path]
                kept.add(record)
                losses = ", ".join(f"{k} {v['loss']:.4f}" for k, v in found["judged"].items())
                print(f"  {found['tokens_per_second']:,.0f} tokens/s; loss {losses}", flush=True)
            chosen += kept.made([about])
    return chosen, failures


def setting(text: str) -> tuple[str, Any]:
    """A key and its value, as TOML would have it; bare words are texts."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of shared data")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target-minutes", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0")
    parser.add_argument("--peer-lr", type=float, help=f"the Trainer's; {PEER['lr']:g}")
    parser.add_argument("--set", nargs="+", type=setting, default=[], help="filbert's key=value")
    parser.add_argument(
        "--sides", nargs="+", default=["transformers", "filbert"], help="who takes part in --search"
    )
    parser.add_argument("--search", type=float, help="minutes for every learning rate of --lrs")
    parser.add_argument("--lrs", nargs="+", type=float, default=[5e-4, 1e-3, 2e-3, 4e-3])
    parser.add_argument("--out", type=Path, help="data, logs and results, to go on from")
    runs.add_results_options(parser, "pretrain_mlm")
    parser.add_argument("--small", action="store_true", help="a tiny model, a minute, no record")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.child is None and given.data is None:
        parser.error("--data is missing: the folder that holds eltec_small and tokenizers")
    given.set = dict(given.set)
    if given.small:
        given.minutes, given.target_minutes = SMALL["minutes"], SMALL["target_minutes"]
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = parse(words)
    if given.child:
        print("RESULT " + json.dumps(child(json.loads(given.child))), flush=True)
        return 0
    return runs.carry_out(
        "pretrain_mlm", given, compare, report, is_recorded=not (given.small or given.search)
    )


if __name__ == "__main__":
    sys.exit(main())
