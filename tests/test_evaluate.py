"""Scores of models and of predictions made elsewhere, for tasks beyond classification."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import read_checkpoint
from filbert.cli.main import run as cli
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError, InputError
from filbert.evaluation import evaluate_model, score_predictions, with_asked
from filbert.inference.predictor import Predictor
from filbert.tasks.base import TaskOptions, task_class
from filbert.text.tokenizer import Tokenizer


def judge(name: str):
    return task_class(name).from_options(TaskOptions(), ColumnNames())


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    text = "Ada met Alan in London."
    asked = [
        {"id": "a", "question": "Where?", "answers": [{"text": "London", "answer_start": 16}]},
        {"id": "b", "question": "When?", "answers": [], "is_impossible": True},
    ]
    content = {"data": [{"title": "x", "paragraphs": [{"context": text, "qas": asked}]}]}
    (tmp_path / "data.json").write_text(json.dumps(content))
    (tmp_path / "p.json").write_text(json.dumps({"a": "London", "b": "Alan"}))
    return tmp_path


def test_null_odds_give_the_best_threshold(questions):
    (questions / "odds.json").write_text(json.dumps({"a": -2.0, "b": 3.0}))
    paths = [str(questions / name) for name in ("data.json", "p.json")]
    task = judge("span_qa")
    plain = score_predictions(task, *paths, ColumnNames())
    tuned = score_predictions(
        task, *paths, ColumnNames(), questions / "out", str(questions / "odds.json")
    )
    # By the official script "Alan" is no answer any more, since its score is above 1.
    assert (plain["exact_match"], tuned["exact_match"]) == (50.0, 100.0)
    assert (plain["NoAns_exact"], tuned["NoAns_exact"]) == (0.0, 100.0)
    # Question a is answered below -2, b is not from 3 on: by hand.
    assert (tuned["best_exact"], tuned["best_exact_thresh"]) == (100.0, -2.0)
    assert json.loads((questions / "out" / "metrics.json").read_text()) == tuned
    (questions / "p.jsonl").write_text('{"answer": "London"}\n{"answer": ""}\n')
    with pytest.raises(ConfigError, match="--null-odds is for"):
        score_predictions(task, paths[0], str(questions / "p.jsonl"), ColumnNames(), None, paths[1])


@pytest.mark.parametrize(
    ("task", "rows", "predictions", "words"),
    [
        (
            "span_qa",
            [
                {
                    "id": i,
                    "question": "?",
                    "context": "A b",
                    "answers": [{"text": "A", "answer_start": 0}],
                }
                for i in "xy"
            ],
            [{"id": i, "answer": "A"} for i in "yx"],
            "another id",
        ),
        (
            "tagging",
            [{"tokens": ["Ada", "smiled"], "tags": ["O", "O"]}],
            [{"tokens": ["Alan", "ran"], "tags": ["O", "O"]}],
            "other words",
        ),
    ],
)
def test_predictions_that_say_they_are_of_other_rows_are_refused(
    tmp_path, task, rows, predictions, words
):
    for name, items in (("rows", rows), ("p", predictions)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(i) + "\n" for i in items))
    files = str(tmp_path / "rows.jsonl"), str(tmp_path / "p.jsonl")
    with pytest.raises(InputError, match=rf"p\.jsonl:1: this prediction has {words} than"):
        score_predictions(judge(task), *files, ColumnNames())


@pytest.mark.parametrize(("family", "pair"), [("bert", "nsp"), ("albert", "sop"), ("bert", "none")])
def test_a_masked_lm_has_on_text_the_figures_of_its_own_run(family, pair, vocab, tmp_path, capsys):
    text = tmp_path / "text.txt"
    lines = ["he was very good . it was a film .", "she was not bad , and he was not ."]
    text.write_text(
        "\n\n".join(f"{line}\n{'very ' * 4 * n}good ." for n in range(9) for line in lines)
    )
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    run = filbert.pretrain(
        corpus=str(text), dev=str(text), tokenizer=str(vocab), out=str(tmp_path / "run"),
        family=family, pair=pair, max_length=24, max_position_embeddings=60, mask_rate=0.4,
        steps=4, lr=1e-2, precision="float32", device="cpu", **sizes,
    )  # fmt: skip
    wanted = run.metrics["dev"]
    assert f"{pair}_accuracy" in wanted or pair == "none"
    model = str(tmp_path / "run" / "model")
    assert cli(["evaluate", model, "--data", str(text), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"mlm_loss", "mlm_accuracy", "perplexity"} <= found.keys()
    assert found == {name: pytest.approx(value, rel=1e-5) for name, value in wanted.items()}
    # Longer rows when asked for; in another precision it says how far the figures move.
    words = ["--max-length", "60", "--precision", "bf16", "--against", "float32"]
    assert cli(["evaluate", model, "--data", str(text), "--json", *words]) == 0
    longer = json.loads(capsys.readouterr().out)
    assert longer["against"]["float32"]["perplexity"]["value"] != found["perplexity"]
    # One loss in another text, and none where there is no text.
    text.write_text("the film was good .\n\nit was bad .")
    again = evaluate_model(Predictor.load(model), str(text), ColumnNames(), tmp_path / "figures")
    assert again["mlm_loss"] != found["mlm_loss"]
    assert json.loads((tmp_path / "figures" / "metrics.json").read_text()) == again
    text.write_text("\n")
    with pytest.raises(InputError):
        evaluate_model(Predictor.load(model), str(text), ColumnNames())


def test_a_positive_class_may_be_named_where_training_fixed_none(film_run, films, tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(film_run.folder / "model", model)
    data = tmp_path / "rows.csv"
    data.write_text((films / "dev.csv").read_text() + "the film was good,neg\n" * 20)
    words = ["evaluate", str(model), "--data", str(data), "--json"]
    assert cli(words) == 0
    own = json.loads(capsys.readouterr().out)
    assert cli([*words, "--positive", "pos"]) == 0
    assert json.loads(capsys.readouterr().out) == own
    assert cli([*words, "--positive", "neg"]) == 0
    turned = json.loads(capsys.readouterr().out)
    same = ("accuracy", "mcc", "loss", "roc_auc")
    assert [turned[name] for name in same] == pytest.approx([own[name] for name in same])
    assert turned["threshold"] == pytest.approx(1 - own["threshold"])
    assert turned["recall"] != pytest.approx(own["recall"], abs=0.01)
    assert cli([*words, "--positive", "good"]) == 2
    assert "the labels are" in capsys.readouterr().err
    # As a model from elsewhere, whose labels are all that is known.
    (model / "filbert.json").unlink()
    assert cli([*words, "--positive", "neg"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["roc_auc"] == pytest.approx(own["roc_auc"])
    assert other["pr_auc"] != pytest.approx(own["pr_auc"], abs=0.01)
    assert with_asked(None, TaskOptions()) is None
    with pytest.raises(ConfigError, match="does not choose between two"):
        with_asked(None, TaskOptions(positive="neg"))


def test_texts_that_were_cut_are_counted_and_said(film_run, films, caplog):
    rows = (films / "dev.csv").read_text().splitlines()[1:]
    model = Predictor.load(film_run.folder / "model", max_length=5)
    with caplog.at_level(logging.WARNING, logger="filbert"):
        evaluate_model(model, str(films / "dev.csv"), ColumnNames())
    (said,) = caplog.messages
    assert said.endswith(f"of {len(rows)} rows have more than 5 tokens and were cut")
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="filbert"):
        model.embed(["good", "the film was very good", "it was very bad ."])
        assert caplog.messages == ["2 texts have more than 5 tokens and were cut"]
        caplog.clear()
        model.embed(["good"])
    assert caplog.messages == []


def test_tags_of_another_scheme_are_mended_for_a_model_that_was_trained_elsewhere(
    tiny_model, tmp_path, capsys
):
    torch.manual_seed(0)
    labels = ("O", "B-a", "I-a")
    bare = read_checkpoint(tiny_model)
    huggingface.write(
        with_new_head(bare, "tokens", labels=labels, problem_type=None), tmp_path / "model"
    )
    Tokenizer.load(tiny_model).save(tmp_path / "model")
    (tmp_path / "iob1.conll").write_text("the\tI-a\nfilm\tI-a\n.\tO\n")
    command = ["evaluate", str(tmp_path / "model"), "--data", str(tmp_path / "iob1.conll")]
    assert cli([*command, "--json"]) == 2
    assert "pass --repair-tags" in capsys.readouterr().err
    assert cli([*command, "--json", "--repair-tags"]) == 0
    assert json.loads(capsys.readouterr().out)["per_label"]["a"]["support"] == 1
    with pytest.raises(ConfigError, match="--repair-tags is for tagging"):
        with_asked(judge("classification"), TaskOptions(repair_tags=True))
