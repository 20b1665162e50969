"""A bidirectional GRU over word vectors: the contestant without attention and pre-training.

S texts in the batch, T words of the longest, E width of the word vectors, H hidden size.

Source: Cho et al. 2014, section 2.3 (GRU); Tompson et al. 2015, section 3.2 (SpatialDropout).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from filbert.compare.costs import Effort, Watch
from filbert.compare.linear import joined
from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.data.word_vectors import read_vectors
from filbert.errors import ConfigError, RunError
from filbert.tasks.base import Prediction, Task, task_to_dict
from filbert.text.clean import Cleaning

# Words as in published vectors (Manning et al. 2014): "n't" and other contractions are words of
# their own, and so are punctuation marks.
_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+|([^\w\s])\1{0,2}")
_PADDING, _UNKNOWN = 0, 1
_BATCH = 256  # texts of a batch in prediction
_SPREAD = 0.1  # standard deviation of word vectors that are drawn without a file


class Network(nn.Module):
    """Word vectors, a bidirectional GRU, pooling over the words, and a linear layer."""

    def __init__(self, vocab_size: int, num_labels: int, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.dropout, self.pooling = float(options["dropout"]), str(options["pooling"])
        width = 2 * options["hidden"]
        self.words = nn.Embedding(vocab_size, options["dim"])
        self.gru = nn.GRU(options["dim"], options["hidden"], batch_first=True, bidirectional=True)
        self.out = nn.Linear(width * len(self.pooling.split("+")), num_labels)

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
        pooled = {
            "mean": states_STH.masked_fill(padding_ST1, 0).sum(1) / lengths_S[:, None],
            "max": states_STH.masked_fill(padding_ST1, -math.inf).amax(1),
        }
        text = torch.cat([pooled[name] for name in self.pooling.split("+")], -1)
        return self.out(F.dropout(text, self.dropout / 2, self.training))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BiGRU:
    """A trained classifier; `words` maps to ids, `num_with_vectors` of them are in the file."""

    task: Task
    network: Network
    words: dict[str, int]
    options: dict[str, Any]
    num_with_vectors: int = 0
    cleaning: Cleaning | None = None

    @property
    def num_parameters(self) -> int:
        """Number of parameters, word vectors included."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Return predictions in the shape of all tasks, in order."""
        return self.task.decode(*self._outputs(rows))

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
    def _outputs(self, rows: Sequence[Row]) -> tuple[list[Tensor], list[Example]]:
        texts = [joined(row, self.cleaning) for row in rows]
        ids = _encode(texts, self.words, self.options["max_length"])
        counts = [sum(1 for _ in _WORD.finditer(text)) for text in texts]
        logits: list[Tensor] = [torch.empty(0)] * len(ids)
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            found = self.network(*_batch([ids[row] for row in part])).double()
            for row, row_logits in zip(part, found, strict=True):
                logits[row] = row_logits
        # Stand-ins that hold how many words a text has and how many were read.
        read = [np.zeros(len(words)) for words in ids]
        return logits, [Example(at, read[at], read[at], n) for at, n in enumerate(counts)]


def fit_bigru(
    task: Task,
    options: dict[str, Any],
    train: tuple[Sequence[str], Sequence[Row]],
    dev: Sequence[Row],
    *,
    seed: int,
    cleaning: Cleaning | None = None,
    watch: Watch | None = None,
) -> tuple[BiGRU, Effort]:
    """Train with Adam; keep the epoch that is best on dev, calibrate on dev.

    Args:
        options: `contestant_options.BIGRU`, all of them.
        train: Cleaned texts and their labelled rows.
        watch: Started before training was prepared.

    Returns:
        The classifier, and the effort of its training without the evaluations on dev.
    """
    watch = watch or Watch()
    texts, rows = train
    torch.manual_seed(seed)
    words, table, num_with_vectors = _vocabulary(texts, options, seed)
    network = Network(len(words), task.spec.num_labels or 0, options)
    network.words.weight.data.copy_(table)
    ids = _encode(texts, words, options["max_length"])
    gold = torch.tensor([task.gold(row) for row in rows])
    optimizer = torch.optim.Adam(network.parameters(), lr=options["lr"])
    size = options["batch_size"]
    num_steps = options["steps"] or max(1, round(options["epochs"] * math.ceil(len(ids) / size)))
    per_epoch = min(num_steps, math.ceil(len(ids) / size))
    wanted = [task.gold(row) for row in dev]
    model = BiGRU(task, network, words, options, num_with_vectors, cleaning)
    best: tuple[float, dict[str, Any]] | None = None
    effort, watch = watch.so_far(), Watch()
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
        effort += watch.so_far()
        network.eval()
        score = task.metrics(wanted, model.predict_rows(dev))[task.spec.selection_metric]
        value = -math.inf if score is None else float(score)
        if best is None or value > best[0]:
            best = (value, deepcopy(network.state_dict()))
        watch = Watch()
    assert best is not None
    network.load_state_dict(best[1])
    return replace(model, task=task.calibrate(wanted, *model._outputs(dev))), effort


def _vocabulary(
    texts: Sequence[str], options: Mapping[str, Any], seed: int
) -> tuple[dict[str, int], Tensor, int]:
    """Return ids of the most frequent words, their vectors, and how many are from the file."""
    counts = Counter(m[0] for text in texts for m in _WORD.finditer(text.lower()))
    frequent = [word for word, count in counts.items() if count >= options["min_count"]]
    frequent.sort(key=lambda word: (-counts[word], word))
    if not frequent:
        raise ConfigError(f"No word occurs {options['min_count']} times in the training texts.")
    listed = ["[PAD]", "[UNK]", *frequent[: options["max_words"] - 2]]
    words = {word: at for at, word in enumerate(listed)}
    shape = (len(words), options["dim"])
    table = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * _SPREAD
    if options["vectors"] is None:
        return words, torch.from_numpy(table), 0
    vectors = read_vectors(Path(options["vectors"]), words)
    if not vectors.words:
        raise ConfigError(
            f"{options['vectors']} has none of the {len(words):,} words of the training texts. Is "
            "it of this language, and in lower case?"
        )
    # Words without a vector are drawn with the standard deviation of the others.
    table *= vectors.table.std() / _SPREAD
    table[[words[word] for word in vectors.words]] = vectors.table
    return words, torch.from_numpy(table), len(vectors.words)


def _encode(texts: Sequence[str], words: Mapping[str, int], limit: int) -> list[list[int]]:
    """Return the ids of each text's words; an empty text is one unknown word."""
    found = ([words.get(m[0], _UNKNOWN) for m in _WORD.finditer(t.lower())] for t in texts)
    return [ids[:limit] or [_UNKNOWN] for ids in found]


def _batch(ids: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(words) for words in ids])
    padded = nn.utils.rnn.pad_sequence([torch.tensor(words) for words in ids], batch_first=True)
    return padded, lengths
