"""Control planes of one PostgreSQL: what workers get of them while it is edited, wrong, away or late."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from queryflux.app import worker_api
from queryflux.config.snapshot import Snapshot
from queryflux.fleet import snapshot as wire
from queryflux.fleet.paths import CONFIG
from queryflux.fleet.snapshot import WorkerSnapshot
from queryflux.persistence.postgres import migrate
from tests.kit.calling import SECRET, Waiting, WorkerCaller
from tests.kit.databases import Database, new_database, own_server
from tests.kit.editing import edit_in, failure_of
from tests.kit.process import Process, process
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  role: controlPlane
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  workerApi: {secret: SECRET}
  logging: {level: LEVEL}
  configReloadIntervalSecs: 0
  persistence: {type: postgres, url: 'URL', acquireTimeoutSecs: 2}
clusters:
  duck: {engine: duckDb, threads: 1, maxRunningQueries: 1}
clusterGroups:
  main: {members: [duck], maxRunningQueries: 1, defaultTags: {a: x, b: y, c: z}}
routers: [{type: userGroup, userToGroup: {ann: main, bob: main, cem: main}}]
routingFallback: main
""".replace("SECRET", SECRET)
BUMP = "UPDATE config_revision SET revision = revision + 1 RETURNING revision"
"""Who edits by hand says so."""


@pytest.fixture
def database() -> Iterator[Database]:
    with new_database("postgres18") as made:
        yield made


@pytest.fixture(autouse=True)
def confirmed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_api, "CONFIRM_SECS", 0.1)


def yaml_of(dsn: str, level: str = "error") -> str:
    return YAML.replace("URL", dsn).replace("LEVEL", level)


def caller(served: Serving | Process) -> WorkerCaller:
    port = served.port("operator port") if isinstance(served, Process) else served.port("adminApi")
    return WorkerCaller(port)


def put_limit(served: Serving, limit: int) -> None:
    """One edit of two sections: cluster and group get the same limit."""

    def change(before: Snapshot) -> Snapshot:
        return replace(
            before,
            clusters={"duck": replace(before.clusters["duck"], max_running_queries=limit)},
            cluster_groups={"main": replace(before.cluster_groups["main"], max_running_queries=limit)},
        )

    edit_in(served, change, "clusters", "clusterGroups")


def limits(received: WorkerSnapshot) -> tuple[int, int]:
    cluster, group = received.content["clusters"]["duck"], received.content["clusterGroups"]["main"]
    return cluster["maxRunningQueries"], group["maxRunningQueries"]


def until(served: WorkerCaller, limit: int, seconds: float = 20) -> WorkerSnapshot:
    """What is published, once it has this limit."""
    deadline = time.monotonic() + seconds
    while limits(received := served.snapshot()) != (limit, limit):
        assert time.monotonic() < deadline, limits(received)
        time.sleep(0.01)
    return received


def age_of(worker: WorkerCaller) -> float:
    return float(worker(CONFIG).headers[wire.CONFIRMED_AGE.lower()])


def until_confirmed(worker: WorkerCaller, within: float) -> None:
    """The store has said so not longer ago than that."""
    deadline = time.monotonic() + 20
    while age_of(worker) > within:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_edits_while_snapshots_are_made_never_give_a_half_old_one(database: Database) -> None:
    with serving(yaml_of(database.dsn)) as one, serving(yaml_of(database.dsn)) as other:
        seen: list[WorkerSnapshot] = []
        stop = threading.Event()

        def follow() -> None:
            worker = caller(other)
            has = worker.snapshot()
            while not stop.is_set():
                reply = worker.wait(has, 1)
                if reply.status == 200:
                    has = wire.read(reply.body)
                    seen.append(has)

        following = threading.Thread(target=follow)
        following.start()
        for limit in range(2, 32):
            put_limit(one, limit)
            time.sleep(0.05)
        until(caller(one), 31)
        last = until(caller(other), 31)
        stop.set()
        following.join(10)
        assert len(seen) > 3
        assert all(cluster == group for cluster, group in map(limits, seen))
        sequences = [received.sequence for received in seen]
        assert sequences == sorted(set(sequences))
        assert {received.epoch for received in seen} == {last.epoch}
        assert last.revision == caller(one).snapshot().revision


def test_processes_with_other_hash_seeds_publish_the_same_revision(
    database: Database, tmp_path: Path
) -> None:
    revisions = []
    for seed in ("1", "4242"):
        folder = tmp_path / seed
        folder.mkdir()
        with process(folder, yaml_of(database.dsn, "info"), {"PYTHONHASHSEED": seed}) as running:
            received = caller(running).snapshot()
            status = caller(running).operator("GET", "/admin/config/status").json
            revisions += [received.revision, status["revision"]]
            assert (received.epoch, received.sequence) == (status["epoch"], status["sequence"])
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
    assert len(set(revisions)) == 1


def test_a_bad_row_in_the_database_never_reaches_workers(database: Database) -> None:
    with serving(yaml_of(database.dsn)) as served:
        worker = caller(served)
        good = worker.snapshot()
        waiting = Waiting(worker, good, 20)
        database.rows(
            "WITH bad AS (INSERT INTO cluster_configs (name, engine_key) VALUES ('bad', 'trino')) " + BUMP
        )
        served.wait_for(lambda: bool(failure_of(served)))
        time.sleep(0.3)
        assert not waiting.done
        assert worker.snapshot().revision == good.revision
        age = age_of(worker)
        time.sleep(0.3)
        assert age_of(worker) > age + 0.2, "what is served is not what is stored"
        database.rows("WITH good AS (DELETE FROM cluster_configs WHERE name = 'bad') " + BUMP)
        assert waiting.reply().status == 304, "the same again: only the order has moved"
        served.wait_for(lambda: not failure_of(served))
        assert worker.snapshot().sequence > good.sequence


def test_the_last_good_snapshot_is_served_while_the_database_is_away() -> None:
    server = own_server("postgres18")
    try:
        dsn = f"postgresql://trusted@{server.host}:{server.port}/postgres?sslmode=disable"
        with serving(yaml_of(dsn)) as served, serving(yaml_of(dsn)) as other:
            worker = caller(served)
            good = worker.snapshot()
            time.sleep(0.3)
            until_confirmed(worker, 0.25)
            server.stop()
            began = time.monotonic()
            for plane in (worker, caller(other)):
                assert plane(CONFIG).status == 200
                assert plane(CONFIG, {"If-None-Match": f'"{good.revision}"'}).status == 304
            reply = worker.wait(good, 1)
            assert (reply.status, reply.headers["etag"]) == (304, f'"{good.revision}"')
            assert float(reply.headers[wire.CONFIRMED_AGE.lower()]) > 0.7, "it confirms no more than it knows"
            away = time.monotonic() - began
            assert age_of(worker) >= away - 0.5
            server.start()
            until_confirmed(worker, 0.5)
            put_limit(served, 5)
            until(worker, 5, 20)
    finally:
        server.remove()


def test_of_two_control_planes_one_lags_and_nobody_goes_back(database: Database) -> None:
    with serving(yaml_of(database.dsn)) as one, serving(yaml_of(database.dsn)) as lagging:
        leader, behind = caller(one), caller(lagging)
        old = behind.snapshot()
        reloader = lagging.standalone.reloader
        lagging.call(reloader._one.acquire)  # it hears nothing any more
        put_limit(one, 7)
        new = until(leader, 7)
        assert behind.snapshot().revision == old.revision
        reply = behind.wait(new, 0.5)
        assert (reply.status, reply.headers["etag"]) == (304, f'"{old.revision}"'), (
            "it waits instead of answering"
        )
        assert leader.wait(old, 5).status == 200
        waiting = Waiting(behind, new, 20)
        lagging.call(_release, reloader)
        until(behind, 7)
        time.sleep(0.2)
        assert not waiting.done, "what it has caught up with is no news"
        put_limit(one, 8)
        assert limits(wire.read(waiting.reply().body)) == (8, 8)


async def _release(reloader: object) -> None:
    reloader._one.release()  # type: ignore[attr-defined]


def test_a_standalone_serves_workers_from_postgres_too(database: Database) -> None:
    text = yaml_of(database.dsn).replace("role: controlPlane", "role: standalone")
    with serving(text.replace("workerApi: {", "workerApi: {enabled: true, ")) as served:
        worker = caller(served)
        before = worker.snapshot()
        put_limit(served, 4)
        after = until(worker, 4)
        assert (after.epoch, after.sequence) == (before.epoch, before.sequence + 1)


def test_an_earlier_configuration_comes_back_with_a_higher_sequence(database: Database) -> None:
    with serving(yaml_of(database.dsn)) as served:
        worker = caller(served)
        first = worker.snapshot()
        put_limit(served, 9)
        second = until(worker, 9)
        waiting = Waiting(worker, second)
        put_limit(served, 1)
        third = wire.read(waiting.reply().body)
        assert third.revision == first.revision
        assert third.sequence > second.sequence > first.sequence


def test_a_new_epoch_is_news_however_low_its_sequence(database: Database) -> None:
    with serving(yaml_of(database.dsn)) as served:
        worker = caller(served)
        put_limit(served, 3)
        has = until(worker, 3)
        waiting = Waiting(worker, has, 20, revision="0" * 16)
        time.sleep(0.2)
        assert not waiting.done, "the same sequence with another revision changes nothing"
        new_epoch(database)
        reply = waiting.reply()
        assert reply.status == 200
        assert wire.read(reply.body).epoch != has.epoch


def new_epoch(database: Database) -> None:
    """What an operator does after a restore."""

    async def renew() -> None:
        async with database.pools() as pools:
            await migrate.new_epoch(pools)

    asyncio.run(renew())
