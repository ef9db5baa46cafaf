"""A process that serves workers keeps the snapshot and its age true."""

from collections.abc import AsyncIterator

import pytest

from queryflux.app.worker_api import CONFIRM_SECS, WorkerApi
from queryflux.config.clusters import ClusterConfig
from queryflux.config.fleet import WorkerApiConfig
from queryflux.config.rows import updated
from queryflux.config.snapshot import Snapshot
from queryflux.config.store import StoredConfig
from queryflux.controlplane.reload import Reloader, Swap
from queryflux.model.errors import ConfigError, StoreUnavailable
from queryflux.model.secret import Secret
from queryflux.persistence.memory_config import MemoryConfigStore
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics
from tests.kit.worker_requests import SECRET, call


class Store(MemoryConfigStore):
    """One that can be out of reach or at fault, and tells nobody of changes."""

    error: Exception | None = None

    async def load(self) -> StoredConfig:
        if self.error is not None:
            raise self.error
        return await super().load()

    async def revision(self) -> tuple[str, int]:
        if self.error is not None:
            raise self.error
        return await super().revision()


class Plane:
    """A process that reloads only when it is told to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.config = WorkerApiConfig(
            enabled=True, secret=Secret(SECRET), secrets=(Secret("another-secret"),)
        )
        self.api = WorkerApi(self.config, self.store, self.clock, NoMetrics())
        self.reloads = 0
        self.snapshot = Snapshot()
        self.reloader = Reloader(
            self.store,
            self.prepare,
            clock=self.clock,
            metrics=NoMetrics(),
            interval_secs=0,
            used=lambda stored, read_at: self.api.use(stored, self.snapshot, read_at),
        )

    async def prepare(self, stored: StoredConfig) -> Swap:
        self.reloads += 1
        names = [row.name for row in stored.tables.clusters]
        if "bad" in names:
            raise ConfigError("bad is bad")
        self.snapshot = Snapshot(clusters={name: ClusterConfig(engine="duckDb") for name in names})
        return lambda: None

    async def put(self, *names: str) -> None:
        before = await MemoryConfigStore.load(self.store)
        clusters = {name: ClusterConfig(engine="duckDb") for name in names}
        await self.store.save(before, updated(before.tables, Snapshot(clusters=clusters), {"clusters"}))

    async def reload(self) -> None:
        """As its reloader would when it is told to."""
        if self.reloader._wanted.is_set():
            self.reloader._wanted.clear()
            await self.reloader.apply()
            await self.api.ready()

    async def tick(self) -> None:
        await self.clock.advance(CONFIRM_SECS)
        await self.reload()

    @property
    def sequence(self) -> int:
        return self.api.publisher.current.sequence


@pytest.fixture
async def plane() -> AsyncIterator[Plane]:
    made = Plane()
    await made.put("a")
    await made.reloader.apply()
    await made.api.ready()
    made.api.follow(made.reloader)
    await settle()
    yield made
    await made.api.close()
    await made.reloader.close()


async def test_while_the_store_says_the_same_the_snapshot_stays_young(plane: Plane) -> None:
    for _ in range(5):
        await plane.tick()
        assert plane.api.publisher.age() == 0
    assert plane.reloads == 1


async def test_a_change_that_nobody_told_of_is_found(plane: Plane) -> None:
    await plane.put("a", "b")
    await plane.tick()
    assert (plane.reloads, plane.sequence) == (2, 2)


async def test_while_the_store_is_away_the_age_grows(plane: Plane) -> None:
    plane.store.error = StoreUnavailable("away")
    for _ in range(3):
        await plane.tick()
    assert plane.api.publisher.age() == 3 * CONFIRM_SECS
    assert plane.sequence == 1
    plane.store.error = None
    await plane.tick()
    assert plane.api.publisher.age() == 0


async def test_a_fault_of_ours_does_not_end_the_looking(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.store.error = RuntimeError("ours")
    await plane.tick()
    assert "ours" in caplog.text
    plane.store.error = None
    await plane.tick()
    assert plane.api.publisher.age() == 0


async def test_what_cannot_be_used_is_tried_once_and_confirms_nothing(plane: Plane) -> None:
    await plane.put("a", "bad")
    for _ in range(4):
        await plane.tick()
    assert plane.reloads == 2
    assert plane.sequence == 1
    assert plane.api.publisher.age() == 4 * CONFIRM_SECS
    await plane.put("a", "c")
    await plane.tick()
    assert plane.sequence == 3
    assert plane.api.publisher.age() == 0


async def test_a_reload_that_failed_for_a_moment_is_made_up_for(plane: Plane) -> None:
    plane.store.error = StoreUnavailable("away")
    await plane.reloader.apply()
    assert plane.reloader.state.failure
    plane.store.error = None
    await plane.tick()
    assert plane.reloader.state.failure == ""
    assert plane.api.publisher.age() == 0


async def test_the_application_takes_all_secrets_of_the_file_and_leaves_the_rest_to_the_operators(
    plane: Plane,
) -> None:
    seen: list[str] = []

    async def operator(scope: object, receive: object, send: object) -> None:
        seen.append("operator")

    app = plane.api.mounted(operator)
    for secret in (SECRET, "another-secret"):
        assert (await call(app, "GET", "/worker/config", secret=secret)).status == 200
    assert (await call(app, "GET", "/worker/config", secret="x")).status == 401
    for scope in (
        {"type": "http", "path": "/workers"},
        {"type": "lifespan"},
        {"type": "http", "path": "/worker"},
    ):
        await app(scope, _receive, _send)
    assert seen == ["operator"] * 3


async def _receive() -> dict[str, object]:
    return {}


async def _send(message: object) -> None:
    raise AssertionError("the operators' application answers nothing here")
