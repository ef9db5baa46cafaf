"""The metrics port over prometheus_client. A family takes its place in the registry when it is first
counted."""

from collections.abc import Mapping

import prometheus_client
from prometheus_client.registry import CollectorRegistry

from queryflux.runtime.metrics import Count, Gauge, Histogram
from queryflux.telemetry.catalogue import CATALOGUE, Metric

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST


class PrometheusMetrics:
    """Implements ``runtime.metrics.Metrics`` with a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self._families = {metric.name: self._family(metric) for metric in CATALOGUE}
        self._children: dict[tuple[str, tuple[tuple[str, str], ...]], object] = {}

    def _family(
        self, metric: Metric
    ) -> prometheus_client.Counter | prometheus_client.Gauge | prometheus_client.Histogram:
        if metric.kind == "counter":
            return prometheus_client.Counter(
                metric.name.removesuffix("_total"), metric.help, metric.labels, registry=self.registry
            )
        if metric.kind == "gauge":
            return prometheus_client.Gauge(metric.name, metric.help, metric.labels, registry=self.registry)
        return prometheus_client.Histogram(
            metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry
        )

    def _child(self, name: str, labels: Mapping[str, str]) -> object:
        key = (name, tuple(labels.items()))
        child = self._children.get(key)
        if child is None:
            family = self._families[name]
            child = self._children[key] = family.labels(**labels) if labels else family
        return child

    def counter(self, name: str, **labels: str) -> Count:
        return self._child(name, labels)  # type: ignore[return-value]

    def gauge(self, name: str, **labels: str) -> Gauge:
        return self._child(name, labels)  # type: ignore[return-value]

    def histogram(self, name: str, **labels: str) -> Histogram:
        return self._child(name, labels)  # type: ignore[return-value]

    def render(self) -> bytes:
        """The exposition document for /metrics."""
        return prometheus_client.generate_latest(self.registry)
