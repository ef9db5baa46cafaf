"""History stores for tests, by kind."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from queryflux.history.memory import MemoryHistory
from queryflux.history.port import DurableHistoryStore, HistoryStore
from queryflux.history.record import QueryRecord
from queryflux.history.stored import Digests, StoredQuery, stored_form
from queryflux.persistence.memory_history import MemoryHistoryStore
from queryflux.persistence.postgres.history import PostgresHistoryStore
from queryflux.persistence.sqlite.database import SqliteDatabase
from queryflux.persistence.sqlite.history import SqliteHistoryStore
from tests.kit.databases import DATABASES, new_database

DURABLE = ("sqlite", *DATABASES)
STORES = ("memory", *DURABLE)


def plain_form(record: QueryRecord) -> StoredQuery:
    """The stored form, without digests."""
    return stored_form(record, Digests(None, None, None))


@dataclass(frozen=True)
class Durable:
    """A store that outlives its process. ``rows`` looks behind its back; ``stop`` and ``start`` are of what
    keeps it."""

    store: DurableHistoryStore
    rows: Callable[[str], list[tuple[Any, ...]]]
    stop: Callable[[], Awaitable[None]]
    start: Callable[[], Awaitable[None]]


@asynccontextmanager
async def open_store(kind: str, folder: Path) -> AsyncIterator[HistoryStore]:
    """A store of a kind, new and empty when the folder is."""
    if kind == "memory":
        yield MemoryHistoryStore(MemoryHistory(1000), plain_form, 1000)
    else:
        async with open_durable(kind, folder) as durable:
            yield durable.store


@asynccontextmanager
async def open_durable(kind: str, folder: Path) -> AsyncIterator[Durable]:
    """One of DURABLE, new and empty when the folder is."""
    if kind == "sqlite":
        async with _open_sqlite(folder / "queryflux.db") as durable:
            yield durable
    else:
        with new_database(kind) as database:
            async with database.pool() as pool:
                server = database.server

                async def start() -> None:
                    server.start()  # in this thread: the server ends with the thread that started it

                stop = partial(asyncio.to_thread, server.stop)
                yield Durable(PostgresHistoryStore(pool), database.rows, stop, start)


@asynccontextmanager
async def _open_sqlite(path: Path) -> AsyncIterator[Durable]:
    database = SqliteDatabase(str(path))
    await database.open()

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    try:
        store = SqliteHistoryStore(database)
        await store.open()
        yield Durable(store, rows, database.close, database.open)
    finally:
        await database.close()
