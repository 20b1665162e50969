"""filbert info, convert, export, shrink and push."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from filbert.cli import arguments
from filbert.cli.output import cell, metric_lines, print_json, print_table
from filbert.data.columns import ColumnNames
from filbert.errors import printable

_ONLY_IN_JSON = ("encoder_parameters", "problem_type", "config", "metrics", "tensors")


def info(
    model: arguments.ModelName,
    other: Annotated[
        str | None,
        Parameter(help="a second model: list what differs in sizes, task, data and weights."),
    ] = None,
    /,
    *,
    json: arguments.AsJson = False,
) -> None:
    """Describe a checkpoint and its training; of two, list the differences.

    --json also has all settings, and of a TensorFlow checkpoint all tensors.
    """
    from filbert import api

    facts = api.info(model, other)
    if json:
        print_json(facts)
        return
    if other is not None:
        print_differences(facts)
        return
    config, tokenizer = facts["config"], facts["tokenizer"]
    sizes = "{num_hidden_layers} layers, width {hidden_size}, {num_attention_heads} heads"
    facts["parameters"] = f"{facts['parameters']:,} ({sizes.format(**config)})"
    case = "lower case" if tokenizer["lowercase"] else "upper and lower case"
    facts["tokenizer"] = f"{tokenizer['kind']}, {tokenizer['entries']:,} entries, {case}"
    metrics = facts["metrics"] or {}
    facts |= {f"metrics on {name}": m | {"per_label": None} for name, m in metrics.items()}
    rows = [
        (name.replace("_", " "), cell(fact, 1000))
        for name, fact in facts.items()
        if fact not in (None, []) and name not in _ONLY_IN_JSON
    ]
    print_table(("", ""), rows, texts=(0, 1))


def print_differences(result: dict[str, Any]) -> None:
    """Print the values that differ, the metrics, and the weights by part."""
    names = zip("AB", result["names"], strict=True)
    headings = ("", *(printable(f"{letter}  {name}", 500) for letter, name in names))
    pairs = {**result["values"], **result["metrics"]}
    rows = [(printable(name, 500), *map(cell, pair)) for name, pair in pairs.items()]
    rows = [row for row in rows if row[1] != row[2]]
    print_table(headings, rows, texts=(0, 1, 2))
    print()
    weights = [
        (part["name"], str(part["equal"]), str(len(part["different"])), f"{part['largest']:.3g}")
        for part in result["tensors"]
    ]
    columns = ("weights", "equal", "different", "largest difference")
    print_table(columns, weights, texts=(0,))
    is_same = result["same_answers"]
    verdict = "The predictions are the same." if is_same else "The predictions differ."
    if result["same_weights"] and not is_same:
        verdict = "The weights are the same; other values that decide predictions differ."
    print(verdict)


@arguments.flags_of(ColumnNames)
def convert(
    source: str,
    target: arguments.OutFolder,
    /,
    *,
    to: str,
    data: arguments.OptionalFile = None,
    max_loss: arguments.MaxLoss = None,
    adapter: str | None = None,
    overwrite: arguments.Overwrite = False,
    json: arguments.AsJson = False,
    **columns: Any,
) -> None:
    """Write a model and its tokenizer in another format; every tensor stays the same bit for bit.

    Parameters
    ----------
    source:
        folder, TensorFlow checkpoint (its folder, prefix or .index file), built-in name or Hub
        id.
    to:
        huggingface (config.json, model.safetensors), google (bert_config.json, bert_model.ckpt),
        int8 (as huggingface, with the layers that stay float32 recorded in filbert.json), or
        static-int8 (with the ranges of their inputs on --data too: faster and less exact).
    data:
        with the last two: labelled rows, or texts for a model without a task.
    adapter:
        with --to huggingface: a task of jina-embeddings-v3, such as retrieval.query. Its adapter is
        added to the weights, and its prompt is put before every text.
    """
    from filbert import api

    facts = api.convert(
        source,
        target,
        to=to,
        data=data,
        max_loss=max_loss,
        adapter=adapter,
        overwrite=overwrite,
        **columns,
    )
    for note in facts["notes"]:
        print(note, file=sys.stderr)
    print_json(facts) if json else _print_facts(facts)


def _print_facts(facts: dict[str, Any]) -> None:
    head = f"with its {facts['head']} head" if facts["head"] else "without a head"
    exact = f"with the adapter {facts['adapter']}" if "adapter" in facts else "bit for bit"
    print(
        f"{facts['target']}: {facts['family']} {head}, {facts['parameters']:,} parameters, {exact}."
    )
    for name, digest in facts["files"].items():
        print(f"  {name}  sha256 {digest[:16]}...")
    int8 = facts.get("int8")
    if int8 is None:
        return
    layers = int8["float_layers"]
    print(
        f"{int8['layers'] - len(layers)} of {int8['layers']} dense layers can compute in int8; "
        f"{len(layers)} stay float32{': ' if layers else ''}{', '.join(layers)}.\n"
        f"Mean cosine of the vectors to float32: {int8['cosine']:.6f}; with all layers in int8 "
        f"{int8['cosine_of_all']:.6f}."
    )
    if "float32" in int8:
        print(f"On {int8['data']['file']}:")
        print("\n".join(metric_lines(int8["float32"], int8["int8"])))


@arguments.flags_of(ColumnNames)
def export(
    model: arguments.ModelName,
    /,
    *,
    out: arguments.OutFolder,
    format: str,
    int8: bool = False,
    pooling: arguments.Pooling = None,
    data: arguments.OptionalFile = None,
    max_loss: arguments.MaxLoss = None,
    overwrite: arguments.Overwrite = False,
    json: arguments.AsJson = False,
    **columns: Any,
) -> None:
    """Write a model for other runtimes, after comparing what it computes with the original.

    Parameters
    ----------
    format:
        onnx: model.onnx with the tokenizer.
    int8:
        quantise weights per output channel, and activations at run time.
    data:
        labelled rows, to compare the task's metrics on.
    """
    from filbert import api

    facts = api.export(
        model,
        out=out,
        format=format,
        int8=int8,
        pooling=pooling,
        data=data,
        max_loss=max_loss,
        overwrite=overwrite,
        **columns,
    )
    print_json(facts) if json else print("\n".join(_lines(out, facts)))


def _lines(out: Path, facts: dict[str, Any]) -> list[str]:
    size = sum(path.stat().st_size for path in out.glob("model.onnx*")) / 1e6
    lines = [
        f"{out}: {facts['precision']}, opset {facts['opset']}, {size:,.1f} MB: "
        f"{', '.join(facts['inputs'])} to {', '.join(facts['outputs'])}.",
        f"Against the original: largest difference {facts['largest_difference']:.1e} among "
        f"outputs up to {facts['largest_output']:.2g}, cosine {facts['cosine']:.6f}.",
    ]
    compared = facts.get("data")
    if compared:
        lines.append(f"On {compared['file']}:")
        lines += metric_lines(compared["float32"], compared["exported"])
    return lines


@arguments.flags_of(ColumnNames)
def shrink(
    model: arguments.ModelName,
    /,
    *,
    out: arguments.OutFolder,
    keep_layers: str | None = None,
    vocabulary_from: Annotated[tuple[str, ...], arguments.shown_as("FILE...")] = (),
    overwrite: arguments.Overwrite = False,
    json: arguments.AsJson = False,
    **columns: Any,
) -> None:
    """Make a model smaller without training, as a start for finetune or distill.

    Parameters
    ----------
    keep_layers:
        layers to keep: 3 for the first three, or their numbers from 0 such as 0,2,5 or 0-2,5.
    vocabulary_from:
        text files, JSONL, CSV or Parquet: vocabulary entries without an occurrence are removed.
    """
    from filbert import api

    facts = api.shrink(
        model,
        out=out,
        keep_layers=keep_layers,
        vocabulary_from=vocabulary_from,
        overwrite=overwrite,
        **columns,
    )
    print_json(facts) if json else _print_steps(out, facts)


def _print_steps(out: Path, facts: dict[str, Any]) -> None:
    rows = []
    for before, step in zip([None, *facts["steps"]], facts["steps"], strict=False):
        saved = "" if before is None else f"{before['parameters'] - step['parameters']:,}"
        rows.append((step["name"], f"{step['parameters']:,}", saved, f"{step['bytes'] / 1e6:,.1f}"))
    print_table(("", "parameters", "saved", "MB"), rows, texts=(0,))
    for step in facts["steps"]:
        if "corpus_tokens" in step:
            print(
                f"The corpus has {step['corpus_tokens']:,} tokens, before "
                f"{step['corpus_tokens_before']:,}; {step['texts_cut_otherwise']:,} of its texts "
                "have other tokens."
            )
    for note in facts["notes"]:
        print(f"note: {note}")
    print(f"model: {out}")


def push(
    model: str,
    repo: str,
    /,
    *,
    private: bool = False,
    dry_run: bool = False,
) -> None:
    """Upload a model folder to the Hugging Face Hub; its address is the last line on stdout.

    Parameters
    ----------
    model:
        a model folder, such as runs/toxic/model.
    repo:
        owner/name on the Hub; created if missing.
    private:
        create a private repository.
    dry_run:
        print the files without uploading them.
    """
    from filbert.checkpoints import upload

    folder = Path(model).expanduser()
    if dry_run:
        upload.check_repo(repo)
        _print_files(upload.files_to_push(folder))
        print(f"dry run: nothing was sent to {repo}")
        return
    print(upload.push(folder, repo, private=private, announce=_print_files))


def _print_files(files: dict[str, int]) -> None:
    for name, size in files.items():
        print(f"{size:>15,}  {name}")
    print(f"{sum(files.values()):>15,}  bytes in {len(files)} files", flush=True)
