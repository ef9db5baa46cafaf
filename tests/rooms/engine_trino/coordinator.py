"""A coordinator that does what a test says, and is no kinder than a network: it sends in pieces of any size,
in chunks, late, half, or not at all, and closes when it likes."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from queryflux.config.clusters import ClusterConfig
from queryflux.engines.port import ConnectionSpec, EngineRequest
from queryflux.engines.trino import build
from queryflux.engines.trino.engine import TrinoEngine
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.results.answer import Answer, Batches, Frames
from queryflux.runtime.bytestream import ByteStream
from queryflux.runtime.clock import Clock, SystemClock
from queryflux.wire.http1 import Request, RequestParser
from queryflux.wire.trino.native import TrinoPage, TrinoStatement

WHO = VerifiedIdentity("alice")
SESSION = Session(ClientProtocol.POSTGRES_WIRE)


@dataclass
class Reply:
    """What to answer. ``piece`` cuts the bytes into so many at a time; ``cut_at`` sends only so many and
    resets; ``wait`` holds it back; ``close`` ends the connection after it."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    chunked: bool = False
    piece: int = 0
    cut_at: int | None = None
    wait: asyncio.Event | None = None
    close: bool = False
    raw: bytes | None = None

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        lines = [f"HTTP/1.1 {self.status} Said", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines.append("Transfer-Encoding: chunked" if self.chunked else f"Content-Length: {len(self.body)}")
        body = self.body
        if self.chunked:
            parts = [body[at : at + 7] for at in range(0, len(body), 7)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


Script = Callable[[Request], Reply]


@dataclass
class Coordinator:
    """Answers by its script and remembers what it was asked."""

    script: Script
    port: int = 0
    seen: list[Request] = field(default_factory=list)
    streams: set[ByteStream] = field(default_factory=set)
    connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def connected(self, stream: ByteStream) -> None:
        self.connections += 1
        self.streams.add(stream)
        task = asyncio.get_running_loop().create_task(self._serve(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: ByteStream) -> None:
        parser = RequestParser(1 << 24)
        while data := await stream.read():
            parser.feed(data)
            while parser.requests and parser.requests[0].complete:
                request = parser.requests.popleft()
                self.seen.append(request)
                if not await self._answer(stream, self.script(request)):
                    return
        stream.close()

    async def _answer(self, stream: ByteStream, reply: Reply) -> bool:
        if reply.wait is not None:
            await reply.wait.wait()
        raw = reply.encoded()
        if reply.cut_at is not None:
            stream.write(raw[: reply.cut_at])
            stream.close()
            return False
        step = reply.piece or len(raw)
        for at in range(0, len(raw), step):
            stream.write(raw[at : at + step])
            await asyncio.sleep(0)
        if reply.close:
            stream.close()
        return not reply.close

    def asked(self, method: str) -> list[str]:
        """Targets of the requests of a method, in order."""
        return [request.target for request in self.seen if request.method == method]

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for stream in self.streams:
            stream.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def coordinator(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Coordinator]:
    """A coordinator on a free port of loopback."""
    found = Coordinator(script)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ByteStream(found.connected), "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.stop()
        await server.wait_closed()


async def asked_for(there: Coordinator, count: int) -> None:
    """Return when so many requests have come and their answers have been read."""
    async with asyncio.timeout(10):
        while len(there.seen) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)


def page(number: int | None, **more: Any) -> bytes:
    """A page; ``number`` is that of the next one, None on the last. ``nextUri`` names a host that does not
    exist: follow-ups must not go there."""
    document: dict[str, Any] = {
        "id": "20261129_213144_00042_abcde",
        "infoUri": "http://coordinator.invalid/ui",
    }
    if number is not None:
        document["nextUri"] = f"http://coordinator.invalid:1/v1/statement/executing/q/s/{number}?x=1"
    document |= {"stats": {"state": "RUNNING" if number is not None else "FINISHED"}, **more}
    return json.dumps(document).encode()


INTEGER = {"rawType": "integer", "arguments": []}
COLUMNS = [{"name": "n", "type": "integer", "typeSignature": INTEGER}]


def rows(*values: int) -> dict[str, Any]:
    """The part of a page that holds rows."""
    return {"columns": COLUMNS, "data": [[value] for value in values]}


def number_of(request: Request) -> int:
    """Which page a follow-up asks for."""
    return int(request.target.partition("?")[0].rpartition("/")[2])


def pages(*found: bytes) -> Script:
    """POST gives the first page, each GET the one it names, DELETE nothing."""

    def script(request: Request) -> Reply:
        if request.method == "POST":
            return Reply(found[0])
        if request.method == "GET":
            return Reply(found[number_of(request)])
        return Reply(status=204)

    return script


THREE_PAGES = (page(1), page(2, **rows(1, 2)), page(None, **rows(3)))


class Talk:
    """One client of one engine."""

    def __init__(self, engine: TrinoEngine, session: Session = SESSION) -> None:
        self.engine = engine
        self.session = session
        self.native = TrinoStatement((("x-trino-catalog", "tpch"), ("x-trino-session", "a=b")))
        self.connection = engine.connect(ConnectionSpec(WHO, session))

    def request(self, sql: str, *, native: bool = False, **more: Any) -> EngineRequest:
        return EngineRequest("q", sql, self.session, WHO, native=self.native if native else None, **more)

    async def execute(self, sql: str, *, native: bool = False) -> Answer:
        return await self.connection.execute(self.request(sql, native=native))

    async def values(self, sql: str = "SELECT n") -> list[Any]:
        """The first column of an answer in Arrow."""
        answer = await self.execute(sql)
        assert isinstance(answer, Batches)
        found: list[Any] = []
        while (batch := await answer.next()) is not None:
            found.extend(batch.column(0).to_pylist())
        return found

    async def pages(self, sql: str = "SELECT n") -> list[TrinoPage]:
        """All pages of an answer that is relayed."""
        answer = await self.execute(sql, native=True)
        assert isinstance(answer, Frames)
        found: list[TrinoPage] = []
        while (frame := await answer.next()) is not None:
            assert isinstance(frame, TrinoPage)
            found.append(frame)
        return found


def engine_at(port: int, clock: Clock | None = None, *, path: str = "", **more: Any) -> TrinoEngine:
    config = ClusterConfig(engine="trino", endpoint=f"http://127.0.0.1:{port}{path}", **more)
    return build("trino", config, clock or SystemClock())


Use = Callable[[Coordinator, Talk], Awaitable[None]]


@asynccontextmanager
async def talk(
    script: Script, clock: Clock | None = None, **more: Any
) -> AsyncIterator[tuple[Coordinator, Talk]]:
    """A coordinator, and a client of an engine on it. Nothing may be left at the end."""
    async with coordinator(script) as found:
        engine = engine_at(found.port, clock, **more)
        yield found, Talk(engine)
        await engine.close()
        assert len(engine.tasks) == 0
