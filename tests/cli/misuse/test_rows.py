"""Rows that cannot be read are named by file and line, in every format."""

import bz2
import gzip
import io
import json
import lzma
import zipfile

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

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
TAG = "evaluate --predictions answers.jsonl --task tagging --data "
ANSWER = "evaluate --predictions answers.jsonl --task span_qa --data "
CHOOSE = "evaluate --predictions answers.jsonl --task multiple_choice --data "
FILES = {
    "rows.csv": GOOD,
    "header.csv": b"text,label\n",
    "empty.csv": b"",
    "other.csv": b"comment,toxic\nx,1\ny,0\n",
    "twice.csv": b"text,text,label\nx,y,a\n",
    "short.csv": GOOD + b"good\n",
    "long.csv": GOOD + b"good,a,c\n",
    "quote.csv": GOOD + b'"good,a\nbad,b\n',
    "latin.csv": GOOD + b"caf\xe9,a\n",
    "utf16.csv": GOOD.decode().encode("utf-16"),
    "nul.csv": GOOD + b"go\0od,a\n",
    "huge.csv": GOOD + b"x" * 5_000_000 + b",a\n",
    "unlabelled.csv": GOOD + b"good,\n",
    "blank.csv": GOOD + b",a\n",
    "semicolons.csv": b"text;label\ngood;a\nbad;b\n",
    "torn.jsonl": LINES + b'{"text": "good", \n',
    "list.jsonl": LINES + b'["good", "a"]\n',
    "number.jsonl": LINES + b'{"text": 3, "label": "a"}\n',
    "missing.jsonl": LINES + b'{"label": "a"}\n',
    "nested.jsonl": LINES + b'{"text": "good", "label": {"a": 1}}\n',
    "array.json": b'[{"text": "good", "label": "a"}]\n',
    "rows.parquet": b"PAR1 and no more",
    "column.parquet": parquet(comment=["good"], label=["a"]),
    "typed.parquet": parquet(text=[1, 2], label=["a", "b"]),
    "null.parquet": parquet(text=["good", None], label=["a", "b"]),
    "none.parquet": parquet(text=[], label=[]),
    "rows.csv.gz": gzip.compress(GOOD)[:-12],
    "plain.csv.gz": GOOD,
    "rows.csv.xz": lzma.compress(GOOD)[:-12],
    "rows.csv.zst": zstandard.compress(GOOD)[:-6],
    "plain.csv.zst": GOOD,
    "rows.csv.bz2": bz2.compress(GOOD),
    "rows.zip": zipped(**{"rows.csv": GOOD}),
    "rows.xlsx": zipped(**{"sheet.xml": b"<x/>"}),
    "scores.csv": b"text,label\ngood,1.5\nbad,much\n",
    "nan.csv": b"text,label\ngood,1.5\nbad,nan\n",
    "flags.csv": b"text,rude,kind\ngood,0,1\nbad,2,0\n",
    "tags.conll": b"good O\nfilm B-x\n\nbad\n",
    "orphan.conll": b"good O\nfilm I-x\n\nbad O\n",
    "unequal.jsonl": b'{"tokens": ["a", "b"], "tags": ["O"]}\n',
    "outside.jsonl": b'{"text": "good", "spans": [{"start": 2, "end": 9, "label": "x"}]}\n',
    "crossed.jsonl": b'{"text": "good", "spans": [{"start": 3, "end": 1, "label": "x"}]}\n',
    "squad.json": squad(context="a film", qas=[{"id": "1", "question": "what?", "answers": [
        {"text": "play", "answer_start": 2}]}]),
    "squad-torn.json": squad(context="a film", qas=[])[:-4],
    "squad-other.json": b'{"rows": []}',
    "choices.jsonl": b'{"context": "a", "choices": ["x", "y"], "label": 2}\n',
    "choice.jsonl": b'{"context": "a", "choices": ["x"], "label": 0}\n',
    "pairs.csv": b"text,text_pair,label\ngood,film,5\nbad,play,1\n",
    "masked.csv": b"text\ngood\na [MASK]\n",
    "answers.jsonl": b'{"label": "a"}\n',
    "wrong-answers.jsonl": b'{"label": "a"}\n{"label": "q"}\n{"label": "a"}\n{"label": "b"}\n',
    "torn-answers.jsonl": b'{"label": "a"}\n{"label"\n{"label": "a"}\n{"label": "b"}\n',
    "odds.json": b"[]",
}  # fmt: skip
EVALUATE = "evaluate --task classification --data rows.csv --predictions "
KINDS = {
    "a missing file": (CLASSIFY + "nowhere.csv", "nowhere.csv", "no such file"),
    "a folder in place of a file": (CLASSIFY + "TINY", "a folder"),
    "an empty file": (CLASSIFY + "empty.csv", "empty.csv", "empty"),
    "a header and no row": (CLASSIFY + "header.csv", "header.csv", "no rows"),
    "another column": (CLASSIFY + "other.csv", 'no column "text"', "comment", "--text-column"),
    "another label column": (
        CLASSIFY + "other.csv --text-column comment", '"label"', "toxic", "--label-column",
    ),
    "a column that is misspelt": (
        CLASSIFY + "other.csv --text-column coment --label-column toxic", '"coment"', "comment",
    ),
    "two columns of one name": (CLASSIFY + "twice.csv", "twice.csv", "text"),
    "a row with too few fields": (SCORE + "short.csv", "short.csv:6"),
    "a row with too many fields": (SCORE + "long.csv", "long.csv:6"),
    "an unclosed quote": (SCORE + "quote.csv", "quote.csv:6", "quote"),
    "bytes that are not UTF-8": (SCORE + "latin.csv", "latin.csv:6", "UTF-8"),
    "UTF-16": (SCORE + "utf16.csv", "utf16.csv:1", "UTF-16"),
    "a NUL character": (SCORE + "nul.csv", "nul.csv:6", "NUL"),
    "a line without end": (SCORE + "huge.csv", "huge.csv:6", "limit is"),
    "semicolons for commas": (CLASSIFY + "semicolons.csv", "semicolons.csv", "text;label"),
    "a line of JSON that is torn": (SCORE + "torn.jsonl", "torn.jsonl:3"),
    "a line of JSON that is a list": (SCORE + "list.jsonl", "list.jsonl:3", "object"),
    "a text that is a number": (SCORE + "number.jsonl", "number.jsonl:3", "text"),
    "a row without its text": (SCORE + "missing.jsonl", "missing.jsonl:3", "text"),
    "a label that is an object": (
        TRAIN + "classification --train nested.jsonl", "nested.jsonl:3", "label",
    ),
    "an array of JSON": (SCORE + "array.json", "array.json:1", "JSON Lines"),
    "a Parquet file that is none": (CLASSIFY + "rows.parquet", "rows.parquet", "Parquet"),
    "a Parquet file with other columns": (CLASSIFY + "column.parquet", "column.parquet", "comment"),
    "a Parquet file with numbers for texts": (SCORE + "typed.parquet", "typed.parquet", "text"),
    "a Parquet file with a missing text": (SCORE + "null.parquet", "null.parquet:2", "text"),
    "a Parquet file without rows": (CLASSIFY + "none.parquet", "none.parquet", "no rows"),
    "gzip that is cut short": (SCORE + "rows.csv.gz", "rows.csv.gz", "gz"),
    "gzip that is none": (CLASSIFY + "plain.csv.gz", "plain.csv.gz", "gz"),
    "xz that is cut short": (SCORE + "rows.csv.xz", "rows.csv.xz", "xz"),
    "zst that is cut short": (SCORE + "rows.csv.zst", "rows.csv.zst", "zst"),
    "zst that is none": (CLASSIFY + "plain.csv.zst", "plain.csv.zst", "zst"),
    "bz2": (CLASSIFY + "rows.csv.bz2", "rows.csv.bz2", ".csv"),
    "a zip of rows": (CLASSIFY + "rows.zip", "rows.zip"),
    "a table of Excel": (CLASSIFY + "rows.xlsx", "rows.xlsx"),
    "stdin more than once": (CLASSIFY + "- -", "stdin"),
    "a score that is a word": (TRAIN + "regression --train scores.csv", "scores.csv:3", "much"),
    "a score that is no number": (TRAIN + "regression --train nan.csv", "nan.csv:3", "nan"),
    "a flag that is neither 0 nor 1": (
        TRAIN + "classification --train flags.csv --label-columns rude,kind",
        "flags.csv:3", "'2'", "rude",
    ),
    "label columns that there are not": (
        CLASSIFY + "flags.csv --label-columns rude,nice", "flags.csv", "nice",
    ),
    "a label that was not declared": (
        TRAIN + "classification --train rows.csv --labels a,c", "rows.csv:3", "'b'",
    ),
    "tags that break BIO": (
        TRAIN + "tagging --train orphan.conll", "orphan.conll:2", "I-x", "--repair-tags",
    ),
    "a sentence without tags": (TAG + "tags.conll", "tags.conll:4"),
    "tags that are not as many": (TAG + "unequal.jsonl", "unequal.jsonl:1", "2", "1"),
    "a span outside its text": (TAG + "outside.jsonl", "outside.jsonl:1", "9"),
    "a span that ends before it begins": (TAG + "crossed.jsonl", "crossed.jsonl:1"),
    "a classification for tagging": (TAG + "rows.csv", "rows.csv"),
    "an answer that is not in the context": (
        TRAIN + "span_qa --train squad.json", "squad.json:1", "answer_start 2",
    ),
    "questions that are torn": (ANSWER + "squad-torn.json", "squad-torn.json"),
    "questions of another shape": (ANSWER + "squad-other.json", "squad-other.json", "question"),
    "a choice that there is not": (CHOOSE + "choices.jsonl", "choices.jsonl:1", "2"),
    "one choice only": (CHOOSE + "choice.jsonl", "choice.jsonl:1", "choice"),
    "texts without pairs for vectors": ("check --task embedding rows.csv", "text_pair"),
    "a score that is not there": (
        TRAIN + "embedding --loss cosine --train rows.csv", "rows.csv", "text_pair",
    ),
    "fewer predictions than rows": (EVALUATE + "answers.jsonl", "answers.jsonl", "1", "4"),
    "a prediction of another label": (
        EVALUATE + "wrong-answers.jsonl", "wrong-answers.jsonl:2", "'q'",
    ),
    "a prediction that is torn": (EVALUATE + "torn-answers.jsonl", "torn-answers.jsonl:2"),
    "predictions that are not there": (EVALUATE + "nowhere.jsonl", "nowhere.jsonl"),
    "odds for no questions": (EVALUATE + "wrong-answers.jsonl --null-odds odds.json", "null"),
    # Words for the model to read
    "no text on stdin": ("predict FILM", "stdin"),
    "no text in a file": ("predict FILM empty.csv", "empty.csv"),
    "no rows to embed": ("embed TINY header.csv --out v.npy", "header.csv"),
    "another column to predict": ("predict FILM other.csv --text-column txt", '"txt"', "comment"),
    "a folder to predict": ("predict FILM TINY", "folder"),
    "a broken row in the middle of a stream": ("tokenize TINY latin.csv", "latin.csv:6", "UTF-8"),
    "no text to make a vocabulary of": (
        "vocab empty.csv --out out --kind wordpiece --size 99", "empty.csv",
    ),
    "no text to make a corpus of": ("corpus empty.csv --tokenizer TINY --out out", "empty.csv"),
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
