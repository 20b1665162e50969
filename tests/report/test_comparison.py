from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tests.report.studies import CONTESTANTS, save, write_study

from filbert.errors import FormatError
from filbert.report.comparison import StudyFiles, headline, write_comparison_report

SECTIONS = [
    "Ranking", "What to try next", "Significance tests", "Curves and calibration",
    "Quality and cost", "Errors", "Metrics by slice", "Worst errors", "Data",
    "Failed and missing", "How it was made",
]  # fmt: skip
HOSTILE = "<script>alert('&\")</script>"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, page):
    """(folder, results, page) of a study with everything; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    results = write_study(folder, contestants=[CONTESTANTS[i] for i in (0, 1, 5)], seeds=2)
    return folder, results, page(write_comparison_report(folder))


@pytest.fixture
def written(page):
    """`written(folder)` writes a report and reads it."""
    return lambda folder, **options: page(write_comparison_report(folder, **options))


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """(folder, results) of a study of three contestants with two seeds; not to be changed."""
    folder = tmp_path_factory.mktemp("three")
    return folder, write_study(folder, contestants=CONTESTANTS[:3], seeds=2)


@pytest.fixture
def small(three, tmp_path, undrawn):
    """A copy of this study that a test may change: (folder, results). Nothing is drawn."""
    folder, results = three
    shutil.copytree(folder, tmp_path / "small")
    return tmp_path / "small", json.loads(json.dumps(results))


def test_every_part_is_in_one_file(whole):
    folder, _, page = whole
    assert page.headings == SECTIONS
    assert {*page.check_one_file()} == {f"plots/{p.name}" for p in (folder / "plots").iterdir()}


def test_the_ranking_has_every_metric_in_the_order_of_the_first(whole):
    folder, results, page = whole
    study = StudyFiles(folder)
    entries = [e for e in results["contestants"] if e["test"]]
    entries.sort(key=lambda e: -e["test"]["pr_auc"]["value"])
    assert [one["name"] for one in study.measured] == [e["name"] for e in entries]
    for place, entry in enumerate(entries, start=1):
        row = next(r for r in page.rows if r[0].removesuffix(" ≈") == f"{place}. {entry['name']}")
        for (key, _), cell in zip(study.metrics, row[1:], strict=True):
            found = entry["test"][key]
            ends = found.get("over_seeds") or found
            low, high = ends["low"], ends["high"]
            assert cell.startswith(f"{found['value']:.{study.digits}f} ± ")
            assert f"± {found['deviation']:.{study.digits}f}" in cell
            if low is not None:
                assert cell.endswith(f"[{low:.{study.digits}f}, {high:.{study.digits}f}]")


def test_every_pair_is_in_the_report_with_its_numbers(whole):
    _, results, page = whole
    shown = {(row[0], row[1]): row for row in page.rows if len(row) == 10}
    for pair in results["pairs"]:
        row = shown[pair["one"], pair["other"]]
        number, mark = row[2].split("\N{NO-BREAK SPACE}")
        assert float(number) == pytest.approx(pair["pr_auc"]["difference"], abs=0.00051)
        assert mark == ("●" if pair["pr_auc"]["significant"] else "○")
        assert row[6:8] == [str(pair["mcnemar"][key]) for key in ("only_one", "only_other")]


def test_an_unfinished_study_is_reported_and_called_so(tmp_path, undrawn, written):
    write_study(tmp_path, contestants=CONTESTANTS[4:], missing_seeds=True)
    page = written(tmp_path)
    assert "4 of 10" in page.text
    assert ["static", "0", "missing", "Not run yet."] in page.rows
    assert ["bigru", "2", "missing", "Not run yet."] in page.rows


def test_a_study_of_many_classes_has_no_roc_and_no_positive_rows(tmp_path, undrawn, written):
    labels = ["anger", "joy", "neutral"]
    write_study(tmp_path, labels=labels, contestants=CONTESTANTS[:3], seeds=1)
    page = written(tmp_path)
    assert "macro F1" in page.text and "ROC" not in page.text
    names = {path.stem for path in (tmp_path / "plots").iterdir()}
    assert {"confusion_1", "calibration", "ranking"} <= names and "roc" not in names


def test_a_study_in_which_nothing_was_measured_still_gives_a_page(small, written):
    folder, results = small
    for entry in results["contestants"]:
        entry |= {"test": {}, "costs": {}, "status": "failed", "error": "It broke."}
        entry["seeds"] = [{"seed": 0, "status": "failed", "error": "It broke."}]
    save(folder, results | {"pairs": []})
    page = written(folder)
    assert "No contestant was measured." in page.text and "Failed and missing" in page.headings
    assert ["minilm", "0", "failed", "It broke."] in page.rows


def test_a_hostile_name_is_shown_and_not_run(small, written):
    folder, results = small
    text = json.dumps(results).replace('"minilm-3', json.dumps(HOSTILE)[:-1])
    (folder / "results.json").write_text(text)
    results = json.loads(text)
    results["contestants"][-1]["error"] = results["name"] = HOSTILE
    results["options"] = {HOSTILE: HOSTILE}
    save(folder, results)
    page = written(folder)
    page.check_scripts()
    assert HOSTILE in page.text


def test_slices_by_length_have_the_share_of_right_rows_of_each_contestant(whole):
    folder, _, page = whole
    shares = [100 * (s.gold == s.predicted).mean() for s in StudyFiles(folder).scores.values()]
    found = [float(cell.split()[0]) for cell in page.row("to 20 tokens")[2:]]
    assert found == pytest.approx(shares, abs=0.05)


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"results\.json cannot be read"):
        write_comparison_report(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(FormatError, match="results.json"):
        write_comparison_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_confusions_use_the_threshold_of_the_metrics(small):
    folder, results = small
    entry = results["contestants"][0]
    run = next(run for run in entry["seeds"] if run["seed"] == entry["best_seed"])
    run["test"]["threshold"] = 0.0
    save(folder, results)
    study = StudyFiles(folder)
    assert np.all(study.scores[entry["name"]].predicted == study.labels.index(study.positive))


@pytest.mark.parametrize("is_significant", [True, False])
def test_the_headline_has_the_interval_and_the_corrected_p_of_the_first_two(small, is_significant):
    folder, results = small
    first, second = (one["name"] for one in StudyFiles(folder).measured[:2])
    (pair,) = (p for p in results["pairs"] if {p["one"], p["other"]} == {first, second})
    # The numbers are the same when the pair is stored the other way round.
    pair["one"], pair["other"] = second, first
    pair["pr_auc"] |= {"difference": -0.02, "low": -0.03, "high": -0.01, "p_holm": 0.0123}
    pair["pr_auc"] |= {"significant": is_significant}
    save(folder, results)
    sentence = headline(StudyFiles(folder))
    assert f"Difference from {second}: +0.020 [+0.010, +0.030], p 0.012 after Holm" in sentence
    assert ("(significant)" in sentence) == is_significant
    page = write_comparison_report(folder).read_text()
    assert (f"2. {second} ≈" in page) != is_significant
