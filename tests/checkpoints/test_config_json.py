from pathlib import Path

import pytest

from filbert.checkpoints import huggingface
from filbert.checkpoints.config_json import label_names
from filbert.errors import ConfigError, FormatError


@pytest.mark.parametrize("name", ["a\ud800", "\x1b[31mred", "two\nlines", "\x7f", "tab\t"])
def test_a_label_that_cannot_be_printed_is_refused(name):
    with pytest.raises(FormatError, match=r"config\.json: id2label .* control character") as caught:
        label_names({"id2label": {"0": name, "1": "b"}}, Path("config.json"))
    assert str(caught.value).isprintable()


def test_a_label_of_any_script_is_read():
    names = ("très bien", "中 文\u3000", "می\u200cخواهم", "\U0001f600")
    given = {str(i): name for i, name in enumerate(names)}
    assert label_names({"id2label": given}, Path("config.json")) == names


def test_what_could_not_be_read_again_is_not_written(make, tmp_path):
    checkpoint = make()
    checkpoint.labels = ("a", "b", "c\n")
    with pytest.raises(ConfigError, match="control character"):
        huggingface.write(checkpoint, tmp_path / "out")
