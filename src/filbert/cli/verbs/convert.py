"""filbert convert."""

from __future__ import annotations

import sys
from typing import Any

from filbert.cli.arguments import AsJson, Columns, MaxLoss, OutFolder, Overwrite, columns_of
from filbert.cli.output import metric_lines, print_json


def convert(
    source: str,
    target: OutFolder,
    /,
    *,
    to: str,
    data: str | None = None,
    max_loss: MaxLoss = None,
    adapter: str | None = None,
    columns: Columns = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write a model and its tokenizer in another format; every tensor stays the same bit for bit.

    Parameters
    ----------
    source:
        folder, TensorFlow checkpoint (its folder, prefix or .index file), built-in name or Hub
        id.
    to:
        huggingface (config.json, model.safetensors), google (bert_config.json, bert_model.ckpt),
        or int8: as huggingface, with the layers that stay float32 recorded in filbert.json.
    data:
        with --to int8: labelled rows, or texts for a model without a task.
    adapter:
        with --to huggingface: a task of jina-embeddings-v3, such as retrieval.query. Its adapter is
        added to the weights, and its prompt goes before every text.
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
        **vars(columns_of(columns)),
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
