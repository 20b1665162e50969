"""Draw the losses of ELMo's and ULMFiT's pre-training: python docs/figures/lineage.py ELMO ULMFIT.

ELMO and ULMFIT are folders of `filbert pretrain elmo-small` and `ulmfit-small`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from drawing import BLUE, VERMILLION, new

from filbert.report.plots import quieten

PLACE = Path(__file__).with_name("lineage.svg")
POINTS = 75  # of each curve; a point is the mean of the steps since the last one


def draw(folders: dict[str, Path], place: Path) -> None:
    """Write the curves by the number of words read."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "filbert", "path.simplify": False}
    figure = new(2.6)
    axes = figure.subplots()
    for (name, folder), colour in zip(folders.items(), (BLUE, VERMILLION), strict=True):
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        words = json.loads((folder / "run.json").read_text(encoding="utf-8"))["words"]["read"]
        losses = np.array([json.loads(line)["loss"] for line in lines])
        ends = np.linspace(0, len(losses), POINTS + 1).astype(int)[1:]
        parts = np.split(losses, ends[:-1])
        means = [part.mean() for part in parts]
        axes.plot(ends / len(losses) * words / 1e6, means, color=colour, label=name)
    quieten(axes, "million words read", "training loss")
    axes.legend(frameon=False)
    figure.savefig(place, metadata={"Date": None})
    text = place.read_text(encoding="utf-8")
    place.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", "utf-8")


if __name__ == "__main__":
    elmo, ulmfit = map(Path, sys.argv[1:])
    draw({"ELMo, mean of both directions": elmo, "ULMFiT": ulmfit}, PLACE)
