"""What a folder is when config.json does not say, and when it says what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import sizes

from filbert.checkpoints import huggingface
from filbert.checkpoints.config_json import family_of, named_family
from filbert.checkpoints.families import FAMILIES
from filbert.errors import FormatError

PATH = Path("config.json")
SIZES = sizes(vocab_size=9, layers=1, width=8, heads=2, inner=8)


def names_of(family: str, *, bare: bool = False) -> list[str]:
    table = FAMILIES[family]
    found = [table.word_table, f"{table.prefix}{table.layer.format(0)}.x.weight"]
    return [name.removeprefix(table.prefix) if bare else name for name in found]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "electra"])
def test_the_prefix_of_the_tensors_tells_the_family(family):
    notes: list[str] = []
    assert family_of(SIZES, names_of(family), PATH, notes).model_type == family
    assert len(notes) == 1 and f"read as {family}" in notes[0]


def test_without_a_prefix_the_number_of_token_types_tells_and_a_class_tells_better():
    bare = names_of("bert", bare=True)
    for raw, family in [
        ({**SIZES, "type_vocab_size": 2}, "bert"),
        ({**SIZES, "type_vocab_size": 1}, "roberta"),
        ({**SIZES, "type_vocab_size": 1, "architectures": ["CamembertModel"]}, "camembert"),
        ({**SIZES, "architectures": ["XLMRobertaForCL"]}, "xlm-roberta"),
    ]:
        assert family_of(raw, bare, PATH, []).model_type == family


def test_tensors_of_nobody_are_refused_with_what_to_add():
    with pytest.raises(FormatError, match=r'Add "model_type": "\.\.\."'):
        family_of(SIZES, ["wte.weight", "h.0.attn.weight"], PATH, [])


def test_an_encoder_of_another_kind_is_refused():
    with pytest.raises(FormatError, match="model_type 'canine'; filbert reads bert,"):
        named_family({"model_type": "canine"}, PATH)


def test_a_part_of_a_head_is_damage_and_not_another_class(tmp_path, make, edit_tensors, refusal):
    huggingface.write(make("masked_lm"), tmp_path)
    edit_tensors(tmp_path, lambda t: t.pop("cls.predictions.transform.dense.weight"))
    assert "1 missing (cls.predictions.transform.dense.weight)" in refusal(tmp_path)


def test_a_class_is_inferred_only_when_one_alone_fits(folder, edit_config, refusal):
    edit_config(folder, architectures=["BertForPoetry"])
    text = refusal(folder)
    assert "names the class 'BertForPoetry', and the weights fit BertForSequenceClass" in text
