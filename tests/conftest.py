"""What all tests may use: the shared real data, and a vocabulary small enough to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from filbert.text.tokenizer import Tokenizer

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "film",
    "was",
    "not",
    "very",
    "good",
    "bad",
    "and",
    "he",
    "she",
    "it",
    "to",
    "see",
    "great",
    "##ly",
    "##ing",
    "##ed",
    "##s",
    "play",
    "run",
    ",",
    ".",
    "!",
    "?",
    "'",
    "1",
    "2",
    "3",
]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; tests that need it are skipped without it."""
    folder = Path(__file__).parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip("the shared data is not here")
    return folder.resolve()


@pytest.fixture(scope="session")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocab.txt of 35 uncased entries: [PAD] [UNK] [CLS] [SEP] [MASK] the a ..."""
    folder = tmp_path_factory.mktemp("vocab")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(vocab: Path) -> Tokenizer:
    """The tokenizer of the `vocab` fixture."""
    return Tokenizer.load(vocab)
