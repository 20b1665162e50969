"""The names under which text-embeddings-inference shows the same figures, so that dashboards and
alerts that use these go on working.

Source: huggingface/text-embeddings-inference, router/src/http/server.rs and core/src/queue.rs. Its
labels differ: ours say `route` and `model`, not `method`. Its inference time is that of a request,
ours that of the batch the request was in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

_SAME = {
    "filbert_request_duration_seconds": "te_request_duration",
    "filbert_tokenization_seconds": "te_request_tokenization_duration",
    "filbert_queue_seconds": "te_request_queue_duration",
    "filbert_inference_seconds": "te_request_inference_duration",
    "filbert_request_tokens": "te_request_input_length",
    "filbert_batch_rows": "te_batch_next_size",
    "filbert_batch_tokens": "te_batch_next_tokens",
    "filbert_queue_rows": "te_queue_size",
}

_FAILURES = {
    "400": "validation",
    "413": "validation",
    "422": "validation",
    "424": "backend",
    "429": "overloaded",
    "499": "dropped",
    "503": "unhealthy",
}


def with_aliases(families: Iterable[Metric]) -> Iterator[Metric]:
    """The same figures, each followed by its copies under the other names."""
    for family in families:
        yield family
        if family.name == "filbert_requests":
            yield from _of_requests(family)
        elif family.name in _SAME:
            yield _renamed(family, _SAME[family.name])


def _renamed(family: Metric, name: str) -> Metric:
    copy = Metric(name, family.documentation, family.type)
    copy.samples = [
        sample._replace(name=name + sample.name.removeprefix(family.name))
        for sample in family.samples
        # A request for /metrics or /health is none of the model's.
        if sample.labels.get("method", "POST") == "POST"
    ]
    return copy


def _of_requests(family: Metric) -> Iterator[Metric]:
    """Counters, without the ending _total that the text format would ask of that type."""
    found: dict[str, list[Sample]] = {
        "te_request_count": [],
        "te_request_success": [],
        "te_request_failure": [],
    }
    for sample in family.samples:
        if not sample.name.endswith("_total") or sample.labels["method"] != "POST":
            continue
        route, status = sample.labels["route"], sample.labels["status"]
        success = status.startswith("2")
        outcome = "te_request_success" if success else "te_request_failure"
        why = {} if success else {"err": _FAILURES.get(status, "other")}
        labels = {"route": route, "status": status}
        found["te_request_count"].append(Sample("te_request_count", labels, sample.value))
        found[outcome].append(Sample(outcome, labels | why, sample.value))
    for name, samples in found.items():
        alias = Metric(name, family.documentation, "unknown")
        alias.samples = samples
        yield alias
