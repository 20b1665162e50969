"""Cases of what filbert does with text and finished models."""

from __future__ import annotations

import gzip
import json
import lzma
import re
from typing import Any

import numpy as np
import pyarrow.parquet

from . import inputs, internals
from .place import Found, Place, case, lines, read_json, sha, tensors_sha

# Text


@case("tokenize")
def tokenize(place: Place) -> Found:
    found: Found = {}
    for name, folder in {"uncased": place.folder / "vocab", **place.vocabularies}.items():
        stdin = "\n".join(inputs.TEXTS) + "\n"
        found[name] = lines(place.call("tokenize", model=folder, stdin=stdin))
    found["cut"] = lines(place.call("tokenize cut", model=place.folder / "vocab", stdin=stdin))
    return found


@case("vocab")
def vocab(place: Place) -> Found:
    return {
        kind: {path.name: sha(path.read_bytes()) for path in sorted(folder.iterdir())}
        for kind, folder in place.vocabularies.items()
    }


# Models


def _items(head: str) -> list[Any]:
    return {
        "choices": [
            {"context": "the film was", "choices": ["good", "very bad", "old , he see"]},
            {"context": inputs.TEXTS[2], "choices": ["a play", "not", ""]},
        ],
        "spans": [
            {"question": "what was good ?", "context": "he and she see the long film . " * 3},
            {"question": "what ?", "context": "the very long film was great , not bad ! " * 8},
        ],
    }.get(head, [*inputs.TEXTS, inputs.PAIRS[1]] if head == "sequence" else inputs.TEXTS)


def family_case(place: Place, family: str) -> Found:
    """Every head of a family: loaded from Hugging Face's layout, logits, answers and vectors."""
    import filbert

    found: Found = {}
    for head in inputs.HEADS:
        folder = place.model(family, head)
        model = filbert.load(folder)
        if head == "bare":
            found["vectors"] = model.embed([*inputs.TEXTS, inputs.PAIRS[0]])
        else:
            rows = internals.logits(folder, _items(head))
            found[f"{head} logits"] = np.concatenate([np.atleast_2d(row) for row in rows])
        if model.task is not None:
            found[head] = model.predict(_items(head))
    return found


for _family in inputs.PREFIXES:
    case(f"family {_family}", family=_family)(family_case)


# Conversion


@case("convert google")
def convert_google(place: Place) -> Found:
    import filbert

    found: Found = {}
    for family, head in (("bert", "pretraining"), ("bert", "bare"), ("albert", "masked")):
        there, back = place.google(family, head), place.folder / "back" / f"{family}-{head}"
        place.call("convert", source=there, out=back, to="huggingface")
        found[f"{family} {head}"] = {p.name: sha(p.read_bytes()) for p in sorted(there.iterdir())}
        found[f"{family} {head} back"] = tensors_sha(back / "model.safetensors")
        found[f"{family} {head} config"] = read_json(back / "config.json")
        found[f"{family} {head} vectors"] = filbert.load(there).embed(inputs.TEXTS)
    return found


@case("convert huggingface")
def convert_huggingface(place: Place) -> Found:
    """Every tensor again under the names of its family."""
    found: Found = {}
    for family in inputs.PREFIXES:
        source, out = place.model(family, "sequence"), place.folder / "hf" / family
        place.call("convert", source=source, out=out, to="huggingface")
        found[family] = tensors_sha(out / "model.safetensors")
        assert found[family] == tensors_sha(source / "model.safetensors")
        found[f"{family} config"] = read_json(out / "config.json")
    return found


@case("export onnx")
def export_onnx(place: Place) -> Found:
    """What onnxruntime computes, asked directly and through filbert."""
    import onnxruntime

    import filbert

    ids = np.array([[2, 5, 7, 8, 11, 3], [2, 7, 3, 0, 0, 0]])
    every = {"input_ids": ids, "attention_mask": (ids > 0) * 1, "token_type_ids": ids * 0}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    found: Found = {}
    for family, head in (("bert", "sequence"), ("electra", "tokens"), ("distilbert", "bare")):
        out = place.folder / "onnx" / f"{family}-{head}"
        place.call("export", model=place.model(family, head), out=out)
        session = onnxruntime.InferenceSession(out / "model.onnx", options)
        wanted = [value.name for value in session.get_inputs()]
        outputs = session.run(None, {name: every[name] for name in wanted})
        found[f"{family} inputs"] = wanted
        for value, output in zip(session.get_outputs(), outputs, strict=True):
            found[f"{family} {value.name}"] = output
        found[f"{family} files"] = sorted(path.name for path in out.iterdir())
    model = filbert.load(place.folder / "onnx" / "bert-sequence", backend="onnxruntime")
    found["predict"] = model.predict(inputs.TEXTS[:4])
    return found


@case("int8")
def int8(place: Place) -> Found:
    import filbert

    model = place.model("bert", "sequence")
    out = place.folder / "onnx" / "int8"
    place.call("export int8", model=model, out=out)
    exported = filbert.load(out, backend="onnxruntime")
    return {
        "torch": filbert.load(model, precision="int8").embed(inputs.TEXTS),
        "onnx": np.array([list(p["scores"].values()) for p in exported.predict(inputs.TEXTS)]),
    }


@case("shrink")
def shrink(place: Place) -> Found:
    import filbert

    found: Found = {}
    for name in ("layers", "vocabulary"):
        out = place.folder / "shrunk" / name
        facts = json.loads(
            place.call(f"shrink {name}", model=place.model("bert", "masked"), out=out)
        )
        found[f"{name} parameters"] = [step["parameters"] for step in facts["steps"]]
        found[name] = tensors_sha(out / "model.safetensors")
        found[f"{name} vocabulary"] = sha((out / "vocab.txt").read_bytes())
        found[f"{name} vectors"] = filbert.load(out).embed(inputs.TEXTS)
    return found


# Data


@case("check")
def check(place: Place) -> Found:
    """What the data doctor finds, and in which lines; its sentences may change."""
    found: Found = {}
    files = {rows: (task, f"{rows}.train.jsonl") for rows, task in inputs.ROWS.items()}
    files |= {"bad": ("classification", "bad.csv"), "conll": ("tagging", "tags.conll")}
    files |= {"squad": ("span_qa", "squad.json")}
    for name, (task, file) in files.items():
        status = 2 if name == "bad" else 0
        path, model = place.rows / file, place.model()
        report = json.loads(place.call("check", task=task, path=path, model=model, status=status))
        found[name] = {
            "splits": [{k: v for k, v in s.items() if k != "path"} for s in report["splits"]],
            "problems": [
                [
                    p["level"],
                    p["kind"],
                    p["count"],
                    re.findall(r"\.\w+:(\d+)", " ".join(p["where"])),
                ]
                for p in report["problems"]
            ],
        }
    return found


@case("corpus")
def corpus(place: Place) -> Found:
    folder = place.corpus("train")
    (shard,) = sorted(folder.glob("shard-*"))
    counts = read_json(folder / "manifest.json")["counts"]
    return {
        "files": {path.name: sha(path.read_bytes()) for path in sorted(shard.iterdir())},
        "counts": {k: counts[k] for k in ("documents", "sentences", "tokens", "unknown_tokens")},
    }


@case("masks")
def masks(place: Place) -> Found:
    """Rows of pre-training under each unit, style and pair objective: exact on every machine."""
    ways: list[dict[str, Any]] = [
        {"max_length": 24},
        {"max_length": 24, "masking": "word", "pair": "nsp"},
        {"max_length": 24, "masking": "ngram", "pair": "sop", "mask_style": "roberta"},
        {"max_length": 24, "masking": "span", "mask_style": "electra"},
        {"max_length": 40, "mask_rate": 0.4, "duplicates": 2, "mask_rarity": 0.5},
    ]
    return {
        " ".join(f"{k}={v}" for k, v in way.items()): internals.masked_rows(
            place.corpus("train"), 6, **way
        )
        for way in ways
    }


# Answers


@case("embed")
def embed(place: Place) -> Found:
    import filbert

    model = filbert.load(place.model("bert", "masked"))
    texts = [*inputs.TEXTS, inputs.PAIRS[1]]
    found: Found = {
        pooling: model.embed(texts, pooling=pooling)
        for pooling in ("mean", "cls", "max", "last", "mean_sqrt_len", "mean+cls")
    }
    found["layers"] = model.embed(texts, layers=[0, -1, 1], normalize=True)
    found["tokens"] = np.concatenate(model.embed(texts, pooling="none"))
    out = place.folder / "vectors.npy"
    place.call("embed", model=place.model("bert", "masked"), out=out)
    found["command"] = np.load(out)
    out = place.folder / "vectors.parquet"
    place.call("embed", model=place.model("bert", "masked"), out=out)
    found["table"] = np.array(pyarrow.parquet.read_table(out)["embedding"].to_pylist(), np.float32)
    out = place.folder / "vectors.jsonl"
    place.call("embed", model=place.model("bert", "masked"), out=out)
    found["lines"] = lines(out.read_text())
    model = filbert.load(place.sentence_model())
    found["sentence-transformers folder"] = model.embed(texts)
    return found


@case("predict")
def predict(place: Place) -> Found:
    """To a file, and from a pipe."""
    multilabel = place.model("bert", "sequence", "multilabel")
    regression = place.model("roberta", "sequence", "regression")
    out = place.folder / "predicted.jsonl"
    place.call("predict file", model=multilabel, data=place.rows / "pairs.dev.jsonl", out=out)
    stdin = "\n".join(inputs.TEXTS)
    return {
        "multilabel": lines(out.read_text("utf-8")),
        "regression": lines(place.call("predict", model=regression, data="-", stdin=stdin)),
    }


@case("evaluate formats")
def evaluate_formats(place: Place) -> Found:
    """The same rows in other files, under other names of columns, compressed or not."""
    model = place.model("bert", "sequence", "binary")
    rows = lines((place.rows / "binary.dev.jsonl").read_text())
    named = {"said": [row["text"] for row in rows], "kind": [row["label"] for row in rows]}
    pairs = list(zip(*named.values(), strict=True))
    files = {
        "rows.csv": "said,kind\n" + "".join(f"{text},{label}\n" for text, label in pairs),
        "rows.tsv": "said\tkind\n" + "".join(f"{text}\t{label}\n" for text, label in pairs),
    }
    for name, content in files.items():
        (place.folder / name).write_text(content)
    content = "".join(json.dumps({"said": t, "kind": k}) + "\n" for t, k in pairs).encode()
    (place.folder / "rows.jsonl.gz").write_bytes(gzip.compress(content))
    (place.folder / "rows.jsonl.xz").write_bytes(lzma.compress(content))
    pyarrow.parquet.write_table(pyarrow.table(named), place.folder / "rows.parquet")
    found = {
        name: json.loads(place.call("evaluate mapped", model=model, data=place.folder / name))
        for name in (*files, "rows.jsonl.gz", "rows.jsonl.xz", "rows.parquet")
    }
    assert all(one == found["rows.csv"] for one in found.values())
    return found["rows.csv"]


@case("python")
def python(place: Place) -> Found:
    """The short forms of the public interface."""
    import filbert

    words, spans = place.model("distilbert", "tokens"), place.model("bert", "spans")
    classes = filbert.load(place.model("bert", "sequence"), max_length=6)
    answer = filbert.load(spans).answer("what was good ?", "the very long film was good . " * 20)
    return {
        "tag": filbert.load(words).tag(["the", "old", "film"]),
        "answer": {k: v for k, v in answer.items() if k != "nbest"},
        "cut": classes.predict(inputs.TEXTS),
    }


@case("evaluate predictions")
def evaluate_predictions(place: Place) -> Found:
    """Predictions that filbert made, and SQuAD's map of answers, scored without a model."""
    found: Found = {}
    for rows in ("binary", "multilabel", "regression", "tagging", "multiple_choice"):
        data = place.rows / f"{rows}.dev.jsonl"
        predictions = place.folder / f"{rows}.predictions.jsonl"
        predictions.write_text(place.call("predict", model=place.run(rows) / "model", data=data))
        command = f"evaluate predictions{' multilabel' if rows == 'multilabel' else ''}"
        task = inputs.ROWS[rows]
        printed = place.call(command, task=task, data=data, predictions=predictions)
        found[rows] = json.loads(printed)
    squad, answers = place.rows / "squad.json", place.rows / "answers.json"
    printed = place.call("evaluate predictions", task="span_qa", data=squad, predictions=answers)
    return found | {"squad": json.loads(printed)}


@case("masked words")
def masked_words(place: Place) -> Found:
    import filbert

    found: Found = {}
    for family, mask in (("bert", "[MASK]"), ("roberta", "<mask>")):
        folder = place.model(family, "masked")
        model = filbert.load(folder)
        found[f"{family} fill"] = model.fill([f"the {mask} was good", f"a {mask} {mask} ."], top=3)
        found[f"{family} score"] = lines(place.call("score", model=folder))
    texts = "the [MASK] was good\n"
    folder = place.model("bert", "masked")
    found["command"] = lines(place.call("fill", model=folder, stdin=texts))
    found["evaluate"] = json.loads(
        place.call("evaluate", model=folder, data=place.text / "dev.txt")
    )
    return found


@case("info")
def info(place: Place) -> Found:
    """What does not depend on how a configuration is held inside."""
    keys = ["family", "parameters", "encoder_parameters", "head", "task", "labels", "max_length"]
    keys += ["tokenizer", "sentence_vectors", "problem_type", "thresholds", "metrics"]
    folders = {
        "bert": place.model("bert", "sequence"),
        "sentences": place.sentence_model(),
        "run": place.run("binary") / "model",
        "google": place.google("bert", "pretraining"),
    }
    found: Found = {}
    for name, folder in folders.items():
        facts = json.loads(place.call("info", model=folder))
        found[name] = {key: facts[key] for key in keys}
    found["tensors"] = [[t["name"], t["shape"]] for t in facts["tensors"]]
    two = json.loads(place.call("info two", model=folders["bert"], other=folders["run"]))
    found["two"] = {key: two[key] for key in ("same_weights", "same_answers", "tensors")}
    return found


@case("explain")
def explain(place: Place) -> Found:
    kept = ("target", "method", "value", "baseline_value", "sum", "steps")
    found: Found = {}
    for head, kind in (("sequence", "binary"), ("tokens", "")):
        for one in json.loads(
            place.call("explain", model=place.model("bert", head, kind), text=inputs.TEXTS[0])
        ):
            name = f"{head} {one['method']}"
            found[name] = {key: one.get(key) for key in kept}
            found[name]["words"] = [[word["text"], word["share"]] for word in one["words"]]
    return found


@case("inspect")
def inspect(place: Place) -> Found:
    """Numbers on heads and on the vectors of one word."""
    model = place.model("bert", "masked")
    heads = json.loads(place.call("heads", model=model))
    numbers = ("entropy", "distance", "cls", "sep", "itself", "previous", "next")
    near = json.loads(place.call("neighbours", model=model))
    return {
        "heads": [[head[number] for number in numbers] for head in heads["heads"]],
        "similarity": near["cosines"],
        "layers": near["mean_cosine"],
    }
