"""Leases of the fleet, as admission sees them: who keeps them is somebody else's business.

A lease is the right of one query to run on one cluster, whichever process it came to. A store counts leases
and never grants one above the limit that the caller passes. What every store holds (tests/contract/
test_capacity_store.py):

- the same query id, cluster and instance again: granted and renewed, and no count changes;
- the same query id on another cluster: refused until the release of its old lease is through;
- the same query id of another instance: refused;
- an instance that is refused and keeps asking is left a place by the others when it has waited for a second:
  none of them can keep a cluster to itself by taking again what it releases;
- a lease that its instance does not renew in time ends, by the store's own clock;
- what is released and not held is no error.

Every call raises StoreUnavailable when the store cannot be asked; whether it was done is unknown then.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

SWEEP_LOCK_SECS = 300.0
"""How long a sweep may take before another process may begin it, unless it asks for less."""
UNLIMITED = 2**63 - 1
"""As a limit: grant it whatever is out. For a lease that was lost while its query runs on."""


class Lease(NamedTuple):
    """One query's place on one cluster."""

    cluster: str
    query_id: str


class Wanted(NamedTuple):
    """One query that asks for a place; ``limit`` is the cap that holds for it."""

    query_id: str
    limit: int


class Recount(NamedTuple):
    """A counter that differed from its leases: what it said, and what it says now. The same twice when it is
    too high and has to be seen once more."""

    cluster: str
    was: int
    became: int


class CapacityStore(Protocol):
    """The leases of one instance, among those of all."""

    @property
    def instance(self) -> str:
        """Whose leases these are."""

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        """Take a lease if fewer than ``limit`` are out on ``cluster``."""

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        """In one call: release the leases of the query ids ``released`` on ``cluster``, then take leases, in
        order, for those that fit. One answer for each of ``wanted``."""

    async def release_many(self, leases: Sequence[Lease]) -> None:
        """Give leases back."""

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """Keep leases alive; the query ids of those that are still held."""

    async def release_all(self) -> int:
        """Give back every lease of this instance; how many there were."""

    async def counts(self) -> Mapping[str, int]:
        """Leases out on each cluster, of all instances; clusters without any may be missing."""

    async def publish_running(self, cluster: str, running: int) -> None:
        """Tell everybody what the engine itself says it runs. Never part of admission."""

    async def running(self) -> Mapping[str, int]:
        """What was last published, by cluster."""


class CapacityUpkeep(Protocol):
    """What one process does for all of them, now and then."""

    async def expire(self, older_than_secs: float) -> int:
        """End leases that were not renewed for so long, by the store's clock; how many. Instances that were
        refused and have not asked for so long are forgotten."""

    async def settle(self) -> list[Recount]:
        """Compare each counter with its leases. One that is too low is raised; one that is too high is
        lowered once two calls in a row have seen the same difference."""


class SweepCoordinator(Protocol):
    """One process at a time does a sweep, and nobody does it again before it is due."""

    async def try_lock(self, name: str, hold_secs: float = SWEEP_LOCK_SECS) -> str | None:
        """A token; None while somebody has the sweep, or while it is not due. What is never given back is
        free again after ``hold_secs``, by the store's clock."""

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        """It is done, and not due again for ``rest_secs``. Harmless when the lock has run out."""


@asynccontextmanager
async def sweeping(
    coordinator: SweepCoordinator, name: str, rest_secs: float = 0, hold_secs: float = SWEEP_LOCK_SECS
) -> AsyncIterator[bool]:
    """Whether the sweep is ours to do now; it is given back at the end, and when it went well not due for
    ``rest_secs``."""
    token = await coordinator.try_lock(name, hold_secs)
    rest = 0.0
    try:
        yield token is not None
        rest = rest_secs
    finally:
        if token is not None:
            await coordinator.unlock(name, token, rest)
