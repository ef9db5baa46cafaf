"""What is known of each engine: its list of tables, and stores that are made of it.

The list is asked for at most every ``FRESH_SECS`` seconds, by one caller for all that wait, and put in order
in a thread. A store serves one question at a time; up to ``MAX_RUNNING`` questions about an engine run beside
each other.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from queryflux.engines.port import Capability, ColumnRef, Engine, TableRef
from queryflux.metadata.listing import Listing, listing_of
from queryflux.metadata.session import SessionValues
from queryflux.metadata.store import CatalogStore
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.runtime.threads import in_thread

FRESH_SECS = 5.0
LISTING_SECS = 30.0
"""How long a question waits for the engine's list of tables."""
MAX_STORES = 8
"""Stores of one engine that wait for their next question."""
MAX_RUNNING = 4
POSTGRES_HOME = "public"
_HOMES = {"postgres": POSTGRES_HOME, "duckdb": "main"}


@dataclass
class EngineCatalog:
    """What is kept of one engine. Used from one loop, but for ``take``."""

    engine_name: str
    has_catalogs: bool = False
    """Capability.CATALOGS."""
    home: str = ""
    """The schema of plain names where a client's database is none of the engine's."""
    listed_at: float = float("-inf")
    listing: Listing | None = None
    asking: "asyncio.Task[Listing] | None" = None
    idle: list[CatalogStore] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards ``idle``."""
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_RUNNING))

    async def current(self, engine: Engine) -> Listing:
        """The engine's tables. Raises what the engine raises, and EngineError when it takes too long."""
        loop = asyncio.get_running_loop()
        if self.listing is not None and loop.time() - self.listed_at < FRESH_SECS:
            return self.listing
        if self.asking is None:
            self.asking = loop.create_task(self._ask(engine), name=f"catalog of {engine.name}")
            self.asking.add_done_callback(lambda task: self._told(task, loop.time()))
        try:
            async with asyncio.timeout(LISTING_SECS):
                return await asyncio.shield(self.asking)
        except TimeoutError:
            raise EngineError(
                f"{self.engine_name} did not list its tables within {LISTING_SECS:g} s.",
                kind=EngineErrorKind.RESOURCES,
                hint="ask again in a while: the list is still being made",
            ) from None

    def _told(self, task: "asyncio.Task[Listing]", now: float) -> None:
        self.asking = None
        if task.cancelled() or task.exception() is not None:
            return
        listing = task.result()
        self.listed_at = now
        if listing is not self.listing:
            self.listing = listing
            self._drop(0)

    async def _ask(self, engine: Engine) -> Listing:
        tables, columns, schemas = await engine.tables(), await engine.columns(), await engine.schemas()
        return await in_thread("listing", self._made, self.listing, tables, columns, schemas)

    def _made(
        self,
        before: Listing | None,
        tables: list[TableRef],
        columns: list[ColumnRef],
        schemas: list[tuple[str, str]] | None,
    ) -> Listing:
        """The listing, or the one before if it is the same. With the databases where they are asked for."""
        listing = listing_of(tables, columns, schemas)
        if before is not None and listing == before:
            return before
        if self.has_catalogs:
            _ = listing.databases
        return listing

    def take(self, listing: Listing, values: SessionValues) -> CatalogStore:
        """A store for such a client and one question. From any thread."""
        with self.lock:
            fits = [store for store in self.idle if store.key == values.key and store.listing is listing]
            if fits:
                self.idle.remove(fits[0])
        store = fits[0] if fits else CatalogStore(listing, values)
        store.begin(values)
        return store

    def give_back(self, store: CatalogStore) -> None:
        """Keep it for the next question, unless it was stopped or knows an older list."""
        listing = self.listing
        current = listing is not None and (
            store.listing is listing or (self.has_catalogs and store.listing is listing.databases)
        )
        with self.lock:
            kept = current and not store.stopped
            if kept:
                self.idle.append(store)
        if not kept:
            store.close()
        self._drop(MAX_STORES)

    def _drop(self, most: int) -> None:
        """Close the oldest but ``most``."""
        with self.lock:
            dropped = self.idle[: max(0, len(self.idle) - most)]
            del self.idle[: len(dropped)]
        for store in dropped:
            store.close()


_catalogs: WeakKeyDictionary[Engine, EngineCatalog] = WeakKeyDictionary()


def catalog_of(engine: Engine) -> EngineCatalog:
    """What is known of ``engine``."""
    known = _catalogs.get(engine)
    if known is None:
        has_catalogs = Capability.CATALOGS in engine.capabilities
        home = "" if has_catalogs else _HOMES.get(engine.dialect, "")
        known = _catalogs[engine] = EngineCatalog(engine.name, has_catalogs, home)
    return known


def forget(engine: Engine) -> None:
    """Ask the engine again next time: its tables have changed."""
    known = _catalogs.get(engine)
    if known is not None:
        known.listed_at = float("-inf")
