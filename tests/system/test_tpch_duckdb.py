"""The 22 TPC-H queries through the PostgreSQL and Trino doors: the same rows and types as DuckDB asked
directly."""

import asyncio
import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import psycopg
import pytest
import trino

from tests.kit.rows import Row, same_rows
from tests.kit.serving import Serving, serving
from tests.kit.tpch import NUMBERS, TABLES, query_text, tpch_data

# DuckDB's type to PostgreSQL's and Trino's, as docs/types.md has it; decimals and strings by their family.
POSTGRES_TYPES = {
    "BIGINT": "int8",
    "INTEGER": "int4",
    "HUGEINT": "numeric",
    "DECIMAL": "numeric",
    "DOUBLE": "float8",
    "VARCHAR": "text",
    "DATE": "date",
}
TRINO_TYPES = {
    "BIGINT": "bigint",
    "INTEGER": "integer",
    "HUGEINT": "decimal",
    "DECIMAL": "decimal",
    "DOUBLE": "double",
    "VARCHAR": "varchar",
    "DATE": "date",
}
PYTHON_TYPES: dict[str, type] = {
    "BIGINT": int,
    "INTEGER": int,
    "HUGEINT": Decimal,
    "DECIMAL": Decimal,
    "DOUBLE": float,
    "VARCHAR": str,
    "DATE": datetime.date,
}


@pytest.fixture(scope="module")
def data() -> Path:
    return tpch_data("0.01")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Serving]:
    yaml = f"""
clusters:
  folder: {{engine: duckDb, dataPath: "{data}"}}
clusterGroups:
  folder: {{members: [folder]}}
routingFallback: folder
"""
    with serving(yaml) as running:
        yield running


@pytest.fixture(scope="module")
def direct(data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.read_parquet(str(data / f"{table}.parquet")).create_view(table)
        yield connection


def expected(direct: duckdb.DuckDBPyConnection, number: int) -> tuple[list[str], list[str], list[Row]]:
    """Column names, families of their types, rows."""
    relation = direct.sql(query_text(number))
    families = [str(kind).partition("(")[0] for kind in relation.types]
    return relation.columns, families, [convert(row, families) for row in relation.fetchall()]


def convert(row: Row, families: list[str]) -> Row:
    """What a PostgreSQL or Trino client has for DuckDB's Python values: a hugeint is a decimal there."""
    return tuple(
        Decimal(value) if family == "HUGEINT" and value is not None else value
        for value, family in zip(row, families, strict=True)
    )


def check(rows: list[Row], names: list[str], right: tuple[list[str], list[str], list[Row]]) -> None:
    right_names, families, right_rows = right
    assert names == right_names
    same_rows(rows, right_rows)
    for row in rows[:50]:
        for value, family in zip(row, families, strict=True):
            assert value is None or type(value) is PYTHON_TYPES[family]


@pytest.mark.parametrize("number", NUMBERS)
def test_psycopg(server: Serving, direct: duckdb.DuckDBPyConnection, number: int) -> None:
    right = expected(direct, number)
    with psycopg.connect(host="127.0.0.1", port=server.port("postgresWire"), user="ann") as connection:
        cursor = connection.execute(query_text(number).encode())
        rows = cursor.fetchall()
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        types = [connection.adapters.types[column.type_code].name for column in cursor.description]
    assert types == [POSTGRES_TYPES[family] for family in right[1]]
    check(rows, names, right)


@pytest.mark.parametrize("number", NUMBERS)
def test_asyncpg(server: Serving, direct: duckdb.DuckDBPyConnection, number: int) -> None:
    right = expected(direct, number)

    async def ask() -> tuple[list[Row], list[Any]]:
        connection = await asyncpg.connect(host="127.0.0.1", port=server.port("postgresWire"), user="ann")
        try:
            prepared = await connection.prepare(query_text(number))
            return [tuple(row) for row in await prepared.fetch()], list(prepared.get_attributes())
        finally:
            await connection.close()

    rows, attributes = asyncio.run(ask())
    assert [attribute.type.name for attribute in attributes] == [POSTGRES_TYPES[f] for f in right[1]]
    check(rows, [attribute.name for attribute in attributes], right)


@pytest.mark.parametrize("number", NUMBERS)
def test_trino(server: Serving, direct: duckdb.DuckDBPyConnection, number: int) -> None:
    right = expected(direct, number)
    connection: Any = trino.dbapi.Connection(host="127.0.0.1", port=server.port("trinoHttp"), user="ann")
    cursor = connection.cursor()
    cursor.execute(query_text(number))
    rows = [tuple(row) for row in cursor.fetchall()]
    types = [column[1].partition("(")[0] for column in cursor.description]
    assert types == [TRINO_TYPES[family] for family in right[1]]
    check(rows, [column[0] for column in cursor.description], right)
    connection.close()


def test_the_work_leaves_nothing_behind(server: Serving) -> None:
    server.assert_idle()
    assert all(record.error_code is None for record in server.records)
