"""A whole fine-tuning run: what it learns, writes, repeats, and leaves alone when it fails."""

import csv
import errno
import io
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.train.conftest import tune

import filbert
from filbert import files
from filbert.cli.main import run as cli
from filbert.errors import InputError
from filbert.inference.predictor import Predictor
from filbert.train import finetune

run = partial(tune, epochs=1, batch_size=32)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return Predictor.load(folder).model.state_dict()


def test_a_tiny_encoder_learns_what_makes_a_film_good(film_run):
    assert film_run.metrics["test"]["roc_auc"] > 0.97
    assert film_run.metrics["test"]["f1"] > 0.9
    answers = film_run.model.predict(["the film was very good", "the film was bad"])
    assert [a["label"] for a in answers] == ["pos", "neg"]


def test_the_run_folder_holds_what_the_interface_promises(film_run):
    names = {p.relative_to(film_run.folder).as_posix() for p in film_run.folder.rglob("*")}
    promised = "run.json metrics.jsonl report.html plots/roc.png predictions/dev.jsonl"
    in_model = "config.json model.safetensors filbert.json README.md tokenizer.json vocab.txt"
    in_model += " tokenizer_config.json"
    assert {*promised.split(), *(f"model/{name}" for name in in_model.split())} <= names
    assert not any(name.startswith("state") for name in names), "states of a finished run"
    story = json.loads((film_run.folder / "model" / "filbert.json").read_text())
    assert {"task", "data", "options", "versions", "metrics"} <= story.keys()
    assert {"labels", "thresholds", "temperature"} <= story["task"].keys()
    assert {"truncated", "sha256"} <= story["data"]["train"].keys()
    facts = json.loads((film_run.folder / "run.json").read_text())
    assert facts["status"] == "done"
    assert facts["data"]["train"]["rows"] == 256
    assert len(facts["data"]["train"]["sha256"]) == 64
    assert 0.95 <= facts["fill"] <= 1
    lines = [json.loads(x) for x in (film_run.folder / "metrics.jsonl").read_text().splitlines()]
    assert sum("loss" in line for line in lines) == facts["steps"] == 48
    assert sum("metrics" in line for line in lines) == 6


def test_the_threshold_and_temperature_of_dev_are_stored_and_used(film_run):
    stored = json.loads((film_run.folder / "model" / "filbert.json").read_text())["task"]
    assert stored["thresholds"] == list(film_run.model.task.spec.thresholds)
    assert stored["temperature"] == film_run.model.task.spec.temperature != 1.0
    line = json.loads((film_run.folder / "predictions" / "test.jsonl").read_text().splitlines()[0])
    assert line["scores"].keys() == {"pos", "neg"}
    assert "text" not in line


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tiny_model, films, tmp_path):
    first, again, other = (
        weights(run(tiny_model, films, tmp_path / name, seed=seed, steps=3).folder / "model")
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["head.out.weight"], other["head.out.weight"])


def gradients(
    tiny_model: Path, films: Path, tmp_path: Path, max_tokens: int, monkeypatch
) -> list[torch.Tensor]:
    """The gradients of the first step, caught before the optimiser uses them."""
    caught: list[torch.Tensor] = []

    def catch(parameters, largest):
        caught.extend(p.grad.clone() for p in parameters)
        raise KeyboardInterrupt

    monkeypatch.setattr("filbert.train.loop.clip_grad_norm_", catch)
    with pytest.raises(KeyboardInterrupt):
        run(
            tiny_model,
            films,
            tmp_path / str(max_tokens),
            max_tokens=max_tokens,
            dropout=0.0,
            class_weights="balanced",
            # With the default seed the parts nearly cancel, which magnifies float32's rounding.
            seed=1,
        )
    monkeypatch.undo()
    return caught


def test_accumulation_gives_the_gradient_of_the_whole_batch(
    tiny_model, films, tmp_path, monkeypatch
):
    whole = gradients(tiny_model, films, tmp_path, 10_000, monkeypatch)
    parts = gradients(tiny_model, films, tmp_path, 40, monkeypatch)
    size = torch.cat([g.flatten() for g in whole]).norm()
    difference = torch.cat([(a - b).flatten() for a, b in zip(whole, parts, strict=True)]).norm()
    assert size > 0
    # The issue's own bound; float32 sums in another order differ by about 1e-7.
    assert difference / size < 1e-6


def test_the_best_step_on_dev_is_kept_and_not_the_last(tiny_model, films, tmp_path):
    # A learning rate that is far too high makes the dev metric jump about.
    facts = run(
        tiny_model, films, tmp_path / "x", lr=0.1, epochs=4, eval_every=2, metric="loss"
    ).facts
    lines = [json.loads(x) for x in (tmp_path / "x" / "metrics.jsonl").read_text().splitlines()]
    losses = {x["step"]: x["metrics"]["loss"] for x in lines if "metrics" in x}
    assert facts["best"]["step"] == min(losses, key=losses.get)
    assert facts["best"]["value"] == min(losses.values())
    assert facts["best"]["step"] != facts["steps"], (
        "the control: the last step must not be the best one"
    )


def test_a_run_killed_after_it_stopped_early_goes_no_step_further(
    tiny_model, films, tmp_path, monkeypatch
):
    given = {"lr": 1e-9, "epochs": 10, "patience": 1, "eval_every": 1}
    straight = run(tiny_model, films, tmp_path / "straight", **given).facts

    class Killed(BaseException):
        """Nothing catches it."""

    def killed(*given):
        raise Killed

    monkeypatch.setattr(finetune, "measure", killed)
    with pytest.raises(Killed):
        run(tiny_model, films, tmp_path / "x", **given)
    monkeypatch.undo()
    again = run(tiny_model, films, tmp_path / "x", **given, resume=True).facts
    assert again["status"] == straight["status"] == "stopped early"
    assert again["steps"] == straight["steps"]
    assert again["best"] == straight["best"]


def test_an_earlier_run_is_refused_without_overwrite_and_replaced_with_it(
    tiny_model, films, tmp_path
):
    run(tiny_model, films, tmp_path / "x", steps=2)
    before = (tmp_path / "x" / "run.json").read_bytes()
    with pytest.raises(filbert.ConfigError, match=r"already holds a run.*`overwrite`"):
        run(tiny_model, films, tmp_path / "x", steps=2)
    assert (tmp_path / "x" / "run.json").read_bytes() == before
    run(tiny_model, films, tmp_path / "x", steps=3, overwrite=True)
    assert json.loads((tmp_path / "x" / "run.json").read_text())["steps"] == 3
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_is_no_run_is_never_overwritten(tiny_model, films, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(filbert.ConfigError, match="holds no run"):
        run(tiny_model, films, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("old_run", [True, False])
def test_a_full_disk_while_saving_leaves_what_was_there(
    tiny_model, films, tmp_path, monkeypatch, old_run
):
    out = tmp_path / "x"
    if old_run:
        run(tiny_model, films, out, steps=2)
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}

    def full(path):
        if "model" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "flush", full)
    with pytest.raises(filbert.InputError, match="No space left on the disk"):
        run(tiny_model, films, out, steps=2, overwrite=True, save_every=0)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == (["x"] if old_run else [])


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_the_step(
    tiny_model, films, tmp_path
):
    with pytest.raises(filbert.RunError, match=r"Step \d+: the gradient is not finite.*`lr`"):
        run(tiny_model, films, tmp_path / "x", lr=1e30, clip=0)
    assert (tmp_path / "x" / "metrics.jsonl").is_file()


def test_without_dev_rows_the_last_step_is_kept_and_nothing_is_tuned(tiny_model, films, tmp_path):
    facts = run(tiny_model, films, tmp_path / "x", dev=None, test=str(films / "test.csv")).facts
    assert facts["thresholds"] is None
    assert facts["temperature"] == 1.0
    assert facts["metrics"].keys() == {"test"}
    assert (tmp_path / "x" / "report.html").is_file()


def test_lists_of_labels_make_a_multi_label_run_without_a_word(tiny_model, tmp_path, capsys):
    rows = [{"text": f"film {w}", "labels": [w, "x"]} for w in ("good", "bad")]
    rows += [{"text": "film", "labels": []}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows * 8))
    done = filbert.finetune(
        task="classification", model=str(tiny_model), train=str(path), dev=str(path),
        out=str(tmp_path / "x"), steps=100, lr=3e-3, eval_every=20, save_every=0,
        precision="float32",
    )  # fmt: skip
    assert done.model.task.spec.multilabel and done.model.task.spec.labels == ("bad", "good", "x")
    assert done.metrics["dev"]["micro_f1"] > 0.9
    assert set(done.model.predict(["film good"])[0]["labels"]) == {"good", "x"}
    # The same in a table, and what looks through files or judges predictions sees it, too.
    table = tmp_path / "rows.csv"
    table.write_text("text,labels\n" + "".join(
        '"{}","{}"\n'.format(row["text"], json.dumps(row["labels"]).replace('"', '""'))
        for row in rows
    ))  # fmt: skip
    assert cli(["check", "--task", "classification", "--json", str(table)]) == 0
    (split,) = json.loads(capsys.readouterr().out)["splits"]
    assert split["label_counts"] == {"x": 2, "good": 1, "bad": 1}
    answers = tmp_path / "answers.jsonl"
    answers.write_text("\n".join(json.dumps({"labels": row["labels"]}) for row in rows))
    words = ["--data", str(table), "--predictions", str(answers), "--json"]
    assert cli(["evaluate", "--task", "classification", *words]) == 0
    assert json.loads(capsys.readouterr().out)["micro_f1"] == 1.0


@pytest.mark.parametrize("labels", ["pos", "pos,neg"])
def test_a_column_labels_without_lists_is_asked_about(tiny_model, tmp_path, labels):
    path = tmp_path / "rows.csv"
    path.write_text(f'text,labels\ngood,"{labels}"\nbad,neg\n')
    with pytest.raises(InputError, match="`label_column` labels"):
        filbert.finetune(
            task="classification", model=str(tiny_model), train=str(path), out=str(tmp_path / "x")
        )


def test_truncation_is_counted_in_the_run_and_told_per_answer(tiny_model, films, tmp_path):
    done = run(tiny_model, films, tmp_path / "x", max_length=6, steps=1)
    facts = done.facts["data"]["train"]
    assert facts["truncated"] > 50
    texts = [row["text"] for row in csv.DictReader(io.StringIO((films / "train.csv").read_text()))]
    lengths = [answer["num_tokens"] for answer in done.model.predict(texts)]
    assert facts["longest"] == max(lengths)
    assert facts["truncated_tokens"] == sum(max(0, length - 6) for length in lengths)
    answers = done.model.predict(["good", "the film was very very good"])
    assert [a["truncated"] for a in answers] == [False, True]
    assert [a["num_tokens"] for a in answers] == [3, 8]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_siz": 3}, "no option 'batch_siz'. Did you mean 'batch_size'"),
        ({"task": "clasification"}, "Did you mean 'classification'"),
        ({"lr": 0}, "lr is 0; it must be above zero"),
        ({"warmup": 2.0}, "warmup is 2.0"),
        ({"precision": "fp16"}, "precision is 'fp16'; it must be one of"),
        ({"metric": "rocauc", "steps": 1}, "metric 'rocauc' is not one of"),
        ({"max_length": 1000}, r"max_length 1000 is not in 3..64"),
        ({"metric": "f11"}, "metric 'f11' is not one of"),
        ({"dev": None, "patience": 3}, "need dev rows"),
        ({"train": "-"}, "must be a file"),
        ({"device": "cuda:77"}, "No device 'cuda:77' was found"),
        ({"lr": float("nan")}, "lr is nan; it must be a finite number"),
        ({"lr": "5e-5"}, "lr is '5e-5'; it must be a finite number"),
        ({"class_weights": "0,0"}, "not all of them zero"),
        ({"class_weights": "a,b"}, "class_weights is 'a,b'"),
        ({"seed": 10**14}, "seed is"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence_and_leaves_nothing(
    tiny_model, films, tmp_path, options, words
):
    with pytest.raises(filbert.ConfigError, match=words):
        run(tiny_model, films, tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_dev_rows_of_one_class_are_judged_by_their_loss(tiny_model, films, tmp_path, capsys):
    dev = tmp_path / "dev.csv"
    dev.write_text("text,label\nthe film was bad,neg\nnot,neg\n")
    facts = run(tiny_model, films, tmp_path / "x", dev=str(dev), epochs=3).facts
    assert facts["best"]["metric"] == "loss"
    assert facts["best"]["step"] > 8
    assert "chosen by its loss" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "interrupted"), (filbert.RunError, "failed")]
)
def test_a_run_that_stops_says_so_and_leaves_an_earlier_one_alone(
    tiny_model, films, tmp_path, monkeypatch, error, status
):
    def stop(parameters, largest):
        raise error

    run(tiny_model, films, tmp_path / "old", steps=2)
    before = {p: p.read_bytes() for p in (tmp_path / "old").rglob("*") if p.is_file()}
    monkeypatch.setattr("filbert.train.loop.clip_grad_norm_", stop)
    with pytest.raises(error):
        run(tiny_model, films, tmp_path / "new")
    with pytest.raises(error):
        run(tiny_model, films, tmp_path / "old", overwrite=True)
    assert json.loads((tmp_path / "new" / "run.json").read_text())["status"] == status
    after = {p: p.read_bytes() for p in (tmp_path / "old").rglob("*") if p.is_file()}
    assert after == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]


def test_tensorboard_files_are_written_when_asked(tiny_model, films, tmp_path):
    pytest.importorskip("tensorboard")
    run(tiny_model, films, tmp_path / "x", steps=2, tensorboard=True)
    assert list((tmp_path / "x" / "tensorboard").glob("events.*"))


def test_bf16_training_follows_float32(tiny_model, films, tmp_path):
    losses = []
    for precision in ("float32", "bf16"):
        run(tiny_model, films, tmp_path / precision, precision=precision, steps=20, dropout=0.0)
        lines = (tmp_path / precision / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(x)["loss"] for x in lines if "loss" in json.loads(x)])
    difference = (torch.tensor(losses[0]) - torch.tensor(losses[1])).abs()
    assert difference[0] > 0, "bf16 must be used at all"
    # bf16 keeps 8 bits: relative error 2^-9 a product; losses are near 0.7.
    assert difference[:5].max() < 0.02
