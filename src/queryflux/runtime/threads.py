"""Threads of one's own for calls that block (DuckDB, ADBC): never the loop's default executor.

A LaneThread runs calls one after another; a running query owns one, so that a slow neighbour cannot keep it
from being read or interrupted.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class LaneThread:
    """One thread, one call at a time, in order. Made and called from one loop."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended.set_result, None)

    def submit(self, function: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Queue ``function(*args)``. The future gets its result even when nobody waits for it any more;
        cancelling the future does not stop the call. Raises RuntimeError once closed."""
        if self._closed:
            raise RuntimeError("the thread is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def call() -> None:
            try:
                result = function(*args)
            except BaseException as error:
                outcome: tuple[T | None, BaseException | None] = (None, error)
            else:
                outcome = (result, None)
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, *outcome)

        self._calls.put(call)
        return future

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Queue a call and wait for it. If the waiter is cancelled the call goes on."""
        return await asyncio.shield(self.submit(function, *args))

    def close(self) -> None:
        """No further calls; the thread ends after those queued. Does not wait."""
        if not self._closed:
            self._closed = True
            self._calls.put(None)

    async def join(self) -> None:
        """Return when the thread has ended."""
        self.close()
        await asyncio.shield(self._ended)
        self._thread.join()  # it has said its last word: this takes microseconds


async def in_thread(name: str, function: Callable[..., T], *args: Any) -> T:
    """Run one long computation on a thread of its own. If the waiter is cancelled it goes on to its end."""
    lane = LaneThread(name)
    try:
        return await lane.run(function, *args)
    finally:
        lane.close()
