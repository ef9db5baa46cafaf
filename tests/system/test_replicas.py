"""A Trino client whose every request goes to another process of one database, while processes come and go."""

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.databases import DATABASES, Database, new_database
from tests.kit.replicas import Answered, Balancer, Replica, endings, path_of, replicas, rows_left
from tests.kit.trino import TrinoServer, shared_server

pytest.importorskip("duckdb", reason="DuckDB is not installed")

MANY = "SELECT i, 'some text that fills pages ' || i FROM range(100000) AS r (i)"
LAKE_MANY = "SELECT o_orderkey, o_comment FROM tpch.sf1.orders WHERE o_orderkey < 200000 ORDER BY 1"
LAKE_SLOW = "SELECT count(*) FROM tpch.sf10000.lineitem WHERE l_comment LIKE '%zz%zz%'"


@pytest.fixture(params=DATABASES[:1])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with new_database(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def coordinator() -> TrinoServer:
    return shared_server()


def lake(coordinator: TrinoServer) -> str:
    return f"{{lake: {{engine: trino, endpoint: '{coordinator.url}'}}}}"


def until(what: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def executing(page: dict[str, Any]) -> bool:
    return "/executing/" in page.get("nextUri", "")


def kill(replica: Replica) -> None:
    replica.process.signal(signal.SIGKILL)
    replica.process.wait()


# Results that are the owner's alone.


def test_what_only_its_owner_has_is_asked_of_it(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", "c") as (a, b, c):
        balancer = Balancer(b, c, a)
        page = a.ask("POST", "/v1/statement", MANY).document
        rows = balancer.finish(page)
        assert [row[0] for row in rows] == list(range(100000))
        until(lambda: endings(database) == [("Success", "completed", "a")])
        until(lambda: rows_left(database) == 0)


def test_without_an_address_the_client_is_told_whose_it_is(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", reachable=False) as (a, b):
        page = a.ask("POST", "/v1/statement", MANY).document
        answered = b.ask("GET", path_of(page))
        assert answered.status == 404
        assert "answered by process a only" in answered.message
        assert "queryflux.advertiseAddress" in answered.message
        assert len(Balancer(a).finish(page)) == 100000, "and it has lost nothing by that"


def test_the_end_of_an_owner_is_told_and_recorded_once(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b") as (a, b):
        page = a.ask("POST", "/v1/statement", MANY).document
        kill(a)
        answered = b.ask("GET", path_of(page))
        assert answered.status == 503, "it may be back in a moment"
        assert "process a" in answered.message
        until(lambda: b.ask("GET", path_of(page)).status == 404)
        until(lambda: endings(database) == [("Cancelled", "cancelled", "b")])
        until(lambda: rows_left(database) == 0)
        assert b.ask("GET", path_of(page)).status == 404


# Who may ask.


def test_another_process_checks_as_the_owner_does(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b") as (a, b):
        page = Balancer(a).until(a.ask("POST", "/v1/statement", MANY).document, executing)
        path, query_id = path_of(page), page["id"]
        assert b.ask("GET", path, user="bob").status == 403
        assert b.ask("DELETE", path, user="bob").status == 403
        slug = path.split("/")[-2]
        assert b.ask("GET", path.replace(slug, "0" * len(slug))).status == 404
        assert b.ask("DELETE", f"/v1/query/{query_id}", user="bob").status == 403
        assert b.ask("GET", f"/v1/query/{query_id}").document["state"] == "RUNNING"
        assert len(Balancer(b).finish(page)) == 100000


def test_a_request_that_no_process_signed_is_refused(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a") as (a,):
        page = a.ask("POST", "/v1/statement", MANY).document
        forged = {"Authorization": "QueryFlux-Relay " + "0" * 64, "X-QueryFlux-User": "ann"}
        assert a.ask("GET", path_of(page), **forged).status == 401
        assert a.ask("DELETE", f"/v1/query/{page['id']}", **forged).status == 401
        assert len(Balancer(a).finish(page)) == 100000


@pytest.mark.parametrize("by", ["page", "query", "operator"])
def test_a_query_is_ended_from_any_process(tmp_path: Path, database: Database, by: str) -> None:
    with replicas(tmp_path, database, "a", "b") as (a, b):
        page = a.ask("POST", "/v1/statement", MANY).document
        page = Balancer(a).until(page, executing)
        listed = operate(b, "GET", "running").document["is"]
        assert [(query["id"], query["instance_id"]) for query in listed] == [(page["id"], "a")]
        end(b, page, by)
        until(lambda: endings(database) == [("Cancelled", "cancelled", "a")])
        if by != "page":  # its client has not asked for that, and hears of it wherever it asks
            said, page = error_of(b, page)
            assert said == "USER_CANCELED"
            assert error_of(a, page) == ("USER_CANCELED", page)
        until(lambda: rows_left(database) == 0)
        assert len(endings(database)) == 1


def error_of(replica: Replica, page: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a client that goes on hears, and the page before it; one that was made before may come first."""
    while True:
        answered = replica.ask("GET", path_of(page))
        assert answered.status == 200
        if "error" in answered.document:
            return answered.document["error"]["errorName"], page
        page = answered.document


def end(replica: Replica, page: dict[str, Any], by: str) -> None:
    """As a client does with the page it has, as one does with the id, or as an operator does."""
    if by == "page":
        assert replica.ask("DELETE", path_of(page)).status == 204
    elif by == "query":
        assert replica.ask("DELETE", f"/v1/query/{page['id']}").status == 204
    else:
        assert operate(replica, "DELETE", page["id"]).status == 204


def operate(replica: Replica, method: str, query: str) -> Answered:
    """What an operator does to a query."""
    operator = Replica(replica.name, replica.process.port("operator port"), replica.process)
    headers = {"Authorization": "Basic YWRtaW46YWRtaW4="}
    return operator.ask(method, f"/admin/queries/{query}", **headers)


# Queries that wait.


def test_a_query_that_waits_is_queued_wherever_its_client_asks(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", limit=1) as (a, b):
        running = Balancer(a).until(a.ask("POST", "/v1/statement", MANY).document, executing)
        page = a.ask("POST", "/v1/statement", "SELECT 42").document
        for _ in range(2):
            page = Balancer(b).follow(page)
            assert page["stats"]["state"] == "QUEUED"
        assert b.ask("DELETE", path_of(running)).status == 204
        assert Balancer(b).finish(page) == [[42]]
        until(lambda: [row[2] for row in endings(database)] == ["a", "a"])
        until(lambda: rows_left(database) == 0)


def test_a_query_whose_owner_died_in_the_queue_goes_on(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", "c", limit=1) as (a, b, c):
        running = Balancer(c).until(c.ask("POST", "/v1/statement", MANY).document, executing)
        page = a.ask("POST", "/v1/statement", "SELECT 42").document
        kill(a)
        page = Balancer(b).follow(page)
        assert page["stats"]["state"] == "QUEUED", "its owner may be back"
        balancer = Balancer(b, c)
        while database.rows("SELECT claimed_by FROM queued_queries") == [("a",)]:
            page = balancer.follow(page)
            assert page["stats"]["state"] == "QUEUED"
        assert c.ask("DELETE", path_of(running)).status == 204
        assert balancer.finish(page) == [[42]]
        until(lambda: sorted(row[0] for row in endings(database)) == ["Cancelled", "Success"])
        until(lambda: rows_left(database) == 0 and database.leases() == {})


def test_a_process_that_drains_gives_its_waiting_queries_away(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", limit=1, stale=60, drain=120) as (a, b):
        running = Balancer(b).until(b.ask("POST", "/v1/statement", MANY).document, executing)
        page = a.ask("POST", "/v1/statement", "SELECT 42").document
        a.process.signal(signal.SIGTERM)
        began = time.monotonic()
        assert a.process.wait() == 0
        assert time.monotonic() - began < 40, "it waits for its own queries only, and has none left"
        assert database.rows("SELECT claimed_by FROM queued_queries") == [(None,)]
        assert b.ask("DELETE", path_of(running)).status == 204
        assert Balancer(b).finish(page) == [[42]]
        until(lambda: ("Success", "completed", "b") in endings(database))
        until(lambda: rows_left(database) == 0)


def test_a_query_that_waited_in_a_dead_process_and_is_not_asked_for_has_failed(
    tmp_path: Path, database: Database
) -> None:
    with replicas(tmp_path, database, "a", "b", limit=1) as (a, b):
        running = Balancer(b).until(b.ask("POST", "/v1/statement", MANY).document, executing)
        page = a.ask("POST", "/v1/statement", "SELECT 42").document
        kill(a)
        until(lambda: endings(database) == [("Failed", "failed", "b")], 60)
        assert b.ask("GET", path_of(page)).status == 404
        assert b.ask("DELETE", path_of(running)).status == 204


# Results that a Trino keeps.


@pytest.mark.parametrize("reachable", [True, False], ids=["relayed", "handed over"])
def test_a_result_that_trino_keeps_is_read_through_any_process(
    tmp_path: Path, database: Database, coordinator: TrinoServer, reachable: bool
) -> None:
    clusters = lake(coordinator)
    with replicas(tmp_path, database, "a", "b", "c", clusters=clusters, reachable=reachable) as three:
        balancer = Balancer(*three)
        page = balancer.ask("POST", "/v1/statement", LAKE_MANY).document
        rows = balancer.finish(page)
        direct = Balancer(Replica("trino", coordinator.port, three[0].process))
        assert rows == direct.finish(direct.ask("POST", "/v1/statement", LAKE_MANY).document)
        until(lambda: [row[:2] for row in endings(database)] == [("Success", "completed")])
        until(lambda: rows_left(database) == 0 and database.leases() == {})
        for replica in three:
            until(lambda replica=replica: replica.process.metrics()["queryflux_running_queries"] == 0)  # type: ignore[misc]
        assert len(endings(database)) == 1


def test_trino_goes_on_when_the_owner_dies(
    tmp_path: Path, database: Database, coordinator: TrinoServer
) -> None:
    with replicas(tmp_path, database, "a", "b", clusters=lake(coordinator)) as (a, b):
        page = a.ask("POST", "/v1/statement", LAKE_MANY).document
        page = Balancer(a).until(page, lambda page: page.get("data"))
        first = len(page["data"])
        leases = database.rows("SELECT instance_id FROM cluster_capacity_leases")
        kill(a)
        following = Balancer(b).follow(page)
        assert leases == [("a",)]
        assert database.rows("SELECT instance_id FROM cluster_capacity_leases") in ([("b",)], [])
        rows = page["data"] + Balancer(b).finish(following)
        keys = [row[0] for row in rows]
        assert len(keys) > first
        assert keys == sorted(set(keys)), "none is lost, none comes twice"
        until(lambda: endings(database) == [("Success", "completed", "b")])
        until(lambda: rows_left(database) == 0 and database.leases() == {})


def test_what_a_dead_process_ran_is_cancelled_at_its_engine(
    tmp_path: Path, database: Database, coordinator: TrinoServer
) -> None:
    with replicas(tmp_path, database, "a", "b", clusters=lake(coordinator)) as (a, _):
        page = a.ask("POST", "/v1/statement", LAKE_SLOW).document
        Balancer(a).until(page, lambda page: page["stats"]["state"] == "RUNNING")
        until(lambda: database.rows("SELECT id FROM executing_queries"))
        backend_id = database.rows("SELECT id FROM executing_queries")[0][0]
        kill(a)
        until(lambda: endings(database) == [("Cancelled", "cancelled", "b")])
        direct = Replica("trino", coordinator.port, a.process)
        until(lambda: direct.ask("GET", f"/v1/query/{backend_id}").document["state"] == "FAILED")
        until(lambda: rows_left(database) == 0 and database.leases() == {})


def test_a_query_that_waits_for_trino_is_begun_once(
    tmp_path: Path, database: Database, coordinator: TrinoServer
) -> None:
    name = f"asked_once_{secrets.token_hex(4)}"  # the coordinator may remember earlier runs
    with replicas(tmp_path, database, "a", "b", clusters=lake(coordinator), limit=1) as (a, b):
        running = Balancer(b).until(b.ask("POST", "/v1/statement", LAKE_SLOW).document, executing)
        page = a.ask("POST", "/v1/statement", f"SELECT 42 AS {name}").document
        assert b.ask("DELETE", path_of(running)).status == 204
        assert Balancer(b, a).finish(page) == [[42]]
        direct = Replica("trino", coordinator.port, a.process)
        begun = [query for query in direct.ask("GET", "/v1/query").document["is"] if name in query["query"]]
        assert len(begun) == 1
