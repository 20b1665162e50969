"""What is learnt: masked words, next sentences, and a task of one's own."""

from __future__ import annotations

import csv
import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import (
    BLUE,
    GREEN,
    ORANGE,
    SKY,
    VERMILLION,
    Drawn,
    frame,
    heat,
    mini,
    new,
    percent,
    plain,
    read,
    recorded,
    scale,
    title,
)

import filbert
from filbert import samples
from filbert.batch import pack
from filbert.data.draws import keys_of
from filbert.data.masking import Masker, ObjectiveOptions, TokenRows, mask
from filbert.report.plots import INK, QUIET, quieten

# Austen 1813, chapter 1; Shelley 1818, letter 1: neither is among the texts of filbert-mini.
OPENING = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife."
)
AUSTEN = (
    "Mr. Bennet was among the earliest of those who waited on Mr. Bingley. He had always intended "
    "to visit him, though to the last always assuring his wife that he should not go.",
    "It was then disclosed in the following manner. Observing his second daughter employed in "
    "trimming a hat, he suddenly addressed her with, I hope Mr. Bingley will like it, Lizzy.",
    "We are not in a way to know what Mr. Bingley likes, said her mother resentfully, since we are "
    "not to visit. But you forget, mamma, said Elizabeth, that we shall meet him at the "
    "assemblies.",
    "I do not believe Mrs. Long will do any such thing. She has two nieces of her own. She is a "
    "selfish, hypocritical woman, and I have no opinion of her.",
)
SHELLEY = (
    "You will rejoice to hear that no disaster has accompanied the commencement of an enterprise "
    "which you have regarded with such evil forebodings. I arrived here yesterday, and my first "
    "task is to assure my dear sister of my welfare.",
    "I am already far north of London, and as I walk in the streets of Petersburgh, I feel a cold "
    "northern breeze play upon my cheeks, which braces my nerves and fills me with delight.",
    "This breeze, which has travelled from the regions towards which I am advancing, gives me a "
    "foretaste of those icy climes. Inspirited by this wind of promise, my daydreams become more "
    "fervent and vivid.",
    "I try in vain to be persuaded that the pole is the seat of frost and desolation; it ever "
    "presents itself to my imagination as the region of beauty and delight.",
)
SEED = 2_408  # one that shows all three fates on four words that matter
GUESSED = "She opened the [MASK] and went out."


def _masker() -> Masker:
    return Masker(mini().tokenizer, ObjectiveOptions(mask_style="bert", mask_rate=0.15))


def masked_lm() -> Drawn:
    """A sentence as pre-training shows it, and what the model expects under a mask."""
    batch, tokens = read(OPENING)
    ids = batch.input_ids.numpy().astype(np.int32)
    keys = keys_of(SEED, 0, np.zeros(1))
    changed, ((places, _),) = mask(TokenRows(ids, np.array([0, len(ids)]), keys), _masker())
    seen = mini().tokenizer.tokens(changed)
    figure = new(4.3)
    upper, lower = figure.subfigures(2, 1, height_ratios=[1, 1.25])
    _draw_words(upper.subplots(), tokens, seen, set(places.tolist()))
    left, right = lower.subplots(1, 2, width_ratios=[1, 1.2])
    (candidates,) = mini().fill(GUESSED, top=6)["candidates"]
    names = [candidate["token"] for candidate in candidates][::-1]
    scores = [candidate["score"] for candidate in candidates][::-1]
    quieten(left, "probability", "", grid="x")
    left.barh(names, scores, color=BLUE, height=0.62)
    left.tick_params(axis="y", labelsize=9, colors=INK)
    title(left, GUESSED)
    shares = _shares()
    quieten(right, "share of 100,000 chosen tokens", "", grid="x")
    right.barh(
        list(shares)[::-1], list(shares.values())[::-1], color=[GREEN, VERMILLION, BLUE], height=0.5
    )
    for place, share in enumerate(reversed(shares.values())):
        right.text(
            share + 0.015, place, f"{100 * share:.1f} %", va="center", fontsize=8.5, color=INK
        )
    right.set_xlim(0, 1)
    right.tick_params(axis="y", labelsize=9, colors=INK)
    title(right, "what replaces a chosen token")
    return figure, {
        "best": candidates[0]["token"],
        "probability of the best": percent(candidates[0]["score"]),
        "second": candidates[1]["token"],
        "probability of the second": percent(candidates[1]["score"]),
        "share of masks": f"{100 * shares['[MASK]']:.1f} %",
    }


def _draw_words(axes: Any, tokens: list[str], seen: list[str], places: set[int]) -> None:
    """Running words; under each chosen one, what the model sees instead."""
    plain(axes)
    title(
        axes, "4 of 28 tokens are chosen; the model sees the lower line and must name the upper one"
    )
    x, line = 0.0, 0
    for index, token in enumerate(tokens):
        chosen = index in places
        size = 0.62 * max(len(token), len(seen[index]) if chosen else 0) + 0.9
        if x + size > 62:
            x, line = 0.0, line + 1
        y = -2.6 * line
        box = {"boxstyle": "round,pad=0.22", "linewidth": 0.8}
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
        middle = x + size / 2
        axes.text(middle, y, token, color=INK if chosen else QUIET, **style)
        if chosen:
            kind = (
                "mask" if seen[index] == "[MASK]" else "kept" if seen[index] == token else "drawn"
            )
            colour = {"mask": BLUE, "kept": GREEN, "drawn": VERMILLION}[kind]
            axes.text(
                middle, y - 1.0, seen[index], color=colour,
                bbox=box | {"facecolor": "white", "edgecolor": colour}, **style,
            )  # fmt: skip
        x += size
    axes.set_xlim(-0.5, 62.5)
    axes.set_ylim(-2.6 * line - 2.0, 0.9)


def _shares() -> dict[str, float]:
    """How often each fate comes, counted over the mask's own draws."""
    batch, _ = read(OPENING)
    row = batch.input_ids.numpy().astype(np.int32)
    rows = 25_000
    ids = np.tile(row, rows)
    starts = np.arange(rows + 1) * len(row)
    changed, found = mask(TokenRows(ids, starts, keys_of(0, 0, np.arange(rows))), _masker())
    at = np.concatenate([places + start for (places, _), start in zip(found, starts, strict=False)])
    shown, was = changed[at], ids[at]
    masks = float((shown == mini().tokenizer.mask_id).mean())
    kept = float((shown == was).mean())
    return {"[MASK]": masks, "another word": 1 - masks - kept, "the same word": kept}


def next_sentence() -> Drawn:
    """Whether B follows A, for all pairs of eight passages."""
    passages = [*AUSTEN, *SHELLEY]
    found = mini().tokenizer.encode([(a, b) for a in passages for b in passages])
    batch = pack([e.input_ids for e in found], [e.token_type_ids for e in found])
    with torch.inference_mode():
        _, pair = mini().model(batch, torch.zeros(1, dtype=torch.int64))
    chance = pair.float().softmax(-1)[:, 0].reshape(len(passages), -1).numpy()
    names = [f"Austen {i + 1}" for i in range(4)] + [f"Shelley {i + 1}" for i in range(4)]
    figure = new(3.6, 5.2)
    axes = figure.subplots()
    image = heat(axes, chance, rows=names, columns=names, most=1.0)
    for row in range(8):
        for column in range(8):
            value = chance[row, column]
            axes.text(
                column, row, f"{value:.2f}", ha="center", va="center", fontsize=7,
                color="white" if value > 0.45 else INK,
            )  # fmt: skip
    follows = np.zeros((8, 8), dtype=bool)
    follows[[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]] = True
    for row, column in np.argwhere(follows):
        axes.add_patch(frame(column - 0.46, row - 0.46, 0.92, 0.92))
    axes.set_xlabel("segment B", fontsize=8.5, color=QUIET)
    axes.set_ylabel("segment A", fontsize=8.5, color=QUIET)
    scale(figure, image, axes, "P(B follows A)")
    same = np.kron(np.eye(2), np.ones((4, 4))).astype(bool)
    apart = same & ~np.eye(8, dtype=bool)
    return figure, {
        "mean where B follows A": f"{float(chance[follows].mean()):.2f}",
        "mean within one book": f"{float(chance[apart].mean()):.2f}",
        "mean backwards": f"{float(chance.T[follows].mean()):.2f}",
        "mean between the books": f"{float(chance[~same].mean()):.2f}",
        "a passage after itself": f"{float(np.diagonal(chance).mean()):.2f}",
    }


def pretraining() -> Drawn:
    """The recorded run of filbert-mini: both losses and the learning rate."""
    log = recorded(mini_folder() / "training_log.jsonl")
    steps = [line for line in log if "mlm_loss" in line]
    dev = [line for line in log if line.get("split") == "dev"]
    at = [line["step"] for line in steps]
    figure = new(2.9)
    panels = figure.subplots(1, 3, width_ratios=[1.2, 1.2, 1])
    for axes, name, chance, what in (
        (panels[0], "mlm_loss", np.log(30_522), "masked words"),
        (panels[1], "nsp_loss", np.log(2), "next sentence"),
    ):
        quieten(axes, "step", "cross entropy" if name == "mlm_loss" else "")
        axes.plot(at, [line[name] for line in steps], color=BLUE, linewidth=1.4, label="training")
        axes.plot(
            [line["step"] for line in dev], [line["metrics"][name] for line in dev],
            "o-", color=VERMILLION, markersize=3.5, linewidth=1.2, label="held-out novel",
        )  # fmt: skip
        axes.axhline(chance, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(at[-1], chance, "guessing ", ha="right", va="top", fontsize=8, color=QUIET)
        axes.set_ylim(0, None)
        title(axes, what)
    panels[0].legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower left")
    quieten(panels[2], "step", "")
    panels[2].plot(at, [1_000 * line["lr"] for line in steps], color=GREEN, linewidth=1.6)
    title(panels[2], "learning rate × 1,000")
    return figure, {
        "first mlm loss": f"{steps[0]['mlm_loss']:.2f}",
        "last mlm loss": f"{dev[-1]['metrics']['mlm_loss']:.2f}",
        "last nsp loss": f"{dev[-1]['metrics']['nsp_loss']:.2f}",
        "last nsp accuracy": f"{100 * dev[-1]['metrics']['nsp_accuracy']:.1f} %",
        "steps": f"{dev[-1]['step']}",
    }


def mini_folder() -> Path:
    """The files of filbert-mini."""
    return Path(samples.__file__).parent / "filbert-mini"


def _rows(name: str, count: int) -> list[list[str]]:
    with gzip.open(samples.path(name), "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[: count + 1]


def finetuning() -> Drawn:
    """The same rows with the encoder frozen and with everything learning: two minutes."""
    curves: dict[str, list[tuple[int, float]]] = {}
    texts = [row[0] for row in _rows("toxic_dev.csv.gz", 400)[1:]]
    labels = [row[1] for row in _rows("toxic_dev.csv.gz", 400)[1:]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, count in (("train", 1_600), ("dev", 400)):
            with (folder / f"{part}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(_rows(f"toxic_{part}.csv.gz", count))
        vectors = {"before": _pooled(mini(), texts)}
        for kind, freeze in (("head alone", "encoder"), ("everything", None)):
            run = filbert.finetune(
                task="classification", model="filbert-mini", train=str(folder / "train.csv"),
                dev=str(folder / "dev.csv"), out=str(folder / kind.replace(" ", "-")),
                positive="toxic", max_length=64, batch_size=16, epochs=1, eval_every=20,
                lr=5e-5 if freeze is None else 5e-3, precision="float32", freeze=freeze,
            )  # fmt: skip
            log = recorded(folder / kind.replace(" ", "-") / "metrics.jsonl")
            curves[kind] = [
                (line["step"], line["metrics"]["roc_auc"])
                for line in log
                if line.get("split") == "dev" and "metrics" in line
            ]
        vectors["after"] = _pooled(run.model, texts)
    figure = new(2.8)
    axes, *clouds = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    quieten(axes, "step of 16 rows", "ROC AUC on 400 dev rows")
    for (kind, points), colour in zip(curves.items(), (ORANGE, BLUE), strict=True):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.7, label=kind)
    axes.legend(
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        loc="lower right",
        title="what learns",
        title_fontsize=8,
    )
    title(axes, "one pass over 1,600 rows")
    is_toxic = np.array([label == "toxic" for label in labels])
    for panel, (when, values) in zip(clouds, vectors.items(), strict=True):
        centred = values - values.mean(0)
        _, _, directions = np.linalg.svd(centred, full_matrices=False)
        x, y = (centred @ directions[:2].T).T
        for chosen, colour, label in ((~is_toxic, SKY, "ok"), (is_toxic, VERMILLION, "toxic")):
            panel.scatter(
                x[chosen], y[chosen], s=7, color=colour, alpha=0.7, linewidths=0, label=label
            )
        quieten(panel, "first component", "second" if when == "before" else "", grid="none")
        # Without the few that lie far out, which would press all others into a corner.
        for along, limits in ((x, panel.set_xlim), (y, panel.set_ylim)):
            low, high = np.quantile(along, [0.01, 0.99])
            limits(low - 0.15 * (high - low), high + 0.15 * (high - low))
        panel.set_xticks([])
        panel.set_yticks([])
        title(panel, f"pooled vectors {when}")
    clouds[0].legend(frameon=False, fontsize=8, labelcolor=INK, loc="best", handletextpad=0.1)
    return figure, {
        "head alone": f"{curves['head alone'][-1][1]:.2f}",
        "everything": f"{curves['everything'][-1][1]:.2f}",
        "toxic dev rows": f"{int(is_toxic.sum())}",
    }


def _pooled(predictor: Any, texts: list[str]) -> np.ndarray:
    encoder = predictor.model.encoder
    found = predictor.tokenizer.encode(texts, max_length=64)
    batch = pack([e.input_ids for e in found], [e.token_type_ids for e in found])
    with torch.inference_mode():
        return encoder.pool(encoder(batch), batch).float().numpy()
