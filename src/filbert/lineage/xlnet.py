"""Pre-trains an XLNet on raw text: filbert pretrain xlnet-small.

N rows of T tokens.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.data.documents import Document, read_documents
from filbert.errors import InputError
from filbert.files import replace_folder, write_json
from filbert.lineage.permutation import TwoStreams, draw_order, target_loss, unseen_keys
from filbert.lineage.pretraining import train_steps
from filbert.lineage.stored import read_options
from filbert.model.config import EncoderConfig
from filbert.model.cpu import float32_by_onednn
from filbert.model.encoder import Encoder, initialize
from filbert.text.learning import LearnOptions, learn
from filbert.text.tokenizer import Tokenizer
from filbert.text.vocabulary import bert_template
from filbert.train.log import RunLog
from filbert.train.pretrain_options import PretrainOptions

# Entries of a vocabulary that is learned; the paper has 32,000.
VOCABULARY = 8_000
_MOST_HELD_OUT = 500
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
_READ = (
    *_SIZES, "objective", "corpus", "tokenizer", "max_length", "dropout", "batch_size", "lr",
    "warmup", "epochs", "steps", "time", "out", "overwrite", "seed",
)  # fmt: skip


def pretrain(options: PretrainOptions) -> dict[str, Any]:
    """Train on raw text and write an XLNet folder, which `finetune` and other tools read.

    The folder also has metrics.jsonl, with the loss of each step, and run.json, which is returned.

    Raises:
        ConfigError: An option is not of this recipe.
        InputError: The text is too short, or the folder exists.
    """
    given = read_options(options, _READ)
    documents = list(read_documents(given["corpus"]))
    tokenizer = _tokenizer(documents, options)
    rows, is_special = _rows(documents, tokenizer, given["max_length"])
    held, size = min(_MOST_HELD_OUT, len(rows) // 20), given["batch_size"]
    if not held or len(rows) - held < size:
        raise InputError(
            f"The text has {len(rows):,} rows of {given['max_length']} tokens, too few for a batch "
            f"of {size} and a held-out part. Give more text, or a smaller --batch-size."
        )
    torch.manual_seed(options.run.seed)
    sizes = {name: given[name] for name in _SIZES if given[name] is not None}
    dropout = {"hidden_dropout": given["dropout"], "attention_dropout": given["dropout"]}
    constants = {**FAMILIES["xlnet"].constants, **dropout}
    config = EncoderConfig.of(vocab_size=tokenizer.vocab_size, pooler=None, **constants, **sizes)
    encoder = Encoder(config)
    initialize(encoder, config.initializer_range)
    model, draw = TwoStreams(encoder), random.Random(options.run.seed)
    steps = options.train.steps or round(len(rows) // size * (options.train.epochs or 1))
    with replace_folder(Path(options.run.out)) as folder:
        begun = time.monotonic()
        with RunLog(folder) as log, float32_by_onednn():
            batches = _losses(model, rows[held:], is_special, size, draw)
            steps = train_steps(model, batches, max(1, steps), options, log)
        cast("Tensor", encoder.embeddings.unseen).copy_(model.start.detach())
        facts = {
            "objective": "permutation",
            "steps": steps,
            "seconds": time.monotonic() - begun,
            "parameters": sum(weights.numel() for weights in model.parameters()),
            "rows": {"train": len(rows) - held, "dev": held},
            "metrics": {"dev": _measure(model, rows[:held], is_special)},
        }
        state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
        marks = {"pad_token_id": tokenizer.pad_id}
        checkpoint = Checkpoint(config, "xlnet", state, extra=marks)
        huggingface.write(checkpoint, folder)
        huggingface.write_tokenizer(tokenizer, checkpoint, folder)
        write_json(folder / "run.json", facts)
    return facts


def _tokenizer(documents: Sequence[Document], options: PretrainOptions) -> Tokenizer:
    """Read the named tokenizer, or learn unigram pieces; CLS is the last token of a text."""
    if options.data.tokenizer is not None:
        tokenizer = read_tokenizer(find_model(options.data.tokenizer))
    else:
        learned = learn(lambda: map(list, documents), LearnOptions(kind="unigram", size=VOCABULARY))
        tokenizer = learned.tokenizer
    vocabulary, convention = tokenizer.vocabulary, huggingface.CONVENTIONS["XLNetTokenizer"]
    backend = vocabulary.backend
    backend.post_processor = bert_template(backend, vocabulary.specials, convention)
    return Tokenizer(replace(vocabulary, convention=convention))


def _rows(
    documents: Sequence[Document], tokenizer: Tokenizer, length: int
) -> tuple[Tensor, list[bool]]:
    """Return rows of tokens, SEP and CLS, int64 (N, T), and which of their places are special."""
    lines = [line for document in documents for line in document]
    ids = [number for e in tokenizer.encode(lines) for number in e.input_ids.tolist()[:-2]]
    count = len(ids) // (length - 2)
    body = torch.tensor(ids[: count * (length - 2)], dtype=torch.int64).view(count, length - 2)
    marks = torch.tensor([[tokenizer.sep_id, tokenizer.cls_id]]).expand(count, 2)
    return torch.cat((body, marks), 1), [False] * (length - 2) + [True, True]


def _losses(
    model: TwoStreams, rows: Tensor, is_special: list[bool], size: int, draw: random.Random
) -> Iterator[tuple[Tensor, int]]:
    """Yield the mean loss of each batch and its number of targets, without end."""
    order: list[int] = []
    while True:
        order = order if len(order) >= size else draw.sample(range(len(rows)), len(rows))
        part, order = order[:size], order[size:]
        places = torch.tensor([draw_order(is_special, draw) for _ in part])
        # All rows have as many targets.
        targets = (places >= 0).nonzero()[:, 1].view(len(part), -1)
        ids = rows[part]
        yield target_loss(model(ids, unseen_keys(places), targets), ids, targets), targets.numel()


@torch.inference_mode()
def _measure(model: TwoStreams, rows: Tensor, is_special: list[bool]) -> dict[str, float]:
    """Return the loss of held-out rows in fixed orders, and its perplexity."""
    model.eval()
    size = min(16, len(rows))
    batches = _losses(model, rows, is_special, size, random.Random(0))
    losses = [float(next(batches)[0]) for _ in range(len(rows) // size)]
    loss = sum(losses) / len(losses)
    return {"loss": loss, "perplexity": math.exp(loss)}
