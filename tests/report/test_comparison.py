from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from filbert.errors import FormatError, InputError
from filbert.report.comparison import headline, write_comparison_report
from filbert.report.comparison_study import ranked, read_study

_spec = importlib.util.spec_from_file_location("studies", Path(__file__).with_name("studies.py"))
studies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(studies)
CANARY, CONTESTANTS = studies.CANARY, studies.CONTESTANTS
save, write_lines, write_study = studies.save, studies.write_lines, studies.write_study

SECTIONS = [
    "Ranking", "Significance tests", "Curves and calibration", "Quality and cost", "Errors",
    "Metrics by slice", "Data", "Failed and missing", "How it was made",
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
    assert len(page.check_one_file()) == len(list((folder / "plots").iterdir()))


def test_the_ranking_holds_every_figure_in_the_order_of_the_first_metric(whole):
    folder, results, page = whole
    study = read_study(folder)
    entries = [e for e in results["contestants"] if e["test"]]
    entries.sort(key=lambda e: -e["test"]["pr_auc"]["value"])
    assert [one.name for one in study.measured] == [e["name"] for e in entries]
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


def test_every_pair_stands_in_the_report_with_its_figures(whole):
    folder, results, page = whole
    study = read_study(folder)
    known = {one.name for one in study.measured}
    shown = {(r[0], r[1]): r for r in page.rows if len(r) == 10 and {r[0], r[1]} <= known}
    assert len(shown) == len(results["pairs"])
    for pair in results["pairs"]:
        names = (pair["one"], pair["other"])
        sign = 1 if names in shown else -1
        row = shown[names[::sign]]
        number, mark = row[2].split("\N{NO-BREAK SPACE}")
        value = sign * pair["pr_auc"]["difference"]
        assert float(number.replace("−", "-")) == pytest.approx(value, abs=0.00051)
        assert mark == ("●" if study.pair(*names, "pr_auc").is_significant else "○")
        only = [pair["mcnemar"][key] for key in ("only_one", "only_other")][::sign]
        assert row[6:8] == [str(count) for count in only]


def test_no_text_of_the_data_is_shown_unless_it_is_asked_for(small, written):
    folder, _ = small
    page = written(folder)
    assert "zebra" not in (folder / "report.html").read_text() and "zebra" not in page.text
    asked = written(folder, show_texts=True)
    assert CANARY in asked.text and "script" not in asked.tags


def test_an_unfinished_study_is_reported_and_called_so(tmp_path, undrawn, written):
    write_study(tmp_path, contestants=CONTESTANTS[4:], missing_seeds=True)
    page = written(tmp_path)
    assert "Unfinished: 4 of 10 runs exist." in page.text
    assert ["static", "0", "missing", "Not run yet."] in page.rows
    assert ["bigru", "2", "missing", "Not run yet."] in page.rows


def test_a_study_of_many_classes_has_no_roc_and_no_positive_rows(tmp_path, undrawn, written):
    labels = ["anger", "joy", "neutral"]
    write_study(tmp_path, labels=labels, contestants=CONTESTANTS[:3], seeds=1)
    page = written(tmp_path)
    assert "macro F1" in page.text and "ROC" not in page.text
    names = {path.stem for path in (tmp_path / "plots").iterdir()}
    assert {"confusions", "calibration", "ranking_macro_f1"} <= names and "roc" not in names


def test_a_study_in_which_nothing_was_measured_still_gives_a_page(small, written):
    folder, results = small
    for entry in results["contestants"]:
        entry |= {"test": {}, "costs": {}, "status": "failed", "error": "It broke."}
        entry["seeds"] = [{"seed": 0, "status": "failed", "error": "It broke."}]
    save(folder, results | {"pairs": [], "slices": []})
    page = written(folder)
    assert "No contestant was measured." in page.text and "Failed and missing" in page.headings
    assert ["minilm", "0", "failed", "It broke."] in page.rows


@pytest.mark.parametrize(
    "missing",
    ["data", "machine", "pairs", "slices", "positive"],
)
def test_a_report_is_written_when_a_part_of_the_results_is_missing(small, missing, written):
    folder, results = small
    save(folder, {key: value for key, value in results.items() if key != missing})
    assert "How it was made" in written(folder).headings


def test_a_hostile_name_is_shown_and_not_run(small, written):
    folder, results = small
    text = json.dumps(results).replace('"minilm-3', json.dumps(HOSTILE)[:-1])
    (folder / "results.json").write_text(text)
    results = json.loads(text)
    results["contestants"][-1]["error"] = results["name"] = HOSTILE
    results["options"] = {HOSTILE: HOSTILE}
    save(folder, results)
    page = written(folder)
    assert "script" not in page.tags and HOSTILE in page.text


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no results\.json"):
        write_comparison_report(tmp_path)
    for content, message in (("[]", "a study is a JSON object"), ("{", "is not JSON")):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(FormatError, match=message):
            write_comparison_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_confusions_use_the_threshold_that_the_figures_were_made_with(small):
    folder, results = small
    entry = results["contestants"][0]
    run = next(run for run in entry["seeds"] if run["seed"] == entry["best_seed"])
    run["test"]["threshold"] = 0.0
    save(folder, results)
    study = read_study(folder)
    assert np.all(study.answers[entry["name"]].predicted == study.positive)


def test_the_interval_that_goes_with_the_mean_is_shown_everywhere(small):
    folder, results = small
    first = max(results["contestants"], key=lambda e: e["test"].get("pr_auc", {}).get("value", 0))
    first["test"]["pr_auc"]["over_seeds"] = {"low": 0.1111, "high": 0.9999}
    save(folder, results)
    page = write_comparison_report(folder).read_text()
    ends = re.compile(r"\[0\.111\d?, (1\.000|0\.9999)\]")
    assert ends.search(page[page.index("<h2>Ranking") : page.index("<h2>Significance")])


@pytest.mark.parametrize(
    ("low", "high", "p_holm", "over_seeds", "is_significant"),
    [
        (0.01, 0.03, 0.0004, (0.01, 0.03), True),
        (0.01, 0.03, None, None, True),
        (-0.001, 0.04, 0.001, None, False),
        (0.0, 0.04, 0.001, None, False),
        (0.01, 0.03, 0.05, None, False),
        (0.01, 0.03, 0.001, (-0.01, 0.04), False),
        (0.01, 0.03, 0.001, (-0.04, -0.01), False),
    ],
)
def test_a_difference_is_significant_if_interval_correction_and_seeds_agree(
    small, low, high, p_holm, over_seeds, is_significant
):
    folder, results = small
    first, second = (one.name for one in read_study(folder).measured[:2])
    (pair,) = (p for p in results["pairs"] if {p["one"], p["other"]} == {first, second})
    # The headline must show the same numbers when the pair is stored the other way round.
    pair["one"], pair["other"] = second, first
    over = over_seeds and {"difference": 0.02, "low": -over_seeds[1], "high": -over_seeds[0]}
    pair["pr_auc"] |= {"difference": -0.02, "low": -high, "high": -low, "p_holm": p_holm}
    pair["pr_auc"] |= {"over_seeds": over}
    save(folder, results)
    study = read_study(folder)
    found = study.pair(first, second, "pr_auc")
    assert (found.difference, found.low, found.high) == (0.02, low, high)
    assert found.is_significant == is_significant
    (sentence,) = headline(study)
    assert ("(significant)" in sentence) == is_significant
    assert (study.measured[1] in study.not_significant(study.measured[0])) != is_significant


def test_no_two_of_many_contestants_are_drawn_the_same_way():
    entries = [{"name": f"model-{n}", "test": {}} for n in range(20)]
    found = ranked({"labels": ["0", "1"], "contestants": entries})
    assert len({(one.color, one.line) for one in found}) == 20
    assert len({(one.color, one.marker) for one in found}) == 20
