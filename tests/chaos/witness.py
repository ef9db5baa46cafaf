"""Watches what a process says to its capacity store, from between the two."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from queryflux.admission.port import CapacityStore, Lease, Wanted
from queryflux.model.errors import StoreUnavailable


class Witness:
    """A CapacityStore before another. ``at_work`` is what the process's engine is at work for now."""

    def __init__(self, store: CapacityStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._since: dict[Lease, float] = {}
        self._in_flight: Counter[Lease] = Counter()
        self.doubtful: set[Lease] = set()
        """Leases one of whose calls failed: it may still be granted."""
        self.at_work: set[Lease] = set()
        self.violations: list[str] = []
        self.faults: list[str] = []
        """Why calls failed, once for each reason."""
        self.closing = False
        self.renewed = 0.0
        """When the latest renewal that came through began."""

    @property
    def instance(self) -> str:
        return self._store.instance

    def began(self, lease: Lease) -> float:
        """No call that may have granted this lease was made before; forgets it."""
        self.doubtful.discard(lease)
        return self._since.pop(lease)

    @contextmanager
    def _acquiring(self, wanted: Sequence[Lease]) -> Iterator[None]:
        now = self._monotonic()
        for lease in wanted:
            self._since.setdefault(lease, now)
        self._in_flight.update(wanted)
        try:
            yield
        except asyncio.CancelledError:
            if not self.closing:
                self.violations.append(f"{self.instance}: an acquire under way was cancelled ({wanted})")
            raise
        except StoreUnavailable as error:
            self.doubtful.update(wanted)
            self._fault(error)
            raise
        finally:
            for lease in wanted:
                self._in_flight[lease] -= 1
                if not self._in_flight[lease]:
                    del self._in_flight[lease]

    def _fault(self, error: StoreUnavailable) -> None:
        text = f"{error.message} {error.hint}"
        if text not in self.faults and len(self.faults) < 50:
            self.faults.append(text)

    def _decided(self, lease: Lease, granted: bool) -> None:
        if not granted and lease not in self.doubtful and lease not in self._in_flight:
            self._since.pop(lease, None)

    def _released(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if lease in self.at_work:
                self.violations.append(f"{self.instance}: {lease} is released while its engine works for it")

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        lease = Lease(cluster, query_id)
        with self._acquiring([lease]):
            granted = await self._store.try_acquire(cluster, query_id, limit)
        self._decided(lease, granted)
        return granted

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        self._released([Lease(cluster, query_id) for query_id in released])
        with self._acquiring([Lease(cluster, query_id) for query_id, _ in wanted]):
            answers = await self._store.try_acquire_many(cluster, wanted, released)
        for (query_id, _), granted in zip(wanted, answers, strict=True):
            self._decided(Lease(cluster, query_id), granted)
        return answers

    async def release_many(self, leases: Sequence[Lease]) -> None:
        self._released(leases)
        try:
            await self._store.release_many(leases)
        except StoreUnavailable as error:
            self._fault(error)
            raise

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        began = self._monotonic()
        try:
            kept = await self._store.renew(leases)
        except StoreUnavailable as error:
            self._fault(error)
            raise
        self.renewed = began
        return kept

    async def release_all(self) -> int:
        return await self._store.release_all()

    async def counts(self) -> Mapping[str, int]:
        return await self._store.counts()

    async def publish_running(self, cluster: str, running: int) -> None:
        await self._store.publish_running(cluster, running)

    async def running(self) -> Mapping[str, int]:
        return await self._store.running()
