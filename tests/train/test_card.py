"""The model card: metadata as the Hub reads it, honest sentences, examples that run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, metadata_load

import filbert
from filbert.errors import ConfigError
from filbert.tasks.base import task_to_dict
from filbert.train.model_folder import card as card_of
from filbert.train.provenance import base_model


@pytest.fixture
def model(film_run) -> Path:
    return film_run.folder / "model"


def one_step(tiny_model: Path, films: Path, out: Path, **options: Any) -> Path:
    given = {"task": "classification", "model": str(tiny_model), "train": str(films / "train.csv")}
    filbert.finetune(**given | {"out": str(out), "steps": 1, "precision": "float32"} | options)
    return out / "model"


def test_the_metadata_is_what_the_hub_reads(model, film_run):
    card = ModelCard.load(model / "README.md")
    assert card.data.library_name == "filbert"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.datasets == ["train.csv", "dev.csv", "test.csv"]
    assert {"filbert", "classification", "bert"} <= set(card.data.tags)
    found = {(r.dataset_split, r.metric_type): r for r in card.data.eval_results}
    result = found["test", "roc_auc"]
    assert result.metric_value == pytest.approx(film_run.metrics["test"]["roc_auc"], abs=1e-6)
    assert result.task_type == "text-classification"
    assert result.dataset_revision == film_run.facts["data"]["test"]["sha256"][:12]
    assert not any("threshold" in metric for _, metric in found)
    # The Hub refuses a base_model that is no id of its own, such as a folder.
    assert card.data.base_model is None
    raw = metadata_load(model / "README.md")
    assert "license" not in raw
    assert None not in raw.values()


def test_no_folder_of_the_machine_and_no_text_of_the_data_is_in_the_model_folder(
    model, films, tiny_model
):
    told = (model / "README.md").read_text() + (model / "filbert.json").read_text()
    for place in (films, tiny_model, Path.home(), model.parent.parent):
        assert str(place) not in told
    rows = (films / "train.csv").read_text().splitlines()[1:]
    texts = {row.rpartition(",")[0].strip('"') for row in rows}
    assert not [text for text in texts if len(text) > 12 and text in told]


def test_the_card_says_what_a_reader_must_know(model, film_run):
    text = (model / "README.md").read_text()
    assert "Labels: `neg`, `pos`." in text
    assert "| rows | 256 | 64 | 64 |" in text
    assert "`lr=0.003`" in text
    assert "`clip" not in text, "a default is not told"
    assert "only test is unseen" in text
    assert "one seed (42)" in text
    assert "No license is stated here." in text
    assert "`filbert.json` stores thresholds and temperature" in text
    assert f"torch {film_run.facts['versions']['torch']}" in text


def test_the_python_and_the_commands_of_the_card_run(model, tmp_path):
    text = (model / "README.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (commands,) = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    here = tmp_path / "elsewhere"
    here.mkdir()
    for path in model.iterdir():
        (here / path.name).write_bytes(path.read_bytes())
    commands = re.sub(r"^filbert ", f"{sys.executable} -m filbert ", commands, flags=re.MULTILINE)
    for command in ([sys.executable, "-c", code], ["bash", "-ec", commands]):
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "label" in done.stdout


def test_license_and_language_are_the_users_or_those_of_the_base_models_card(
    tiny_model, films, tmp_path
):
    base = tmp_path / "base"
    base.mkdir()
    for path in tiny_model.iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    (base / "README.md").write_text("---\nlicense: mit\nlanguage:\n- en\n- no\n---\n# base\n")
    inherited = one_step(base, films, tmp_path / "a")
    raw = metadata_load(inherited / "README.md")
    assert (raw["license"], raw["language"]) == ("mit", ["en", "no"])
    assert "No license" not in (inherited / "README.md").read_text()
    said = one_step(base, films, tmp_path / "b", license="apache-2.0", language="de, fr")
    raw = metadata_load(said / "README.md")
    assert (raw["license"], raw["language"]) == ("apache-2.0", ["de", "fr"])
    with pytest.raises(ConfigError, match="Apache 2"):
        one_step(base, films, tmp_path / "c", license="Apache 2")
    with pytest.raises(ConfigError, match="english"):
        one_step(base, films, tmp_path / "c", language="en,english")


@pytest.mark.parametrize(
    ("front", "license", "language"),
    [
        ("license: mit\nlanguage: en\n", "mit", ["en"]),
        ("language: [en, 'de']\nlicense: \"cc-by-4.0\"\n", "cc-by-4.0", ["en", "de"]),
        ("language:\n  - en\n  - zh\ntags:\n- de\n", None, ["en", "zh"]),
        ("license: 'Do What <You> Want'\n", None, None),
        ("", None, None),
    ],
)
def test_what_another_card_declares_is_read_in_all_its_forms(tmp_path, front, license, language):
    (tmp_path / "README.md").write_text(f"---\n{front}---\nlicense: gpl\nlanguage: ru\n")
    found = base_model("owner/name", tmp_path)
    assert (found["license"], found["language"]) == (license, language)
    assert found["hub_id"] == "owner/name"


def test_labels_cannot_break_out_of_the_card(film_run):
    story = json.loads((film_run.folder / "model" / "filbert.json").read_text())
    task = type(film_run.model.task)(labels=("a|b`c", "<script>\n# x"), thresholds=(0.5,))
    story["data"]["train"]["label_counts"] = {"a|b`c": 3, "<script>\n# x": 200}
    text = card_of(story | {"task": task_to_dict(task)})
    assert "`a\\|b'c`" in text
    assert "<script>\n" not in text
    assert "Fewer than 20 training rows have: `a\\|b'c`." in text


def test_a_run_without_test_or_dev_rows_says_what_its_figures_are_worth(
    tiny_model, films, tmp_path
):
    on_dev = one_step(tiny_model, films, tmp_path / "a", dev=str(films / "dev.csv"))
    assert "so they are too optimistic" in (on_dev / "README.md").read_text()
    alone = one_step(tiny_model, films, tmp_path / "b", max_length=8)
    text = (alone / "README.md").read_text()
    assert "There were no dev rows" in text
    assert re.search(r"cut at 8 tokens, by `truncate` \(\d+ of 256 train rows\)", text)
    assert "model-index" not in metadata_load(alone / "README.md")
