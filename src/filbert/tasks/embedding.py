"""Sentence vectors that lie close for texts of close meaning, learnt from pairs of texts.

R rows (each two texts), S = 2 R sequences, H width of a vector.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, rows_of
from filbert.data.findings import Finding
from filbert.data.overflow import encode_rows
from filbert.data.pairs import (
    complete_pair,
    pair_findings,
    require_pair,
    require_positive,
    scale_of,
    score_of,
)
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.data.texts import CHUNK_ROWS, Text, read_texts, text_of, text_row
from filbert.errors import ConfigError, InputError
from filbert.losses.contrastive import contrastive_loss, cosine_loss, text_ids
from filbert.metrics.similarity import (
    own_pair_ranks,
    regression_metrics,
    retrieval_metrics,
    unit,
)
from filbert.model.config import EncoderConfig
from filbert.model.heads import Head, VectorHead
from filbert.tasks.base import Column, Prediction, Targets, TaskOptions, refuse_cleaning
from filbert.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

LOSSES = ("contrastive", "cosine")
POOLINGS = ("mean", "cls", "max")
RULES = ("truncate", "error")
_ONE_NUMBER = "embeddings have one number, see --label-column"

# A row's own pair is looked for among those of this many neighbouring rows: as many as are
# predicted at a time, so that an evaluation while training and one from a file see the same pools.
POOL_ROWS = CHUNK_ROWS


@dataclass(frozen=True)
class Embedding:
    """Sentence vectors from pairs of texts.

    Attributes:
        loss_kind: "contrastive": each row is a pair of equal meaning, and the pairs of the other
            rows of a step are the wrong answers. "cosine": a row's label is what the cosine shall
            be.
        scale: of the cosines in the contrastive loss.
        pooling: of tokens to a vector: "mean", "cls" (of a causal encoder the last) or "max".
        on_overflow: what happens to texts that are too long: "truncate" or "error".
        score_max: labels are divided by it to become cosines; None until `fit_labels`.
    """

    loss_kind: str = "contrastive"
    scale: float = 20.0
    pooling: str = "mean"
    on_overflow: str = "truncate"
    score_max: float | None = None

    def __post_init__(self) -> None:
        _one_of("loss", self.loss_kind, LOSSES)
        _one_of("pooling", self.pooling, POOLINGS)
        _one_of("on_overflow", self.on_overflow, RULES)
        if not 0.0 < self.scale < math.inf:
            raise ConfigError(f"scale is {self.scale}; it must be above zero.")
        if self.score_max is not None and not 0.0 < self.score_max < math.inf:
            raise ValueError(f"score_max {self.score_max} is not above zero")

    name = "embedding"
    columns = (
        Column("text", True, "the text"),
        Column("text_pair", False, "a second text; for training there must be one"),
        Column("label", False, "how close both are in meaning, a number"),
    )
    head_kind = None
    num_labels = None
    labels = None
    problem_type = None
    loss_names = ("loss",)
    labels_are_classes = False
    windows = False

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> Embedding:
        """A task that knows what the user said and no row yet."""
        refuse_cleaning(options, "sentence vectors are of texts as they stand")
        names.refuse_label_columns(_ONE_NUMBER)
        return cls(
            loss_kind=options.loss,
            scale=options.scale,
            pooling=options.pooling,
            on_overflow=options.on_overflow,
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Embedding:
        """The task that filbert.json describes.

        Raises:
            ValueError, TypeError, ConfigError: it cannot be one.
        """
        return cls(**{f: content[f] for f in cls.__dataclass_fields__ if f in content})

    def to_dict(self) -> dict[str, Any]:
        """For filbert.json."""
        return {"name": self.name, **asdict(self)}

    @property
    def whole_batch(self) -> bool:
        """The contrastive loss of a row needs all rows of its step."""
        return self.loss_kind == "contrastive"

    @property
    def selection_metric(self) -> str:
        """Rank correlation with the labels, or how often a text finds its own pair."""
        return "accuracy" if self.whole_batch else "spearman"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The figures that a best step can be chosen by."""
        if self.whole_batch:
            return ("accuracy", "mrr", "spearman", "pearson")
        return ("spearman", "pearson", "mse")

    # Rows

    def read(
        self,
        path: str | Path,
        names: ColumnNames,
        *,
        labelled: bool = True,
        on_error: OnError | None = None,
    ) -> Iterator[Row]:
        """Rows with `text`, `text_pair` and `label`; the last is optional for contrastive models.

        Rows without labels to predict may also lack `text_pair`.
        """
        if not labelled:
            return read_texts(path, names, on_error=on_error)
        needed = () if self.whole_batch else ("label",)
        return names.read(
            path,
            required=("text", "text_pair", *needed),
            optional=("label",) if self.whole_batch else (),
            on_error=on_error,
        )

    def row(self, item: Any, index: int) -> Row:
        """A text or a pair."""
        return text_row(item, index)

    def sequences(self, row: Row) -> list[Text]:
        """One text or two; a pair's are never joined, each gets its own vector."""
        text = text_of(row)
        return [text] if isinstance(text, str) else [*text]

    def fit_labels(self, rows: Iterable[Row]) -> Embedding:
        """Find the scale of the labels; see `scale_of`.

        Raises:
            InputError: a pair or label is missing or malformed, or a label does not go with the
                loss.
        """
        score_max = scale_of(self._checked(rows))
        if self.whole_batch:
            return self
        log.info("labels run to %g; divided by that they are cosines", score_max)
        return replace(self, score_max=score_max)

    def _checked(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.labels_of(row)
            if self.whole_batch:
                require_positive(row)
            yield row

    def labels_of(self, row: Row) -> list[str]:
        """No names; but what should be learnt is looked at.

        Raises:
            InputError: the pair or the score is missing, or the score is no number.
        """
        require_pair(row)
        self.gold(row)
        return []

    def findings(
        self, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Pairs that teach nothing, and labels that do not go with the loss."""
        return pair_findings(rows, positives=self.whole_batch, score_max=self.score_max)

    def gold(self, row: Row) -> float | None:
        """The label as it stands; None without one, which is for the contrastive loss only."""
        score = score_of(row)
        if score is None and not self.whole_batch:
            raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
        return score

    def gold_json(self, gold: Any) -> float | None:
        """The label."""
        return None if gold is None else float(gold)

    # Training

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """One sequence a text: two a row, but for single texts to predict."""
        owners = [i for i, row in enumerate(rows) for _ in self.sequences(row)]
        targets: list[float | None] = [None] * len(rows)
        if with_targets:
            for i, row in enumerate(rows):
                self.labels_of(row)
                if not self.whole_batch:
                    targets[i] = (self.gold(row) or 0.0) / (self.score_max or 1.0)
        pieces = encode_rows(
            [rows[i] for i in owners],
            [text for row in rows for text in self.sequences(row)],
            tokenizer,
            max_length=max_length,
            rule=self.on_overflow,
            stride=max_length,
        )
        tokens = [0] * len(rows)
        for i, encodings in zip(owners, pieces, strict=True):
            tokens[i] += encodings[0].num_tokens
        return [
            Example(
                i, e.input_ids, e.token_type_ids, e.num_tokens, targets[i], row_tokens=tokens[i]
            )
            for i, encodings in zip(owners, pieces, strict=True)
            for e in encodings
        ]

    def head(self, config: EncoderConfig) -> Head:
        """Pooling, which has no weights."""
        return VectorHead(config, self.pooling)

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Groups of two.

        For the contrastive loss int64 (R, 2), ids of the texts; for cosines float32 (R,).
        """
        groups = (2,) * (len(examples) // 2)
        assert len(examples) == sum(groups), "training rows are pairs"
        if self.whole_batch:
            return Targets(
                torch.from_numpy(text_ids(e.input_ids for e in examples).reshape(-1, 2)),
                groups=groups,
            )
        scores = [example.target for example in examples[::2]]
        return Targets(torch.tensor(scores, dtype=torch.float32), groups=groups)

    def count(self, targets: Targets) -> float:
        """R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """The sum over rows; `output` (S, H) holds both texts of a row next to each other."""
        # Autocast would make these products bfloat16: 20 times a cosine is then off by up to 0.06.
        with torch.autocast(output.device.type, enabled=False):
            vectors = output.float().view(-1, 2, output.shape[-1])
            if self.whole_batch:
                return contrastive_loss(vectors, targets.values, self.scale)
            return cosine_loss(vectors, targets.values)

    # Prediction

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """`value`, the cosine, of a pair; `embedding` of a single text.

        Pairs of a contrastive model also get `rank`, the place of their second text among those of
        `pool_size` neighbouring rows; see `own_pair_ranks`.
        """
        sizes = rows_of(examples)
        starts = [end - size for size, end in zip(sizes, accumulate(sizes), strict=True)]
        predictions: list[Prediction] = [{} for _ in sizes]
        pairs = [i for i, size in enumerate(sizes) if size == 2]
        for begin in range(0, len(pairs), POOL_ROWS):
            pool = pairs[begin : begin + POOL_ROWS]
            places = [starts[i] + side for i in pool for side in (0, 1)]
            vectors = torch.stack([outputs[place] for place in places]).float().numpy()
            vectors = vectors.reshape(len(pool), 2, -1)
            units = unit(vectors.astype(np.float64))
            for i, cosine in zip(pool, (units[:, 0] * units[:, 1]).sum(-1), strict=True):
                predictions[i]["value"] = float(cosine)
            if self.whole_batch:
                ids = text_ids(examples[place].input_ids for place in places)
                ranks = own_pair_ranks(vectors, ids.reshape(-1, 2))
                for i, rank in zip(pool, ranks, strict=True):
                    predictions[i] |= {"rank": int(rank), "pool_size": len(pool)}
        for prediction, start, size in zip(predictions, starts, sizes, strict=True):
            own = examples[start : start + size]
            if size == 1:
                prediction["embedding"] = outputs[start].float().tolist()
            prediction["truncated"] = any(example.truncated for example in own)
            prediction["num_tokens"] = sum(example.num_tokens for example in own)
        return predictions

    def calibrate(
        self, gold: Sequence[Any], outputs: Sequence[Tensor], examples: Sequence[Example]
    ) -> Embedding:
        """The same; there is no threshold."""
        return self

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """`pearson` and `spearman` of cosines and labels; `mse` or `accuracy`, `mrr`, `pool_size`.

        `mse` is that of the cosine loss. The last three, of contrastive models, are how well texts
        find their own pair.

        Raises:
            InputError: a row is no pair, so there is nothing to measure.
        """
        alone = next((i for i, p in enumerate(predictions) if "value" not in p), None)
        if alone is not None:
            raise InputError(f"Row {alone + 1} has no second text; only pairs can be measured.")
        known = [i for i, g in enumerate(gold) if g is not None]
        figures: dict[str, Any] = {"pearson": None, "spearman": None, "mse": None}
        if known:
            wanted = np.array([gold[i] for i in known]) / (self.score_max or 1.0)
            figures = figures | regression_metrics(wanted, [predictions[i]["value"] for i in known])
        if not self.whole_batch:
            return figures
        # A contrastive model is never told what a cosine shall be.
        del figures["mse"]
        ranked = [p for p in predictions if "rank" in p]
        return figures | retrieval_metrics(
            [p["rank"] for p in ranked], [p["pool_size"] for p in ranked]
        )

    def files(
        self, gold: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    # Evaluation of rows and predictions from elsewhere

    def reading(self, names: ColumnNames) -> Embedding:
        """The same."""
        names.refuse_label_columns(_ONE_NUMBER)
        return self

    def with_labels_of(
        self, rows: Iterable[Row], predictions: Iterable[Mapping[str, Any]]
    ) -> Embedding:
        """The same, with the range of the rows' labels unless a training has set it."""
        if self.whole_batch or self.score_max is not None:
            return self
        return self.fit_labels(rows)

    def check_prediction(self, prediction: Mapping[str, Any], where: str) -> Prediction:
        """A prediction with its `value`.

        Ranks are kept only if they come with their pool.
        """
        return complete_pair(prediction, where)


def _one_of(option: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(
            f"{option.replace('_', '-')} {value!r} is not one of {list(allowed)} for embeddings."
        )


TASK = Embedding
