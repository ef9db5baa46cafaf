"""Named groups of background tasks: nothing is fired and forgotten, a failure is logged, a close waits."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from queryflux.runtime.clock import Clock

log = logging.getLogger(__name__)


class TaskGroup:
    """Background tasks that belong to one owner and end with it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run ``work`` in the background. Raises RuntimeError once the group is closed."""
        if self._closed:
            work.close()
            raise RuntimeError(f"{self._name} is closed")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task %s failed", task.get_name(), exc_info=error)

    async def wait(self) -> None:
        """Return when every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel what is left and return when all of it has ended."""
        self._closed = True
        current = asyncio.current_task()
        while others := [task for task in self._tasks if task is not current]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)


async def done_within(task: "asyncio.Task[Any]", seconds: float, clock: Clock) -> bool:
    """Wait for a task, but no longer than so; whether it is done. It goes on."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(*_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    timer = clock.call_later(seconds, wake)
    try:
        await waiter
    finally:
        timer.cancel()
        task.remove_done_callback(wake)
    return task.done()
