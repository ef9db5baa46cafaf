"""ADBC's Flight SQL driver in front of a real PostgreSQL: parameters written as ``?``."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.postgres import PASSWORD, PostgresServer, shared_server
from tests.kit.serving import Serving, serving

pytest.importorskip("pyarrow.flight", reason="pyarrow has no Flight")
adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="no ADBC Flight SQL driver")


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="module")
def served(server: PostgresServer) -> Iterator[Serving]:
    yaml = f"""
queryflux:
  frontends:
    trinoHttp: {{enabled: false}}
    flightSql: {{host: 127.0.0.1, port: 0}}
  adminApi: {{host: 127.0.0.1, port: 0}}
clusters:
  shop:
    engine: postgres
    endpoint: "{server.host}:{server.port}"
    database: postgres
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
clusterGroups:
  shop: {{members: [shop]}}
routingFallback: shop
"""
    with serving(yaml) as running:
        yield running
        running.assert_idle()


@pytest.fixture(params=[True, False], ids=["autocommit", "transaction"])
def connection(served: Serving, request: pytest.FixtureRequest) -> Iterator[Any]:
    with adbc.connect(f"grpc://127.0.0.1:{served.port('flightSql')}", autocommit=request.param) as made:
        yield made
        if not request.param:
            made.rollback()


def rows(connection: Any, sql: str, parameters: Any = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("SELECT ?::int + ?::int AS x", (1, 2), [(3,)]),
        ("SELECT $1::int + $2::int AS x", (1, 2), [(3,)]),
        ("SELECT n FROM generate_series(1, 10) n WHERE n > ? ORDER BY n LIMIT ?", (3, 2), [(4,), (5,)]),
        ("SELECT 'a?' || ? AS x -- ?", ("b",), [("a?b",)]),
        ("""SELECT '{"a": 1}'::jsonb ? 'a' AS x""", None, [(True,)]),
        ("""SELECT '{"a": 1}'::jsonb ? ? AS x, ?::int AS y""", ("a", 5), [(True, 5)]),
        ("""SELECT '{"a": 1}'::jsonb ?| array['b'] AS x""", None, [(False,)]),
    ],
)
def test_parameters(connection: Any, sql: str, parameters: Any, expected: list[Any]) -> None:
    assert rows(connection, sql, parameters) == expected
    assert rows(connection, sql, parameters) == expected


def test_many_rows_are_put_by_parameters(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS flight_marks")
        cursor.execute("CREATE TABLE flight_marks (a int, b text)")
        cursor.executemany("INSERT INTO flight_marks VALUES (?, ?)", [(1, "x"), (2, "y?")])
    found = rows(connection, "SELECT a, b FROM flight_marks WHERE b = ?", ("y?",))
    assert found == [(2, "y?")]
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE flight_marks")
