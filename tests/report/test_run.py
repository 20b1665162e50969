from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from filbert.errors import FormatError
from filbert.files import sha256_of
from filbert.report.folder import RunFolder
from filbert.report.predictions import confusion, per_label
from filbert.report.run import headline, write_run_report
from filbert.report.worst_errors import surprise

PROBLEMS = ["binary", "multiclass", "multilabel"]
HOSTILE = "<script>alert('&\")</script>"


@pytest.fixture
def read_page(page):
    """`read_page(folder)` writes a report and reads it."""
    return lambda folder: page(write_run_report(folder))


def numbers_in(metrics):
    for value in metrics.values():
        if isinstance(value, dict):
            yield from numbers_in(value)
        elif value is None or isinstance(value, (int, float)):
            yield "–" if value is None else f"{value:,}" if type(value) is int else f"{value:.4f}"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_report_has_every_metric_of_the_run_in_one_file(make_run, undrawn, problem, read_page):
    folder, run = make_run(problem)
    page = read_page(folder)
    shown = [*numbers_in(run["metrics"]["test"])]
    shown += [*numbers_in({k: v for k, v in run["metrics"]["dev"].items() if k != "per_label"})]
    shown += [*numbers_in(run["baselines"][0]["metrics"])][:4]
    assert len(shown) > 10
    assert [number for number in shown if number not in page.words] == []
    assert len(page.check_one_file()) >= 5


@pytest.mark.parametrize("problem", ["binary", "multiclass"])
def test_a_hostile_label_or_name_is_shown_and_not_run(make_run, change_run, problem, read_page):
    labels = [HOSTILE, "$\\frac{$", "日本語", "a\nb", "e" * 80][: 2 if problem == "binary" else 5]
    folder, run = make_run(problem, labels=labels)
    run["name"] = run["model"]["source"] = run["baselines"][0]["name"] = HOSTILE
    run["options"] = {HOSTILE: HOSTILE}
    run["data"]["test"]["path"] = HOSTILE
    change_run(folder, run)
    page = read_page(folder)
    page.check_scripts()
    assert all(any(label in word for word in page.words) for label in labels)


@pytest.mark.parametrize("missing", ["metrics.jsonl", "predictions"])
def test_a_report_is_written_when_files_are_missing(make_run, undrawn, missing, read_page):
    folder, _ = make_run()
    path = folder / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = read_page(folder)
    assert "Results" in page.text and "How it was made" in page.text
    assert ("Training" in page.text) == (missing != "metrics.jsonl")
    assert ("Calibration" in page.text) == (missing != "predictions")


def test_a_run_with_dev_only_is_judged_on_dev_and_says_so(make_run, change_run, undrawn, read_page):
    folder, run = make_run()
    (folder / "predictions" / "test.jsonl").unlink()
    change_run(folder, run | {"metrics": {"dev": run["metrics"]["dev"]}, "baselines": []})
    page = read_page(folder)
    assert "on 400 dev rows" in page.text and "chosen on these rows" in page.text


def test_an_interrupted_run_is_called_so_and_its_cut_last_line_is_left_out(
    make_run, change_run, undrawn, read_page
):
    folder, run = make_run()
    change_run(folder, run | {"status": "interrupted"})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 251, "lo')
    assert "Status of this run: interrupted." in read_page(folder).text


def test_a_damaged_file_is_named(make_run):
    folder, _ = make_run()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[6] = "{broken"
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError, match=r"metrics\.jsonl is damaged"):
        write_run_report(folder)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"run\.json cannot be read"):
        write_run_report(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(FormatError, match="run.json"):
        write_run_report(tmp_path)


def test_the_headline_never_says_more_than_the_test(make_run):
    _, run = make_run()
    run["metrics"]["test"]["roc_auc"] = 0.97
    run["baselines"] = [
        {"name": "weak", "metrics": {"roc_auc": 0.8}},
        {"name": "strong", "metrics": {"roc_auc": 0.95}},
    ]
    start = "all-MiniLM-L6-v2 reaches ROC AUC 0.970 on 400 test rows"
    assert headline(run) == start + ": +0.020 from strong (0.950)."
    strong = run["baselines"][1]
    strong["differences"] = {"roc_auc": {"low": 0.011, "high": 0.03, "p": 0.0004}}
    start += ": +0.020 from strong (0.950), 95 % interval "
    assert headline(run) == start + "[+0.011, +0.030], p < 0.001."
    strong["differences"] = {"roc_auc": {"low": -0.01, "high": 0.03, "p": 0.34}}
    end = "[-0.010, +0.030], p 0.340, not statistically significant on these rows."
    assert headline(run) == start + end
    run["baselines"] = []
    assert headline(run) == "all-MiniLM-L6-v2 reaches ROC AUC 0.970 on 400 test rows."


def test_a_split_of_one_class_gets_a_report_without_curves(
    make_run, change_run, undrawn, read_page
):
    folder, run = make_run()
    path = folder / "predictions" / "test.jsonl"
    rows = [json.loads(line) | {"gold": "ok"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run["metrics"]["test"] |= {"roc_auc": None, "pr_auc": None}
    change_run(folder, run)
    assert "there are no curves" in read_page(folder).text
    assert not (folder / "plots" / "roc.png").exists()


def test_worst_errors_are_listed_by_row_and_line_with_the_surest_mistake_first(make_run, undrawn):
    folder, _ = make_run("multiclass")
    rows = RunFolder(folder).rows
    wrong = [row for row in rows if row["label"] != row["gold"]]
    worst = min(wrong, key=lambda row: row["scores"][row["gold"]])
    html = write_run_report(folder).read_text(encoding="utf-8")
    part = html[html.index('id="worst-errors"') :]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", part)[:5]
    score = f"{worst['scores'][worst['gold']]:.4f}"
    expected = [str(worst["row"]), str(worst["line"]), worst["gold"], worst["label"], score]
    assert cells == expected
    assert f"{len(wrong):,} of 400 test rows are not exactly right" in part


def test_columns_of_few_values_are_slices_and_others_are_not(make_run, change_run, read_page):
    folder, run = make_run("multiclass")
    rows, path = RunFolder(folder).rows, folder / "test.csv"
    lines = ["text,label,shop,rare,id,a,b,c"]
    for at, row in enumerate(rows):
        shop_rare_id = f"{'web' * bool(at % 4)},{at < 9},{at}"
        lines.append(f"text,{row['gold']},{shop_rare_id}" + f",{at % 2}" * 3)
    path.write_text("\n".join(lines) + "\n")
    run["data"]["test"] |= {"path": str(path), "sha256": sha256_of(path)}
    change_run(folder, run)
    page = read_page(folder)
    names = [row[0].strip() for row in page.rows if len(row) == 3 and ": " in row[0]]
    assert names == ["shop: web", "shop: not stated", "a: 0", "a: 1", "b: 0", "b: 1"]
    # Wilson 1927: the centre and half the width for a share p of 100 rows, z = 1.96.
    p, z2 = sum(row["label"] == row["gold"] for row in rows[::4]) / 100, 1.959964**2 / 100
    centre, half = (p + z2 / 2) / (1 + z2), (z2 * p * (1 - p) + z2 * z2 / 4) ** 0.5 / (1 + z2)
    ends = f"[{100 * (centre - half):.1f}, {100 * (centre + half):.1f}]"
    cells = [cell.strip() for cell in page.row("shop: not stated")[1:]]
    assert cells == ["100", f"{100 * p:.1f}\N{NO-BREAK SPACE}%{ends}"]
    assert "Further columns with few values: c." in page.text


def test_the_surprise_of_a_row_is_worked_out_by_hand():
    assert surprise({"gold": "a", "label": "b", "scores": {"a": 0.25, "b": 0.75}}) == pytest.approx(
        -np.log(0.25)
    )
    row = {"gold": ["a"], "labels": ["b"], "scores": {"a": 0.5, "b": 0.8}}
    assert surprise(row) == pytest.approx(-np.log(0.5) - np.log(0.2))


def test_confusion_counts_gold_down_and_predicted_across(make_run):
    folder, _ = make_run()
    run = RunFolder(folder)
    gold, predicted = ([row[key] for row in run.rows] for key in ("gold", "label"))
    counts = confusion(gold, predicted, ["ok", "toxic"])
    missed = sum(row["gold"] == "toxic" and row["label"] == "ok" for row in run.rows)
    assert counts[1, 0] == missed and counts.sum() == len(run.rows)
    precision = counts[1, 1] / counts[:, 1].sum()
    assert per_label(run)["toxic"]["precision"] == pytest.approx(precision)
