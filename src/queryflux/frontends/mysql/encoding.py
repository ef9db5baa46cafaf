"""Threads that encode large pieces of results and read long texts, so that the loop never waits for one."""

import os
from collections.abc import Callable
from typing import TypeVar

from queryflux.runtime.threads import LaneThread

T = TypeVar("T")

LONG_TEXT = 64 << 10
"""Characters of a statement from which on its tokens are looked at on a thread."""
_MOST = 4


class EncodingThreads:
    """A few threads shared by the connections of a door, made when first needed."""

    def __init__(self) -> None:
        self._threads: list[LaneThread] = []
        self._next = 0
        self._most = min(os.cpu_count() or 1, _MOST)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call ``function`` on one of them."""
        if len(self._threads) < self._most:
            self._threads.append(LaneThread(f"mysql-rows-{len(self._threads)}"))
        self._next = (self._next + 1) % len(self._threads)
        return await self._threads[self._next].run(function, *arguments)

    async def read(self, function: Callable[..., T], text: str, *arguments: object) -> T:
        """Call ``function(text, ...)``, on one of them if the text is long."""
        if len(text) < LONG_TEXT:
            return function(text, *arguments)
        return await self.run(function, text, *arguments)

    async def close(self) -> None:
        """Return when none of them is left."""
        threads, self._threads = self._threads, []
        for thread in threads:
            await thread.join()
