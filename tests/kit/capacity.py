"""Capacity stores for room tests: one in memory that can be made slow, deaf or unreachable."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from queryflux.admission.memory import Ledger, MemoryCapacityStore
from queryflux.admission.port import Lease, Wanted
from queryflux.model.errors import StoreUnavailable

T = TypeVar("T")


class FaultyStore(MemoryCapacityStore):
    """A store in memory and the road to it. ``calls`` names every call that was made and what it carried."""

    def __init__(self, ledger: Ledger, instance: str = "one") -> None:
        super().__init__(ledger, instance)
        self.calls: list[tuple[str, object]] = []
        self.down = ""
        """Why every call fails, before it does anything."""
        self.deaf = ""
        """Why every reply is lost, after it has done everything."""
        self._go = asyncio.Event()
        self._answer = asyncio.Event()
        self._go.set()
        self._answer.set()

    def hold(self) -> None:
        """Calls get no further than the door until ``let_go``."""
        self._go.clear()

    def hold_replies(self) -> None:
        """Calls are done, and their replies wait until ``let_go``."""
        self._answer.clear()

    def leave_behind(self) -> Callable[[], None]:
        """Only replies that are held now stay so, until what this gives is called."""
        held, self._answer = self._answer, asyncio.Event()
        self._answer.set()
        return held.set

    def let_go(self) -> None:
        """Everything that was held goes on."""
        self._go.set()
        self._answer.set()

    async def _road(self, name: str, carried: object, work: Awaitable[T]) -> T:
        self.calls.append((name, carried))
        try:
            await self._go.wait()
            if self.down:
                raise StoreUnavailable(self.down)
        except BaseException:
            asyncio.ensure_future(work).cancel()
            raise
        done = await work
        await self._answer.wait()
        if self.deaf:
            raise StoreUnavailable(self.deaf)
        return done

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        work = MemoryCapacityStore.try_acquire_many(self, cluster, [Wanted(query_id, limit)])
        return (await self._road("one", query_id, work))[0]

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        carried = ([query_id for query_id, _ in wanted], list(released))
        return await self._road("many", carried, super().try_acquire_many(cluster, wanted, released))

    async def release_many(self, leases: Sequence[Lease]) -> None:
        await self._road("release", [query_id for _, query_id in leases], super().release_many(leases))

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        return await self._road("renew", [query_id for _, query_id in leases], super().renew(leases))

    async def release_all(self) -> int:
        return await self._road("all", None, super().release_all())
