"""The report of every task that is no classification."""

from __future__ import annotations

import json
import re

import pytest
from tests.report import folders
from tests.report.folders import TASKS

from filbert.report import plots
from filbert.report.folder import RunFolder
from filbert.report.predictions import (
    confusion_by_word,
    kinds_of_errors,
    mistakes,
    positions,
    question_scores,
)
from filbert.report.run import headline, overflow, title_of, write_run_report
from filbert.report.worst_errors import excerpt

SECTIONS = {
    "regression": ("scores", ["scores"]),
    "tagging": ("entities", ["confusion"]),
    "span_qa": ("answers", []),
    "multiple_choice": ("choices", ["confusion", "reliability"]),
    "cosine": ("similarity", ["cosines"]),
    "contrastive": ("similarity", []),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`runs[task]`: the folder of a run, its page, and its page with texts (not drawn)."""
    made = {}
    place = tmp_path_factory.mktemp("tasks")
    for task in TASKS:
        folder = place / task
        folders.write_task_run(folder, task, num_rows=100)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "write_png", lambda _, path: path.write_bytes(b""))
            with_texts = write_run_report(folder).read_text(encoding="utf-8")
        without = write_run_report(folder, hide_texts=True).read_text(encoding="utf-8")
        made[task] = folder, without, with_texts
    return made


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_own_section_and_plots_without_a_text_of_the_data(runs, task):
    folder, page, _ = runs[task]
    section, plots = SECTIONS[task]
    assert f'<section id="{section}">' in page and 'id="worst-errors"' in page
    assert ("rows are not exactly right" in page) is (task != "regression")
    for name in [*plots, "loss", "dev_metric", "grad_norm"]:
        assert (folder / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.count("<noscript") == len(list((folder / "plots").iterdir()))
    page = page[: page.rindex("<script>")]
    assert not any(word in page for word in ("zebra", "river", "Anna", "x x x"))


# Where the row number is among the cells, and how many texts a row has.
@pytest.mark.parametrize(
    ("task", "at", "most"),
    [("regression", 0, 2), ("contrastive", 0, 2), ("cosine", 0, 2), ("span_qa", 0, 4),
     ("tagging", None, 3), ("multiple_choice", 0, 3)],
)  # fmt: skip
def test_the_worst_errors_show_theirs_escaped(runs, task, at, most):
    page = runs[task][2]
    assert "zebra&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    lines = page[page.index('id="worst-errors"') :].split("</tr>")
    pairs = [
        (one, two) for one, two in zip(lines, lines[1:], strict=False) if 'class="below"' in two
    ]
    assert 10 < len(pairs) <= 25
    for above, below in pairs:
        assert 1 <= below.count("<p dir=") <= most
        if at is not None:
            assert f"row {cells_in(above)[at]} " in below


def cells_in(html):
    return re.findall(r"<td[^>]*>([^<]*)</td>", html)


@pytest.mark.parametrize("task", ["regression", "span_qa"])
def test_texts_of_a_changed_file_are_not_shown_and_the_page_says_so(tmp_path, undrawn, task):
    folders.write_task_run(tmp_path / task, task)
    data = tmp_path / f"{task}.jsonl"
    data.write_text(data.read_text() + "\n")
    page = write_run_report(tmp_path / task).read_text(encoding="utf-8")
    assert "has changed since the run" in page and "zebra" not in page


def test_texts_that_a_report_showed_are_kept_in_the_run_folder(tmp_path, undrawn):
    folders.write_task_run(tmp_path / "regression", "regression")
    shown = write_run_report(tmp_path / "regression").read_bytes()
    (tmp_path / "regression.jsonl").unlink()
    assert write_run_report(tmp_path / "regression").read_bytes() == shown and b"zebra" in shown


def test_a_long_text_is_cut_around_the_place_that_matters():
    text = "a" * 500 + "HERE" + "b" * 500
    shown = excerpt(text, 500)
    assert "HERE" in shown and shown[0] == shown[-1] == "…" and len(shown) == 302
    assert excerpt(text) == "a" * 300 + "…"
    assert excerpt(text, 1004) == "…" + "b" * 300
    assert excerpt("short", 3) == "short"


def test_less_is_better_for_errors(runs):
    run = json.loads((runs["regression"][0] / "run.json").read_text())
    mse = run["metrics"]["dev"]["mse"]
    rivals = [{"name": name, "metrics": {"mse": mse + d}} for name, d in (("a", 1.0), ("b", 2.0))]
    run |= {"baselines": rivals}
    run["metrics"]["dev"] |= {"spearman": None, "pearson": None}
    wanted = f"MSE {mse:.3f} (less is better) on 100 dev rows: -1.000 from a ({mse + 1:.3f})."
    assert headline(run).endswith(wanted)


def test_kinds_of_entity_errors_are_counted_by_hand(tmp_path):
    (tmp_path / "run.json").write_text('{"problem": "tagging"}')
    folder = RunFolder(tmp_path)
    gold = ["B-a", "I-a", "O", "B-a", "O", "B-b", "I-b", "O", "B-a", "I-a", "O", "B-a"]
    tags = ["B-a", "I-a", "O", "B-b", "O", "B-b", "O", "O", "B-b", "O", "B-c", "O"]
    folder.rows = [{"gold": gold, "tags": tags}]
    counts = dict(kinds_of_errors(folder))
    expected = {"right": 1, "type": 1, "borders": 1, "both": 1, "missed": 1, "invented": 1}
    assert counts == expected
    table = confusion_by_word(folder, ["a", "b"])
    assert table.tolist() == [[2, 2, 2], [0, 1, 1], [0, 0, 4]]
    missed, invented = mistakes(folder.rows[0])
    assert missed[0] == ("a", 3, 4) and invented[0] == ("b", 3, 4) and len(missed) == 4


def test_questions_are_scored_as_the_metrics_do(runs):
    folder = RunFolder(runs["span_qa"][0])
    exact, f1 = question_scores(folder.rows).mean(0) * 100
    metrics = folder.run["metrics"]["dev"]
    # 1e-9: other order of the same sums.
    assert (exact, f1) == pytest.approx((metrics["exact_match"], metrics["f1"]), abs=1e-9)


def test_places_count_the_right_down_and_the_chosen_across(runs):
    folder = RunFolder(runs["multiple_choice"][0])
    counts = positions(folder)
    assert counts.shape == (4, 4) and counts.sum() == len(folder.rows)
    assert counts.trace() / counts.sum() == folder.run["metrics"]["dev"]["accuracy"]
    assert counts[2].sum() == sum(row["gold"] == 2 for row in folder.rows)


def test_the_page_says_what_became_of_long_texts(tmp_path):
    run = {"problem": "tagging", "options": {"on_overflow": "truncate"}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    sentence = overflow(RunFolder(tmp_path), 64)
    assert sentence == "Texts beyond 64 tokens were read whole, in overlapping windows."


def test_several_seeds_get_a_section_with_all_values_and_the_failed_ones(tmp_path, undrawn):
    folder = tmp_path / "five"
    run = folders.write_task_run(folder, "regression")
    values = {"spearman": [0.71, 0.83, 0.79], "mse": [0.4, 0.35, 0.5]}
    (folder / "run.json").write_text(json.dumps(folders.with_seeds(run, values)))
    page = write_run_report(folder).read_text(encoding="utf-8")
    for number in ("0.7100", "0.8300", "0.7900", "0.7767", "0.0611", "0.4167"):
        assert f">{number}<" in page
    assert "seed 2, kept" in page
    assert "Spearman is 0.777 ± 0.061" in page
    assert "The gradient is not finite zebra&lt;script&gt;" in page and "<script>alert" not in page
    assert title_of(RunFolder(folder)) == "five"
