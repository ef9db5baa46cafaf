"""The clock. Everything that waits or looks at the time asks one of these; tests hand in one they move."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """It will not happen any more; harmless when it already has."""


class Clock(Protocol):
    """Time as the rooms see it."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` on the loop after so many seconds."""


class SystemClock:
    """The machine's own clock and the running loop's timers."""

    monotonic = staticmethod(time.monotonic)  # the functions themselves: every query asks several times
    now = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)
