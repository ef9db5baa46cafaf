"""Several processes follow one database: what one edits the others use, whatever happens on the way."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from queryflux.config.snapshot import Snapshot
from queryflux.controlplane.reload import COALESCE_SECS
from queryflux.model.errors import ConfigError
from tests.kit.asking import load_on
from tests.kit.databases import DATABASES, Database, new_database
from tests.kit.doors import DOORS
from tests.kit.editing import Change, edit_in, failure_of, sequence_of
from tests.kit.serving import Serving, serving

pytest.importorskip("duckdb", reason="DuckDB is not installed")

YAML = """
queryflux:
  frontends:
    trinoHttp: {enabled: false}
    postgresWire: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  logging: {level: error}
  configReloadIntervalSecs: INTERVAL
  persistence: {type: postgres, url: 'URL', acquireTimeoutSecs: 2}
clusters:
  duck: {engine: duckDb, threads: 1, maxRunningQueries: 4}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""
SOON = 10.0
"""There is nothing but notices: what none brings never comes."""


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with new_database(request.param, last=0) as made:
        yield made


def yaml_of(database: Database, interval: int = 0) -> str:
    return YAML.replace("URL", database.dsn).replace("INTERVAL", str(interval))


@contextlib.contextmanager
def two(database: Database, interval: int = 0) -> Iterator[tuple[Serving, Serving]]:
    text = yaml_of(database, interval)
    with serving(text) as one, serving(text) as other:
        yield one, other


def with_cap(cap: int, threads: int = 1) -> Change:
    def change(before: Snapshot) -> Snapshot:
        duck = replace(before.clusters["duck"], max_running_queries=cap, threads=threads)
        return replace(before, clusters={**before.clusters, "duck": duck})

    return change


def cap_of(served: Serving) -> int | None:
    return served.standalone.generation.clusters["duck"].member.limit


LISTENERS = (
    "FROM pg_stat_activity WHERE datname = current_database() AND position('listen' in application_name) > 0"
)


def listeners(database: Database) -> int:
    """Sessions that listen."""
    count: int = database.rows(f"SELECT count(*) {LISTENERS}")[0][0]
    return count


def cut_listeners(database: Database) -> None:
    """Ends them, as a firewall or an operator does."""
    database.rows(f"SELECT pg_terminate_backend(pid) {LISTENERS}")


def test_an_edit_of_one_is_used_by_the_other(database: Database) -> None:
    with two(database) as (one, other):
        began = time.monotonic()
        edit_in(one, with_cap(9), "clusters")
        other.wait_for(lambda: cap_of(other) == 9, SOON)
        one.wait_for(lambda: cap_of(one) == 9, SOON)
        assert time.monotonic() - began < SOON
        edit_in(other, with_cap(2), "clusters")
        one.wait_for(lambda: cap_of(one) == 2, SOON)
        assert sequence_of(one) == 3


def test_a_burst_of_edits_is_few_reloads(database: Database) -> None:
    with serving(yaml_of(database)) as one, serving(yaml_of(database)) as other:
        generations, began = set(), time.monotonic()
        for cap in range(10, 30):
            edit_in(one, with_cap(cap), "clusters")
            generations.add(id(other.standalone.generation))
        took = time.monotonic() - began
        other.wait_for(lambda: cap_of(other) == 29)
        assert len(generations) <= 2 + took / COALESCE_SECS


def test_a_listener_that_is_cut_is_made_again_and_catches_up(database: Database) -> None:
    with two(database) as (one, other):
        one.wait_for(lambda: listeners(database) == 2)
        cut_listeners(database)
        edit_in(one, with_cap(9), "clusters")
        other.wait_for(lambda: cap_of(other) == 9, 30)
        edit_in(one, with_cap(3), "clusters")
        other.wait_for(lambda: cap_of(other) == 3, 30)


def test_a_notice_that_never_comes_is_made_good_by_the_poll(database: Database) -> None:
    with two(database, interval=1) as (one, other):
        database.rows("ALTER TABLE config_revision DISABLE TRIGGER config_revision_changed")
        edit_in(one, with_cap(9), "clusters")
        other.wait_for(lambda: cap_of(other) == 9, 10)


def test_a_bad_row_keeps_the_last_good_and_a_mended_one_is_used(database: Database) -> None:
    with two(database) as (one, other):
        database.rows("UPDATE cluster_configs SET config = jsonb_set(config, '{threads}', '\"many\"')")
        database.rows("UPDATE config_revision SET revision = revision + 1")
        for served in (one, other):
            served.wait_for(lambda served=served: bool(failure_of(served)), SOON)  # type: ignore[misc]
            assert "clusters.duck.threads" in failure_of(served)
            assert DOORS[1].ask(served.port("postgresWire"), "SELECT 1") == [(1,)]
        database.rows("UPDATE cluster_configs SET config = jsonb_set(config, '{threads}', '1')")
        database.rows("UPDATE config_revision SET revision = revision + 1")
        for served in (one, other):
            served.wait_for(lambda served=served: not failure_of(served), SOON)  # type: ignore[misc]


def test_a_restart_of_the_database_is_survived(database: Database) -> None:
    with two(database) as (one, other):
        database.server.restart()
        assert DOORS[1].ask(one.port("postgresWire"), "SELECT 1") == [(1,)]
        edit_in(one, with_cap(9), "clusters")
        for served in (one, other):
            served.wait_for(lambda served=served: cap_of(served) == 9, 30)  # type: ignore[misc]


def test_edits_under_load_lose_no_query(database: Database) -> None:
    door = DOORS[1:2]
    with two(database) as (one, other), load_on(one, door) as first, load_on(other, door) as second:
        for number in range(8):  # caps alone, and engines that are replaced
            edit_in(one if number % 2 else other, with_cap(1 + number % 3, 1 + number // 2 % 2), "clusters")
            first.reach(30)
            second.reach(30)
    for served in (one, other):
        assert {record.status.value for record in served.records} == {"Success"}
    assert database.rows("SELECT * FROM cluster_capacity_leases") == []


def test_processes_that_start_together_seed_once(database: Database, tmp_path: Path) -> None:
    with two(database) as (one, other):
        assert sequence_of(one) == sequence_of(other) == 1
        rows = database.rows("SELECT name FROM cluster_configs")
        assert rows == [("duck",)]
        assert one.standalone.generation.revision == other.standalone.generation.revision


def test_a_database_that_cannot_be_reached_is_named_at_the_start(database: Database) -> None:
    gone = yaml_of(database).replace(f":{database.server.port}/", ":1/")
    with pytest.raises(ConfigError, match=r"queryflux\.persistence.*127\.0\.0\.1:1"), serving(gone):
        pass


def test_a_cap_is_one_for_all_processes_also_after_an_edit(database: Database) -> None:
    with two(database) as (one, other):
        edit_in(one, with_cap(1), "clusters")
        for served in (one, other):
            served.wait_for(lambda served=served: cap_of(served) == 1)  # type: ignore[misc]
        asked = threading.Event()
        answers: list[object] = []

        def ask() -> None:
            asked.set()
            answers.append(DOORS[1].ask(other.port("postgresWire"), "SELECT 2"))

        with psycopg.connect(
            host="127.0.0.1", port=one.port("postgresWire"), user="ann", dbname="memory", sslmode="disable"
        ) as holder:
            holder.execute("SELECT 1")  # in a transaction, which keeps its place
            asking = threading.Thread(target=ask)
            asking.start()
            other.wait_for(lambda: bool(waiters_of(other)))
            assert database.rows("SELECT sum(leased) FROM cluster_capacity_counters") == [(1,)]
            assert answers == []
            edit_in(one, with_cap(2), "clusters")
            asking.join(20)
        assert answers == [[(2,)]]
    assert database.rows("SELECT * FROM cluster_capacity_leases") == []


def waiters_of(served: Serving) -> int:
    return len(served.standalone.generation.groups["main"].admission.waiters)
