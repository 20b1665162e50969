"""Word vectors for linear classifiers, and a BiGRU: text classifiers without attention.

N rows, F features; S texts in a batch, T words of the longest, E width of the word
vectors, H hidden size.

Sources: Cho et al. 2014, section 2.3 (GRU); Tompson et al. 2015, section 3.2 (SpatialDropout).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.word_vectors import WordVectors, read_vectors
from filbert.errors import ConfigError, RunError
from filbert.tasks.base import Prediction, Task, task_to_dict
from filbert.train.linear import dev_score, joined, words_of

if TYPE_CHECKING:
    from filbert.text.clean import Cleaning

# Words as in published vectors (Manning et al. 2014): "n't" and other contractions are words of
# their own, and so are punctuation marks.
_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|([^\w\s])\1{0,2}")
_PADDING, _UNKNOWN = 0, 1
_BATCH = 256  # rows per batch in prediction
_SPREAD = 0.1  # standard deviation of word vectors that are drawn without a file


class WordMeans:
    """Mean of the vectors of a text's words, each feature scaled to mean 0 and deviation 1.

    Args:
        texts: Training texts, which the scale is fitted on.
        words: In the order of the table.
        table: float32 (words, F).
    """

    def __init__(self, texts: Sequence[str], words: Sequence[str], table: np.ndarray) -> None:
        self.words, self.table = list(words), table
        self._rows = {word: at for at, word in enumerate(self.words)}
        means = self.means(texts)
        deviation = means.std(0)
        self.mean, self.deviation = means.mean(0), np.where(deviation, deviation, 1.0)

    @property
    def num_parameters(self) -> int:
        """Number of values in the table."""
        return int(self.table.size)

    def means(self, texts: Sequence[str]) -> np.ndarray:
        """Return the means, float64 (N, F); zeros for a text without a known word."""
        means = np.zeros((len(texts), self.table.shape[1]))
        for at, text in enumerate(texts):
            known = [self._rows[w] for w in words_of(text) if w in self._rows]
            if known:
                means[at] = self.table[known].mean(0)
        return means

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """Return the scaled means."""
        scaled: np.ndarray = (self.means(texts) - self.mean) / self.deviation
        return scaled

    def save(self, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        """Add the words to the JSON and the vectors to the tensors."""
        facts |= {"features": "word means", "words": self.words}
        tensors |= {"table": self.table, "mean": self.mean, "deviation": self.deviation}


def word_means(
    train: Sequence[str], every: Sequence[str], *, vectors: str | None, model: str | None
) -> WordMeans:
    """Return the means of the vectors of words, from a file or from an encoder.

    Args:
        train: Cleaned training texts.
        every: Cleaned texts of all splits, whose words are looked up in the file.
        vectors: A GloVe or word2vec text file.
        model: Without a file, an encoder; a word's vector is the mean of its tokens' rows in the
            embedding table.

    Raises:
        ConfigError: The file has none of the words of the training texts.
        InputError, FormatError: The file or the model is damaged.
    """
    words = sorted({word for text in train for word in words_of(text)})
    if vectors is None:
        assert model is not None
        return WordMeans(train, words, _of_model(words, model))
    known = _known_vectors(vectors, {w for text in every for w in words_of(text)}, words)
    return WordMeans(train, known.words, np.asarray(known.table, dtype=np.float32))


def _known_vectors(path: str, wanted: set[str], words: Sequence[str]) -> WordVectors:
    known = read_vectors(Path(path), wanted)
    if set(words).isdisjoint(known.words):
        raise ConfigError(
            f"{path} has none of the {len(words):,} words of the training texts. Is it of this "
            "language, and in lower case?"
        )
    return known


def _of_model(words: Sequence[str], model: str) -> np.ndarray:
    """Return float32 (words, embedding size)."""
    from filbert.checkpoints.opening import find_model, read_checkpoint, read_tokenizer

    place = find_model(model)
    table = read_checkpoint(place).tensors["encoder.embeddings.word.weight"].float().numpy()
    vectors = np.zeros((len(words), table.shape[1]), dtype=np.float32)
    for at, encoding in enumerate(read_tokenizer(place).encode(list(words), max_length=64)):
        # Without the special tokens at both ends.
        pieces = encoding.input_ids[1:-1]
        if len(pieces):
            vectors[at] = table[pieces].mean(0)
    return vectors


class Network(nn.Module):
    """Word vectors, a bidirectional GRU, pooling over the words, and a linear layer."""

    def __init__(self, vocab_size: int, num_labels: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.dropout = float(options["dropout"])
        self.words = nn.Embedding(vocab_size, options["dim"])
        self.gru = nn.GRU(options["dim"], options["hidden"], batch_first=True, bidirectional=True)
        self.out = nn.Linear(4 * options["hidden"], num_labels)

    def forward(self, words_ST: Tensor, lengths_S: Tensor) -> Tensor:
        """Return logits, (S, labels). Texts are padded at their end."""
        vectors_STE = self.words(words_ST)
        # Whole elements of a text's vectors are dropped: its words share them.
        vectors_STE = F.dropout1d(vectors_STE.mT, self.dropout, self.training).mT
        packed = pack_padded_sequence(
            vectors_STE, lengths_S, batch_first=True, enforce_sorted=False
        )
        states_STH, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        padding_ST1 = (words_ST == _PADDING)[..., None]
        mean = states_STH.masked_fill(padding_ST1, 0).sum(1) / lengths_S[:, None]
        text = torch.cat([mean, states_STH.masked_fill(padding_ST1, -math.inf).amax(1)], -1)
        return self.out(F.dropout(text, self.dropout / 2, self.training))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BiGRU:
    """A trained classifier; `words` maps to ids."""

    task: Task
    network: Network
    words: dict[str, int]
    options: dict[str, Any]
    cleaning: Cleaning | None = None

    @property
    def num_parameters(self) -> int:
        """Number of parameters, word vectors included."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Return predictions in the shape of all tasks, in order."""
        return self.task.decode(*self.outputs(rows))

    def save(self, folder: Path) -> None:
        """Write bigru.json and bigru.safetensors."""
        from safetensors.torch import save_file

        cleaning = None if self.cleaning is None else self.cleaning.names
        facts = {"task": task_to_dict(self.task), "options": self.options, "cleaning": cleaning}
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.network.state_dict(), folder / "bigru.safetensors")
        text = json.dumps(facts | {"words": list(self.words)})
        (folder / "bigru.json").write_text(text + "\n", encoding="utf-8")

    @torch.inference_mode()
    def outputs(self, rows: Sequence[Row]) -> tuple[list[Tensor], list[Example]]:
        """Return logits, float64 (C,) each, and examples that hold the number of words read."""
        texts = [joined(row, self.cleaning) for row in rows]
        ids = _encode(texts, self.words, self.options["max_length"])
        counts = [sum(1 for _ in _WORD.finditer(text)) for text in texts]
        logits: list[Any] = [None] * len(ids)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            batch = self.network(*_batch([ids[row] for row in part])).double()
            for row, row_logits in zip(part, batch, strict=True):
                logits[row] = row_logits
        # The examples only carry how many words a text has and how many were read.
        read = [np.zeros(len(words)) for words in ids]
        return logits, [Example(at, read[at], read[at], n) for at, n in enumerate(counts)]


def fit_bigru(
    task: Task,
    options: dict[str, Any],
    *,
    train: tuple[Sequence[str], Sequence[Row]],
    dev: Sequence[Row],
    seed: int,
    cleaning: Cleaning | None = None,
    started: float | None = None,
) -> tuple[BiGRU, float]:
    """Train with Adam; keep the epoch that is best on dev, calibrate on dev.

    Args:
        options: Those of `recipe.BiGRUOptions`.
        train: Cleaned texts and their labelled rows.
        started: Value of time.perf_counter() before training was prepared; by default now.

    Returns:
        The classifier, and the seconds of its training without the evaluations on dev.
    """
    started = time.perf_counter() if started is None else started
    texts, rows = train
    torch.manual_seed(seed)
    words, table = _vocabulary(texts, options, seed)
    network = Network(len(words), task.spec.num_labels or 0, options)
    network.words.weight.data.copy_(table)
    ids = _encode(texts, words, options["max_length"])
    gold = torch.tensor([task.gold(row) for row in rows])
    optimizer = torch.optim.Adam(network.parameters(), lr=options["lr"])
    size = options["batch_size"]
    num_steps = options["steps"] or max(1, round(options["epochs"] * math.ceil(len(ids) / size)))
    per_epoch = min(num_steps, math.ceil(len(ids) / size))
    wanted = [task.gold(row) for row in dev]
    model = BiGRU(task, network, words, options, cleaning)
    best: tuple[float, dict[str, Any]] | None = None
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    draw, order = np.random.default_rng(seed), list[int]()
    for step in range(1, num_steps + 1):
        order = order or draw.permutation(len(ids)).tolist()
        part, order = order[:size], order[size:]
        network.train()
        loss = F.cross_entropy(network(*_batch([ids[row] for row in part])), gold[part])
        if not loss.isfinite():
            raise RunError(f"The loss is {loss.item()} at step {step}; take a smaller lr.")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % per_epoch and step < num_steps:
            continue
        seconds += time.perf_counter() - started
        network.eval()
        value = dev_score(task, wanted, model.predict_rows(dev))
        if best is None or value > best[0]:
            best = (value, deepcopy(network.state_dict()))
        started = time.perf_counter()
    assert best is not None
    network.load_state_dict(best[1])
    return replace(model, task=task.calibrate(wanted, *model.outputs(dev))), seconds


def _vocabulary(
    texts: Sequence[str], options: Mapping[str, Any], seed: int
) -> tuple[dict[str, int], Tensor]:
    """Return ids of the most frequent words, and their vectors."""
    counts = Counter(m[0] for text in texts for m in _WORD.finditer(text.lower()))
    frequent = [word for word, count in counts.items() if count >= options["min_count"]]
    frequent.sort(key=lambda word: (-counts[word], word))
    if not frequent:
        raise ConfigError(f"No word occurs {options['min_count']} times in the training texts.")
    listed = ["[PAD]", "[UNK]", *frequent[: options["max_words"] - 2]]
    words = {word: at for at, word in enumerate(listed)}
    shape = (len(words), options["dim"])
    table = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * _SPREAD
    if options["vectors"] is not None:
        known = _known_vectors(options["vectors"], set(words), frequent)
        # Words without a vector are drawn with the standard deviation of the others.
        table *= known.table.std() / _SPREAD
        table[[words[word] for word in known.words]] = known.table
    return words, torch.from_numpy(table)


def _encode(texts: Sequence[str], words: Mapping[str, int], limit: int) -> list[list[int]]:
    """Return the ids of each text's words; an empty text is one unknown word."""
    rows = ([words.get(m[0], _UNKNOWN) for m in _WORD.finditer(t.lower())] for t in texts)
    return [ids[:limit] or [_UNKNOWN] for ids in rows]


def _batch(ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(words) for words in ids])
    padded = pad_sequence([torch.tensor(words) for words in ids], batch_first=True)
    return padded, lengths
