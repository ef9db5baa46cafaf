"""Clients of a cluster with a limit, through the PostgreSQL door of any process."""

import time
from typing import Protocol

import psycopg

from tests.kit.doors import HOST


class Doors(Protocol):
    """A process, or what stands for one, by its ports."""

    def port(self, door: str, /) -> int: ...


def connect(process: Doors) -> "psycopg.Connection[tuple[object, ...]]":
    """A connection whose transaction begins with its first statement."""
    port = process.port("postgresWire")
    return psycopg.connect(
        host=HOST, port=port, user="ann", dbname="x", sslmode="disable", connect_timeout=10
    )


def ask(process: Doors, sql: str = "SELECT 1") -> float:
    """When a query of a client of its own was answered."""
    with connect(process) as connection:
        connection.execute(sql.encode())
        return time.monotonic()
