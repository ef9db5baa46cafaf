"""Stores of worker rows for the contract: in memory, and on both versions of PostgreSQL."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from queryflux.fleet.registry import RegistryStore
from queryflux.persistence.memory_registry import MemoryRegistryStore
from queryflux.persistence.postgres.registry import PostgresRegistryStore
from tests.kit.clock import ManualClock
from tests.kit.databases import DATABASES, Database, new_database

KINDS = ("memory", *DATABASES)


class Opened(NamedTuple):
    """A store without rows; ``wait`` lets so many seconds pass for it. ``database`` is what it is in, if it
    is in one."""

    store: RegistryStore
    wait: Callable[[float], Awaitable[None]]
    database: Database | None = None


@asynccontextmanager
async def open_registry(kind: str) -> AsyncIterator[Opened]:
    """A new store of a kind."""
    if kind == "memory":
        clock = ManualClock()
        yield Opened(MemoryRegistryStore(clock), clock.advance)
        return
    with new_database(kind) as database:
        async with database.pool() as pool:

            async def wait(seconds: float) -> None:
                """Time passes by making everything older."""
                database.rows(
                    f"UPDATE worker_registry SET registered_at = registered_at - interval '{seconds} s', "
                    f"last_seen_at = last_seen_at - interval '{seconds} s'"
                )

            yield Opened(PostgresRegistryStore(pool), wait, database)
