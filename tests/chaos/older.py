"""A process of an older version: it takes the clusters' lock and writes lease rows itself.

BEGIN, the lock, COUNT(*), INSERT, COMMIT; releases its rows one by one and renews them by its instance. It
knows of no counter and notices no lost lease. Commands as those of worker.py, without ``full``.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from random import Random

import asyncpg
import uvloop

from tests.chaos.engine import EngineLink, connect_engine
from tests.chaos.worker import RENEW_SECS, STATEMENT_SECS, Settings

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || $1, 0))"
COUNT = "SELECT count(*) FROM cluster_capacity_leases WHERE cluster_name = $1"
INSERT = """
INSERT INTO cluster_capacity_leases (query_id, cluster_name, instance_id, acquired_at, heartbeat_at)
VALUES ($1, $2, $3, now(), now())
"""
RELEASE = "DELETE FROM cluster_capacity_leases WHERE query_id = $1"
RENEW = "UPDATE cluster_capacity_leases SET heartbeat_at = now() WHERE instance_id = $1"
FAULTS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server's last word was being read when the statement was to be sent
    OSError,
    TimeoutError,
)
MOST_PAUSE_SECS = 0.05


class Older:
    """The process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.chance = Random(settings.seed)
        self.ids = itertools.count()
        self.resting = False
        self.done = 0
        self.engine: EngineLink | None = None

    async def connect(self) -> "asyncpg.Connection":
        """A connection, as soon as there is one."""
        while True:
            try:
                return await asyncpg.connect(
                    self.settings.dsn, timeout=STATEMENT_SECS, command_timeout=STATEMENT_SECS + 1
                )
            except FAULTS:
                await asyncio.sleep(0.1)

    async def client(self, name: str) -> None:
        """One query after another, each on the connection of this client."""
        assert self.engine is not None
        connection = await self.connect()
        while not self.resting:
            query_id = f"{self.settings.instance}-{next(self.ids)}"
            began = time.monotonic()
            held = False
            try:
                held = await self.acquire(connection, name, query_id)
            except FAULTS:  # it may be ours; the driver may still be busy with what failed
                connection.terminate()
                connection = await self.release(await self.connect(), query_id)
            if held:
                await self.engine.tell("s", name, query_id, repr(began))
                await asyncio.sleep(self.chance.uniform(0, MOST_PAUSE_SECS))
                await self.engine.tell("e", query_id)
                connection = await self.release(connection, query_id)
                self.done += 1
            await asyncio.sleep(self.chance.uniform(0, MOST_PAUSE_SECS))
        await connection.close()

    async def acquire(self, connection: "asyncpg.Connection", name: str, query_id: str) -> bool:
        """Four round trips. Raises what the driver raises."""
        async with connection.transaction():
            await connection.execute(LOCK, name)
            if await connection.fetchval(COUNT, name) >= self.settings.caps[name]:
                return False
            await connection.execute(INSERT, query_id, name, self.settings.instance)
        return True

    async def release(self, connection: "asyncpg.Connection", query_id: str) -> "asyncpg.Connection":
        """Until it is through; gives the connection it went through on."""
        while True:
            try:
                await connection.execute(RELEASE, query_id)
                return connection
            except FAULTS:
                connection.terminate()
                await asyncio.sleep(0.1)
                connection = await self.connect()

    async def renew(self) -> None:
        """All rows of this instance, for as long as the process lives."""
        connection = await self.connect()
        while True:
            await asyncio.sleep(RENEW_SECS)
            try:
                await connection.execute(RENEW, self.settings.instance)
            except FAULTS:
                connection.terminate()
                connection = await self.connect()

    async def run(self) -> None:
        """Until ``end``."""
        self.engine = await connect_engine(self.settings.engine, self.settings.instance, lambda: os._exit(3))
        names = list(self.settings.caps)
        clients = [
            asyncio.create_task(self.client(names[number % len(names)]))
            for number in range(self.settings.clients)
        ]
        renewals = asyncio.create_task(self.renew())
        print("ready", flush=True)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while words := (await reader.readline()).decode().split():
            match words:
                case ["cap", name, value]:
                    self.settings.caps[name] = int(value)
                case ["rest" | "end"]:
                    self.resting = True
                    await asyncio.gather(*clients)
                case _:
                    raise ValueError(f"what is {words}?")
            print(json.dumps({"done": self.done}), flush=True)
            if words == ["end"]:
                break
        renewals.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewals


if __name__ == "__main__":
    uvloop.run(Older(Settings(**json.loads(sys.argv[1]))).run())
