"""Two processes and one cap, over a real database that also goes away."""

import contextlib
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.kit.databases import DATABASES, Database, new_database, own_server
from tests.kit.limited import ask, connect
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  frontends:
    trinoHttp: {enabled: false}
    postgresWire: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: error}
  persistence: {type: postgres, url: 'URL', acquireTimeoutSecs: 2, statementTimeoutSecs: 5}
  coordination: {leaseRenewSecs: 1, leaseExpirySecs: 4, sweepIntervalSecs: 1}
clusters:
  capped: {engine: duckDb, threads: 1, maxRunningQueries: 2}
  free: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [capped], capacityWaitTimeoutSecs: WAIT}
  patient: {members: [capped], capacityWaitTimeoutSecs: 60}
  open: {members: [free]}
routers:
  - type: queryRegex
    rules: [{regex: "free", targetGroup: open}, {regex: "patient", targetGroup: patient}]
routingFallback: main
"""


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with new_database(request.param) as made:
        yield made


def text_of(database: Database, wait_secs: int = 30) -> str:
    return YAML.replace("URL", database.dsn).replace("WAIT", str(wait_secs))


@contextlib.contextmanager
def holding(served: Serving, count: int) -> Iterator[list["psycopg.Connection[tuple[object, ...]]"]]:
    """So many transactions that have done something, and hold their places."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(served)) for _ in range(count)]
        for connection in held:
            connection.execute("SELECT 1")
        yield held


SOON = 5.0
"""What takes as long as a notice and a query usually are answered in a tenth of it."""


def test_two_processes_hold_one_cap(database: Database) -> None:
    with (
        serving(text_of(database)) as one,
        serving(text_of(database)) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        with holding(one, 2) as held:
            assert database.leases() == database.counters() == {"capped": 2}
            waiting = pool.submit(ask, other)
            other.wait_for(lambda: len(other.standalone.pipeline.running) == 1)
            with pytest.raises(TimeoutError):
                waiting.result(1)
            ask(other, "SELECT 1 AS free")
            began = time.monotonic()
            held[0].commit()
            assert waiting.result(20) - began < SOON
        database.until_leased(0)
        assert database.counters() == {}


def test_where_none_may_wait_a_cap_that_another_process_fills_is_said_at_once(database: Database) -> None:
    text = text_of(database).replace("members: [capped],", "members: [capped], maxQueuedQueries: 0,")
    with serving(text) as one, serving(text) as other, holding(one, 2):
        for process in (one, other):
            began = time.monotonic()
            with pytest.raises(psycopg.Error, match="'main' has 0 queries waiting"):
                ask(process)
            assert time.monotonic() - began < SOON


def test_who_waits_at_a_lower_limit_of_its_group_keeps_no_place_empty(database: Database) -> None:
    text = text_of(database).replace(", maxRunningQueries: 2}", "}")
    text = text.replace("{members: [capped],", "{members: [capped], maxRunningQueries: 2,")
    text = text.replace("  open:", "  small: {members: [capped], maxRunningQueries: 1}\n  open:")
    text = text.replace("rules: [", 'rules: [{regex: "small", targetGroup: small}, ')
    with (
        serving(text) as one,
        serving(text) as two,
        serving(text) as three,
        ThreadPoolExecutor(2) as pool,
        holding(one, 1) as (held,),
    ):
        waiting = pool.submit(ask, two, "SELECT 1 AS small")
        with pytest.raises(TimeoutError):
            waiting.result(2)
        began = time.monotonic()
        assert ask(three) - began < SOON
        held.commit()
        waiting.result(10)


def test_a_process_that_ends_gives_back_what_it_holds(database: Database) -> None:
    with serving(text_of(database)) as one:
        with holding(one, 1):
            pass
        database.until_leased(0)
        held = connect(one)
        held.execute("SELECT 1")
        assert database.leases() == {"capped": 1}
    held.close()
    assert database.leases() == database.counters() == {}


def test_leases_that_were_lost_are_taken_again_and_those_of_the_dead_end(database: Database) -> None:
    with serving(text_of(database)) as one, holding(one, 1):
        database.rows("TRUNCATE cluster_capacity_leases")
        database.until_leased(1)
        database.rows(
            "INSERT INTO cluster_capacity_leases"
            " VALUES ('theirs', 'capped', 'dead', now(), now() - interval '9 s')"
        )
        database.until_leased(1)
        one.wait_for(lambda: database.counters() == {"capped": 1}, 30)


@pytest.mark.parametrize("kind", DATABASES)
def test_without_the_database_queries_wait_and_go_on_when_it_is_back(
    kind: str,
) -> None:
    server = own_server(kind)
    try:
        with server.admin("postgres") as admin:
            admin.execute("CREATE DATABASE ours")
        database = Database(server, "ours")
        with serving(text_of(database, 3)) as one, ThreadPoolExecutor(4) as pool:
            ask(one)
            server.stop(crash=True)
            with pytest.raises(psycopg.Error, match="waited 3 s for room in group 'main': the"):
                ask(one)
            ask(one, "SELECT 1 AS free")
            ready = f"http://127.0.0.1:{one.port('adminApi')}/readyz"
            with urllib.request.urlopen(ready, timeout=5) as answer:
                assert answer.status == 200
            waiting = [pool.submit(ask, one, "SELECT 1 AS patient") for _ in range(2)]
            one.wait_for(lambda: len(one.standalone.pipeline.running) == 2)
            server.start()
            began = time.monotonic()
            for answered in waiting:
                assert answered.result(20) - began < SOON
    finally:
        server.remove()
