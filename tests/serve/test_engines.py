"""Several models in one place: who is asked, and what each can do."""

from __future__ import annotations

import pytest

from filbert.inference.predictor import Predictor
from filbert.serve.engine import Engine, Engines
from filbert.serve.errors import Refusal


def engines(predictors: dict[str, Predictor], *names: str) -> Engines:
    return Engines({name: Engine(name, predictors[name]) for name in names})


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
def test_a_model_can_do_what_its_head_is_for_and_what_every_encoder_can(predictors, name, foremost):
    can = Engine(name, predictors[name]).can
    assert can[0] == foremost
    assert set(can) == {foremost, "embed", "similarity", "tokenize", "attention"}


def test_a_model_is_found_by_its_name_or_else_the_one_that_is_made_for_it(
    predictors,
):
    loaded = engines(predictors, "classes", "masks", "vectors", "words", "kinds")
    assert list(loaded) == ["classes", "masks", "vectors", "words", "kinds"]
    assert loaded.find("words", "embed").name == "words"
    assert loaded.find(None, "embed").name == "vectors"
    assert loaded.find(None, "predict").name == "classes"
    assert loaded.find(None, "fill").name == "masks"
    assert engines(predictors, "classes", "kinds").find(None, "embed").name == "classes"


def test_a_model_that_is_not_loaded_or_cannot_do_it_is_refused_in_a_sentence(
    predictors,
):
    loaded = engines(predictors, "classes", "masks")
    with pytest.raises(Refusal, match=r"no model 'other'\. Loaded: classes, masks\."):
        loaded.find("other", "embed")
    with pytest.raises(Refusal, match="'classes' cannot fill.*masks can fill"):
        loaded.find("classes", "fill")
    with pytest.raises(Refusal, match="No loaded model can tag"):
        loaded.find(None, "tag")
