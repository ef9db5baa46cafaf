"""Metrics that count nothing, for tests that look at something else."""

from collections.abc import Callable

from queryflux.runtime.metrics import Count, Gauge, Histogram


class _Nothing:
    def inc(self, amount: float = 1) -> None:
        pass

    def dec(self, amount: float = 1) -> None:
        pass

    def set(self, value: float) -> None:
        pass

    def observe(self, value: float) -> None:
        pass


class NoMetrics:
    """Counts nothing: for tests of something else."""

    _nothing = _Nothing()

    def counter(self, name: str, **labels: str) -> Count:
        return self._nothing

    def gauge(self, name: str, **labels: str) -> Gauge:
        return self._nothing

    def histogram(self, name: str, **labels: str) -> Histogram:
        return self._nothing

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        pass

    def forget(self, name: str, **labels: str) -> None:
        pass
