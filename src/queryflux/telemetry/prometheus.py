"""The metrics port, exported for Prometheus.

Queries count into plain numbers of ours, which cost a tenth of a microsecond; prometheus_client sees them
when somebody scrapes. Counting happens on the event loop's thread; a count from another thread may in theory
be lost.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from queryflux.runtime.metrics import Count, Gauge, Histogram
from queryflux.telemetry.catalogue import CATALOGUE, Metric

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST


class Number:
    """A counter or gauge with its labels set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = value


class Buckets:
    """A histogram with its labels set."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Upper bounds as Prometheus spells them, each with the number of values up to it."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield ("+Inf" if bound == float("inf") else str(float(bound))), total


class PrometheusMetrics(Collector):
    """Implements ``runtime.metrics.Metrics`` with a registry of its own."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {metric.name: metric for metric in CATALOGUE}
        self._numbers: dict[str, dict[tuple[str, ...], Number]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], Buckets]] = {}
        self._catch_up: list[Callable[[], object]] = []
        for metric in CATALOGUE:
            if metric.kind == "histogram":
                self._histograms[metric.name] = {}
            else:
                self._numbers[metric.name] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        self._catch_up.append(catch_up)

    def _key(self, name: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        key = tuple([labels[label] for label in self._metrics[name].labels])
        if len(key) != len(labels):
            raise KeyError(f"{name} has the labels {self._metrics[name].labels}, not {tuple(labels)}")
        return key

    def _number(self, name: str, labels: Mapping[str, str]) -> Number:
        family, key = self._numbers[name], self._key(name, labels)
        if (child := family.get(key)) is None:
            child = family[key] = Number()
        return child

    def counter(self, name: str, **labels: str) -> Count:
        return self._number(name, labels)

    def gauge(self, name: str, **labels: str) -> Gauge:
        return self._number(name, labels)

    def forget(self, name: str, **labels: str) -> None:
        self._numbers[name].pop(self._key(name, labels), None)

    def histogram(self, name: str, **labels: str) -> Histogram:
        family, key = self._histograms[name], self._key(name, labels)
        if (child := family.get(key)) is None:
            child = family[key] = Buckets(self._metrics[name].buckets)
        return child

    def collect(self) -> Iterable[Family]:
        """What prometheus_client asks for at a scrape."""
        for catch_up in self._catch_up:
            catch_up()
        for name, metric in self._metrics.items():
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, metric.help, labels=metric.labels)
                for key, buckets in list(self._histograms[name].items()):
                    histogram.add_metric(key, list(buckets.cumulative()), buckets.sum)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=metric.labels)
            for key, number in list(self._numbers[name].items()):
                family.add_metric(key, number.value)
            yield family

    def render(self) -> bytes:
        """The exposition document for /metrics."""
        return prometheus_client.generate_latest(self.registry)
