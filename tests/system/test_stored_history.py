"""Queries that real processes ran are in the store: all of them, once, whatever happens to either."""

import signal
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.kit.databases import DATABASES, Database, new_database, own_server
from tests.kit.doors import DOORS, Refusal, TrinoClient
from tests.kit.process import Process, process

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  instanceId: INSTANCE
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
    mysqlWire: {host: 127.0.0.1, port: 0}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  persistence: PERSISTENCE
clusters:
  duck: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""
FLUSH_SECS = 5
SLACK_SECS = 3


class Store(ABC):
    """Where the processes keep their history, looked at behind their backs."""

    persistence: str

    @abstractmethod
    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query gives."""

    def ids(self) -> set[str]:
        """Ids of all records; none is there twice."""
        found = [row[0] for row in self.rows("SELECT proxy_query_id FROM query_records")]
        assert len(found) == len(set(found))
        return set(found)

    def yaml(self, instance: str = "one") -> str:
        """A configuration that uses it."""
        return YAML.replace("PERSISTENCE", self.persistence).replace("INSTANCE", instance)


class SqliteStore(Store):
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.db"
        self.persistence = f"{{type: sqlite, path: '{self.path}'}}"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql).fetchall()


class PostgresStore(Store):
    """A database, empty when the first process comes."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.server = database.server
        self.persistence = f"{{type: postgres, url: '{database.dsn}'}}"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.rows(sql)


@pytest.fixture(params=["sqlite", *DATABASES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        yield SqliteStore(tmp_path)
    else:
        with new_database(request.param, last=0) as database:
            yield PostgresStore(database)


@pytest.fixture(params=DATABASES)
def honest(request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    """A server of its own, which keeps what it has acknowledged even when it crashes."""
    server = own_server(request.param, synchronous_commit="on")
    try:
        yield PostgresStore(Database(server, "qf"))
    finally:
        server.remove()


class Load:
    """Clients of the Trino door that ask one query after another; ``ended`` has the id of each query that
    ended, and when."""

    def __init__(self, port: int, clients: int = 4) -> None:
        self.ended: dict[str, float] = {}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(port, n)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, port: int, client: int) -> None:
        trino = TrinoClient(port, {"X-Trino-User": f"user{client}"}, None)
        number = 0
        with closing(trino), suppress(OSError, HTTPException, Refusal):
            while not self._stop.is_set():
                number += 1
                page = trino.submit(f"SELECT {number} AS n -- of {client}")
                trino.finish(page)
                self.ended[page["id"]] = time.monotonic()

    def reach(self, number: int, seconds: float = 60) -> None:
        """Return when so many have ended."""
        deadline = time.monotonic() + seconds
        while len(self.ended) < number:
            assert time.monotonic() < deadline, f"only {len(self.ended)} queries ended"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


@contextmanager
def load_on(serving: Process) -> Iterator[Load]:
    load = Load(serving.port("trinoHttp"))
    try:
        yield load
    finally:
        load.stop()


def check_sum(serving: Process) -> dict[str, float]:
    """Each query that has ended is stored, dropped, rejected, or waits. Gives the metrics."""
    metrics = serving.metrics()
    counted = [metrics[f"queryflux_history_records_{what}"] for what in KINDS]
    assert metrics["queryflux_queries_total"] == sum(counted)
    return metrics


KINDS = ("stored_total", "dropped_total", "rejected_total", "waiting")


def test_every_query_of_every_door_is_stored_with_what_became_of_it(store: Store, tmp_path: Path) -> None:
    each = 7
    with process(tmp_path, store.yaml()) as serving:
        for door in DOORS:
            with door.connect(serving.port(door.name)) as client:
                for number in range(each):
                    assert client.ask(f"SELECT {number} AS a, 'x' AS b") == [(number, "x")]
                with pytest.raises(Refusal):
                    client.ask("SELECT (SELECT x FROM range(5) AS t(x)) AS v, 'secret'")
        check_sum(serving)
        serving.signal()
        assert serving.wait() == 0
    rows = store.rows(
        "SELECT frontend_protocol, status, reason, username, cluster_group, cluster_name, engine_type, "
        "target_dialect, instance_id, rows_returned, error_code, sql_preview = sql_text, query_hash IS NULL "
        "FROM query_records ORDER BY created_at, id"
    )
    assert len(rows) == len(DOORS) * (each + 1)
    for door in DOORS:
        own = [row for row in rows if row[0] == door.label]
        user = "anonymous" if door.label == "FlightSql" else "ann"  # Flight clients that do not log in
        common = (user, "main", "duck", "DuckDb", "DuckDb", "one")
        assert own[:-1] == [(door.label, "Success", "completed", *common, 1, None, True, False)] * each
        assert own[-1][:9] == (door.label, "Failed", "failed", *common)
        assert own[-1][10] == "ENGINE_ERROR"
    digests = store.rows("SELECT digest_text, call_count FROM query_digest_stats ORDER BY 1")
    assert digests == [
        ("select (select x from range(?) as t(x)) as v, ?", len(DOORS)),
        ("select ? as a, ? as b", len(DOORS) * each),
    ]


def test_a_process_that_is_killed_loses_only_what_was_not_acknowledged(store: Store, tmp_path: Path) -> None:
    with process(tmp_path, store.yaml()) as serving:
        with load_on(serving) as load:
            load.reach(300)
            serving.until(lambda: check_sum(serving)["queryflux_history_records_stored_total"] >= 200)
            acknowledged = serving.metrics()["queryflux_history_records_stored_total"]
            serving.signal(signal.SIGKILL)
            killed = time.monotonic()
        serving.wait()
    stored = store.ids()
    assert len(stored) >= acknowledged
    lost = set(load.ended) - stored
    assert all(load.ended[query_id] > killed - FLUSH_SECS - SLACK_SECS for query_id in lost)
    with process(tmp_path, store.yaml("two")) as serving:
        with load_on(serving) as more:
            more.reach(50)
        serving.signal()
        assert serving.wait() == 0
    assert store.ids() >= stored | set(more.ended)


def test_what_waits_is_stored_before_the_process_ends(store: Store, tmp_path: Path) -> None:
    with process(tmp_path, store.yaml()) as serving:
        with load_on(serving) as load:
            load.reach(20)
        serving.signal()
        assert serving.wait() == 0
    assert store.ids() >= set(load.ended)


def test_a_database_that_crashes_under_load_has_every_query_once(
    honest: PostgresStore, tmp_path: Path
) -> None:
    with process(tmp_path, honest.yaml()) as serving:
        with load_on(serving) as load:
            load.reach(300)
            serving.until(lambda: serving.metrics()["queryflux_history_records_stored_total"] > 0)
            honest.server.stop(crash=True)
            before = len(load.ended)
            load.reach(before + 200)
            assert check_sum(serving)["queryflux_history_records_waiting"] >= 200
            honest.server.start()
            load.reach(before + 400)
        serving.until(lambda: not check_sum(serving)["queryflux_history_records_waiting"])
        metrics = check_sum(serving)
        serving.signal()
        assert serving.wait() == 0
    assert metrics["queryflux_history_records_dropped_total"] == 0
    assert honest.ids() == set(load.ended)
    ((counted,),) = honest.rows("SELECT sum(call_count) FROM query_digest_stats")
    assert counted == len(load.ended)


SNAPSHOTS = "SELECT extract(epoch FROM recorded_at)::float8 FROM cluster_snapshots ORDER BY recorded_at"


def test_two_processes_keep_their_history_in_one_database(tmp_path: Path) -> None:
    with new_database(DATABASES[-1], last=0) as database:
        store = PostgresStore(database)
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        with (
            process(tmp_path / "one", store.yaml("one")) as one,
            process(tmp_path / "two", store.yaml("two")) as two,
        ):
            with load_on(one) as first, load_on(two) as second:
                first.reach(150)
                second.reach(150)
            one.until(lambda: len(store.rows(SNAPSHOTS)) >= 3)
            for serving in (one, two):
                serving.signal()
                assert serving.wait() == 0
        assert store.ids() == set(first.ended) | set(second.ended)
        by_instance = dict(store.rows("SELECT instance_id, count(*) FROM query_records GROUP BY 1"))
        assert by_instance == {"one": len(first.ended), "two": len(second.ended)}
        moments = [moment for (moment,) in store.rows(SNAPSHOTS)]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert min(gaps) > 2.5, "both processes wrote snapshots, each every 5 s"
