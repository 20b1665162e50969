"""What a run that was interrupted is known by."""

from __future__ import annotations

import torch
from torch import nn

from filbert.train.options import FinetuneOptions
from filbert.train.provenance import fingerprint

GIVEN = {
    "task": "classification", "model": "minilm", "train": "a.csv", "out": "run",
}  # fmt: skip
OTHER = {
    "clean": "study", "causal": True, "keep_layers": "2", "merge_labels": ("a",), "merge_as": "x",
    "new_head": True, "separator": ";",
}  # fmt: skip


def fingerprint_of(**more: object) -> str:
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([3.0])})
    return fingerprint(FinetuneOptions.from_keywords(GIVEN | more), model, {"train": "0" * 64})


def test_every_option_that_changes_the_run_changes_its_fingerprint():
    found = {fingerprint_of(**{name: value}) for name, value in OTHER.items()}
    assert len(found | {fingerprint_of(), fingerprint_of(lr=1e-3)}) == len(OTHER) + 2


def test_a_run_may_be_moved_with_its_data():
    # What the files hold is counted by itself.
    one, two = ({"dev": f"/{place}/dev.csv", "out": place} for place in ("here", "there"))
    assert fingerprint_of(**one) == fingerprint_of(**two) != fingerprint_of(dev="/here/other.csv")


def test_where_a_run_goes_does_not():
    assert fingerprint_of(save_every=3, tensorboard=True) == fingerprint_of()
