"""Which columns of a file make a row, and what is proposed for one that is missing."""

import pytest

from filbert.data.records import read_rows
from filbert.errors import InputError


def refused(path, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_rows(path, **options)
    return str(caught.value)


def test_a_column_is_only_proposed_for_a_like_name_and_never_the_label(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("message,intent\nhello,greet\n")
    sentence = refused(path, required=["text", "label"], columns={"label": "intent"})
    assert "the columns are message, intent" in sentence
    assert "--text-column intent" not in sentence and "--text-column NAME" in sentence
    # Also before the label column is named.
    assert "--text-column NAME" in refused(path, required=["text", "label"])
    path.write_text("message,texts\nhello,greet\n")
    assert "--text-column texts" in refused(path, required=["text"])
    sentence = refused(path, required=["text", "label"], columns={"label": "texts"})
    assert "--text-column NAME" in sentence
