"""One generation follows another: what is kept, and what leaves when its last query has ended.

A cluster whose engine is the same object in both generations is kept, with its connections. Another engine,
and the translator of a generation that had another mode, leaves: nothing new goes there, what runs there goes
on, and it is closed when nothing does. Looking whether anything does costs a walk over what runs, so it is
done every half second while something leaves, and never on the path of a query.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from queryflux.admission.carry import carry_groups, carry_members, remembered
from queryflux.admission.slots import Admission, Member
from queryflux.pipeline.generation import Cluster, Generation
from queryflux.pipeline.health import Health
from queryflux.runtime.clock import Clock
from queryflux.runtime.tasks import TaskGroup

log = logging.getLogger(__name__)

LOOK_SECS = 0.5


@dataclass(slots=True, eq=False)
class Leaving:
    """Something that is closed when nobody uses it any more."""

    name: str
    used: Callable[[], bool]
    close: Callable[[], Awaitable[None]]


class Succession:
    """The change from generation to generation of one pipeline."""

    def __init__(self, admission: Admission, health: Health, clock: Clock, tasks: TaskGroup) -> None:
        self._admission = admission
        self._health = health
        self._clock = clock
        self._tasks = tasks
        self._members: dict[str, Member] = {}
        self._leaving: list[Leaving] = []
        self._looking = False

    def follow(self, before: Generation | None, after: Generation) -> list[Cluster]:
        """``after`` takes over from ``before``, at once and whole. Gives the clusters of ``before`` that it
        does not have, or not with that engine."""
        fresh = {name: cluster.member for name, cluster in after.clusters.items()}
        members = carry_members(self._members, fresh)
        old = before.clusters if before is not None else {}
        for name, cluster in after.clusters.items():
            cluster.member = members[name]
            known = old.get(name)
            if known is not None and known.engine is cluster.engine:
                after.clusters[name] = known
            else:
                cluster.member.down = ""  # whatever could not be reached, it was another
        carry_groups(
            self._admission,
            {name: plan.admission for name, plan in before.groups.items()} if before is not None else {},
            {name: plan.admission for name, plan in after.groups.items()},
            members,
            {name for name, plan in after.groups.items() if not plan.enabled},
        )
        self._members = remembered(self._members, members)
        gone = [cluster for name, cluster in old.items() if after.clusters.get(name) is not cluster]
        for cluster in gone:
            self._health.forget(cluster)
        for name, cluster in after.clusters.items():
            if old.get(name) is not cluster:
                self._health.watch(cluster)
        return gone

    def leave(self, leaving: Iterable[Leaving]) -> None:
        """Close these when they are not used any more."""
        self._leaving.extend(leaving)
        if self._leaving and not self._looking:
            self._looking = True
            self._tasks.spawn("engines that leave", self._look())

    async def _look(self) -> None:
        try:
            while self._leaving:
                await self._close([one for one in self._leaving if not one.used()])
                await self._clock.sleep(LOOK_SECS)
        finally:
            self._looking = False

    async def close(self) -> None:
        """Close what is left, used or not."""
        await self._close(list(self._leaving))

    async def _close(self, done: list[Leaving]) -> None:
        self._leaving = [one for one in self._leaving if one not in done]
        outcomes = await asyncio.gather(*(one.close() for one in done), return_exceptions=True)
        for one, outcome in zip(done, outcomes, strict=True):
            if isinstance(outcome, Exception):
                log.error("closing %s failed", one.name, exc_info=outcome)
            else:
                log.info("%s is closed: nothing uses it any more", one.name)
