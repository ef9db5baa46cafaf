"""What a client is about to be sent: gathered, so that a batch of messages is one write."""

import asyncio

from queryflux.runtime.bytestream import ByteStream

FLUSH_BYTES = 64 * 1024

Bytes = bytes | memoryview


class Outbox:
    """Bytes on their way to one client."""

    __slots__ = ("_loop", "_parts", "_scheduled", "_size", "_stream")

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._parts: list[Bytes] = []
        self._size = 0
        self._scheduled: asyncio.Handle | None = None
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
        """Wait for the client once enough is queued. Raises ConnectionError when it has gone."""
        if self._size >= FLUSH_BYTES:
            self.flush()
            await self._stream.drain()
