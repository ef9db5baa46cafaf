"""The worker API's calls about capacity: a worker's leases, in the store that this process uses itself.

Whatever a worker asks for is done by the store of its instance, in one call and to its end, whether the
worker still listens or not: one that hung up asks again under the same query id, or releases it.
"""

from collections.abc import Callable, Collection

from queryflux.admission.port import SWEEP_LOCK_SECS, CapacityStore, Lease, SweepCoordinator, Wanted
from queryflux.controlplane.errors import check_instance
from queryflux.controlplane.worker_app import Handle, WorkerAnswer, WorkerCall, WorkerEndpoint
from queryflux.fleet import paths
from queryflux.fleet.capacity import (
    MAX_BODY_BYTES,
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
    decode,
    encode,
)
from queryflux.model.errors import InvalidRequest

DONE = WorkerAnswer(body=b"{}")


class CapacityCalls:
    """``store_for`` gives the store of an instance; ``lockable`` names the sweeps that a worker may do."""

    def __init__(
        self,
        store_for: Callable[[str], CapacityStore],
        sweeps: SweepCoordinator,
        lockable: Collection[str],
        *,
        own: str = "",
    ) -> None:
        """``own`` is the instance id of this process, whose leases are no worker's."""
        self._store_for = store_for
        self._sweeps = sweeps
        self._lockable = frozenset(lockable)
        self._own = own

    def endpoints(self) -> list[WorkerEndpoint]:
        """All of them. Each raises InvalidRequest for a message that cannot be read, and StoreUnavailable."""
        posts: dict[str, Handle] = {
            paths.ACQUIRE: self._acquire,
            paths.ACQUIRE_BATCH: self._acquire_batch,
            paths.RENEW: self._renew,
            paths.RELEASE: self._release,
            paths.RELEASE_BATCH: self._release_batch,
            paths.RELEASE_ALL: self._release_all,
            paths.RUNNING: self._running,
            paths.SWEEP_ACQUIRE: self._lock,
            paths.SWEEP_RELEASE: self._unlock,
        }
        return [
            *(WorkerEndpoint("POST", path, handle, MAX_BODY_BYTES) for path, handle in posts.items()),
            WorkerEndpoint("GET", paths.COUNTS, self._counts),
        ]

    def _store(self, call: WorkerCall) -> CapacityStore:
        """Raises InstanceTaken."""
        check_instance(call.instance, self._own)
        return self._store_for(call.instance)

    async def _acquire(self, call: WorkerCall) -> WorkerAnswer:
        asked = decode(Acquire, call.body)
        granted = await self._store(call).try_acquire(asked.cluster, asked.query_id, asked.limit)
        return WorkerAnswer(body=encode(Granted(granted=granted)))

    async def _acquire_batch(self, call: WorkerCall) -> WorkerAnswer:
        asked = decode(AcquireBatch, call.body)
        wanted = [Wanted(it.query_id, it.limit) for it in asked.wanted]
        granted = await self._store(call).try_acquire_many(asked.cluster, wanted, asked.released)
        return WorkerAnswer(body=encode(GrantedBatch(granted=tuple(granted))))

    async def _renew(self, call: WorkerCall) -> WorkerAnswer:
        held = await self._store(call).renew(_leases(call))
        return WorkerAnswer(body=encode(Held(held=tuple(held))))

    async def _release(self, call: WorkerCall) -> WorkerAnswer:
        lease = decode(HeldLease, call.body)
        await self._store(call).release_many([Lease(lease.cluster, lease.query_id)])
        return DONE

    async def _release_batch(self, call: WorkerCall) -> WorkerAnswer:
        await self._store(call).release_many(_leases(call))
        return DONE

    async def _release_all(self, call: WorkerCall) -> WorkerAnswer:
        return WorkerAnswer(body=encode(Released(released=await self._store(call).release_all())))

    async def _counts(self, call: WorkerCall) -> WorkerAnswer:
        store = self._store(call)
        counts = Counts(leases=await store.counts(), running=await store.running())
        return WorkerAnswer(body=encode(counts))

    async def _running(self, call: WorkerCall) -> WorkerAnswer:
        said = decode(Running, call.body)
        await self._store(call).publish_running(said.cluster, said.running)
        return DONE

    async def _lock(self, call: WorkerCall) -> WorkerAnswer:
        asked = decode(SweepLock, call.body)
        self._check_lockable(asked.name)
        token = await self._sweeps.try_lock(asked.name, min(asked.hold_secs, SWEEP_LOCK_SECS))
        return WorkerAnswer(body=encode(SweepToken(token=token)))

    async def _unlock(self, call: WorkerCall) -> WorkerAnswer:
        done = decode(SweepUnlock, call.body)
        self._check_lockable(done.name)
        await self._sweeps.unlock(done.name, done.token, min(done.rest_secs, SWEEP_LOCK_SECS))
        return DONE

    def _check_lockable(self, name: str) -> None:
        if name not in self._lockable:
            raise InvalidRequest(
                f"the sweep {name!r} is not a worker's", hint=f"a worker may do {', '.join(self._lockable)}"
            )


def _leases(call: WorkerCall) -> list[Lease]:
    return [Lease(it.cluster, it.query_id) for it in decode(Leases, call.body).leases]
