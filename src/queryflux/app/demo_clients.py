"""The four client libraries that the demo asks its questions with. Each is somebody else's, and
unmodified."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from queryflux.app.folder import in_url

Rows = list[tuple[Any, ...]]
Ask = Callable[[str], Rows]
"""SQL in, rows out, on a connection that is open."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client library, the door it uses, and how it connects: to a host and port."""

    name: str
    door: str
    connect: Callable[[str, int], AbstractContextManager[Ask]]

    def ask_each(self, host: str, ports: Sequence[int], sql: str) -> list[Rows]:
        """Ask over one connection to each port, all of which stay open until the last has answered: workers
        that share a port take connections by who has the fewest."""
        answers = []
        with ExitStack() as opened:
            for port in ports:
                ask = opened.enter_context(self.connect(host, port))
                answers.append(ask(sql))
        return answers


@contextmanager
def connect_psycopg(host: str, port: int) -> Iterator[Ask]:
    """PostgreSQL wire."""
    import psycopg

    with psycopg.connect(host=host, port=port, user="demo", dbname="files", autocommit=True) as connection:
        yield lambda sql: list(connection.execute(sql.encode()).fetchall())


@contextmanager
def connect_pymysql(host: str, port: int) -> Iterator[Ask]:
    """MySQL wire."""
    import pymysql

    with (
        pymysql.connect(host=host, port=port, user="demo", database="main") as connection,
        connection.cursor() as cursor,
    ):

        def ask(sql: str) -> Rows:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

        yield ask


@contextmanager
def connect_trino(host: str, port: int) -> Iterator[Ask]:
    """Trino HTTP."""
    import trino

    connection: Any = trino.dbapi.Connection(
        host=in_url(host), port=port, user="demo", catalog="files", schema="main"
    )

    def ask(sql: str) -> Rows:
        cursor = connection.cursor()
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]

    try:
        yield ask
    finally:
        connection.close()


@contextmanager
def connect_adbc(host: str, port: int) -> Iterator[Ask]:
    """Arrow Flight SQL."""
    from adbc_driver_flightsql import dbapi

    with dbapi.connect(f"grpc://{in_url(host)}:{port}") as connection, connection.cursor() as cursor:

        def ask(sql: str) -> Rows:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

        yield ask


CLIENTS = (
    Client("psycopg", "postgresWire", connect_psycopg),
    Client("PyMySQL", "mysqlWire", connect_pymysql),
    Client("trino", "trinoHttp", connect_trino),
    Client("ADBC Flight SQL", "flightSql", connect_adbc),
)
