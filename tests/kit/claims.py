"""Claims of several instances for tests: in memory on a clock that tests move, and on real databases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from queryflux.admission.claims import STALE_SECS, ClaimStore
from queryflux.admission.memory import Ledger
from queryflux.model.errors import StoreUnavailable
from queryflux.model.shared import Kept, SharedQuery, SharedRow
from queryflux.persistence.postgres.claims import PostgresClaimStore
from tests.kit.clock import ManualClock
from tests.kit.databases import DATABASES, new_database

KINDS = ("memory", *DATABASES)


def shared_query(query_id: str = "q_1", **changes: Any) -> SharedQuery:
    """A query of ann's."""
    about: dict[str, Any] = {
        "id": query_id,
        "user": "ann",
        "slug": "hash",
        "text": "SELECT 'ä\"' AS x",
        "dialect": "trino",
        "created_at": 1000.5,
        "protocol": "trinoHttp",
        "group": "main",
        "tags": {"team": "a", "quick": None},
        "extra": {"user-agent": "test"},
        "native": (("x-trino-catalog", "tpch"),),
    }
    return SharedQuery(**{**about, **changes})


@dataclass
class StoredRow:
    """A row, with what a store knows beside it; times are monotonic."""

    row: SharedRow
    backend_id: str
    claimed: float
    accessed: float


@dataclass
class MemoryClaims:
    """What the stores of all instances share."""

    ledger: Ledger
    rows: dict[str, StoredRow] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """By the clock of the ledger."""
        return self.ledger.clock.monotonic()


class MemoryClaimStore:
    """The claims of one instance in memory; a ClaimStore."""

    def __init__(self, shared: MemoryClaims, instance: str, address: str | None = None) -> None:
        self.instance = instance
        self.address = address
        self._shared = shared
        self.silent = False
        """It does not answer."""
        self.stuck = False
        """Nor does it say so, before ``give_up_calls``."""
        self.calls = 0
        self._go = asyncio.Event()

    async def relay_key(self) -> bytes:
        """As ClaimStore."""
        return b"known to all"

    def _ours(self, query_id: str) -> StoredRow | None:
        found = self._shared.rows.get(query_id)
        return found if found is not None and found.row.owner == self.instance else None

    async def _answer(self) -> None:
        self.calls += 1
        if self.stuck:
            await self._go.wait()
        if self.silent:
            raise StoreUnavailable("the database has gone")

    def give_up_calls(self) -> None:
        """Calls that are stuck fail, as they do after the time that a store gives them."""
        self.silent = True
        self._go.set()

    async def wait(self, query: SharedQuery) -> bool:
        """As ClaimStore."""
        await self._answer()
        if query.id not in self._shared.rows:
            now = self._shared.now
            row = SharedRow(query=query, executing=False, owner=self.instance)
            self._shared.rows[query.id] = StoredRow(row, query.id, now, now)
        return self._ours(query.id) is not None

    async def run(
        self, query: SharedQuery, cluster: str, backend_id: str, kept: Kept | None, *, waited: bool
    ) -> bool:
        """As ClaimStore."""
        await self._answer()
        found = self._shared.rows.get(query.id)
        if found is None and waited:
            return False
        if found is not None and found.row.owner != self.instance:
            return False
        row = SharedRow(
            query=query,
            executing=True,
            owner=self.instance,
            address=self.address,
            cluster=cluster,
            kept=kept,
        )
        now = self._shared.now
        self._shared.rows[query.id] = StoredRow(row, backend_id, now, now)
        return True

    async def move(self, query_id: str, kept: Kept) -> bool:
        """As ClaimStore."""
        await self._answer()
        found = self._ours(query_id)
        if found is not None:
            found.row = replace(found.row, kept=kept)
        return found is not None

    async def refresh(self, idle: Mapping[str, float]) -> dict[str, float]:
        """As ClaimStore."""
        await self._answer()
        ours, now = {}, self._shared.now
        for query_id, secs in idle.items():
            found = self._ours(query_id)
            if found is not None:
                found.claimed, found.accessed = now, max(found.accessed, now - secs)
                ours[query_id] = now - found.accessed
        return ours

    async def end(self, query_ids: Collection[str]) -> set[str]:
        """As ClaimStore."""
        await self._answer()
        ours = {query_id for query_id in query_ids if self._ours(query_id) is not None}
        for query_id in ours:
            del self._shared.rows[query_id]
        return ours

    async def give_up(self) -> set[str]:
        """As ClaimStore."""
        await self._answer()
        given = set()
        for query_id, found in self._shared.rows.items():
            if found.row.owner == self.instance and not found.row.executing:
                found.row = replace(found.row, owner=None)
                given.add(query_id)
        return given

    def _shown(self, found: StoredRow) -> SharedRow:
        late = found.claimed < self._shared.now - STALE_SECS
        return replace(found.row, stale=found.row.owner is None or late)

    async def find(self, query_id: str) -> SharedRow | None:
        """As ClaimStore."""
        await self._answer()
        for found in self._shared.rows.values():
            if query_id in (found.row.query.id, found.backend_id):
                found.accessed = self._shared.now
                return self._shown(found)
        return None

    async def claim(self, row: SharedRow, *, alive: bool) -> SharedRow | None:
        """As ClaimStore."""
        await self._answer()
        found = self._shared.rows.get(row.query.id)
        if found is None or found.row.owner != row.owner or found.row.executing != row.executing:
            return None
        if not alive and not self._shown(found).stale:
            return None
        address = self.address if row.executing else None
        found.row = replace(found.row, owner=self.instance, address=address)
        found.claimed = found.accessed = self._shared.now
        lease = self._shared.ledger.rows.get(row.query.id)
        if lease is not None:
            lease.instance, lease.renewed = self.instance, self._shared.now
        return self._shown(found)

    async def others(self) -> Sequence[tuple[SharedRow, str]]:
        """As ClaimStore."""
        await self._answer()
        return [
            (self._shown(found), found.backend_id if found.row.executing else "")
            for found in self._shared.rows.values()
            if found.row.owner != self.instance
        ]

    async def stale(self, *, executing: bool, idle_secs: float) -> Sequence[SharedRow]:
        """As ClaimStore."""
        before = self._shared.now - idle_secs
        return [
            self._shown(found)
            for found in self._shared.rows.values()
            if found.row.executing == executing and self._shown(found).stale and found.accessed < before
        ]


@dataclass
class Fleet:
    """Several instances on one store. ``take`` gives an instance a lease, ``lease_of`` says whose it is,
    ``pass_time`` makes everything that was written older."""

    store: Callable[[str, str | None], ClaimStore]
    take: Callable[[str, str, str], None]
    lease_of: Callable[[str], str | None]
    pass_time: Callable[[float], None]


@asynccontextmanager
async def fleet(kind: str) -> AsyncIterator[Fleet]:
    """A new, empty one of a kind."""
    if kind == "memory":
        yield _in_memory()
        return
    with new_database(kind) as database:

        def take(query_id: str, cluster: str, instance: str) -> None:
            columns = "query_id, cluster_name, instance_id"
            sql = f"INSERT INTO cluster_capacity_leases ({columns}) VALUES (%s, %s, %s)"
            database.rows(sql, query_id, cluster, instance)

        def lease_of(query_id: str) -> str | None:
            sql = "SELECT instance_id FROM cluster_capacity_leases WHERE query_id = %s"
            found = database.rows(sql, query_id)
            return found[0][0] if found else None

        def pass_time(seconds: float) -> None:
            for table in ("queued_queries", "executing_queries"):
                database.rows(
                    f"UPDATE {table} SET claimed_at = claimed_at - %s, last_accessed = last_accessed - %s",
                    *(timedelta(seconds=seconds),) * 2,
                )

        async with database.pools() as pools:
            yield Fleet(
                lambda instance, address: PostgresClaimStore(pools.query, instance, address),
                take,
                lease_of,
                pass_time,
            )


def _in_memory() -> Fleet:
    clock = ManualClock()
    ledger = Ledger(clock)
    shared = MemoryClaims(ledger)

    def lease_of(query_id: str) -> str | None:
        row = ledger.rows.get(query_id)
        return row.instance if row is not None else None

    def pass_time(seconds: float) -> None:
        for row in shared.rows.values():
            row.claimed -= seconds
            row.accessed -= seconds

    return Fleet(
        lambda instance, address: MemoryClaimStore(shared, instance, address), ledger.add, lease_of, pass_time
    )
