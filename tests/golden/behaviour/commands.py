"""The command lines of the record, in one place: options may get other names.

Braces are filled by the case; {place} is the folder in which it works. With eps 1 an update of Adam
is nearly the gradient times the rate. At the usual 1e-8, a gradient that is zero but for rounding
would move its weight by the whole rate, to another side on every machine.
"""

from __future__ import annotations

STEPS = "--steps 3 --batch-size 8 --lr 0.05 --eps 1 --warmup 0.3 --precision float32 --seed 5"
ROWS = "--train {place}/rows/{rows}.train.jsonl --dev {place}/rows/{rows}.dev.jsonl"
PRETRAIN = (
    "--corpus {corpus} --dev {dev} --out {out} --dev-rows 8 --max-length 24 --dropout 0 " + STEPS
)
NEW = (
    "--num-hidden-layers 2 --hidden-size 16 --num-attention-heads 2 --intermediate-size 24 "
    "--max-position-embeddings 32"
)

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
    "export": "export {model} --out {out} --format onnx --json",
    "export int8": "export {model} --out {out} --format onnx --int8 --json",
    "shrink layers": "shrink {model} --out {out} --keep-layers 1 --json",
    "shrink vocabulary": "shrink {model} --out {out} --vocabulary-from {place}/text/dev.txt --json",
    "check": "check --task {task} {path} --model {model} --json",
    "corpus": (
        "corpus {place}/text/{part}.txt --tokenizer {place}/vocab --out {out} --workers 1 --json"
    ),
    "embed": "embed {model} {place}/rows/texts.jsonl --out {out}",
    "predict file": "predict {model} {data} --out {out}",
    "evaluate predictions": (
        "evaluate --task {task} --data {data} --predictions {predictions} --json"
    ),
    "evaluate predictions multilabel": (
        "evaluate --task {task} --data {data} --predictions {predictions} --json --multilabel"
    ),
    "score": "score {model} {place}/rows/texts.jsonl",
    "fill": "fill {model} --input - --top 3",
    "info": "info {model} --json",
    "info two": "info {model} {other} --json",
    "explain": "explain {model} {text} --method all --steps 8 --json",
    "heads": "inspect heads {model} {place}/rows/texts.txt --json",
    "neighbours": "inspect neighbours {model} {place}/rows/texts.txt --word good --json",
    "serve": "serve --port {port} --no-page",
    # What is interrupted and resumed: dropout, micro-batches, states in between.
    "resume": (
        f"finetune --task classification --model {{model}} --out {{out}} {ROWS} --max-tokens 64 "
        "--steps 6 --batch-size 8 --lr 0.05 --eps 1 --precision float32 --dropout 0.1 --seed 5 "
        "--save-every 2 --eval-every 3"
    ),
    "resume again": (
        f"finetune --task classification --model {{model}} --out {{out}} {ROWS} --max-tokens 64 "
        "--steps 6 --batch-size 8 --lr 0.05 --eps 1 --precision float32 --dropout 0.1 --seed 5 "
        "--save-every 2 --eval-every 3 --resume"
    ),
    "replay": "replay {model} --out {out} --json",
    "pretrain mlm": f"pretrain {PRETRAIN} --model {{model}} --masking word",
    "pretrain nsp": f"pretrain {PRETRAIN} {NEW} --pair nsp --optimizer bert_adam",
    "pretrain sop": f"pretrain {PRETRAIN} {NEW} --pair sop --family albert --embedding-size 8",
    "pretrain electra": (
        f"pretrain {PRETRAIN} {NEW} --objective replaced --family electra --embedding-size 8 "
        "--mask-style electra --generator-share 0.5"
    ),
    "distill": (
        f"distill --teacher {{model}} --keep-layers 1 --out {{out}} {ROWS} {STEPS} --max-tokens 64"
    ),
    "distill layers": (
        f"distill --teacher {{model}} --method tinybert --keep-layers 1 --out {{out}} {ROWS} "
        f"{STEPS}"
    ),
    "compare": "compare {recipe} --out {out} --json",
    "finetune conll": (
        "finetune --task tagging --model {model} --out {out} --train {place}/rows/tags.conll "
        f"--dev {{place}}/rows/tags.conll {STEPS} --optimizer lamb --schedule cosine --freeze 0"
    ),
    "finetune window": (
        f"finetune --task classification --model {{model}} --out {{out}} {ROWS} {STEPS} "
        "--on-overflow window --max-length 10 --stride 4 --class-weights balanced --clean study "
        "--layer-decay 0.9 --reinit-layers 1 --optimizer bert_adam --schedule bert"
    ),
    "finetune muon": (
        f"finetune --task regression --model {{model}} --out {{out}} {ROWS} {STEPS} "
        "--optimizer muon --freeze embeddings --causal"
    ),
    "evaluate mapped": (
        "evaluate {model} --data {data} --text-column said --label-column kind --json"
    ),
}
