"""Low-rank adapters against PEFT: read, written, and their gradients; tiny random weights, float32.

Logits are one to three. 1e-5 of them is what the order of W x + B A x and (W + B A) x makes.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conftest import sizes
from tests.reference.theirs import judged, outputs, packed, padded, shaken, transformers

import filbert
from filbert.checkpoints import adapters
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import find_model, read_checkpoint
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.conversion import convert_model
from filbert.errors import ConfigError, FilbertError, FormatError, InputError
from filbert.train.base_model import add_low_rank

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import peft

# PEFT 0.21 asks transformers 5.24 by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
TOLERANCE = 1e-5
VOCAB, LABELS = 35, ("no", "yes", "perhaps")
SIZES: dict[str, Any] = sizes(vocab_size=VOCAB, layers=2, width=32, heads=4, inner=48, positions=64)
SPECIALS = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3}
# Settings, and what PEFT adapts in another tool's adapter: some of the layers, under its names.
# ModernBERT's query, key and value are one matrix, GPT-2's are (inputs, outputs), ALBERT's layers
# share theirs.
FAMILIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "bert": (SIZES, ["query", "value", "output.dense"]),
    "roberta": ({**SIZES, "type_vocab_size": 1, "pad_token_id": 0}, ["key", "intermediate.dense"]),
    "albert": ({**SIZES, "embedding_size": 16}, ["query", "ffn"]),
    "modernbert": ({**SIZES, **SPECIALS, "sep_token_id": 3}, ["Wqkv", "Wo", "Wi"]),
    "gpt2": (
        {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
        ["c_attn", "c_fc"],
    ),
}
AUTO = {
    "sequence": "AutoModelForSequenceClassification",
    "tokens": "AutoModelForTokenClassification",
    "spans": "AutoModelForQuestionAnswering",
    "choices": "AutoModelForMultipleChoice",
    None: "AutoModel",
}
every_family = pytest.mark.parametrize("family", list(FAMILIES))


def batch_for(family: str, kind: str | None = "sequence") -> dict[str, torch.Tensor]:
    # PEFT's class for questions does not pass token types on.
    has_types = family in ("bert", "albert") and kind != "spans"
    batch = padded((9, 3, 12), VOCAB, types=2 if has_types else 0)
    if family == "gpt2":
        # Its class looks for the last token that is not padding.
        batch["input_ids"] = torch.where(batch["attention_mask"].bool(), batch["input_ids"], 0)
    return batch


@pytest.fixture
def base(vocab: Path, tmp_path: Path) -> Any:
    """Writes a bare encoder of a family, with a tokenizer, and gives its folder."""

    def write(family: str) -> Path:
        config = transformers.AutoConfig.for_model(family, **FAMILIES[family][0])
        folder = tmp_path / "base"
        shaken(transformers.AutoModel.from_config(config)).save_pretrained(folder)
        (folder / "vocab.txt").write_bytes((vocab / "vocab.txt").read_bytes())
        settings = {"tokenizer_class": "BertTokenizer"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return write


def judge_of(folder: Path, kind: str | None) -> Any:
    labels = {"num_labels": 3} if kind in ("sequence", "tokens") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        return getattr(transformers, AUTO[kind]).from_pretrained(folder, **labels).eval()


def with_peft(folder: Path, kind: str | None, out: Path, **settings: Any) -> Any:
    """A model of PEFT's over the base, every number of its adapter random, and its folder."""
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 6, "init_lora_weights": True} | settings)
    model = peft.get_peft_model(judge_of(folder, kind), config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(out)
    return model


def differences(ours: Any, theirs: Any, kind: str | None, batch: dict[str, Any]) -> float:
    with torch.no_grad():
        mine = ours(packed(batch))
    mine = mine if isinstance(mine, tuple) else (mine,)
    pairs = zip(mine, judged(theirs, kind, batch), strict=False)
    return max(float((a.float() - b.float()).abs().max()) for a, b in pairs)


@every_family
def test_an_adapter_of_peft_gives_the_logits_of_peft(base, family, tmp_path):
    folder, targets = base(family), FAMILIES[family][1]
    settings = {"task_type": "SEQ_CLS", "target_modules": targets}
    settings |= {"fan_in_fan_out": True} if family == "gpt2" else {}
    # ModernBERT's classifier begins with a layer that PEFT does not take for a part of the head.
    settings |= {"modules_to_save": ["head"]} if family == "modernbert" else {}
    theirs = with_peft(folder, "sequence", tmp_path / "adapter", **settings)
    batch = batch_for(family)
    checkpoint = read_checkpoint(find_model(str(tmp_path / "adapter")))
    assert checkpoint.num_labels == 3
    assert differences(checkpoint.build(), theirs, "sequence", batch) < TOLERANCE
    # The adapter is no small thing: without it the logits are others.
    plain = read_checkpoint(find_model(str(folder)))
    tensors = plain.tensors | {n: t for n, t in checkpoint.tensors.items() if "head" in n}
    checkpoint.tensors = {n: tensors.get(n, t) for n, t in checkpoint.tensors.items()}
    assert differences(checkpoint.build(), theirs, "sequence", batch) > 100 * TOLERANCE


@pytest.mark.parametrize(("task_type", "kind"), list(adapters._TASK_TYPES.items()))
def test_every_task_type_of_peft_keeps_its_head(base, task_type, kind, tmp_path):
    folder = base("bert")
    settings = {"task_type": task_type, "target_modules": ["query"], "use_rslora": True}
    theirs = with_peft(folder, kind, tmp_path / "adapter", **settings)
    ours = read_checkpoint(find_model(str(tmp_path / "adapter")))
    assert ours.head == kind
    assert differences(ours.build(), theirs, kind, batch_for("bert", kind)) < TOLERANCE


def test_an_adapter_over_a_base_with_its_own_head_and_labels_keeps_both(base, tmp_path):
    whole = tmp_path / "whole"
    model = judge_of(base("bert"), "sequence")
    model.config.id2label = dict(enumerate(LABELS))
    model.save_pretrained(whole)
    theirs = with_peft(whole, "sequence", tmp_path / "adapter", target_modules=["value"])
    ours = read_checkpoint(find_model(str(tmp_path / "adapter")))
    assert ours.labels == LABELS
    assert differences(ours.build(), theirs, "sequence", batch_for("bert")) < TOLERANCE


def test_an_adapter_without_a_head_makes_vectors_as_its_base_does_also_converted(base, tmp_path):
    folder, adapter = base("bert"), tmp_path / "adapter"
    write_sentence_vectors(folder, SentenceVectors("cls", normalize=True), 32)
    theirs = with_peft(folder, None, adapter, task_type="FEATURE_EXTRACTION")
    ours = filbert.load(adapter)
    encoding = ours.tokenizer.encode(["the film was good"])[0]
    ids = torch.tensor(encoding.input_ids, dtype=torch.int64)[None]
    first = judged(theirs, None, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})[0][0]
    vector = torch.from_numpy(ours.embed("the film was good"))
    assert float((vector - first / first.norm()).abs().max()) < TOLERANCE
    convert_model(str(adapter), tmp_path / "whole", to="huggingface")
    again = torch.from_numpy(filbert.load(tmp_path / "whole").embed("the film was good"))
    assert torch.equal(vector, again)


ROWS: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"text": "the film was good", "label": "yes"},
        {"text": "he was not good", "label": "no"},
        {"text": "a film", "label": "perhaps"},
    ],
    "tagging": [{"tokens": ["the", "film", "was"], "tags": ["O", "B-x", "I-x"]}],
    "span_qa": [
        {"id": "1", "question": "a film", "context": "the good film"}
        | {"answers": [{"text": "good", "answer_start": 4}]}
    ],
    "multiple_choice": [{"context": "the film", "choices": ["good", "bad"], "label": 1}],
    "embedding": [
        {"text": "the film", "text_pair": "a film"},
        {"text": "he was", "text_pair": "was he"},
    ],
}
KIND = {
    "classification": "sequence",
    "tagging": "tokens",
    "span_qa": "spans",
    "multiple_choice": "choices",
    "embedding": None,
}
# Every family with a classifier, and every other task with BERT.
RUNS = [(f, "classification") for f in FAMILIES] + [("bert", t) for t in list(ROWS)[1:]]


@pytest.mark.parametrize(("family", "task"), RUNS)
def test_peft_opens_a_trained_adapter_with_equal_logits(base, family, task, tmp_path):
    folder, out = base(family), tmp_path / "run"
    options = {"steps": 3, "lr": 0.05, "batch_size": 4, "precision": "float32", "device": "cpu"}
    filbert.finetune(
        task=task, model=folder, train=ROWS[task] * 4, out=out, lora=3, baseline=False, **options
    )
    kind = KIND[task]
    batch = batch_for(family, kind)
    whole = read_checkpoint(find_model(str(out)))
    settings = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(folder)
    theirs = peft.PeftModel.from_pretrained(judge_of(folder, kind), out / "adapter").eval()
    assert differences(whole.build(), theirs, kind, batch) < TOLERANCE
    untrained = differences(whole.build(), judge_of(folder, kind), kind, batch)
    assert untrained > 100 * TOLERANCE
    ours = read_checkpoint(find_model(str(out / "adapter")))
    assert (ours.labels, ours.head, ours.config) == (whole.labels, whole.head, whole.config)
    # Two ways to add the same products, to the last bit or two of float32.
    assert differences(ours.build(), theirs, kind, batch) < TOLERANCE


@every_family
def test_the_gradients_of_a_batch_are_those_of_peft(base, family, tmp_path):
    folder, batch = base(family), batch_for(family)
    torch.manual_seed(2)
    start = with_new_head(read_checkpoint(find_model(str(folder))), "sequence", labels=LABELS)
    model = start.build()
    checkpoint = add_low_rank(model, start, 3)
    learned = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for parameter in learned.values():
            parameter.copy_(0.2 * torch.randn(parameter.shape))
    for name in ("ours", "gradients"):
        (tmp_path / name).mkdir()
    adapters.write(tmp_path / "ours", checkpoint, learned, rank=3, name=str(folder))
    targets = torch.tensor([0, 2, 1])
    torch.nn.functional.cross_entropy(model(packed(batch)), targets).backward()
    gradients = {name: parameter.grad for name, parameter in learned.items()}
    adapters.write(tmp_path / "gradients", checkpoint, gradients, rank=3, name=str(folder))
    mine = load_file(tmp_path / "gradients" / "adapter_model.safetensors")

    judge = judge_of(folder, "sequence")
    theirs = peft.PeftModel.from_pretrained(judge, tmp_path / "ours", is_trainable=True).eval()
    (logits,) = outputs(theirs, "sequence", batch)
    torch.nn.functional.cross_entropy(logits, targets).backward()
    wanted = {
        name.replace(".modules_to_save.default", "").replace(".default", ""): parameter.grad
        for name, parameter in theirs.named_parameters()
        if parameter.requires_grad
    }
    assert mine.keys() == wanted.keys()
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in mine.items():
        assert float((gradient - wanted[name]).abs().max()) < TOLERANCE * largest, name
    assert all(p.grad is None for n, p in model.named_parameters() if n not in learned)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "DoRA": ({"use_dora": True}, "use_dora"),
    "IA3": ({"peft_type": "IA3"}, "peft_type"),
    "ranks by layer": ({"rank_pattern": {"query": 2}}, "rank_pattern"),
    "biases": ({"bias": "all"}, "bias"),
    "PiSSA": ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    "no rank": ({"r": None}, "r is None"),
    "no base": ({"base_model_name_or_path": None}, "base_model_name_or_path"),
    "a head without a task": ({"task_type": None}, "task_type"),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_would_not_be_merged_exactly_is_refused_in_a_sentence(base, what, tmp_path):
    settings, named = REFUSED[what]
    with_peft(base("bert"), "sequence", tmp_path / "adapter", task_type="SEQ_CLS")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(FormatError, match=named):
        read_checkpoint(find_model(str(tmp_path / "adapter")))


def test_the_wrong_base_a_missing_one_and_unknown_tensors_are_refused(base, tmp_path):
    folder, adapter = base("bert"), tmp_path / "adapter"
    with_peft(folder, "sequence", adapter, task_type="SEQ_CLS")
    tensors = load_file(adapter / "adapter_model.safetensors")

    def refusal(kind: type[FilbertError]) -> str:
        with pytest.raises(kind) as caught:
            read_checkpoint(find_model(str(adapter)))
        return str(caught.value)

    narrow = {n: t[:, :9].clone() if "lora_A" in n else t for n, t in tensors.items()}
    save_file(narrow, adapter / "adapter_model.safetensors")
    assert "do not fit" in refusal(FormatError)
    odd = tensors | {"base_model.model.x.lora_E": torch.ones(2)}
    save_file(odd, adapter / "adapter_model.safetensors")
    assert "lora_E" in refusal(FormatError)
    folder.rename(tmp_path / "moved")
    assert "base" in refusal(InputError)


def test_a_changed_base_and_an_adapter_as_a_base_are_refused(base, tmp_path):
    folder, out = base("bert"), tmp_path / "run"
    given = {"task": "classification", "train": ROWS["classification"] * 4, "lora": 2, "steps": 1}
    filbert.finetune(model=folder, out=out, baseline=False, **given)
    with pytest.raises(ConfigError, match="whole model"):
        filbert.finetune(model=out / "adapter", out=tmp_path / "second", **given)
    other = shaken(transformers.AutoModel.from_pretrained(folder), noise=0.2)
    other.save_pretrained(folder)
    with pytest.raises(FormatError, match="sha256"):
        filbert.load(out / "adapter")
