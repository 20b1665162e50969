"""Losses and gradients of pre-training, and held-out figures, against transformers' own classes.

Tiny random weights, float32, CPU. Losses are about one to fifty; 1e-5 of them is a few units in the
last place of the sums behind them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import sizes
from tests.corpora import write_corpus
from tests.reference.theirs import transformers
from torch import Tensor

import filbert.model.replaced
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.fresh import fresh_checkpoint, replaced_model, split_replaced
from filbert.data.examples import Example
from filbert.data.instances import ObjectiveOptions, PretrainLoader, fixed_examples
from filbert.data.shards import Corpus
from filbert.inference.masked_text import measure
from filbert.model.precision import Precision
from filbert.tasks.pretraining import Pretraining, ReplacedTokens
from filbert.text.tokenizer import Tokenizer
from filbert.train.distributed import Parallel
from filbert.train.step import Gradient, accumulate, model_forward

TOLERANCE = 1e-5
ALONE = Parallel(0, 1, torch.device("cpu"))
PLAIN = Precision("float32", "exact")
SIZES: dict[str, Any] = sizes(layers=2, width=24, heads=4, inner=32, positions=40, dropout=0.0)


class Case(NamedTuple):
    """A family, what it is asked, and transformers' class for it."""

    family: str
    options: ObjectiveOptions
    judge: str
    pair_labels: str | None = None

    @property
    def task(self) -> Pretraining:
        return Pretraining(pair=self.options.pair)


CASES = {
    "bert, nsp": Case(
        "bert",
        ObjectiveOptions(max_length=24, pair="nsp"),
        "BertForPreTraining",
        "next_sentence_label",
    ),
    "albert, sop": Case(
        "albert",
        ObjectiveOptions(max_length=24, pair="sop", masking="ngram"),
        "AlbertForPreTraining",
        "sentence_order_label",
    ),
    # Padding is never drawn as a random word here, and RoBERTa counts positions by it.
    "roberta": Case(
        "roberta", ObjectiveOptions(max_length=24, mask_style="roberta"), "RobertaForMaskedLM"
    ),
    "bert, words": Case("bert", ObjectiveOptions(max_length=12, masking="word"), "BertForMaskedLM"),
    "bert, spans": Case("bert", ObjectiveOptions(max_length=12, masking="span"), "BertForMaskedLM"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Sentences of 1 to 12 tokens; every second document is of words that are too long to mask."""
    draw = np.random.default_rng(0)
    documents = []
    for number in range(40):
        sentences = []
        for _ in range(draw.integers(2, 9)):
            words = draw.integers(5, 20, draw.integers(1, 13)).tolist()
            long = [[word, 20, 21, 22, 23] for word in words[:2]]
            sentences.append(sum(long, []) if number % 2 else words)
        documents.append(sentences)
    return write_corpus(tmp_path_factory.mktemp("corpus"), documents)


def drawn(case: Case, tokenizer: Tokenizer, head: str | None = None) -> Checkpoint:
    """A model whose every number is random and large enough to matter."""
    torch.manual_seed(1)
    checkpoint = fresh_checkpoint(
        case.family,
        vocab_size=tokenizer.vocab_size,
        head=head or case.task.head_kind,
        pad_id=tokenizer.pad_id,
        **SIZES,
    )
    checkpoint.tensors = {
        name: 0.2 * torch.randn_like(tensor) + (0.5 if name.endswith("norm.weight") else 0)
        for name, tensor in checkpoint.tensors.items()
    }
    return checkpoint


def padded(examples: Sequence[Example]) -> dict[str, Tensor]:
    """What transformers' models read."""
    longest = max(len(example.input_ids) for example in examples)
    shape = (len(examples), longest)
    found = {
        "input_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.int64),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "labels": torch.full(shape, -100),
    }
    for row, example in enumerate(examples):
        size = len(example.input_ids)
        found["input_ids"][row, :size] = torch.from_numpy(example.input_ids.astype(np.int64))
        found["attention_mask"][row, :size] = 1
        found["token_type_ids"][row, :size] = torch.from_numpy(
            example.token_type_ids.astype(np.int64)
        )
        found["labels"][row, example.target.positions] = torch.from_numpy(example.target.labels)
    return found


def judged(case: Case, folder: Path, examples: Sequence[Example]) -> tuple[Any, Any]:
    """transformers' model and its output on all examples at once."""
    model = getattr(transformers, case.judge).from_pretrained(folder).eval()
    inputs = padded(examples)
    if case.pair_labels:
        inputs[case.pair_labels] = torch.tensor([example.target.pair for example in examples])
    if case.family == "roberta":
        del inputs["token_type_ids"]
    return model, model(**inputs)


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
    }


def step_of(
    model: Any, task: Any, micro_batches: Sequence[Sequence[Example]]
) -> tuple[Gradient, dict[str, Tensor]]:
    gradient = accumulate(
        model_forward(model, ALONE.device),
        model,
        task,
        micro_batches,
        parallel=ALONE,
        precision=PLAIN,
        seed=(0, 1),
        stand_in=micro_batches[0],
    )
    return gradient, gradients(model)


def agree(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Gradients by transformers' names; each within the tolerance of the largest of its numbers."""
    assert len(theirs) > 10 and theirs.keys() <= mine.keys()
    for name, wanted in theirs.items():
        limit = TOLERANCE * max(1.0, float(wanted.abs().max()))
        assert float((mine[name] - wanted).abs().max()) <= limit, name


def as_saved(checkpoint: Checkpoint, tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Our tensors under transformers' names."""
    huggingface.write(replace(checkpoint, tensors=tensors), folder)
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("max_tokens", [10_000, 60, 1])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_of_a_step_are_those_of_transformers_however_it_is_cut(
    name, max_tokens, corpus, tiny, tmp_path
):
    case = CASES[name]
    loader = PretrainLoader(
        corpus, tiny, case.options, batch_size=24, max_tokens=max_tokens, seed=2
    )
    micro_batches = loader.step(0)
    counts = [sum(len(e.target.labels) for e in micro) for micro in micro_batches]
    if max_tokens < 10_000:
        assert len(set(counts)) > 1, "unequal micro-batches"
    if max_tokens == 1 and case.options.masking in ("word", "span"):
        assert counts.count(0) >= 1, "one of them has nothing to guess"
    checkpoint = drawn(case, tiny)
    huggingface.write(checkpoint, tmp_path / "model")
    examples = [example for micro in micro_batches for example in micro]
    model, output = judged(case, tmp_path / "model", examples)
    output.loss.backward()
    gradient, mine = step_of(checkpoint.build(), case.task, micro_batches)
    assert gradient.loss == pytest.approx(output.loss.item(), rel=TOLERANCE)
    assert gradient.loss == pytest.approx(sum(gradient.parts), rel=1e-12)
    theirs = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    agree(as_saved(checkpoint, mine, tmp_path / "gradient"), theirs)


def test_a_step_with_nothing_to_guess_has_a_loss_of_zero_and_no_gradient(corpus, tiny):
    case = CASES["bert, words"]
    loader = PretrainLoader(corpus, tiny, case.options, batch_size=40, max_tokens=60, seed=2)
    empty = [e for (e,) in loader.rows_of(0) if not len(e.target.labels)]
    assert len(empty) > 1
    gradient, mine = step_of(drawn(case, tiny).build(), case.task, [empty[:1], empty[1:]])
    assert gradient.loss == 0.0
    assert all(float(tensor.abs().max()) == 0.0 for tensor in mine.values())


@pytest.mark.parametrize("max_tokens", [10_000, 60])
def test_replaced_tokens_have_the_loss_and_gradient_of_transformers_two_models(
    max_tokens,
    corpus,
    tiny,
    tmp_path,
    monkeypatch,
):
    # A sample that does not hang on the order of rows.
    monkeypatch.setattr(filbert.model.replaced, "sample", lambda logits: logits.argmax(-1))
    options = ObjectiveOptions(max_length=24, mask_style="electra")
    case = Case("electra", options, "")
    loader = PretrainLoader(corpus, tiny, options, batch_size=24, max_tokens=max_tokens, seed=2)
    micro_batches = loader.step(0)
    checkpoint = drawn(case, tiny, "discriminator")
    ours = replaced_model(checkpoint, share=0.5)
    with torch.no_grad():
        for parameter in ours.generator.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    large, small = split_replaced(checkpoint, ours.state_dict(), ours.generator.config)
    huggingface.write(large, tmp_path / "large")
    huggingface.write(small, tmp_path / "small")
    judge = transformers.ElectraForPreTraining.from_pretrained(tmp_path / "large").eval()
    generator = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "small").eval()
    tables = judge.electra.embeddings
    generator.electra.embeddings = tables
    generator.generator_lm_head.weight = tables.word_embeddings.weight
    inputs = padded([example for micro in micro_batches for example in micro])
    labels = inputs.pop("labels")
    masked = generator(**inputs, labels=labels)
    original = torch.where(labels >= 0, labels, inputs["input_ids"])
    corrupted = torch.where(labels >= 0, masked.logits.argmax(-1), original)
    is_replaced = (corrupted != original).long()
    assert 0 < int(is_replaced.sum()) < int((labels >= 0).sum())
    told = judge(**inputs | {"input_ids": corrupted}, labels=is_replaced)
    (masked.loss + 50 * told.loss).backward()
    gradient, mine = step_of(ours, ReplacedTokens(), micro_batches)
    assert gradient.parts[0] == pytest.approx(masked.loss.item(), rel=TOLERANCE)
    assert gradient.parts[1] == pytest.approx(50 * told.loss.item(), rel=TOLERANCE)
    large, small = split_replaced(checkpoint, mine, ours.generator.config)
    theirs = {n: p.grad for n, p in judge.named_parameters()}
    agree(as_saved(large, large.tensors, tmp_path / "gradient"), theirs)
    theirs = {n: p.grad for n, p in generator.named_parameters() if "embeddings." not in n}
    theirs.pop("generator_lm_head.weight", None)
    agree(as_saved(small, small.tensors, tmp_path / "small gradient"), theirs)


@pytest.mark.parametrize("name", CASES)
def test_held_out_figures_are_those_of_transformers_at_the_same_masks(name, corpus, tiny, tmp_path):
    case = CASES[name]
    examples = fixed_examples(corpus, tiny, case.options, limit=30)
    checkpoint = drawn(case, tiny)
    huggingface.write(checkpoint, tmp_path / "model")
    with torch.no_grad():
        _, output = judged(case, tmp_path / "model", examples)
    found = measure(checkpoint.build(), case.task, examples, max_tokens=100, precision=PLAIN)
    labels = padded(examples)["labels"]
    logits = output.logits if "logits" in output else output.prediction_logits
    logits = logits[labels >= 0]
    wanted = labels[labels >= 0]
    loss = torch.nn.functional.cross_entropy(logits, wanted)
    right = int((logits.argmax(-1) == wanted).sum())
    figures = {"mlm_loss": float(loss), "perplexity": math.exp(float(loss))}
    figures["mlm_accuracy"] = right / len(wanted)
    if case.pair_labels:
        scores = "seq_relationship_logits" if case.family == "bert" else "sop_logits"
        pairs = torch.tensor([example.target.pair for example in examples])
        kind = case.options.pair
        figures[f"{kind}_loss"] = float(torch.nn.functional.cross_entropy(output[scores], pairs))
        figures[f"{kind}_accuracy"] = float((output[scores].argmax(-1) == pairs).float().mean())
        assert 0 < figures[f"{kind}_accuracy"] < 1
    assert found == pytest.approx(figures, rel=TOLERANCE)
