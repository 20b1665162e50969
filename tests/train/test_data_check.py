"""The rows of a run are checked before it is trained."""

import shutil

import pytest

import filbert


def test_what_is_wrong_with_the_data_is_logged_before_training_and_recorded(
    tiny_model, tmp_path, capsys
):
    rows = [f"{word} film number {i},{word}" for i in range(40) for word in ("good", "bad")]
    rows += ["an odd one,odd"]
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("\n".join(["text,label", *rows, rows[3], rows[4]]) + "\n")
    long = "a good one " * 30
    dev.write_text("\n".join(["text,label", *rows[:2], f"{long},good", "λόγος,bad"]) + "\n")
    facts = filbert.finetune(
        task="classification", model=str(tiny_model), train=str(train), dev=str(dev),
        out=str(tmp_path / "run"), steps=1, seeds=2, precision="float32",
    ).facts  # fmt: skip
    found = {finding["kind"]: finding for finding in facts["findings"]}
    assert found.keys() >= {"duplicate", "leakage"}
    assert (found["duplicate"]["level"], found["duplicate"]["count"]) == ("warning", 2)
    assert "train.csv:83 repeats" in found["duplicate"]["where"][0]
    said = capsys.readouterr().err
    before, _, _ = said.partition("step ")
    assert "filbert check --task classification" in before
    for sentence in (
        'data: Rare labels, below 5.0% of 83 rows: "odd" (1). Look at F1',
        "data: rows that repeat an earlier one: train 2, such as ",
        "data: rows whose text is also in train; they inflate the metrics: dev 2, such as ",
        "truncation: 1 of 4 dev rows (25.0%) are longer than 64 tokens and were cut (truncate)",
        "of the dev tokens are not in the model's vocabulary",
    ):
        assert sentence in before and said.count(sentence) == 1


def test_a_run_that_does_not_fit_on_the_disk_is_refused_before_it_starts(
    tiny_model, films, tmp_path, monkeypatch
):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**4))
    with pytest.raises(filbert.ConfigError, match=r"needs \d+ MB or more in .*, and 0 MB are free"):
        filbert.finetune(
            task="classification", model=str(tiny_model), train=films / "dev.csv",
            out=tmp_path / "run", steps=1,
        )  # fmt: skip
    assert not (tmp_path / "run").exists()
