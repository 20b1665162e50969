"""Cases of what filbert learns: metrics, predictions, weights and gradients after few steps."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.numpy import load_file

from . import inputs, internals
from .place import Found, Place, case, lines, read_json, tensors_sha


def learnt(place: Place, run: Path, data: Path) -> Found:
    """What a fine-tuning run logged, and what its model says about some rows."""
    log = lines((run / "metrics.jsonl").read_text())
    keys = ("step", "loss", "lr", "grad_norm")
    return {
        "metrics": read_json(run / "run.json")["metrics"],
        "steps": [{key: line[key] for key in keys} for line in log if "lr" in line],
        "predict": lines(place.call("predict", model=run / "model", data=data)),
    }


def finetune_case(place: Place, rows: str) -> Found:
    run, data = place.run(rows), place.rows / f"{rows}.dev.jsonl"
    model = run / "model"
    return learnt(place, run, data) | {
        "run.json": sorted(read_json(run / "run.json")),
        "filbert.json": sorted(read_json(model / "filbert.json")),
        "files": sorted(path.name for path in model.iterdir()),
        "evaluate": json.loads(place.call("evaluate", model=model, data=data)),
    }


for _rows in inputs.ROWS:
    case(f"finetune {_rows}", rows=_rows)(finetune_case)


@case("finetune conll")
def conll(place: Place) -> Found:
    """Of tags in columns, with a task's other options."""
    out = place.folder / "runs" / "conll"
    place.call("finetune conll", model=place.model("electra"), out=out)
    return learnt(place, out, place.rows / "tagging.dev.jsonl")


@case("finetune window", name="window", rows="classes")
@case("finetune muon", name="muon", rows="regression")
def other_options(place: Place, name: str, rows: str) -> Found:
    """Windows, cleaning, weights of classes and layers; other optimisers; a causal encoder."""
    out = place.folder / "runs" / name
    place.call(f"finetune {name}", model=place.model(), out=out, rows=rows)
    return learnt(place, out, place.rows / f"{rows}.dev.jsonl")


@case("resume")
def resume(place: Place) -> Found:
    """A killed and resumed run ends with the weights of the straight one, bit for bit."""
    weights = {}
    for name in ("straight", "resumed"):
        out = place.folder / "resume" / name
        values = {"model": place.model(), "out": out, "rows": "classes"}
        if name == "resumed":
            with internals.killed_at(4):
                place.call("resume", **values)
            assert not (out / "model" / "model.safetensors").exists()
            place.call("resume again", **values)
        else:
            place.call("resume", **values)
        weights[name] = out / "model" / "model.safetensors"
    assert tensors_sha(weights["straight"]) == tensors_sha(weights["resumed"])
    return dict(load_file(weights["resumed"]))


@case("replay")
def replay(place: Place) -> Found:
    found = json.loads(
        place.call("replay", model=place.run("binary") / "model", out=place.folder / "replayed")
    )
    return {key: found[key] for key in ("is_same", "same_weights") if key in found}


@case("gradient", way=1)
@case("gradient in 4 micro-batches", way=4)
@case("gradient of 2 processes", way=0)
def gradient(place: Place, way: int) -> Found:
    model, rows = place.model("bert", "sequence"), place.rows / "classes.dev.jsonl"
    if way:
        return internals.gradient(model, rows, way)
    return internals.gradient_of_two(model, rows, place.folder / "gradient.npz")


@case("pretrain mlm", name="mlm")
@case("pretrain nsp", name="nsp")
@case("pretrain sop", name="sop")
@case("pretrain electra", name="electra")
def pretrain(place: Place, name: str) -> Found:
    out = place.folder / "pretrain" / name
    corpora = {"corpus": place.corpus("train"), "dev": place.corpus("dev")}
    place.call(f"pretrain {name}", out=out, model=place.model("bert", "masked"), **corpora)
    facts, log = read_json(out / "run.json"), lines((out / "metrics.jsonl").read_text())
    return {
        "metrics": facts["metrics"],
        "steps": [{k: line[k] for k in ("step", "loss", "lr")} for line in log if "lr" in line],
        "files": sorted(str(path.relative_to(out / "model")) for path in out.glob("model/**/*.*")),
        "tensors": {
            name: list(value.shape)
            for name, value in sorted(load_file(out / "model" / "model.safetensors").items())
        },
    }


@case("distill", command="distill")
@case("distill layers", command="distill layers")
def distill(place: Place, command: str) -> Found:
    out, model = place.folder / command, place.model("bert", "sequence")
    place.call(command, out=out, model=model, rows="classes")
    facts, log = read_json(out / "run.json"), lines((out / "metrics.jsonl").read_text())
    return {
        "metrics": facts["metrics"],
        "teacher": facts["teacher"]["metrics"],
        "steps": [line["loss"] for line in log if "lr" in line],
        "weights": load_file(out / "model" / "model.safetensors")["classifier.weight"],
    }


@case("compare")
def compare(place: Place) -> Found:
    recipe = place.folder / "study.toml"
    rows = {part: place.rows / f"binary.{part}.jsonl" for part in ("train", "dev")}
    recipe.write_text(
        f'train = "{rows["train"]}"\ndev = "{rows["dev"]}"\ntest = "{rows["dev"]}"\n'
        'positive = "pos"\nprecision = "float32"\nsteps = 2\n'
        f'resamples = 100\n[contestants.tiny]\nmodel = "{place.model()}"\nlr = 0.001\n'
        "batch_size = 32\n"
        '[contestants.tfidf]\nkind = "tfidf"\nC = 10.0\n'
    )
    results = json.loads(place.call("compare", recipe=recipe, out=place.folder / "study"))
    return {
        one["name"]: {
            "status": one["status"],
            "dev": one["seeds"][0]["dev"],
            "test": {k: [v["value"], v["low"], v["high"]] for k, v in one["test"].items()},
        }
        for one in results["contestants"]
    }
