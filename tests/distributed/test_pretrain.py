"""Pre-training in two processes: the gradient of the whole batch, and the weights of one process.

The reference of a gradient is plain torch: one batch, one backward pass, in float64 (the processes
compute in float32), without dropout. Run by torchrun, this file is also the worker that measures.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

KINDS = ("single", "ddp", "fsdp")
# name -> (family, what is asked, rows a step, tokens a micro-batch)
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
Measured = list[dict[str, Any]]
# Sums of some hundred float32 numbers in another order, times 50 for replaced tokens; seen: 4e-7.
EXACT = 1e-6
SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "dropout": 0.0,
    "pair": "nsp",
    "max_length": 16,
    "second_length": 40,
    "second_share": 0.5,
    "steps": 6,
    "batch_size": 7,
    "max_tokens": 50,
    "lr": 1e-3,
    "eval_every": 3,
    "precision": "float32",
    "device": "cpu",
}


@pytest.fixture(scope="module")
def both(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Measured]:
    """The folder of the runs, and what each of two processes measured."""
    out = tmp_path_factory.mktemp("pretrain")
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    text = [f"{line}\n{'very ' * n}good ." for n in range(20) for line in lines]
    # Words of four pieces are too long to be masked in rows of 16.
    text += [f"{'seeinginged ' * n}" for n in range(1, 40)]
    (out / "text.txt").write_text("\n\n".join(text))
    (out / "vocab").mkdir()
    (out / "vocab" / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", __file__, str(out)]
    process = subprocess.Popen(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, words = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        # Asked politely, torchrun ends its processes too.
        process.terminate()
        _, words = process.communicate(timeout=60)
    assert process.returncode == 0, words[-4000:]
    (out / "words.txt").write_text(words)
    return out, [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_any_cut_into_processes_and_micro_batches_gives_the_gradient_of_the_whole_batch(
    both: tuple[Path, Measured], kind: str, case: str
) -> None:
    for rank in both[1]:
        figures = rank[kind][case]
        assert figures["whole"] < EXACT
        assert figures["parts"] < EXACT
        assert figures["extra"] == []


def test_the_cases_are_what_their_names_say(both: tuple[Path, Measured]) -> None:
    first, second = (rank["ddp"] for rank in both[1])
    for name in ("mlm", "mlm, nsp", "replaced"):
        assert first[name]["counts"] != second[name]["counts"], "unequal numbers of masks"
    assert 0 in first["words, some rows without a mask"]["counts"]
    masked = [sum(rank["nothing masked on a rank"]["counts"]) for rank in (first, second)]
    assert min(masked) == 0 < max(masked)
    assert second["one row"]["counts"] == second["replaced, one row"]["counts"] == []


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", ["mlm", "replaced"])
def test_dividing_by_the_own_count_of_each_process_fails_the_same_check(
    both: tuple[Path, Measured], kind: str, case: str
) -> None:
    assert all(rank[f"control {kind}"][case]["whole"] > 1000 * EXACT for rank in both[1])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_run_in_two_processes_makes_the_model_of_one(
    both: tuple[Path, Measured], kind: str, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file

    from filbert.train.pretrain import pretrain

    out, measured = both
    alone = pretrain(options(out, tmp_path / "alone"))
    run = json.loads((out / kind / "run.json").read_text())
    assert measured[1][f"run {kind}"] == {} and measured[0][f"run {kind}"] == run
    assert run["device"]["processes"] == 2 and run["tokens"] == alone["tokens"]
    weights, wanted = (
        load_file(folder / "model" / "model.safetensors")
        for folder in (out / kind, tmp_path / "alone")
    )
    assert weights.keys() == wanted.keys()
    # A tenth of one step of Adam, which makes a whole step of a gradient that is nearly 0.
    far = max(float((weights[name] - wanted[name]).abs().max()) for name in wanted)
    assert far < 1e-4
    assert max(float(torch.std(tensor)) for tensor in weights.values()) > 0.01
    assert run["metrics"]["dev"] == pytest.approx(alone["metrics"]["dev"], rel=1e-3)
    lines = (out / kind / "metrics.jsonl").read_text().splitlines()
    assert sum("mlm_accuracy" in line for line in lines) == 2 and len(lines) == 8


def test_a_finished_run_is_left_alone_by_all_processes_and_said_once(
    both: tuple[Path, Measured],
) -> None:
    out, measured = both
    run = json.loads((out / KINDS[-1] / "run.json").read_text())
    assert [rank["resumed"] for rank in measured] == [run, {}]
    assert (out / "words.txt").read_text().count("it is finished; nothing was done") == 1


def options(place: Path, out: Path, **more: Any) -> Any:
    from filbert.train.pretrain_options import PretrainOptions

    given = {"corpus": str(place / "text.txt"), "tokenizer": str(place / "vocab"), "out": str(out)}
    given["dev"] = given["corpus"]
    return PretrainOptions.from_keywords(given | SETTINGS | more)


def model_of(family: str, head: str) -> Any:
    """A model whose weights are large enough for every part to matter."""
    import torch

    from filbert.checkpoints.fresh import fresh_checkpoint, replaced_model
    from filbert.model.encoder import initialize
    from filbert.train.base_model import freeze

    torch.manual_seed(1)
    sizes = {k: v for k, v in SETTINGS.items() if k in list(SETTINGS)[:6]}
    more = {} if family == "bert" else {"embedding_size": 8}
    checkpoint = fresh_checkpoint(family, vocab_size=34, head=head, **sizes, **more)
    model = replaced_model(checkpoint, share=0.5) if head == "discriminator" else checkpoint.build()
    initialize(model, 0.2)
    freeze(model, None)
    return model


def measure(parallel: Any, case: str, corpus: Any, tokenizer: Any) -> dict[str, Any]:
    """How far the gradient of one step is from the reference, and what the case consisted of."""
    import torch

    from filbert.data.examples import collate
    from filbert.data.instances import ObjectiveOptions, PretrainLoader
    from filbert.model.precision import Precision
    from filbert.tasks.pretraining import Pretraining, ReplacedTokens
    from filbert.train.distributed import unwrapped
    from filbert.train.step import accumulate, model_forward

    family, asked, batch_size, max_tokens = CASES[case]
    asked = ObjectiveOptions(max_length=16, **asked)
    task = ReplacedTokens() if family == "electra" else Pretraining(pair=asked.pair)
    model = model_of(family, task.head_kind)
    sizes = {"batch_size": batch_size, "max_tokens": max_tokens, "seed": 3}
    loader = PretrainLoader(corpus, tokenizer, asked, **sizes)
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

    mine = loader.step(step, parallel.rank, parallel.world)
    wrapped = parallel.wrap(model)
    found = accumulate(
        model_forward(wrapped, parallel.device),
        wrapped,
        task,
        mine,
        parallel=parallel,
        precision=Precision("float32", "exact"),
        seed=(0, 1),
        stand_in=loader.stand_in,
    )
    gradients = {
        n: p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        for n, p in unwrapped(wrapped).named_parameters()
        if p.grad is not None
    }
    total = torch.cat([wanted[n].flatten() for n in wanted])
    difference = torch.cat([(gradients[n] - wanted[n]).flatten() for n in wanted])
    return {
        "whole": float(difference.norm() / total.norm()),
        "parts": max(
            abs(a / float(b.detach()) - 1) for a, b in zip(found.parts, parts, strict=True)
        ),
        "extra": [n for n in gradients if n not in wanted],
        "counts": [sum(len(e.target.labels) for e in micro) for micro in mine if micro],
    }


def _masks(loader: Any, step: int) -> list[bool]:
    return [
        any(len(e.target.labels) for micro in loader.step(step, rank, 2) for e in micro)
        for rank in range(2)
    ]


def main(out: Path) -> None:
    """Write rank0.json and rank1.json into `out`."""
    import torch

    import filbert.model.replaced
    from filbert.data.shards import Corpus
    from filbert.text.tokenizer import Tokenizer
    from filbert.train import pretrain as module
    from filbert.train.distributed import Parallel, start
    from filbert.train.options import changed

    class OwnCounts(Parallel):
        """The control: every rank divides by its own count, which makes a mean of means."""

        def sums(self, values: Any) -> list[float]:
            return [value * self.world for value in values]

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with start("ddp", "cpu") as parallel:
        for kind in KINDS[1:]:
            # A second meeting of the same torchrun would sometimes wait for ever.
            same = contextlib.nullcontext(replace(parallel, kind=kind))
            module.start = lambda *_, same=same: same
            asked = options(out, out / kind, distributed=kind)
            found[f"run {kind}"] = module.pretrain(asked)
        found["resumed"] = module.pretrain(changed(asked, resume=True))
        # A sample that does not hang on how rows are dealt.
        filbert.model.replaced.sample = lambda logits: logits.argmax(-1)
        tokenizer = Tokenizer.load(out / "vocab")
        (shards,) = out.glob("ddp.shards/train-*")
        corpus = Corpus.open(shards)
        kinds = {
            "single": replace(parallel, rank=0, world=1, kind="single"),
            "ddp": parallel,
            "fsdp": replace(parallel, kind="fsdp"),
        }
        for kind, each in kinds.items():
            found[kind] = {case: measure(each, case, corpus, tokenizer) for case in CASES}
            if kind != "single":
                own = OwnCounts(**vars(each))
                found[f"control {kind}"] = {
                    case: measure(own, case, corpus, tokenizer) for case in ("mlm", "replaced")
                }
        (out / f"rank{parallel.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
