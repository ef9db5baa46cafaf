"""The 22 TPC-H queries across protocols and real servers.

PostgreSQL clients ask a real Trino in PostgreSQL's dialect: equal to Trino asked directly. Trino clients ask
a real PostgreSQL: equal to PostgreSQL asked directly. docs/types.md says what each numeric becomes on the
way.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
import trino

from tests.kit import trino as trino_kit
from tests.kit.postgres import PASSWORD, PostgresServer, shared_server
from tests.kit.rows import Row, same_rows
from tests.kit.serving import Serving, serving
from tests.kit.tpch import NUMBERS, load_postgres, query_text, tpch_data

DATABASE = "tpch"


@pytest.fixture(scope="module")
def coordinator() -> trino_kit.TrinoServer:
    return trino_kit.shared_server()


@pytest.fixture(scope="module")
def before_trino(coordinator: trino_kit.TrinoServer) -> Iterator[Serving]:
    yaml = f"""
clusters:
  lake: {{engine: trino, endpoint: "http://{coordinator.host}:{coordinator.port}"}}
clusterGroups:
  lake: {{members: [lake]}}
routingFallback: lake
"""
    with serving(yaml) as running:
        yield running


@pytest.fixture(scope="module")
def database() -> PostgresServer:
    data = tpch_data("0.01")
    server = shared_server()
    with server.admin("postgres") as admin:
        if admin.execute(b"SELECT 1 FROM pg_database WHERE datname = 'tpch'").fetchone() is None:
            admin.execute(b"CREATE DATABASE tpch")
            with server.admin(DATABASE) as connection:
                load_postgres(connection, data)
    return server


@pytest.fixture(scope="module")
def before_postgres(database: PostgresServer) -> Iterator[Serving]:
    yaml = f"""
clusters:
  shop:
    engine: postgres
    endpoint: "{database.host}:{database.port}"
    database: {DATABASE}
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
clusterGroups:
  shop: {{members: [shop]}}
routingFallback: shop
"""
    with serving(yaml) as running:
        yield running


def rounded(value: Any) -> Any:
    """A numeric without a scale of its own keeps 18 digits on its way (docs/types.md)."""
    if (
        isinstance(value, Decimal)
        and isinstance(exponent := value.as_tuple().exponent, int)
        and exponent < -18
    ):
        return value.quantize(Decimal(1).scaleb(-18))
    return value


def ask_trino(port: int, sql: str, **session: Any) -> tuple[list[str], list[Row]]:
    """Column names and rows, by the trino package."""
    connection: Any = trino.dbapi.Connection(host="127.0.0.1", port=port, user="ann", **session)
    cursor = connection.cursor()
    cursor.execute(sql)
    rows = [tuple(row) for row in cursor.fetchall()]
    names = [column[0] for column in cursor.description]
    connection.close()
    return names, rows


@pytest.mark.parametrize("number", NUMBERS)
def test_postgres_client_to_trino(
    before_trino: Serving, coordinator: trino_kit.TrinoServer, number: int
) -> None:
    names, right = ask_trino(coordinator.port, query_text(number), catalog="tpch", schema="tiny")
    with psycopg.connect(
        host="127.0.0.1",
        port=before_trino.port("postgresWire"),
        user="ann",
        dbname="tpch",
        options="-c search_path=tiny",
    ) as connection:
        cursor = connection.execute(query_text(number).encode())
        rows = cursor.fetchall()
        assert cursor.description is not None
        assert [column.name for column in cursor.description] == names
    same_rows(rows, right)


@pytest.mark.parametrize("number", NUMBERS)
def test_trino_client_to_postgres(before_postgres: Serving, database: PostgresServer, number: int) -> None:
    with database.admin(DATABASE) as direct:
        cursor = direct.execute(query_text(number).encode())
        right = cursor.fetchall()
        assert cursor.description is not None
        right_names = [column.name for column in cursor.description]
    names, rows = ask_trino(before_postgres.port("trinoHttp"), query_text(number))
    assert names == right_names
    same_rows(rows, [tuple(rounded(value) for value in row) for row in right])
