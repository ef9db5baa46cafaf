"""The road from a process to the database: slow, lossy, cut. Its users get StoreUnavailable and know no
more.

What a control plane asks the database for a worker is done only while the worker has not given up: see
``Sender``, and docs/testing.md for why.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from queryflux.admission.port import SWEEP_LOCK_SECS, Lease, Recount, Wanted
from tests.sim.database import ModelDatabase, unavailable
from tests.sim.world import ProcessLoop, World

T = TypeVar("T")


BEGUN_SECS = 0.005
"""A call that has arrived has begun by then."""


@dataclass
class Weather:
    """How the roads are. Parts of one for what may happen to a call, seconds for the mean way."""

    way_secs: float = 0.0005
    lost_on_the_way: float = 0.0
    """The call never comes to be."""
    lost_on_return: float = 0.0
    """It is done, and nobody hears of it."""
    cut: float = 0.0
    """The caller is told that it failed, and it goes on."""
    twice: float = 0.0
    """It is done, and done again: somebody between the two repeated it until there was an answer."""


class Sender(Protocol):
    """Whoever asked for what a process does now."""

    @property
    def has_gone(self) -> bool:
        """It does not wait for an answer any more, and may have asked somebody else."""


SENDER: ContextVar[Sender | None] = ContextVar("sender", default=None)


class Line:
    """What all calls of one process to the database go over."""

    def __init__(self, world: World, database: ModelDatabase, weather: Weather, loop: ProcessLoop) -> None:
        self._world = world
        self._database = database
        self._weather = weather
        self.loop = loop
        self.cut_until = 0.0
        self.muted = False
        """The process is over."""

    def _way(self) -> float:
        return self._world.chance.expovariate(1 / self._weather.way_secs)

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]], *, laggard: bool = False) -> T:
        """``laggard``: it may come to be long after its caller was told that it failed, behind what the
        caller has sent since. A release must not: nothing tells a lease from a later one of its query."""
        sender = SENDER.get()

        def begin(tell: Callable[[T], object]) -> None:
            if laggard or not (self.loop.dead or (sender is not None and sender.has_gone)):
                self._database.submit(make, tell, failed)

        answer: asyncio.Future[T] = self.loop.create_future()
        chance, weather = self._world.chance, self._weather

        def fail(why: str) -> None:
            if not answer.done():
                answer.set_exception(unavailable(why))

        def failed(why: str) -> None:
            self._world.at(self._way(), lambda: self.loop.call_soon(fail, why))

        def done(result: T) -> None:
            if chance.random() < weather.twice:
                self._world.at(self._way(), lambda: begin(replied))
            else:
                replied(result)

        def replied(result: T) -> None:
            if chance.random() < weather.lost_on_return or self._world.now < self.cut_until:
                failed("the reply was lost")
                return
            self._world.at(self._way(), lambda: self.loop.call_soon(deliver, result))

        def deliver(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        if self.muted:
            raise unavailable("nobody is there")
        if self._world.now < self.cut_until or chance.random() < weather.lost_on_the_way:
            failed("the call was lost")
        else:
            cut = chance.random() < weather.cut
            way = min(3.0, self._way() * (chance.choice([1, 30]) if cut and laggard else 1))
            self._world.at(way, lambda: begin(done))
            if cut:
                told = self._way() if laggard else way + BEGUN_SECS + self._way()
                self._world.at(told, lambda: self.loop.call_soon(fail, "the connection was cut"))
        return await answer


class Road:
    """Capacity at the end of a line: CapacityStore, CapacityUpkeep and SweepCoordinator of an instance."""

    def __init__(self, line: Line, database: ModelDatabase, instance: str) -> None:
        self.line = line
        self._database = database
        self.instance = instance

    async def try_acquire(self, cluster: str, query_id: str, limit: int) -> bool:
        return (await self.try_acquire_many(cluster, [Wanted(query_id, limit)]))[0]

    async def try_acquire_many(
        self, cluster: str, wanted: Sequence[Wanted], released: Sequence[str] = ()
    ) -> list[bool]:
        return await self.line.call(
            lambda: self._database.acquire(self.instance, cluster, wanted, released), laggard=not released
        )

    async def release_many(self, leases: Sequence[Lease]) -> None:
        await self.line.call(lambda: self._database.release(self.instance, leases))

    async def renew(self, leases: Sequence[Lease]) -> set[str]:
        return await self.line.call(lambda: self._database.renew(self.instance, leases))

    async def release_all(self) -> int:
        return await self.line.call(lambda: self._database.release_all(self.instance))

    # What the simulated processes have no use for: nothing of it is part of admission.

    async def counts(self) -> Mapping[str, int]:
        raise NotImplementedError

    async def publish_running(self, cluster: str, running: int) -> None:
        raise NotImplementedError

    async def running(self) -> Mapping[str, int]:
        raise NotImplementedError

    async def expire(self, older_than_secs: float) -> int:
        return await self.line.call(lambda: self._database.expire(older_than_secs))

    async def settle(self) -> list[Recount]:
        return await self.line.call(self._database.settle)

    async def try_lock(self, name: str, hold_secs: float = SWEEP_LOCK_SECS) -> str | None:
        return await self.line.call(lambda: self._database.try_sweep_lock(name, hold_secs))

    async def unlock(self, name: str, token: str, rest_secs: float) -> None:
        await self.line.call(lambda: self._database.unlock_sweep(name, token, rest_secs))
