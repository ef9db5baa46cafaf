"""Metrics: what is counted is what a scrape shows."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from queryflux.telemetry.catalogue import CATALOGUE
from queryflux.telemetry.prometheus import PrometheusMetrics


def samples(metrics: PrometheusMetrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families
        for sample in family.samples
    }


def test_counts_and_gauges_are_exported_with_their_labels() -> None:
    metrics = PrometheusMetrics()
    metrics.counter("queryflux_auth_failures_total", protocol="TrinoHttp").inc()
    metrics.counter("queryflux_auth_failures_total", protocol="TrinoHttp").inc(2)
    gauge = metrics.gauge("queryflux_queued_queries", cluster_group="bi")
    gauge.set(5)
    gauge.dec()
    seen = samples(metrics)
    assert seen["queryflux_auth_failures_total[('protocol', 'TrinoHttp')]"] == 3
    assert seen["queryflux_queued_queries[('cluster_group', 'bi')]"] == 4


def test_histograms_are_cumulative_and_a_bound_belongs_to_its_bucket() -> None:
    metrics = PrometheusMetrics()
    waited = metrics.histogram("queryflux_queue_duration_seconds", cluster_group="bi")
    for value in (0.1, 0.2, 1000):
        waited.observe(value)
    seen = samples(metrics)
    name = "queryflux_queue_duration_seconds"
    assert seen[f"{name}_bucket[('cluster_group', 'bi'), ('le', '0.1')]"] == 1
    assert seen[f"{name}_bucket[('cluster_group', 'bi'), ('le', '0.5')]"] == 2
    assert seen[f"{name}_bucket[('cluster_group', 'bi'), ('le', '+Inf')]"] == 3
    assert seen[f"{name}_count[('cluster_group', 'bi')]"] == 3
    assert seen[f"{name}_sum[('cluster_group', 'bi')]"] == pytest.approx(1000.3)


def test_the_same_labels_give_the_same_child() -> None:
    metrics = PrometheusMetrics()
    first = metrics.counter("queryflux_translation_skipped_total", reason="no_schema")
    assert metrics.counter("queryflux_translation_skipped_total", reason="no_schema") is first


@pytest.mark.parametrize("labels", [{}, {"protocol": "x", "more": "y"}, {"wrong": "x"}])
def test_wrong_labels_are_an_error(labels: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        PrometheusMetrics().counter("queryflux_auth_failures_total", **labels)


def test_a_metric_that_is_not_listed_does_not_exist() -> None:
    with pytest.raises(KeyError):
        PrometheusMetrics().counter("queryflux_made_up_total")


def test_every_listed_metric_can_be_counted_and_scraped() -> None:
    metrics = PrometheusMetrics()
    for metric in CATALOGUE:
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind == "histogram":
            metrics.histogram(metric.name, **labels).observe(1)
        elif metric.kind == "counter":
            metrics.counter(metric.name, **labels).inc()
        else:
            metrics.gauge(metric.name, **labels).set(1)
    text = metrics.render().decode()
    assert all(metric.name.removesuffix("_total") in text for metric in CATALOGUE)
    assert "process_resident_memory_bytes" in text
