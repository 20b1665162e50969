from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from filbert.data import conll
from filbert.data.columns import ColumnNames
from filbert.data.conll import read_conll, read_sentences, sentence_of, split_words, spread
from filbert.data.records import Row
from filbert.errors import InputError
from filbert.text.tokenizer import Encoding


def _file(folder: Path, content: str, name: str = "a.conll") -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


# CoNLL columns


def test_a_sentence_is_a_row_with_the_line_of_every_word(tmp_path):
    path = _file(tmp_path, "\n\nJohn\tB-PER\nran\tO\n\n\nHi\tO\n")
    rows = list(read_conll(path))
    assert [row.values for row in rows] == [
        {"tokens": ["John", "ran"], "tags": ["B-PER", "O"], "lines": [3, 4]},
        {"tokens": ["Hi"], "tags": ["O"], "lines": [7]},
    ]
    assert [row.line for row in rows] == [3, 7]
    assert rows[0].where == f"{path}:3"


def test_first_and_last_of_many_columns_count_and_docstart_lines_do_not(tmp_path):
    path = _file(
        tmp_path, "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nof  IN  B-PP O \n-DOCSTART-\nx y z O"
    )
    rows = [row.values for row in read_conll(path)]
    assert [row["tokens"] for row in rows] == [["EU", "of"], ["x"]]
    assert [row["tags"] for row in rows] == [["B-ORG", "O"], ["O"]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_kinds_of_line_end_and_compression_read_the_same(tmp_path, end):
    content = end.join(["a\tO", " \t", "New York\tB-LOC", ""])
    path = tmp_path / "x.iob2.gz"
    path.write_bytes(gzip.compress(content.encode()))
    rows = [row.values for row in read_conll(path)]
    assert [row["tokens"] for row in rows] == [["a"], ["New York"]]
    assert [row["tags"] for row in rows] == [["O"], ["B-LOC"]]


def test_words_alone_are_enough_where_no_tags_are_wanted(tmp_path):
    path = _file(tmp_path, "a\nb\tO\n\nc\n", "x.ner")
    rows = [row.values for row in read_conll(path, labelled=False)]
    assert rows == [{"tokens": ["a", "b"], "lines": [1, 2]}, {"tokens": ["c"], "lines": [4]}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tO\nb\n", "a.conll:2: one column only; a word and its tag are expected"),
        (b"a\tO\n\tO\n", "a.conll:2: the first column, the word, is empty"),
        (b"a\tO\n\nb\xff\tO\n", "a.conll:3: the byte 0xFF is not UTF-8"),
        (b"", "a.conll: no sentence; the file is empty"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, content, message):
    path = tmp_path / "a.conll"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_conll(path))


def test_a_bad_sentence_is_handed_over_once_and_reading_goes_on(tmp_path):
    path = _file(tmp_path, "a\tO\nb\nc\n\nd\tO\n\ne\n")
    errors: list[InputError] = []
    rows = list(read_conll(path, on_error=errors.append))
    assert [row.values["tokens"] for row in rows] == [["d"]]
    assert [str(error).partition(": ")[0] for error in errors] == [f"{path}:2", f"{path}:7"]


BIO = "EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n"
POS = "EU\tNNP\nrejects\tVBZ\n\nPeter\tNNP\n"
PROSE = "EU rejects German call.\nPeter is here.\nAda lives in New York, says O.\n"


@pytest.mark.parametrize(
    ("name", "content", "labelled", "tokens"),
    [
        ("train.txt", BIO, True, ["EU", "rejects"]),
        ("train", BIO, False, ["EU", "rejects"]),
        ("eng.tsv", BIO.replace(" ", "\t"), True, ["EU", "rejects"]),
        ("train.txt", POS, True, ["EU", "rejects"]),
        # Where no tags are wanted, lines of two words may be sentences.
        ("train.txt", POS, False, None),
        ("train.txt", PROSE, False, None),
        ("mail.txt", "Send me an E-mail\nTake B-12\nGroup O\n", False, None),
    ],
)
def test_columns_are_known_by_their_look_whatever_the_file_is_called(
    tmp_path, name, content, labelled, tokens
):
    path = tmp_path / name
    path.write_text(content)
    first = next(read_sentences(path, ColumnNames(), labelled=labelled)).values
    assert first.get("tokens") == tokens
    assert ("text" in first) == (tokens is None) and ("tags" in first) == labelled


def test_sentences_are_not_taken_for_columns_where_tags_are_wanted(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(PROSE)
    with pytest.raises(InputError, match="no CoNLL columns. Tagging needs"):
        read_sentences(path, ColumnNames())


# Rows


def _jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_have_tokens_where_there_are_any_else_a_text(tmp_path):
    both = _jsonl(tmp_path, {"tokens": ["a"], "tags": ["O"], "text": "a"})
    assert [r.values for r in read_sentences(both, ColumnNames())] == [
        {"tokens": ["a"], "tags": ["O"]}
    ]
    text = _jsonl(tmp_path, {"text": "a b", "spans": [[0, 1]], "id": 3})
    assert [r.values for r in read_sentences(text, ColumnNames())] == [
        {"text": "a b", "spans": [[0, 1]]}
    ]


def test_columns_go_by_the_names_that_the_user_gave(tmp_path):
    path = _jsonl(tmp_path, {"words": ["a"], "ner": ["O"], "text": "a"})
    names = ColumnNames(tokens_column="words", tags_column="ner")
    assert next(read_sentences(path, names)).values == {"tokens": ["a"], "tags": ["O"]}
    path = _jsonl(tmp_path, {"body": "a", "marks": []})
    names = ColumnNames(text_column="body", spans_column="marks")
    assert next(read_sentences(path, names)).values == {"text": "a", "spans": []}


def test_without_labels_neither_tags_nor_spans_need_be_there(tmp_path):
    path = _jsonl(tmp_path, {"tokens": ["a"]})
    assert next(read_sentences(path, ColumnNames(), labelled=False)).values == {"tokens": ["a"]}
    path = tmp_path / "a.txt"
    path.write_text("one text\n")
    assert next(read_sentences(path, ColumnNames(), labelled=False)).values == {"text": "one text"}


def test_an_empty_last_column_does_not_make_the_one_before_it_the_tag(tmp_path):
    good = "EU\tNNP\tB-NP\tB-ORG\t\nran\tVB\tB-VP\tO\t\n"
    assert next(read_conll(_file(tmp_path, good))).values["tags"] == ["B-ORG", "O"]
    bad = "EU\tNNP\tB-NP\tB-ORG\nrejects\tVBZ\tB-VP\n"
    with pytest.raises(InputError, match=r":2: 3 columns, and 4 in the lines before it"):
        list(read_conll(_file(tmp_path, bad)))
    blanks = "EU NNP  B-NP B-ORG\nrejects VBZ B-VP\n"
    # Where no tags are wanted, there is none to get wrong.
    (row,) = read_conll(_file(tmp_path, blanks), labelled=False)
    assert row.values["tokens"] == ["EU", "rejects"]


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "It's  9.5 €, snake_case!\n",
            ["It", "'", "s", "9", ".", "5", "€", ",", "snake_case", "!"],
        ),
        ("naïve cafe\u0301s", ["naïve", "cafe\u0301s"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("❤️a 👍🏽", ["❤️", "a", "👍", "🏽"]),
        ("我住在Berlin市。", ["我", "住", "在", "Berlin", "市", "。"]),
        ("ไปที่กี่", ["ไ", "ป", "ที่", "กี่"]),
        ("می\u200cخواهم a\u00adb", ["می\u200cخواهم", "a\u00adb"]),
        ("क\u094d\u200dष", ["क\u094d\u200dष"]),
        ("\u0301", ["\u0301"]),
        ("  ", []),
    ],
)
def test_words_are_runs_of_letters_or_single_letters_where_nobody_writes_blanks(text, words):
    assert [text[start:end] for start, end in split_words(text)] == words


def test_given_words_stay_as_they_are_and_are_found_in_the_joined_text():
    words = ["New York", "", "a", " "]
    sentence = sentence_of(Row({"tokens": words}, "x", 1))
    assert sentence.words == words
    assert sentence.text == "New York  a  "
    cuts = zip(sentence.starts.tolist(), sentence.ends.tolist(), strict=True)
    assert [sentence.text[a:b] for a, b in cuts] == words


@pytest.mark.parametrize("values", [{}, {"text": 3}, {"tokens": "a b"}, {"tokens": ["a", None]}])
def test_a_row_that_is_no_sentence_is_refused(values):
    with pytest.raises(InputError, match=r"^f:7: "):
        sentence_of(Row(values, "f", 7))


# Windows


def _by_hand(sentence: conll.Sentence, windows: list[Encoding]) -> dict[int, tuple[int, int]]:
    """Word -> (window, row), slowly and one character at a time."""
    found: dict[int, tuple[int, int]] = {}
    for word, (start, end) in enumerate(
        zip(sentence.starts.tolist(), sentence.ends.tolist(), strict=True)
    ):
        best = None
        everywhere = {}  # number of the token in the whole sentence -> (start, end)
        for window in windows:
            assert window.offsets is not None and window.sequence is not None
            body = np.flatnonzero(window.sequence == 0)
            for i, row in enumerate(body):
                everywhere[window.start + i] = tuple(window.offsets[row].tolist())
        own = [n for n, (a, b) in everywhere.items() if set(range(a, b)) & set(range(start, end))]
        if not own:
            continue
        for number, window in enumerate(windows):
            body = np.flatnonzero(window.sequence == 0)
            if window.start <= own[0] < window.start + len(body):
                context = min(own[0] - window.start, window.start + len(body) - 1 - own[-1])
                if best is None or context > best:
                    best = context
                    found[word] = (number, int(body[own[0] - window.start]))
    return found


def test_every_word_is_judged_once_where_most_is_around_it(tiny):
    draw = np.random.default_rng(0)
    pool = ["the", "playing", "\u200b", "film", "runs", "not very", "", "!", "xyz", "greatly"]
    for size, length in itertools.product([0, 1, 5, 60], [3, 4, 9, 64]):
        sentence = sentence_of(Row({"tokens": [str(w) for w in draw.choice(pool, size)]}, "x", 1))
        encodings = tiny.windows(
            [sentence.text], max_length=length, stride=conll.stride_of(length)
        )[0]
        windows = spread(sentence, encodings)
        assert set(windows[0].leaders.tolist()) - {-1} == {int(w) for e in windows for w in e.words}
        found = {
            int(word): (number, int(row))
            for number, window in enumerate(windows)
            for word, row in zip(window.words, window.rows, strict=True)
        }
        assert sum(len(window.words) for window in windows) == len(found)
        assert found == _by_hand(sentence, encodings)


def test_a_word_inside_the_first_token_of_another_follows_it():
    sentence = sentence_of(Row({"text": "so !!! \u200b x"}, "x", 1))
    assert sentence.words == ["so", "!", "!", "!", "\u200b", "x"]
    # The second token stands for no character, so it speaks for no word.
    offsets = np.array([[0, 0], [1, 1], [0, 2], [2, 5], [5, 6], [8, 10], [0, 0]])
    sequence = np.array([-1, 0, 0, 0, 0, 0, -1])
    encoding = Encoding(np.arange(7), np.zeros(7), 7, offsets, None, sequence)
    window = spread(sentence, [encoding])[0]
    assert window.leaders.tolist() == [0, 1, 1, 3, -1, 5]
    assert (window.words.tolist(), window.rows.tolist()) == ([0, 1, 3, 5], [2, 3, 4, 5])
