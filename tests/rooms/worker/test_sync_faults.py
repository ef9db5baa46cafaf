"""A worker among faults: calls and answers are lost or late, control planes lag and stores are restored.

Whatever happens, it never goes back in sequence within an epoch nor to an epoch that it has left, it compiles
no revision again that it has just refused, and when the faults stop it comes to what there is.
"""

from collections.abc import Mapping
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest

from queryflux.controlplane.publisher import Asker, Published
from queryflux.fleet.paths import CONFIG
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.worker.port import NO_HEADERS, Reply
from queryflux.worker.state import ConfigState
from queryflux.worker.sync import Swap, Sync
from tests.kit.clock import ManualClock
from tests.kit.metrics import NoMetrics
from tests.kit.planes import document, sent, unchanged

SEEDS = 40
NAMES = "abcdefg"
BAD = {document(name, 1).revision for name in "bd"}
"""Revisions that this worker cannot use."""


class World:
    """A store, two control planes that follow it at their own pace, and a network that does what it likes."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.stored = [document("a", 1, "epoch-0")]
        self.planes = [(0, 0.0), (0, 0.0)]
        """What each of the control planes has read last, and when."""
        self.faults = True
        self.used: list[WorkerSnapshot] = []
        self.prepared: list[WorkerSnapshot] = []
        self.sync = Sync(self, self.prepare, self.clock, NoMetrics(), poll_secs=5, chance=self.chance.random)

    # The store and who follows it.

    def edit(self) -> None:
        last = self.stored[-1]
        name = self.chance.choice(NAMES)
        if self.chance.random() < 0.1:  # a restore: another epoch, from the beginning
            fresh = document(name, 1, f"epoch-{len(self.stored)}")
        else:
            fresh = document(name, last.sequence + 1, last.epoch)
        self.stored.append(fresh)

    def catch_up(self) -> None:
        for index in range(len(self.planes)):
            if not self.faults or self.chance.random() < 0.4:
                self.planes[index] = (len(self.stored) - 1, self.clock.monotonic())

    # The network, and the calls of a control plane.

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float,
    ) -> Reply:
        plane = self.chance.randrange(len(self.planes))
        lucky = self.chance.random() if self.faults else 1.0
        if lucky < 0.1:
            raise StoreUnavailable("it went nowhere")
        reply = await self.answered(plane, path, headers)
        if lucky < 0.2:
            raise StoreUnavailable("the answer was lost")
        if lucky < 0.35:
            await self.clock.sleep(self.chance.uniform(0, 4))
        return reply

    async def answered(self, plane: int, path: str, headers: Mapping[str, str]) -> Reply:
        parts = urlsplit(path)
        if parts.path == CONFIG:
            there, age = self.published(plane)
            known = there.revision in headers.get("If-None-Match", "")
            return self.unchanged(there, age) if known else sent(there, age)
        params = {key: values[0] for key, values in parse_qs(parts.query).items()}
        asker = Asker(
            params.get("revision", ""),
            params.get("epoch", ""),
            int(params.get("sequence", "-1")),
            params.get("rejected", ""),
        )
        until = self.clock.monotonic() + float(params["timeoutSecs"])
        while True:
            there, age = self.published(plane)
            if asker.wants(Published(there.revision, there.epoch, there.sequence, b"", b"")):
                return sent(there, age)
            if self.clock.monotonic() >= until:
                return self.unchanged(there, age)
            await self.clock.sleep(0.2)

    def published(self, plane: int) -> tuple[WorkerSnapshot, float]:
        at, read_at = self.planes[plane]
        return self.stored[at], self.clock.monotonic() - read_at

    @staticmethod
    def unchanged(there: WorkerSnapshot, age: float) -> Reply:
        return unchanged(there.revision, there.sequence, there.epoch, age)

    async def prepare(self, snapshot: WorkerSnapshot) -> Swap:
        self.prepared.append(snapshot)
        if self.chance.random() < 0.3:
            await self.clock.sleep(self.chance.uniform(0, 3))
        if snapshot.revision in BAD:
            raise ConfigError("this worker cannot use it")
        return lambda: self.used.append(snapshot)

    # What must hold.

    def something_between(self, one: WorkerSnapshot, two: WorkerSnapshot) -> bool:
        """Whether another revision was published between two of the same."""
        at = [(item.epoch, item.sequence) for item in self.stored]
        began, ended = at.index((one.epoch, one.sequence)), at.index((two.epoch, two.sequence))
        return any(item.revision != one.revision for item in self.stored[began:ended])

    def check(self) -> None:
        epochs: list[str] = []
        for before, after in zip(self.used, self.used[1:], strict=False):
            if before.epoch == after.epoch:
                assert after.sequence > before.sequence, "back in sequence"
        for snapshot in self.used:
            if not epochs or epochs[-1] != snapshot.epoch:
                assert snapshot.epoch not in epochs, "back to an epoch that was left"
                epochs.append(snapshot.epoch)
        for one, two in zip(self.prepared, self.prepared[1:], strict=False):
            if one.revision == two.revision and one.revision in BAD:
                assert self.something_between(one, two), "a refused revision was compiled again"
        assert all(snapshot.revision not in BAD for snapshot in self.used)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_worker_among_faults(seed: int) -> None:
    world = World(seed)
    world.sync.start()
    for _ in range(60):
        if world.chance.random() < 0.4:
            world.edit()
        world.catch_up()
        await world.clock.advance(world.chance.uniform(0, 3))
        world.check()
    world.faults = False
    for _ in range(24):
        world.catch_up()
        await world.clock.advance(5)
    world.check()
    last = world.stored[-1]
    status = world.sync.status
    if last.revision in BAD:
        assert status.rejected is not None
        assert status.rejected.revision == last.revision
        assert status.state in {ConfigState.REJECTED, ConfigState.UNCONFIGURED}
    else:
        assert status.revision == last.revision
        assert (status.state, status.rejected, status.failure) == (ConfigState.FRESH, None, "")
        assert status.confirmed_age is not None
        assert status.confirmed_age < 15
    await world.sync.close()
