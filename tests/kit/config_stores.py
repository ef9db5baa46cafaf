"""Configuration stores for tests, by kind."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from queryflux.config.store import ConfigStore
from queryflux.persistence.memory_config import MemoryConfigStore
from queryflux.persistence.sqlite.config import SqliteConfigStore
from queryflux.persistence.sqlite.database import SqliteDatabase
from queryflux.runtime.clock import SystemClock
from tests.kit.databases import DATABASES, Database, new_database

STORES = ("memory", "sqlite", *DATABASES)

Place = Path | Database
"""Where a store keeps what it has: a folder, or a database."""


@contextmanager
def place_of(kind: str, folder: Path) -> Iterator[Place]:
    """A new place for stores of a kind. Skips the test where there is no such server."""
    if kind in DATABASES:
        with new_database(kind) as database:
            yield database
    else:
        yield folder


@asynccontextmanager
async def open_store(kind: str, place: Place) -> AsyncIterator[ConfigStore]:
    """A store over what is there; one in memory is always new."""
    if isinstance(place, Database):
        async with open_postgres(place) as store:
            yield store
    elif kind == "memory":
        yield MemoryConfigStore()
    else:
        database = SqliteDatabase(str(place / "queryflux.db"))
        await database.open()
        try:
            sqlite = SqliteConfigStore(database)
            await sqlite.open()
            yield sqlite
        finally:
            await database.close()


@asynccontextmanager
async def open_postgres(database: Database) -> AsyncIterator[ConfigStore]:
    """A store over a database."""
    from queryflux.persistence.postgres.config import PostgresConfigStore

    async with database.pools() as pools:
        yield PostgresConfigStore(pools, SystemClock())
