"""Symbols instead of text, through all verbs: what is no language has whole symbols as tokens."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import filbert
from filbert.cli.main import run
from filbert.data.instances import Instances
from filbert.data.masking import ObjectiveOptions
from filbert.data.records import read_rows
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, InputError
from filbert.text.tokenizer import Tokenizer

# Case, marks, WordPiece's prefix, accents, other scripts: each is one symbol, as it is written.
SYMBOLS = ["C++", "c++", "##x", "<b>", ".", "É", "é", "零", "!=", "7", "don't", "B12.1"]
SIZES = """
num_hidden_layers = 2
hidden_size = 16
num_attention_heads = 2
intermediate_size = 24
max_position_embeddings = 40
max_length = 32
batch_size = 8
steps = 3
device = "cpu"
"""


def write_rows(path: Path, count: int) -> Path:
    """Write symbols in order as a list, their numbers as a list of ids, and where they begin."""
    draw = random.Random(0)
    rows = []
    for _ in range(count):
        start = draw.randrange(len(SYMBOLS))
        numbers = [(start + step) % len(SYMBOLS) for step in range(draw.randint(5, 9))]
        row = {"tokens": [SYMBOLS[n] for n in numbers], "ids": numbers, "note": f"r{draw.random()}"}
        rows.append(row | {"label": ["low", "high"][start > 5]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, drawn: None) -> Path:
    """A folder with rows, their vocabulary, corpora of one stream and two, and models."""
    place = tmp_path_factory.mktemp("symbols")
    rows = write_rows(place / "rows.jsonl", 60)
    (place / "sizes.toml").write_text(SIZES)
    both = place / "both.jsonl"
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    both.write_text(
        "".join(json.dumps({"tokens": r[k]}) + "\n" for r in lines for k in ("tokens", "ids"))
    )
    column = "--text-column tokens"
    for words in (
        f"vocab {both} {column} --kind symbols --size 99 --out {place}/vocab",
        f"corpus {rows} {column} --tokenizer {place}/vocab --out {place}/corpus",
        f"corpus {rows} {column} --text-pair-column ids --tokenizer {place}/vocab"
        f" --out {place}/streams",
        f"pretrain {place}/sizes.toml --corpus {place}/streams --pair streams --out {place}/base",
        f"finetune --task classification --model {place}/base/model --data {rows} {column}"
        f" --text-pair-column ids --label-column label --epochs 1 --device cpu --out {place}/run",
    ):
        assert run(words.split()) == 0, words
    return place


def test_a_vocabulary_lists_whole_symbols_and_reads_them_as_transformers_does(made):
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.load(made / "vocab"), AutoTokenizer.from_pretrained(made / "vocab")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert ours.tokens(range(5)) == specials and ours.kind == "symbols"
    assert set(ours.tokens(range(5, ours.vocab_size))) == {*SYMBOLS, *map(str, range(12))}
    assert not (made / "vocab" / "vocab.txt").exists()  # which would be read as WordPiece
    text, pair = " ".join(SYMBOLS), "7 [MASK]  E \t unseen\n##x"
    encodings = ours.encode([text, (pair, text)])
    for encoding, texts in zip(encodings, [(text,), (pair, text)], strict=True):
        expected = theirs(*texts, return_token_type_ids=True)
        assert encoding.input_ids.tolist() == expected["input_ids"]
        assert encoding.token_type_ids.tolist() == expected["token_type_ids"]
    assert ours.tokens(encodings[0].input_ids) == ["[CLS]", *SYMBOLS, "[SEP]"]
    read = ours.tokens(encodings[1].input_ids)[:7]
    assert read == ["[CLS]", "7", "[MASK]", "[UNK]", "[UNK]", "##x", "[SEP]"]
    assert ours.decode(encodings[0].input_ids) == theirs.decode(theirs(text)["input_ids"][1:-1])


def test_the_rarest_symbols_are_unknown(tmp_path, call):
    (tmp_path / "text").write_text("b a a . c .\n\nb a . a a [MASK] [MASK]\n\nb\n")
    words = ("vocab", tmp_path / "text", "--kind", "symbols", "--out", tmp_path / "v")
    assert call(*words, "--size", 7).status == 0
    # One document of the three is withheld: a counts more than the full stop and b.
    assert Tokenizer.load(tmp_path / "v").tokens(range(5, 7))[0] == "a"
    assert call(*words, "--size", 5, "--overwrite").err.startswith("filbert: --size 5 is too small")


def test_a_corpus_keeps_rows_whole_and_two_streams_are_two_segments(made):
    corpus, tokenizer = Corpus.open(made / "streams"), Tokenizer.load(made / "vocab")
    counts = corpus.manifest["counts"]
    assert counts["unknown_tokens"] == 0 and counts["sentences"] == 2 * counts["documents"]
    options = ObjectiveOptions(pair="streams", max_length=32)
    examples = Instances(corpus, tokenizer, options, 0).examples(0, np.arange(2))
    row = json.loads((made / "rows.jsonl").read_text(encoding="utf-8").splitlines()[0])
    whole = examples[0].input_ids.copy()
    whole[examples[0].target.positions] = examples[0].target.labels
    size = len(row["tokens"])
    assert tokenizer.tokens(whole) == [
        "[CLS]", *row["tokens"], "[SEP]", *map(str, row["ids"]), "[SEP]"
    ]  # fmt: skip
    assert examples[0].token_type_ids.tolist() == [0] * (size + 2) + [1] * (size + 1)
    # Of streams that are too long, both keep what a pair of BERT keeps.
    short = Instances(corpus, tokenizer, ObjectiveOptions(pair="streams", max_length=9), 0)
    assert all(len(one.input_ids) == 9 for one in short.examples(0, np.arange(9)))
    one = Corpus.open(made / "corpus")
    with pytest.raises(InputError, match="Document 1 of the corpus does not have two lines"):
        Instances(one, tokenizer, options, 0)
    # ". É" would be the end of a sentence if it were running text.
    assert one.manifest["counts"]["sentences"] == one.manifest["counts"]["documents"]


def test_fill_gives_symbols_between_blanks_and_reads_two_streams(made, call):
    text = "C++[MASK] ##x [SEP] 0 [MASK] 2"
    done = call("fill", made / "base", text, "--top", 3, "--json")
    answer: dict[str, Any] = json.loads(done.out)
    known = set(Tokenizer.load(made / "vocab").tokens(range(28)))
    for mask in answer["candidates"]:
        assert len({one["token"] for one in mask} & known) == 3
    token = answer["candidates"][0][0]["token"]
    assert answer["candidates"][0][0]["sequence"] == f"C++ {token} ##x [SEP] 0 [MASK] 2"
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made / "base" / "model")
    model = AutoModelForMaskedLM.from_pretrained(made / "base" / "model").eval()
    batch = tokenizer("C++ [MASK] ##x", "0 [MASK] 2", return_tensors="pt")
    with torch.no_grad():
        scores = model(**batch).logits.softmax(-1)[0, batch["input_ids"][0] == 4]
    for mask, row in zip(answer["candidates"], scores, strict=True):
        assert [one["score"] for one in mask] == pytest.approx(
            row.topk(3).values.tolist(), rel=1e-4
        )


def test_predict_answers_rows_of_lists(made, call):
    run_json = json.loads((made / "run" / "run.json").read_text())
    assert {one["name"] for one in run_json["baselines"]} >= {"TF-IDF + logistic regression"}
    marks = [{"text": "+ -*", "label": "a"}, {"text": "- +", "label": "b"}] * 4
    given = {"task": "classification", "model": made / "base", "steps": 1, "device": "cpu"}
    bare = filbert.finetune(**given, train=marks, dev=marks, out=made / "marks")
    assert bare.facts["baselines"][0]["name"] == "TF-IDF + logistic regression"
    done = call("predict", made / "run", made / "rows.jsonl")
    answers = [json.loads(line) for line in done.out.splitlines()]
    rows = [json.loads(line) for line in (made / "rows.jsonl").read_text("utf-8").splitlines()]
    assert [one["num_tokens"] for one in answers] == [2 * len(row["ids"]) + 3 for row in rows]
    pairs = [(" ".join(row["tokens"]), " ".join(map(str, row["ids"]))) for row in rows]
    again = filbert.load(made / "run").predict(pairs)
    for one, printed in zip(again, answers, strict=True):
        assert one["scores"] == pytest.approx(printed["scores"], abs=1e-5)  # printed with 5 digits


@pytest.mark.parametrize("value", [["a", "b c"], ["a", ""], ["a", 1.5], [True], [None], [["a"]]])
def test_a_list_with_anything_else_is_refused(value, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": value}))
    with pytest.raises(InputError, match='rows.jsonl:1: "text" is a list with'):
        list(read_rows(tmp_path / "rows.jsonl", required=("text",)))


def test_the_rows_of_an_embedding_file_begin_as_there(made, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    known = ["É", "B12.1", "unseen"]
    lines = [" ".join([w, *map(str, v)]) for w, v in zip(known, vectors.tolist(), strict=True)]
    (tmp_path / "graph.txt").write_text("3 16\n" + "\n".join(lines) + "\n", encoding="utf-8")
    given = {"data": made / "rows.jsonl", "text_column": "tokens", "device": "cpu", "steps": 1}
    given |= {"task": "classification", "model": made / "base", "freeze": "encoder"}
    filbert.finetune(**given, out=tmp_path / "a", embeddings=tmp_path / "graph.txt")
    name = "bert.embeddings.word_embeddings.weight"
    before, after = (
        load_file(folder / "model" / "model.safetensors")[name]
        for folder in (made / "base", tmp_path / "a")
    )
    rows = [Tokenizer.load(made / "vocab").id_of(word) for word in known[:2]]
    assert np.array_equal(after[rows], vectors[:2])
    assert np.array_equal(np.delete(after, rows, 0), np.delete(before, rows, 0))
    (tmp_path / "graph.txt").write_text("É 1.0 2.0\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="vectors of 2 numbers, but the word table has 16"):
        filbert.finetune(**given, out=tmp_path / "b", embeddings=tmp_path / "graph.txt")
    (tmp_path / "graph.txt").write_text("unseen 1.0 2.0\n")
    with pytest.raises(InputError, match="no word in it is an entry"):
        filbert.pretrain(
            corpus=made / "corpus", out=tmp_path / "c", embeddings=tmp_path / "graph.txt"
        )
