"""Telling the listeners of one process that something has changed."""

import asyncio
from collections.abc import AsyncGenerator


class Notices:
    """A bell. Who listens hears it at least once after each ring; rings that nobody waited for are one."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Event] = set()

    def ring(self) -> None:
        """Something has changed."""
        for listener in self._listeners:
            listener.set()

    async def listen(self) -> AsyncGenerator[None, None]:
        """Yields at once, and after each ring."""
        event = asyncio.Event()
        event.set()
        self._listeners.add(event)
        try:
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            self._listeners.discard(event)
