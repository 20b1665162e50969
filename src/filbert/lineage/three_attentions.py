"""The attention page of a Transformer of 2017, with its three kinds of attention.

L layers, A heads, D head size, m tokens of the source, N of source and target.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from filbert.batch import pack
from filbert.inspect.attention import View, attention_and_vectors, readable_tokens, words_of
from filbert.inspect.page import Inspection
from filbert.lineage.transformer import Memory, Translator
from filbert.model.attention import AttentionPlan
from filbert.model.cpu import dense


@torch.inference_mode()
def inspect(translator: Translator, source: str, target: str | None = None) -> Inspection:
    """Show what the tokens of a source and of its translation attend to.

    The page has 3 L layers: those of the encoder, then the causal attention of the decoder within
    the target, then its attention to the source. Rows of the other text are zeros. The translator,
    see `filbert.lineage.transformer.load`, is on the CPU. If no target is given, it translates.
    """
    model, tokenizer = translator.model.eval(), translator.tokenizer
    texts = (source, translator.translate([source])[0] if target is None else target)
    (encoding,) = tokenizer.encode([texts], with_offsets=True)
    assert encoding.sequence is not None
    # <s> source </s> </s> target </s>: the encoder reads no start, and the decoder no end. The
    # second </s> is replaced by the start of the target.
    ids, size = encoding.input_ids.tolist(), int((encoding.sequence == 0).sum()) + 1
    first, second = pack([ids[1 : size + 1]]), pack([[ids[0], *ids[size + 2 : -1]]])
    before, after = slice(size), slice(size, len(ids) - 2)
    (vectors,) = attention_and_vectors(model, first)[1]  # type: ignore[arg-type]
    encoder = [(before, before, query, key) for query, key in vectors]
    own, cross = [], []
    memory, plan = Memory(model.encoder(first), first), AttentionPlan(second, causal=True)
    hidden = model.encoder.embeddings(second)
    for layer in model.layers:
        qkv = layer.heads(dense(hidden, layer.qkv)).transpose(0, 2)
        own.append((after, after, qkv[:, 0], qkv[:, 1]))
        operands = layer.cross.operands(layer.attended(hidden, plan), memory)
        query, key, _ = (part.transpose(0, 1) for part in operands)
        cross.append((after, before, query, key))
        hidden = layer(hidden, plan, memory)
    return Inspection((_view(encoding, texts, translator, [*encoder, *own, *cross]),))


def _view(
    encoding: Any,
    texts: tuple[str, str],
    translator: Translator,
    blocks: list[tuple[slice, slice, Tensor, Tensor]],
) -> View:
    """Compute the maps of layers from rows, columns, queries and keys (A, rows or columns, D)."""
    heads, _, width = blocks[0][2].shape
    total = len(encoding.input_ids) - 2
    maps = torch.zeros(len(blocks), heads, total, total)
    vectors = torch.zeros(len(blocks), 2, heads, total, width)
    for number, (rows, columns, query, key) in enumerate(blocks):
        scores = query @ key.mT / width**0.5
        if rows.start is not None and rows == columns:  # the target itself
            scores += torch.full(scores.shape[1:], -torch.inf).triu(1)
        maps[number, :, rows, columns] = scores.softmax(-1)
        vectors[number, 0, :, rows], vectors[number, 1, :, columns] = query, key
    words = words_of(encoding, texts, translator.tokenizer)[1:-1]
    tokens = readable_tokens(encoding, texts, translator.tokenizer)[1:-1]
    names = [word.text for word in words]
    start = blocks[0][0].stop
    units = np.repeat(np.arange(len(words)), [len(word.rows) for word in words])
    tokens[start] = names[units[start]] = translator.tokenizer.tokens(encoding.input_ids[:1])[0]
    return View(
        model=f"layers from 0: encoder, from {len(blocks) // 3}: decoder, "
        f"from {len(blocks) // 3 * 2}: decoder to source",
        texts=texts,
        tokens=tuple(tokens),
        sequence=encoding.sequence[1:-1],
        units=units,
        words=tuple(names),
        maps=maps.numpy(),
        is_pruned=np.zeros(maps.shape[:2], bool),
        queries_keys=vectors.numpy(),
        num_tokens=total,
    )
