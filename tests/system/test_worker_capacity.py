"""A control plane and its workers, over the network: one cap for all of them, what each does while nobody
grants capacity, and what becomes of leases when one of them ends."""

import contextlib
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.kit.databases import DATABASES, Database, new_database, own_server
from tests.kit.doors import HOST
from tests.kit.limited import ask, connect
from tests.kit.places import free_port
from tests.kit.process import Process, process
from tests.kit.serving import Serving, serving
from tests.kit.working import SECRET, Working, get, worker_file, working

pytest.importorskip("duckdb", reason="DuckDB is not installed")

CENTRAL = """
queryflux:
  frontends:
    trinoHttp: {enabled: false}
    postgresWire: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: PORT}
  workerApi: {enabled: true, secret: SECRET}
  logging: {level: error}
  persistence: PERSISTENCE
  coordination: {leaseRenewSecs: 1, leaseExpirySecs: 4, sweepIntervalSecs: 1}
clusters:
  capped: {engine: duckDb, threads: 1, maxRunningQueries: 2}
  free: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [capped], capacityWaitTimeoutSecs: WAIT}
  open: {members: [free]}
routers:
  - type: queryRegex
    rules: [{regex: "free", targetGroup: open}]
routingFallback: main
""".replace("SECRET", SECRET)
IN_MEMORY = "{type: inMemory}"
FREE = "SELECT 1 AS free"
DENIED = 'queryflux_capacity_lease_denied_total{cluster_name="capped"}'
WAITED = 'queryflux_queue_duration_seconds_%s{cluster_group="main"}'
Connection = psycopg.Connection[tuple[object, ...]]


class Central:
    """A control plane that can be stopped and started again where it was."""

    def __init__(self, persistence: str, wait_secs: int) -> None:
        self.port = free_port()
        text = CENTRAL.replace("PORT", str(self.port)).replace("PERSISTENCE", persistence)
        self._text = text.replace("WAIT", str(wait_secs))
        self._stack = contextlib.ExitStack()
        self.start()

    def start(self) -> None:
        self.served = self._stack.enter_context(serving(self._text))

    def stop(self) -> None:
        self._stack.close()

    def file(self, name: str, coordination: str = "") -> str:
        """That of a worker."""
        text = worker_file(f"http://{HOST}:{self.port}").replace("workerName: w1", f"workerName: {name}")
        return text + f"  coordination: {{leaseRenewSecs: 1, leaseExpirySecs: 4{coordination}}}\n"

    @contextlib.contextmanager
    def worker(self, name: str, coordination: str = "") -> Iterator[Working]:
        """A worker that has its configuration."""
        with working(self.file(name, coordination)) as worker:
            worker.until(lambda status: status["ready"])
            yield worker


@contextlib.contextmanager
def central(persistence: str = IN_MEMORY, wait_secs: int = 15) -> Iterator[Central]:
    made = Central(persistence, wait_secs)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def database() -> Iterator[Database]:
    with new_database(DATABASES[-1]) as made:
        yield made


def in_postgres(database: Database) -> str:
    return f"{{type: postgres, url: '{database.dsn}'}}"


class Holding:
    """Transactions that have done something, and hold their places until they are given back."""

    def __init__(self, door: Serving | Working | Process, count: int) -> None:
        self._held = [connect(door) for _ in range(count)]
        for connection in self._held:
            connection.execute("SELECT 1")

    def give_back(self, count: int = 99) -> None:
        for connection in self._held[:count]:
            connection.close()
        del self._held[:count]


@contextlib.contextmanager
def holding(door: Serving | Working, count: int) -> Iterator[Holding]:
    held = Holding(door, count)
    try:
        yield held
    finally:
        held.give_back()


def still_waits(asked: "Future[float]", seconds: float = 0.7) -> None:
    with pytest.raises(TimeoutError):
        asked.result(seconds)


@pytest.mark.parametrize("kind", ["postgres", "inMemory", "sqlite"])
def test_one_cap_for_a_process_and_the_workers_it_serves(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    persistence = {"inMemory": IN_MEMORY, "sqlite": f"{{type: sqlite, path: {tmp_path / 'q.db'}}}"}.get(kind)
    database: Database | None = None
    if persistence is None:
        database = request.getfixturevalue("database")
        persistence = in_postgres(database)
    with (
        central(persistence) as fleet,
        fleet.worker("w1") as one,
        fleet.worker("w2") as two,
        ThreadPoolExecutor(4) as pool,
        holding(fleet.served, 1) as own,
        holding(one, 1) as others,
    ):
        if database is not None:
            assert database.leases() == database.counters() == {"capped": 2}
        assert one.status["coordination"]["leasesHeld"] == 1
        here, there = pool.submit(ask, two), pool.submit(ask, fleet.served)
        still_waits(here)
        still_waits(there)
        ask(two, FREE)
        others.give_back()
        own.give_back()
        assert here.result(10)
        assert there.result(10)
        # How long queries waited, and how often they were refused, is told by each worker of itself.
        two.until(lambda status: two.metric(WAITED % "count") == 1)
        assert two.metric(WAITED % "sum") > 0.7
        assert one.metric(WAITED % "sum") < 0.7
        assert (one.metric(DENIED), two.metric(DENIED) >= 1) == (0, True)


def test_without_a_control_plane_queries_wait_and_go_on_within_a_second_of_its_return(
    database: Database,
) -> None:
    with central(in_postgres(database)) as fleet, fleet.worker("w1") as worker, ThreadPoolExecutor(4) as pool:
        with holding(worker, 1) as held:
            fleet.stop()
            waiting = pool.submit(ask, worker)
            still_waits(waiting)
            ask(worker, FREE)
            worker.until(lambda status: status["coordination"]["state"] == "unavailable")
            held.give_back()
            fleet.start()
            up = time.monotonic()
            assert waiting.result(20) - up < 5
        database.until_leased(0)
        worker.until(lambda status: status["coordination"]["state"] == "fleet")


def test_who_waits_too_long_for_a_control_plane_is_told_so() -> None:
    with central(wait_secs=2) as fleet, fleet.worker("w1") as worker:
        ask(worker)
        fleet.stop()
        with pytest.raises(psycopg.Error, match=r"waited 2 s for room .*: 127\.0\.0\.1:.* refused"):
            ask(worker)


def test_who_waits_for_a_store_that_the_control_plane_cannot_ask_is_told_so() -> None:
    server = own_server(DATABASES[-1])
    try:
        with server.admin("postgres") as admin:
            admin.execute("CREATE DATABASE ours")
        database = Database(server, "ours")
        with central(in_postgres(database), 3) as fleet, fleet.worker("w1") as worker:
            ask(worker)
            server.stop(crash=True)
            with pytest.raises(psycopg.Error, match=r"waited 3 s for room .*: .*the database of"):
                ask(worker)
            server.start()
            began = time.monotonic()
            assert ask(worker) - began < 5
    finally:
        server.remove()


def test_local_limits_while_nobody_grants_and_leases_for_what_runs_afterwards(database: Database) -> None:
    with (
        central(in_postgres(database)) as fleet,
        fleet.worker("w1", ", onUnavailable: localLimits") as worker,
        ThreadPoolExecutor(4) as pool,
        holding(worker, 1) as before,
    ):
        fleet.stop()
        with holding(worker, 1) as meanwhile:
            waiting = pool.submit(ask, worker)
            still_waits(waiting)
            worker.until(lambda status: status["coordination"]["state"] == "local")
            before.give_back()
            waiting.result(10)
            fleet.start()
            database.until_leased(1)
            worker.until(lambda status: status["coordination"]["state"] == "fleet")
            assert worker.status["coordination"]["leasesHeld"] == 1
            with holding(fleet.served, 1):
                still_waits(again := pool.submit(ask, worker))
                meanwhile.give_back()
                assert again.result(10)
        database.until_leased(0)


def test_workers_whose_limits_are_their_own_ask_nobody(database: Database) -> None:
    own = ", mode: local"
    with (
        central(in_postgres(database)) as fleet,
        fleet.worker("w1", own) as one,
        fleet.worker("w2", own) as two,
        ThreadPoolExecutor(4) as pool,
        holding(one, 2) as held,
        holding(two, 2),
        holding(fleet.served, 2),
    ):
        assert database.leases() == {"capped": 2}, "those of the control plane"
        assert one.status["coordination"]["state"] == "local"
        waiting = pool.submit(ask, one)
        still_waits(waiting)
        fleet.stop()
        held.give_back(1)
        assert waiting.result(5), "an outage is nothing to it"


def test_what_workers_run_counts_after_a_restart_of_a_process_that_keeps_leases_in_memory() -> None:
    with central() as fleet, fleet.worker("w1") as worker, ThreadPoolExecutor(4) as pool:
        with holding(worker, 2) as held:
            fleet.stop()
            fleet.start()
            waiting = pool.submit(ask, fleet.served)
            still_waits(waiting, 2.5)
            assert worker.status["coordination"]["leasesHeld"] == 2
            assert worker.status["coordination"]["leasesLost"] == 0
            held.give_back(1)
            assert waiting.result(10)
        ask(worker)


def test_leases_of_a_worker_that_is_killed_end_and_of_one_that_stops_at_once(
    database: Database, tmp_path: Path
) -> None:
    with central(in_postgres(database)) as fleet:
        text = fleet.file("w9").replace("level: warning", "level: info")
        with process(tmp_path, text) as killed, fleet.worker("w1") as worker:
            url = f"http://{HOST}:{killed.port('operator port')}/readyz"
            killed.until(lambda: get(url).status == 200)
            lost, held = Holding(killed, 1), Holding(worker, 1)
            assert database.leases() == {"capped": 2}
            killed.signal(signal.SIGKILL)
            killed.wait()
            database.until_leased(1)
            assert worker.status["coordination"]["leasesHeld"] == 1, "which is renewed"
        database.until_leased(0, 3)  # sooner than they would run out
        lost.give_back()
        held.give_back()
