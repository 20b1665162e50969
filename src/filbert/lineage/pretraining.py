"""Pre-trains ELMo and the language model of ULMFiT: filbert pretrain elmo-small, ulmfit-small.

Contestants of a comparison start from the folders that it writes, which `load` reads.

S texts in a batch, T words of each, V words of the vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.data.documents import read_documents
from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import check_target, read_json, replace_folder, write_json
from filbert.lineage import words as reading
from filbert.lineage.elmo import Elmo, ElmoConfig, characters, read_allennlp
from filbert.lineage.ulmfit import AwdLstm, AwdLstmConfig, slanted_rates
from filbert.model.cpu import float32_by_onednn
from filbert.train.log import RunLog
from filbert.train.options import flat
from filbert.train.pretrain_options import PretrainOptions

FACTS, _TENSORS = "lineage.json", "model.safetensors"
VOCABULARY, MIN_COUNT = 10_000, 2
# Words of a row of a batch.
LENGTH = 32
# Share of the text's end that is measured and not trained on; at most so many words.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 50_000
_CLIP, _BETAS = 1.0, (0.9, 0.99)
_READ = (
    "objective", "corpus", "hidden_size", "intermediate_size", "num_hidden_layers", "batch_size",
    "lr", "warmup", "epochs", "steps", "time", "out", "overwrite", "seed",
)  # fmt: skip


class ElmoPretraining(nn.Module):
    """ELMo with one output for both directions, which scores the word after and the word before.

    Rare words are scored by narrower outputs, in a thirteenth of the time (the authors sample).
    """

    def __init__(self, elmo: Elmo, vocab_size: int) -> None:
        super().__init__()
        cutoffs = sorted({1 + vocab_size // 10, 1 + vocab_size // 3})
        self.elmo = elmo
        self.out = nn.AdaptiveLogSoftmaxWithLoss(elmo.config.width, vocab_size, cutoffs, 2.0, True)

    def losses(self, letters_STC: Tensor, ids_ST: Tensor) -> Tensor:
        """Return the cross-entropies of words after and words before, (2,): section 3.1.

        Rows get the marks of a text's begin and end, which have no words of their own.
        """
        begin, end = torch.from_numpy(characters([])).expand(len(ids_ST), 2, -1).chunk(2, 1)
        lengths_S = torch.full((len(ids_ST),), ids_ST.shape[1] + 2)
        layers = self.elmo(torch.cat((begin, letters_STC, end), 1), lengths_S)
        ahead, behind = layers[-1].chunk(2, -1)
        after = self.out(ahead[:, :-2].flatten(0, 1), ids_ST.flatten())
        before = self.out(behind[:, 2:].flatten(0, 1), ids_ST.flatten())
        return torch.stack((after.loss, before.loss))


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Train on raw text and write a folder that a contestant of `compare` starts from.

    Returns the content of its run.json; metrics.jsonl has the loss of each step.
    """
    given = read_options(options, _READ)
    texts = ["\n".join(lines) for lines in read_documents(given["corpus"])]
    listed = reading.frequent_words(texts, most=VOCABULARY, min_count=MIN_COUNT)
    text = reading.RunningText.of(texts, listed)
    count = len(text.ids)
    held = min(_MOST_HELD_OUT, int(count * _HELD_OUT))
    size = given["batch_size"] or 32
    if _steps(held, 1) < 1 or _steps(count - held, size) < 1:
        raise InputError(
            f"The text has {count:,} words, too few for a batch of {size} rows and "
            "a held-out part. Give more text, or a smaller --batch-size."
        )
    torch.manual_seed(options.run.seed)
    model = _new_model(options, listed)
    with replace_folder(Path(options.run.out), marker=FACTS) as folder:
        batches = _repeated(model, text.part(slice(count - held)), size)
        per_epoch = _steps(count - held, size)
        facts = train_steps(model, batches, options, folder, per_epoch=per_epoch)
        read = facts["steps"] * size * LENGTH
        facts |= {
            "words": {"train": count - held, "dev": held, "read": read},
            "vocabulary": len(listed),
            "metrics": {"dev": _measure(model, text.part(slice(count - held, None)))},
        }
        trained = model.elmo if isinstance(model, ElmoPretraining) else model
        save(trained, listed, folder)
        write_json(folder / "run.json", facts)
    return facts


def _new_model(options: PretrainOptions, listed: list[str]) -> ElmoPretraining | AwdLstm:
    given = options.model
    names = {"width": given.hidden_size, "cells": given.intermediate_size}
    names |= {"layers": given.num_hidden_layers}
    sizes: dict[str, Any] = {name: size for name, size in names.items() if size is not None}
    if given.objective == "elmo":
        return ElmoPretraining(Elmo(ElmoConfig(**sizes)), len(listed))
    return AwdLstm(AwdLstmConfig(vocab_size=len(listed), **sizes))


def _losses(
    model: ElmoPretraining | AwdLstm, text: reading.RunningText, size: int
) -> Iterator[Tensor]:
    """Yield the mean losses of each batch, one a direction.

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
            yield model.losses(text.letters[places[:, part]], ids[:, part])
        else:
            states, state = model(ids[:, part], state)
            after = ids[:, first + 1 : first + LENGTH + 1]
            loss = F.cross_entropy(model.logits(states).flatten(0, 1), after.flatten())
            yield loss[None]


def _repeated(
    model: ElmoPretraining | AwdLstm, text: reading.RunningText, size: int
) -> Iterator[tuple[Tensor, int]]:
    parts = chain.from_iterable(_losses(model, text, size) for _ in repeat(None))
    return ((losses, size * LENGTH) for losses in parts)


def _steps(num_words: int, size: int) -> int:
    return (num_words // size - 1) // LENGTH


def _num_rows(num_words: int, most: int) -> int:
    """Return how many rows of at least one step few words are divided into."""
    return max(1, min(most, num_words // (2 * LENGTH)))


def _descend(
    model: nn.Module,
    batches: Iterator[tuple[Tensor, int]],
    groups: list[list[nn.Parameter]],
    rates: Callable[[int], list[float]],
) -> Iterator[tuple[float, int]]:
    """Take a step for each batch at the groups' `rates`; yield loss and number of predictions."""
    adam = torch.optim.Adam([{"params": group} for group in groups], betas=_BETAS)
    model.train()
    for step, (losses, count) in enumerate(batches):
        for group, rate in zip(adam.param_groups, rates(step), strict=True):
            group["lr"] = rate
        losses.mean().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        adam.step()
        adam.zero_grad()
        yield float(losses.detach().mean()), count


def train_steps(
    model: nn.Module,
    batches: Iterator[tuple[Tensor, int]],
    options: PretrainOptions,
    folder: Path,
    *,
    per_epoch: int,
) -> dict[str, Any]:
    """Train with a warm-up and a linear fall, log in a folder, and return facts for its run.json.

    `batches` are losses, which are averaged, and the number of predictions; without end. The steps
    of an epoch, `per_epoch`, count unless the options have steps or a time.
    """
    chosen, begun, total = options.train, time.monotonic(), 0
    seconds = chosen.time_seconds
    steps = max(1, chosen.steps or round(per_epoch * (chosen.epochs or 1)))

    def done(step: int) -> float:
        return step / steps if seconds is None else (time.monotonic() - begun) / seconds

    def rates(step: int) -> list[float]:
        part = min(1.0, done(step))
        rise = part / chosen.warmup if chosen.warmup else 1.0
        return [(chosen.lr or 1e-3) * min(rise, 1 - part)]

    descent = _descend(model, batches, [list(model.parameters())], rates)
    with RunLog(folder) as log, float32_by_onednn():
        log.start(seconds or steps, in_seconds=seconds is not None)
        for step, (loss, count) in enumerate(descent, 1):
            total, elapsed = total + count, time.monotonic() - begun
            passed, lr = step if seconds is None else min(elapsed, seconds), rates(step)[0]
            log.step(passed, step=step, loss=loss, lr=lr, tokens_per_second=total / elapsed)
            if done(step) >= 1:
                break
    return {
        "objective": options.model.objective,
        "steps": step,
        "seconds": time.monotonic() - begun,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def adapt(model: AwdLstm, texts: Sequence[str], listed: list[str], options: dict[str, Any]) -> None:
    """Train a language model on the texts of a task: Howard and Ruder 2018, section 3.2.

    `listed` are the words of the model's table, `options` those of `recipe.NetworkOptions`.
    """
    text, groups = reading.RunningText.of(texts, listed), model.groups()
    rows = _num_rows(len(text.ids), options["batch_size"])
    steps = round(options["epochs"] * _steps(len(text.ids), rows))

    def rates(step: int) -> list[float]:
        shares = slanted_rates((step + 1) / steps, len(groups))
        return [share * options["lr"] for share in shares]

    for _ in islice(_descend(model, _repeated(model, text, rows), groups, rates), steps):
        pass


@torch.inference_mode()
def _measure(model: ElmoPretraining | AwdLstm, text: reading.RunningText) -> dict[str, float]:
    """Return loss and perplexity of held-out text, of ELMo also those of each direction."""
    model.eval()
    rows = _num_rows(len(text.ids), 16)
    losses = torch.stack(list(_losses(model, text, rows))).mean(0)
    named = {"loss": float(losses.mean())}
    if len(losses) == 2:
        named |= {"loss_forward": float(losses[0]), "loss_backward": float(losses[1])}
    exact = {name.replace("loss", "perplexity"): math.exp(loss) for name, loss in named.items()}
    return named | exact


# Folders


def read_options(options: PretrainOptions, known: Collection[str]) -> dict[str, Any]:
    """Return the options by flat name; the training reads those named `known`.

    Raises:
        ConfigError: Another option is set.
        InputError: The folder exists and is not to be replaced.
    """
    given, usual = flat(options), flat(PretrainOptions())
    for name in sorted({*given} - {*known}):
        if given[name] != usual[name]:
            raise ConfigError(f"{name} is not an option of this recipe. Leave it out.")
    out, source = Path(options.run.out), Path(given["corpus"][0])
    check_target(out, source, overwrite=options.run.overwrite)
    return given


def save(model: Elmo | AwdLstm, listed: list[str], folder: Path) -> None:
    """Write the folder; `listed` are the words of a language model's table."""
    facts = {"kind": "ulmfit", "config": asdict(model.config), "words": listed}
    if isinstance(model, Elmo):
        facts = {"kind": "elmo", "config": asdict(model.config)}
    write_json(folder / FACTS, facts)
    save_file(model.state_dict(), folder / _TENSORS)


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
    if not (folder / FACTS).is_file():
        command = f"filbert pretrain {kind}-small --corpus FILE --out {folder}"
        raise InputError(f"{folder} has no {FACTS}. Make it with: {command}")
    facts = read_json(folder / FACTS)
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
