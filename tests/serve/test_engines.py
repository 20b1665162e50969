"""Several models in one place: who is asked, and what each can do."""

from __future__ import annotations

import asyncio

import pytest

from filbert.errors import ConfigError
from filbert.predict import Predictor
from filbert.serve.engine import Closed, Engine
from filbert.serve.engines import Engines, NoSuchModel


def engines(predictors: dict[str, Predictor], *names: str) -> Engines:
    return Engines(Engine(name, predictors[name]) for name in names)


@pytest.mark.parametrize(
    ("name", "foremost"),
    [
        ("vectors", "embed"),
        ("classes", "predict"),
        ("kinds", "predict"),
        ("value", "predict"),
        ("words", "tag"),
        ("spans", "answer"),
        ("choices", "choose"),
        ("masks", "fill"),
    ],
)
def test_a_model_can_do_what_its_head_is_for_and_what_every_encoder_can(
    predictors: dict[str, Predictor], name: str, foremost: str
) -> None:
    can = Engine(name, predictors[name]).can
    assert can[0] == foremost
    assert set(can) == {foremost, "embed", "similarity", "tokenize", "attention"}


def test_a_model_is_found_by_its_name_or_else_the_one_that_is_made_for_it(
    predictors: dict[str, Predictor],
) -> None:
    loaded = engines(predictors, "classes", "masks", "vectors", "words", "kinds")
    assert [engine.name for engine in loaded] == ["classes", "masks", "vectors", "words", "kinds"]
    assert loaded.get("words", "embed").name == "words"
    assert loaded.get(None, "embed").name == "vectors"
    assert loaded.get(None, "predict").name == "classes"
    assert loaded.get(None, "fill").name == "masks"
    assert engines(predictors, "classes", "kinds").get(None, "embed").name == "classes"


def test_a_model_that_is_not_loaded_or_cannot_do_it_is_refused_in_a_sentence(
    predictors: dict[str, Predictor],
) -> None:
    loaded = engines(predictors, "classes", "masks")
    with pytest.raises(NoSuchModel, match=r"no model 'other'\. Loaded: classes, masks\."):
        loaded.get("other", "embed")
    with pytest.raises(ConfigError, match="'classes' cannot fill.*masks can fill"):
        loaded.get("classes", "fill")
    with pytest.raises(ConfigError, match="No loaded model can tag"):
        loaded.get(None, "tag")


def test_two_models_cannot_have_one_name_and_there_must_be_one(
    predictors: dict[str, Predictor],
) -> None:
    with pytest.raises(ConfigError, match="Two models are called 'masks'"):
        engines(predictors, "masks", "masks")
    with pytest.raises(ConfigError, match="no model to serve"):
        Engines([])


def test_all_models_start_are_checked_and_stop_together(predictors: dict[str, Predictor]) -> None:
    loaded = engines(predictors, *predictors)

    async def story() -> None:
        loaded.start()
        await asyncio.wait_for(loaded.check(), 30)
        await loaded.close(5)
        with pytest.raises(Closed):
            await loaded.check()

    asyncio.run(story())
