"""Text into shards: the same bytes whatever happens on the way."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tests.corpora import documents_of

from filbert import files
from filbert.data import build, documents
from filbert.data.build import CorpusOptions, build_corpus
from filbert.data.shards import Corpus, verify_shard
from filbert.errors import ConfigError, FormatError, InputError
from filbert.text.tokenizer import Tokenizer

WORDS = ["the", "film", "was", "not", "very", "good", "he", "it", "play", "great"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(documents, "BLOCK_CHARACTERS", 1000)
    monkeypatch.setattr(build, "SHARD_TOKENS", 600)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """400 documents; one in ten is there twice, and so are many of the lines."""
    draw = random.Random(0)
    documents = []
    for _ in range(400):
        if documents and draw.random() < 0.1:
            documents.append(draw.choice(documents))
            continue
        lines = []
        for _ in range(draw.randint(1, 4)):
            words = draw.choices(WORDS, k=draw.randint(2, 9))
            lines.append(" ".join(words) + ". The film ended!")
        documents.append("\n".join(lines))
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text("\n\n".join(documents))
    return path


@pytest.fixture(scope="module")
def whole(text, tiny, tmp_path_factory) -> dict[str, str]:
    """The hashes of an uninterrupted build by one worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "BLOCK_CHARACTERS", 1000)
        patch.setattr(build, "SHARD_TOKENS", 600)
        out = tmp_path_factory.mktemp("whole")
        build_corpus([text], tiny, out)
    found = hashes(out)
    assert len(found) > 20
    return found


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sentences_of(corpus: Corpus, tokenizer: Tokenizer) -> list[list[str]]:
    documents = documents_of(corpus)
    return [[" ".join(tokenizer.tokens(one)) for one in document] for document in documents]


def built(tmp_path: Path, tiny: Tokenizer, content: str, **options) -> tuple[list, dict[str, int]]:
    (tmp_path / "a.txt").write_text(content)
    given = CorpusOptions(**options)
    done = build_corpus([tmp_path / "a.txt"], tiny, tmp_path / "out", options=given)
    return sentences_of(Corpus.open(tmp_path / "out"), tiny), done.manifest["counts"]


def test_tokens_sentences_and_documents_are_those_of_the_text(tmp_path, tiny):
    found, counts = built(tmp_path, tiny, "He was good. She was bad!\nIt was a play.\n\nThe film?")
    assert found == [["he was good .", "she was bad !", "it was a play ."], ["the film ?"]]
    assert (counts["documents"], counts["sentences"], counts["tokens"]) == (2, 4, 16)


def test_a_line_is_a_sentence_when_asked(tmp_path, tiny):
    found, _ = built(tmp_path, tiny, "he was good. She was bad!\nit", sentences="lines")
    assert found == [["he was good . she was bad !", "it"]]


def test_what_gives_no_token_disappears_and_is_counted(tmp_path, tiny):
    found, counts = built(tmp_path, tiny, "\u200b\n\nhe\n\u200b\nshe\n\n\u200b\n\u200b\n\u200b\n")
    assert found == [["he", "she"]]
    assert counts["documents_without_tokens"] == 2
    assert counts["sentences_without_tokens"] == 5


def test_equal_documents_are_dropped_and_counted(tmp_path, tiny):
    found, counts = built(tmp_path, tiny, "he\nit\n\nhe\nit\n\nit\nshe\n")
    assert found == [["he", "it"], ["it", "she"]]
    assert counts["duplicate_documents"] == 1


def test_half_a_surrogate_pair_from_json_is_an_unknown_character(tmp_path, tiny):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "he \\ud800 she"}')
    build_corpus([path], tiny, tmp_path / "out")
    assert Corpus.open(tmp_path / "out").num_tokens >= 2


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_writes_the_same_bytes(tmp_path, tiny, text, whole, workers):
    build_corpus([text], tiny, tmp_path / "out", workers=workers)
    assert hashes(tmp_path / "out") == whole


def test_a_kill_at_any_write_leaves_no_trace_in_the_result(
    tmp_path, tiny, text, whole, monkeypatch
):
    class Killed(BaseException):
        pass

    calls = count()
    real = os.fsync

    def stop_at(number: int):
        seen = count()

        def fsync(descriptor: int) -> None:
            next(calls)
            if next(seen) == number:
                raise Killed
            real(descriptor)

        return fsync

    out = tmp_path / "out"
    kills = 0
    draw = random.Random(1)
    while True:
        monkeypatch.setattr(os, "fsync", stop_at(draw.randint(0, 25)))
        try:
            build_corpus([text], tiny, out)
            break
        except Killed:
            kills += 1
    assert kills > 4, next(calls)
    assert hashes(out) == whole


def test_kill_9_at_random_moments_leaves_no_trace_in_the_result(tmp_path, text, vocab, whole):
    kills = 1
    out = tmp_path / "out"
    code = (
        "import sys\n"
        "from filbert.data import build, documents\n"
        "from filbert.text.tokenizer import Tokenizer\n"
        "documents.BLOCK_CHARACTERS = 1000\n"
        "build.SHARD_TOKENS = 600\n"
        f"build.build_corpus([{str(text)!r}], Tokenizer.load({str(vocab)!r}), {str(out)!r},\n"
        "    workers=2, on_progress=lambda *_: print('.', flush=True))\n"
    )
    draw = random.Random(2)
    for number in range(kills + 1):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if number < kills:
                for _ in range(draw.randint(0, 12)):
                    process.stdout.readline()
                process.kill()
            process.stdout.read()
    assert process.returncode == 0
    assert hashes(out) == whole


def test_another_corpus_is_not_touched_unless_asked(tmp_path, tiny, text, whole):
    out = tmp_path / "out"
    build_corpus([text], tiny, out, options=CorpusOptions(sentences="lines"))
    before = hashes(out)
    with pytest.raises(ConfigError, match="other --sentences"):
        build_corpus([text], tiny, out)
    (tmp_path / "b.txt").write_text("he")
    with pytest.raises(ConfigError, match="other input files"):
        build_corpus([tmp_path / "b.txt"], tiny, out, options=CorpusOptions(sentences="lines"))
    assert hashes(out) == before
    build_corpus([text], tiny, out, overwrite=True)
    assert hashes(out) == whole


def test_a_shard_that_was_changed_is_named_and_can_be_built_anew(tmp_path, tiny, text, whole):
    out = tmp_path / "out"
    build_corpus([text], tiny, out)
    tokens = out / "shard-00001/tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-1] + b"\x07")
    with pytest.raises(FormatError, match="tokens.npy has changed"):
        build_corpus([text], tiny, out)
    build_corpus([text], tiny, out, overwrite=True)
    assert hashes(out) == whole


def test_a_bad_line_stops_the_build(tmp_path, tiny):
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_bytes(b"he\n\nsh\xe9\n\nit\n")
    with pytest.raises(InputError, match="a.txt:3: the byte 0xE9 "):
        build_corpus([path], tiny, out)
    path.write_bytes(b"he\n\nshe\n\nit\n")
    assert build_corpus([path], tiny, out).manifest["counts"]["documents"] == 3


def test_two_builds_do_not_write_to_one_folder(tmp_path, tiny, text):
    with (
        files.locked(tmp_path / "out"),
        pytest.raises(ConfigError, match="another filbert is writing there"),
    ):
        build_corpus([text], tiny, tmp_path / "out")


def test_the_manifest_says_what_the_corpus_was_made_from(tmp_path, tiny, text):
    manifest = build_corpus([text], tiny, tmp_path / "out").manifest
    assert manifest["tokenizer"] == tiny.fingerprint
    assert Tokenizer.load(tmp_path / "out/tokenizer").fingerprint == tiny.fingerprint
    sha = hashlib.sha256(text.read_bytes()).hexdigest()
    assert manifest["inputs"] == [{"path": str(text), "sha256": sha, "bytes": text.stat().st_size}]
    corpus = Corpus.open(tmp_path / "out")
    for shard in corpus.manifest["shards"]:
        verify_shard(corpus.folder, shard)
    assert (
        corpus.num_tokens
        == manifest["counts"]["tokens"]
        == sum(len(np.load(path)) for path in (tmp_path / "out").glob("shard-*/tokens.npy"))
    )
    assert build.PROGRESS not in os.listdir(tmp_path / "out")


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("150000 100000", 2), ("10000 100000", 1), ("max 100000", 8), ("9900000 100000", 8)],
)
def test_cores_are_those_that_a_container_s_share_fills(quota, cores, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(files, "_CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(files.os, "sched_getaffinity", lambda process: set(range(8)))
    assert files.available_cores() == cores
