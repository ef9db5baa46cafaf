"""What a client is about to be sent: gathered, so that a batch of messages is one write."""

import asyncio
import logging

from queryflux.runtime.bytestream import ByteStream

log = logging.getLogger(__name__)

FLUSH_BYTES = 64 * 1024
STALL_SECONDS = 300.0
"""How long a client may take nothing of what is written for it. One that reads slowly takes something."""

Bytes = bytes | memoryview


class Outbox:
    """Bytes on their way to one client."""

    __slots__ = ("_loop", "_parts", "_scheduled", "_size", "_stall_seconds", "_stream")

    def __init__(self, stream: ByteStream, stall_seconds: float = STALL_SECONDS) -> None:
        self._stream = stream
        self._parts: list[Bytes] = []
        self._size = 0
        self._scheduled: asyncio.Handle | None = None
        self._stall_seconds = stall_seconds
        self._loop = asyncio.get_running_loop()

    @property
    def full(self) -> bool:
        """So much is queued that ``room`` would wait for the client."""
        return self._size >= FLUSH_BYTES

    def add(self, data: Bytes) -> None:
        """Queue bytes; they stay here until ``flush``."""
        self._parts.append(data)
        self._size += len(data)

    def flush(self) -> None:
        """Write what is queued."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        if not self._parts:
            return
        if len(self._parts) == 1:
            self._stream.write(self._parts[0])
        elif self._size <= FLUSH_BYTES:
            self._stream.write(b"".join(self._parts))
        else:
            for part in self._parts:
                self._stream.write(part)
        self._parts.clear()
        self._size = 0

    def soon(self) -> None:
        """Write it when this task next waits for something: what follows at once shares the write."""
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._due)

    def _due(self) -> None:
        self._scheduled = None
        self.flush()

    async def room(self) -> None:
        """Wait for the client once enough is queued. Raises as ``drain``."""
        if self._size >= FLUSH_BYTES:
            self.flush()
            await self.drain()

    async def drain(self) -> None:
        """Wait until the client has taken enough of what was written. Raises ConnectionError when it has
        gone, or has taken nothing for ``stall_seconds``: it is then cut, and its query ends."""
        unsent = self._stream.unsent
        while True:
            try:
                async with asyncio.timeout(self._stall_seconds):
                    await self._stream.drain()
                return
            except TimeoutError:
                before, unsent = unsent, self._stream.unsent
            if unsent >= before:
                seconds = f"{self._stall_seconds:g}"
                log.info(
                    "a PostgreSQL client took nothing for %s s and is cut: %s", seconds, self._stream.peer
                )
                self._stream.abort()
                raise ConnectionAbortedError(f"the client has taken nothing for {seconds} s")
