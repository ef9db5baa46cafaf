"""One process of the fleet: the product's admission and leases on PostgreSQL, and clients that use them.

Each client waits for a place, tells the engine, holds the place for a while (mostly for no time, now and
then for longer than leases live), tells the engine again and gives it back. Commands come by standard
input, a line each, and are answered by a line: ``cap CLUSTER VALUE``, ``rest`` (clients stop), ``full``
(take every place of every cluster, and give it back), ``end``.
"""

import asyncio
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import uvloop

from queryflux.admission.carry import carry_groups, carry_members, remembered
from queryflux.admission.slots import Group, Member, Slot
from queryflux.app.capacity import SharedCapacity
from queryflux.app.stores import build_stores
from queryflux.config.fleet import CoordinationConfig
from queryflux.config.persistence import PostgresPersistence
from queryflux.config.process import ProcessConfig
from queryflux.model.errors import QueryFluxError
from queryflux.model.secret import Secret
from queryflux.runtime.clock import SystemClock
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.chaos.engine import EngineLink, connect_engine
from tests.chaos.witness import Witness

RENEW_SECS, EXPIRY_SECS, SWEEP_SECS = 1, 5, 2
STATEMENT_SECS = 2
WAIT_SECS = 20.0
SHARES = {"one": 8, "ten": 16}
"""Clients of each cluster; the rest go to the largest."""
LONG_HOLD_SECS = (6.0, 9.0)
SHORT_HOLD_SECS = 0.02


@dataclass
class Settings:
    """What a process is told at its start."""

    instance: str
    dsn: str
    engine: int
    caps: dict[str, int]
    clients: int
    seed: str


@dataclass
class Counts:
    """What came of the queries of this process."""

    done: int = 0
    refused: int = 0
    given_up: int = 0


class Worker:
    """The process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.chance = Random(settings.seed)
        self.metrics = PrometheusMetrics()
        self.clock = SystemClock()
        process = ProcessConfig(
            persistence=PostgresPersistence(
                url=Secret(settings.dsn),
                statement_timeout_secs=STATEMENT_SECS,
                acquire_timeout_secs=STATEMENT_SECS,
            ),
            coordination=CoordinationConfig(
                acquire_timeout_secs=STATEMENT_SECS,
                lease_renew_secs=RENEW_SECS,
                lease_expiry_secs=EXPIRY_SECS,
                sweep_interval_secs=SWEEP_SECS,
            ),
        )
        self.stores = build_stores(process, settings.instance, self.clock, self.metrics)
        assert self.stores.shared is not None
        self.witness = Witness(self.stores.shared.leases, time.monotonic)
        shared = replace(self.stores.shared, leases=self.witness)
        self.capacity = SharedCapacity(shared, process, self.clock, self.metrics)
        self.members: dict[str, Member] = {}
        self.groups: dict[str, Group] = {}
        self.reconfigure(settings.caps)
        self.engine: EngineLink | None = None
        self.resting = asyncio.Event()
        self.counts = Counts()
        self.waits: list[float] = []
        self.ids = itertools.count()
        self.clients: list[asyncio.Task[None]] = []

    def reconfigure(self, caps: Mapping[str, int]) -> None:
        """As a process does when its configuration has changed."""
        fresh = {name: Member(name, limit=cap) for name, cap in caps.items()}
        members = carry_members(self.members, fresh)
        groups = {name: Group(name, [member], wait_secs=WAIT_SECS) for name, member in members.items()}
        carry_groups(self.capacity.admission, self.groups, groups, members)
        self.members, self.groups = remembered(self.members, members), groups

    async def run(self) -> None:
        """Until ``end``."""
        await self.stores.open()
        self.engine = await connect_engine(self.settings.engine, self.settings.instance, lambda: os._exit(3))
        self.capacity.start()
        self.clients = [
            asyncio.create_task(self.client(name))
            for name in shares(self.settings.caps, self.settings.clients)
        ]
        print("ready", flush=True)
        await self.obey()
        await self.capacity.close()
        await self.stores.close()

    async def client(self, name: str) -> None:
        """One query after another."""
        while not self.resting.is_set():
            try:
                await self.query(name)
            except QueryFluxError:
                self.counts.refused += 1
                await asyncio.sleep(0.05)

    async def query(self, name: str) -> None:
        """One query, from asking to the end."""
        assert self.engine is not None
        query_id = f"{self.settings.instance}-{next(self.ids)}"
        asked = time.monotonic()
        ticket = self.capacity.admission.enter(self.groups[name], (), query_id)
        if self.chance.random() < 0.01:  # a client that has no patience
            try:
                slot = await asyncio.wait_for(ticket.wait(), self.chance.uniform(0, 0.05))
            except TimeoutError:
                self.counts.given_up += 1
                return
        else:
            slot = await ticket.wait()
        self.waits.append(time.monotonic() - asked)
        await self.work(slot, query_id, self.hold(self.settings.caps[name]))
        self.counts.done += 1

    def hold(self, cap: int) -> float:
        """For how long the next one runs. About a fifth of the places are held by long ones."""
        draw = self.chance.random()
        if draw < 0.00001 * cap:
            return self.chance.uniform(*LONG_HOLD_SECS)
        return self.chance.uniform(0, SHORT_HOLD_SECS) if draw < 0.2 else 0.0

    async def work(self, slot: Slot, query_id: str, seconds: float) -> None:
        """What is done with a place."""
        assert self.engine is not None
        lease = slot.holding.lease  # type: ignore[attr-defined]
        self.witness.at_work.add(lease)
        await self.engine.tell("s", slot.member.name, query_id, repr(self.witness.began(lease)))
        if seconds:
            await asyncio.sleep(seconds)
        await self.engine.tell("e", query_id)
        self.witness.at_work.discard(lease)
        slot.release()

    async def obey(self) -> None:
        """Commands, until ``end`` or the end of standard input."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while words := (await reader.readline()).decode().split():
            answer: dict[str, Any] = {}
            match words:
                case ["cap", name, value]:
                    self.settings.caps[name] = int(value)
                    self.reconfigure(self.settings.caps)
                case ["rest"]:
                    self.resting.set()
                    await asyncio.gather(*self.clients)
                case ["full"]:
                    await self.take_all()
                case ["end"]:
                    self.resting.set()
                    await asyncio.gather(*self.clients)
                    print(json.dumps(self.report()), flush=True)
                    return
                case _:
                    raise ValueError(f"what is {words}?")
            print(json.dumps(answer), flush=True)

    async def take_all(self) -> None:
        """Every place of every cluster at the same time."""
        assert self.engine is not None
        loop = asyncio.get_running_loop()
        for name, cap in self.settings.caps.items():
            taken = 0
            full = loop.create_future()

            async def one(name: str = name, full: "asyncio.Future[None]" = full, cap: int = cap) -> None:
                nonlocal taken
                query_id = f"{self.settings.instance}-full-{next(self.ids)}"
                slot = await self.capacity.admission.enter(self.groups[name], (), query_id).wait()
                taken += 1
                if taken == cap:
                    full.set_result(None)
                await full
                await self.work(slot, query_id, 0.05)

            await asyncio.gather(*(one() for _ in range(cap)))

    def report(self) -> dict[str, Any]:
        """What this process has seen."""
        self.waits.sort()
        registry = self.metrics.registry
        lost = sum(
            sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "queryflux_capacity_leases_lost_total"
        )
        return {
            "done": self.counts.done,
            "refused": self.counts.refused,
            "given_up": self.counts.given_up,
            "lost": lost,
            "waits": self.waits[:: max(1, len(self.waits) // 1000)],
            "violations": self.witness.violations,
            "faults": self.witness.faults,
        }


def shares(caps: Mapping[str, int], clients: int) -> list[str]:
    """The cluster of each client."""
    largest = max(caps, key=lambda name: caps[name])
    names = [name for name, share in SHARES.items() for _ in range(share * clients // 64)]
    return names + [largest] * (clients - len(names))


async def main(settings: Settings) -> None:
    """A process."""
    await Worker(settings).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    uvloop.run(main(Settings(**json.loads(sys.argv[1]))))
