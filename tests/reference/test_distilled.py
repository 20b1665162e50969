"""transformers loads a distilled student as the class that it is, and computes the same."""

import pytest
import torch
from tests.conftest import sizes

from filbert.batch import pack
from filbert.checkpoints import huggingface
from filbert.checkpoints.fresh import fresh_checkpoint, student_checkpoint
from filbert.cli.main import run

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("head", ["masked_lm", None])
def test_a_student_without_token_types_is_a_distilbert_of_theirs(head, tmp_path):
    torch.manual_seed(0)
    teacher = fresh_checkpoint(
        "bert",
        **sizes(vocab_size=30, layers=4, width=16, heads=2, inner=32, positions=24),
        head="pretraining",
    )
    student = student_checkpoint(teacher, layers=[0, 3], head=head, token_types=False)
    huggingface.write(student, tmp_path)
    name = "DistilBertForMaskedLM" if head else "DistilBertModel"
    theirs, told = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    ids = [2, 7, 9, 3]
    with torch.no_grad():
        output = theirs.eval()(torch.tensor([ids]))
        mine = student.build()(pack([ids]))
    wanted = output.logits if head else output.last_hidden_state
    assert torch.allclose(mine, wanted[0], atol=1e-6)


def test_what_distill_writes_is_read_with_its_tokenizer(masked_lm, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(["the film was good", "a play and a bad film"] * 8), "utf-8")
    words = ["distill", "distilbert", "--teacher", masked_lm, "--corpus", text, "--dev", text]
    words += ["--out", tmp_path / "out", "--layers", 1, "--max-length", 16, "--steps", 2]
    words += ["--batch-size", 8, "--precision", "float32"]
    assert run([str(word) for word in words]) == 0, capsys.readouterr().err
    folder = tmp_path / "out" / "model"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert type(theirs).__name__ == "DistilBertForMaskedLM"
    given = transformers.AutoTokenizer.from_pretrained(folder)(
        "the film was good", "a play", return_tensors="pt"
    )
    assert set(given) == {"input_ids", "attention_mask"}
    with torch.no_grad():
        output = theirs(**given).logits
        mine = huggingface.read(folder).build()(pack(given["input_ids"].tolist()))
    assert torch.allclose(mine, output[0], atol=1e-5)
