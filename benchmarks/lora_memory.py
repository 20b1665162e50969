"""Peak memory of fine-tuning BERT-base's shape, whole and with `--lora`: each in its own process.

    python benchmarks/lora_memory.py [--tokens 16 64 256] [--rank 16] [--steps 4]

The model has 12 layers of 768 and a vocabulary of 30,522, with random weights. A step has the
default batch, 32 rows, in float32. Dev is evaluated twice, so that a copy of the best weights is
part of the peak. A figure is the largest resident memory of the process less what it had after its
imports.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import filbert
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.huggingface import write
from filbert.checkpoints.opening import find_model, read_tokenizer


def resident(what: str = "VmHWM") -> float:
    """Return the largest resident memory of this process so far, or another of its sizes, in MB."""
    return int(re.findall(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def train(place: Path, tokens: int, lora: int | None, steps: int) -> float:
    import_module("filbert.report.run")
    import_module("filbert.train.seeds")
    draw, before = random.Random(0), resident()
    words = (place / "words.txt").read_text().split()
    # Two of the tokens are special. Half of the rows are one token shorter, half one longer.
    texts = [" ".join(draw.choices(words, k=tokens - 2 + i % 2)) for i in range(1_100)]
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        filbert.finetune(
            task="classification",
            model=place / "model",
            train=rows[:1_000],
            dev=rows[1_000:1_064],
            out=Path(folder) / "run",
            steps=steps,
            eval_every=steps // 2,
            save_every=0,
            precision="float32",
            baseline=False,
            lora=lora,
        )
    return resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        place, lora = options.child
        used = train(Path(place), options.tokens[0], int(lora) or None, options.steps)
        print(json.dumps(used), file=sys.__stdout__)
        return
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = read_tokenizer(find_model("minilm"))
        place = Path(folder)
        write(fresh_checkpoint("bert", vocab_size=30_522, head="masked_lm"), place / "model")
        tokenizer.save(place / "model")
        entries = tokenizer.backend.get_vocab()
        found = sorted(word for word in entries if word.isalpha() and len(word) > 2)
        (place / "words.txt").write_text("\n".join(found[:5_000]), encoding="utf-8")
        print("| tokens a row | whole | LoRA | share |\n|---|---|---|---|")
        for tokens in options.tokens:
            used = []
            for lora in (0, options.rank):
                command = [sys.executable, __file__, "--child", folder, str(lora)]
                command += ["--tokens", str(tokens), "--steps", str(options.steps)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                used.append(float(done.stdout.strip().splitlines()[-1]))
            whole, low = used
            print(f"| {tokens} | {whole:,.0f} MB | {low:,.0f} MB | {low / whole:.0%} |", flush=True)


if __name__ == "__main__":
    main()
