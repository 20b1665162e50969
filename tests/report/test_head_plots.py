from __future__ import annotations

import numpy as np
import pytest

from filbert.inspection.agreement import arranged
from filbert.report import canvas, head_plots

PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Fewer pixels are drawn sooner."""
    monkeypatch.setattr(canvas, "PIXELS_PER_INCH", 30)


def saved(figure, path):
    canvas.save(figure, path)
    assert path.read_bytes().startswith(PNG)
    return path.read_bytes()


def test_a_sheet_has_one_grid_for_every_number(tmp_path):
    values = np.random.default_rng(0).random((2, 4))
    values[-1, -1] = np.nan
    panels = [
        ("[CLS]", "share to the first special token", values, "share"),
        ("entropy", "in nats", 3 * values, "size"),
        ("lost", "of accuracy", values + 0.5, "change"),
        ("nothing", "all are zero", values * 0, "change"),
        ("x$y$", "a name that is no formula", values, "share"),
    ]
    figure = head_plots.number_grids(panels)
    grids = [axes for axes in figure.axes if axes.images and axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in grids] == [panel[0] for panel in panels]
    # A share is drawn from 0 to 1, a loss around zero, and in red also where no head gains.
    limits = [axes.images[0].get_clim() for axes in grids]
    assert limits[0] == (0, 1)
    assert limits[2][0] == -limits[2][1]
    picture = grids[2].images[0]
    red, _, blue, _ = picture.to_rgba(np.nanmax(values + 0.5))
    assert red > 2 * blue
    saved(figure, tmp_path / "a.png")


def test_equal_numbers_give_equal_bytes_and_one_head_a_layer_is_enough(tmp_path):
    panels = [("entropy", "in nats", np.arange(12.0)[:, None], "size")]
    first, second = (
        saved(head_plots.number_grids(panels), tmp_path / f"{number}.png") for number in range(2)
    )
    assert first == second


@pytest.mark.parametrize("count", [1, 30])
def test_the_map_of_heads_is_drawn_for_any_number_of_them(tmp_path, count):
    heads = tuple((number // 6, number % 6) for number in range(count))
    points = np.random.default_rng(0).normal(size=(count, 3))
    divergence = np.minimum(((points[:, None] - points) ** 2).sum(-1) / 20, np.log(2))
    figure = head_plots.agreement_map(arranged(heads, divergence, min(3, count)))
    plane = figure.axes[0]
    assert sum(len(part.get_offsets()) for part in plane.collections) == count
    saved(figure, tmp_path / "a.png")


def test_a_line_is_drawn_for_every_relation(tmp_path):
    rows = [
        {
            "relation": name,
            "count": 10,
            "head": {"name": "1-2", "accuracy": 0.5, "held_out": held_out},
            "offset": {"name": "+1", "accuracy": 0.4, "held_out": None},
        }
        for name, held_out in (("all", 0.4), ("nsubj:pass", None))
    ]
    figure = head_plots.relation_bars(rows)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["all (10)  1-2", "nsubj:pass (10)  1-2"]
    saved(figure, tmp_path / "a.png")
