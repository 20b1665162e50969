"""Pre-training in the worker's processes: gradients of single steps, and whole runs."""

from __future__ import annotations

import contextlib
import copy
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from worker import PLAIN, measured

from filbert.checkpoints.fresh import fresh_checkpoint, replaced_model
from filbert.data.examples import collate
from filbert.data.instances import ObjectiveOptions, PretrainLoader
from filbert.data.shards import Corpus
from filbert.model.encoder import initialize
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.text.tokenizer import Tokenizer
from filbert.train import finetune, pretrain
from filbert.train.base_model import freeze
from filbert.train.distributed import Parallel
from filbert.train.options import FinetuneOptions, changed
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.step import accumulate, model_forward

# name -> (family, objective, rows a step, tokens a micro-batch)
CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "mlm": ("bert", {}, 13, 48),
    "mlm, nsp": ("bert", {"pair": "nsp"}, 13, 48),
    "mlm, sop": ("albert", {"pair": "sop"}, 13, 48),
    "words, some rows without a mask": ("bert", {"masking": "word"}, 13, 20),
    "nothing masked on a rank": ("bert", {"masking": "word"}, 2, 99),
    "one row": ("bert", {"pair": "nsp"}, 1, 99),
    "replaced": ("electra", {"mask_style": "electra"}, 13, 48),
    "replaced, one row": ("electra", {"mask_style": "electra"}, 1, 48),
}
SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "dropout": 0.0,
}
OBJECTIVE = {"pair": "nsp", "max_length": 16, "second_length": 40, "second_share": 0.5}
TRAINING = {"steps": 6, "batch_size": 7, "max_tokens": 50, "lr": 1e-3, "eval_every": 3}
PLACE = {"precision": "float32", "device": "cpu"}


def pretrain_options(place: Path, out: Path, **more: Any) -> PretrainOptions:
    """Both phases on the text that the fixture wrote into `place`."""
    text = str(place / "text.txt")
    given = {"corpus": text, "dev": text, "tokenizer": str(place / "vocab"), "out": str(out)}
    return PretrainOptions.from_keywords(given | SIZES | OBJECTIVE | TRAINING | PLACE | more)


def finetune_options(place: Path, out: Path, **more: Any) -> FinetuneOptions:
    """A classifier on the rows and the model that the fixture put into `place`."""
    given: dict[str, Any] = {"task": "classification", "model": str(place / "model")}
    given |= {split: str(place / f"{split}.csv") for split in ("train", "dev")}
    given |= {"out": str(out), "lr": 3e-3, "steps": 10, "eval_every": 5, "dropout": 0.0}
    return FinetuneOptions.from_keywords(given | PLACE | more)


def runs(parallel: Parallel, out: Path) -> dict[str, Any]:
    """What `pretrain` returns in two processes, at first and once more, and `finetune`."""
    found: dict[str, Any] = {}
    # A second meeting of the same torchrun would sometimes wait for ever. Plots are not looked at.
    with (
        mock.patch.object(pretrain, "start", lambda *_: contextlib.nullcontext(parallel)),
        mock.patch("filbert.report.plots.write_png", lambda *_: None),
    ):
        options = pretrain_options(out, out / "text-two")
        found["text"] = pretrain.pretrain(options)
        found["resumed"] = pretrain.pretrain(changed(options, resume=True))
        with mock.patch.object(finetune, "start", lambda *_: contextlib.nullcontext(parallel)):
            found["films"] = finetune.finetune(finetune_options(out, out / "films-two"))
    return found


def model_of(family: str, head: str) -> Any:
    """A model whose weights are large enough for every part to matter."""
    torch.manual_seed(1)
    more = {} if family == "bert" else {"embedding_size": 8}
    checkpoint = fresh_checkpoint(family, vocab_size=34, head=head, **SIZES, **more)
    model = replaced_model(checkpoint, share=0.5) if head == "discriminator" else checkpoint.build()
    initialize(model, 0.2)
    freeze(model, None)
    return model


@cache
def corpus_of(out: Path) -> Corpus:
    """The shards of the run."""
    (shards,) = out.glob("text-two.shards/train-*")
    return Corpus.open(shards)


def pretraining_case(
    parallel: Parallel, out: Path, names: tuple[str, ...] = tuple(CASES)
) -> dict[str, Any]:
    """How far the gradients of single steps are from the reference, by case."""
    # A sample that does not depend on how rows are dealt.
    with mock.patch("filbert.model.replaced.sample", lambda logits: logits.argmax(-1)):
        return {name: _gradient(parallel, name, out) for name in names}


def _gradient(parallel: Parallel, case: str, out: Path) -> dict[str, Any]:
    family, asked, batch_size, max_tokens = CASES[case]
    objective = ObjectiveOptions(max_length=16, **asked)
    task = ReplacedTokens() if family == "electra" else Pretraining(pair=objective.pair)
    model = model_of(family, task.head_kind)
    sizes = {"batch_size": batch_size, "max_tokens": max_tokens, "seed": 3}
    loader = PretrainLoader(corpus_of(out), Tokenizer.load(out / "vocab"), objective, **sizes)
    step = 0
    if case.startswith("nothing"):
        step = next(s for s in range(99) if _masks(loader, s) == [False, True])
    rows = [example for (example,) in loader.rows_of(step)]

    exact, targets = copy.deepcopy(model).double(), task.targets(rows)
    seen = (targets.values,) if targets.are_seen else ()
    losses = task.loss(exact(collate(rows), targets.at, *seen), targets)
    parts = [loss / count for loss, count in zip(losses, task.count(targets), strict=True)]
    sum(parts).backward()
    wanted = {n: p.grad for n, p in exact.named_parameters() if p.grad is not None}
    wanted["clip"] = torch.cat([g.flatten() for g in wanted.values()]).norm()

    mine = loader.step(step, parallel.rank, parallel.world)
    wrapped = parallel.wrap(model)
    gradient = accumulate(
        model_forward(wrapped, parallel.device),
        wrapped,
        task,
        mine,
        parallel=parallel,
        precision=PLAIN,
        seed=(0, 1),
        stand_in=loader.stand_in,
    )
    return measured(wrapped, wanted) | {
        "loss": max(
            abs(a / float(b.detach()) - 1) for a, b in zip(gradient.parts, parts, strict=True)
        ),
        "counts": [sum(len(e.target.labels) for e in micro) for micro in mine if micro],
    }


def _masks(loader: Any, step: int) -> list[bool]:
    return [
        any(len(e.target.labels) for micro in loader.step(step, rank, 2) for e in micro)
        for rank in range(2)
    ]
