"""What else the model of a database keeps: configuration, records of queries, rows of workers. And the
product's ports to it, each over the line of one process.

A read of the configuration may be of a replica that is behind. Everything happens at one moment between two
steps: before it there was nothing, and after it the answer may still be lost.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from queryflux.config.store import ConfigStore, StoredConfig
from queryflux.config.tables import Tables
from queryflux.fleet.registry import Heartbeat, RegistryStore, WorkerRow
from queryflux.history.port import Added
from queryflux.history.stored import StoredQuery
from queryflux.model.errors import ConfigConflict, RecordsRefused
from queryflux.persistence.memory_registry import MemoryRegistryStore
from queryflux.persistence.numbering import numbered
from tests.sim.database import ModelDatabase
from tests.sim.road import Line
from tests.sim.world import LoopClock, World

T = TypeVar("T")
UNSTORABLE = "nul\0"
"""A user whose records the database does not take."""


class FleetDatabase(ModelDatabase):
    """All tables."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.epochs = 1
        self.versions = [(0.0, StoredConfig(Tables(), 0, "epoch-1"))]
        """What was stored, and since when; nothing at first."""
        self._oldest = 1
        """No replica has an older one: those of a restored database are new."""
        self.listeners: list[ModelConfigStore] = []
        self.notices_lost = False
        self.registry = MemoryRegistryStore(LoopClock(self.loop))
        self.records: list[StoredQuery] = []
        self.has_key = True
        """Whether a query may have one record only."""
        self._stored: set[str] = set()
        self._next_id = 1
        self.on_said: Callable[[StoredConfig], object] = lambda stored: None
        """Called when a control plane is told what is stored."""

    @property
    def current(self) -> StoredConfig:
        """The latest."""
        return self.versions[-1][1]

    def seen(self, lag_secs: float) -> StoredConfig:
        """What a replica has that is so far behind."""
        then = self.world.now - lag_secs
        first, *later = self.versions[self._oldest :]
        return next((one for since, one in reversed(later) if since <= then), first[1])

    def put(self, tables: Tables) -> None:
        """Somebody has edited the configuration."""
        before = self.current
        tables, self._next_id = numbered(tables, self._next_id)
        self._use(StoredConfig(tables, before.sequence + 1, before.epoch))

    def restore(self, versions: int) -> None:
        """A backup comes back: so many changes never were."""
        old = self.versions[max(1, len(self.versions) - 1 - versions)][1]
        self._use(StoredConfig(old.tables, old.sequence, self.current.epoch))
        self._oldest = len(self.versions) - 1

    def new_epoch(self) -> None:
        """``queryflux migrate --new-epoch``."""
        self.epochs += 1
        before = self.current
        self._use(StoredConfig(before.tables, before.sequence, f"epoch-{self.epochs}"))
        self._oldest = len(self.versions) - 1

    def _use(self, stored: StoredConfig) -> None:
        self.versions.append((self.world.now, stored))
        for listener in list(self.listeners):
            if not self.notices_lost:
                self.world.at(self.world.chance.expovariate(1 / 0.01), listener.notice)

    def forget(self, line: Line) -> None:
        """A process is no more: it hears nothing."""
        self.listeners = [one for one in self.listeners if one.line is not line]

    # Statements.

    async def read_config(self, lag_secs: float) -> StoredConfig:
        """All tables of the configuration."""
        await self._step()
        stored = self.seen(lag_secs)
        self.on_said(stored)
        await self._step()
        return stored

    async def add_records(self, records: Sequence[StoredQuery]) -> Added | RecordsRefused:
        """INSERT ... ON CONFLICT DO NOTHING."""
        await self._step()
        if any(record.username == UNSTORABLE for record in records):
            return RecordsRefused("a value has a NUL character")
        fresh: dict[str, StoredQuery] = {}
        added = [
            record
            for record in records
            if not self.has_key
            or (
                record.proxy_query_id not in self._stored
                and fresh.setdefault(record.proxy_query_id, record) is record
            )
        ]
        self.records += added
        self._stored.update(record.proxy_query_id for record in added)
        await self._step()
        return Added(len(added), len(records) - len(added))

    async def registered(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A statement about workers."""
        await self._step()
        result = await work()
        await self._step()
        return result


class ModelConfigStore(ConfigStore):
    """The configuration as one control plane sees it."""

    def __init__(self, line: Line, database: FleetDatabase) -> None:
        self.line = line
        self._database = database
        self._noticed = asyncio.Event()
        self._noticed.set()
        self.lag_secs = 0.0

    def notice(self) -> None:
        """Something was changed."""
        self.line.loop.call_soon(self._noticed.set)

    async def load(self) -> StoredConfig:
        return await self.line.call(lambda: self._database.read_config(self.lag_secs), laggard=True)

    async def save(self, before: StoredConfig, after: Tables) -> StoredConfig:
        if after != before.tables:
            raise ConfigConflict("nobody edits through here")
        return before

    async def revision(self) -> tuple[str, int]:
        stored = await self.load()
        return stored.epoch, stored.sequence

    async def changes(self) -> AsyncGenerator[None, None]:
        self._database.listeners.append(self)
        try:
            while True:
                await self._noticed.wait()
                self._noticed.clear()
                yield
        finally:
            if self in self._database.listeners:
                self._database.listeners.remove(self)


class ModelRegistryStore(RegistryStore):
    """Rows of workers as one control plane sees them."""

    def __init__(self, line: Line, database: FleetDatabase) -> None:
        self.line = line
        self._database = database

    async def _do(self, work: Callable[[MemoryRegistryStore], Coroutine[Any, Any, T]]) -> T:
        database = self._database
        return await self.line.call(
            lambda: database.registered(lambda: work(database.registry)), laggard=True
        )

    async def register(self, report: Heartbeat) -> None:
        await self._do(lambda rows: rows.register(report))

    async def heartbeat(self, report: Heartbeat) -> bool:
        return await self._do(lambda rows: rows.heartbeat(report))

    async def row(self, instance_id: str) -> WorkerRow | None:
        return await self._do(lambda rows: rows.row(instance_id))

    async def rows(self) -> Sequence[WorkerRow]:
        return await self._do(lambda rows: rows.rows())

    async def remove(self, silent_secs: float) -> int:
        return await self._do(lambda rows: rows.remove(silent_secs))


class ModelHistoryStore:
    """Records as one control plane adds them: of a HistoryStore, what a control plane needs for that."""

    def __init__(self, line: Line, database: FleetDatabase) -> None:
        self.line = line
        self._database = database

    async def add_many(self, records: Sequence[StoredQuery]) -> Added:
        added = await self.line.call(lambda: self._database.add_records(records), laggard=True)
        if isinstance(added, RecordsRefused):
            raise added
        return added
