"""benchmarks/report.py: the tables of the pages are those of the tracked results."""

from pathlib import Path

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_every_file_of_results_that_the_table_reads_gives_a_row(load):
    report = load("report")
    for name, maker in report.MAKERS.items():
        records = report.read_results(RESULTS / f"{name}.jsonl")
        assert bool(maker(records)) == bool(records), name


def test_the_pages_have_the_tables_of_the_tracked_results(load):
    assert load("report").main(["--check"]) == 0
