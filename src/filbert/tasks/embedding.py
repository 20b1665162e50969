"""Train sentence vectors on pairs of texts, so that similar meanings get similar vectors.

R rows (each two texts), S = 2 R sequences, H width of a vector.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.data.columns import ColumnNames
from filbert.data.examples import Example, lengths_of, rows_of
from filbert.data.records import Finding, Row
from filbert.data.texts import CHUNK_ROWS, as_number, read_texts, text_of
from filbert.errors import ConfigError, InputError
from filbert.losses.contrastive import contrastive_loss, cosine_loss, text_ids
from filbert.metrics.similarity import own_pair_ranks, regression_metrics, retrieval_metrics, unit
from filbert.tasks.base import (
    Prediction,
    RowSource,
    Targets,
    Task,
    TaskOptions,
    TaskSpec,
    refuse_cleaning,
    uncalibrated,
)
from filbert.tasks.rows import TextRows, score_of, text_examples
from filbert.text.clean import Cleaning
from filbert.text.tokenizer import Text, Tokenizer

log = logging.getLogger(__name__)

_ALLOWED = {
    "loss_kind": ("contrastive", "cosine"),
    "pooling": ("mean", "cls", "max"),
    "on_overflow": ("truncate", "error"),
}

# The pair of a row is ranked among those of this many neighbouring rows: as many as are predicted
# at a time, so that an evaluation in training and one of a file use the same pools.
POOL_ROWS = CHUNK_ROWS


class TextPairs(TextRows):
    """Pairs of texts, each of which gets a vector; their score is optional for some losses."""

    name = "pairs"
    recognises = "number"
    num_texts = 2
    no_label_columns = "embeddings have one number, see --label-column"

    def read(self, spec: TaskSpec, source: RowSource) -> Iterator[Row]:
        """Yield pairs with a score, which is optional for the contrastive loss."""
        path, names, labelled, on_error = source
        if not labelled:
            return read_texts(path, names, on_error=on_error)
        scores = ((), ("label",)) if spec.whole_batch else (("label",), ())
        return names.read(
            path, required=("text", "text_pair", *scores[0]), optional=scores[1], on_error=on_error
        )

    def texts(self, row: Row, clean: Cleaning | None) -> list[Text]:
        """Return one text or two, as a sequence each."""
        text = text_of(row)
        return [text] if isinstance(text, str) else [*text]

    def with_labels(self, task: Task, rows: Sequence[Row], answers: Sequence[Row]) -> Task:
        """Return the task with the scale of the scores."""
        return task if task.spec.whole_batch else task.fit(rows)

    def complete(self, spec: TaskSpec, row: Row, answer: Row) -> Prediction:
        """Return `value`, and `rank` and `pool_size` if both are given."""
        given = [answer.values.get(key) for key in ("value", "rank", "pool_size")]
        value, rank, size = map(as_number, given)
        if not math.isfinite(value):
            raise InputError(
                f"{answer.where}: a prediction needs 'value', the cosine of a pair, a number."
            )
        if any(one is None for one in given):
            return {"value": value}
        if not 1 <= rank <= size < math.inf:
            raise InputError(f"{answer.where}: 'rank' must be a number from 1 to 'pool_size'.")
        return {"value": value, "rank": int(rank), "pool_size": int(size)}

    def findings(
        self, task: Task, rows: Sequence[Row], tokenizer: Tokenizer | None, max_length: int
    ) -> Iterator[Finding]:
        """Yield pairs without information."""
        for row in rows:
            if row.values["text"] == row.values.get("text_pair"):
                message = "Pairs of a text with itself; their cosine is always 1."
                yield Finding("warning", "identical_pair", message, row.where)


PAIRS = TextPairs()


@dataclass(frozen=True)
class SentenceEmbedding:
    """Sentence vectors from pairs of texts.

    Attributes:
        loss_kind: "contrastive": each row is a pair of equal meaning, and the pairs of the other
            rows of a step are the wrong answers. "cosine": the label of a row is the expected
            cosine.
        scale: of the cosines in the contrastive loss.
        pooling: of tokens to a vector: "mean", "cls" (of a causal encoder the last) or "max".
        on_overflow: the treatment of long texts: "truncate" or "error".
        score_max: labels are divided by it to become cosines; None until `fit`.
    """

    loss_kind: str = "contrastive"
    scale: float = 20.0
    pooling: str = "mean"
    on_overflow: str = "truncate"
    score_max: float | None = None

    def __post_init__(self) -> None:
        for field, allowed in _ALLOWED.items():
            if getattr(self, field) not in allowed:
                option = field.removesuffix("_kind").replace("_", "-")
                raise ConfigError(
                    f"{option} {getattr(self, field)!r} is not one of {list(allowed)} for "
                    "embeddings."
                )
        if not 0.0 < self.scale < math.inf:
            raise ConfigError(f"scale is {self.scale}; it must be above zero.")
        if self.score_max is not None and not 0.0 < self.score_max < math.inf:
            raise ValueError(f"score_max {self.score_max} is not above zero")

    @property
    def _is_contrastive(self) -> bool:
        return self.loss_kind == "contrastive"

    @cached_property
    def spec(self) -> TaskSpec:
        """The best step is chosen by how often a text finds its pair, or by rank correlation."""
        metrics: tuple[str, ...] = ("spearman", "pearson", "mse")
        if self._is_contrastive:
            metrics = ("accuracy", "mrr", "spearman", "pearson")
        return TaskSpec(
            name="embedding",
            row_format=PAIRS,
            head_kind=None,
            metric_names=metrics,
            selection_metric=metrics[0],
            whole_batch=self._is_contrastive,
            on_overflow=self.on_overflow,
            pooling=self.pooling,
        )

    @classmethod
    def from_options(cls, options: TaskOptions, names: ColumnNames) -> SentenceEmbedding:
        """Create a task from options, before any row is read."""
        refuse_cleaning(options, "sentence vectors are of texts as written")
        return cls(options.loss, options.scale, options.pooling, options.on_overflow)

    def fit(self, rows: Iterable[Row]) -> SentenceEmbedding:
        """Find what scores are divided by to become cosines.

        1.0 if all are between -1 and 1, 5.0 if all are between 0 and 5 (as in STS-B), else the
        largest.
        """
        scores = [(score, row.where) for row in rows if (score := self.gold(row)) is not None]
        if self._is_contrastive:
            for score, where in scores:
                if score != 1.0:
                    raise InputError(
                        f"{where}: label {score:g}. --loss contrastive takes every row as a pair "
                        "with the same meaning, label 1 or none. Drop it, or pass --loss cosine."
                    )
            return self
        (smallest, where), (largest, _) = min(scores), max(scores)
        is_cosine = smallest >= -1 and largest <= 1
        if smallest < 0 and not is_cosine:
            raise InputError(
                f"{where}: label {smallest:g}, but the largest is {largest:g}. A label is the "
                "wanted cosine of both texts, from -1 to 1, or a score from 0 upwards."
            )
        score_max = 1.0 if is_cosine else 5.0 if largest <= 5 else largest
        log.info("labels run to %g; divided by that they are cosines", score_max)
        return replace(self, score_max=score_max)

    def gold(self, row: Row) -> float | None:
        """Return the label as given; None without one, which is for the contrastive loss only."""
        if row.values.get("text_pair") in (None, ""):
            raise InputError(
                f"{row.where}: no second text. Sentence vectors are trained on pairs; fill the "
                "column 'text_pair', or drop the row."
            )
        score = score_of(row, "A label says how similar both texts are.")
        if score is None and not self._is_contrastive:
            raise InputError(f"{row.where}: no label. Fill the column, or drop the row.")
        return score

    def examples(
        self, rows: Sequence[Row], tokenizer: Tokenizer, *, max_length: int, with_targets: bool
    ) -> list[Example]:
        """Return one sequence a text: two a row, or one for single texts to predict."""
        return text_examples(
            self, rows, tokenizer, max_length=max_length, with_targets=with_targets, total=sum
        )

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return groups of two.

        For the contrastive loss int64 (R, 2), ids of the texts; for cosines float32 (R,).
        """
        groups = (2,) * (len(examples) // 2)
        assert len(examples) == sum(groups), "training rows are pairs"
        if self._is_contrastive:
            ids = text_ids(e.input_ids for e in examples).reshape(-1, 2)
            return Targets(torch.from_numpy(ids), groups=groups)
        scores = [example.target / (self.score_max or 1.0) for example in examples[::2]]
        return Targets(torch.tensor(scores, dtype=torch.float32), groups=groups)

    def count(self, targets: Targets) -> float:
        """Return R."""
        return float(len(targets.values))

    def loss(self, output: Tensor, targets: Targets) -> Tensor:
        """Return the sum over rows; `output` (S, H) has both texts of a row next to each other."""
        # Autocast would make these products bfloat16: 20 times a cosine is then off by up to 0.06.
        with torch.autocast(output.device.type, enabled=False):
            vectors = output.float().view(-1, 2, output.shape[-1])
            if self._is_contrastive:
                return contrastive_loss(vectors, targets.values, self.scale)
            return cosine_loss(vectors, targets.values)

    def decode(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> list[Prediction]:
        """Return `value`, the cosine, of a pair; `embedding` of a single text.

        Pairs of a contrastive model also get `rank`, the rank of their second text among those of
        `pool_size` neighbouring rows; see `own_pair_ranks`.
        """
        sizes = rows_of(examples)
        starts = list(accumulate(sizes, initial=0))[:-1]
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
            if self._is_contrastive:
                ids = text_ids(examples[place].input_ids for place in places)
                ranks = own_pair_ranks(vectors, ids.reshape(-1, 2))
                for i, rank in zip(pool, ranks, strict=True):
                    predictions[i] |= {"rank": int(rank), "pool_size": len(pool)}
        for prediction, start, size in zip(predictions, starts, sizes, strict=True):
            if size == 1:
                prediction["embedding"] = outputs[start].float().tolist()
        lengths = lengths_of(examples)
        return [row | length for row, length in zip(predictions, lengths, strict=True)]

    calibrate = uncalibrated

    def metrics(self, gold: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Return `pearson`, `spearman` and `mse` of cosines; `accuracy`, `mrr`, `pool_size`.

        `mse` is that of the cosine loss; of contrastive models the last three replace it.
        """
        known = [i for i, g in enumerate(gold) if g is not None]
        metrics: dict[str, Any] = {"pearson": None, "spearman": None, "mse": None}
        if known:
            scores = np.array([gold[i] for i in known]) / (self.score_max or 1.0)
            metrics |= regression_metrics(scores, [predictions[i]["value"] for i in known])
        if not self._is_contrastive:
            return metrics
        # The contrastive loss sets no value for a cosine.
        del metrics["mse"]
        ranked = [p for p in predictions if "rank" in p]
        return metrics | retrieval_metrics(
            [p["rank"] for p in ranked], [p["pool_size"] for p in ranked]
        )


TASK = SentenceEmbedding
