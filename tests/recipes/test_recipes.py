"""The recipes that come with filbert: their keys, the published numbers, and a small run each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.corpora import write_corpus

import filbert
from filbert.api import LINEAGE
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import meta_model
from filbert.checkpoints.fresh import fresh_config
from filbert.cli.main import run
from filbert.recipes import built_in, read_recipe
from filbert.train.options import flat, keys_of_tables
from filbert.train.pretrain import _phases
from filbert.train.pretrain_options import PretrainOptions
from filbert.train.schedule import rate_at

# Those of `lineage` have tests of their own.
RECIPES = [
    path
    for path in built_in("pretrain")
    if read_recipe(path).get("model", {}).get("objective") not in LINEAGE
]
NAMES = [path.stem for path in RECIPES]

ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.01, "clip": 1.0}
ROBERTA_ADAM = {**ADAM, "beta2": 0.98}

# A second copy of the figures, typed from the papers and the published code, not from the recipes.
# Devlin et al. 2019, appendix A.2, and google-research/bert.
BERT = {
    "batch_size": 256, "second_batch_size": 256, "steps": 1_000_000, "max_length": 128,
    "second_length": 512, "second_share": 0.1, "optimizer": "bert_adam", "schedule": "bert",
    "lr": 1e-4, "dropout": 0.1, "pair": "nsp", "masking": "token", "mask_style": "bert",
    "mask_rate": 0.15, "max_predictions": 20, "duplicates": 10, "short_rate": 0.1, **ADAM,
}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "bert-base-2018": BERT,
    "bert-large-2018": BERT,
    # Liu et al. 2019, table 9.
    "roberta-base": {
        "batch_size": 8192, "steps": 500_000, "max_length": 512, "second_length": None,
        "optimizer": "adamw", "schedule": "linear", "lr": 6e-4, "dropout": 0.1, "pair": "none",
        "masking": "token", "mask_style": "roberta", "mask_rate": 0.15, "duplicates": None,
        **ROBERTA_ADAM, "clip": 0.0,
    },
    # Lan et al. 2020, section 4.1; google-research/albert.
    "albert-base": {
        "batch_size": 4096, "steps": 125_000, "max_length": 512, "second_length": None,
        "optimizer": "lamb", "schedule": "bert", "lr": 0.00176, "pair": "sop", "masking": "ngram",
        "mask_rate": 0.15, "max_predictions": 20, "duplicates": 40, **ADAM,
    },
    # Clark et al. 2020, table 6; google-research/electra.
    "electra-small": {
        "batch_size": 128, "steps": 1_000_000, "max_length": 128, "second_length": None,
        "optimizer": "bert_adam", "schedule": "electra", "lr": 5e-4, "dropout": 0.1,
        "objective": "replaced", "mask_style": "electra", "mask_rate": 0.15, "most": 19,
        "generator_share": 0.25, **ADAM,
    },
    # academic-budget-bert, README; Portes et al. 2023; Liu et al. 2019, table 3.
    "fast-base": {
        "batch_size": 4096, "max_length": 128, "optimizer": "adamw", "schedule": "linear",
        "lr": 7e-4, "dropout": 0.0, "pair": "none", "mask_rate": 0.3, "warmup": 0.06,
        "time_seconds": 86_400.0, **ROBERTA_ADAM,
    },
    # Alsentzer et al. 2019, section 3, for rate and length; Gururangan et al. 2020 for the rest.
    "domain-adapt": {
        "max_length": 128, "optimizer": "adamw", "lr": 5e-5, "pair": "none", "masking": "word",
        "mask_rate": 0.15, "warmup": 0.06, "batch_size": 256, **ROBERTA_ADAM,
    },
}  # fmt: skip
WARMUP_STEPS = {
    "bert-base-2018": 10_000,
    "bert-large-2018": 10_000,
    "roberta-base": 24_000,
    "albert-base": 3_125,
    "electra-small": 10_000,
}
# Vocabulary, head, and parameters of the encoder in millions: Devlin et al. 2019, section 3 (110
# and 340 with the heads); Lan et al. 2020, table 1; Clark et al. 2020, table 1; fairseq's README.
SIZES = {
    "bert-base-2018": (30_522, "pretraining", 109.5),
    "bert-large-2018": (30_522, "pretraining", 335.1),
    "roberta-base": (50_265, "masked_lm", 124.1),
    "albert-base": (30_000, "pretraining", 11.7),
    "electra-small": (30_522, "discriminator", 13.5),
    "fast-base": (30_522, "masked_lm", 108.9),
}


def options_of(name: str, **given: Any) -> PretrainOptions:
    (path,) = (path for path in RECIPES if path.stem == name)
    return PretrainOptions.from_keywords(
        keys_of_tables(read_recipe(path), PretrainOptions)[0]
        | {"corpus": "text.txt", "out": "runs/x"}
        | given
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_recipe_is_an_option_and_every_value_is_possible(name):
    options_of(name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_published_numbers(name):
    chosen = options_of(name)
    options = flat(chosen) | {"most": chosen.objective.most}
    options["time_seconds"] = chosen.train.time_seconds
    assert {key: options[key] for key in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", WARMUP_STEPS)
def test_the_rate_rises_for_the_published_number_of_steps(name):
    options = options_of(name).train
    rates = [
        rate_at(options.schedule, step, options.steps, warmup=options.warmup, peak=options.lr)
        for step in range(WARMUP_STEPS[name] - 2, WARMUP_STEPS[name] + 2)
    ]
    assert rates[0] < rates[1] and max(rates[1], rates[2]) > rates[3]
    assert math.isclose(max(rates), options.lr, rel_tol=0.03)  # "bert" jumps down to 97.5 %


@pytest.mark.parametrize("name", ["bert-base-2018", "bert-large-2018"])
def test_long_rows_have_room_for_as_many_more_masks(name, tiny, tmp_path):
    corpus = write_corpus(tmp_path, [[[5, 6, 7] * 300]] * 2)
    phases = _phases(options_of(name), corpus, tiny, torch.device("cpu"))
    # google-research/bert's README: 20 at 128 tokens, 80 at 512.
    assert [phase.loader.instances.options.most for phase in phases] == [20, 80]


@pytest.mark.parametrize("name", SIZES)
def test_a_recipe_describes_the_published_model(name):
    options = options_of(name)
    vocab_size, head, millions = SIZES[name]
    config = fresh_config(
        options.model.family, vocab_size=vocab_size, head=head, **options.model.sizes
    )
    found = sum(p.numel() for p in meta_model(config, None).parameters())
    assert round(found / 1e6, 1) == millions
    assert config.max_tokens_per_sequence >= (
        options.phases.second_length or options.objective.max_length
    )


# What each smoke run is to leave: family, head and whether there are pairs to judge.
KIND = {
    "bert-base-2018": ("bert", "pretraining", "nsp_accuracy"),
    "bert-large-2018": ("bert", "pretraining", "nsp_accuracy"),
    "roberta-base": ("roberta", "masked_lm", None),
    "albert-base": ("albert", "pretraining", "sop_accuracy"),
    "electra-small": ("electra", "discriminator", "replaced_accuracy"),
    "fast-base": ("bert", "masked_lm", None),
    "mini-cpu": ("bert", "masked_lm", None),
    "filbert-mini": ("bert", "pretraining", "nsp_accuracy"),
    "domain-adapt": ("bert", "masked_lm", None),
}
VOCABULARY = {"roberta": "roberta-base", "albert": "albert-base-v2"}
SMALL = {
    "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64,
}  # fmt: skip
RUN = {
    "batch_size": 8, "max_length": 32, "steps": 3, "precision": "float32", "device": "cpu",
    "dev_rows": 16,
}  # fmt: skip


def smaller(recipe: dict[str, Any], shared_data: Path, tiny_model: Path) -> dict[str, Any]:
    """Flags that make a recipe small, and nothing else of it different."""
    flags: dict[str, Any] = dict(RUN)
    if "model" in recipe:
        flags["model"] = tiny_model
    else:
        vocabulary = VOCABULARY.get(recipe["family"], "bert-base-uncased")
        flags |= SMALL | {"tokenizer": shared_data / "tokenizers" / vocabulary}
    if "embedding_size" in recipe:
        flags["embedding_size"] = 16
    if "second_length" in recipe:
        flags |= {"second_length": 64, "second_share": 0.34, "second_batch_size": 4}
    if "time" in recipe:
        flags["time"] = "1s"
    return flags


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_trains_from_text_to_a_model_that_loads(name, tmp_path, shared_data, tiny_model):
    (path,) = (path for path in RECIPES if path.stem == name)
    recipe = keys_of_tables(read_recipe(path), PretrainOptions)[0]
    flags = smaller(recipe, shared_data, tiny_model)
    text = shared_data / "google_bert_sample" / "sample_text.txt"
    flags |= {"corpus": text, "dev": text, "out": tmp_path / "run"}
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in flags.items()]
    assert run(["pretrain", name, *arguments]) == 0

    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "loss" in line]
    assert facts["steps"] == len(steps) >= (1 if "time" in recipe else 3)
    assert all(math.isfinite(line["loss"]) for line in steps)
    assert facts["tokens"] > 0
    if "second_length" in recipe:
        # Four rows of 64 tokens in place of eight of 32.
        assert [line["sequences"] for line in steps] == [8, 8, 4]
    # The flags made it small; everything else is the recipe's.
    kept = recipe.keys() - flags.keys()
    assert {key: facts["options"][key] for key in kept} == {key: recipe[key] for key in kept}

    family, head, pair = KIND[name]
    dev = facts["metrics"]["dev"]
    assert all(math.isfinite(value) for value in dev.values())
    assert {"mlm_loss", "perplexity", "mlm_accuracy"} <= dev.keys()
    assert pair is None or 0 <= dev[pair] <= 1
    checkpoint = huggingface.read(tmp_path / "run" / "model")
    assert (checkpoint.family, checkpoint.head) == (family, head)
    assert filbert.load(tmp_path / "run" / "model").embed(["one text"]).shape == (1, 32)
