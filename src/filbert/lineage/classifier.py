"""Trains the networks before BERT as classifiers of texts, and predicts with them.

S texts in a batch, T words of the longest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.data.examples import Example
from filbert.data.records import Row
from filbert.errors import RunError
from filbert.lineage.elmo import Elmo, ScalarMix, characters
from filbert.lineage.networks import Recurrent, TextNetwork, WordNetwork
from filbert.lineage.pretraining import adapt, load
from filbert.lineage.ulmfit import AwdLstm, UlmfitClassifier
from filbert.lineage.words import split_words
from filbert.tasks.base import Prediction, Task
from filbert.train.linear import Size, dev_score, joined

if TYPE_CHECKING:
    from filbert.text.clean import Cleaning

_BATCH = 256  # rows per batch in prediction


class ElmoClassifier(TextNetwork):
    """A bidirectional GRU over a trained mix of a pre-trained ELMo's layers, which stay fixed."""

    def __init__(self, elmo: Elmo, num_labels: int, options: dict[str, Any]) -> None:
        super().__init__((), options["max_length"])
        self.elmo = elmo.requires_grad_(False)
        self.mix = ScalarMix(elmo.config.layers + 1)
        sizes = (2 * elmo.config.width, options["hidden"], num_labels, options["dropout"])
        self.network = Recurrent("bigru", *sizes)

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return the character ids of each text's words, begin and end of the text included."""
        return [characters(split_words(text)[: self.max_length]) for text in texts]

    def forward(self, rows: Sequence[np.ndarray]) -> Tensor:
        """Return logits, (S, labels), of encoded texts."""
        lengths_S = torch.tensor([len(row) for row in rows])
        ids_STC = nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], True)
        with torch.no_grad():
            layers = self.elmo(ids_STC, lengths_S)
        return self.network(self.mix(layers), lengths_S)  # type: ignore[no-any-return]


def new_network(
    kind: str, texts: Sequence[str], num_labels: int, options: dict[str, Any], seed: int
) -> TextNetwork:
    """Create a network of a kind of `recipe.NETWORKS`; see `WordNetwork`."""
    torch.manual_seed(seed)
    if kind not in ("elmo", "ulmfit"):
        return WordNetwork(kind, texts, num_labels, options, seed)
    trunk, listed = load(Path(options["model"]), kind)
    if isinstance(trunk, AwdLstm):
        trunk.config = replace(trunk.config, dropout=options["dropout"])
        adapt(trunk, texts, listed, options)
        return UlmfitClassifier(trunk, listed, num_labels, options["max_length"])
    return ElmoClassifier(trunk, num_labels, options)


@dataclass(frozen=True)
class NetworkClassifier:
    """A trained classifier."""

    kind: str
    task: Task
    network: TextNetwork
    options: dict[str, Any]
    cleaning: Cleaning | None = None

    @property
    def size(self) -> Size:
        """The parameters, word vectors included, and the bytes with buffers."""
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        return Size(parameters, sum(one.nbytes for one in self.network.state_dict().values()))

    def predict_rows(self, rows: Sequence[Row]) -> list[Prediction]:
        """Return predictions in the shape of all tasks, in order."""
        return self.task.decode(*self.outputs(rows))

    @torch.inference_mode()
    def outputs(self, rows: Sequence[Row]) -> tuple[list[Tensor], list[Example]]:
        """Return logits, float64 (C,) each, and examples that hold the number of words read."""
        texts = [joined(row, self.cleaning) for row in rows]
        encoded, limit = self.network.encode(texts), self.options["max_length"]
        logits: list[Any] = [None] * len(encoded)
        order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            batch = self.network([encoded[row] for row in part]).double()
            for row, row_logits in zip(part, batch, strict=True):
                logits[row] = row_logits
        # The examples only carry how many words a text has and how many were read.
        counts = [len(split_words(text)) for text in texts]
        read = [np.zeros(min(max(count, 1), limit)) for count in counts]
        return logits, [Example(at, read[at], read[at], n) for at, n in enumerate(counts)]


def fit_network(
    kind: str,
    task: Task,
    options: dict[str, Any],
    *,
    train: tuple[Sequence[str], Sequence[Row]],
    dev: Sequence[Row],
    seed: int,
    cleaning: Cleaning | None = None,
) -> tuple[NetworkClassifier, float]:
    """Train with Adam; keep the epoch that is best on dev, calibrate on dev.

    The seconds that are returned are those of the training without the evaluations on dev.

    Args:
        kind, options: Of `recipe.NETWORKS` and `recipe.NetworkOptions`.
        train: Cleaned texts and their labelled rows.
    """
    started = time.perf_counter()
    texts, rows = train
    network = new_network(kind, texts, task.spec.num_labels or 0, options, seed)
    gold = torch.tensor([task.gold(row) for row in rows])
    wanted = [task.gold(row) for row in dev]
    model = NetworkClassifier(kind, task, network, options, cleaning)
    best: tuple[float, dict[str, Any]] | None = None
    seconds = 0.0
    for _ in _epochs(model, network.encode(texts), gold, seed):
        seconds += time.perf_counter() - started
        network.eval()
        value = dev_score(task, wanted, model.predict_rows(dev))
        if best is None or value > best[0]:
            best = (value, deepcopy(network.state_dict()))
        started = time.perf_counter()
    assert best is not None
    network.load_state_dict(best[1])
    return replace(model, task=task.calibrate(wanted, *model.outputs(dev))), seconds


def _epochs(
    model: NetworkClassifier, encoded: Sequence[Any], gold: Tensor, seed: int
) -> Iterator[None]:
    """Train; yield after each epoch and at the end."""
    network, options = model.network, model.options
    adam = torch.optim.Adam([{"params": group} for group in network.groups()])
    size = options["batch_size"]
    per_epoch = math.ceil(len(encoded) / size)
    num_steps = options["steps"] or max(1, round(options["epochs"] * per_epoch))
    draw, order = np.random.default_rng(seed), list[int]()
    for step in range(1, num_steps + 1):
        order = order or draw.permutation(len(encoded)).tolist()
        # ULMFiT normalises over a batch: its last one must not be a single row.
        end = size + (model.kind == "ulmfit" and len(order) == size + 1)
        part, order = order[:end], order[end:]
        network.train()
        for group, share in zip(adam.param_groups, network.rates(step / num_steps), strict=True):
            group["lr"] = share * options["lr"]
        loss = F.cross_entropy(network([encoded[row] for row in part]), gold[part])
        if not loss.isfinite():
            raise RunError(f"The loss is {loss.item()} at step {step}; take a smaller lr.")
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        if step % min(num_steps, per_epoch) == 0 or step == num_steps:
            yield
