"""What two real processes measure: run by torchrun, see conftest.py. Every rank writes its JSON."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.data.examples import Example, collate
from filbert.data.loader import Loader
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model, VectorHead, new_head
from filbert.model.precision import Precision
from filbert.tasks.base import LossSpec, Targets
from filbert.train.base_model import freeze
from filbert.train.distributed import Parallel, start
from filbert.train.optimizer import new_optimizer
from filbert.train.options import TrainOptions
from filbert.train.state import learned_weights, load_moments, moments_of
from filbert.train.step import accumulate, model_forward

PLAIN = Precision("float32", "exact")
VOCABULARY = 50


def config(**changes: Any) -> EncoderConfig:
    """Two layers of width 16, no dropout."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 40,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "head_dropout": 0.0,
    }
    return EncoderConfig.of(**(sizes | changes))


def new_model(kind: str, seed: int, **changes: Any) -> Model:
    """A model whose weights are large enough for every part to matter."""
    torch.manual_seed(seed)
    built = config(**changes)
    num_labels = 3 if kind in ("sequence", "tokens") else None
    head = VectorHead(built) if kind == "vectors" else new_head(kind, built, num_labels)
    model = Model(Encoder(built), head)
    initialize(model, 0.2)
    freeze(model, None)
    return model


def new_examples(num_rows: int, seed: int = 0) -> list[Example]:
    """Rows of 2 to 30 tokens; `target` holds classes, -1 where nothing is wanted.

    The targets are very unequal: the first token's class always counts, of the other tokens none in
    two rows of three.
    """
    draw = np.random.default_rng(seed)
    examples = []
    for row in range(num_rows):
        length = int(draw.integers(2, 31))
        ids = draw.integers(5, VOCABULARY, length)
        wanted = draw.integers(0, 3, length)
        if row % 3:
            wanted[:] = -1
        examples.append(Example(row, ids, np.zeros(length, np.int64), length, wanted))
    return examples


@dataclass(frozen=True)
class StandIn:
    """The part of a task that a step reads."""

    kind: str
    whole_batch: bool = False

    @property
    def spec(self) -> LossSpec:
        return LossSpec(("loss",), "loss", self.whole_batch)

    def targets(self, examples: Sequence[Example]) -> Targets:
        if self.kind == "sequence":
            # Weighted, so that a count is no whole number.
            return Targets(torch.tensor([int(e.input_ids[0]) % 3 for e in examples]))
        if self.kind == "vectors":
            return Targets(torch.tensor([float(e.input_ids[0]) for e in examples]))
        wanted = torch.from_numpy(np.concatenate([e.target for e in examples]))
        at = torch.nonzero(wanted >= 0).squeeze(1)
        return Targets(wanted[at], at)

    def count(self, targets: Targets) -> float:
        return float(_weights(targets).sum()) if self.kind == "sequence" else len(targets.values)

    def loss(self, output: Tensor, targets: Tensor | Targets) -> Tensor:
        if self.kind == "sequence":
            losses = F.cross_entropy(output, targets.values, reduction="none")
            return (losses * _weights(targets).to(output)).sum()
        if self.kind == "vectors":
            # Every row times the mean of all: the rows of all ranks matter to each. Losses whose
            # parts cancel would show rounding errors instead.
            return (targets.values.to(output) / VOCABULARY * (output @ output.mean(0))).sum()
        return F.cross_entropy(output, targets.values, reduction="sum")


def _weights(targets: Targets) -> Tensor:
    return torch.tensor([0.5, 1.0, 2.25])[targets.values]


@dataclass(frozen=True)
class OwnCounts(Parallel):
    """The control: every rank divides by its own count, which makes a mean of means."""

    def sums(self, values: Sequence[float]) -> list[float]:
        return [value * self.world for value in values]


def reference_gradient(model: Model, task: StandIn, rows: list[list[Example]]) -> dict[str, Tensor]:
    """By plain torch: one process, one batch, one backward pass, in float64.

    In float32 the reference's own rounding errors would be the larger part of the differences.
    """
    model = copy.deepcopy(model).double()
    examples = [example for row in rows for example in row]
    targets = task.targets(examples)
    loss = task.loss(model(collate(examples), targets.at), targets) / task.count(targets)
    loss.backward()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    found["clip"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    found["loss"] = loss.detach()
    return found


# name -> (head, changes of the configuration, rows a step, what is frozen)
CASES: dict[str, tuple[str, dict[str, Any], int, str | None]] = {
    "sequences": ("sequence", {}, 13, None),
    "tokens": ("tokens", {}, 13, None),
    "tied word table": ("masked_lm", {}, 12, None),
    "shared layers": ("sequence", {"num_hidden_groups": 1, "embedding_size": 8}, 11, None),
    "frozen below": ("tokens", {}, 12, "embeddings,0"),
    "one row": ("sequence", {}, 1, None),
    "one light row": ("sequence", {}, 1, None),
    "one row of tokens": ("tokens", {}, 1, None),
    "whole batch": ("vectors", {}, 13, None),
}


# Of the shuffle, where the first row has to be a heavy or a light one.
_SEEDS = {"one row": 4}


def gradient_case(parallel: Parallel, name: str, make: type[Parallel] = Parallel) -> dict[str, Any]:
    """How far the gradient of one step is from the reference, and what the case consisted of."""
    kind, changes, batch_size, frozen = CASES[name]
    # Which of the vocabulary's entries a token is to become is a class as any other.
    task = StandIn("tokens" if kind == "masked_lm" else kind, whole_batch=kind == "vectors")
    model = new_model(kind, 1, **changes)
    freeze(model, frozen)
    # A single row must be one that wants something.
    examples = new_examples(24)[:: 3 if batch_size == 1 else 1]
    loader = Loader(examples, batch_size=batch_size, max_tokens=48, seed=_SEEDS.get(name, 3))
    wanted = reference_gradient(model, task, loader.rows_of(0))
    mine = loader.step(0, parallel.rank, parallel.world)
    if name == "one row" and parallel.world > 1:
        # Another empty one, so that the meeting is at an empty micro-batch on both.
        mine = [*mine, []]
    if make is not Parallel:
        parallel = make(**vars(parallel))
    wrapped = parallel.wrap(model)
    gradient = accumulate(
        model_forward(wrapped, parallel.device),
        wrapped,
        task,
        mine,
        parallel=parallel,
        precision=PLAIN,
        seed=(0, 1),
        stand_in=loader.rows[0],
    )
    counts = [task.count(task.targets(micro)) for micro in mine if micro]
    found = measured(wrapped, wanted)
    return found | {
        "loss": abs(gradient.loss - float(wanted["loss"])) / float(wanted["loss"]),
        "micro_batches": len(mine),
        "counts": counts,
        "tokens": [sum(len(e.input_ids) for e in micro) for micro in mine],
    }


def measured(wrapped: nn.Module, wanted: dict[str, Tensor]) -> dict[str, Any]:
    """Distances of the gradients in the parameters from the wanted ones."""
    parameters = dict(getattr(wrapped, "module", wrapped).named_parameters())
    names = [name for name in wanted if name not in ("clip", "loss")]
    found = {n: parameters[n].grad.clone() for n in names}
    extra = [n for n, p in parameters.items() if p.grad is not None and n not in wanted]
    norm = float(torch.nn.utils.clip_grad_norm_(wrapped.parameters(), float("inf")))
    total = torch.cat([wanted[n].flatten() for n in names])
    difference = torch.cat([(found[n] - wanted[n]).flatten() for n in names])
    return {
        "whole": float(difference.norm() / total.norm()),
        "worst": max(float((found[n] - wanted[n]).norm() / wanted[n].norm()) for n in names),
        "extra": extra,
        "norm": abs(norm - float(wanted["clip"])) / float(wanted["clip"]),
    }


@dataclass
class Run:
    """A model in training."""

    parallel: Parallel
    case: str = "adamw"
    seed: int = 1

    def __post_init__(self) -> None:
        self.model = new_model("tokens", self.seed)
        self.wrapped = self.parallel.wrap(self.model)
        options = TrainOptions(lr=1e-3, weight_decay=0.1, optimizer=self.case.split()[0])
        precision = "auto" if "bf16" in self.case else "float32"
        self.optimizer = new_optimizer(self.model, options, precision=precision)
        self.loader = Loader(new_examples(24), batch_size=7, max_tokens=48, seed=3)

    def train(self, steps: range) -> Run:
        """Optimiser steps."""
        for step in steps:
            accumulate(
                model_forward(self.wrapped, self.parallel.device), self.wrapped, StandIn("tokens"),
                self.loader.step(step, self.parallel.rank, self.parallel.world),
                parallel=self.parallel, precision=PLAIN, seed=(0, step),
                stand_in=self.loader.rows[0],
            )  # fmt: skip
            torch.nn.utils.clip_grad_norm_(self.wrapped.parameters(), 0.05)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return self

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Its state on every rank, and its own copy: as if every rank had read the first's file."""
        mine = learned_weights(self.model), moments_of(self.model, self.optimizer)
        box = [copy.deepcopy(mine)]
        _ = self.parallel.world == 1 or dist.broadcast_object_list(box, 0)
        return box[0]


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """Largest difference of any two numbers."""
    assert first.keys() == second.keys()
    return max(float((first[n] - second[n]).abs().max()) for n in first)


PAIRS = (("single", "ddp"), ("ddp", "single"), ("ddp", "ddp"))
OPTIMIZERS = ("adamw", "bert_adam", "lamb", "muon", "muon in bf16")


def state_case(kinds: dict[str, Parallel], case: str) -> dict[str, Any]:
    """States of one optimiser loaded into processes of another kind, and trained on."""
    found: dict[str, Any] = {}
    middle, final = {}, {}
    for kind in kinds:
        run = Run(kinds[kind], case)
        middle[kind] = run.train(range(3)).state()
        final[kind] = run.train(range(3, 5)).state()
    found["moved"] = distance(learned_weights(new_model("tokens", 1)), final["ddp"][0])
    for source, target in PAIRS:
        # Another seed and a step of its own: everything it has must be replaced.
        run, state = Run(kinds[target], case, seed=7).train(range(1)), middle[source]
        run.model.load_state_dict(state[0], strict=False)
        load_moments(run.model, run.optimizer, state[1])
        loaded = run.state()
        after = run.train(range(3, 5)).state()
        mine = run.model.state_dict()
        found[f"{source} to {target}"] = {
            "loaded": all(map(same, loaded, state)),
            "distance": distance(after[0], final["single"][0]),
            "exact": source == target and all(map(same, after, final[target])),
            "agrees": target == "single" or all(map(_is_that_of_rank_0, mine.values())),
        }
    return found


def _is_that_of_rank_0(tensor: Tensor) -> bool:
    first = tensor.clone()
    dist.broadcast(first, 0)
    return torch.equal(first, tensor)


def names_case(kinds: dict[str, Parallel]) -> dict[str, Any]:
    """Whether a state has the names of all that learns."""
    found: dict[str, Any] = {}
    model = new_model("tokens", 0)
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    expected = {f"{k}.{n}" for k in ("exp_avg", "exp_avg_sq", "step") for n in learning}
    for kind, parallel in kinds.items():
        run = Run(parallel).train(range(1))
        weights, moments = run.state()
        found[kind] = set(weights) == set(learning) and set(moments) == expected
    return found


def small_things(parallel: Parallel) -> dict[str, Any]:
    """What is no tensor of the model."""
    rank = parallel.rank
    rows = torch.arange(6.0).view(3, 2)[: 3 * rank] + 10 * rank
    (gathered, _), _ = parallel.gather_rows(rows.requires_grad_(True)), parallel.barrier()
    return {
        "sum": parallel.sums([2.0**40 + rank])[0],
        "any": [parallel.any(False), parallel.any(rank == 1), parallel.any(True)],
        "broadcast": parallel.broadcast({"from": rank, "list": [1, None, 0.1]}),
        "rows": gathered.tolist(),
        "rows need gradients": gathered.requires_grad,
        "no rows": list(parallel.gather_rows(torch.zeros(0, 2))[0].shape),
        "before": parallel.gather_rows(torch.zeros(3 + rank, 2))[1],
        "rank": [rank, parallel.world, parallel.is_first, str(parallel.device)],
    }


def weights_from_rank_0(parallel: Parallel) -> float:
    """How far the weights that wrapped models begin with are from the first rank's."""
    model = new_model("sequence", 100 + parallel.rank)
    parallel.wrap(model)
    return distance(model.state_dict(), new_model("sequence", 100).state_dict())


def measure(parallel: Parallel, out: Path) -> dict[str, Any]:
    """Everything that the tests compare."""
    # Beside this file, and made of its parts.
    from pretraining import pretraining_case, runs
    from students import student_case

    kinds = {"single": Parallel(0, 1, parallel.device), "ddp": parallel}
    found: dict[str, Any] = {"small": small_things(parallel)}
    found["runs"] = runs(parallel, out)
    for kind, each in kinds.items():
        found[kind] = {name: gradient_case(each, name) for name in CASES}
        found[kind]["student"] = student_case(each)
        found[kind]["pretraining"] = pretraining_case(each, out)
        if kind != "single":
            own = OwnCounts(**vars(each))
            found[f"control {kind}"] = {
                "sequences": gradient_case(each, "sequences", OwnCounts),
                "tokens": gradient_case(each, "tokens", OwnCounts),
                **pretraining_case(own, out, ("mlm", "replaced")),
            }
            found[f"first weights {kind}"] = weights_from_rank_0(each)
    found["names"] = names_case(kinds)
    found["states"] = {case: state_case(kinds, case) for case in OPTIMIZERS}
    return found


def main(out: Path, fails: bool) -> None:
    """Write rank0.json and rank1.json into `out`, unless the second process shall fail."""
    torch.set_num_threads(1)
    with start("cpu") as parallel:
        if fails and parallel.rank == 1:
            raise RuntimeError("this process fails on purpose")
        if fails:
            # The others wait here for the one that never comes.
            parallel.barrier()
        found = measure(parallel, out)
        (out / f"rank{parallel.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    # The files beside this one import its parts by this name.
    sys.modules["worker"] = sys.modules["__main__"]
    main(Path(sys.argv[1]), fails="fail" in sys.argv[2:])
