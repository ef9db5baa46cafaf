"""The metrics port. Rooms count through it; telemetry implements it; one file there lists every metric.

Ask for a child once and keep it: ``labels`` are resolved when it is made, not when it is counted.
"""

from collections.abc import Callable
from typing import Protocol


class Count(Protocol):
    """A counter with its labels set."""

    def inc(self, amount: float = 1) -> None:
        """Add to it."""


class Gauge(Protocol):
    """A gauge with its labels set."""

    def set(self, value: float) -> None:
        """Give it a value."""

    def inc(self, amount: float = 1) -> None:
        """Add to it."""

    def dec(self, amount: float = 1) -> None:
        """Take from it."""


class Histogram(Protocol):
    """A histogram with its labels set."""

    def observe(self, value: float) -> None:
        """Record one value."""


class Metrics(Protocol):
    """Gives children by metric name (as exported) and labels. An unlisted name raises KeyError."""

    def counter(self, name: str, **labels: str) -> Count:
        """A counter."""

    def gauge(self, name: str, **labels: str) -> Gauge:
        """A gauge."""

    def histogram(self, name: str, **labels: str) -> Histogram:
        """A histogram."""

    def before_reading(self, catch_up: Callable[[], object]) -> None:
        """Call ``catch_up`` before anybody is shown a value: whoever counts late counts then."""

    def forget(self, name: str, **labels: str) -> None:
        """What a gauge measured is no more: it is not exported with these labels any longer."""
