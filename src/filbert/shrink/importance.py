"""What each attention head is worth: by a gradient for all at once, or by taking one away.

L layers, A heads, D head size, H hidden size, T tokens, S sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from filbert.data.examples import Example, collate, rows_of
from filbert.data.loader import Loader
from filbert.errors import ConfigError
from filbert.model.encoder import Layer
from filbert.model.heads import Model
from filbert.predict import Predictor
from filbert.speed.execution import default_max_tokens
from filbert.tasks.base import Objective


def head_importance(
    model: Model, task: Objective, examples: Sequence[Example], *, max_tokens: int | None = None
) -> Tensor:
    """How much the loss would change with the head's share in it: E |dL / dm|, m its mask, at 1.

    The gradient is taken row by row (the windows or choices of a row together), its size is
    averaged over the rows. So a head that helps one row and harms another counts as important.

    Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4.1.

    Args:
        model: with the task's head.
        task: whose loss it is.
        examples: of whole rows, with targets.
        max_tokens: per packed batch.

    Returns:
        float64 (L, A) on the host, not normalised. Places of heads that a layer has lost to pruning
        hold NaN.

    Raises:
        ConfigError: the layers have no heads, or share them; or the loss of a row depends on the
            other rows of its batch.
    """
    layers = _layers(model)
    if task.whole_batch:
        raise ConfigError(
            "The importance of heads is measured row by row, but this model learnt from pairs "
            "without labels, whose loss compares the rows of a batch. Give pairs with scores."
        )
    model.eval()
    config = model.config
    total = torch.zeros(len(layers), config.num_attention_heads, dtype=torch.float64)
    for index, layer in enumerate(layers):
        total[index, layer.num_heads :] = torch.nan
    loader = Loader(
        examples,
        batch_size=max(1, len(examples)),
        max_tokens=max_tokens or default_max_tokens(model.device),
        shuffle=False,
    )
    for batch in loader.step(0) if examples else ():
        gradients = _mask_gradients(model, task, batch)
        for index, found_SA in enumerate(gradients):
            of_rows = torch.stack(
                [part.sum(0) for part in torch.split(found_SA, list(rows_of(batch)))]
            )
            total[index, : found_SA.shape[1]] += of_rows.abs().sum(0)
    return total / max(1, len(loader.rows))


def _mask_gradients(model: Model, task: Objective, examples: Sequence[Example]) -> list[Tensor]:
    """The gradient of the loss at a mask for every head and sequence: per layer (S, A)."""
    layers, batch = _layers(model), collate(examples).to(model.device)
    masks = [
        torch.ones(batch.num_sequences, layer.num_heads, device=model.device, requires_grad=True)
        for layer in layers
    ]

    def masking(mask_SA: Tensor, layer: Layer) -> Any:
        def hook(module: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
            (mixed,) = arguments
            heads = mixed.view(-1, layer.num_heads, layer.config.head_size)
            return ((heads * mask_SA[batch.sequence_ids].unsqueeze(-1)).flatten(1),)

        return layer.attention_out.register_forward_pre_hook(hook)

    handles = [masking(mask, layer) for mask, layer in zip(masks, layers, strict=True)]
    try:
        with torch.enable_grad():
            targets = task.targets(examples).to(model.device)
            arguments = (targets.at, targets.values) if targets.are_seen else (targets.at,)
            loss = task.loss(model(batch, *arguments), targets).sum()
            return [found.double().cpu() for found in torch.autograd.grad(loss, masks)]
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def masked_heads(model: Model, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """Within the block these heads, (layer, head) from 0, add nothing to their layers.

    The columns of `attention_out` that read a head are 0 meanwhile, so a pass costs what it always
    does; afterwards they are as before, bit for bit.

    Raises:
        ConfigError: the layers have no heads, or share them, or there is no such head.
    """
    layers = _layers(model)
    for layer, head in heads:
        if not 0 <= layer < len(layers) or not 0 <= head < layers[layer].num_heads:
            raise ConfigError(f"There is no head {head} in layer {layer} of this model.")
    size = model.config.head_size
    touched = sorted({layer for layer, _ in heads})
    before = {i: layers[i].attention_out.weight.detach().clone() for i in touched}
    try:
        with torch.no_grad():
            for layer, head in heads:
                columns = slice(head * size, (head + 1) * size)
                layers[layer].attention_out.weight[:, columns] = 0.0
        yield
    finally:
        with torch.no_grad():
            for layer, weight in before.items():
                layers[layer].attention_out.weight.copy_(weight)


def metrics_without(
    predictor: Predictor, gold: Sequence[Any], examples: Sequence[Example]
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The metrics with every head masked alone: layer, head, metrics; L * A passes over the rows.

    Args:
        predictor: with a task and a model of torch's.
        gold: the wanted answers, by row.
        examples: of the rows.
    """
    model, task = predictor.model, predictor.known_task()
    assert isinstance(model, Model)
    for index, layer in enumerate(_layers(model)):
        for head in range(layer.num_heads):
            with masked_heads(model, [(index, head)]):
                yield index, head, task.metrics(gold, predictor.answers(examples))


def _layers(model: Model) -> list[Layer]:
    """The layers of an encoder, each with heads of its own."""
    encoder = model.encoder
    if encoder.config.num_groups < encoder.config.num_hidden_layers:
        raise ConfigError(
            "This model's layers share their weights, so a head belongs to several of them. "
            "Take a model whose layers have their own."
        )
    layers = list(encoder.layers)
    if not all(isinstance(layer, Layer) and isinstance(layer.attention_out, nn.Linear)
               for layer in layers):  # fmt: skip
        raise ConfigError("Heads of an int8 model cannot be masked; load it in float32.")
    return layers  # type: ignore[return-value]
