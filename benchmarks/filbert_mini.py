"""Make the model that comes with filbert out of a pre-training run, and measure it.

    python benchmarks/filbert_mini.py RUN --data DIR [--out src/filbert/samples/filbert-mini]

RUN is the run folder of `filbert pretrain filbert-mini`. Its model is written in float16 with a
model card, the recipe and the training log; the figures in the card are measured on that very
folder, in float32 arithmetic: 15 % of the tokens masked as in BERT, sequences of 128 tokens, all of
the held-out novel and of WikiText-103's validation text. WikiText's marks are undone first: ` @-@ `
becomes `-` (`,` and `.` alike), and `<unk>` is left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from filbert.checkpoints import huggingface
from filbert.data.build import build_corpus
from filbert.data.instances import fixed_examples
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import Corpus
from filbert.files import sha256_of
from filbert.inference.masked_text import measure
from filbert.model.precision import Precision
from filbert.tasks.pretraining import Pretraining
from filbert.text.tokenizer import Tokenizer

OUT = Path(__file__).parents[1] / "src" / "filbert" / "samples" / "filbert-mini"
MOST_BYTES = 50_000_000
# Kept of the training log: every so many lines, and all that is about dev.
EVERY = 20
# Options that say where and how it was run, and nothing of what was learnt.
_OWN = ("corpus", "dev", "out", "resume")


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
    """Masked-LM and next-sentence figures of a model folder by text."""
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
            found[name] = measure(
                model,
                Pretraining(pair="nsp"),
                examples,
                max_tokens=4_096,
                precision=Precision("float32", "final figures"),
            ) | {"masked_tokens": float(sum(len(e.target.positions) for e in examples))}
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
            "A small English BERT (6 layers, width 384, uncased, 23 million parameters, float16)",
            "with masked-LM and next-sentence heads: what `filbert quickstart` and `filbert fill`",
            "use when no other model is named.",
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
            f"({run['tokens']:,} tokens seen, {run['seconds'] / 60:.0f} minutes on two processor "
            f"cores, {run['precision']}).",
            "`recipe.json` holds every option, `training_log.jsonl` the way there.",
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
    parser.add_argument("--data", type=Path, required=True, help="the folder of shared data")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    run = json.loads((given.run / "run.json").read_text(encoding="utf-8"))
    checkpoint = huggingface.read(given.run / "model")
    # Dropout was off to learn quickly; whoever fine-tunes wants BERT's own.
    rates = {"hidden_dropout": 0.1, "attention_dropout": 0.1, "head_dropout": 0.1}
    small = replace(
        checkpoint,
        config=checkpoint.config.changed(**rates),
        tensors={name: tensor.half() for name, tensor in checkpoint.tensors.items()},
    )
    shutil.rmtree(given.out, ignore_errors=True)
    huggingface.write(small, given.out)
    Tokenizer.load(given.run / "model").save(given.out)
    options = {k: v for k, v in run["options"].items() if k not in _OWN}
    (given.out / "recipe.json").write_text(json.dumps(options, indent=2) + "\n", "utf-8")
    log = "\n".join(log_lines(given.run / "metrics.jsonl")) + "\n"
    (given.out / "training_log.jsonl").write_text(log, "utf-8")
    measured = figures(given.out, given.data)
    (given.out / "README.md").write_text(card(run, measured), "utf-8")
    told = ("filbert", "command", "versions", "precision", "seconds", "steps", "tokens", "data")
    story = {key: run[key] for key in told} | {"options": options, "metrics": measured}
    names = ("config.json", "model.safetensors")
    story["files"] = {name: {"sha256": sha256_of(given.out / name)} for name in names}
    (given.out / "filbert.json").write_text(json.dumps(story, indent=2) + "\n", "utf-8")
    size = sum(path.stat().st_size for path in given.out.iterdir())
    assert size <= MOST_BYTES, f"{size:,} bytes"
    for name, found in measured.items():
        print(name, {key: round(value, 4) for key, value in found.items()})
    print(f"{given.out}: {size:,} bytes")


if __name__ == "__main__":
    main()
