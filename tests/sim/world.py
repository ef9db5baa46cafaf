"""Time that jumps, and event loops of processes that can be stopped and killed.

Each process has a loop of its own, with its own clock: that runs a little fast or slow, and started some
time ago. A loop takes its turns (everything that is ready, in order, as asyncio does) when the world lets
it: a moment after something became ready, or much later when the process is stopped. A killed one takes
none any more.
"""

import asyncio
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from typing import Any
from zlib import crc32

MOST_TURNS = 2_000_000
JITTER_SECS = 0.0005
"""Mean time from something being ready to the turn that does it."""


class World:
    """Everything that will happen, by time."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self.trace = 0
        """A digest of what happened, to tell whether two runs were the same."""

    def at(self, seconds: float, do: Callable[[], object]) -> None:
        """Let it happen after so many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), do))

    def run(self, until: float) -> None:
        """Everything up to then."""
        for _ in range(MOST_TURNS):
            if not self._events or self._events[0][0] > until:
                self.now = until
                return
            self.now, _, do = heapq.heappop(self._events)
            do()
        raise RuntimeError(f"something runs for ever at {self.now}")

    def mark(self, *what: object) -> None:
        """Part of the trace."""
        self.trace = crc32(f"{self.now:.9f} {what}".encode(), self.trace)


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process, and its clock."""

    def __init__(self, world: World, rate: float = 1.0, offset: float = 0.0) -> None:
        self.world = world
        self.rate = rate
        self.offset = offset
        self.skew = 0.0
        """How far its clock on the wall is from where it should be."""
        self.dead = False
        self.failures: list[str] = []
        """What went wrong and nobody caught."""
        self._queue: deque[asyncio.Handle] = deque()
        self._due = False
        self._over = False
        self._stopped_until = 0.0
        self.stopped_secs = 0.0
        """All its stops."""
        self._made: list[asyncio.Task[Any]] = []
        super().__init__()
        self.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.dead:
            self.failures.append(f"{context['message']}: {context.get('exception')!r}")

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self.offset + self.world.now * self.rate

    def is_running(self) -> bool:
        """Also between turns, and from the start: nothing is set up in another way than by turns."""
        return not self._over

    def set_debug(self, enabled: object) -> None:
        """It has none."""
        self._debug = False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        self._take_turn()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]
    """Threads are callbacks of this loop: see virtual.py."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)

        def fire() -> None:
            if not timer.cancelled():
                self._queue.append(timer)
                self._take_turn()

        self.world.at(max(0.0, when - self.time()) / self.rate, fire)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays among the world's events, and does nothing."""

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        task = asyncio.Task(coro, loop=self, name=str(name) if name else None, context=context)
        self._made.append(task)
        if len(self._made) > 1000:
            self._made = [one for one in self._made if not one.done()]
        return task

    # Turns.

    def _take_turn(self) -> None:
        if not self._due and not self.dead:
            self._due = True
            wait = max(0.0, self._stopped_until - self.world.now)
            self.world.at(wait + self.world.chance.expovariate(1 / JITTER_SECS), self._turn)

    def _turn(self) -> None:
        self._due = False
        if self.world.now < self._stopped_until:
            self._take_turn()
        elif not self.dead:
            self._run_ready()

    def _run_ready(self) -> None:
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for _ in range(len(self._queue)):
                handle = self._queue.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(before)
        if self._queue:
            self._take_turn()

    # What happens to a process.

    def stop_for(self, seconds: float) -> None:
        """It takes no turn for so long."""
        self._stopped_until = max(self._stopped_until, self.world.now + seconds)
        self.stopped_secs += seconds

    def kill(self) -> None:
        """It takes none any more."""
        self.dead = True

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task, from outside."""
        self.call_soon(lambda: self.create_task(work))

    def bury(self) -> None:
        """End what is left of it, for nobody to hear."""
        self.dead = True
        for _ in range(200):
            left = [task for task in self._made if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            self._run_ready()
        self._queue.clear()
        self._over = True
        self.close()


class LoopClock:
    """The clock of a process, as the product asks it."""

    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self.monotonic = loop.time

    def now(self) -> float:
        return 1_800_000_000 + self._loop.time() + self._loop.skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)
