"""SQuAD 2.0 models: when the answer is "no answer", and which threshold decides."""

from __future__ import annotations

import json
import math
from pathlib import Path

import httpx
import pytest
import torch
from tests.serve.conftest import running

import filbert
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import read_checkpoint
from filbert.cli.main import run as cli
from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.evaluation import evaluate_model
from filbert.serve.app import load_app
from filbert.serve.settings import ModelSettings, Settings
from filbert.text.tokenizer import Tokenizer

QUESTION, CONTEXT = "he", "the film was good and the play was bad"


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face question answering folder, without filbert.json, whose [CLS] scores win."""
    folder = tmp_path_factory.mktemp("squad2") / "model"
    checkpoint = with_new_head(read_checkpoint(tiny_model), "spans")
    (vectors,) = filbert.load(tiny_model).embed([(QUESTION, CONTEXT)], pooling="none")
    direction = torch.from_numpy(vectors[0] - vectors[1:].mean(0))
    checkpoint.tensors["head.out.weight"] = torch.stack([direction, direction])
    huggingface.write(checkpoint, folder)
    Tokenizer.load(tiny_model).save(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions of SQuAD 2.0; the first has no answer."""
    path = tmp_path_factory.mktemp("rows") / "v2.jsonl"
    both = [[], [{"text": "film", "answer_start": 4}]]
    lines = [{"question": QUESTION, "context": CONTEXT, "answers": answers} for answers in both]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def null_score(model: Path) -> float:
    """Null score minus best span by run_squad.py's rule, from the logits of transformers."""
    from transformers import AutoModelForQuestionAnswering

    encoding = Tokenizer.load(model).encode([(QUESTION, CONTEXT)], max_length=64)[0]
    ids, types = (
        torch.tensor([[int(i) for i in given]])
        for given in (encoding.input_ids, encoding.token_type_ids)
    )
    with torch.no_grad():
        out = AutoModelForQuestionAnswering.from_pretrained(model)(ids, token_type_ids=types)
    starts, ends = out.start_logits[0].tolist(), out.end_logits[0].tolist()
    # [CLS] he [SEP] the film ... bad [SEP]: the context has the places 3 to 11.
    spans = [(s, e) for s in range(3, len(starts) - 1) for e in range(s, len(starts) - 1)]
    return starts[0] + ends[0] - max(starts[s] + ends[e] for s, e in spans)


def test_evaluate_of_an_imported_model_counts_no_answer_as_the_official_script(model, rows, caplog):
    with caplog.at_level("INFO", logger="filbert"):
        figures = evaluate_model(filbert.load(model), str(rows), ColumnNames())
    assert (figures["NoAns_exact"], figures["HasAns_exact"]) == (100.0, 0.0)
    assert len([line for line in caplog.messages if "null threshold 0" in line]) == 1


@pytest.mark.parametrize(("above", "is_answered"), [(-0.001, False), (0.001, True)])
def test_the_answer_is_empty_where_its_null_score_is_above_the_threshold(
    model, null_score, above, is_answered
):
    found = filbert.load(model, null_threshold=null_score + above).answer(QUESTION, CONTEXT)
    # Both compute in float32; the scores are sums of 32 products.
    assert found["null_score"] == pytest.approx(null_score, abs=1e-4)
    assert bool(found["answer"]) == is_answered


def test_an_imported_model_always_answers_unless_a_threshold_is_given(model):
    assert filbert.load(model).answer(QUESTION, CONTEXT)["answer"]


def test_the_commands_take_a_threshold(model, rows, null_score, capsys):
    high = str(null_score + 1)
    for threshold, exact in (("0", 100.0), (high, 0.0)):
        command = ["evaluate", str(model), "--data", str(rows), "--json"]
        assert cli([*command, "--null-threshold", threshold]) == 0
        assert json.loads(capsys.readouterr().out)["NoAns_exact"] == exact
        assert cli(["predict", str(model), str(rows), "--null-threshold", threshold]) == 0
        answers = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
        assert ("" in answers) == (exact == 100.0)


def test_a_server_takes_a_threshold(model):
    app = load_app({"qa": str(model)}, Settings(), ModelSettings(null_threshold=-1.5))
    with running(app) as address:
        asked = {"question": QUESTION, "context": CONTEXT}
        assert httpx.post(f"{address}/answer", json=asked).json()["answer"] == ""


def test_a_model_trained_here_keeps_its_fitted_threshold(tiny_model, rows, tmp_path, caplog):
    run = filbert.finetune(
        task="span_qa", model=tiny_model, train=rows, dev=rows, out=tmp_path / "run", steps=1,
        precision="float32", device="cpu",
    )  # fmt: skip
    with caplog.at_level("INFO", logger="filbert"):
        figures = evaluate_model(run.model, str(rows), ColumnNames())
    task = run.model.known_task()
    assert task.has_unanswerable and task.null_threshold == run.facts["null_threshold"] != 0.0
    assert figures["f1"] == pytest.approx(run.metrics["dev"]["f1"])
    assert not [line for line in caplog.messages if "null threshold" in line]
    given = filbert.load(run.folder / "model", null_threshold=7.0)
    assert given.known_task().null_threshold == 7.0


@pytest.mark.parametrize("threshold", [math.nan, math.inf, "1"])
def test_a_threshold_that_is_no_finite_number_is_refused(model, threshold):
    with pytest.raises(ConfigError, match="null_threshold is"):
        filbert.load(model, null_threshold=threshold)


def test_a_threshold_for_a_model_that_answers_no_questions_is_refused(tiny_model, rows, capsys):
    with pytest.raises(ConfigError, match="null_threshold is for question answering"):
        filbert.load(tiny_model, null_threshold=0.0)
    command = ["evaluate", "--task", "span_qa", "--data", str(rows), "--predictions", str(rows)]
    assert cli([*command, "--null-threshold", "0"]) == 2
    assert "--null-threshold and --against need a MODEL" in capsys.readouterr().err
