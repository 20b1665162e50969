import pytest

from filbert.train.defaults import default_lines, evaluation_interval, with_defaults
from filbert.train.options import TrainOptions


def chosen(options=None, *, num_rows=320, width=384, num_layers=6, **head):
    size = {"num_rows": num_rows, "width": width, "num_layers": num_layers}
    return with_defaults(options or TrainOptions(), **size, **head)


@pytest.mark.parametrize(
    ("num_rows", "width", "num_layers", "expected"),
    [
        (40, 384, 6, (1e-3, 0.75, 50.0, 16)),  # 3 steps an epoch: the bound of the epochs
        (320, 256, 4, (1.5e-3, 0.681, 10.0, 16)),  # 20 steps an epoch: 200 steps
        (1_000, 768, 12, (1e-4, 0.848, 7.0, 32)),  # 32 steps an epoch: 224 steps
        (1_000, 384, 6, (1e-4, 1.0, 7.0, 32)),  # many rows for MiniLM
        (100_000, 1024, 24, (5e-5, 0.915, 3.0, 32)),
    ],
)
def test_rates_follow_the_width_and_epochs_the_rows(num_rows, width, num_layers, expected):
    one = chosen(num_rows=num_rows, width=width, num_layers=num_layers)
    assert (one.lr, one.layer_decay, one.epochs, one.batch_size) == expected


@pytest.mark.parametrize(
    ("options", "head", "expected"),
    [
        (TrainOptions(), {"has_new_head": False}, (4e-5, 1.0)),
        (TrainOptions(), {"is_frozen": True}, (1e-3, 1.0)),
        (TrainOptions(), {"is_lora": True}, (1e-3, 1.0)),
        (TrainOptions(lr=5e-5), {}, (5e-5, 1.0)),
        (TrainOptions(layer_decay=0.9), {}, (1e-3, 0.9)),
    ],
)
def test_one_rate_for_all_where_the_head_is_trained_or_a_rate_is_given(options, head, expected):
    one = chosen(options, **head)
    assert (one.lr, one.layer_decay) == expected


def test_many_labels_get_the_high_rate_and_more_epochs():
    assert chosen(num_rows=1_000, num_labels=77).lr == 1e-3
    assert chosen(num_rows=500, num_labels=77).epochs == 16.0  # 100 rows a label
    assert chosen(num_rows=500, num_labels=20).epochs == 7.0  # 200 steps


def test_a_trained_head_needs_no_least_number_of_steps():
    assert chosen(num_rows=40, has_new_head=False).epochs == 3.0


def test_what_the_user_gives_is_kept():
    given = TrainOptions(lr=1e-3, layer_decay=0.9, epochs=0.5, batch_size=4)
    assert chosen(given) == given
    assert default_lines(given, given, 200) == []
    assert chosen(TrainOptions(steps=5)).epochs is None


def test_chosen_epochs_are_evaluated_ten_times_at_most_and_given_ones_each():
    few, many = chosen(num_rows=40), chosen(num_rows=100_000)
    assert evaluation_interval(TrainOptions(), few, 3) == 3 * 5  # 50 epochs
    assert evaluation_interval(TrainOptions(), many, 3_125) == 3_125  # 3 epochs
    assert evaluation_interval(TrainOptions(epochs=50.0), few, 3) is None
    assert evaluation_interval(TrainOptions(steps=9), chosen(TrainOptions(steps=9)), 3) is None


def test_the_choice_is_described_in_one_line():
    given = TrainOptions(lr=1e-3)
    (line,) = default_lines(given, chosen(given), 200)
    assert line.startswith("defaults: --epochs 10, --batch-size 16 (")


def test_unusual_values_and_few_steps_are_warned_of():
    given = TrainOptions(lr=2.0, epochs=1, batch_size=32)
    first, second = default_lines(given, given, 9)
    assert first == "warning: lr 2 is unusual; 1e-5 to 1e-3 is usual"
    assert second.startswith("warning: 9 optimizer steps are few")
    assert default_lines(given, given, 1)[1].startswith("warning: 1 optimizer step is few")
