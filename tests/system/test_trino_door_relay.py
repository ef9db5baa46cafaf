"""The Trino door in front of a real Trino: what a client gets is what the coordinator wrote."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import requests
import trino
from trino.exceptions import Error, TrinoUserError
from trino.transaction import IsolationLevel

from queryflux.model.endings import EndReason
from tests.kit.serving import Serving, serving
from tests.kit.trino import TrinoServer, shared_server
from tests.kit.trino_java import cli

PAGES = "SELECT * FROM tpch.tiny.orders"
SLOW = "SELECT count(*) FROM tpch.sf10000.lineitem WHERE l_comment LIKE '%zz%zz%'"


@pytest.fixture(scope="module")
def coordinator() -> TrinoServer:
    return shared_server()


@pytest.fixture(scope="module")
def running(coordinator: TrinoServer) -> Iterator[Serving]:
    yaml = f"""
clusters: {{lake: {{engine: trino, endpoint: "{coordinator.url}"}}}}
clusterGroups: {{main: {{members: [lake]}}}}
routingFallback: main
"""
    with serving(yaml) as run:
        yield run


def connect(port: int, **options: Any) -> Any:
    make: Any = trino.dbapi.connect
    # Unless told, the package tries EXECUTE IMMEDIATE with a query that it does not read to its end.
    return make(host="127.0.0.1", port=port, user="ann", legacy_prepared_statements=False, **options)


def ask(connection: Any, sql: str, *parameters: Any) -> tuple[Any, Any]:
    cursor = connection.cursor()
    cursor.execute(sql, parameters or None)
    rows = cursor.fetchall()
    return rows, cursor.description


@pytest.fixture
def both(running: Serving, coordinator: TrinoServer) -> Iterator[tuple[Any, Any]]:
    """A connection through the door, and one to the coordinator."""
    with (
        closing(connect(running.port("trinoHttp"))) as through,
        closing(connect(coordinator.port)) as direct,
    ):
        yield through, direct
    running.assert_idle()


@pytest.mark.parametrize(
    "sql",
    [
        PAGES + " ORDER BY o_orderkey",
        "SELECT true, 1, 1.5E0, DECIMAL '1.10', 'x', X'00ff', DATE '2024-02-29'",
        "SELECT UUID '12151fd2-7586-11e9-8f9e-2a86e4085a59', JSON '{\"a\":1}'",
        "SELECT TIMESTAMP '2024-02-29 01:02:03.123456789012', TIMESTAMP '2024-02-29 01:02:03 Europe/Berlin'",
        "SELECT ARRAY[1, NULL], CAST(ROW(1, 'x') AS ROW(a integer, b varchar))",
        "SELECT MAP(ARRAY['nextUri', 'infoUri'], ARRAY['http://x', 'http://y'])",
        "SELECT nan(), infinity(), NULL, INTERVAL '1' DAY",
        "SHOW CATALOGS",
        "SHOW SCHEMAS FROM tpch",
        "DESCRIBE tpch.tiny.nation",
        "SELECT 1 WHERE false",
    ],
)
def test_answers_are_the_coordinators(both: tuple[Any, Any], sql: str) -> None:
    through, direct = (ask(connection, sql) for connection in both)
    assert through == direct or json.dumps(through, default=str) == json.dumps(direct, default=str)


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT x", "SELECT * FROM tpch.tiny.nothing", "SELECT 1/0"])
def test_errors_are_the_coordinators(both: tuple[Any, Any], sql: str) -> None:
    failures = []
    for connection in both:
        with pytest.raises(TrinoUserError) as caught:
            ask(connection, sql)
        failures.append(caught.value)
    through, direct = failures
    assert (through.error_name, through.message) == (direct.error_name, direct.message)
    assert through.error_type == direct.error_type


def test_every_uri_is_ours_and_the_rest_is_as_it_came(running: Serving) -> None:
    port = running.port("trinoHttp")
    headers = {"X-Trino-User": "ann", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "sql.example.com"}
    response = requests.post(f"http://127.0.0.1:{port}/v1/statement", data=PAGES, headers=headers, timeout=30)
    rows = 0
    while True:
        page = response.json()
        for name in ("infoUri", "nextUri", "partialCancelUri"):
            assert page.get(name, "https://sql.example.com/").startswith("https://sql.example.com/"), page[
                name
            ]
        rows += len(page.get("data", []))
        if "nextUri" not in page:
            break
        uri = page["nextUri"].replace("https://sql.example.com", f"http://127.0.0.1:{port}")
        response = requests.get(uri, headers=headers, timeout=30)
        assert requests.get(uri, headers=headers, timeout=30).content == response.content
        assert requests.head(uri, headers=headers, timeout=30).status_code == 200
    assert rows == 15_000


def test_sessions_and_prepared_statements(running: Serving, both: tuple[Any, Any]) -> None:
    through, _ = both
    ask(through, "USE tpch.tiny")
    assert ask(through, "SELECT count(*) FROM nation")[0] == [[25]]
    ask(through, "SET SESSION query_max_run_time = '7m'")
    rows, _ = ask(through, "SHOW SESSION LIKE 'query_max_run_time'")
    assert rows[0][1] == "7m"
    with pytest.raises(TrinoUserError, match="does not exist"):
        ask(through, "SET SESSION no_such_property = 1")
    ask(through, "SET SESSION query_tags = 'team:x'")
    assert ask(through, "SELECT ?, n_name FROM nation WHERE n_nationkey = ?", "a", 3)[0] == [["a", "CANADA"]]
    assert running.records[-1].query_tags == {"team": "x"}
    assert "n_nationkey = 3" in running.records[-1].sql_text
    ask(through, "PREPARE p FROM SELECT n_name FROM nation WHERE n_nationkey < ?")
    assert ask(through, "DESCRIBE OUTPUT p")[0][0][0] == "n_name"
    assert ask(through, "DESCRIBE INPUT p")[0] == [[0, "bigint"]]


def test_writes_and_transactions(running: Serving, both: tuple[Any, Any]) -> None:
    through, direct = both
    ask(through, "CREATE TABLE memory.default.door AS SELECT 1 AS a")
    assert ask(through, "INSERT INTO memory.default.door VALUES 2, 3")[0] == [[2]]
    assert ask(direct, "SELECT count(*) FROM memory.default.door")[0] == [[3]]
    ask(through, "DROP TABLE memory.default.door")
    with closing(connect(running.port("trinoHttp"), isolation_level=IsolationLevel.READ_COMMITTED)) as made:
        assert ask(made, "SELECT count(*) FROM tpch.tiny.nation")[0] == [[25]]
        assert ask(made, "SELECT count(*) FROM tpch.tiny.region")[0] == [[5]]
        made.commit()


def test_cancel_reaches_the_coordinator(running: Serving, both: tuple[Any, Any]) -> None:
    through, direct = both
    cursor = through.cursor()
    failure: list[Exception] = []

    def run() -> None:
        try:
            cursor.execute(SLOW)
            cursor.fetchall()
        except Error as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 60
    while cursor._query is None or cursor._query.stats.get("state") != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    query_id = cursor._query.query_id
    cursor.cancel()
    thread.join(30)
    assert not thread.is_alive()
    running.assert_idle()
    assert running.records[-1].reason is EndReason.CANCELLED
    sql = f"SELECT state FROM system.runtime.queries WHERE query_id = '{query_id}'"
    deadline = time.monotonic() + 20
    while (found := ask(direct, sql)[0]) != [["FAILED"]]:
        assert time.monotonic() < deadline, found


def test_the_cli(running: Serving) -> None:
    done = cli(
        running.port("trinoHttp"),
        "USE tpch.tiny",
        "SELECT n_name FROM nation WHERE n_nationkey < 2 ORDER BY 1",
        "PREPARE p FROM SELECT count(*) FROM nation WHERE n_nationkey < ?",
        "EXECUTE p USING 10",
    )
    assert done.stdout.splitlines() == ['"ALGERIA"', '"ARGENTINA"', '"10"'], done.stderr
