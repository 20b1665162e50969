"""The judge of pretrain_mlm.py: a BERT forward pass in plain torch, neither side's code.

n blocks, S their length, A heads, H hidden size, K masked tokens, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pretrain_data import HeldOut, chunks
from torch import Tensor
from torch.nn import functional as F

BLOCKS_AT_ONCE = 32
_ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


def hidden_states(tensors: Mapping[str, Tensor], config: Mapping[str, Any], ids: Tensor) -> Tensor:
    """The last hidden states of BERT, (n, S, H), without dropout.

    Args:
        tensors: float32, by Hugging Face's names.
        config: as config.json.
        ids: int64 (n, S), every sequence full; all token types are 0.

    Source: Devlin et al. 2019, section 3; Vaswani et al. 2017, section 3.
    """
    eps, act = config["layer_norm_eps"], _ACTIVATIONS[config["hidden_act"]]
    num_heads = config["num_attention_heads"]

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        return F.layer_norm(x, weight.shape, weight, bias, eps)

    tables = "bert.embeddings."
    x = tensors[tables + "word_embeddings.weight"][ids]
    x = x + tensors[tables + "position_embeddings.weight"][: ids.shape[1]]
    x = norm(tables + "LayerNorm", x + tensors[tables + "token_type_embeddings.weight"][0])
    for index in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{index}."
        q, k, v = (
            linear(f"{layer}attention.self.{name}", x)
            .unflatten(-1, (num_heads, -1))
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        shares = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        mixed = linear(layer + "attention.output.dense", (shares @ v).transpose(1, 2).flatten(2))
        x = norm(layer + "attention.output.LayerNorm", x + mixed)
        wide = act(linear(layer + "intermediate.dense", x))
        x = norm(layer + "output.LayerNorm", x + linear(layer + "output.dense", wide))
    return x


def masked_lm_logits(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], hidden: Tensor
) -> Tensor:
    """Scores over the vocabulary, (K, V), of hidden states (K, H); the word table is the output."""
    head = "cls.predictions."
    x = F.linear(
        hidden, tensors[head + "transform.dense.weight"], tensors[head + "transform.dense.bias"]
    )
    weight = tensors[head + "transform.LayerNorm.weight"]
    bias = tensors[head + "transform.LayerNorm.bias"]
    x = _ACTIVATIONS[config["hidden_act"]](x)
    x = F.layer_norm(x, weight.shape, weight, bias, config["layer_norm_eps"])
    return F.linear(x, tensors["bert.embeddings.word_embeddings.weight"], tensors[head + "bias"])


@torch.no_grad()
def judge(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], held_out: HeldOut
) -> dict[str, float]:
    """Mean cross-entropy ("loss", nats) and accuracy at the masked tokens of `held_out`."""
    # The random state belongs to whoever is being trained in this process; nothing is drawn here.
    tensors = {name: tensor.detach().float() for name, tensor in tensors.items()}
    loss, right = 0.0, 0
    for part in chunks(len(held_out.input_ids), BLOCKS_AT_ONCE):
        ids = torch.from_numpy(held_out.input_ids[part]).long()
        asked = (held_out.rows >= part.start) & (held_out.rows < part.stop)
        rows = torch.from_numpy(held_out.rows[asked] - part.start)
        columns = torch.from_numpy(held_out.columns[asked])
        labels = torch.from_numpy(held_out.labels[asked])
        hidden = hidden_states(tensors, config, ids)[rows, columns]
        logits = masked_lm_logits(tensors, config, hidden)
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        right += int((logits.argmax(-1) == labels).sum())
    count = len(held_out.labels)
    return {"loss": loss / count, "accuracy": right / count}


def judge_folder(folder: Path, sets: Mapping[str, HeldOut]) -> dict[str, dict[str, float]]:
    """The same of a model in Hugging Face's layout, on every held-out set."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {name: judge(tensors, config, held_out) for name, held_out in sets.items()}
