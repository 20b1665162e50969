import pytest

from filbert.errors import ConfigError, checked_keywords, on_terminal, printable


def test_a_name_cannot_steer_a_terminal_or_fill_it():
    assert printable("comment_text é 中") == "comment_text é 中"
    assert printable("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert printable("\ud800\u202e") == "\\ud800\\u202e"
    assert printable("x" * 61) == "x" * 60 + "..." and printable("x" * 60) == "x" * 60
    assert printable("name", 2) == "na..."


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        ("Give --dev or --text-column NAME.", "Give `dev` or `text_column` NAME."),
        ("a -- b, x--y", "a -- b, x--y"),
        ("Run filbert convert --to int8 again.", "Run filbert convert --to int8 again."),
    ],
)
def test_options_are_keywords_in_python_and_flags_on_a_terminal(raised, caught):
    @checked_keywords
    def inner():
        raise ConfigError(raised)

    with pytest.raises(ConfigError) as error:
        checked_keywords(inner)()
    assert (str(error.value), on_terminal(error.value)) == (caught, raised)
