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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from filbert.errors import ConfigError, checked_keywords
from filbert.files import THEME, check_writable, write_atomically
from filbert.inference.predictor import Predictor
from filbert.inspect.attention import View, check_head, view_text

# More views do not fit next to each other.
MOST_VIEWS = 6
# Bytes of a page before base64, so that the whole page is below 10 MB.
BUDGET = 6_750_000
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
        layer, head: Where the page opens. A layer alone opens all its heads, a head alone opens the
            middle layer, and neither opens `most_focused_head`.
    """

    views: tuple[View, ...]
    layer: int | None = None
    head: int | None = None

    @cached_property
    def html(self) -> str:
        """The self-contained page.

        Its content security policy forbids every outside address, and every script except its own,
        which it names by hash.
        """
        views, layer, head = self.views, self.layer, self.head
        if layer is None and head is None:
            layer, head = most_focused_head(views[0])
        levels, has_vectors = plan_storage(views)
        blobs: dict[str, str] = {}
        about = {
            "levels": levels,
            "start": {
                "layer": views[0].maps.shape[0] // 2 if layer is None else layer,
                "heads": None if head is None else [head],
            },
            "views": [
                _view_facts(view, i, levels, blobs, has_vectors=has_vectors)
                for i, view in enumerate(views)
            ],
        }
        # Isolated in one function scope.
        parts = ((_ASSETS / name).read_text(encoding="utf-8") for name in _SCRIPTS)
        script = "(() => {\n" + "\n".join(parts) + "\n})();"
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        content = {
            "policy": Markup(
                "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
                f"script-src 'sha256-{digest}'"
            ),
            "title": f"{views[0].texts[0][:60]} · filbert inspect",
            # Neither "</script>" nor a comment may begin in the data.
            "about": Markup(json.dumps(about).replace("<", "\\u003c")),
            "blobs": blobs,
            "script": Markup(script),
        }
        return render("attention_page/page.html", **content)

    def save(self, path: str | Path) -> Path:
        """Write the page, or raise an InputError."""
        path = Path(path)
        check_writable(path)
        write_atomically(path, self.html)
        return path

    def _repr_html_(self) -> str:
        """Return the page in a frame, for Jupyter."""
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
    """Show the attention of a model over a text; Jupyter displays it, and `save` writes the page.

    Args:
        model: A name as for `filbert.load`, a loaded model, or a list of them.
        text: A text, a pair of texts as a tuple, or a list of texts and pairs.
        text_b: The second text of a pair.
        layer: Layer that the page opens, from 0.
        head: Head that the page opens, from 0. If both are None, see `most_focused_head`.
        max_length: Truncate texts to this many tokens. If None, long texts are refused.
        device: "cpu", "cuda" ...; the first GPU if there is one. Loaded models keep theirs.

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
    views = []
    for one, name in zip(models, _names(models), strict=True):
        predictor = one if isinstance(one, Predictor) else Predictor.load(one, device=device)
        for item in items:
            views.append(view_text(predictor, item, name=name, max_length=max_length))
            check_head(views[-1], layer, head)
    return Inspection(tuple(views), layer, head)


def _names(models: Sequence[Any]) -> list[str]:
    """Name models by the last parts of their paths, as many as distinguish them."""
    paths = [
        (one.checkpoint.source or Path("model"))
        if isinstance(one, Predictor)
        else Path(str(one)).resolve()
        for one in models
    ]
    for count in (1, 2, 3):
        names = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} {number}" for number, path in enumerate(paths, 1)]


# HTML


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


def _view_facts(
    view: View, number: int, levels: int, blobs: dict[str, str], *, has_vectors: bool
) -> dict[str, Any]:
    """Describe a view for the page's scripts, and add its numbers to `blobs`."""
    for layer, text in enumerate(pack_maps(view.maps, levels)):
        blobs[f"maps-{number}-{layer}"] = text
    scales = {}
    pairs = np.ndindex(view.maps.shape[:2]) if has_vectors else ()
    for layer, head in pairs:
        text, scales[f"{layer}.{head}"] = pack_vectors(view.queries_keys[layer, :, head])
        blobs[f"vectors-{number}-{layer}-{head}"] = text
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


def render(template: str, **values: Any) -> str:
    """Render a template of this folder; values are escaped unless they are Markup."""
    loader = FileSystemLoader([Path(__file__).parent, THEME])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    html = environment.get_template(template).render(**values)
    # Unpaired surrogates cannot be written.
    return html.encode("utf-8", "replace").decode("utf-8")


# Data: integers of as many levels as the page size allows, compressed column by column


def plan_storage(views: Sequence[View]) -> tuple[int, bool]:
    """Return the levels of a weight from 0 to 1, and whether queries and keys are stored too.

    Weights of trained models compress to a third or less, queries and keys hardly.
    """
    weights = sum(view.maps.size for view in views)
    vectors = sum(view.queries_keys.size for view in views)
    for levels, size in ((65535, 2 * weights), (255, weights / 3)):
        if size + vectors <= BUDGET:
            return levels, True
    return (255 if weights / 3 <= BUDGET else 127), False


def pack_maps(maps: np.ndarray, levels: int) -> list[str]:
    """Quantise weights, (L, A, n, n), by layer; compress (raw deflate) and encode them in base64.

    The bytes are the low bytes of all heads, each map column by column, followed by the high bytes
    if there are more than 255 `levels` from 0 to 1.
    """
    texts = []
    for weights in maps:
        # Columns compress better than rows: most tokens attend to the same few columns.
        steps = np.rint(weights * levels).astype(np.uint16).swapaxes(-1, -2)
        planes = [steps & 255, steps >> 8] if levels > 255 else [steps]
        texts.append(_encode(b"".join(plane.astype(np.uint8).tobytes() for plane in planes)))
    return texts


def pack_vectors(queries_keys: np.ndarray) -> tuple[str, tuple[float, float]]:
    """Quantise the queries and keys of one head, (2, n, D), to int8.

    Also return the value of one step of the queries and of the keys.
    """
    largest = np.maximum(np.abs(queries_keys).max((1, 2)), 1e-9)
    steps = np.rint(queries_keys * (127 / largest)[:, None, None]).astype(np.int8)
    query, key = (float(scale) / 127 for scale in largest)
    return _encode(steps.tobytes()), (query, key)


def _encode(raw: bytes) -> str:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return base64.b64encode(compressor.compress(raw) + compressor.flush()).decode("ascii")
