"""Pre-trains ELMo and the language model of ULMFiT: filbert pretrain elmo-small, ulmfit-small.

S texts in a batch, T words of each, V words of the vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.data.documents import read_documents
from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import check_target, read_json, replace_folder, write_json
from filbert.lineage import words as reading
from filbert.lineage.elmo import Elmo, ElmoConfig, characters, read_allennlp
from filbert.lineage.ulmfit import AwdLstm, AwdLstmConfig
from filbert.model.cpu import float32_by_onednn
from filbert.train.log import RunLog
from filbert.train.options import flat
from filbert.train.pretrain_options import PretrainOptions

VOCABULARY, MIN_COUNT = 10_000, 2
# Words of a row of a batch.
LENGTH = 32
# Share of the text's end that is measured and not trained on; at most so many words.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 50_000
_FACTS, _TENSORS = "lineage.json", "model.safetensors"
_CLIP = 1.0
_READ = (
    "objective", "corpus", "hidden_size", "intermediate_size", "num_hidden_layers", "dropout",
    "batch_size", "lr", "warmup", "epochs", "steps", "time", "out", "overwrite", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Words:
    """The words of a text in order, and what they are.

    Attributes:
        listed: The vocabulary, in lower case.
        ids: Of each word in the vocabulary, int64 (N,).
        forms: All different words as written.
        places: Of each word among them, int64 (N,).
    """

    listed: list[str]
    ids: Tensor
    forms: list[str]
    places: Tensor

    @classmethod
    def read(cls, paths: Sequence[str]) -> Words:
        """Read the words of text files."""
        texts = ["\n".join(lines) for lines in read_documents(paths)]
        listed = reading.frequent_words(texts, most=VOCABULARY, min_count=MIN_COUNT)
        written = [word for text in texts for word in reading.split_words(text)]
        rows = {word: at for at, word in enumerate(listed)}
        ids = torch.tensor([rows.get(word.lower(), reading.UNKNOWN) for word in written])
        forms = sorted(set(written))
        at = {word: row for row, word in enumerate(forms)}
        return cls(listed, ids, forms, torch.tensor([at[word] for word in written]))

    def part(self, words: slice) -> Words:
        """Return some of the words."""
        return replace(self, ids=self.ids[words], places=self.places[words])

    @cached_property
    def letters(self) -> Tensor:
        """Character ids of the different words, int64 (forms, C)."""
        return torch.from_numpy(np.stack([characters([form])[1] for form in self.forms]))


class ElmoPretraining(nn.Module):
    """ELMo with one output for both directions, which scores the word after and the word before."""

    def __init__(self, elmo: Elmo, vocab_size: int) -> None:
        super().__init__()
        self.elmo, self.out = elmo, nn.Linear(elmo.config.width, vocab_size)

    def loss(self, letters_STC: Tensor, ids_ST: Tensor) -> Tensor:
        """Return the mean of both directions' cross-entropies: Peters et al. 2018, section 3.1."""
        lengths_S = torch.full((len(ids_ST),), ids_ST.shape[1])
        ahead, behind = self.elmo(letters_STC, lengths_S)[-1].chunk(2, -1)
        after = F.cross_entropy(self.out(ahead[:, :-1]).mT, ids_ST[:, 1:])
        before = F.cross_entropy(self.out(behind[:, 1:]).mT, ids_ST[:, :-1])
        return (after + before) / 2


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Train on raw text and write a folder that a contestant of `compare` starts from.

    The folder also has metrics.jsonl, with the loss of each step, and run.json.

    Returns:
        The content of run.json.

    Raises:
        ConfigError: An option is not of this recipe.
        InputError: The text is too short, or the folder exists.
    """
    given, usual, out = flat(options), flat(PretrainOptions()), Path(options.run.out)
    for name in sorted({*given} - {*_READ}):
        if given[name] != usual[name]:
            raise ConfigError(f"{name} is not an option of this recipe. Leave it out.")
    marker = check_target(
        out, Path(given["corpus"][0]), overwrite=options.run.overwrite, markers=(_FACTS,)
    )
    text = Words.read(given["corpus"])
    count = len(text.ids)
    held = min(_MOST_HELD_OUT, int(count * _HELD_OUT))
    if _steps(held, 1) < 1 or _steps(count - held, given["batch_size"]) < 1:
        raise InputError(
            f"The text has {count:,} words, too few for a batch of {given['batch_size']} rows and "
            "a held-out part. Give more text, or a smaller --batch-size."
        )
    torch.manual_seed(options.run.seed)
    model = _new_model(options, text.listed)
    with replace_folder(out, marker=marker) as folder:
        begun = time.monotonic()
        with RunLog(folder) as log, float32_by_onednn():
            steps = _train(model, text.part(slice(count - held)), options, log)
        facts = {
            "objective": options.model.objective,
            "steps": steps,
            "seconds": time.monotonic() - begun,
            "parameters": sum(p.numel() for p in model.parameters()),
            "words": {"train": count - held, "dev": held, "vocabulary": len(text.listed)},
            "metrics": {"dev": _measure(model, text.part(slice(count - held, None)))},
        }
        save(model, text.listed, folder)
        write_json(folder / "run.json", facts)
    return facts


def _new_model(options: PretrainOptions, listed: list[str]) -> ElmoPretraining | AwdLstm:
    given = options.model
    named: dict[str, Any] = {
        "width": given.hidden_size,
        "cells": given.intermediate_size,
        "layers": given.num_hidden_layers,
    }
    sizes = {name: value for name, value in named.items() if value is not None}
    if given.objective == "elmo":
        return ElmoPretraining(Elmo(ElmoConfig(**sizes)), len(listed))
    return AwdLstm(AwdLstmConfig(vocab_size=len(listed), **sizes))


def _losses(
    model: ElmoPretraining | AwdLstm, text: Words, size: int
) -> Iterator[tuple[Tensor, int]]:
    """Yield the mean loss of each batch and its number of predictions.

    A row of a batch continues that row of the last batch, so that a state can go on.
    """
    steps = _steps(len(text.ids), size)
    ids, places = (
        words[: size * (steps * LENGTH + 1)].view(size, -1) for words in (text.ids, text.places)
    )
    state = None
    for first in range(0, steps * LENGTH, LENGTH):
        part = slice(first, first + LENGTH)
        if isinstance(model, ElmoPretraining):
            loss = model.loss(text.letters[places[:, part]], ids[:, part])
            yield loss, size * 2 * (LENGTH - 1)
        else:
            states, state = model(ids[:, part], state)
            after = ids[:, first + 1 : first + LENGTH + 1]
            yield F.cross_entropy(model.logits(states).mT, after), size * LENGTH


def _steps(num_words: int, size: int) -> int:
    return (num_words // size - 1) // LENGTH


def _train(
    model: ElmoPretraining | AwdLstm, text: Words, options: PretrainOptions, log: RunLog
) -> int:
    """Train with Adam, a warm-up and a linear fall, and return the number of steps."""
    chosen, begun = options.train, time.monotonic()
    size, seconds = chosen.batch_size or 32, chosen.time_seconds
    steps = chosen.steps or max(1, round(_steps(len(text.ids), size) * (chosen.epochs or 1)))
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.99))
    log.start(seconds or steps, in_seconds=seconds is not None)
    model.train()
    step, done, losses = 0, 0.0, _losses(model, text, size)
    while done < 1:
        step, before = step + 1, time.monotonic()
        if (found := next(losses, None)) is None:
            losses = _losses(model, text, size)
            found = next(losses)
        loss, count = found
        rate = (chosen.lr or 1e-3) * min(done / chosen.warmup if chosen.warmup else 1.0, 1 - done)
        adam.param_groups[0]["lr"] = rate
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        adam.step()
        adam.zero_grad()
        elapsed = time.monotonic() - begun
        speed = count / (time.monotonic() - before)
        done = step / steps if seconds is None else elapsed / seconds
        passed = step if seconds is None else min(elapsed, seconds)
        log.step(passed, step=step, loss=float(loss.detach()), lr=rate, tokens_per_second=speed)
    return step


@torch.inference_mode()
def _measure(model: ElmoPretraining | AwdLstm, text: Words) -> dict[str, float]:
    """Return loss and perplexity of held-out text."""
    model.eval()
    losses = [(float(loss), count) for loss, count in _losses(model, text, 1)]
    loss = sum(one * count for one, count in losses) / sum(count for _, count in losses)
    return {"loss": loss, "perplexity": math.exp(loss)}


def save(model: ElmoPretraining | AwdLstm, listed: list[str], folder: Path) -> None:
    """Write the folder; of ELMo without the output, which only pre-training needs."""
    kept = model.elmo if isinstance(model, ElmoPretraining) else model
    kind = "elmo" if isinstance(kept, Elmo) else "ulmfit"
    facts = {"kind": kind, "config": asdict(kept.config)}
    facts |= {} if kind == "elmo" else {"words": listed}
    write_json(folder / _FACTS, facts)
    save_file(kept.state_dict(), folder / _TENSORS)


def load(folder: Path, kind: str) -> tuple[Elmo | AwdLstm, list[str]]:
    """Read a pre-trained model and its words; of ELMo also AllenNLP's weights, *.hdf5 and *.json.

    Raises:
        InputError, FormatError: The folder is missing, of the other kind or damaged.
    """
    published = sorted(folder.glob("*.hdf5"))
    if kind == "elmo" and published:
        options = sorted(folder.glob("*options.json"))
        if not options:
            raise InputError(f"{folder} has no options.json next to {published[0].name}.")
        return read_allennlp(published[0], read_json(options[0])), []
    if not (folder / _FACTS).is_file():
        recipe = f"{kind}-small"
        raise InputError(
            f"{folder} has no {_FACTS}. Make it with: filbert pretrain {recipe} --corpus FILE "
            f"--out {folder}"
        )
    facts = read_json(folder / _FACTS)
    if facts.get("kind") != kind:
        raise FormatError(f"{folder} is of the kind {facts.get('kind')}, not {kind}.")
    model: Elmo | AwdLstm
    if kind == "elmo":
        filters = tuple(tuple(pair) for pair in facts["config"].pop("filters"))
        model = Elmo(ElmoConfig(**facts["config"], filters=filters))
    else:
        model = AwdLstm(AwdLstmConfig(**facts["config"]))
    model.load_state_dict(load_file(folder / _TENSORS))
    return model.eval(), facts.get("words", [])
