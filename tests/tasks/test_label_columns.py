"""0/1 columns make labels for classification alone."""

from __future__ import annotations

import pytest

from filbert.data.columns import ColumnNames
from filbert.errors import ConfigError
from filbert.tasks.base import TaskOptions, task_class, task_names

OTHERS = sorted(set(task_names()) - {"classification"})
GIVEN = {
    "--merge-labels is for classification; ": ColumnNames(merge_labels=("a", "b"), merge_as="x"),
    "--label-columns is for multi-label classification; ": ColumnNames(label_columns=("a", "b")),
    "--as names the label": ColumnNames(merge_as="x"),
}


@pytest.mark.parametrize("says", GIVEN)
@pytest.mark.parametrize("name", OTHERS)
def test_a_task_without_named_labels_refuses_label_columns(name, says):
    with pytest.raises(ConfigError, match=says):
        task_class(name).from_options(TaskOptions(), GIVEN[says])
    with pytest.raises(ConfigError, match=says):
        task_class(name).from_options(TaskOptions(), ColumnNames()).reading(GIVEN[says])
