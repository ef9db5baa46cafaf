"""What the capacity document says, seen on whole processes (docs/mission.md names the sentences)."""

import base64
import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from queryflux.admission.slots import Admission
from tests.kit.cable import cable
from tests.kit.databases import DATABASES, Database, new_database, own_server
from tests.kit.process import process
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  instanceId: INSTANCE
  distributed: SHARED
  frontends:
    trinoHttp: {enabled: false}
    postgresWire: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: LEVEL}
  persistence: {type: postgres, url: 'URL', acquireTimeoutSecs: 1, statementTimeoutSecs: 2}
  coordination: {acquireTimeoutSecs: 1, leaseRenewSecs: 1, leaseExpirySecs: 4, sweepIntervalSecs: 1}
clusters:
  capped: {engine: duckDb, threads: 1, maxRunningQueries: 1}
  free: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [capped], capacityWaitTimeoutSecs: WAIT}
  open: {members: [free]}
routers:
  - type: queryRegex
    rules: [{regex: "free", targetGroup: open}]
routingFallback: main
"""
FEW = 20
"""Connections that a server gives in all."""
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queryflux:capacity:' || %s, 0))"
Client = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with new_database(request.param) as made:
        yield made


def text_of(
    database: Database, instance: str = "one", wait: int = 30, shared: str = "true", level: str = "error"
) -> str:
    words = {"URL": database.dsn, "INSTANCE": instance, "WAIT": wait, "SHARED": shared, "LEVEL": level}
    text = YAML
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text


def connect(port: int) -> Client:
    return psycopg.connect(
        host="127.0.0.1", port=port, user="ann", dbname="x", sslmode="disable", connect_timeout=10
    )


@contextlib.contextmanager
def holding(port: int, sql: str = "SELECT 1") -> Iterator[Client]:
    """A transaction that has done something, and holds its place."""
    with connect(port) as client:
        client.execute(sql.encode())
        yield client


def ask(port: int, sql: str = "SELECT 1") -> None:
    with connect(port) as client:
        client.execute(sql.encode())


def leases(database: Database) -> list[tuple[object, ...]]:
    return database.rows("SELECT cluster_name, instance_id, query_id FROM cluster_capacity_leases")


def until(what: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# One row for each query that runs under a limit.


def test_a_lease_is_a_row_with_the_query_id(database: Database) -> None:
    with serving(text_of(database)) as served:
        with holding(served.port("postgresWire")):
            [(cluster, instance, query_id)] = leases(database)
            assert (cluster, instance) == ("capped", "one")
        until(lambda: leases(database) == [])
        served.wait_for(lambda: len(served.records) == 1)
        assert served.records[0].proxy_query_id == query_id


def test_without_a_limit_there_is_no_row(database: Database) -> None:
    with serving(text_of(database)) as served, holding(served.port("postgresWire"), "SELECT 1 AS free"):
        assert leases(database) == []


def test_limits_that_are_not_shared_take_no_leases(database: Database) -> None:
    with (
        serving(text_of(database, shared="false")) as one,
        serving(text_of(database, instance="other", shared="false")) as other,
        holding(one.port("postgresWire")),
        holding(other.port("postgresWire")),
    ):
        assert leases(database) == [], "each process has its own limit, and both queries run"


@pytest.mark.parametrize("persistence", ["{type: inMemory}", "{type: sqlite, path: 'FILE'}"])
def test_without_a_shared_database_a_process_only_counts(tmp_path: Path, persistence: str) -> None:
    kept = persistence.replace("FILE", str(tmp_path / "qf.db"))
    lines = YAML.replace("INSTANCE", "one").replace("LEVEL", "error").replace("WAIT", "30").splitlines()
    own = [f"  persistence: {kept}" if line.startswith("  persistence:") else line for line in lines]
    text = "\n".join(line for line in own if not line.startswith(("  coordination:", "  distributed:")))
    with serving(text) as served:
        assert served.standalone.capacity is None
        assert type(served.standalone.pipeline.admission) is Admission
        with holding(served.port("postgresWire")):
            assert served.standalone.generation.clusters["capped"].member.running == 1


# A process that dies.


def test_a_killed_process_loses_its_leases_when_they_run_out(database: Database, tmp_path: Path) -> None:
    with serving(text_of(database, "lives")) as lives:
        with process(tmp_path, text_of(database, "dies", level="info")) as dies:
            client = connect(dies.port("postgresWire"))
            client.execute("SELECT 1")
            assert [lease[:2] for lease in leases(database)] == [("capped", "dies")]
            dies.end()
            client.close()
            last = "SELECT extract(epoch FROM clock_timestamp() - max(heartbeat_at)) FROM"
            asked = time.monotonic()
            [(age,)] = database.rows(f"{last} cluster_capacity_leases")
            began = asked - float(age)  # not after it, however long the question took
        ask(lives.port("postgresWire"))
        waited = time.monotonic() - began
        assert 4 <= waited < 4 + 2 * 1 + 10, "expiry, a sweep or two, the next try, and a slow machine"
        until(lambda: leases(database) == [])


# The store cannot be asked, in one way or another.


@contextlib.contextmanager
def stuck(database: Database) -> Iterator[None]:
    """Somebody holds the cluster's lock, and does not go on."""
    with database.server.admin(database.name) as other, other.transaction():
        other.execute(LOCK, ("capped",))
        yield


TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'queryflux%'"


@contextlib.contextmanager
def altered(database: Database, fault: str, mend: str) -> Iterator[None]:
    """Something else holds for new connections to the database, and there are only new ones."""
    with database.server.admin("postgres") as admin:
        admin.execute(f"ALTER DATABASE {database.name} {fault}".encode())
        admin.execute(TERMINATE.encode())
        yield
        admin.execute(f"ALTER DATABASE {database.name} {mend}".encode())
        admin.execute(TERMINATE.encode())


def read_only(database: Database) -> AbstractContextManager[None]:
    """As a server that is a standby now."""
    setting = "SET default_transaction_read_only ="
    return altered(database, f"{setting} on", f"{setting} off")


def refuses(database: Database) -> AbstractContextManager[None]:
    """It lets nobody in."""
    return altered(database, "ALLOW_CONNECTIONS false", "ALLOW_CONNECTIONS true")


@contextlib.contextmanager
def no_connection_left(database: Database) -> Iterator[None]:
    """Others have all that the server gives: every one is counted, since a session that ends is not listed
    any more a moment before its place is free."""
    with contextlib.ExitStack() as hogs:
        ends = hogs.enter_context(database.server.admin(database.name))
        left = FEW - 1
        deadline = time.monotonic() + 20
        while left:
            try:
                hogs.enter_context(database.server.admin("postgres"))
                left -= 1
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                ends.execute(TERMINATE.encode())
        yield


Fault = Callable[[Database], AbstractContextManager[None]]


@pytest.fixture(scope="module", params=DATABASES)
def few(request: pytest.FixtureRequest) -> Iterator[Database]:
    """On a server of its own, with few connections."""
    server = own_server(request.param, max_connections=str(FEW), superuser_reserved_connections="0")
    try:
        with server.admin("postgres") as admin:
            admin.execute("CREATE DATABASE ours")
        yield Database(server, "ours")
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (stuck, "took too long|no answer within 1 s"),
        (read_only, "is read-only"),
        (refuses, "refuses the connection"),
        (no_connection_left, "takes no more connections"),
    ],
)
def test_queries_wait_for_a_store_that_cannot_be_asked_and_go_on_within_a_second(
    few: Database, fault: Fault, reason: str
) -> None:
    database = few
    with serving(text_of(database, wait=4)) as served:
        port = served.port("postgresWire")
        ask(port)
        until(lambda: leases(database) == [])
        with fault(database):
            began = time.monotonic()
            with ThreadPoolExecutor(1) as threads:
                refused = threads.submit(ask, port)
                # Looked at while it waits: what it gives up it releases, and that call may be answered.
                told: dict[str, object] = {}
                # What is told first may be that a connection which was in use broke.
                until(
                    lambda: told.update(capacity_of(served)) or bool(re.search(reason, str(told["reason"])))
                )
                assert told["reachable"] is False
                assert str(told["since"]) <= str(told["last_asked"])
                with pytest.raises(psycopg.Error, match=f"waited 4 s for room in group 'main': .*({reason})"):
                    refused.result(20)
            assert 4 <= time.monotonic() - began < 16
            ask(port, "SELECT 1 AS free")
            ready = f"http://127.0.0.1:{served.port('adminApi')}/readyz"
            with urllib.request.urlopen(ready, timeout=5) as answer:
                assert answer.status == 200
            assert failures(served) > 0
            waiting = threading.Thread(target=ask, args=(port,))
            waiting.start()
            served.wait_for(lambda: len(served.standalone.pipeline.running) == 1)
        back = time.monotonic()
        waiting.join(10)
        assert not waiting.is_alive()
        assert time.monotonic() - back < 3  # it would have been refused soon after
        assert (capacity_of(served)["reachable"], capacity_of(served)["reason"]) == (True, None)


def test_queries_go_on_within_a_second_when_all_connections_of_capacity_have_fallen_silent(
    database: Database,
) -> None:
    """With the times that hold where none are set."""
    server = database.server
    with cable(server.host, server.port) as road:
        text = text_of(database).replace(f":{server.port}/", f":{road.port}/")
        text = text.replace("acquireTimeoutSecs: 1, ", "").replace(
            "statementTimeoutSecs: 2", "statementTimeoutSecs: 60"
        )
        with serving(text) as served:
            port = served.port("postgresWire")
            for _ in range(3):
                ask(port)
            with connect(port) as client:
                road.do(road.link.strand)
                began = time.monotonic()
                client.execute("SELECT 1")
                took = time.monotonic() - began
            assert took < 4, "an acquire that is not answered is given up after 5"


def capacity_of(served: Serving) -> dict[str, object]:
    """What operators are told of it."""
    request = urllib.request.Request(f"http://127.0.0.1:{served.port('adminApi')}/admin/status")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"admin:admin").decode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        document: dict[str, dict[str, object]] = json.load(answer)
    return document["capacity"]


def test_operators_see_what_a_process_holds(database: Database) -> None:
    with serving(text_of(database)) as served:
        assert capacity_of(served)["reachable"] is None
        with holding(served.port("postgresWire")):
            told = capacity_of(served)
            assert (told["reachable"], told["leases_held"], told["leases_lost"]) == (True, 1, 0)
            database.rows("DELETE FROM cluster_capacity_leases")
            until(lambda: capacity_of(served)["leases_lost"] == 1)
            until(lambda: len(leases(database)) == 1)
        until(lambda: capacity_of(served)["leases_held"] == 0)
        until(lambda: capacity_of(served)["releases_queued"] == 0)
    with serving(text_of(database, shared="false")) as served:
        assert capacity_of(served) is None


def failures(served: Serving) -> float:
    """What /metrics says of acquires that were not answered."""
    url = f"http://127.0.0.1:{served.port('adminApi')}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    wanted = 'queryflux_coordination_failures_total{operation="acquire"}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def test_queries_are_admitted_while_history_is_stuck(database: Database) -> None:
    busy = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name LIKE 'queryflux query%' AND wait_event_type = 'Lock'"
    )
    patient = text_of(database).replace("statementTimeoutSecs: 2", "statementTimeoutSecs: 60")
    with serving(patient) as served, database.server.admin(database.name) as other:
        port = served.port("postgresWire")
        with other.transaction():
            other.execute("LOCK TABLE query_records IN ACCESS EXCLUSIVE MODE")
            ask(port)
            until(lambda: database.rows(busy)[0][0] > 0, 30)
            for _ in range(20):
                ask(port)
            assert database.rows(busy)[0][0] > 0
