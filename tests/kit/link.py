"""A TCP link between an engine and its server that a test can slow, stall, cut or fill with garbage."""

import asyncio
import contextlib
from types import TracebackType


class Link:
    """Forwards ``port`` on loopback to a target. Use it as an async context manager.

    ``cut_after`` and ``garble_after`` count bytes that the server has sent on one connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flow = asyncio.Event()
        self._flow.set()
        self.port = 0
        self.accepted = 0
        self.refuse = False
        self.delay = 0.0
        self.cut_after: int | None = None
        self.garble_after: int | None = None
        self._stranded = 0

    async def __aenter__(self) -> "Link":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self._flow.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def open(self) -> int:
        """Connections that stand."""
        return len(self._writers) // 2

    def cut(self) -> None:
        """Reset every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Nothing that the server sends gets through until ``resume``."""
        self._flow.clear()

    def resume(self) -> None:
        """Let it flow again."""
        self._flow.set()

    def strand(self) -> None:
        """What is sent from now on over connections that stand is lost, both ways, and nobody is told; new
        ones work."""
        self._stranded = self.accepted

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        if self.refuse:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, up_writer}
            try:
                await asyncio.gather(
                    self._upstream(reader, up_writer, number), self._downstream(up_reader, writer, number)
                )
            finally:
                self._writers -= {writer, up_writer}
                writer.transport.abort()
                up_writer.transport.abort()

    async def _upstream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if number <= self._stranded:
                    continue
                writer.write(data)
                await writer.drain()
        await self._end(writer, number)

    async def _downstream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        seen = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flow.wait()
                if number <= self._stranded:
                    continue
                if self.delay:
                    await asyncio.sleep(self.delay)
                if self.garble_after is not None and seen + len(data) > self.garble_after:
                    keep = max(0, self.garble_after - seen)
                    data = data[:keep] + b"\xff" * (len(data) - keep)
                if self.cut_after is not None and seen + len(data) > self.cut_after:
                    writer.write(data[: max(0, self.cut_after - seen)])
                    await writer.drain()
                    self.cut()
                    return
                seen += len(data)
                writer.write(data)
                await writer.drain()
        await self._end(writer, number)

    async def _end(self, writer: asyncio.StreamWriter, number: int) -> None:
        """One end says no more; the other hears of it, unless that is lost too."""
        if number <= self._stranded:
            await asyncio.Event().wait()
        with contextlib.suppress(OSError):
            writer.write_eof()
