"""A clock that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from collections.abc import Callable

START = 1_800_000_000.0


class ManualTimer:
    """A pending call of a ManualClock."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Implements ``runtime.clock.Clock``; ``advance`` moves it and lets everything that is due happen."""

    def __init__(self) -> None:
        self._time = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def monotonic(self) -> float:
        return self._time

    def now(self) -> float:
        return START + self._time

    def call_later(self, seconds: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (self._time + seconds, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await future
        finally:
            timer.cancel()

    @property
    def pending(self) -> int:
        """Timers that are set and not cancelled."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    async def advance(self, seconds: float) -> None:
        """Move on; timers fire in order, and tasks get to run after each."""
        until = self._time + seconds
        await settle()
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._time = due
            if timer.callback is not None:
                timer.callback()
                await settle()
        self._time = until
        await settle()


async def settle(turns: int = 20) -> None:
    """Let ready tasks run."""
    for _ in range(turns):
        await asyncio.sleep(0)
