"""The ranking on a terminal of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from filbert.cli.verbs.compare import print_ranking


def contestant(name, value, **more):
    figure = {"value": value, "low": value - 0.03, "high": value + 0.02}
    metrics = {key: dict(figure) for key in ("pr_auc", "roc_auc", "f1")}
    return {
        "name": name,
        "status": "finished",
        "test": metrics,
        "seeds": [{"status": "finished"}] * 3,
        "costs": {"training_seconds": 5025.0, "rows_per_second": 19_993.0},
    } | more


def printed(*contestants):
    results = {
        "positive": "1",
        "contestants": list(contestants),
        "data": {"test": {"rows": 3000}},
        "statistics": {"level": 0.95},
    }
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    print_ranking(results, console)
    return console.file.getvalue()


def test_names_of_18_letters_and_all_figures_stand_whole_on_80_columns():
    text = printed(contestant("redrawn-3-causal-x", 0.9), contestant("minilm", 0.91))
    assert len("redrawn-3-causal-x") == 18
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines) and "…" not in text
    row = next(line for line in lines if line.strip().startswith("redrawn-3-causal-x"))
    assert row.split() == [
        "redrawn-3-causal-x", "0.9000", "0.9000", "0.9000", "3/3", "84", "min", "19,993",
    ]  # fmt: skip
    head = next(line for line in lines if "contestant" in line)
    assert head.split() == [
        "contestant", "PR", "AUC", "ROC", "AUC", "F1", "runs", "training", "rows/s",
    ]  # fmt: skip
    assert text.index("minilm") < text.index("redrawn")


def test_a_longer_name_breaks_and_the_figures_do_not():
    text = printed(contestant("a-name-of-a-model-that-is-very-long-indeed", 0.9))
    assert "…" not in text and ".870–.920" in text and "19,993" in text


def test_the_interval_over_seeds_goes_before_that_of_one_seed_and_the_title_says_so():
    one = contestant("minilm", 0.9)
    one["test"]["pr_auc"]["over_seeds"] = {"low": 0.8, "high": 0.95}
    text = printed(one)
    assert ".800–.950" in text and "over rows and seeds" in text
    assert "seeds)" not in printed(contestant("minilm", 0.9))


def test_a_contestant_that_failed_stands_last_by_its_state():
    lost = contestant("lost", 0.0, status="failed", test={}, costs={})
    lost["seeds"] = [{"status": "failed"}]
    text = printed(lost, contestant("minilm", 0.9))
    assert text.index("minilm") < text.index("lost") and "failed" in text and "0/1" in text
