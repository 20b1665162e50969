"""The fit report's figures, computed by hand."""

import pytest

from filbert.text.learning import LearnOptions, held_out_text, learn, measure_fit


def test_the_figures_are_those_counted_by_hand(tiny):
    text = held_out_text([["the film played", "The  plays,"], ["xyz the runs"]])
    fit = measure_fit(tiny, text)
    # the | film | play ##ed | the | play ##s , | [UNK] | the | run ##s, and an empty "word".
    longest = [("plays,", 3, 1), ("played", 2, 1), ("runs", 2, 1), ("the", 1, 2), ("The", 1, 1)]
    longest += [("film", 1, 1), ("xyz", 1, 1)]
    assert [tuple(word.values()) for word in fit.pop("longest")] == longest
    assert fit == {
        "num_words": 8,
        "num_tokens": 12,
        "num_bytes": 16 + 12 + 13,
        "unknown_rate": 1 / 8,
        "pieces_per_word": 12 / 8,
        "tokens_per_byte": 12 / 41,
        "used_share": 8 / 34,
    }


@pytest.mark.parametrize("kind", ["wordpiece", "bytebpe", "unigram"])
def test_tokens_counted_by_word_are_those_of_whole_lines(kind):
    lines = ["Ba ti   lo, mer", "Lo wa wa 中文 don't  (ti)", "ti\tba"] * 5
    options = LearnOptions(kind=kind, size=300)
    tokenizer = learn(lambda: [lines, lines], options).tokenizer
    fit = measure_fit(tokenizer, held_out_text([lines]))
    found = tokenizer.backend.encode_batch(lines, add_special_tokens=False)
    assert fit["num_tokens"] == sum(len(encoding.ids) for encoding in found)
    assert fit["num_bytes"] == len("\n".join([*lines, ""]).encode())
    words = sum(len(line.split(" ")) - line.count("  ") for line in lines) - 5
    assert fit["num_words"] == words
