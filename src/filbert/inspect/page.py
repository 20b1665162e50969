"""The attention page: one HTML file without outside requests, for a browser or Jupyter.

L layers, A heads, D head size, n tokens.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from filbert.errors import ConfigError, InputError, checked_keywords
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import View, check_head, view_text

# More views do not fit next to each other.
MOST_VIEWS = 6
# Levels that quantise weights from 0 to 1, the finest first.
LEVELS = (65535, 4095, 1023, 511, 383, 255, 127)
# Characters of base64 data in a page, so that the whole page is below 10 MB.
BUDGET = 9_000_000
# Coarser levels are used only if queries and keys are left out.
LEAST_LEVELS = 255
# Weights of one layer from which the compressed size is estimated.
SAMPLE = 100_000
_ASSETS = Path(__file__).with_name("attention_page")
# Each script uses those before it.
_SCRIPTS = (
    "data.js", "pens.js", "state.js", "lines.js", "matrix.js", "grid.js", "layers.js",
    "neurons.js", "stage.js", "controls.js", "page.js",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Inspection:
    """Attention of one or several models over one or several texts; `inspect` makes it.

    Attributes:
        views: All texts of the first model, then of the next.
        layer, head: Where the page opens.
    """

    views: tuple[View, ...]
    layer: int | None = None
    head: int | None = None

    @cached_property
    def html(self) -> str:
        """The self-contained page."""
        return page_html(self.views, layer=self.layer, head=self.head)

    def save(self, path: str | Path) -> Path:
        """Write the page.

        Raises:
            InputError: The file cannot be written.
        """
        path = Path(path)
        try:
            path.write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}.") from error
        return path

    def _repr_html_(self) -> str:
        """The page in a frame, for Jupyter."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="Attention" '
            'style="width: 100%; height: 760px; border: 0; border-radius: 12px"></iframe>'
        )

    def __repr__(self) -> str:
        names = ", ".join(f"{view.model}: {len(view.tokens)} tokens" for view in self.views)
        return f"Inspection({names})"


@checked_keywords
def inspect(
    model: str | Path | Predictor | Sequence[str | Path | Predictor],
    text: str | tuple[str, str] | Sequence[str | tuple[str, str]],
    text_b: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    max_length: int | None = None,
    device: str | None = None,
) -> Inspection:
    """Show the attention of a model over a text.

    Args:
        model: A name as for `filbert.load`, a loaded model, or a list of them.
        text: A text, a pair of texts as a tuple, or a list of texts and pairs.
        text_b: The second text of a pair.
        layer: Layer that the page opens, from 0.
        head: Head that the page opens, from 0. If both are None, see `most_focused_head`.
        max_length: Truncate texts to this many tokens. If None, long texts are refused.
        device: "cpu", "cuda" ...; the first GPU if there is one. Loaded models keep theirs.

    Returns:
        An object that Jupyter displays; `save` writes the page.

    Raises:
        ConfigError: The model has no attention or no such layer or head, or there are too many
            models and texts.
        InputError: A text is empty or too long, or the model does not exist.
    """
    models: list[Any] = [*model] if isinstance(model, list | tuple) else [model]
    items: list[Any] = [*text] if isinstance(text, list) else [text]
    if text_b is not None:
        if len(items) > 1 or not isinstance(items[0], str):
            raise ConfigError("text_b is the second text of one pair; write pairs as tuples.")
        items = [(items[0], text_b)]
    if not models or not items:
        raise ConfigError("Give at least one model and one text.")
    if len(models) * len(items) > MOST_VIEWS:
        raise ConfigError(
            f"{len(models)} models and {len(items)} texts make {len(models) * len(items)} views; "
            f"at most {MOST_VIEWS} can be compared."
        )
    if device is not None and any(isinstance(one, Predictor) for one in models):
        raise ConfigError(
            "A loaded model stays on its device. Leave device out, or give the model's name."
        )
    views = []
    for one, name in zip(models, _names(models), strict=True):
        predictor = one if isinstance(one, Predictor) else Predictor.load(one, device=device)
        for item in items:
            views.append(view_text(predictor, item, name=name, max_length=max_length))
            check_head(views[-1], layer, head)
    return Inspection(tuple(views), layer, head)


def _names(models: Sequence[Any]) -> list[str]:
    """Name models by the last parts of their paths, as many as distinguish them."""
    parts = [_path(one).parts for one in models]
    for count in range(1, max(map(len, parts)) + 1):
        names = [str(Path(*some[-count:])) for some in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{some[-1]} {number}" for number, some in enumerate(parts, 1)]


def _path(model: Any) -> Path:
    if isinstance(model, Predictor):
        source = None if model.checkpoint is None else model.checkpoint.source
        return source or Path("model")
    path = Path(str(model))
    return path if path.name else path.resolve()


# HTML


def page_html(
    views: Sequence[View],
    *,
    layer: int | None = None,
    head: int | None = None,
) -> str:
    """Write the page as HTML.

    Its content security policy forbids every outside address, and every script except its own,
    which it names by hash.

    Args:
        views: Shown next to each other in this order.
        layer: Layer that the page opens.
        head: Head that the page opens. A layer alone opens all its heads, a head alone opens the
            middle layer, and neither opens `most_focused_head`.
    """
    if layer is None and head is None:
        layer, head = most_focused_head(views[0])
    storage = plan_storage(views)
    blobs: dict[str, str] = {}
    about = {
        "levels": storage.levels,
        "start": {
            "layer": views[0].maps.shape[0] // 2 if layer is None else layer,
            "heads": None if head is None else [head],
        },
        "views": [_view_facts(view, i, storage, blobs) for i, view in enumerate(views)],
    }
    # Isolated in one function scope.
    script = "(() => {\n" + "\n".join(map(_asset, _SCRIPTS)) + "\n})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    content = {
        "policy": (
            "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'"
        ),
        "title": html.escape(f"{views[0].texts[0][:60]} · filbert inspect"),
        "style": _asset("page.css"),
        # Neither "</script>" nor a comment may begin in the data.
        "about": json.dumps(about).replace("<", "\\u003c"),
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{blob}</script>' for name, blob in blobs.items()
        ),
        "script": script,
    }
    first, *parts = _asset("page.html").split("{{")
    pieces = (part.partition("}}") for part in parts)
    return first + "".join(content[name] + rest for name, _, rest in pieces)


def most_focused_head(view: View) -> tuple[int, int]:
    """Return the layer and head with the largest mean weight on other words.

    Attention to special tokens, to punctuation, to the token itself and to adjacent tokens does not
    count: many heads do nothing else.
    """
    place = np.arange(len(view.tokens))
    is_word = np.array([any(map(str.isalnum, view.words[unit])) for unit in view.units])
    rows = (view.sequence >= 0) & is_word
    counted = rows[None, :] & (np.abs(place[:, None] - place) > 1)
    if not counted[rows].any():
        return 0, 0
    # Layer by layer: all layers at once would double the memory of the maps.
    strength = np.stack([(maps * counted).max(-1)[:, rows].mean(-1) for maps in view.maps])
    layer, head = divmod(int(strength.argmax()), view.maps.shape[1])
    return layer, head


def _view_facts(view: View, number: int, storage: Storage, blobs: dict[str, str]) -> dict[str, Any]:
    """Describe a view for the page's scripts, and add its numbers to `blobs`."""
    for layer, text in enumerate(pack_maps(view.maps, storage.levels)):
        blobs[f"maps-{number}-{layer}"] = text
    scales = {}
    pairs = np.ndindex(view.maps.shape[:2]) if storage.has_vectors else ()
    for layer, head in pairs:
        vectors = pack_vectors(view.queries_keys[layer, :, head])
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
        # Heads of each layer that were not pruned; they come first.
        "heads": (~view.is_pruned).sum(1).tolist(),
        "headSize": view.queries_keys.shape[-1],
        "numTokens": view.num_tokens,
        "truncated": view.truncated,
        "length": length,
        # The largest weight of a row, averaged over the rows.
        "sureness": np.round(view.maps.max(-1).mean(-1), 3).tolist(),
        "scales": scales,
    }


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


# Data: integers of as many levels as the page size allows, compressed column by column


class Storage(NamedTuple):
    """How a page stores its numbers.

    Attributes:
        levels: Levels of a weight from 0 to 1.
        has_vectors: Whether it holds queries and keys.
    """

    levels: int
    has_vectors: bool


def plan_storage(views: Sequence[View]) -> Storage:
    """Choose the finest levels that fit, with queries and keys if they fit, too."""
    limit = BUDGET * 3 / 4
    sizes = dict[int, float]()
    # Queries and keys hardly compress.
    vectors = sum(view.queries_keys.size for view in views)
    for size, least in ((vectors, LEAST_LEVELS), (0, LEVELS[-1])):
        for levels in LEVELS:
            if levels not in sizes:
                sizes[levels] = sum(_maps_size(view.maps, levels) for view in views)
            if levels >= least and sizes[levels] + size <= limit:
                return Storage(levels, has_vectors=size > 0)
    return Storage(LEVELS[-1], has_vectors=False)


def _maps_size(maps: np.ndarray, levels: int) -> float:
    """Estimate the bytes that `pack_maps` makes, from some columns of every head."""
    total = 0.0
    for layer_maps in maps:
        num_heads, length, _ = layer_maps.shape
        width = min(length, max(1, SAMPLE // (num_heads * length)))
        starts = np.linspace(0, length - width, num_heads).astype(int)
        pairs = zip(layer_maps, starts, strict=True)
        sample = np.stack([weights[:, start : start + width] for weights, start in pairs])
        size = len(_compress(_quantise(sample, levels)))
        total += size * layer_maps.size / sample.size
    return total


def pack_maps(maps: np.ndarray, levels: int) -> list[str]:
    """Quantise each layer's weights, compress them (raw deflate) and encode them in base64.

    The bytes are the low bytes of all heads, each map column by column, followed by the high bytes
    if there are more than 255 levels.

    Args:
        maps: float32 (L, A, n, n).
        levels: Levels from 0 to 1.
    """
    return [_encode(_quantise(layer_maps, levels)) for layer_maps in maps]


def _quantise(weights: np.ndarray, levels: int) -> bytes:
    # Columns compress better than rows: most tokens attend to the same few columns.
    steps = np.rint(weights * levels).astype(np.uint16).swapaxes(-1, -2)
    planes = [steps & 255, steps >> 8] if levels > 255 else [steps]
    return b"".join(plane.astype(np.uint8).tobytes() for plane in planes)


class HeadVectors(NamedTuple):
    """Queries and keys of a head in bytes.

    Attributes:
        text: int8 (2, n, D), compressed and in base64.
        scales: Value of one step of the queries and of the keys.
    """

    text: str
    scales: tuple[float, float]


def pack_vectors(queries_keys: np.ndarray) -> HeadVectors:
    """Quantise the queries and keys of one head, (2, n, D), to int8."""
    largest = np.maximum(np.abs(queries_keys).max((1, 2)), 1e-9)
    steps = np.rint(queries_keys * (127 / largest)[:, None, None]).astype(np.int8)
    query, key = (float(scale) / 127 for scale in largest)
    return HeadVectors(_encode(steps.tobytes()), (query, key))


def _encode(raw: bytes) -> str:
    return base64.b64encode(_compress(raw)).decode("ascii")


def _compress(raw: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(raw) + compressor.flush()
