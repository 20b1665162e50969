"""The functions of `import filbert`: rows in memory, keywords, results."""

import csv
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pandas
import polars
import pyarrow
import pytest

import filbert
from filbert.tasks.doctor import Report

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rows(films):
    with (films / "dev.csv").open(encoding="utf-8") as file:
        return [{"message": r["text"], "intent": r["label"]} for r in csv.DictReader(file)]


def test_rows_in_memory_are_split_trained_on_and_measured(
    tiny_model, rows, tmp_path, undrawn, capsys
):
    run = filbert.finetune(
        task="classification",
        model=tiny_model,
        data=rows,
        text="message",
        label="intent",
        out=tmp_path / "run",
        steps=2,
        precision="float32",
    )
    sizes = [run.facts["data"][name]["rows"] for name in ("train", "dev", "test")]
    assert sum(sizes) == 64 and min(sizes) >= 6
    accuracy = run.metrics["test"]["accuracy"]
    assert repr(run).startswith(f"<filbert run in {tmp_path / 'run'}; dev accuracy")
    assert f"<td>{accuracy:.4f}</td>" in run._repr_html_()
    assert repr(run.model) == "<filbert model: classification (neg, pos), bert 2 x 32, on cpu>"
    assert run.model.labels == ("neg", "pos")


def test_a_model_or_its_predictions_are_measured_on_rows_and_on_files_alike(film_run, films, rows):
    model, named = film_run.model, {"text": "message", "label": "intent"}
    metrics = filbert.evaluate(model, data=films / "dev.csv")
    assert filbert.evaluate(film_run.folder / "model", data=rows, **named) == metrics
    answers = filbert.predict(model, [row["message"] for row in rows])
    scored = filbert.evaluate(task="classification", data=rows, predictions=answers, **named)
    # Predictions bring no threshold; the ranking is the same.
    assert scored["roc_auc"] == metrics["roc_auc"]
    with pytest.raises(filbert.ConfigError, match="Give a model, or predictions and their task"):
        filbert.evaluate(data=rows)


def test_a_place_among_rows_in_memory_is_named_by_the_option_and_the_row(rows):
    report = filbert.check([*rows, rows[0]], task="classification", text="message", label="intent")
    places = [place for problem in report.problems for place in problem.where]
    assert f"train:{len(rows) + 1} repeats train:1" in places


def test_a_check_returns_its_findings_as_a_value(rows):
    report = filbert.check([*rows, rows[0]], task="classification", text="message", label="intent")
    assert isinstance(report, Report) and report.splits[0].rows == 65
    assert "duplicate" in [problem.kind for problem in report.problems]
    assert repr(report).startswith("<filbert check: rows: 65 train; problems: ")


def test_one_item_gets_one_answer_and_many_get_a_list(film_run, masked_lm):
    model, texts = film_run.model, ["good", "bad"]
    both = model.predict(texts)
    assert model.predict("good")["label"] == both[0]["label"]
    assert model.predict(iter(texts)) == both
    for library in (pandas, polars):
        table = library.DataFrame({"text": texts})
        assert model.predict(table["text"]) == model.predict(table) == both
    assert model.predict(pyarrow.table({"text": texts})) == both
    assert filbert.embed(model, "good").shape == (32,)
    filled = filbert.fill(masked_lm, "the [MASK]", top=1)
    assert filbert.fill(masked_lm, ["the [MASK]"], top=1) == [filled]
    assert filbert.score(masked_lm, "the film")["num_scored"] == 2


def test_a_vocabulary_a_corpus_and_a_conversion_return_what_was_made(tiny_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the film was good\n\nhe was not bad\n\n" * 20)
    report = filbert.vocab(text, out=tmp_path / "v", kind="wordpiece", size=60)
    written = json.loads((tmp_path / "v" / "vocabulary.json").read_text())
    assert report["size"] == written["size"] <= 60
    counts = filbert.corpus(text, tokenizer=tmp_path / "v", out=tmp_path / "c", workers=1)
    assert counts["documents"] == 2 and counts["tokens"] > 0
    written = filbert.convert(tiny_model, tmp_path / "google", to="google")
    assert written["head"] is None
    facts = filbert.info(tmp_path / "google")
    assert facts["family"] == "bert" and facts["tensors"]
    assert filbert.info(tiny_model, tmp_path / "google")["same_weights"]


def test_verbs_for_machines_and_models_are_functions_too(film_run, tiny_model, tmp_path):
    one = filbert.tokenize(tiny_model, "good")
    many = filbert.tokenize(tiny_model, [("good", "bad")])
    assert (one["tokens"], one["words"]) == (["[CLS]", "good", "[SEP]"], [None, 0, None])
    assert (many[0]["token_type_ids"], many[0]["truncated"]) == ([0, 0, 0, 1, 1], False)
    assert filbert.tokenize(film_run.model, "good")["ids"] == one["ids"]
    speed = filbert.bench("tokenize", model=tiny_model, seconds=0.05)
    assert speed["results"]["tokenize"]["texts/s"] > 0
    with pytest.raises(filbert.ConfigError, match="names no repository|owner/name"):
        filbert.push(film_run.folder / "model", "name only")
    with pytest.raises(filbert.InputError, match="records no run|no such|filbert.json"):
        filbert.replay(tmp_path / "nowhere")


FUNCTIONS = [
    *(name for name in filbert.__all__ if not isinstance(getattr(filbert, name), type)),
    *(f"Predictor.{name}" for name in ("load", "predict", "answer", "tag", "fill", "embed")),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_keyword_is_refused_with_the_nearest_name(name):
    function = filbert
    for part in name.split("."):
        function = getattr(function, part)
    parameters = inspect.signature(function).parameters.values()
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters)
    *_, known = (one.name for one in parameters)
    with pytest.raises(filbert.ConfigError, match=f"has no option '{known}x'. Did you mean"):
        function(**{known + "x": 1})


def test_functions_stay_functions_after_modules_of_their_name_are_imported():
    code = (
        "import filbert.inspect.page, filbert.cli.verbs.measure, filbert as f; f.inspect.__call__"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert pickle.loads(pickle.dumps(filbert)) is filbert


def test_the_stub_has_the_options_of_the_command_line():
    sys.path.insert(0, str(ROOT / "docs" / "figures"))
    from signatures import STUB, stub

    assert STUB.read_text("utf-8") == stub(), "run python docs/figures/signatures.py"


CALLS = """
import filbert

run = filbert.finetune(task="classification", model="m", data=[{"text": "a"}], dev=0.1, out="o")
right: dict[str, object] = filbert.load(run.folder).predict("one text")
many: list[dict[str, object]] = run.model.predict(["one text"])
filbert.finetune(task="classification", model="m", out="o", epochz=3)
filbert.finetune(task="classification", model="m", out="o", epochs="3")
filbert.finetune(task="classification", out="o")
filbert.load("m", precison="bf16")
"""


def test_a_type_checker_accepts_right_calls_and_finds_wrong_ones(tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
            *("--ignore-missing-imports", "--no-site-packages", "--config-file="),
            *("--cache-dir", str(tmp_path / "cache"), "calls.py"),
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    found = [
        line.split(":")[1] for line in lines if line.startswith("calls.py") and "error" in line
    ]
    assert found == ["7", "8", "9", "10"], done.stdout + done.stderr


# As in a notebook: the kernel's handler of SIGINT, and a cell in the main thread.
CELLS = """
import json, os, signal, sys
import filbert
from filbert.train import loop

signal.signal(signal.SIGINT, signal.default_int_handler)
options = json.loads(sys.argv[1])
real = loop.accumulate

def pressed(*args, **keywords):
    loop.accumulate = real
    os.kill(os.getpid(), signal.SIGINT)
    return real(*args, **keywords)

loop.accumulate = pressed
try:
    filbert.finetune(**options)
except KeyboardInterrupt as error:
    print(error)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(filbert.finetune(**options, resume=True).facts["steps"])
"""


def test_an_interrupted_cell_saves_its_state_and_the_next_one_resumes(tiny_model, films, tmp_path):
    options = {"task": "classification", "model": str(tiny_model), "steps": 3}
    options |= {"train": str(films / "dev.csv"), "out": "run", "precision": "float32"}
    done = subprocess.run(
        [sys.executable, "-c", CELLS, json.dumps(options)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "interrupted by Ctrl-C after step 1; its state is saved" in done.stdout
    assert done.stdout.split()[-1] == "3"
