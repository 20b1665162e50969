"""The dashboard asks for nothing that a server does not show."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from filbert.serve.metrics import Metrics

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"


@pytest.fixture(scope="module")
def dashboard():
    return json.loads(DASHBOARD.read_text())


@pytest.fixture(scope="module")
def labels():
    """By name, the labels of what a server shows after a request, everything having happened."""
    metrics = Metrics()
    metrics.watch({"mini": lambda: (0, 0)})
    metrics.request_finished("POST", "/embed", status=200, seconds=0.02)
    metrics.answered("mini", tokenization=0.001, queue=0.002, tokens=70)
    metrics.batch("mini", rows=2, tokens=50, capacity=100, seconds=0.25)
    metrics.dropped("mini", 4)
    families = text_string_to_metric_families(metrics.exposition().decode())
    # Prometheus itself adds where it scraped.
    return {s.name: {*s.labels, "instance"} for f in families for s in f.samples}


def test_every_figure_of_the_dashboard_exists_with_the_labels_it_is_asked_by(dashboard, labels):
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) > 20
    for expression in asked:
        for name, selection in re.findall(r"(filbert_\w+)\{([^}]*)\}", expression):
            assert name in labels, name
            assert set(re.findall(r"(\w+)=~?\"", selection)) <= labels[name], expression
        for group in re.findall(r"by \(([^)]*)\)", expression):
            names = set(re.findall(r"filbert_\w+", expression))
            for name in names:
                assert set(re.split(r",\s*", group)) <= labels[name], expression
    for variable in dashboard["templating"]["list"][1:]:
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
        assert label in labels[name]
