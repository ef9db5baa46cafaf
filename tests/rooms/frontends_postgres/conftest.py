"""A PostgreSQL door over a whole pipeline with a scripted engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from queryflux.auth.port import Authenticator
from queryflux.auth.tokens import Tokens
from queryflux.auth.trust import TrustAuthenticator
from queryflux.config.listeners import ListenerConfig
from queryflux.frontends.postgres.door import PostgresDoor
from tests.kit.clock import ManualClock
from tests.kit.pipelines import Bench, bench
from tests.kit.scripted import ScriptedEngine
from tests.rooms.frontends_postgres.raw_client import RawClient


def trusting() -> Authenticator:
    """Takes everybody at their word."""
    return TrustAuthenticator(required=False, allow_plaintext=False, tokens=Tokens(ManualClock()))


@dataclass
class Room:
    """A door, what is behind it, and a way to connect."""

    door: PostgresDoor
    bench: Bench
    engine: ScriptedEngine
    clients: list[RawClient] = field(default_factory=list)

    async def client(self, **parameters: Any) -> RawClient:
        """A client that has started up; closed at the end of the test."""
        client = await RawClient.start(self.door.port, **parameters)
        self.clients.append(client)
        return client

    async def connect(self) -> RawClient:
        """A client that has said nothing yet; closed at the end of the test."""
        client = await RawClient.open(self.door.port)
        self.clients.append(client)
        return client

    async def idle(self) -> None:
        """Returns when no connection is left; nothing may run or be held then."""
        await until(lambda: not self.door.connections)
        self.bench.assert_idle()


async def until(what: Callable[[], object]) -> None:
    """Return when ``what`` holds; fails after some seconds."""
    async with asyncio.timeout(10):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


OpenRoom = Callable[..., Awaitable[Room]]


@asynccontextmanager
async def _open(
    engine: ScriptedEngine, auth: Authenticator, settings: dict[str, Any], door: dict[str, Any]
) -> AsyncIterator[Room]:
    made = bench(engine, **settings)
    config = ListenerConfig(host="127.0.0.1", max_connections=door.pop("max_connections", None))
    tag = door["siblings"].tag if "siblings" in door else "test2"
    served = PostgresDoor(config, made.pipeline, lambda: auth, made.metrics, tag, **door)
    await served.start()
    room = Room(served, made, engine)
    try:
        yield room
    finally:
        for client in room.clients:
            client.close()
        await served.close()
        await made.pipeline.close()
        assert all(connection.closed for connection in engine.connections)


@pytest.fixture
async def open_room() -> AsyncIterator[OpenRoom]:
    """Opens doors: ``await open_room(engine, auth, door={...}, **bench settings)``."""
    rooms = []

    async def opened(
        engine: ScriptedEngine | None = None,
        auth: Authenticator | None = None,
        door: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Room:
        manager = _open(
            engine or ScriptedEngine(dialect="postgres"), auth or trusting(), settings, dict(door or {})
        )
        room = await manager.__aenter__()
        rooms.append(manager)
        return room

    yield opened
    for manager in reversed(rooms):
        await manager.__aexit__(None, None, None)
