"""The pages of a run and of a comparison in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report import studies

from filbert.report.comparison import write_comparison_report
from filbert.report.run import write_run_report

expect = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture
def report(make_run, tmp_path, undrawn):
    """`report(kind)`: the page of a run of that problem, or of a comparison."""

    def write(kind: str) -> Path:
        if kind != "comparison":
            return write_run_report(make_run(kind)[0])
        studies.write_study(tmp_path, contestants=studies.CONTESTANTS[:3], seeds=1)
        return write_comparison_report(tmp_path)

    return write


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["binary", "comparison"])
def test_a_report_is_accessible_and_fits_a_phone(report, open_file, findings, kind, scheme):
    path = report(kind)
    assert findings(open_file(path, color_scheme=scheme)) == []
    assert path.stat().st_size < 2e6


def test_a_plot_tells_its_values_zooms_and_hides_a_line(report, open_file):
    page = open_file(report("binary"))
    figure = page.locator("figure").filter(has_text="Training loss")
    plot = figure.locator(".plot")
    plot.focus()
    page.keyboard.press("ArrowRight")
    expect(figure.locator(".tip")).to_contain_text("step 1\ntrain: 0.")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 62)
    page.mouse.up()
    expect(figure.get_by_role("button", name="Reset zoom")).to_be_visible()
    page.keyboard.press("Escape")
    expect(figure.get_by_role("button", name="Reset zoom")).to_be_hidden()
    lines = plot.locator("path").count()
    figure.get_by_role("button", name="dev", exact=True).click()
    expect(plot.locator("path")).to_have_count(lines - 1)


def test_a_table_sorts_and_filters(report, open_file):
    page = open_file(report("multiclass"))
    table = page.locator(".table").filter(
        has=page.get_by_role("columnheader", name="score of gold")
    )
    numbers = table.locator("tbody td:nth-child(5)")
    table.get_by_role("button", name="score of gold").click()
    shown = [float(text) for text in numbers.all_inner_texts()]
    assert shown == sorted(shown, reverse=True) and len(shown) == 25
    table.get_by_label("Filter rows").fill("surprise")
    expect(table.get_by_role("status")).to_contain_text(" of 25")
    visible = table.locator("tbody tr:visible")
    assert all("surprise" in text for text in visible.all_inner_texts())
