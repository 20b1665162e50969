"""Pre-training: masked words, whether B follows A, and which words were replaced.

No labelled rows: the examples come from `data.instances`, so this is an `Objective`, not a `Task`.

K masked tokens, S sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from filbert.data.examples import Example
from filbert.losses.cross_entropy import cross_entropy
from filbert.tasks.base import LossSpec, Targets
from filbert.tasks.rows import packed_rows

# Clark et al. 2020, section 3.1: the weight of the discriminator's loss.
REPLACED_WEIGHT = 50.0


@dataclass(frozen=True)
class Pretraining:
    """Masked LM, alone or with a pair objective.

    The loss is the mean over masked tokens plus the mean over sequences.

    Source: Devlin et al. 2019, section 3.1 and appendix A.2; Lan et al. 2020, section 3.1 for the
    order of sentences.

    Attributes:
        pair: none, nsp (does B follow A) or sop (are A and B in their order).
    """

    pair: str = "none"

    @property
    def head_kind(self) -> str:
        """A key of `model.heads.HEADS`."""
        return "masked_lm" if self.pair == "none" else "pretraining"

    @property
    def spec(self) -> LossSpec:
        """One loss for masked words, one for the pair."""
        names = ("mlm_loss",) if self.pair == "none" else ("mlm_loss", f"{self.pair}_loss")
        return LossSpec(names, "mlm_loss")

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return the places of masked words, (K,), the words, (K,), and kinds of pairs, (S,)."""
        pair = None
        if self.pair != "none":
            pair = torch.tensor([example.target.pair for example in examples], dtype=torch.int64)
        return Targets(*masked_words(examples), pair=pair)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Return masked words; sequences."""
        masked = float(len(targets.values))
        return (masked,) if targets.pair is None else (masked, float(len(targets.pair)))

    def loss(self, output: Tensor | tuple[Tensor, Tensor], targets: Targets) -> Tensor:
        """Return the sums of both cross entropies, float32 (1,) or (2,)."""
        if isinstance(output, Tensor):
            return cross_entropy(output, targets.values).reshape(1)
        masked, pair = output
        assert targets.pair is not None
        return torch.stack(
            [cross_entropy(masked, targets.values), cross_entropy(pair, targets.pair)]
        )


@dataclass(frozen=True)
class ReplacedTokens:
    """Replaced token detection: a small generator fills masks, the model classifies each token.

    Source: Clark et al. 2020, section 2. The loss is the generator's masked LM plus 50 times the
    mean over all tokens of the discriminator's binary cross entropy.
    """

    head_kind = "discriminator"
    spec = LossSpec(("mlm_loss", "replaced_loss"), "replaced_loss")

    def targets(self, examples: Sequence[Example]) -> Targets:
        """Return where words are masked, (K,), and what they were, (K,), which the model reads."""
        groups = tuple(len(example.input_ids) for example in examples)
        return Targets(*masked_words(examples), groups=groups, are_seen=True)

    def count(self, targets: Targets) -> tuple[float, ...]:
        """Return masked words; all tokens."""
        assert targets.groups is not None
        return float(len(targets.values)), float(sum(targets.groups))

    def loss(self, output: tuple[Tensor, Tensor, Tensor], targets: Targets) -> Tensor:
        """Return the generator's and, weighted, the discriminator's sum of losses; float32 (2,)."""
        masked, replaced, is_replaced = output
        binary = F.binary_cross_entropy_with_logits(
            replaced.float(), is_replaced.float(), reduction="sum"
        )
        return torch.stack([cross_entropy(masked, targets.values), REPLACED_WEIGHT * binary])


def masked_words(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return labels, (K,), and rows of the packed batch, (K,)."""
    labels = np.concatenate([example.target.labels for example in examples])
    return torch.from_numpy(labels), packed_rows(examples, (e.target.positions for e in examples))
