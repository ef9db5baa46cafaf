"""Clients that use a process's admission, and one kind of process: the product's admission, leases and sweep,
with the database at hand. For workers see worker.py.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Protocol

from queryflux.admission.carry import carry_groups, carry_members, remembered
from queryflux.admission.leased import LeasedAdmission
from queryflux.admission.leases import Leases
from queryflux.admission.port import CapacityStore, Lease
from queryflux.admission.slots import Admission, Group, Member, Slot, Ticket
from queryflux.admission.sweep import LeaseSweep
from queryflux.model.endings import QueryStatus
from queryflux.model.errors import QueryFluxError
from tests.chaos.witness import Witness
from tests.kit.metrics import NoMetrics
from tests.sim.road import Road
from tests.sim.world import LoopClock, ProcessLoop

RENEW_SECS, EXPIRY_SECS, SWEEP_SECS = 1.0, 5.0, 2.0
LATE_SECS = 1.0
WAIT_SECS = 8.0
GROUPS = {"one": ("one",), "few": ("few",), "both": ("one", "few")}
CLIENTS = ("one", "few", "few", "both", "both")
THINK_SECS = 0.3
HOLD_SECS = 0.05
LONGEST_PAUSE = 8
"""So many times as long as usual a client rests at most: else one rests on when all should have ended."""
LONG_HOLD = 0.04
LONG_HOLD_SECS = (2.0, 8.0)


class Engine(Protocol):
    """Where queries run."""

    def start(self, process: "Clients", lease: Lease, began: float) -> None:
        """Begin one."""

    def end(self, process: "Clients", lease: Lease) -> None:
        """It has ended."""

    def violate(self, what: str) -> None:
        """Something that must never be."""


@dataclass
class Counts:
    """Endings of queries."""

    done: int = 0
    refused: int = 0
    given_up: int = 0
    moved: int = 0


class Clients:
    """Those of one process, and what is seen of it from outside."""

    admission: Admission

    def __init__(
        self, loop: ProcessLoop, store: CapacityStore, engine: Engine, chance: Random, think_secs: float
    ) -> None:
        """``store`` is where the process asks for leases."""
        self.loop = loop
        self.instance = store.instance
        self.engine = engine
        self.chance = chance
        self.think_secs = think_secs
        self.counts = Counts()
        self.witness = Witness(store, lambda: loop.world.now)
        self.groups: Mapping[str, Group] = {}
        """What clients know of; nothing before there is a configuration."""
        self.entered: dict[str, list[Ticket]] = {name: [] for name in GROUPS}
        self.edited_at = 0.0
        self.resting = False
        self.at_rest = 0
        self.stopped_at = -100.0
        """When it was last stopped, or resumed."""
        self._ids = itertools.count()

    def ended(self, query_id: str, group: str, cluster: str, status: QueryStatus) -> None:
        """A query that a client knows of is over."""

    async def client(self, group: str) -> None:
        """One that always asks the same group."""
        while not self.resting:
            pause = self.chance.expovariate(1 / self.think_secs)
            await asyncio.sleep(min(pause, LONGEST_PAUSE * self.think_secs))
            if group not in self.groups:
                continue
            await self._query(group, f"{self.instance}-{next(self._ids)}", ())
        self.at_rest += 1

    async def _query(self, group: str, query_id: str, excluded: tuple[str, ...]) -> None:
        try:
            slot = await self._enter(group, query_id, excluded)
        except QueryFluxError:
            self.counts.refused += 1
            self.ended(query_id, group, "", QueryStatus.FAILED)
            return
        if slot is None:
            self.counts.given_up += 1
            self.ended(query_id, group, "", QueryStatus.CANCELLED)
        elif self.chance.random() < 0.1:
            # The engine cannot be reached: the same query tries another one, or this one again.
            self.witness.began(Lease(slot.member.name, query_id))
            self.counts.moved += 1
            slot.release()
            others = (slot.member.name,) if group == "both" and self.chance.random() < 0.7 else ()
            await self._query(group, query_id, others)
        else:
            await self._work(slot, group, query_id)

    async def _enter(self, group: str, query_id: str, excluded: tuple[str, ...]) -> Slot | None:
        ticket = self.admission.enter(self.groups[group], excluded, query_id)
        entered = self.entered[group]
        entered.append(ticket)
        try:
            if self.chance.random() < 0.1:  # a client without patience
                try:
                    slot = await asyncio.wait_for(ticket.wait(), self.chance.uniform(0, 1))
                except TimeoutError:
                    return None
            else:
                slot = await ticket.wait()
            self._check_order(group, ticket)
            return slot
        finally:
            entered.remove(ticket)

    def _check_order(self, group: str, ticket: Ticket) -> None:
        if len(GROUPS[group]) > 1:
            return  # places come free on several clusters, and a query that was refused on one tries another
        if self.loop.world.now < self.edited_at + 2 * LATE_SECS:
            return  # a call under way carried the cap from before to the one, and the new one to the other
        if ticket.slot is None or Lease(ticket.slot.member.name, ticket.query_id) in self.witness.doubtful:
            return  # it may have been granted together with those before it, and nobody heard of it
        for earlier in self.entered[group]:
            if earlier is ticket:
                return
            if earlier.slot is None and not earlier.gone:
                self.engine.violate(f"{ticket.query_id} overtakes {earlier.query_id}")

    async def _work(self, slot: Slot, group: str, query_id: str) -> None:
        lease = Lease(slot.member.name, query_id)
        self.witness.at_work.add(lease)
        self.engine.start(self, lease, self.witness.began(lease))
        long = self.chance.random() < LONG_HOLD
        await asyncio.sleep(
            self.chance.uniform(*LONG_HOLD_SECS) if long else self.chance.expovariate(1 / HOLD_SECS)
        )
        self.engine.end(self, lease)
        self.witness.at_work.discard(lease)
        slot.release()
        self.counts.done += 1
        self.ended(query_id, group, lease.cluster, QueryStatus.SUCCESS)

    async def take_all(self, caps: Mapping[str, int]) -> None:
        """Every place of every cluster at the same time."""
        places = [(name, number) for name, cap in caps.items() for number in range(cap)]
        taken = [
            await self.admission.enter(self.groups[name], (), f"{self.instance}-full-{name}-{number}").wait()
            for name, number in places
        ]
        for slot in taken:
            slot.release()
        self.at_rest += 1


class Process(Clients):
    """A process at work from its first turn."""

    def __init__(
        self, loop: ProcessLoop, road: Road, engine: Engine, caps: Mapping[str, int], chance: Random
    ) -> None:
        super().__init__(loop, road, engine, chance, THINK_SECS)
        self.road = road
        self.caps = dict(caps)
        self.members: dict[str, Member] = {}
        loop.call_soon(self._begin)

    def _begin(self) -> None:
        clock = LoopClock(self.loop)
        self.leases = Leases(
            self.witness,
            clock,
            NoMetrics(),
            renew_secs=RENEW_SECS,
            acquire_secs=LATE_SECS,
            chance=self.chance,
        )
        self.admission = LeasedAdmission(clock, self.leases, self.chance)
        sweep = LeaseSweep(
            self.road,
            self.road,
            clock,
            NoMetrics(),
            interval_secs=SWEEP_SECS,
            expiry_secs=EXPIRY_SECS,
            chance=self.chance,
        )
        self.reconfigure(self.caps)
        self.leases.start()
        self.leases.tasks.spawn("sweep", sweep.run())
        for name in CLIENTS:
            self.loop.create_task(self.client(name))

    def reconfigure(self, caps: Mapping[str, int]) -> None:
        """As a process does when its configuration has changed."""
        self.caps = dict(caps)
        self.edited_at = self.loop.world.now
        members = carry_members(self.members, {name: Member(name, limit=cap) for name, cap in caps.items()})
        groups = {
            name: Group(name, [members[one] for one in of], wait_secs=WAIT_SECS)
            for name, of in GROUPS.items()
        }
        carry_groups(self.admission, self.groups, groups, members)
        self.members, self.groups = remembered(self.members, members), groups
