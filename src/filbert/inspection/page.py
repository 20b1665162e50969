"""The attention page: one HTML file that needs nothing else, not even a network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from filbert.inspection.page_data import Stored, packed_maps, packed_vectors, plan
from filbert.inspection.view import View

_ASSETS = Path(__file__).with_name("attention_page")
# In the order in which they build on each other.
_SCRIPTS = (
    "data.js", "pens.js", "state.js", "lines.js", "matrix.js", "grid.js", "layers.js",
    "neurons.js", "stage.js", "controls.js", "page.js",
)  # fmt: skip


def page_of(
    views: Sequence[View],
    neurons: Sequence[tuple[int, int]] = (),
    *,
    layer: int | None = None,
    head: int | None = None,
) -> str:
    """The page.

    Its policy forbids every outside address, and every script but its own, which it names by hash.

    Args:
        views: side by side, in this order.
        neurons: (layer, head) whose queries and keys the page holds even where those of all heads
            would make it too large.
        layer: where the page opens.
        head: which it shows at first. Neither: `most_telling`; a layer alone: all its heads; a head
            alone: in the middle layer.
    """
    if layer is None and head is None:
        layer, head = most_telling(views[0])
    stored = plan(views, neurons)
    blobs: dict[str, str] = {}
    about = {
        "levels": stored.levels,
        "start": {
            "layer": views[0].maps.shape[0] // 2 if layer is None else layer,
            "heads": None if head is None else [head],
        },
        "views": [_facts(view, i, stored, blobs) for i, view in enumerate(views)],
    }
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    data = "\n".join(
        f'<script type="text/plain" id="{name}">{blob}</script>' for name, blob in blobs.items()
    )
    content = {
        "policy": policy,
        "title": html.escape(f"{views[0].texts[0][:60]} · filbert inspect"),
        "style": _asset("page.css"),
        # "</script>" must not stand in it; nor must a comment begin.
        "about": json.dumps(about).replace("<", "\\u003c"),
        "data": data,
        "script": script,
    }
    page = _asset("page.html")
    parts = page.split("{{")
    return parts[0] + "".join(
        content[name] + rest for name, _, rest in (part.partition("}}") for part in parts[1:])
    )


def most_telling(view: View) -> tuple[int, int]:
    """The layer and head that is surest of itself while it looks at other words.

    Looks at special tokens, at punctuation, at the token itself and at its neighbours do not count:
    heads that do nothing else are many, and there is little to see in them.
    """
    place = np.arange(len(view.tokens))
    is_word = np.array([any(map(str.isalnum, view.words[unit])) for unit in view.units])
    rows = (view.sequence >= 0) & is_word
    counts = rows[None, :] & (np.abs(place[:, None] - place) > 1)
    if not counts[rows].any():
        return 0, 0
    # Layer by layer: all at once would take as much room as the maps themselves.
    strength = np.stack([(maps * counts).max(-1)[:, rows].mean(-1) for maps in view.maps])
    layer, head = divmod(int(strength.argmax()), view.maps.shape[1])
    return layer, head


def _facts(view: View, number: int, stored: Stored, blobs: dict[str, str]) -> dict[str, Any]:
    """What the page knows of a view; its numbers go into `blobs`."""
    for layer, text in enumerate(packed_maps(view.maps, stored.levels)):
        blobs[f"maps-{number}-{layer}"] = text
    scales = {}
    for layer, head in np.argwhere(stored.has_vectors[number]).tolist():
        vectors = packed_vectors(view.queries_keys[layer, :, head])
        blobs[f"vectors-{number}-{layer}-{head}"] = vectors.text
        scales[f"{layer}.{head}"] = vectors.scales
    num_layers, num_heads, length, _ = view.maps.shape
    return {
        "model": view.model,
        "texts": view.texts,
        "tokens": view.tokens,
        "sequence": view.sequence.tolist(),
        "units": view.units.tolist(),
        "words": view.words,
        "numLayers": num_layers,
        "numHeads": num_heads,
        # Those of every layer that were not pruned; they come first.
        "heads": (~view.is_lost).sum(1).tolist(),
        "headSize": view.queries_keys.shape[-1],
        "numTokens": view.num_tokens,
        "truncated": view.truncated,
        "length": length,
        # How sure of itself a head is: its largest weight, averaged over the tokens.
        "sureness": np.round(view.maps.max(-1).mean(-1), 3).tolist(),
        "scales": scales,
    }


@cache
def _script() -> str:
    """All scripts as one, in a scope of its own."""
    return "(() => {\n" + "\n".join(map(_asset, _SCRIPTS)) + "\n})();"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
