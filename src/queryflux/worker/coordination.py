"""Leases of a worker, through the control plane: the same interface as the store that it asks.

Each call is one round trip. A control plane of an older version has no grouped calls and answers 404 to them:
then each lease goes by itself, and after OLDER_SECS the grouped call is tried again. An acquire that was not
answered may have been granted; its caller asks again under the same id, or releases it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar

from msgspec import Struct

from queryflux.admission.port import SWEEP_LOCK_SECS, Lease, Wanted
from queryflux.fleet import paths
from queryflux.fleet.capacity import (
    MOST_LEASES,
    Acquire,
    AcquireBatch,
    Counts,
    Granted,
    GrantedBatch,
    Held,
    HeldLease,
    Leases,
    Released,
    Running,
    SweepLock,
    SweepToken,
    SweepUnlock,
    WantedLease,
    decode,
    encode,
)
from queryflux.model.errors import InvalidRequest, StoreUnavailable
from queryflux.runtime.clock import Clock
from queryflux.worker.port import ControlPlane, Reply

log = logging.getLogger(__name__)

OLDER_SECS = 60.0
"""How long a control plane that had no grouped calls is taken not to have them."""
AT_A_TIME = 16
"""Single calls under way, where there is no grouped one."""
GRACE_SECS = 2.0
"""A control plane ends its own call of the store a second after ``acquireTimeoutSecs``: to hear what came of
it, the worker listens a little longer. Its queries are told earlier."""

Answer = TypeVar("Answer", bound=Struct)
Item = TypeVar("Item")


class RemoteCoordinationStore:
    """A CapacityStore and SweepCoordinator of one instance; ``control_plane`` sends who it is."""

    def __init__(
        self, control_plane: ControlPlane, instance: str, clock: Clock, *, acquire_secs: float = 5
    ) -> None:
        self._control_plane = control_plane
        self.instance = instance
        self._clock = clock
        self._seconds = acquire_secs + GRACE_SECS
        self._older_until: dict[str, float] = {}
        """Grouped calls that were not there, and until when they are not tried again."""

    # Leases.

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        """As CapacityStore."""
        message = Acquire(cluster=cluster, query_id=query_id, limit=limit)
        return (await self._post(paths.ACQUIRE, message, Granted)).granted

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        """As CapacityStore; to an older control plane one call each, in order."""
        if len(released) > MOST_LEASES:  # as after an outage
            await self.release_many([Lease(cluster, query_id) for query_id in released])
            released = ()
        granted: list[bool] = []
        for some in _parts(wanted, MOST_LEASES):
            granted += await self._acquire_group(cluster, some, () if granted else released)
        return granted

    async def _acquire_group(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str]
    ) -> Sequence[bool]:
        group = tuple(WantedLease(query_id, limit) for query_id, limit in wanted)
        message = AcquireBatch(cluster=cluster, wanted=group, released=tuple(released))
        reply = await self._grouped(paths.ACQUIRE_BATCH, message)
        if reply is None:
            await self.release_many([Lease(cluster, query_id) for query_id in released])
            return [await self.try_acquire(cluster, query_id, limit) for query_id, limit in wanted]
        granted = _read(GrantedBatch, reply).granted
        if len(granted) != len(wanted):
            raise StoreUnavailable(f"the control plane gave {len(granted)} answers to {len(wanted)} asks")
        return granted

    async def release_many(self, leases: Sequence[Lease]) -> None:
        """As CapacityStore; to an older control plane one call each."""
        for some in _parts(leases, MOST_LEASES):
            if await self._grouped(paths.RELEASE_BATCH, _named(some)) is None:
                for few in _parts(some, AT_A_TIME):
                    await _all(self._call("POST", paths.RELEASE, encode(HeldLease(*it))) for it in few)

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        """As CapacityStore."""
        held: set[str] = set()
        for some in _parts(leases, MOST_LEASES):
            held.update((await self._post(paths.RENEW, _named(some), Held)).held)
        return held

    async def release_all(self) -> int:
        """As CapacityStore."""
        return _read(Released, await self._call("POST", paths.RELEASE_ALL)).released

    async def counts(self) -> Mapping[str, int]:
        """As CapacityStore."""
        return (await self._counts()).leases

    async def publish_running(self, cluster: str, running: int) -> None:
        """As CapacityStore."""
        await self._call("POST", paths.RUNNING, encode(Running(cluster=cluster, running=running)))

    async def running(self) -> Mapping[str, int]:
        """As CapacityStore."""
        return (await self._counts()).running

    async def _counts(self) -> Counts:
        return _read(Counts, await self._call("GET", paths.COUNTS))

    # Sweeps.

    async def try_lock(self, name: str, hold_secs: float = SWEEP_LOCK_SECS) -> str | None:
        """As SweepCoordinator. Only ``engine-reconcile`` is a worker's to lock."""
        message = SweepLock(name=name, hold_secs=hold_secs)
        return (await self._post(paths.SWEEP_ACQUIRE, message, SweepToken)).token

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        """As SweepCoordinator."""
        message = SweepUnlock(name=name, token=token, rest_secs=rest_secs)
        await self._call("POST", paths.SWEEP_RELEASE, encode(message))

    # Calls.

    async def _grouped(self, path: str, message: Struct) -> Reply | None:
        """The answer to a grouped call; None when the control plane has no such call. Raises
        StoreUnavailable."""
        if self._clock.monotonic() < self._older_until.get(path, 0.0):
            return None
        reply = await self._ask("POST", path, encode(message))
        if reply.status != HTTPStatus.NOT_FOUND:
            return _done(path, reply)
        if path not in self._older_until:
            log.warning("the control plane is of an older version without %s: leases go one by one", path)
        self._older_until[path] = self._clock.monotonic() + OLDER_SECS
        return None

    async def _post(self, path: str, message: Struct, kind: type[Answer]) -> Answer:
        return _read(kind, await self._call("POST", path, encode(message)))

    async def _call(self, method: str, path: str, body: bytes = b"") -> Reply:
        return _done(path, await self._ask(method, path, body))

    async def _ask(self, method: str, path: str, body: bytes) -> Reply:
        return await self._control_plane.call(method, path, body, seconds=self._seconds)


def _done(path: str, reply: Reply) -> Reply:
    """Raises StoreUnavailable unless it was done."""
    if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
        said = reply.body[:200].decode("utf-8", "replace")
        raise StoreUnavailable(f"the control plane answered {reply.status} to {path}", hint=said)
    return reply


def _read(kind: type[Answer], reply: Reply) -> Answer:
    try:
        return decode(kind, reply.body)
    except InvalidRequest as error:
        message = "the control plane's answer about capacity cannot be read"
        raise StoreUnavailable(message, hint=error.message) from error


def _named(leases: Sequence[Lease]) -> Leases:
    return Leases(leases=tuple(HeldLease(cluster, query_id) for cluster, query_id in leases))


def _parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Return when all have ended; raises what the first of those that failed did."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
