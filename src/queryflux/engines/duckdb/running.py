"""One statement on a lane, from its first call to the lane's return, and how it is stopped.

An interrupt that comes before DuckDB has begun is lost, so ``stop`` repeats it until the call in flight has
returned; only then is the lane used for anything else. Nothing of this can touch a later statement: the lane
is given back last.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from queryflux.engines.duckdb.lanes import Lane
from queryflux.model.errors import QueryCancelled
from queryflux.runtime.tasks import TaskGroup

T = TypeVar("T")

INTERRUPT_EVERY_SECONDS = 0.005


class Running:
    """``release`` is called once, when nothing of the statement is left on the lane."""

    def __init__(self, lane: Lane, tasks: TaskGroup, release: Callable[["Running"], None]) -> None:
        self.lane = lane
        self.cancelled = False
        self.released = False
        self._tasks = tasks
        self._release = release
        self._call: asyncio.Future[object] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Run a call in the lane's thread. Raises QueryCancelled once ``stop`` was asked for; if the waiting
        task is cancelled, the statement is stopped first."""
        if self.cancelled or self.released:
            raise QueryCancelled("the query was cancelled")
        future = self.lane.thread.submit(function, *args)
        self._call = future  # type: ignore[assignment]
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await self.stop()
            raise
        except Exception as error:
            await self._check_stopped(error)
            raise

    async def _check_stopped(self, cause: Exception) -> None:
        """An error after ``stop`` was asked for is the answer to it. The lane is free before anybody hears of
        it: the next statement may come."""
        if self.cancelled:
            await self.stop()
            raise QueryCancelled("the query was cancelled") from cause

    def finish(self) -> None:
        """All is read or failed, the thread is idle: the lane goes back."""
        if not self.released and self._stopping is None:
            self._give_back()

    async def stop(self) -> None:
        """Stop it; returns when its thread is idle, its result closed and the lane given back. The stopping
        goes on even if the caller does not wait."""
        if self.released:
            return
        self.cancelled = True
        if self._stopping is None:
            self._stopping = self._tasks.spawn("stop", self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        while self._call is not None and not self._call.done():
            self.lane.interrupt()
            await asyncio.wait({self._call}, timeout=INTERRUPT_EVERY_SECONDS)
        if self._call is not None and not self._call.cancelled():
            self._call.exception()  # looked at: whoever waited may be gone
        if self.lane.ended is None:
            await asyncio.shield(self.lane.thread.submit(self.lane.close_reader))
        self._give_back()

    def _give_back(self) -> None:
        self.released = True
        self._release(self)
