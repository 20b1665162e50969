"""The YAML at the head of a model card, in the form that the Hugging Face Hub accepts.

Source: huggingface.co/docs/hub/model-cards and the specification `modelcard.md` in hub-docs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from filbert.train.options import names_of

# Names of datasets: a file's name passes where the Hub would take it for an identifier.
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Written without quotes; words that YAML 1.1 takes for something else are not (`no` is Norwegian).
_PLAIN = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
_NOT_TEXT = {"y", "n", "yes", "no", "true", "false", "on", "off", "null"}
# Digests are cut to this many digits where people read them.
SHORT = 12


def front_matter(story: Mapping[str, Any], task: str, pipeline: str | None) -> str:
    """The lines between `---` and `---`.

    Args:
        story: the content of filbert.json.
        task: what it learnt, for people and as a tag.
        pipeline: the Hub's name for that, if it has one.
    """
    base = story.get("base_model") or {}
    options = story["options"]
    languages = options.get("language")
    splits = {name: facts for name, facts in story["data"].items() if slug(facts["path"])}
    # Where a class begins is no measure of how good the model is.
    measured = {
        split: {name: value for name, value in found.items() if "thresh" not in name}
        for split, found in figures(story["metrics"]).items()
    }
    content: dict[str, Any] = {
        "license": options.get("license") or base.get("license"),
        "language": list(names_of(languages)) if languages else base.get("language"),
        "library_name": "filbert",
        "pipeline_tag": pipeline,
        "base_model": base.get("hub_id"),
        "base_model_relation": "finetune" if base.get("hub_id") else None,
        "datasets": list(dict.fromkeys(slug(facts["path"]) for facts in splits.values())),
        "metrics": list(dict.fromkeys(name for found in measured.values() for name in found)),
        "tags": list(dict.fromkeys(["filbert", task.replace(" ", "-"), story["model"]["family"]])),
    }
    results = [
        {
            "task": {"type": pipeline or "feature-extraction", "name": task},
            "dataset": {
                "name": f"{splits[split]['path']} ({split})",
                "type": slug(splits[split]["path"]),
                "split": split,
                "revision": splits[split]["sha256"][:SHORT],
            },
            "metrics": [
                {"type": name, "name": name.replace("_", " "), "value": value}
                for name, value in found.items()
            ],
        }
        for split, found in measured.items()
        if found and split in splits
    ]
    if results:
        content["model-index"] = [{"name": story["name"], "results": results}]
    kept = {key: value for key, value in content.items() if value not in (None, [])}
    return "\n".join(["---", *yaml_lines(kept), "---"])


def figures(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The finite numbers among the metrics, by split."""
    return {
        split: {
            name: value
            for name, value in found.items()
            if isinstance(value, float) and math.isfinite(value)
        }
        for split, found in metrics.items()
    }


def slug(path: str) -> str | None:
    """A file's name, where the Hub takes it for the name of a data set; else None."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name if _DATASET.fullmatch(name) else None


def yaml_lines(content: Mapping[str, Any]) -> list[str]:
    """A mapping of mappings, lists, texts, numbers and truth values as YAML, in block style."""
    lines: list[str] = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            lines += [f"{_scalar(key)}:", *(f"  {line}" for line in yaml_lines(value))]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            lines.append(f"{_scalar(key)}:")
            for item in value:
                block = yaml_lines(item) if isinstance(item, Mapping) else [_scalar(item)]
                lines += [f"{'  ' if i else '- '}{line}" for i, line in enumerate(block)]
        else:
            lines.append(f"{_scalar(key)}: {_scalar(value)}")
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        # YAML 1.1 reads a number without a point, such as 1e-06, as text.
        return f"{value:.6f}".rstrip("0") + ("0" if f"{value:.6f}".endswith("000000") else "")
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    # Half of a surrogate pair has no place in UTF-8.
    code = ord(character)
    return f"\\U{0xFFFD if 0xD800 <= code < 0xE000 else code:08X}"
