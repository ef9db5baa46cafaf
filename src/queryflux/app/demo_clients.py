"""The four client libraries that the demo asks its questions with. Each is somebody else's, and
unmodified."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Client:
    """A client library, the door it uses, and how it asks: host, port and SQL in, rows out."""

    name: str
    door: str
    ask: Callable[[str, int, str], Rows]


def ask_psycopg(host: str, port: int, sql: str) -> Rows:
    """PostgreSQL wire."""
    import psycopg

    with psycopg.connect(host=host, port=port, user="demo", dbname="files", autocommit=True) as connection:
        return list(connection.execute(sql.encode()).fetchall())


def ask_pymysql(host: str, port: int, sql: str) -> Rows:
    """MySQL wire."""
    import pymysql

    connection = pymysql.connect(host=host, port=port, user="demo", database="main")
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]
    finally:
        connection.close()


def ask_trino(host: str, port: int, sql: str) -> Rows:
    """Trino HTTP."""
    import trino

    connection: Any = trino.dbapi.Connection(
        host=host, port=port, user="demo", catalog="files", schema="main"
    )
    try:
        cursor = connection.cursor()
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]
    finally:
        connection.close()


def ask_adbc(host: str, port: int, sql: str) -> Rows:
    """Arrow Flight SQL."""
    from adbc_driver_flightsql import dbapi

    with dbapi.connect(f"grpc://{host}:{port}") as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


CLIENTS = (
    Client("psycopg", "postgresWire", ask_psycopg),
    Client("PyMySQL", "mysqlWire", ask_pymysql),
    Client("trino", "trinoHttp", ask_trino),
    Client("ADBC Flight SQL", "flightSql", ask_adbc),
)
