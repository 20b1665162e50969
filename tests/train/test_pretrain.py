"""Whole pre-training runs: killed and resumed, in phases, against the clock, and what they leave.

Run by itself, this file is the worker whose runs are killed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from filbert.data.build import build_corpus
from filbert.data.shards import Corpus
from filbert.errors import ConfigError, Interrupted
from filbert.text.tokenizer import Tokenizer
from filbert.train import loop
from filbert.train.pretrain import pretrain
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.state import digest_of, newest_state

# Dropout is on, the second phase is longer: all that a resumed run must find again.
SETTINGS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 44,
    "dropout": 0.2,
    "max_length": 16,
    "second_length": 40,
    "second_share": 0.4,
    "steps": 10,
    "batch_size": 6,
    "max_tokens": 50,
    "lr": 1e-3,
    "save_every": 2,
    "precision": "float32",
    "device": "cpu",
}
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"pair": "nsp", "masking": "word"},
    "bert_adam": {"pair": "sop", "family": "albert", "embedding_size": 8},
    "lamb": {"duplicates": 2, "mask_style": "roberta", "family": "roberta"},
    "muon": {"masking": "span"},
    "adamw, replaced": {
        "objective": "replaced",
        "family": "electra",
        "embedding_size": 8,
        "mask_style": "electra",
        "generator_share": 0.5,
    },
}
# In the first phase, of steps 1 to 6, and in the second.
KILLS = (4, 9)


@pytest.fixture(scope="module")
def place(vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocabulary, train.txt (about 2,400 tokens) and dev.txt."""
    folder = tmp_path_factory.mktemp("pretrain")
    words = (vocab / "vocab.txt").read_text().split()
    (folder / "vocab").mkdir()
    (folder / "vocab" / "vocab.txt").write_text("\n".join(words) + "\n")
    known = [word for word in words[5:] if word.isalpha()]
    draw = random.Random(0)
    for name, count in (("train", 60), ("dev", 9)):
        documents = [
            "\n".join(
                " ".join(draw.choices(known, k=draw.randint(3, 12))) + " ."
                for _ in range(draw.randint(2, 7))
            )
            for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    return folder


def options(place: Path, out: Path, **more: Any) -> PretrainOptions:
    given = {"corpus": str(place / "train.txt"), "tokenizer": str(place / "vocab"), "out": str(out)}
    given = given | SETTINGS | more
    return PretrainOptions.from_keywords({k: v for k, v in given.items() if v is not None})


def of_case(place: Path, out: Path, case: str, **more: Any) -> PretrainOptions:
    return options(place, out, optimizer=case.split(",")[0], **CASES[case] | more)


def digest(out: Path) -> str:
    return digest_of(load_file(out / "model" / "model.safetensors"))


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def steps(out: Path) -> list[dict[str, Any]]:
    return [line for line in lines(out) if "loss" in line]


def main(place: Path, out: Path) -> None:
    """Every case once to its end, and once killed wherever KILLS says; each run in a process."""
    import torch._dynamo  # torch does so for the first model, and the processes need not

    torch.set_num_threads(1)
    text: dict[str, Any] = {"corpus": str(out / "text")}
    build_corpus([place / "train.txt"], Tokenizer.load(place / "vocab"), out / "text")
    ended: dict[str, list[int]] = {}
    for case in CASES:
        name = case.replace(", ", "-")
        ended[case] = [
            in_a_process(lambda c=case, n=name: pretrain(of_case(place, out / n, c, **text)))
        ]
        for kill in (*KILLS, 0):
            given = of_case(place, out / f"{name}-killed", case, resume=kill != KILLS[0], **text)
            ended[case].append(in_a_process(lambda g=given, k=kill: killed_in(k, g)))
    (out / "ended.json").write_text(json.dumps(ended))


def in_a_process(run: Any) -> int:
    """The exit status, or minus the signal; a copy of this process spares it the imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_in(step: int, given: PretrainOptions) -> None:
    """Die in the middle of a step, its gradient computed and its update not yet made."""
    real = loop.accumulate

    def dies(*args: Any, **kwargs: Any) -> Any:
        gradient = real(*args, **kwargs)
        if kwargs["seed"][1] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient

    loop.accumulate = dies
    pretrain(given)


@pytest.fixture(scope="module")
def killed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, __file__, str(place), str(out)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_in_both_phases_and_resumed_has_the_weights_of_the_straight_one(
    killed, place, case, tmp_path
):
    straight, other = (
        killed / case.replace(", ", "-"),
        killed / (case.replace(", ", "-") + "-killed"),
    )
    ended = json.loads((killed / "ended.json").read_text())[case]
    assert ended == [0, *[-signal.SIGKILL] * len(KILLS), 0]
    assert digest(other) == digest(straight)
    for name in ("step", "epoch", "loss", "mlm_loss", "lr", "grad_norm", "sequences"):
        assert [line[name] for line in steps(other)] == [line[name] for line in steps(straight)]
    if (straight / "model" / "generator").is_dir():
        generators = [
            load_file(run / "model/generator/model.safetensors") for run in (straight, other)
        ]
        assert digest_of(generators[0]) == digest_of(generators[1])


def test_another_seed_has_other_weights(killed, place, tmp_path):
    pretrain(of_case(place, tmp_path / "x", "muon", seed=7))
    assert digest(tmp_path / "x") != digest(killed / "muon")


def test_phases_switch_at_their_step_to_longer_rows_under_one_schedule(killed):
    made = steps(killed / "adamw")
    rates = [line["lr"] for line in made]
    assert rates[0] == 0 and rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[1:] == pytest.approx([1e-3 * (10 - step) / 9 for step in range(1, 10)])
    sizes = [line["sequences"] for line in made]
    assert sizes[:6] == [6] * 6
    # As many tokens as before: 6 rows of 16 are 2 of 40.
    assert sizes[6:] == [2] * 4
    assert made[6]["epoch"] < made[5]["epoch"], "the passes over the longer rows are counted anew"


def test_run_json_and_log_hold_the_held_out_figures(place, tmp_path):
    out = tmp_path / "x"
    run = pretrain(options(place, out, dev=str(place / "dev.txt"), dev_rows=5, eval_every=5))
    assert json.loads(json.dumps(run)) == json.loads((out / "run.json").read_text())
    assert run["status"] == "done" and run["steps"] == 10 and run["command"] == "pretrain"
    measured = [line for line in lines(out) if line.get("split") == "dev"]
    assert [line["step"] for line in measured] == [5, 10]
    assert run["metrics"]["dev"] == pytest.approx(measured[-1]["metrics"])
    assert run["data"]["train"]["tokens"] > run["data"]["dev"]["tokens"] > 0
    card = (out / "model" / "README.md").read_text()
    assert f"| perplexity | {run['metrics']['dev']['perplexity']:.4f} |" in card


def clock(step: float) -> SimpleNamespace:
    """A clock that goes on by as much at every look, instead of the trainer's."""
    ticks = itertools.count()
    return SimpleNamespace(perf_counter=lambda: next(ticks) * step, process_time=time.process_time)


def test_a_resumed_run_in_time_goes_on_with_the_clock_where_it_was(place, tmp_path, monkeypatch):
    out, real = tmp_path / "x", loop.accumulate

    def signalled(*args, **kwargs):
        if kwargs["seed"][1] == 15:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "time", clock(0.5))
    monkeypatch.setattr(loop, "accumulate", signalled)
    with pytest.raises(Interrupted):
        pretrain(options(place, out, time="20s", steps=None))
    monkeypatch.setattr(loop, "accumulate", real)
    state, _ = newest_state(out / "state")
    assert state is not None and state.step == 15
    assert (state.facts["clock"], state.facts["phase"]) == (15.0, 1)
    monkeypatch.setattr(loop, "time", clock(0.5))
    run = pretrain(options(place, out, time="20s", steps=None, resume=True))
    assert run["steps"] == 20
    assert [line["sequences"] for line in steps(out)][12:] == [2] * 8


def test_a_finished_run_is_left_alone_and_other_options_are_refused(
    place, tmp_path, monkeypatch, capsys
):
    first = pretrain(options(place, tmp_path / "x"))
    monkeypatch.setattr(loop, "accumulate", None)
    again = pretrain(options(place, tmp_path / "x", resume=True))
    assert again["finished"] == first["finished"]
    assert "it is finished; nothing was done" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="finished run with other options"):
        pretrain(options(place, tmp_path / "x", resume=True, mask_rate=0.3))
    with pytest.raises(ConfigError, match="already holds a run"):
        pretrain(options(place, tmp_path / "x"))


def test_text_is_made_into_shards_beside_the_run_folder_once(place, tmp_path):
    pretrain(options(place, tmp_path / "x"))
    (shards,) = (tmp_path / "x.shards").iterdir()
    before = (shards / "manifest.json").stat().st_mtime_ns
    assert Corpus.open(shards).num_documents == 60
    pretrain(options(place, tmp_path / "x", overwrite=True))
    assert (shards / "manifest.json").stat().st_mtime_ns == before
    run = pretrain(options(place, tmp_path / "y", corpus=str(shards), tokenizer=None))
    assert run["data"]["train"]["sha256"] == Corpus.open(shards).digest
    assert digest(tmp_path / "x") == digest(tmp_path / "y"), "text or its shards: the same run"


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("adamw", "AutoModelForPreTraining"),
        ("adamw", "AutoModelForMaskedLM"),
        ("bert_adam", "AutoModelForPreTraining"),
        ("lamb", "AutoModelForMaskedLM"),
        ("adamw, replaced", "AutoModelForPreTraining"),
    ],
)
def test_the_model_folder_loads_in_transformers_with_nothing_missing(killed, case, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    folder = killed / case.replace(", ", "-") / "model"
    _, story = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not story["missing_keys"] and not story["mismatched_keys"]
    # A masked-LM class leaves the pair head aside, and says so.
    if "MaskedLM" not in name or case == "lamb":
        assert not story["unexpected_keys"]
    if "replaced" in case:
        auto = transformers.AutoModelForMaskedLM
        _, story = auto.from_pretrained(folder / "generator", output_loading_info=True)
        assert not any(story.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
