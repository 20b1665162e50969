"""Which teachers and students go together, and which rows they learn from."""

from pathlib import Path

import pytest

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.opening import read_tokenizer
from filbert.errors import ConfigError, InputError
from filbert.model.config import EncoderConfig
from filbert.model.encoder import Encoder
from filbert.model.heads import Model
from filbert.train.distill import distill
from filbert.train.distill_options import DistillOptions
from filbert.train.options import changed


@pytest.mark.parametrize(
    ("task", "chosen", "said"),
    [
        ("classification", {"teacher": "MODEL"}, "was trained for no task"),
        ("classification", {"student": None, "keep_layers": None}, "Name a smaller model"),
        ("classification", {"method": "pkd"}, "nothing to compare"),
        ("classification", {"method": "pkd", "student": "SIX", "keep_layers": "2"}, "equal sizes"),
        ("classification", {"method": "tinybert", "student": "WORDS"}, "has another tokenizer"),
        ("classification", {"metric": "bleu"}, "not one of"),
        ("classification", {"method": "tinybert", "freeze": "encoder"}, "nothing to learn"),
        ("span_qa", {"student": "WORDS"}, "has another tokenizer"),
        ("embedding", {"alpha": 0.5}, "pairs without labels"),
        ("regression", {"temperature": 2.0}, "choose among several"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(
    task, chosen, said, taught, wide, tmp_path
):
    chosen = {name: wide.get(value, value) for name, value in chosen.items()}
    with pytest.raises(ConfigError, match=said):
        distill(taught(task, tmp_path / "x", **chosen))
    assert not (tmp_path / "x").exists()


def test_a_teacher_for_another_task_is_refused(taught, tmp_path):
    given = changed(taught("classification", tmp_path / "x"), task="tagging")
    with pytest.raises(ConfigError, match="was trained for classification, not for tagging"):
        distill(given)


def test_labels_that_the_teacher_does_not_know_are_named(taught, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\ngood film,pos\nbad film,awful\n")
    with pytest.raises(
        InputError, match=r"rows\.csv:3: label .awful. is not one of.*finetune --labels"
    ):
        distill(taught("classification", tmp_path / "x", train=str(rows)))
    rows.write_text("text\ngood film\n")
    with pytest.raises(InputError, match="label"):
        distill(taught("classification", tmp_path / "x", train=str(rows)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train": "a.csv", "corpus": "b.txt"}, "not both"),
        ({"train": "a.csv", "method": "tinibert"}, "Did you mean 'tinybert'"),
        ({"train": "a.csv", "method": "minilm"}, "learns from --corpus"),
        ({"corpus": "a.txt", "method": "pkd"}, "learns from --train"),
        ({"train": "a.csv", "beta": 3.0}, "beta is for pkd"),
        ({"train": "a.csv", "layers": 3}, "does not go with --train"),
        ({"corpus": "a.txt", "method": "minilm", "test": "b"}, "does not go with --corpus"),
        ({"train": "a.csv", "alpha": 1.5}, "from 0 to 1"),
        ({"train": "a.csv", "temperature": 0.0}, "above zero"),
        ({"train": "a.csv", "method": "tinybert", "layer_map": "1-3"}, "such as 1,3,5"),
        ({"train": "a.csv", "patience": 2}, "need dev rows"),
        ({"train": "a.csv", "seeds": 3}, "not for distillation"),
        ({"train": "-"}, "must be a file"),
    ],
)
def test_options_that_cannot_be_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        DistillOptions.from_keywords({"teacher": "t", "out": "o", **given})


@pytest.fixture(scope="module")
def wide(taught, tmp_path_factory):
    """Models that do not fit the teachers: without a task, of other sizes, of other words."""
    place = tmp_path_factory.mktemp("wide")
    base = Path(taught("classification", place).model.student)
    found = {"MODEL": str(base)}
    tokenizer = read_tokenizer(base)
    for name, cut in (("SIX", 0), ("WORDS", 1)):
        vocabulary = tokenizer.tokens(list(range(tokenizer.vocab_size - cut)))
        (place / name).mkdir()
        (place / name / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        config = EncoderConfig.of(
            vocab_size=len(vocabulary), hidden_size=48, num_hidden_layers=2, num_attention_heads=6,
            intermediate_size=64, max_position_embeddings=64,
        )  # fmt: skip
        tensors = Model(Encoder(config)).state_dict()
        huggingface.write(Checkpoint(config, "bert", tensors), place / name)
        if cut:
            read_tokenizer(place / name).save(place / name)
        else:
            tokenizer.save(place / name)
        found[name] = str(place / name)
    return found
