from __future__ import annotations

import pytest

from filbert.train.defaults import default_lines, with_defaults
from filbert.train.options import TrainOptions


@pytest.mark.parametrize(
    ("num_rows", "width", "expected"),
    [
        (50, 384, (1e-4, 30.0, 16)),  # 4 steps an epoch: the bound of the epochs
        (320, 384, (1e-4, 10.0, 16)),  # 20 steps an epoch: 200 steps
        (1_000, 768, (5e-5, 7.0, 32)),  # 32 steps an epoch: 224 steps
        (100_000, 1024, (3.8e-5, 3.0, 32)),
        (100_000, 128, (2e-4, 3.0, 32)),
    ],
)
def test_rate_follows_the_width_and_epochs_the_rows(num_rows, width, expected):
    chosen = with_defaults(TrainOptions(), num_rows=num_rows, width=width)
    assert (chosen.lr, chosen.epochs, chosen.batch_size) == expected


def test_what_the_user_gives_is_kept():
    given = TrainOptions(lr=1e-3, epochs=0.5, batch_size=4)
    assert with_defaults(given, num_rows=50, width=384) == given
    assert default_lines(given, given, 200) == []
    assert with_defaults(TrainOptions(steps=5), num_rows=50, width=384).epochs is None


def test_the_choice_is_described_in_one_line():
    given = TrainOptions(lr=1e-3)
    chosen = with_defaults(given, num_rows=320, width=384)
    (line,) = default_lines(given, chosen, 200)
    assert line.startswith("defaults: --epochs 10, --batch-size 16 (")


def test_unusual_values_and_few_steps_are_warned_of():
    given = TrainOptions(lr=2.0, epochs=1, batch_size=32)
    first, second = default_lines(given, given, 9)
    assert first == "warning: lr 2 is unusual; 1e-5 to 1e-3 is usual"
    assert second.startswith("warning: 9 optimizer steps are few")
