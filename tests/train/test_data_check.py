"""The rows of a run are checked before it is trained."""

import filbert


def test_what_is_wrong_with_the_data_is_logged_before_training_and_recorded(
    tiny_model, tmp_path, capsys
):
    rows = [f"{word} film number {i},{word}" for i in range(40) for word in ("good", "bad")]
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    train.write_text("\n".join(["text,label", *rows, rows[3], rows[4]]) + "\n")
    dev.write_text("\n".join(["text,label", *rows[:2], "a good one,good", "a bad one,bad"]) + "\n")
    facts = filbert.finetune(
        task="classification", model=str(tiny_model), train=str(train), dev=str(dev),
        out=str(tmp_path / "run"), steps=1, seeds=2, precision="float32",
    ).facts  # fmt: skip
    found = {finding["kind"]: finding for finding in facts["findings"]}
    assert found.keys() >= {"duplicate", "leakage"}
    assert (found["duplicate"]["level"], found["duplicate"]["count"]) == ("warning", 2)
    assert "train.csv:82 repeats" in found["duplicate"]["where"][0]
    said = capsys.readouterr().err
    before, _, _ = said.partition("step ")
    assert "filbert check --task classification" in before
    sentence = "rows that repeat an earlier one (2 times)"
    assert sentence in before and said.count(sentence) == 1
