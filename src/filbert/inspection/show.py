"""`filbert.inspect`: attention as a page that opens in a browser or shows itself in Jupyter."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, InputError
from filbert.inspection.page import page_of
from filbert.inspection.view import View, check_head, view_of
from filbert.predict import Predictor

# More do not fit side by side, nor into one page.
MOST_VIEWS = 6


@dataclass(frozen=True, eq=False)
class Inspection:
    """Attention of one or several models over one or several texts.

    Attributes:
        views: side by side: every text before the first model, then before the next.
        neurons: (layer, head) whose queries and keys a long page holds in any case.
        layer, head: where the page opens.
    """

    views: tuple[View, ...]
    neurons: tuple[tuple[int, int], ...] = ()
    layer: int | None = None
    head: int | None = None

    @cached_property
    def html(self) -> str:
        """The page, self-contained."""
        return page_of(self.views, self.neurons, layer=self.layer, head=self.head)

    def save(self, path: str | Path) -> Path:
        """Write the page.

        Raises:
            InputError: the place cannot be written to.
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


def inspect(
    model: str | Path | Predictor | Sequence[str | Path | Predictor],
    text: str | tuple[str, str] | Sequence[str | tuple[str, str]],
    text_b: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    max_length: int | None = None,
    neurons: Sequence[tuple[int, int]] = (),
    device: str | None = None,
) -> Inspection:
    """Look at the attention of a model over a text.

    Args:
        model: a name as of `filbert.load`, a loaded model, or a list of them.
        text: a text, a pair of texts as a tuple, or a list of texts and pairs.
        text_b: the second text of a pair.
        layer: where the page opens, counted from 0.
        head: which one it shows first. Neither: see `page.most_telling`.
        max_length: cut texts to this many tokens, also those of a loaded model; without it a text
            that is too long is refused.
        neurons: (layer, head), counted from 0, whose queries and keys the page holds even where
            those of all heads would make it larger than 10 MB.
        device: "cpu", "cuda" ...; the first GPU when there is one. Loaded models stay on theirs.

    Returns:
        An object that shows itself in Jupyter; `save` writes the page.

    Raises:
        ConfigError: a model without attention or without that layer or head, too many models and
            texts, or too much attention for one text.
        InputError: a text is empty or too long, or there is no such model.
    """
    models: list[Any] = [*model] if isinstance(model, list | tuple) else [model]
    items: list[Any] = [*text] if isinstance(text, list) else [text]
    if text_b is not None:
        if len(items) > 1 or not isinstance(items[0], str):
            raise ConfigError("text_b is the second text of one pair; write pairs as tuples.")
        items = [(items[0], text_b)]
    if not models or not items:
        raise ConfigError("There is nothing to look at: give at least one model and one text.")
    if len(models) * len(items) > MOST_VIEWS:
        raise ConfigError(
            f"{len(models)} models and {len(items)} texts make {len(models) * len(items)} views "
            f"side by side; at most {MOST_VIEWS} can be compared."
        )
    if device is not None and any(isinstance(one, Predictor) for one in models):
        raise ConfigError(
            "A loaded model stays on its device. Leave device out, or give the model's name."
        )
    views = []
    for one, name in zip(models, _names(models), strict=True):
        predictor = one if isinstance(one, Predictor) else Predictor.load(one, device=device)
        for item in items:
            views.append(view_of(predictor, item, name=name, max_length=max_length))
            check_head(views[-1], layer, head)
    _check_neurons(views, neurons)
    return Inspection(tuple(views), tuple((one, other) for one, other in neurons), layer, head)


def _names(models: Sequence[Any]) -> list[str]:
    """What models are called: the last part of each place, or as many as tell them apart."""
    parts = [_place(one).parts for one in models]
    for count in range(1, max(map(len, parts)) + 1):
        names = [str(Path(*some[-count:])) for some in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{some[-1]} {number}" for number, some in enumerate(parts, 1)]


def _place(model: Any) -> Path:
    """Where a model comes from; "model" where a loaded one does not know it."""
    if isinstance(model, Predictor):
        source = None if model.checkpoint is None else model.checkpoint.source
        return source or Path("model")
    place = Path(str(model))
    return place if place.name else place.resolve()


def _check_neurons(views: Sequence[View], neurons: Sequence[tuple[int, int]]) -> None:
    for layer, head in neurons:
        if not any(
            0 <= layer < view.maps.shape[0] and 0 <= head < view.maps.shape[1] for view in views
        ):
            raise ConfigError(f"There is no head {head} in layer {layer}; both count from 0.")
