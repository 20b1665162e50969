"""The command lines of the record, in one place: options may get other names.

Braces are filled by the case; {place} is the folder in which it works. With eps 1 an update of Adam
is nearly the gradient times the rate. At the usual 1e-8, a gradient that is zero but for rounding
would move its weight by the whole rate, to another side on every machine.
"""

from __future__ import annotations

STEPS = "--steps 3 --batch-size 8 --lr 0.05 --eps 1 --warmup 0.3 --precision float32 --seed 5"
ROWS = "--train {place}/rows/{rows}.train.jsonl --dev {place}/rows/{rows}.dev.jsonl"

COMMANDS = {
    "vocab": "vocab {place}/text/train.txt --out {place}/vocab-{kind} --kind {kind} --size {size}",
    "tokenize": "tokenize {model} -",
    "tokenize cut": "tokenize {model} - --max-length 6",
    "finetune": f"finetune --task {{task}} --model {{model}} --out {{out}} {ROWS} {STEPS}",
    "finetune span_qa": (
        f"finetune --task span_qa --n-best 3 --model {{model}} --out {{out}} {ROWS} {STEPS}"
    ),
    "evaluate": "evaluate {model} --data {data} --json",
    "predict": "predict {model} {data}",
    "convert": "convert {source} {out} --to {to}",
}
