"""The Transformer of 2017 next to torch.nn.Transformer: same start, same batches, BLEU of both.

    python benchmarks/against/translation.py PAIRS.tsv [--seeds 3] [--epochs 20] [--record]

Both sides start from the same weights, see the same batches at the same rates and are searched by
the same beam search. Only the modules, and what their dropout draws, are different. torch's own
dropout on attention probabilities and within the feed-forward network, which the paper does not
have, is off. Needs sacrebleu.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from filbert.batch import PackedBatch
from filbert.lineage import translation
from filbert.lineage.transformer import Transformer, is_token, padded
from filbert.recipes import read_recipe, recipe_path
from filbert.train.log import RunLog
from filbert.train.options import keys_of_tables
from filbert.train.pretrain_options import PretrainOptions

RESULTS = Path(__file__).parents[1] / "results" / "translation.jsonl"


class TorchTransformer(nn.Module):
    """torch.nn.Transformer of the same shape, with the embeddings of section 3.4 and 3.5."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        config, tables = model.encoder.config, model.encoder.embeddings
        self.layers = nn.Transformer(
            config.hidden_size,
            config.attention.heads,
            config.num_hidden_layers,
            config.num_hidden_layers,
            config.feed_forward.width,
            config.dropout.hidden,
            activation="relu",
            layer_norm_eps=1e-6,
            batch_first=True,
            norm_first=False,
        )
        # The paper has no norm after the last layer.
        self.layers.encoder.norm = self.layers.decoder.norm = None
        self.layers.encoder.use_nested_tensor = False
        for layer in (*self.layers.encoder.layers, *self.layers.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0
        for layer in self.layers.decoder.layers:
            layer.multihead_attn.dropout = 0.0
        self.word = nn.Parameter(tables.word.weight.detach().clone())
        self.register_buffer("position", tables.position.weight.detach().clone())
        with torch.no_grad():
            for ours, theirs in shared_weights(model, self):
                theirs.copy_(ours)

    def embed(self, batch: PackedBatch) -> Tensor:
        ids = padded(batch.input_ids, batch)
        rows = nn.functional.embedding(ids, self.word) * self.word.shape[1] ** 0.5
        rows = rows + self.position[: ids.shape[1]]
        return nn.functional.dropout(rows, self.layers.encoder.layers[0].dropout1.p, self.training)

    def forward(self, source: PackedBatch, target: PackedBatch) -> Tensor:
        unseen = nn.Transformer.generate_square_subsequent_mask(target.max_seqlen) < 0
        padding = ~is_token(source)
        hidden = self.layers(
            self.embed(source),
            self.embed(target),
            tgt_mask=unseen,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return hidden[is_token(target)] @ self.word.T


def shared_weights(model: Transformer, other: TorchTransformer) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of parameters, or parts of them, that mean the same."""
    yield model.encoder.embeddings.word.weight, other.word
    decoders = zip(model.decoder, other.layers.decoder.layers, strict=True)
    encoders = zip(model.encoder.layers, other.layers.encoder.layers, strict=True)
    modules: list[tuple[nn.Module, nn.Module]] = []
    for ours, theirs in (*encoders, *decoders):
        yield ours.qkv.weight, theirs.self_attn.in_proj_weight
        yield ours.qkv.bias, theirs.self_attn.in_proj_bias
        modules += [
            (ours.attention_out, theirs.self_attn.out_proj),
            (ours.attention_norm, theirs.norm1),
            (ours.up, theirs.linear1),
            (ours.down, theirs.linear2),
            (ours.norm, theirs.norm3 if hasattr(theirs, "norm3") else theirs.norm2),
        ]
    for ours, theirs in zip(model.decoder, other.layers.decoder.layers, strict=True):
        cross, width = theirs.multihead_attn, other.word.shape[1]
        for name in ("weight", "bias"):
            joined = getattr(cross, f"in_proj_{name}")
            yield getattr(ours.cross.query, name), joined[:width]
            yield getattr(ours.cross.key_value, name), joined[width:]
        modules += [(ours.cross.out, cross.out_proj), (ours.cross_norm, theirs.norm2)]
    for one, two in modules:
        yield from zip(one.parameters(), two.parameters(), strict=True)


def run(side: str, options: PretrainOptions) -> dict[str, object]:
    """Train one side and measure it."""
    from sacrebleu.metrics import BLEU

    train, dev = translation.splits(options)
    translator = translation.new_translator(train, options)
    model, other = translator.model, TorchTransformer(translator.model)
    trained = model if side == "filbert" else other
    rows = translation.encode_pairs(translator, train)
    begun = time.perf_counter()
    with RunLog(None) as log:
        steps = translation.train_model(trained, rows, options, log)
    seconds = time.perf_counter() - begun
    if side == "torch":
        with torch.no_grad():
            for ours, theirs in shared_weights(model, other):
                ours.copy_(theirs)
    metrics = translation.measure(translator, dev)
    texts = translator.translate([source for source, _ in dev])
    score = BLEU().corpus_score(texts, [[target for _, target in dev]], n_bootstrap=1000)
    return {
        "side": side,
        "seed": options.run.seed,
        "steps": steps,
        "seconds": round(seconds, 1),
        "pairs": [len(train), len(dev)],
        **metrics,
        "bleu_mean": score._mean,
        "bleu_interval": score._ci,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", help="table with texts and translations in two columns")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--record", action="store_true", help=f"append to {RESULTS.name}")
    given = parser.parse_args()
    torch.set_num_threads(1)
    recipe = read_recipe(recipe_path("transformer-small", "pretrain"))
    recipe = keys_of_tables(recipe, PretrainOptions)[0]
    for seed in range(1, given.seeds + 1):
        for side in ("filbert", "torch"):
            flags = {"corpus": given.pairs, "out": "none", "seed": seed}
            flags |= {} if given.epochs is None else {"epochs": given.epochs}
            result = run(side, PretrainOptions.from_keywords(recipe | flags))
            result |= {"torch": torch.__version__, "machine": platform.machine()}
            print(json.dumps(result), flush=True)
            if given.record:
                with RESULTS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
