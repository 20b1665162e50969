"""Sentence vectors against sentence-transformers: its folders in, ours out; tiny random weights."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

import filbert
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.cli.verbs.models import convert
from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers
    import transformers
    from sentence_transformers import MultiVectorEncoder, SparseEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
    from sentence_transformers.sentence_transformer.modules import (
        LayerNorm,
        Pooling,
        StaticEmbedding,
    )
    from sentence_transformers.sparse_encoder.modules import SpladePooling

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


def dense(
    inputs: int, outputs: int, activation: torch.nn.Module, bias: bool = True, **names: str
) -> Dense:
    torch.manual_seed(outputs)
    return Dense(inputs, outputs, bias=bias, activation_function=activation, **names)


def layer_norm(width: int) -> LayerNorm:
    torch.manual_seed(width)
    module = LayerNorm(width)
    torch.nn.init.normal_(module.norm.weight)
    torch.nn.init.normal_(module.norm.bias)
    return module


TOKENS = "token_embeddings"


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
    "weighted mean": lambda: [Pooling(32, "weightedmean")],
    "all at once": lambda: [Pooling(32, Pooling.POOLING_MODES)],
    "norm before and after": lambda: [
        Pooling(32, "mean"),
        layer_norm(32),
        dense(32, 16, torch.nn.SiLU()),
        layer_norm(16),
    ],
    "unit length in the middle": lambda: [
        Pooling(32, "cls"),
        Normalize(),
        dense(32, 16, torch.nn.Sigmoid()),
        Normalize(),
        dense(16, 8, torch.nn.Mish()),
    ],
    "dense over tokens": lambda: [
        dense(32, 12, torch.nn.ELU(), module_input_name=TOKENS),
        Normalize(module_input_name=TOKENS),
        Pooling(12, ("mean", "cls")),
        dense(24, 8, torch.nn.LeakyReLU()),
    ],
}


@pytest.mark.parametrize("name", list(MODULES))
def test_a_folder_of_sentence_transformers_gives_its_vectors_here_and_once_converted(
    name, tiny_model, tmp_path, capsys
):
    published(tiny_model, tmp_path / "in", *MODULES[name]())
    wanted = encode(tmp_path / "in")
    predictor = Predictor.load(tmp_path / "in")
    found = predictor.embed(TEXTS)
    assert predictor.max_length == 16
    assert difference(found, wanted) < TOLERANCE
    assert predictor.embed([]).shape == (0, wanted.shape[1])

    convert(str(tmp_path / "in"), tmp_path / "out", to="huggingface")
    kinds = [
        [module["type"].rpartition(".")[2] for module in json.loads(path.read_text())]
        for path in (tmp_path / "in/modules.json", tmp_path / "out/modules.json")
    ]
    assert kinds[0] == kinds[1]
    assert np.array_equal(Predictor.load(tmp_path / "out").embed(TEXTS), found)
    assert difference(encode(tmp_path / "out"), wanted) < TOLERANCE


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "mean_sqrt_len", "cls+mean", "max+cls"])
def test_sentence_transformers_loads_our_folder_and_gives_the_same_vectors(
    tmp_path, tiny_model, pooling, normalize
):
    folder = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    write_sentence_vectors(folder, SentenceVectors(pooling, normalize, max_length=9), 32)
    predictor = Predictor.load(folder)
    assert predictor.max_length == 9
    judge = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    assert judge.max_seq_length == 9
    assert difference(predictor.embed(TEXTS), encode(folder)) < TOLERANCE


def test_the_default_prompt_stands_before_every_text(tiny_model, tmp_path):
    prompts = {"query": "see the film : ", "passage": "a play : "}
    folder = tmp_path / "in"
    published(tiny_model, folder, Pooling(32, "mean"), prompts=prompts, default_prompt_name="query")
    wanted = encode(folder)
    found = Predictor.load(folder).embed(TEXTS)
    assert difference(found, wanted) < TOLERANCE
    # A pooling that the user names is without it, as it is without dense layers.
    assert difference(Predictor.load(folder).embed(TEXTS, pooling="mean"), wanted) > 1e-2


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "weightedmean", "lasttoken"])
def test_a_prompt_is_chosen_by_name_and_can_be_left_out_of_the_pooling(
    tiny_model, tmp_path, pooling
):
    prompts = {"query": "see the film : ", "passage": "a play : "}
    folder = tmp_path / "in"
    model = published(
        tiny_model,
        folder,
        Pooling(32, pooling, include_prompt=False),
        prompts=prompts,
        default_prompt_name="passage",
    )
    predictor = Predictor.load(folder)
    assert difference(predictor.embed(TEXTS), model.encode(TEXTS)) < TOLERANCE
    wanted = model.encode(TEXTS, prompt_name="query")
    assert difference(predictor.embed(TEXTS, prompt="query"), wanted) < TOLERANCE
    convert(str(folder), tmp_path / "out", to="huggingface")
    found = Predictor.load(tmp_path / "out").embed(TEXTS, prompt="query")
    assert difference(found, wanted) < TOLERANCE
    assert difference(encode(tmp_path / "out"), model.encode(TEXTS)) < TOLERANCE
    with pytest.raises(ConfigError, match="no prompt 'qery'; it has document, passage, query"):
        predictor.embed(TEXTS, prompt="qery")


@pytest.mark.parametrize("modules", ["mean", "as LaBSE"])
def test_vectors_are_cut_before_they_get_unit_length(tiny_model, tmp_path, modules):
    model = published(tiny_model, tmp_path / "in", *MODULES[modules](), truncate_dim=20)
    unit = modules == "as LaBSE"
    predictor = Predictor.load(tmp_path / "in")
    wanted = model.encode(TEXTS, normalize_embeddings=unit)
    assert wanted.shape == (4, 20)
    assert difference(predictor.embed(TEXTS), wanted) < TOLERANCE
    # An option takes precedence over the folder's number, in both directions.
    for dimensions in (5, 30):
        wanted = model.encode(TEXTS, truncate_dim=dimensions, normalize_embeddings=unit)
        found = predictor.embed(TEXTS, dimensions=dimensions)
        assert difference(found, wanted) < TOLERANCE
    with pytest.raises(ConfigError, match="dimensions is 33; vectors of this model have 32"):
        predictor.embed(TEXTS, dimensions=33)
    convert(str(tmp_path / "in"), tmp_path / "out", to="huggingface")
    wanted = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert wanted.truncate_dim == 20


def static(tiny_model: Path, width: int = 32) -> StaticEmbedding:
    torch.manual_seed(3)
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    return StaticEmbedding(tokenizer, embedding_dim=width)


@pytest.mark.parametrize("layout", ["now", "subfolder", "model2vec"])
def test_a_table_of_word_vectors_embeds_and_is_written_again(tiny_model, tmp_path, layout):
    folder = tmp_path / "in"
    modules = [static(tiny_model), dense(32, 8, torch.nn.Tanh()), Normalize()]
    wanted = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    wanted.save(str(folder), create_model_card=False)
    if layout == "subfolder":
        inner = folder / "0_StaticEmbedding"
        inner.mkdir()
        for name in ("tokenizer.json", "model.safetensors"):
            (folder / name).rename(inner / name)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = inner.name
        (folder / "modules.json").write_text(json.dumps(modules))
    if layout == "model2vec":
        table = load_file(folder / "model.safetensors")
        save_file({"embeddings": table["embedding.weight"]}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    # No text is cut, and one without tokens is zeros before the dense layer.
    texts = [*TEXTS, "the film " * 100]
    vectors = wanted.encode(texts)
    predictor = Predictor.load(folder)
    assert difference(predictor.embed(texts), vectors) < TOLERANCE
    convert(str(folder), tmp_path / "out", to="huggingface")
    assert difference(encode(tmp_path / "out", texts), vectors) < TOLERANCE
    assert np.array_equal(Predictor.load(tmp_path / "out").embed(texts), predictor.embed(texts))


def test_a_table_of_word_vectors_that_was_trained_here_loads_there(tiny_model, tmp_path):
    model = sentence_transformers.SentenceTransformer(modules=[static(tiny_model)], device="cpu")
    model.save(str(tmp_path / "in"), create_model_card=False)
    rows = [{"text": f"the film {word}", "text_pair": word} for word in ("good", "bad", "great")]
    options = {"model": tmp_path / "in", "train": rows, "out": tmp_path / "run", "steps": 1}
    run = filbert.finetune(task="embedding", **options)
    assert difference(run.model.embed(TEXTS), encode(tmp_path / "run/model")) < TOLERANCE


def test_a_router_reads_each_text_by_the_route_of_its_prompt(tiny_model, tmp_path):
    router = Router.for_query_document(
        query_modules=[static(tiny_model)],
        document_modules=[Transformer(str(tiny_model)), Pooling(32, "cls")],
    )
    model = sentence_transformers.SentenceTransformer(
        modules=[router, Normalize()], device="cpu", prompts={"query": "see the ", "document": ""}
    )
    model.save(str(tmp_path / "in"), create_model_card=False)
    predictor = Predictor.load(tmp_path / "in")
    wanted = model.encode_document(TEXTS)
    assert difference(predictor.embed(TEXTS), wanted) < TOLERANCE
    assert difference(predictor.embed(TEXTS, prompt="document"), wanted) < TOLERANCE
    query = model.encode_query(TEXTS)
    assert difference(predictor.embed(TEXTS, prompt="query"), query) < TOLERANCE
    assert difference(predictor.routes["query"].embed(TEXTS), query) > 0.1
    # One model is written: that of the default route.
    convert(str(tmp_path / "in"), tmp_path / "out", to="huggingface")
    assert difference(encode(tmp_path / "out"), wanted) < TOLERANCE


def test_models_of_other_vectors_are_read_as_dense_encoders_with_a_note(
    tiny_model, masked_lm, tmp_path
):
    splade = Transformer(str(masked_lm), transformer_task="fill-mask")
    sparse = SparseEncoder(modules=[splade, SpladePooling()], device="cpu")
    sparse.save(str(tmp_path / "splade"), create_model_card=False)
    late = MultiVectorEncoder(str(tiny_model), device="cpu")
    late.save(str(tmp_path / "colbert"), create_model_card=False)
    published(tiny_model, tmp_path / "bge-m3", Pooling(32, "cls"), Normalize())
    for name in ("colbert_linear.pt", "sparse_linear.pt"):
        # Whoever unpickles these bytes, fails.
        (tmp_path / "bge-m3" / name).write_bytes(b"no pickle")
    notes = {"splade": "SpladePooling", "colbert": "one vector a token", "bge-m3": "colbert_linear"}
    for name, part in notes.items():
        predictor = Predictor.load(tmp_path / name)
        assert difference(predictor.embed(TEXTS), encode(tmp_path / name)) < TOLERANCE
        (note,) = predictor.checkpoint.notes
        assert note.startswith("left out: ") and part in note


def test_texts_are_lower_cased_where_the_folder_says_so_and_the_tokenizer_does_not(
    tiny_model, tmp_path
):
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
    tiny_model, tmp_path, capsys
):
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


def test_other_layers_beside_a_dense_one_have_to_be_asked_for_with_a_pooling(tiny_model, tmp_path):
    published(tiny_model, tmp_path / "in", *MODULES["dense, relu"]())
    predictor = Predictor.load(tmp_path / "in")
    with pytest.raises(ConfigError, match="last layer alone"):
        predictor.embed(TEXTS, layers=[-1, -2])
    assert predictor.embed(TEXTS, layers=[-1, -2], pooling="mean").shape == (4, 64)
    assert predictor.embed(TEXTS, pooling="cls").shape == (4, 32)
