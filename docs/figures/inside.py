"""What happens inside the encoder: embeddings, attention, heads, residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from drawing import (
    BLUE,
    GREEN,
    ORANGE,
    SENTENCE,
    VERMILLION,
    Drawn,
    frame,
    heat,
    mini,
    new,
    percent,
    plain,
    read,
    scale,
    title,
)

from filbert.inspect.attention import attention_maps
from filbert.model.encoder import traced
from filbert.report.plots import INK, QUIET, quieten

PAIR = ("She opened the door.", "It was dark outside.")
SHOWN = 32  # of 384 columns, so that single numbers can be seen
LAYER, HEAD = 4, 5  # counted from 0: the head whose "it" attends most to "cat"


def embeddings() -> Drawn:
    """Three vectors a token, their sum, and the sum after LayerNorm."""
    batch, tokens = read(PAIR)
    part = mini().model.encoder.embeddings
    with torch.inference_mode():
        word = part.word(batch.input_ids)
        position = part.position(batch.position_ids)
        kind = part.token_type(batch.token_type_ids)
        normed = part.normed(batch)
    total = word + position + kind
    assert torch.allclose(part.norm(total), normed, atol=1e-6)
    figure = new(3.4)
    panels = figure.subplots(1, 5, sharey=True)
    most = float(total[:, :SHOWN].abs().max())
    parts = {
        "word": word,
        "+ position": position,
        "+ token type": kind,
        "= sum": total,
        "→ LayerNorm": normed,
    }
    for axes, (name, values) in zip(panels, parts.items(), strict=True):
        top = None if name.startswith("→") else most
        heat(axes, values[:, :SHOWN].numpy(), rows=tokens, most=top, signed=True)
        title(axes, name)
        length = float(values.norm(dim=1).mean())
        axes.set_xlabel(f"mean length {length:.2f}", fontsize=8, color=QUIET)
    lengths = {n: f"{float(v.norm(dim=1).mean()):.2f}" for n, v in parts.items()}
    return figure, {
        "length of a word vector": lengths["word"],
        "length of a position vector": lengths["+ position"],
        "length of a token type vector": lengths["+ token type"],
        "length after LayerNorm": lengths["→ LayerNorm"],
    }


def positions() -> Drawn:
    """The similarity of the rows of the position table."""
    table = mini().model.encoder.embeddings.position.weight.detach()[:128]
    unit = torch.nn.functional.normalize(table, dim=1)
    cosines = (unit @ unit.T).numpy()
    figure = new(2.9)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    image = heat(left, cosines, most=1.0, signed=True)
    left.set_aspect("equal")
    ticks = [0, 32, 64, 96, 127]
    left.set_xticks(ticks, [str(tick) for tick in ticks], rotation=0)
    left.set_yticks(ticks, [str(tick) for tick in ticks])
    title(left, "cosine of two positions")
    scale(figure, image, left, "")
    quieten(right, "tokens apart", "cosine")
    means = [float(np.diagonal(cosines, apart).mean()) for apart in range(65)]
    right.plot(range(65), means, color=BLUE, linewidth=1.8)
    title(right, "mean over all pairs so far apart")
    right.set_ylim(-0.25, 1.05)
    return figure, {
        "cosine of neighbours": f"{means[1]:.2f}",
        "cosine of positions 32 apart": f"{means[32]:.2f}",
    }


def _queries_and_keys(layer: int, head: int) -> tuple[Any, Any, Any, list[str]]:
    batch, tokens = read(SENTENCE)
    encoder = mini().model.encoder
    with torch.inference_mode(), traced(encoder, (), [layer + 1]) as trace:
        encoder(batch)
    query, key, value = trace.qkv[layer + 1][:, :, head].unbind(1)
    return query, key, value, tokens


def attention() -> Drawn:
    """One head at work: scores, weights, mixed values."""
    query, key, value, tokens = _queries_and_keys(LAYER, HEAD)
    scores = query @ key.T / math.sqrt(query.shape[1])
    weights = torch.softmax(scores, -1)
    batch, _ = read(SENTENCE)
    (exact,) = attention_maps(mini().model, batch, [LAYER], [HEAD])
    assert torch.allclose(weights, exact[0, 0], atol=1e-6)
    mixed = weights @ value
    figure = new(3.5)
    panels = figure.subplots(1, 3, sharey=True, width_ratios=[1.25, 1.25, 1])
    image = heat(panels[0], scores.numpy(), rows=tokens, columns=tokens, signed=True)
    scale(figure, image, panels[0], "")
    title(panels[0], "scores: q · k / √32")
    image = heat(panels[1], weights.numpy(), rows=tokens, columns=tokens, most=1.0)
    scale(figure, image, panels[1], "")
    title(panels[1], "weights: softmax of a row")
    heat(panels[2], mixed.numpy(), rows=tokens, signed=True)
    title(panels[2], "output: weighted values")
    panels[2].set_xlabel("32 numbers a token", fontsize=8, color=QUIET)
    it, cat = tokens.index("it"), tokens.index("cat")
    for axes in panels:
        axes.add_patch(frame(-0.5, it - 0.5, axes.get_xlim()[1] + 0.5, 1))
    return figure, {
        "score of it for cat": f"{float(scores[it, cat]):.2f}",
        "weight of cat for it": f"{float(weights[it, cat]):.2f}",
    }


def scaling() -> Drawn:
    """What dividing by the root of D does to the weights of all heads."""
    batch, tokens = read(SENTENCE)
    encoder = mini().model.encoder
    count = encoder.config.num_hidden_layers
    with torch.inference_mode(), traced(encoder, (), range(1, count + 1)) as trace:
        encoder(batch)
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for layer in range(1, count + 1):
        query, key = (rows.transpose(0, 1) for rows in trace.qkv[layer][:, :2].unbind(1))
        for divided, largest in found.items():
            scores = query @ key.transpose(1, 2)
            scores = scores / math.sqrt(query.shape[-1]) if divided else scores
            largest.append(torch.softmax(scores, -1).amax(-1).flatten().numpy())
    with_root, without = (np.concatenate(found[divided]) for divided in (True, False))
    figure = new(2.9)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    row = tokens.index("it")
    query, key, _, _ = _queries_and_keys(LAYER, HEAD)
    scores = query[row] @ key.T
    both = {True: scores / math.sqrt(len(query[row])), False: scores}
    places = np.arange(len(tokens))
    quieten(left, "", "weight", grid="y")
    quieten(right, "largest weight of a row", "share of rows below", grid="both")
    style = {True: (BLUE, "q · k / √32, as in the model"), False: (ORANGE, "q · k undivided")}
    for divided, (colour, label) in style.items():
        weights = torch.softmax(both[divided], -1).numpy()
        left.bar(places + (0.2 if not divided else -0.2), weights, 0.38, color=colour, label=label)
        largest = np.sort(with_root if divided else without)
        right.plot(largest, np.arange(len(largest)) / len(largest), color=colour, linewidth=1.8)
    left.set_xticks(places, tokens, rotation=90, fontsize=8, color=INK)
    left.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper right")
    title(left, f'what "it" attends to, layer {LAYER + 1}, head {HEAD + 1}')
    right.set_xlim(0, 1.02)
    title(right, f"all {len(largest):,} rows of all heads")
    return figure, {
        "rows above 0.95": percent(float((with_root > 0.95).mean())),
        "rows above 0.95 without the division": percent(float((without > 0.95).mean())),
    }


def heads() -> Drawn:
    """All 72 maps of one sentence, and four that are easy to name."""
    batch, tokens = read(SENTENCE)
    (maps,) = attention_maps(mini().model, batch)
    values = maps.numpy()
    layers, num_heads, length, _ = values.shape
    here = np.arange(length)
    kinds = {
        "previous token": values[:, :, here[1:], here[:-1]].mean(-1),
        "next token": values[:, :, here[:-1], here[1:]].mean(-1),
        "[CLS]": values[:, :, :, 0].mean(-1),
        "every token a little": _evenness(values),
    }
    best = {name: divmod(int(share.argmax()), num_heads) for name, share in kinds.items()}
    figure = new(6.6)
    upper, lower = figure.subfigures(2, 1, height_ratios=[1.6, 1])
    grid = upper.subplots(layers, num_heads, gridspec_kw={"wspace": 0.04, "hspace": 0.04})
    for layer in range(layers):
        for head in range(num_heads):
            axes = grid[layer, head]
            heat(axes, values[layer, head], most=1.0)
            axes.set_aspect("equal")
            if head == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=8, color=QUIET)
            if layer == 0:
                axes.set_title(f"{head + 1}", fontsize=8, color=QUIET, pad=3)
            if (layer, head) in best.values():
                for spine in axes.spines.values():
                    spine.set_color(VERMILLION)
                    spine.set_linewidth(1.8)
    upper.suptitle("every head of every layer", x=0.01, ha="left", fontsize=9.5, color=INK)
    panels = lower.subplots(1, 4, sharey=True)
    facts = {}
    for axes, (name, (layer, head)) in zip(panels, best.items(), strict=True):
        heat(axes, values[layer, head], rows=tokens, columns=tokens, most=1.0)
        share = float(kinds[name][layer, head])
        axes.set_title(
            f"{name}: {share:.2f}\nlayer {layer + 1}, head {head + 1}",
            loc="left",
            fontsize=8.5,
            color=INK,
        )
        axes.tick_params(labelsize=7)
        facts[name] = f"{share:.2f}"
    return figure, facts


def _evenness(values: np.ndarray) -> np.ndarray:
    """Entropy of a head's rows as a share of the largest possible; (layers, heads)."""
    entropy = -(values * np.log(np.maximum(values, 1e-12))).sum(-1).mean(-1)
    return np.asarray(entropy / np.log(values.shape[-1]))


def residual() -> Drawn:
    """What the two sub-layers add to the stream, and what LayerNorm makes of the sum."""
    batch, _ = read(SENTENCE)
    encoder = mini().model.encoder
    sizes: dict[str, list[np.ndarray]] = {"hidden": [], "attention": [], "feed-forward": []}
    sums: list[tuple[np.ndarray, np.ndarray]] = []

    def length(rows: torch.Tensor) -> np.ndarray:
        return rows.norm(dim=1).numpy()

    hooks = []
    for layer in encoder.layers:
        hooks += [
            layer.register_forward_pre_hook(
                lambda _, inputs: sizes["hidden"].append(length(inputs[0]))
            ),
            layer.attention_out.register_forward_hook(
                lambda _, __, output: sizes["attention"].append(length(output))
            ),
            layer.down.register_forward_hook(
                lambda _, __, output: sizes["feed-forward"].append(length(output))
            ),
            layer.norm.register_forward_hook(
                lambda _, inputs, output: sums.append((inputs[0].numpy(), output.numpy()))
            ),
        ]
    with torch.inference_mode():
        encoder(batch)
    for hook in hooks:
        hook.remove()
    figure = new(2.9)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    quieten(left, "layer", "length of a vector", grid="y")
    colours = (QUIET, BLUE, GREEN)
    names = ("what comes in", "what attention adds", "what feed-forward adds")
    count = len(encoder.layers)
    for shift, (name, label, colour) in enumerate(zip(sizes, names, colours, strict=True)):
        values = np.stack(sizes[name])
        x = np.arange(1, count + 1)[:, None] + 0.24 * (shift - 1) + 0 * values
        left.scatter(x, values, s=9, color=colour, alpha=0.55, linewidths=0, label=label)
        left.scatter(x[:, 0], np.median(values, 1), s=110, color=colour, marker="_")
    left.set_yscale("log")
    left.set_ylim(2, 2_500)
    left.set_xticks(range(1, count + 1))
    left.legend(frameon=False, fontsize=8, labelcolor=INK, loc="upper left", handletextpad=0.1)
    title(left, "every token, and the median (bar)")
    quieten(right, "mean", "standard deviation", grid="both")
    for index, (rows, normed) in enumerate(sums):
        some = {"label": "sum, before LayerNorm"} if index == 0 else {}
        right.scatter(rows.mean(1), rows.std(1), s=9, color=ORANGE, alpha=0.7, **some)
        some = {"label": "after"} if index == 0 else {}
        right.scatter(normed.mean(1), normed.std(1), s=9, color=BLUE, alpha=0.7, **some)
    right.legend(frameon=False, fontsize=8, labelcolor=INK, loc="best")
    right.set_yscale("log")
    title(right, "a token's 384 numbers, all layers")
    added = sizes["feed-forward"][0]
    return figure, {
        "feed-forward of layer 1 adds to a word": f"{float(np.median(added)):.0f}",
        "feed-forward of layer 1 adds to [CLS]": f"{float(added[0]):.0f}",
    }


def reads() -> Drawn:
    """Which rows of the encoder's output each head reads, with the shapes of the example."""
    from matplotlib.patches import FancyBboxPatch

    tokens = read(PAIR)[1]
    count = len(tokens)
    config = mini().model.config
    width = config.hidden_size
    kinds = [
        ("masked words", [3], f"(1, {config.vocab_size:,})", f"{width} → {width} → words"),
        ("next sentence", [0], "(1, 2)", f"pooler, {width} → 2"),
        ("class of a text or pair", [0], "(1, C)", f"pooler, {width} → C"),
        ("tag of every word", [*range(1, 6), *range(7, count - 1)], "(11, C)", f"{width} → C"),
        ("start, end of an answer", list(range(count)), f"({count}, 2)", f"{width} → 2"),
    ]
    sizes = [0.95 + 0.29 * len(token) for token in tokens]
    sizes[3] = sizes[0] + 0.4  # [MASK]
    lefts = np.cumsum([0, *sizes])
    end = lefts[-1]
    figure = new(2.3)
    axes = figure.subplots()
    plain(axes)
    for line, (name, rows, shape, how) in enumerate(kinds):
        y = -line
        axes.text(-0.4, y, name, ha="right", va="center", fontsize=8.5, color=INK)
        shown = [*tokens[:3], "[MASK]", *tokens[4:]] if line == 0 else tokens
        for index, token in enumerate(shown):
            chosen = index in rows
            face, edge = ("#CDE4F3", BLUE) if chosen else ("white", "#D5DBE1")
            box = FancyBboxPatch(
                (lefts[index] + 0.07, y - 0.33), sizes[index] - 0.14, 0.66,
                boxstyle="round,pad=0,rounding_size=0.12", facecolor=face, edgecolor=edge,
            )  # fmt: skip
            axes.add_patch(box)
            axes.text(
                lefts[index] + sizes[index] / 2, y, token, ha="center", va="center_baseline",
                fontsize=6.6, color=INK if chosen else QUIET,
            )  # fmt: skip
        axes.text(end + 0.5, y, how, va="center", fontsize=8, color=INK)
        axes.text(end + 9.0, y, shape, va="center", fontsize=8, color=VERMILLION)
    axes.text(end + 0.5, 0.8, "product", fontsize=8, color=QUIET)
    axes.text(end + 9.0, 0.8, "logits", fontsize=8, color=QUIET)
    axes.set_xlim(-9.8, end + 13.8)
    axes.set_ylim(-len(kinds) + 0.4, 1.2)
    return figure, {}
