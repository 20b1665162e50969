"""Kill a training run at random moments, many times, and see whether resuming ever goes wrong.

A small classifier with dropout and accumulation is trained once without disturbance. Then the same
run is started, killed with SIGKILL at a random moment, and resumed, over and over; when it comes to
its end its weights must be bit-identical to the undisturbed ones, and a new chain begins. Children
are forked from a process that has torch loaded already, so that most of their life is training and
saving. A control run with another seed must give another digest.

    python benchmarks/stress_resume.py --kills 200 --tasks classification,tagging
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder, initialize
from filbert.model.heads import Model
from filbert.text.tokenizer import Tokenizer
from filbert.train.finetune import finetune
from filbert.train.options import FinetuneOptions
from filbert.train.state import digest_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "film", "was", "not", "very"]
WORDS += ["good", "bad", "and", "he", "she", "it"]


def make_model(folder: Path) -> Path:
    """A random encoder of 2 x 64, small enough that saving is a large share of the time."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    config = EncoderConfig.of(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    encoder = Encoder(config)
    initialize(encoder, 0.1)
    huggingface.write(Checkpoint(config, "bert", Model(encoder).state_dict()), folder)
    Tokenizer.load(folder).save(folder)
    return folder


def make_rows(folder: Path, task: str) -> dict[str, str]:
    """Train and dev rows of a task, as JSON Lines."""
    draw = random.Random(0)
    files = {}
    for name, count in (("train", 240), ("dev", 48)):
        lines = []
        for number in range(count):
            words = draw.choices(WORDS[5:], k=draw.randint(3, 20))
            good = sum(word in ("good", "very") for word in words)
            text, row = " ".join(words), {}
            if task == "classification":
                row = {"text": text, "label": "pos" if good else "neg"}
            elif task == "regression":
                row = {"text": text, "label": float(good)}
            elif task == "tagging":
                row = {"tokens": words, "tags": ["B-X" if w == "good" else "O" for w in words]}
            elif task == "multiple_choice":
                row = {"context": text, "choices": ["good", "bad"], "label": good % 2}
            elif task == "embedding":
                row = {"text": text, "text_pair": " ".join(words[::-1] + [str(number)])}
            elif task == "span_qa":
                context = f"{text} film {text}"
                answer = [{"text": "film", "answer_start": len(text) + 1}]
                row = {"id": str(number), "question": "a film", "context": context}
                row["answers"] = answer
            lines.append(json.dumps(row))
        path = folder / f"{task}.{name}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        files[name] = str(path)
    return files


def options(task: str, model: Path, files: dict[str, str], out: Path, **more: Any) -> Any:
    given = {
        "task": task,
        "model": str(model),
        **files,
        "out": str(out),
        "epochs": 6.0,
        "batch_size": 32,
        "lr": 1e-3,
        "max_tokens": 120,
        "eval_every": 7,
        "save_every": 3,
        "precision": "float32",
    }
    return FinetuneOptions.from_keywords(given | more)


def child(run: Any, errors: Path) -> int:
    """Start a run in a forked child; gives its process number."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        torch.set_num_threads(1)
        finetune(run)
        status = 0
    except BaseException:
        errors.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(status)


def digest(out: Path) -> str:
    return digest_of(load_file(out / "model" / "model.safetensors"))


def whole_run(run: Any, errors: Path) -> float:
    start = time.perf_counter()
    _, status = os.waitpid(child(run, errors), 0)
    if status:
        sys.exit(f"an undisturbed run failed:\n{errors.read_text()}")
    return time.perf_counter() - start


def stress(task: str, kills: int, place: Path, draw: random.Random) -> dict[str, Any]:
    """Chains of kills until `kills` were done."""
    errors = place / "errors.txt"
    model = place / "model"
    files = make_rows(place, task)
    seconds = whole_run(options(task, model, files, place / f"{task}.straight"), errors)
    wanted = digest(place / f"{task}.straight")
    whole_run(options(task, model, files, place / f"{task}.control", seed=1), errors)
    if digest(place / f"{task}.control") == wanted:
        sys.exit("the control failed: another seed gave the same weights")
    done = wrong = unusable = chains = while_saving = 0
    out = place / f"{task}.killed"
    while done < kills:
        shutil.rmtree(out, ignore_errors=True)
        first = True
        while True:
            run = options(task, model, files, out, resume=not first)
            first = False
            pid = child(run, errors)
            # The last run of a chain ends: what comes after training may take longer than a kill.
            wait = draw.uniform(0.0, 0.9 * seconds) if done < kills else float("inf")
            deadline = time.perf_counter() + wait
            status = None
            while time.perf_counter() < deadline and status is None:
                ended, code = os.waitpid(pid, os.WNOHANG)
                status = code if ended else None
                time.sleep(0.0005)
            if status is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                done += 1
                state = out / "state"
                while_saving += state.is_dir() and any(p.name[0] == "." for p in state.iterdir())
                continue
            if status:
                unusable += 1
                print(f"{task}: a resumed run failed:\n{errors.read_text()}", file=sys.stderr)
            else:
                chains += 1
                wrong += digest(out) != wanted
            break
    return {
        "task": task,
        "kills": done,
        "of them while a state was being written": while_saving,
        "finished chains": chains,
        "wrong": wrong,
        "unusable": unusable,
        "undisturbed seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="in all, shared by the tasks")
    tasks = "classification,regression,tagging,multiple_choice,embedding,span_qa"
    parser.add_argument("--tasks", default=tasks)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    names = chosen.tasks.split(",")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_model(place / "model")
        for name in names:
            result = stress(name, -(-chosen.kills // len(names)), place, random.Random(chosen.seed))
            failed |= bool(result["wrong"] or result["unusable"])
            print(json.dumps(result), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
