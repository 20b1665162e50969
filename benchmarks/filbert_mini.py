"""Make the model that comes with filbert out of a pre-training run, and measure it.

    python benchmarks/filbert_mini.py RUN --corpus DIR --held-out DIR --data DIR

RUN is the run folder of `filbert pretrain filbert-mini`, and the corpus the one it was trained on.
The differences from minilm, from which it was trained, are stored in one byte each; they have half
its deviation, which saves a bit a weight (pack_weights.py). The logits of the masked-LM head are
scaled by the factor with the least loss on held-out novels of ELTeC (Guo et al. 2017, section 4.2:
the temperature), which is part of the stored LayerNorm and bias. The metrics in the card are
measured on the folder that is written, in float32 arithmetic: 15 % of the tokens masked as in BERT,
sequences of 128 tokens, all of the held-out novel and of WikiText-103's validation text. WikiText's
marks are undone first: ` @-@ ` becomes `-` (`,` and `.` the same way), and `<unk>` is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import find_model
from filbert.checkpoints.weights import PACKED
from filbert.data.build import build_corpus
from filbert.data.examples import Example, collate
from filbert.data.instances import PretrainLoader, fixed_examples
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import Corpus
from filbert.files import sha256_of
from filbert.inference.masked_text import measure
from filbert.model.heads import Model
from filbert.model.precision import Precision
from filbert.tasks.pretraining import Pretraining
from filbert.text.tokenizer import Tokenizer
from pack_weights import choose_scales, codes, difference, importance, write_packed

OUT = Path(__file__).parents[1] / "src" / "filbert" / "samples" / "filbert-mini"
NUM_BYTES = 15_400_000
TASK = Pretraining(pair="nsp")
OBJECTIVE = ObjectiveOptions(pair="nsp", max_length=128)
# What the logits of the masked-LM head are proportional to, and the factors that are tried.
HEAD = ("head.masked_lm.norm.weight", "head.masked_lm.norm.bias", "head.masked_lm.bias")
FACTORS = (1.0, 0.99, 0.98, 0.97, 0.96)
# Kept of the training log: every so many lines, and all that is about dev.
EVERY = 20
# Options that say where and how it was run, and nothing of what was learnt.
_OWN = ("corpus", "dev", "out", "resume")


class Packed(NamedTuple):
    """A calibrated model, its rows' scales, matrices of minilm, and the factor of its logits."""

    checkpoint: Checkpoint
    scales: dict[str, Tensor]
    base: dict[str, Tensor]
    factor: float


def masked_lm_losses(model: Model, loader: PretrainLoader, steps: int) -> Iterable[Tensor]:
    """Sum of the masked-LM losses of each batch."""
    for step in range(steps):
        for examples in filter(None, loader.step(step)):
            targets = TASK.targets(examples)
            yield TASK.loss(model(collate(examples), targets.at), targets)[0]


def packed(checkpoint: Checkpoint, tokenizer: Tokenizer, corpus: Path, held_out: Path) -> Packed:
    """Round the weights, and calibrate the masked-LM head on held-out text."""
    loader = PretrainLoader(
        Corpus.open(corpus), tokenizer, OBJECTIVE, batch_size=16, max_tokens=2_048, seed=7
    )
    model = checkpoint.build()
    important = importance(model, masked_lm_losses(model, loader, 60))
    weights = {name: one.float() for name, one in checkpoint.tensors.items()}
    stored = huggingface.read(find_model("minilm")).tensors
    base = {n: one for n in important if (one := stored.get(n)) is not None}
    matrices = {name: difference(name, weights[name], base) for name in important}
    scales = choose_scales(matrices, important, NUM_BYTES, power=0.85, fewest_bits=3.6)
    rounded = dict(weights)
    for name, scale in scales.items():
        rounded[name] = codes(matrices[name], scale) * scale[:, None] + base.get(name, 0)
    examples = fixed_examples(
        Corpus.open(held_out), tokenizer, ObjectiveOptions(pair="nsp"), limit=120
    )
    found = {}
    for factor in FACTORS:
        tensors = rounded | {name: rounded[name] * factor for name in HEAD}
        scaled = replace(checkpoint, tensors=tensors)
        found[factor] = loss_of(scaled.build(), examples)["mlm_loss"]
    factor = min(found, key=lambda one: found[one])
    unrounded = weights | {name: weights[name] * factor for name in HEAD}
    return Packed(replace(checkpoint, tensors=unrounded), scales, base, factor)


def loss_of(model: Model, examples: list[Example]) -> dict[str, float]:
    """Metrics on held-out sequences, in float32 arithmetic."""
    exact = Precision("float32", "final metrics")
    return measure(model, TASK, examples, max_tokens=4_096, precision=exact)


def wikitext(path: Path) -> str:
    """WikiText's token file as running text, a blank line before every article."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    text = re.sub(r" @([-,.])@ ", r"\1", text).replace("<unk>", "")
    lines = []
    for line in (line.strip() for line in text.split("\n")):
        is_title = re.fullmatch(r"= [^=].*[^=] =", line)
        if is_title:
            lines.append("")
        if line:
            lines.append(line.strip("= "))
    return "\n".join(lines)


def figures(folder: Path, data: Path) -> dict[str, dict[str, float]]:
    """Masked-LM and next-sentence metrics of a model folder by text."""
    tokenizer = Tokenizer.load(folder)
    model = huggingface.read(folder).build()
    found = {}
    with tempfile.TemporaryDirectory() as spare:
        wiki = Path(spare) / "wiki.txt"
        wiki.write_text(wikitext(data / "wikitext103_tokens" / "wiki.valid.tokens.gz"), "utf-8")
        texts = {
            "held-out novel (Craik, Mistress and Maid)": data / "eltec_small" / "valid.txt.xz",
            "WikiText-103 validation": wiki,
        }
        for number, (name, path) in enumerate(texts.items()):
            place = Path(spare) / str(number)
            build_corpus([path], tokenizer, place)
            examples = fixed_examples(Corpus.open(place), tokenizer, ObjectiveOptions(pair="nsp"))
            masked = float(sum(len(e.target.positions) for e in examples))
            found[name] = loss_of(model, examples) | {"masked_tokens": masked}
    return found


def card(run: dict[str, Any], measured: dict[str, dict[str, float]]) -> str:
    """The model card."""
    rows = [
        f"| {name} | {m['mlm_accuracy']:.1%} | {m['perplexity']:.2f} | {m['nsp_accuracy']:.1%} "
        f"| {m['masked_tokens']:,.0f} |"
        for name, m in measured.items()
    ]
    return "\n".join(
        [
            "---",
            "library_name: filbert",
            "pipeline_tag: fill-mask",
            "license: apache-2.0",
            "language: en",
            "base_model: sentence-transformers/all-MiniLM-L6-v2",
            "---",
            "",
            "# filbert-mini",
            "",
            "A small English BERT (6 layers, width 384, uncased, 23 million parameters) with",
            "masked-LM and next-sentence heads, for `filbert fill`, `filbert score` and",
            "pre-training. For vectors and for fine-tuning take `minilm`.",
            "",
            "## What it was made from",
            "",
            "- The encoder of [all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/"
            "all-MiniLM-L6-v2)",
            "  (Apache-2.0): distilled from a larger model and trained for sentence vectors by its",
            "  authors. It has no masked-LM head, so both heads were drawn at random.",
            "- 93 English novels of 1840-1920 from ELTeC-eng (texts in the public domain, encoding",
            "  CC BY 4.0: English Novel Corpus, ed. Lou Burnard, doi 10.5281/zenodo.4662490).",
            "- 124 State of the Union and inaugural addresses (public domain).",
            "- The definitions and examples of WordNet 3.0, as sentences (WordNet 3.0 Copyright",
            "  2006 by Princeton University; its licence allows any use).",
            "",
            f"`filbert pretrain` continued it on {run['data']['train']['tokens']:,} tokens of "
            f"that text for {run['steps']:,} steps",
            f"({run['tokens']:,} tokens seen, {run['seconds'] / 60:.0f} minutes on two CPU "
            f"cores, {run['precision']}).",
            "`recipe.json` holds every option, `training_log.jsonl` the way there. The weights",
            "were then stored as differences from `minilm` in 8 bits, and the logits of the head",
            f"multiplied by {run['logit_factor']}, which is best on held-out novels of ELTeC.",
            "`filbert convert` writes the ordinary form for other tools.",
            "",
            "## How good it is",
            "",
            "15 % of the tokens masked as in BERT, sequences of up to 128 tokens, float32",
            "arithmetic. Neither text was trained on.",
            "",
            "| text | masked words right | perplexity | next sentence right | masked tokens |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## What it is not",
            "",
            "Its English is that of old novels and of a dictionary, and its knowledge of the world",
            "is small: a toy next to bert-base, fit for first steps, lessons and tests. Its",
            "sentence vectors are no longer those of MiniLM. The texts hold the prejudices of",
            "their time, and so does the model.",
            "",
        ]
    )


def log_lines(path: Path) -> list[str]:
    """A thinned-out training log."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for i, line in enumerate(lines) if i % EVERY == 0 or '"split"' in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--corpus", type=Path, required=True, help="of `filbert corpus`")
    parser.add_argument("--held-out", type=Path, required=True, help="of `filbert corpus`, novels")
    parser.add_argument("--data", type=Path, required=True, help="the folder of shared data")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    run = json.loads((given.run / "run.json").read_text(encoding="utf-8"))
    checkpoint = huggingface.read(given.run / "model")
    tokenizer = Tokenizer.load(given.run / "model")
    # Dropout was off to learn quickly; fine-tuning has BERT's own rates.
    rates = {"hidden_dropout": 0.1, "attention_dropout": 0.1, "head_dropout": 0.1}
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    used = replace(checkpoint, config=checkpoint.config.changed(**rates))
    stored = packed(used, tokenizer, given.corpus, given.held_out)
    write_packed(stored.checkpoint, stored.scales, given.out, base=stored.base)
    run["logit_factor"] = stored.factor
    tokenizer.save(given.out)
    options = {k: v for k, v in run["options"].items() if k not in _OWN}
    (given.out / "recipe.json").write_text(json.dumps(options, indent=2) + "\n", "utf-8")
    log = "\n".join(log_lines(given.run / "metrics.jsonl")) + "\n"
    (given.out / "training_log.jsonl").write_text(log, "utf-8")
    measured = figures(given.out, given.data)
    (given.out / "README.md").write_text(card(run, measured), "utf-8")
    told = ("filbert", "command", "versions", "precision", "seconds", "steps", "tokens", "data",
            "logit_factor")  # fmt: skip
    story = {key: run[key] for key in told} | {"options": options, "metrics": measured}
    names = ("config.json", PACKED)
    story["files"] = {name: {"sha256": sha256_of(given.out / name)} for name in names}
    (given.out / "filbert.json").write_text(json.dumps(story, indent=2) + "\n", "utf-8")
    for name, found in measured.items():
        print(name, {key: round(value, 4) for key, value in found.items()})
    size = len(zlib.compress((given.out / PACKED).read_bytes(), 6))
    print(f"{given.out}: {size:,} bytes in a wheel")


if __name__ == "__main__":
    main()
