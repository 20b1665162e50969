"""Vocabularies are learnt as their definitions say, the same everywhere, in the memory allowed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from filbert.errors import ConfigError, InputError
from filbert.text import learning
from filbert.text.learning import (
    KINDS,
    LearnOptions,
    WordCounter,
    learn,
    learn_merges,
    memory_needed,
)
from filbert.text.unigram import _candidates, _expected, learn_pieces

LINES = [
    "The  old man   saw the sea, the old sea.",
    "\tÉlan vital; naïve façade — don't WE'LL  1999,2000 中文字符 ok",
    "Tabs\there and \u00a0 no-break \u3000 wide; ``quotes''",
    "x  ",
    "ΌΔΟΣ ΌΔΟΣ. a\u0301 ▁ ## [MASK]",
]


def corpus(num_documents: int, seed: int = 0) -> list[list[str]]:
    """Documents of two lines, of words put together from syllables."""
    pick = random.Random(seed)
    syllables = ["ba", "den", "ti", "lo", "mer", "sun", "wa", "ky", "ro", "fi", "ste", "ung"]
    words = ["".join(pick.choices(syllables, k=pick.randint(1, 4))) for _ in range(600)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    return [
        [" ".join(pick.choices(words, weights, k=12)).capitalize() + "." for _ in range(2)]
        for _ in range(num_documents)
    ]


def learnt(documents: list[list[str]], kind: str = "wordpiece", size: int = 400, **options):
    return learn(lambda: documents, LearnOptions(kind=kind, size=size, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cased", [False, True])
def test_words_are_counted_as_the_finished_tokenizer_splits_whole_lines(kind, cased):
    counter = WordCounter(kind, cased=cased)
    counter.add(LINES)
    counter.settle()
    backend = learnt(corpus(300), kind, cased=cased).tokenizer.backend
    expected: Counter[str] = Counter()
    for line in LINES:
        text = backend.normalizer.normalize_str(line) if backend.normalizer else line
        expected.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    assert counter.counts == expected
    assert counter.num_characters == sum(map(len, expected))


def test_the_most_frequent_neighbours_are_joined_first():
    counts = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
    tokens = sorted(set("".join(counts)))
    ids = {token: number for number, token in enumerate(tokens)}
    words = [([ids[c] for c in word], count) for word, count in counts.items()]
    merges = learn_merges(words, tokens, size=len(tokens) + 4, min_count=2)
    # u+g 20, u+n 16, h+ug 15; then p+un 12, hug+s 5
    assert merges == [("u", "g"), ("u", "n"), ("h", "ug"), ("p", "un")]
    assert tokens[-4:] == ["ug", "un", "hug", "pun"]


def test_of_equally_frequent_neighbours_those_with_smaller_ids_are_joined():
    words = [([2, 3], 5), ([0, 1], 5)]
    assert learn_merges(words, list("abcd"), size=5, min_count=1) == [("a", "b")]


def test_counts_of_neighbours_stay_right_through_hundreds_of_merges():
    pick = random.Random(3)
    plain = {
        "".join(pick.choices("aab", k=pick.randint(1, 9))): pick.randint(1, 9) for _ in "x" * 60
    }
    tokens = ["a", "b"]
    words = [([tokens.index(c) for c in word], count) for word, count in plain.items()]
    merges = learn_merges(words, tokens, size=60, min_count=1)
    slow = [(list(word), count) for word, count in plain.items()]
    known = ["a", "b"]
    for merge in merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in slow:
            for pair in pairwise(word):
                pairs[pair] += count
        assert merge == min(pairs, key=lambda p: (-pairs[p], known.index(p[0]), known.index(p[1])))
        for word, _ in slow:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == merge:
                    word[at : at + 2] = ["".join(merge)]
                at += 1
        if "".join(merge) not in known:
            known.append("".join(merge))
    assert len(merges) > 30


def test_expected_uses_are_those_over_all_segmentations():
    counts = {"abab": 3, "aba": 2, "b": 4, "bbab": 2}
    lattice, _ = _candidates(counts, ["a", "b"], 100, 2)
    chance = np.linspace(0.1, 0.9, len(lattice.texts))
    known = dict(zip(lattice.texts, chance, strict=True))

    def ways(rest: str) -> list[list[str]]:
        if not rest:
            return [[]]
        return [
            [rest[:n], *way]
            for n in range(1, len(rest) + 1)
            if rest[:n] in known
            for way in ways(rest[n:])
        ]

    expected: Counter[str] = Counter()
    for word, count in counts.items():
        all_ways = ways(word)
        weights = [np.prod([known[piece] for piece in way]) for way in all_ways]
        for way, weight in zip(all_ways, weights, strict=True):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    found = dict(zip(lattice.texts, _expected(lattice, chance), strict=True))
    assert len(found) > 6
    # Both sum the same float64 terms in different order.
    assert found == pytest.approx(dict(expected), rel=1e-12)


def test_unigram_pieces_stay_in_one_script_and_begin_a_word_or_not():
    counts = {"▁abc,": 50, "▁ab1": 50, "▁abжж": 50, "▁abc": 50}
    pieces = dict(learn_pieces(counts, sorted(set("".join(counts))), size=40, min_count=2))
    assert {"▁abc", "жж"} <= pieces.keys()
    assert not {"c,", "b1", "bж"} & pieces.keys()
    assert all("▁" not in piece[1:] for piece in pieces)


def test_special_tokens_have_the_ids_of_the_published_models():
    bert = learnt(corpus(200)).tokenizer
    assert bert.tokens(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    roberta = learnt(corpus(200), "bytebpe").tokenizer
    assert roberta.tokens(range(4)) == ["<s>", "<pad>", "</s>", "<unk>"]
    assert roberta.mask_id == roberta.vocab_size - 1 == 399
    albert = learnt(corpus(200), "unigram").tokenizer
    assert albert.tokens(range(5)) == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    for tokenizer in (bert, roberta, albert):
        row = tokenizer.encode(["Baden loti."])[0].input_ids
        assert (row[0], row[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
        assert tokenizer.decode(row).strip().lower() == "baden loti."


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_cased_keeps_case_and_accents_and_uncased_neither(kind):
    documents = [["Élan Élan élan elan"] * 3] * 4
    for cased in (False, True):
        tokenizer = learnt(documents, kind, 60, cased=cased).tokenizer
        rows = [tuple(found.input_ids) for found in tokenizer.encode(["Élan", "élan", "elan"])]
        assert len(set(rows)) == (3 if cased else 1)
        assert not any(tokenizer.unk_id in row for row in rows)


SCRIPT = """
import sys, hashlib
from filbert.text.learning import LearnOptions, learn
sys.path.insert(0, sys.argv[1])
from test_learning import corpus
documents = corpus(300)
for kind in ("wordpiece", "bytebpe", "unigram"):
    found = learn(lambda: documents, LearnOptions(kind=kind, size=500))
    found.tokenizer.save(f"{sys.argv[2]}/{kind}")
"""


def test_every_process_with_any_hash_seed_and_thread_count_writes_the_same_bytes(tmp_path):
    written = []
    for seed, threads in (("1", "1"), ("2", "2")):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment[name] = threads
        folder = tmp_path / seed
        here = os.path.dirname(__file__)
        subprocess.run(
            [sys.executable, "-c", SCRIPT, here, str(folder)], env=environment, check=True
        )
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        written.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert len(written[0]) >= 10
    assert written[0] == written[1]


def many_words(num_documents: int) -> list[list[str]]:
    """Documents that share no word: 50 random ones each."""
    pick = random.Random(0)
    return [
        [" ".join("".join(pick.choices("abcdefgh", k=9)) for _ in range(50))]
        for _ in range(num_documents)
    ]


def test_beyond_the_memory_the_rarest_words_are_dropped(monkeypatch):
    frequent = [[" ".join(f"word{n % 20}" for n in range(50))]] * 50
    monkeypatch.setattr(learning, "_WAITING", 100)
    monkeypatch.setattr(learning, "MAX_MEMORY", memory_needed("wordpiece", 1000, 9 * 1000))
    found = learnt([*frequent, *many_words(100), *frequent], size=100)
    assert found.report["corpus"]["dropped_count"] >= 1
    assert found.report["corpus"]["different_words"] <= 1000
    # The frequent words were never dropped.
    counter, *_ = learning.count_words(
        lambda: [*frequent, *many_words(100)],
        LearnOptions(kind="wordpiece", size=100),
        progress=lambda what, done: None,
    )
    assert {f"word{n}" for n in range(20)} <= counter.counts.keys()


MEMORY_SCRIPT = """
import random, sys
from pathlib import Path
from filbert.text import learning
from filbert.text.learning import LearnOptions, learn
def documents():
    pick = random.Random(0)
    for _ in range(2000):
        yield [" ".join("".join(pick.choices("abcdefghijklm", k=9)) for _ in range(100))]
learning.MAX_MEMORY = int(sys.argv[2])
found = learn(documents, LearnOptions(kind=sys.argv[1], size=300))
# Not getrusage: its peak includes the process that this one was forked from.
status = Path("/proc/self/status").read_text()
dropped = found.report["corpus"]["dropped_count"]
print(dropped, 1024 * int(status.split("VmHWM:")[1].split()[0]))
"""


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_the_whole_process_stays_within_the_memory_that_was_allowed(kind):
    if not os.path.exists("/proc/self/status"):
        pytest.skip("no /proc here to ask for the peak")
    bound = memory_needed(kind, 20_000, 9 * 20_000)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT, kind, str(bound)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    dropped, peak = map(int, done.stdout.split())
    assert dropped >= 1
    assert peak <= bound


def test_one_document_in_a_hundred_is_kept_back_and_never_learnt_from():
    found = learnt(corpus(1000))
    counts = found.report["corpus"]
    assert 3 <= counts["held_out_documents"] <= 20
    assert counts["documents"] == 1000
    assert found.report["fit"]["num_words"] == 24 * counts["held_out_documents"]


def test_of_two_documents_one_is_kept_back_and_of_one_none():
    two = [["aa bb aa bb"] * 3, ["cc dd cc dd"] * 3]
    found = learnt(two, size=40).report
    counts = found["corpus"]
    assert (counts["held_out_documents"], counts["documents"]) == (1, 2)
    assert counts["different_words"] == 2
    assert found["fit"]["unknown_rate"] == 1.0
    assert learnt(two[:1], size=40).report["fit"] is None


def test_rare_characters_get_no_entry():
    found = learnt([["aaa bbb ccc zq", "aaa bb"] * 2 + ["aaa bbb ccc x"]], size=30)
    counts = found.report["corpus"]
    assert counts["alphabet"] == 5 and counts["rare_characters_left_out"] == 1
    assert found.tokenizer.id_of("x") is None and found.tokenizer.id_of("##b") is not None


def test_wrong_input_and_options_are_refused_with_a_sentence():
    with pytest.raises(InputError, match="holds no text"):
        learnt([])
    with pytest.raises(ConfigError, match="--size 20 is too small: 5 special tokens and 1. char"):
        learnt(corpus(50), size=20)
    with pytest.raises(ConfigError, match="--size 100 is too small: 5 special tokens and 256"):
        learnt(corpus(50), "bytebpe", 100)
    with pytest.raises(ConfigError, match="--size 9 is too small"):
        learnt(corpus(50), "unigram", 9)
    with pytest.raises(ConfigError, match="--kind bpe is not one of wordpiece"):
        learnt(corpus(50), "bpe")
    with pytest.raises(ConfigError, match="--min-count is 0"):
        learnt(corpus(50), min_count=0)
