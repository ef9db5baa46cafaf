"""Leases kept in memory: those of a process that grants them itself, and what the contract's suite compares
other stores with.

Everything happens between two awaits, so calls are atomic without a lock.

A ledger ends with its process, and workers go on: they renew what they hold, and a lease that the new ledger
does not know is adopted (``Ledger.reopened``). Until all of them must have done so nothing new is granted.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from queryflux.admission.port import SWEEP_LOCK_SECS, UNLIMITED, Lease, Recount, Wanted
from queryflux.model.errors import StoreUnavailable
from queryflux.runtime.clock import Clock

TURN_SECS = 1.0
"""An instance that has waited for so long is left a place by the others."""
KEEN_SECS = 1.5
"""One that has not asked for so long does not wait any more."""


@dataclass(slots=True)
class Row:
    """A lease, as the store keeps it. ``renewed`` is a monotonic time."""

    cluster: str
    instance: str
    renewed: float


@dataclass(slots=True)
class Waiter:
    """An instance that was refused at ``limit``, the highest of late, and keeps asking: ``since`` when it was
    first refused there or last had one place more, ``seen`` when it last asked."""

    since: float
    seen: float
    limit: int


@dataclass(slots=True)
class Ledger:
    """What the stores of all instances share. Its leases are its count: there is nothing to recount."""

    clock: Clock
    rows: dict[str, Row] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    sweeps: dict[str, tuple[str, float]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    waiters: dict[str, dict[str, Waiter]] = field(default_factory=dict)
    adopts: bool = False
    """Whether a lease that is renewed and not known was granted by an earlier ledger."""
    opens: float = 0.0
    """Monotonic; until then leases of before may not be known yet."""

    @classmethod
    def reopened(cls, clock: Clock, renewal_secs: float) -> "Ledger":
        """After a start: whoever holds leases of before renews them within ``renewal_secs``."""
        return cls(clock, adopts=True, opens=clock.monotonic() + renewal_secs)

    def check_open(self) -> None:
        """Raises StoreUnavailable while leases of before may not be known yet."""
        left = self.opens - self.clock.monotonic()
        if left > 0:
            raise StoreUnavailable(
                f"what workers run is not known yet after a start; for another {left:.0f} s at most",
                hint="queries under a limit wait for as long; docs/capacity.md, workers",
            )

    def add(self, query_id: str, cluster: str, instance: str) -> None:
        """A lease more."""
        self.rows[query_id] = Row(cluster, instance, self.clock.monotonic())
        self.taken[cluster] = self.taken.get(cluster, 0) + 1

    def remove(self, query_id: str) -> None:
        """A lease less."""
        row = self.rows.pop(query_id)
        self.taken[row.cluster] -= 1

    def ahead(self, cluster: str, instance: str, taken: int) -> int:
        """How many other instances a place is left for where so many are taken: those that have waited long,
        and longer than this, at a limit that leaves them one."""
        waiting = self.waiters.get(cluster)
        if not waiting:
            return 0
        now = self.clock.monotonic()
        before = min(now - TURN_SECS, waiting[instance].since if instance in waiting else now)
        return sum(
            other.limit > taken and other.since < before and other.seen > now - KEEN_SECS
            for name, other in waiting.items()
            if name != instance
        )

    def refused(self, cluster: str, instance: str, limit: int, *, gained: bool) -> None:
        """There was no room for an instance at ``limit``. A lower one counts when it has not asked at the
        higher one for long."""
        now, waiting = self.clock.monotonic(), self.waiters.setdefault(cluster, {})
        own = waiting.get(instance)
        if own is None or own.seen < now - KEEN_SECS:
            waiting[instance] = Waiter(now, now, limit)
            return
        if gained or limit > own.limit:
            own.since = now
        if limit >= own.limit:
            own.seen, own.limit = now, limit

    def served(self, cluster: str, instance: str) -> None:
        """An instance got all that it asked for."""
        self.waiters.get(cluster, {}).pop(instance, None)


class MemoryCapacityStore:
    """The leases of one instance in a Ledger; also its upkeep and its sweep locks."""

    def __init__(self, ledger: Ledger, instance: str) -> None:
        self._ledger = ledger
        self.instance = instance

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        """As CapacityStore."""
        return (await self.try_acquire_many(cluster, [Wanted(query_id, limit)]))[0]

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        """As CapacityStore."""
        ledger, instance = self._ledger, self.instance
        if any(limit < UNLIMITED and not self._has(cluster, query_id) for query_id, limit in wanted):
            ledger.check_open()
        before = ledger.taken.get(cluster, 0)
        self._release([Lease(cluster, query_id) for query_id in released])
        granted: list[bool] = []
        full = -1
        for query_id, limit in wanted:
            granted.append(self._take(cluster, query_id, limit, full))
            if query_id not in ledger.rows:
                full = max(full, limit)
        if full >= 0:
            gained = ledger.taken.get(cluster, 0) > before
            ledger.refused(cluster, instance, full, gained=gained)
        elif False not in granted:
            ledger.served(cluster, instance)
        return granted

    def _has(self, cluster: str, query_id: str) -> bool:
        row = self._ledger.rows.get(query_id)
        return row is not None and (row.cluster, row.instance) == (cluster, self.instance)

    def _take(self, cluster: str, query_id: str, limit: int, full: int) -> bool:
        """``full`` is the highest limit that was refused in the same call: nobody overtakes there."""
        row = self._ledger.rows.get(query_id)
        if row is not None:
            own = self._has(cluster, query_id)
            if own:
                row.renewed = self._ledger.clock.monotonic()
            return own
        taken = self._ledger.taken.get(cluster, 0)
        if limit <= full or taken + self._ledger.ahead(cluster, self.instance, taken) >= limit:
            return False
        self._ledger.add(query_id, cluster, self.instance)
        return True

    def _release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if self._has(*lease):
                self._ledger.remove(lease.query_id)

    async def release_many(self, leases: Sequence[Lease]) -> None:
        """As CapacityStore."""
        self._release(leases)

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """As CapacityStore; what a ledger of before granted is adopted."""
        held: set[str] = set()
        for cluster, query_id in leases:
            row = self._ledger.rows.get(query_id)
            if row is None and self._ledger.adopts:
                self._ledger.add(query_id, cluster, self.instance)
                held.add(query_id)
            elif row is not None and row.instance == self.instance:
                row.renewed = self._ledger.clock.monotonic()
                held.add(query_id)
        return held

    async def release_all(self) -> int:
        """As CapacityStore."""
        own = [query_id for query_id, row in self._ledger.rows.items() if row.instance == self.instance]
        for query_id in own:
            self._ledger.remove(query_id)
        return len(own)

    async def counts(self) -> dict[str, int]:
        """As CapacityStore."""
        self._ledger.check_open()
        return {cluster: count for cluster, count in self._ledger.taken.items() if count}

    async def publish_running(self, cluster: str, running: int) -> None:
        """As CapacityStore."""
        self._ledger.running[cluster] = running

    async def running(self) -> dict[str, int]:
        """As CapacityStore."""
        return dict(self._ledger.running)

    async def expire(self, older_than_secs: float) -> int:
        """As CapacityUpkeep."""
        before = self._ledger.clock.monotonic() - older_than_secs
        stale = [query_id for query_id, row in self._ledger.rows.items() if row.renewed < before]
        for query_id in stale:
            self._ledger.remove(query_id)
        for waiting in self._ledger.waiters.values():
            for name in [name for name, waiter in waiting.items() if waiter.seen < before]:
                del waiting[name]
        return len(stale)

    async def settle(self) -> list[Recount]:
        """As CapacityUpkeep."""
        return []

    async def try_lock(self, name: str, hold_secs: float = SWEEP_LOCK_SECS) -> str | None:
        """As SweepCoordinator."""
        now = self._ledger.clock.monotonic()
        _, until = self._ledger.sweeps.get(name, ("", now))
        if until > now:
            return None
        token = secrets.token_hex(8)
        self._ledger.sweeps[name] = (token, now + hold_secs)
        return token

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        """As SweepCoordinator."""
        if self._ledger.sweeps.get(name, ("", 0.0))[0] == token:
            self._ledger.sweeps[name] = ("", self._ledger.clock.monotonic() + rest_secs)
