from __future__ import annotations

from filbert.errors import printable


def test_a_name_cannot_steer_a_terminal_or_fill_it():
    assert printable("comment_text é 中") == "comment_text é 中"
    assert printable("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert printable("\ud800\u202e") == "\\ud800\\u202e"
    assert printable("x" * 61) == "x" * 60 + "..." and printable("x" * 60) == "x" * 60
    assert printable("name", 2) == "na..."
