from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from filbert.errors import FormatError
from filbert.formats.sentence_transformers import (
    SentenceVectors,
    read_sentence_vectors,
    write_sentence_vectors,
)
from filbert.predict import Predictor

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}


def put(folder: Path, modules: object, pooling: object = None) -> Path:
    (folder / "modules.json").write_text(
        modules if isinstance(modules, str) else json.dumps(modules)
    )
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def test_pooling_and_normalising_are_read(tmp_path):
    normalize = {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    put(tmp_path, [TRANSFORMER, POOLING, normalize], {"pooling_mode_cls_token": True})
    assert read_sentence_vectors(tmp_path) == SentenceVectors("cls", True)


@pytest.mark.parametrize(
    "modules",
    [
        {},
        3,
        "null",
        ["Transformer"],
        [None],
        [{"path": ""}],
        [{"type": 5}],
        [{"type": "x.Pooling"}],
        [{"type": "x.Pooling", "path": 1}],
        "[" * 100_000,
        "[{",
    ],
)
def test_a_list_of_modules_of_another_shape_is_refused(tmp_path, modules):
    with pytest.raises(FormatError, match=r"modules\.json") as caught:
        read_sentence_vectors(put(tmp_path, modules))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", ["../other", "/etc", "a/../../b", "x" * 5000])
def test_a_module_lies_inside_the_folder(tmp_path, path):
    with pytest.raises(FormatError) as caught:
        read_sentence_vectors(put(tmp_path, [{**POOLING, "path": path}]))
    assert ("path" in str(caught.value)) or "File name too long" in str(caught.value)
    assert len(str(caught.value)) < 500 and "missing" not in str(caught.value)


@pytest.mark.parametrize("pooling", [[], "x", {"pooling_mode": ["mean"]}, {}])
def test_a_pooling_of_another_shape_is_refused(tmp_path, pooling):
    with pytest.raises(FormatError, match="1_Pooling/config.json"):
        read_sentence_vectors(put(tmp_path, [POOLING], pooling))


def test_a_module_of_an_unknown_kind_cannot_steer_a_terminal(tmp_path):
    with pytest.raises(FormatError) as caught:
        read_sentence_vectors(put(tmp_path, [{"type": "x.\x1b[31m" + "y" * 5000, "path": ""}]))
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_what_is_written_is_read_again(tmp_path, pooling, normalize):
    write_sentence_vectors(tmp_path, pooling, normalize, 64, 32)
    assert read_sentence_vectors(tmp_path) == SentenceVectors(pooling, normalize)


def test_a_pooling_without_a_name_there_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="pooling 'none'"):
        write_sentence_vectors(tmp_path, "none", False, 64, 32)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_transformers_loads_the_folder_and_gives_the_same_vectors(
    tmp_path, tiny_model, pooling, normalize
):
    judges = pytest.importorskip("sentence_transformers")
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    write_sentence_vectors(folder, pooling, normalize, max_length=9, dimension=32)
    predictor = Predictor.load(folder, max_length=9)
    texts = ["the film was good", "", "a bad play , not very great and not good to see !"]
    found = predictor.embed(texts)
    judge = judges.SentenceTransformer(str(folder), device="cpu")
    assert judge.max_seq_length == 9
    wanted = judge.encode(texts, show_progress_bar=False)
    # Two layers in float32, summed in another order.
    assert float(np.abs(found - wanted).max()) < 1e-5
