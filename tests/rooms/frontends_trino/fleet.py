"""Two Trino doors on loopback over one store of claims in memory, on one clock that tests move, and a
coordinator that keeps its results as Trino does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from queryflux.admission.memory import Ledger
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import TrustAuthenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.engines.port import ConnectionSpec, Engine, EngineConnection, EngineRequest
from queryflux.frontends.trino_http.door import TrinoDoor
from queryflux.model.errors import EngineConnectionLost
from queryflux.model.protocol import ClientProtocol
from queryflux.pipeline.claims import Claims
from queryflux.results.answer import Answer, EngineStats
from queryflux.runtime.bytestream import ByteStream, connect
from queryflux.wire.http1 import Response
from queryflux.wire.trino.native import TrinoFrames, TrinoPage
from tests.kit.claims import MemoryClaims, MemoryClaimStore, StoredRow
from tests.kit.clock import ManualClock
from tests.kit.pipelines import Bench, bench
from tests.kit.scripted import ScriptedConnection, ScriptedEngine
from tests.rooms.frontends_trino.served import Client, arrive, document


@dataclass
class Coordinator:
    """Keeps one result in so many pages. A page can be had again until the one after it is asked for."""

    pages: int = 5
    last: int = -1
    asked: list[int] = field(default_factory=list)
    posts: int = 0
    deleted: int = 0

    @staticmethod
    def uri(token: int) -> str:
        return f"http://lake:8080/v1/statement/executing/t1/y{token * 7}/{token}"

    def get(self, token: int) -> TrinoPage:
        if token not in (self.last, self.last + 1):
            raise EngineConnectionLost(f"page {token} has gone, {self.last} was the last")
        self.last = token
        self.asked.append(token)
        following = self.uri(token + 1) if token + 1 < self.pages else None
        state = "RUNNING" if following else "FINISHED"
        page: dict[str, Any] = {"id": "t1", "infoUri": "http://lake:8080/ui/t1"}
        if following:
            page["nextUri"] = following
        page |= {"columns": [], "data": [[token]], "stats": {"state": state}}
        return TrinoPage(json.dumps(page, separators=(",", ":")).encode(), (), following)


class KeptFrames(TrinoFrames):
    """A result at a Coordinator, from a page on."""

    protocol = ClientProtocol.TRINO_HTTP

    def __init__(self, coordinator: Coordinator, token: int, had: int = 0) -> None:
        self.stats = EngineStats()
        self._coordinator = coordinator
        self._token = token
        self._had = had
        self._open = True

    async def next(self) -> TrinoPage | None:
        while self._open:
            page = self._coordinator.get(self._token)
            self._token += 1
            self._open = page.next_uri is not None
            if not self._had:
                return page
            self._had -= 1
        return None

    def detach(self) -> bool:
        self._open = False
        return True

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._coordinator.deleted += 1

    async def partial_cancel(self, uri: str) -> None:
        """There are no stages."""

    async def heartbeat(self) -> None:
        """It forgets nothing."""


class LakeEngine(ScriptedEngine):
    """One process's adapter of the coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__("lake", dialect="trino", native=ClientProtocol.TRINO_HTTP)
        self.coordinator = coordinator

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        return LakeConnection(self)


class LakeConnection(ScriptedConnection):
    """Runs statements there."""

    def __init__(self, engine: LakeEngine) -> None:
        super().__init__(engine)
        self._lake = engine

    async def execute(self, request: EngineRequest) -> Answer:
        self._lake.requests.append(request)
        self._lake.coordinator.posts += 1
        return KeptFrames(self._lake.coordinator, 0)

    def resume(self, request: EngineRequest, uri: str, had: int) -> Answer:
        token = int(uri.rpartition("/")[2])
        assert uri == Coordinator.uri(token), "an address that the coordinator did not give"
        return KeptFrames(self._lake.coordinator, token, had)


@dataclass
class Process:
    """One of the two."""

    name: str
    bench: Bench
    store: MemoryClaimStore
    claims: Claims
    door: TrinoDoor
    client: Client

    async def ask(self, method: str, uri: str, **headers: str) -> Response:
        """One request about a statement, on a connection of its own as a balancer may make it."""
        stream = await connect("127.0.0.1", self.door.port)
        try:
            return await Client(stream, "ann").ask(method, urlsplit(uri).path, None, **headers)
        finally:
            stream.abort()

    async def page(self, uri: str) -> dict[str, Any]:
        """The page at a URI."""
        response = await self.ask("GET", uri)
        assert response.status == 200, response.body
        return document(response)


@dataclass
class Fleet:
    """Both of them, on one clock."""

    clock: ManualClock
    shared: MemoryClaims
    a: Process
    b: Process

    async def advance(self, seconds: float) -> None:
        """Let the clock go on, and what travels over loopback arrive."""
        await arrive()
        await self.clock.advance(seconds)
        await arrive()

    async def meanwhile(self, asking: Any, seconds: float) -> Any:
        """What is asked, while so much time passes."""
        task = asyncio.ensure_future(asking)
        await self.advance(seconds)
        return await task

    def only_row(self) -> StoredRow:
        """The row of the only query that has one."""
        (row,) = self.shared.rows.values()
        return row

    @property
    def records(self) -> list[tuple[str, str]]:
        """Of both: who wrote it, and how it ended."""
        return [
            (process.name, record.status.value)
            for process in (self.a, self.b)
            for record in process.bench.records
        ]


@asynccontextmanager
async def fleet(a: Engine, b: Engine, *, reachable: bool = True, **group: Any) -> AsyncIterator[Fleet]:
    """Two processes with an engine each. Nothing of them is left afterwards."""
    clock = ManualClock()
    shared = MemoryClaims(Ledger(clock))
    streams: list[ByteStream] = []

    async def process(name: str, engine: Engine) -> Process:
        behind = bench(engine, clock=clock, tag=f"proc{name}", **group)
        store = MemoryClaimStore(shared, name)
        claims = Claims(store, clock, behind.metrics, reachable=reachable)
        trust = TrustAuthenticator(required=False, allow_plaintext=False, tokens=Tokens(clock))
        door = TrinoDoor(
            ListenerConfig(host="127.0.0.1"),
            behind.pipeline,
            lambda: trust,
            behind.metrics,
            clock,
            f"proc{name}",
            claims=claims,
        )
        await door.start()
        await claims.start()
        store.address = f"127.0.0.1:{door.port}" if reachable else None
        stream = await connect("127.0.0.1", door.port)
        streams.append(stream)
        return Process(name, behind, store, claims, door, Client(stream, "ann"))

    made = Fleet(clock, shared, await process("a", a), await process("b", b))
    try:
        yield made
    finally:
        for stream in streams:
            stream.abort()
        await arrive()
        for one in (made.a, made.b):
            await one.bench.pipeline.close()
            await one.door.close()
            await one.claims.close()
            one.bench.assert_idle()
    assert not shared.rows
