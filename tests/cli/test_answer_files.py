"""filbert predict --out FILE: JSON Lines, CSV and Parquet, with columns of the input."""

import csv
import json

import pyarrow.parquet
import pytest

ROWS = [("7", "a good film", "pos"), ("8", "bad , bad", "neg"), ("x", "", "pos")]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text", "label"), *ROWS])
    return path


def written(call, model, rows, name, *more):
    out = rows.with_name(name)
    done = call("predict", model, rows, "--out", out, *more)
    assert done.status == 0, done.err
    return out


def test_kept_columns_come_first_and_scores_have_six_digits(call, model, rows):
    out = written(call, model, rows, "a.jsonl", "--keep-columns", "id,text,label")
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(a)[:4] for a in answers] == [["id", "text", "input_label", "label"]] * 3
    assert [(a["id"], a["text"], a["input_label"]) for a in answers] == ROWS
    for answer in answers:
        for score in (answer["score"], *answer["scores"].values()):
            assert score == float(f"{score:.6g}")


def test_csv_and_parquet_hold_what_json_lines_hold_with_a_column_per_score(call, model, rows):
    keep = ("--keep-columns", "id")
    lines = written(call, model, rows, "a.jsonl", *keep).read_text().splitlines()
    flat = []
    for answer in map(json.loads, lines):
        scores = {f"score_{k}": v for k, v in answer.pop("scores").items()}
        head = {k: answer.pop(k) for k in ("id", "label", "score")}
        flat.append(head | scores | answer)
    with written(call, model, rows, "a.csv", *keep).open(newline="") as file:
        table = list(csv.DictReader(file))
    head = ["id", "label", "score", "score_neg", "score_pos", "truncated", "num_tokens"]
    assert list(table[0]) == head
    wanted = [{k: v if isinstance(v, str) else json.dumps(v) for k, v in a.items()} for a in flat]
    assert table == wanted
    assert (
        pyarrow.parquet.read_table(written(call, model, rows, "a.parquet", *keep)).to_pylist()
        == flat
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep-columns", "id"], "Give a file"),
        (["--out", "/dev/null/a.csv"], "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused(call, model, options, message):
    done = call("predict", model, *options, stdin="good")
    assert done.status == 2
    assert message in done.err
