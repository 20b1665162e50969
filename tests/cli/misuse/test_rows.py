"""Rows that cannot be read are named by file and line; tests/data has the rules of each format."""

import gzip
import io
import json
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

GOOD = b"text,label\ngood,a\nbad,b\nfilm,a\nplay,b\n"
LINES = b'{"text": "good", "label": "a"}\n{"text": "bad", "label": "b"}\n'


def parquet(**columns: list) -> bytes:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def zipped(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def squad(**paragraph) -> bytes:
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [paragraph]}]}).encode()


# The data doctor gathers what is wrong with rows into its table; other verbs stop at the first.
CLASSIFY = "check --task classification "
SCORE = "evaluate --predictions answers.jsonl --task classification --data "
TRAIN = "finetune --model TINY --out out --steps 1 --task "
CHOOSE = "evaluate --predictions answers.jsonl --task multiple_choice --data "
FILES = {
    "rows.csv": GOOD,
    "empty.csv": b"",
    "other.csv": b"comment,toxic\nx,1\ny,0\n",
    "short.csv": GOOD + b"good\n",
    "latin.csv": GOOD + b"caf\xe9,a\n",
    "torn.jsonl": LINES + b'{"text": "good", \n',
    "column.parquet": parquet(comment=["good"], label=["a"]),
    "rows.csv.gz": gzip.compress(GOOD)[:-12],
    "flags.csv": b"text,rude,kind\ngood,0,1\nbad,2,0\n",
    "orphan.conll": b"good O\nfilm I-x\n\nbad O\n",
    "squad.json": squad(context="a film", qas=[{"id": "1", "question": "what?", "answers": [
        {"text": "play", "answer_start": 2}]}]),
    "choices.jsonl": b'{"context": "a", "choices": ["x", "y"], "label": 2}\n',
    "masked.csv": b"text\ngood\na [MASK]\n",
    "answers.jsonl": b'{"label": "a"}\n',
    "wrong-answers.jsonl": b'{"label": "a"}\n{"label": "q"}\n{"label": "a"}\n{"label": "b"}\n',
}  # fmt: skip
EVALUATE = "evaluate --task classification --data rows.csv --predictions "
KINDS = {
    "a missing file": (CLASSIFY + "nowhere.csv", "nowhere.csv", "no such file"),
    "another column": (CLASSIFY + "other.csv", 'no column "text"', "comment", "--text-column"),
    "a row with too few fields": (SCORE + "short.csv", "short.csv:6"),
    "bytes that are not UTF-8": (SCORE + "latin.csv", "latin.csv:6", "UTF-8"),
    "a line of JSON that is torn": (SCORE + "torn.jsonl", "torn.jsonl:3"),
    "a Parquet file with other columns": (CLASSIFY + "column.parquet", "column.parquet", "comment"),
    "gzip that is cut short": (SCORE + "rows.csv.gz", "rows.csv.gz", "gz"),
    "stdin more than once": (CLASSIFY + "- -", "stdin"),
    "a flag that is neither 0 nor 1": (
        TRAIN + "classification --train flags.csv --label-columns rude,kind",
        "flags.csv:3", "'2'", "rude",
    ),
    "tags that break BIO": (
        TRAIN + "tagging --train orphan.conll", "orphan.conll:2", "I-x", "--repair-tags",
    ),
    "an answer that is not in the context": (
        TRAIN + "span_qa --train squad.json", "squad.json:1", "answer_start 2",
    ),
    "a choice that there is not": (CHOOSE + "choices.jsonl", "choices.jsonl:1", "2"),
    "texts without pairs for vectors": ("check --task embedding rows.csv", "text_pair"),
    "fewer predictions than rows": (EVALUATE + "answers.jsonl", "answers.jsonl", "1", "4"),
    "a prediction of another label": (
        EVALUATE + "wrong-answers.jsonl", "wrong-answers.jsonl:2", "'q'",
    ),
    "no text on stdin": ("predict FILM", "stdin"),
    "a broken row in the middle of a stream": ("tokenize TINY latin.csv", "latin.csv:6", "UTF-8"),
    "no text to make a vocabulary of": (
        "vocab empty.csv --out out --kind wordpiece --size 99", "empty.csv",
    ),
    "text in Latin-1 to make a corpus of": (
        "corpus latin.csv --tokenizer TINY --out out", "latin.csv:6", "--skip-bad-lines",
    ),
    "a text without a mask among many": (
        "fill MASKED --input rows.csv", "rows.csv:2", "[MASK]",
    ),
    "a mask in a text to score": ("score MASKED masked.csv", "masked.csv:3", "[MASK]", "fill"),
    "a word that is in no text": ("inspect neighbours TINY rows.csv --word zebra", "--word"),
    "an empty text to explain": ("explain FILM ''", "empty"),
    "evaluation rows of another label": ("evaluate FILM --data rows.csv", "rows.csv:2", "'a'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_cannot_be_read_are_named(refused, kind):
    command, *words = KINDS[kind]
    refused(command, *words, files=FILES)
