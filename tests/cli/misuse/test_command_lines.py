"""Command lines that cannot be meant are refused before a model or torch is loaded."""

import json
import subprocess
import sys

import pytest

FILES = {
    "rows.csv": b"text,label\ngood,a\nbad,b\n",
    "text.txt": b"the film was good\n\nthe play was bad\n",
    "empty.toml": b"",
    "torn.toml": b"lr = \n",
    "typo.toml": b'task = "classification"\nmodel = "TINY"\ntrian = "rows.csv"\nout = "out"\n',
    "wrong.toml": b'corpus = ["text.txt"]\nout = "out"\nlr = "fast"\n',
    "verb.toml": b"[pretrain]\nlr = 1e-3\n",
    "latin.toml": b'out = "caf\xe9"\n',
    "study.toml": b'[contestants.one]\nmodel = "filbert-mini"\n',
    "study-typo.toml": b'data = "rows.csv"\n[contestants.one]\nmodle = "filbert-mini"\n',
    "study-none.toml": b'data = "rows.csv"\n',
}
FINETUNE = "finetune --task classification --model m --train t.csv --out out "
PRETRAIN = "pretrain --corpus text.txt --tokenizer minilm --out out "
DISTILL = "distill --teacher m --train t.csv --out out "
VOCAB = "vocab text.txt --out out --kind wordpiece --size 60 "
SERVE = "serve filbert-mini "
KINDS = {
    # No verb, or another
    "a verb that is misspelt": ("finetun", "finetune"),
    "a verb that there is not": ("train", "train"),
    "an option that there is not before the verb": ("--verbose predict m", "--verbose"),
    "a verb in capitals": ("Predict m", "predict"),
    # What is missing
    "check without a task": ("check rows.csv", "--task"),
    "check without a file": ("check --task classification", "FILES"),
    "compare without a recipe": ("compare --out out", "RECIPE"),
    "compare without a place": ("compare study.toml", "--out"),
    "convert without a target": ("convert m --to google", "TARGET"),
    "convert without a format": ("convert m out", "--to"),
    "corpus without a tokenizer": ("corpus text.txt --out out", "--tokenizer"),
    "corpus without a place": ("corpus text.txt --tokenizer minilm", "--out"),
    "corpus without text": ("corpus --tokenizer minilm --out out", "text"),
    "distill without a teacher": ("distill --train rows.csv --out out", "--teacher"),
    "distill without anything to learn from": (
        "distill --teacher m --out out", "--train", "--corpus",
    ),
    "embed without a place": ("embed m", "--out"),
    "embed without a model": ("embed --out v.npy", "MODEL"),
    "evaluate without rows": ("evaluate m", "--data"),
    "evaluate without model and predictions": (
        "evaluate --data rows.csv", "MODEL", "--predictions",
    ),
    "evaluate with predictions but no task": (
        "evaluate --data rows.csv --predictions p.jsonl", "--task",
    ),
    "explain without a text": ("explain m", "TEXT"),
    "export without a format": ("export m --out out", "--format"),
    "fill without anything": ("fill", "[MASK]"),
    "finetune without a task": ("finetune --model m --train t --out o", "--task"),
    "finetune without rows": ("finetune --task classification --model m --out o", "--train"),
    "heads without a model": ("inspect heads", "MODEL"),
    "info without a model": ("info", "MODEL"),
    "inspect without a text": ("inspect m", "TEXT"),
    "layers without dev rows": ("inspect layers m --task classification --train t", "--dev"),
    "neighbours without a word": ("inspect neighbours m text.txt", "--word"),
    "predict without a model": ("predict", "MODEL"),
    "pretrain without text": ("pretrain --tokenizer minilm --out out", "--corpus"),
    "pretrain without a place": ("pretrain --corpus text.txt --tokenizer minilm", "--out"),
    "push without a repository": ("push m", "REPO"),
    "replay without a model": ("replay", "MODEL"),
    "score without a model": ("score", "MODEL"),
    "serve without a model": ("serve", "model"),
    "shrink without anything to do": ("shrink filbert-mini --out out", "--keep-layers"),
    "shrink without a place": ("shrink filbert-mini --keep-layers 1", "--out"),
    "tokenize without a model": ("tokenize", "MODEL"),
    "vocab without a size": ("vocab text.txt --out out --kind wordpiece", "--size"),
    "vocab without text": ("vocab --out out --kind wordpiece --size 9", "CORPUS"),
    "an option without its value": ("predict m --max-length", "--max-length"),
    "one argument too many": ("info a b c", "'c'"),
    # Misspelt options
    "a misspelt option of predict": ("predict m --max-lenght 3", "--max-lenght", "--max-length"),
    "a misspelt option of finetune": (FINETUNE + "--batch-sise 3", "--batch-size"),
    "a misspelt option that was needed": ("finetune --modle x", "--modle", "--model"),
    "a misspelt option of serve": (SERVE + "--prot 80", "--prot", "--port"),
    "a misspelt option of bench": ("bench encode --thread 2", "--thread", "--threads"),
    "a misspelt option of doctor": ("doctor --jsno", "--jsno", "--json"),
    "a misspelt option of export": ("export m --out o --format onnx --int-8", "--int-8", "--int8"),
    "a misspelt option of replay": ("replay m --tolerence 1", "--tolerance"),
    "a misspelt option of quickstart": ("quickstart --step 3", "--steps"),
    "a misspelt option of shrink": ("shrink m --keep-layer 3", "--keep-layers"),
    "a misspelt option of push": ("push m a/b --dryrun", "--dry-run"),
    "an option of another program": (FINETUNE + "--learning_rate 1e-5", "--learning"),
    "a short option": ("predict m -o x", "-o"),
    # Wrong types
    "words for a number": (FINETUNE + "--lr fast", "--lr", "fast", "number"),
    "a fraction for a whole number": (FINETUNE + "--steps 1.5", "--steps", "1.5", "whole number"),
    "words for a whole number": ("predict m --max-length long", "--max-length", "long"),
    "words for a port": (SERVE + "--port http", "--port", "http"),
    "a value for a flag": ("info m --json=perhaps", "--json", "perhaps"),
    "a kind of vocabulary that there is not": (
        "vocab text.txt --out out --kind bpe --size 60", "--kind", "bytebpe",
    ),
    "a size that is none": (VOCAB + "--max-memory lots", "--max-memory", "2G"),
    # Recipes
    "a recipe that is not there": ("pretrain nowhere.toml --out out", "nowhere.toml"),
    "a misspelt recipe": ("pretrain mini-cpuu --out out", "mini-cpu"),
    "a recipe that is not TOML": ("pretrain torn.toml --out out", "torn.toml", "line 1"),
    "a recipe in Latin-1": ("pretrain latin.toml", "latin.toml", "UTF-8"),
    "a misspelt key in a recipe": ("finetune --recipe typo.toml", "typo.toml", "trian", "train"),
    "a wrong type in a recipe": (
        "pretrain wrong.toml --tokenizer minilm", "wrong.toml", "lr", "fast",
    ),
    "a table in a recipe": ("pretrain verb.toml --out out", "verb.toml", "pretrain"),
    "an empty recipe": ("pretrain empty.toml --out out", "--corpus"),
    "a recipe for a verb that is not named": ("--recipe empty.toml", "empty.toml", "COMMAND"),
    "a study that is not there": ("compare nowhere.toml --out out", "nowhere.toml"),
    "a misspelt study": ("compare toxic-studdy --out out", "toxic-study"),
    "a study without contestants": ("compare study-none.toml --out out", "contestants"),
    "a misspelt key in a study": ("compare study-typo.toml --out out", "modle", "model"),
    "a study without rows": ("compare study.toml --out out", "data"),
    # Names that there are not
    "a misspelt task": ("check --task clasification rows.csv", "'classification'"),
    "another program's task": (
        "finetune --task ner --model m --train t --out out", "ner", "Did you mean 'tagging'",
    ),
    "a format of export": ("export filbert-mini --out out --format tflite", "tflite", "onnx"),
    "a format of convert": ("convert filbert-mini out --to pytorch", "pytorch", "huggingface"),
    "a table of bench": ("bench tokenise", "tokenise", "tokenize"),
    "an optimizer": (FINETUNE + "--optimizer sgd", "sgd", "adamw"),
    "a schedule": (FINETUNE + "--schedule step", "step", "linear"),
    "a precision of training": (FINETUNE + "--precision fp16", "fp16", "bf16"),
    "a time": (FINETUNE + "--time soon", "soon", "20m"),
    "an ending of embed": ("embed filbert-mini --out v.txt", "v.txt", ".npy"),
    "an ending of the page": (
        "explain filbert-mini 'a [MASK]' --out page.pdf", "page.pdf", ".html",
    ),
    "a pooling": ("embed filbert-mini --out v.npy --pooling average", "average", "mean"),
    "layers that are no numbers": (
        "embed filbert-mini --out v.npy --layers last", "--layers", "-1",
    ),
    "an engine": ("predict filbert-mini --out a.jsonl --engine spark", "spark", "ray"),
    "a family": (PRETRAIN + "--family gpt2", "gpt2", "bert"),
    "a masking": (PRETRAIN + "--masking letters", "letters", "token"),
    "an objective": (PRETRAIN + "--objective clm", "clm", "mlm"),
    "a pair": (PRETRAIN + "--pair next", "next", "nsp"),
    "a method of distilling": (DISTILL + "--method hard", "hard", "soft"),
    "a way of sentences": (
        "corpus text.txt --tokenizer minilm --out out --sentences nltk", "nltk", "rules",
    ),
    "a method of explain": ("explain filbert-mini 'a [MASK]' --method shap", "shap", "gradient"),
    "a license": (FINETUNE + "--license 'Apache License'", "Apache License", "apache-2.0"),
    "a language": (FINETUNE + "--language English", "English", "en"),
    "an overflow": (FINETUNE + "--on-overflow cut", "cut", "truncate"),
    "a cleaning step": (FINETUNE + "--clean lower", "lower", "study"),
    # Numbers out of range
    "no steps": (FINETUNE + "--steps 0", "steps", "0"),
    "a negative learning rate": (FINETUNE + "--lr -1", "lr", "-1"),
    "a learning rate that is no number": (FINETUNE + "--lr nan", "lr", "nan"),
    "no rows in a batch": (FINETUNE + "--batch-size 0", "batch_size", "0"),
    "a warmup of more than everything": (FINETUNE + "--warmup 2", "warmup", "2"),
    "a dropout of everything": (FINETUNE + "--dropout 1.5", "dropout", "1.5"),
    "a length below three": (
        "check --task classification rows.csv --max-length 2", "max_length is 2",
    ),
    "no length": ("embed filbert-mini text.txt --out v.npy --max-length 0", "max_length 0"),
    "no seeds": (FINETUNE + "--seeds 0", "seeds"),
    "a likeness of more than everything": (
        "check --task classification rows.csv --near-duplicates --similarity 2", "similarity", "2",
    ),
    "a mask rate of more than everything": (PRETRAIN + "--mask-rate 1.5", "mask_rate", "1.5"),
    "a vocabulary of nothing": ("vocab text.txt --out out --kind wordpiece --size 0", "size", "0"),
    "shards of nothing": ("corpus text.txt --tokenizer minilm --out out --shard-tokens 0", "shard"),
    "no workers for a corpus": (
        "corpus text.txt --tokenizer minilm --out out --workers 0", "workers",
    ),
    "a negative number of workers": (
        "predict filbert-mini text.txt --out a.jsonl --engine ray --workers -1", "workers",
    ),
    "a port that there is not": (SERVE + "--port 99999", "99999"),
    "a negative time": (SERVE + "--max-wait-ms -1", "--max-wait-ms"),
    "no workers to serve": (SERVE + "--workers 0", "workers"),
    "no seconds for bench": ("bench encode --seconds 0", "seconds"),
    "no threads for bench": ("bench encode --threads 0", "threads"),
    "no candidates": ("fill filbert-mini 'a [MASK]' --top 0", "top is 0"),
    "no words of explain": ("explain filbert-mini 'a [MASK]' --top 0", "--top", "0"),
    "no points of the integral": ("explain filbert-mini 'a [MASK]' --steps 0", "--steps", "0"),
    "no places": ("inspect heads filbert-mini text.txt --limit 0", "--limit", "0"),
    "a negative tolerance": ("replay m --tolerance -1", "tolerance", "-1"),
    "a negative loss": (
        "evaluate filbert-mini --data rows.csv --against float32 --max-loss -1", "max-loss",
    ),
    "an alpha beyond one": (DISTILL + "--alpha 2", "alpha", "2"),
    "a share beyond one": ("compare study.toml --out out --split 0.9 0.9 0.9", "split"),
    # Options that exclude each other, or that would be ignored
    "a text and a file to fill": ("fill filbert-mini 'a [MASK]' --input text.txt", "--input"),
    "a file to write for a single text": (
        "fill filbert-mini 'a [MASK]' --out a.jsonl", "--out", "--input",
    ),
    "a text without a mask": ("fill 'the film'", "[MASK]"),
    "predictions beside a model": (
        "evaluate m --data rows.csv --predictions p.jsonl --task classification", "MODEL",
    ),
    "precisions of predictions": (
        "evaluate --data rows.csv --predictions p.jsonl --task classification --against float32",
        "--against",
    ),
    "a limit without a comparison": (
        "evaluate m --data rows.csv --max-loss 0.1", "--max-loss", "--against",
    ),
    "a likeness without the search for it": (
        "check --task classification rows.csv --similarity 0.9",
        "--similarity", "--near-duplicates",
    ),
    "vectors a token in a matrix": ("embed m --out v.npy --pooling none", "--pooling none"),
    "resume and overwrite at once": (
        "predict m text.txt --out a.jsonl --resume --overwrite", "--overwrite",
    ),
    "resume and overwrite of a run": (FINETUNE + "--resume --overwrite", "--resume", "Give one"),
    "resume and overwrite of pre-training": (PRETRAIN + "--resume --overwrite", "Give one"),
    "resume and overwrite of distillation": (DISTILL + "--resume --overwrite", "Give one"),
    "resume without a file": ("predict m text.txt --resume", "--out"),
    "a run folder called -": (
        "finetune --task classification --model m --train t.csv --out -", "standard output",
    ),
    "an export on stdout": ("export filbert-mini --out - --format onnx", "standard output"),
    "a converted model on stdout": ("convert filbert-mini - --to google", "standard output"),
    "training rows on stdin": (
        "finetune --task classification --model m --train - --out out", "--train", "a file",
    ),
    "texts of pre-training on stdin": ("pretrain mini-cpu --corpus - --out out", "-"),
    "examples beside JSON": (
        "corpus text.txt --tokenizer filbert-mini --out c --json --show 1", "--json", "--show",
    ),
    "two documents on stdout": ("score filbert-mini text.txt --json --out -", "--json", "--out -"),
    "a text like an option": ("fill filbert-mini '-5 degrees is [MASK].'", "behind --"),
    "an option behind --": ("fill filbert-mini -- '-5 is [MASK].' --json", "--json stands behind"),
    "resume of stdin": ("predict m --out a.jsonl --resume", "--resume", "Give a file"),
    "workers without a cluster": (
        "predict m text.txt --out a.jsonl --workers 2", "--workers", "ray",
    ),
    "inspect without page or table": ("inspect filbert-mini hello", "--out", "--text"),
    "rows and raw text to distil on": (DISTILL + "--corpus text.txt", "--corpus"),
    "an option of raw text for rows": (DISTILL + "--mask-rate 0.2", "mask_rate"),
    "a merged label without columns": (FINETUNE + "--as toxic", "merge"),
    "merged columns without a label": (FINETUNE + "--merge-labels a,b", "--as"),
    "a key without a certificate": (SERVE + "--key key.pem", "--certificate"),
    "a certificate that is not there": (SERVE + "--certificate nowhere.pem", "nowhere.pem"),
    "keys that are not there": (SERVE + "--api-keys nowhere.txt", "nowhere.txt"),
    "two models of one name": ("serve a=filbert-mini a=filbert-mini", "both called a"),
    "a vector for each token of a masked model": (
        PRETRAIN + "--second-length 64 --second-share 2", "second_share",
    ),
    "options of a new model for one that there is": (
        PRETRAIN + "--model filbert-mini --hidden-size 64", "hidden_size",
    ),
    "two lengths without a second phase": (PRETRAIN + "--second-batch-size 8", "second"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_line_that_cannot_be_meant_is_refused(refused, kind):
    command, *words = KINDS[kind]
    refused(command, *words, files=FILES)


# Of what comes later in KINDS, one of each verb that can tell without the model.
EARLY = (
    "a misspelt key in a study", "another program's task", "no seconds for bench",
    "layers that are no numbers", "an engine", "a way of sentences", "resume and overwrite at once",
    "resume and overwrite of distillation", "a time",
    "predictions beside a model", "a masking", "a schedule", "an ending of embed",
)  # fmt: skip


def test_what_cannot_be_meant_is_told_without_waiting_for_torch(tmp_path):
    first = list(KINDS)[: list(KINDS).index("a study that is not there")]
    # The options of shrink are checked next to the code that needs torch.
    first.remove("shrink without anything to do")
    lines = [KINDS[kind][0] for kind in (*first, *EARLY)]
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    code = """
import json, shlex, sys
sys.modules["torch"] = None  # to import it is an error from now on
from filbert.cli.main import run
print([line for line in json.load(sys.stdin) if run(shlex.split(line)) != 2])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(lines),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", (done.stdout, done.stderr[-2000:])
