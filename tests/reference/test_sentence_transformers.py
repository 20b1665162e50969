"""Sentence vectors against sentence-transformers: its folders in, ours out; tiny random weights."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.cli.verbs.convert import convert
from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers
    import transformers
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

transformers.utils.logging.disable_progress_bar()

TEXTS = ["The film was good", "", "a bad play , not very great and not good to see !", "RUN"]
# Two layers in float32, summed in another order; of the largest number in a vector.
TOLERANCE = 1e-6


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    assert found.shape == wanted.shape
    return float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max()))


def encode(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    judge = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return np.asarray(judge.encode(texts, show_progress_bar=False))


def published(
    tiny_model: Path, folder: Path, *modules: Any, **settings: Any
) -> sentence_transformers.SentenceTransformer:
    """A folder that sentence-transformers itself writes."""
    first = Transformer(str(tiny_model), max_seq_length=settings.pop("max_seq_length", 16))
    model = sentence_transformers.SentenceTransformer(
        modules=[first, *modules], device="cpu", **settings
    )
    model.save(str(folder), create_model_card=False)
    return model


def dense(inputs: int, outputs: int, activation: torch.nn.Module, bias: bool = True) -> Dense:
    torch.manual_seed(outputs)
    return Dense(inputs, outputs, bias=bias, activation_function=activation)


MODULES = {
    "mean": lambda: [Pooling(32, "mean")],
    "cls, unit length": lambda: [Pooling(32, "cls"), Normalize()],
    "max": lambda: [Pooling(32, "max")],
    "mean_sqrt_len": lambda: [Pooling(32, "mean_sqrt_len_tokens")],
    "three at once": lambda: [Pooling(32, ("mean", "cls", "max"))],
    "as LaBSE": lambda: [Pooling(32, "cls"), dense(32, 32, torch.nn.Tanh()), Normalize()],
    "two dense": lambda: [
        Pooling(32, ("cls", "mean")),
        dense(64, 24, torch.nn.GELU()),
        dense(24, 40, torch.nn.Identity(), bias=False),
        Normalize(),
    ],
    "dense, relu": lambda: [Pooling(32, "mean"), dense(32, 8, torch.nn.ReLU())],
}


@pytest.mark.parametrize("name", list(MODULES))
def test_a_folder_of_sentence_transformers_gives_its_vectors_here_and_once_converted(
    name: str, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published(tiny_model, tmp_path / "in", *MODULES[name]())
    wanted = encode(tmp_path / "in")
    predictor = Predictor.load(tmp_path / "in")
    found = predictor.embed(TEXTS)
    assert predictor.max_length == 16
    assert difference(found, wanted) < TOLERANCE
    assert predictor.embed([]).shape == (0, wanted.shape[1])

    convert(str(tmp_path / "in"), tmp_path / "out", to="huggingface")
    assert np.array_equal(Predictor.load(tmp_path / "out").embed(TEXTS), found)
    assert difference(encode(tmp_path / "out"), wanted) < TOLERANCE


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean_sqrt_len", "cls+mean", "max+cls"])
def test_sentence_transformers_loads_our_folder_and_gives_the_same_vectors(
    tmp_path: Path, tiny_model: Path, pooling: str, normalize: bool
) -> None:
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    write_sentence_vectors(folder, SentenceVectors(pooling, normalize, max_length=9), 32)
    predictor = Predictor.load(folder)
    assert predictor.max_length == 9
    judge = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert judge.max_seq_length == 9
    assert difference(predictor.embed(TEXTS), encode(folder)) < TOLERANCE


def test_the_default_prompt_stands_before_every_text(tiny_model: Path, tmp_path: Path) -> None:
    prompts = {"query": "see the film : ", "passage": "a play : "}
    folder = tmp_path / "in"
    published(tiny_model, folder, Pooling(32, "mean"), prompts=prompts, default_prompt_name="query")
    wanted = encode(folder)
    found = Predictor.load(folder).embed(TEXTS)
    assert difference(found, wanted) < TOLERANCE
    # A pooling that the user names is without it, as it is without dense layers.
    assert difference(Predictor.load(folder).embed(TEXTS, pooling="mean"), wanted) > 1e-2


def test_texts_are_lower_cased_where_the_folder_says_so_and_the_tokenizer_does_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    published(tiny_model, folder, Pooling(32, "mean"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "do_lower_case": False}))
    cased = Predictor.load(folder).embed(TEXTS)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 16, "do_lower_case": True})
    )
    found = Predictor.load(folder).embed(TEXTS)
    assert difference(found, encode(folder)) < TOLERANCE
    assert difference(found, cased) > 1e-2
    # The tokenizer is a cased one, so accents stay.
    tokenizer = Predictor.load(folder).tokenizer
    (encoded,) = tokenizer.encode(["The Film a F\u00edlm"])
    assert tokenizer.tokens(encoded.input_ids)[1:-1] == ["the", "film", "a", "[UNK]"]


def test_the_oldest_folders_with_the_encoder_one_folder_below_are_read(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    published(tiny_model, folder, Pooling(32, "mean"))
    wanted = encode(folder)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file() and path.name not in ("modules.json", "README.md"):
            path.rename(inner / path.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert difference(Predictor.load(folder).embed(TEXTS), wanted) < TOLERANCE
    convert(str(folder), tmp_path / "out", to="huggingface")
    assert difference(encode(tmp_path / "out"), wanted) < TOLERANCE


def test_other_layers_beside_a_dense_one_have_to_be_asked_for_with_a_pooling(
    tiny_model: Path, tmp_path: Path
) -> None:
    published(tiny_model, tmp_path / "in", *MODULES["dense, relu"]())
    predictor = Predictor.load(tmp_path / "in")
    with pytest.raises(ConfigError, match="last layer alone"):
        predictor.embed(TEXTS, layers=[-1, -2])
    assert predictor.embed(TEXTS, layers=[-1, -2], pooling="mean").shape == (4, 64)
    assert predictor.embed(TEXTS, pooling="cls").shape == (4, 32)
