"""A Trino door on loopback, a real pipeline and a scripted engine behind it, and an HTTP client."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from queryflux.auth.port import Authenticator
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import TrustAuthenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.engines.port import ConnectionSpec, Engine, EngineConnection, EngineRequest
from queryflux.frontends.trino_http.door import TrinoDoor
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.face import Pipeline
from queryflux.results.answer import Answer, EngineStats
from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.runtime.siblings import Siblings
from queryflux.wire.http1 import Response, ResponseParser, encode_request
from queryflux.wire.trino.native import TrinoFrames, TrinoPage
from tests.kit.clock import settle
from tests.kit.pipelines import Bench, bench
from tests.kit.scripted import ScriptedConnection, ScriptedEngine

TAG = "test2"
MANY = 1 << 30


class Client:
    """One kept-alive connection."""

    def __init__(self, stream: ByteStream, user: str) -> None:
        self.stream = stream
        self.user = user
        self._parser = ResponseParser(MANY)

    async def send(self, data: bytes, method: str = "GET") -> Response:
        """Raw bytes out, one response in."""
        self._parser.expect(method)
        self.stream.write(data)
        return await self.receive()

    async def receive(self) -> Response:
        """The next response."""
        while True:
            data = await self.stream.read()
            response = self._parser.feed(data) if data else self._parser.eof()
            if response is not None:
                return response
            assert data, "the door closed the connection without a response"

    def expect(self, method: str) -> None:
        """A request of this method goes out by other means."""
        self._parser.expect(method)

    def request(self, method: str, target: str, body: bytes | None = None, **headers: str) -> bytes:
        """A request; header names are written with underscores."""
        named = {"Host": "door:8080", "X-Trino-User": self.user}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        return encode_request(method, target, [(n, v) for n, v in named.items() if v], body)

    async def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Response:
        """One request, one response. ``target`` may be a whole URI."""
        parts = urlsplit(target)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return await self.send(self.request(method, path, body, **headers), method)

    async def post(self, sql: str, **headers: str) -> dict[str, Any]:
        """Submit; the document."""
        response = await self.ask("POST", "/v1/statement", sql.encode(), **headers)
        assert response.status == 200, response.body
        return document(response)

    async def rows(self, sql: str, **headers: str) -> list[list[Any]]:
        """All rows of a statement that does not fail."""
        page = await self.post(sql, **headers)
        rows = page.get("data", [])
        while "nextUri" in page:
            page = document(await self.ask("GET", page["nextUri"]))
            rows += page.get("data", [])
        assert "error" not in page, page["error"]
        return cast(list[list[Any]], rows)


def document(response: Response) -> dict[str, Any]:
    """A response's JSON."""
    return cast(dict[str, Any], json.loads(response.body))


@dataclass
class Served:
    """The door and what stands behind it."""

    door: TrinoDoor
    bench: Bench
    clients: list[ByteStream]

    async def client(self, user: str = "ann") -> Client:
        """A new connection."""
        stream = await connect("127.0.0.1", self.door.port)
        self.clients.append(stream)
        return Client(stream, user)

    async def advance(self, seconds: float) -> None:
        """Let the clock go on, and what travels over loopback arrive."""
        await arrive()
        await self.bench.clock.advance(seconds)
        await arrive()


async def arrive() -> None:
    """Let bytes cross loopback, in both directions."""
    for _ in range(5):
        await settle()
        await asyncio.sleep(0.001)


@asynccontextmanager
async def served(
    *engines: Engine,
    auth: Callable[[Bench], Authenticator] | None = None,
    pipeline: Pipeline | None = None,
    config: ListenerConfig | None = None,
    external: str | None = None,
    siblings: Siblings | None = None,
    **group: Any,
) -> AsyncIterator[Served]:
    """A door over one group of engines. Nothing of it is left afterwards."""
    tag = siblings.tag if siblings is not None else TAG
    before = {task for task in asyncio.all_tasks() if not task.done()}
    behind = bench(*(engines or (ScriptedEngine(),)), tag=tag, **group)
    clock = behind.clock
    trust = TrustAuthenticator(required=False, allow_plaintext=False, tokens=Tokens(clock))
    authenticator = auth(behind) if auth is not None else trust
    door = TrinoDoor(
        config or ListenerConfig(host="127.0.0.1"),
        pipeline or behind.pipeline,
        lambda: authenticator,
        behind.metrics,
        clock,
        tag,
        None,
        external,
        siblings=siblings,
    )
    await door.start()
    running = Served(door, behind, [])
    try:
        yield running
    finally:
        for stream in running.clients:
            stream.abort()
        await arrive()
        await door.close()
        await behind.pipeline.close()
        await arrive()
    behind.assert_idle()
    left = {task for task in asyncio.all_tasks() if not task.done()} - before - {asyncio.current_task()}
    assert siblings is not None or not left, left  # with a sibling in this loop there is more


class RelayEngine(ScriptedEngine):
    """Speaks Trino: every statement is answered with ``pages``, after ``gate``; the first of them comes with
    the acceptance where it is ``at_once``. ``refusal`` is raised instead of an answer."""

    def __init__(self, pages: list[TrinoPage | Exception], *, at_once: bool = False) -> None:
        super().__init__("relay", dialect="trino", native=ClientProtocol.TRINO_HTTP)
        self.pages = pages
        self.at_once = at_once
        self.gate: asyncio.Event | None = None
        self.refusal: Exception | None = None
        self.completes = True
        """Its answers say so when they are complete."""
        self.pulled = 0
        self.partially_cancelled: list[str] = []
        self.heartbeats = 0
        self.closed_answers = 0
        self.failure: Exception | None = None

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        connection = RelayConnection(self)
        self.connections.append(connection)
        return connection


class RelayConnection(ScriptedConnection):
    """A connection of a RelayEngine."""

    def __init__(self, engine: RelayEngine) -> None:
        super().__init__(engine)
        self._relay = engine

    async def execute(self, request: EngineRequest) -> Answer:
        assert not self.closed, "execute on a closed connection"
        self._relay.requests.append(request)
        if self._relay.gate is not None:
            self._begin()
            try:
                await self.wait_or_cancel(self._relay.gate.wait())
            finally:
                self.finish()
        if self._relay.refusal is not None:
            raise self._relay.refusal
        return Pages(self._relay)


class Pages(TrinoFrames):
    """The answer of a RelayEngine."""

    protocol = ClientProtocol.TRINO_HTTP

    def __init__(self, engine: RelayEngine) -> None:
        self.stats = EngineStats()
        self._engine = engine
        self._pages = iter(engine.pages)
        self._first = engine.at_once
        self.failure = engine.failure

    def take(self) -> object | None:
        first, self._first = self._first, False
        if not first or not isinstance(self._engine.pages[0], TrinoPage):
            return None
        self.complete = self._engine.completes and self._engine.pages[0].next_uri is None
        return next(self._pages)

    async def next(self) -> object | None:
        self._first = False
        self._engine.pulled += 1
        page = next(self._pages, None)
        if isinstance(page, Exception):
            raise page
        return page

    async def close(self) -> None:
        self._engine.closed_answers += 1

    async def partial_cancel(self, uri: str) -> None:
        self._engine.partially_cancelled.append(uri)

    async def heartbeat(self) -> None:
        self._engine.heartbeats += 1


def coordinator_page(
    token: int, *, last: bool = False, data: str = "[[1]]", state: str = "RUNNING"
) -> TrinoPage:
    """A page as a coordinator writes it."""
    uri = f"http://coordinator:8080/v1/statement/executing/q1/y9/{token + 1}"
    following = "" if last else f'"partialCancelUri":"http://coordinator:8080/pc/{token}","nextUri":"{uri}",'
    body = (
        f'{{"id":"20240101_000000_00001_trino","infoUri":"http://coordinator:8080/ui/query.html?q1",{following}'
        f'"columns":[{{"name":"_col0","type":"integer"}}],"data":{data},'
        f'"stats":{{"state":"{state}"}},"warnings":[]}}'
    )
    return TrinoPage(body.encode(), (), None if last else uri)
