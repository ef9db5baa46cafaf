"""The four doors through real clients with one face, so that one test asks all of them.

A client speaks SQL and gets rows, or Refusal with the protocol's own code: Trino's errorName (or the HTTP
status of what is told outside a page), a SQLSTATE, a MySQL error number, a gRPC status.
"""

import base64
import contextlib
import http.client
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

HOST = "127.0.0.1"
TIMEOUT = 30.0

Row = tuple[Any, ...]


class Refusal(Exception):
    """What a door said instead of an answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Client(ABC):
    """One client of one door."""

    @abstractmethod
    def ask(self, sql: str) -> list[Row]:
        """The rows of a statement. Raises Refusal."""

    @abstractmethod
    def close(self) -> None:
        """Part in good order."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Door(ABC):
    """One protocol: how to reach it, and how it spells what can go wrong."""

    name: str
    """Its key under ``queryflux.frontends``."""
    label: str
    """Its name in records and metrics."""
    codes: ClassVar[dict[str, str]]
    """By the code of model/errors.py, what a client of this protocol sees."""

    @abstractmethod
    def connect(self, port: int, user: str = "ann", password: str = "", ca: Path | None = None) -> Client:
        """A client that has connected; ``ca``: over TLS. Raises Refusal. Protocols whose log-in is a part of
        the first request refuse in ``ask``."""

    def ask(
        self, port: int, sql: str, user: str = "ann", password: str = "", ca: Path | None = None
    ) -> list[Row]:
        """Connect, ask once, part. Raises Refusal."""
        with self.connect(port, user, password, ca) as client:
            return client.ask(sql)


class TrinoClient(Client):
    """The client protocol over http.client: unlike the trino package it sends Basic over plain HTTP too."""

    def __init__(self, port: int, headers: dict[str, str], ca: Path | None) -> None:
        self.headers = headers
        if ca is not None:
            context = ssl.create_default_context(cafile=str(ca))
            self.http: http.client.HTTPConnection = http.client.HTTPSConnection(
                HOST, port, timeout=TIMEOUT, context=context
            )
        else:
            self.http = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT)

    def request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """One request; the document of its response. Raises Refusal for a status that is an error."""
        self.http.request(method, path, body, self.headers)
        response = self.http.getresponse()
        content = response.read()
        if started := response.headers.get("X-Trino-Started-Transaction-Id"):
            self.headers["X-Trino-Transaction-Id"] = started
        if response.status >= 400:
            text = content.decode()
            with contextlib.suppress(ValueError):
                text = json.loads(text)["error"]["message"]
            raise Refusal(str(response.status), text)
        return dict(json.loads(content)) if content else {}

    def begin(self) -> None:
        """Begin a transaction, which all that follows belongs to."""
        self.headers["X-Trino-Transaction-Id"] = "NONE"
        self.ask("START TRANSACTION")

    def submit(self, sql: str | bytes) -> dict[str, Any]:
        """POST a statement; its first page."""
        return self.request("POST", "/v1/statement", sql.encode() if isinstance(sql, str) else sql)

    def follow(self, page: dict[str, Any]) -> dict[str, Any]:
        """The page after this one."""
        return self.request("GET", urlsplit(page["nextUri"]).path)

    def ask(self, sql: str) -> list[Row]:
        return self.finish(self.submit(sql))

    def finish(self, page: dict[str, Any]) -> list[Row]:
        """All rows of a statement from one of its pages on. Raises Refusal."""
        rows: list[Row] = []
        while True:
            if "error" in page:
                raise Refusal(page["error"]["errorName"], page["error"]["message"])
            rows += [tuple(row) for row in page.get("data") or ()]
            if "nextUri" not in page:
                return rows
            page = self.follow(page)

    def close(self) -> None:
        self.http.close()


class TrinoDoor(Door):
    """Trino HTTP."""

    name, label = "trinoHttp", "TrinoHttp"
    codes: ClassVar[dict[str, str]] = {
        "AUTHENTICATION_FAILED": "401",
        "ACCESS_DENIED": "PERMISSION_DENIED",
        "SYNTAX": "SYNTAX_ERROR",
        "TABLE_NOT_FOUND": "TABLE_NOT_FOUND",
        "STATEMENT_TOO_LARGE": "413",
        "QUEUE_FULL": "QUERY_QUEUE_FULL",
        "CAPACITY_TIMEOUT": "EXCEEDED_TIME_LIMIT",
        "NO_CAPACITY": "QUERY_REJECTED",
        "UNAVAILABLE": "NO_NODES_AVAILABLE",
        "ENGINE_CONNECTION_LOST": "REMOTE_HOST_GONE",
        "CANCELLED": "USER_CANCELED",
        "TIMED_OUT": "EXCEEDED_TIME_LIMIT",
        "SHUTTING_DOWN": "503",
    }

    def connect(
        self, port: int, user: str = "ann", password: str = "", ca: Path | None = None
    ) -> TrinoClient:
        headers = {"X-Trino-User": user} if user else {}
        if password:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        return TrinoClient(port, headers, ca)


class PostgresClient(Client):
    """psycopg in autocommit."""

    def __init__(self, connection: "psycopg.Connection[Row]") -> None:
        self.connection = connection

    def ask(self, sql: str) -> list[Row]:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql.encode())
                return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise Refusal(error.sqlstate or "", str(error)) from error

    def close(self) -> None:
        self.connection.close()


class PostgresDoor(Door):
    """PostgreSQL wire."""

    name, label = "postgresWire", "PostgresWire"
    codes: ClassVar[dict[str, str]] = {
        "AUTHENTICATION_FAILED": "28P01",
        "ACCESS_DENIED": "42501",
        "SYNTAX": "42601",
        "TABLE_NOT_FOUND": "42P01",
        "STATEMENT_TOO_LARGE": "54000",
        "QUEUE_FULL": "53300",
        "CAPACITY_TIMEOUT": "53300",
        "NO_CAPACITY": "53000",
        "UNAVAILABLE": "57P03",
        "ENGINE_CONNECTION_LOST": "08006",
        "CANCELLED": "57014",
        "TIMED_OUT": "57014",
        "SHUTTING_DOWN": "57P03",
    }

    def connect(
        self, port: int, user: str = "ann", password: str = "", ca: Path | None = None
    ) -> PostgresClient:
        options: dict[str, Any] = {"sslmode": "disable"}
        if ca is not None:
            options = {"sslmode": "verify-full", "sslrootcert": str(ca)}
        try:
            connection = psycopg.connect(
                host=HOST,
                port=port,
                user=user,
                password=password or None,
                dbname="",
                autocommit=True,
                connect_timeout=int(TIMEOUT),
                **options,
            )
        except psycopg.Error as error:
            raise Refusal(_connect_state(str(error)), str(error)) from error
        return PostgresClient(connection)


def _connect_state(message: str) -> str:
    """libpq keeps no SQLSTATE of a refused connection; what the door wrote is in the message."""
    if "user name or password is wrong" in message:
        return "28P01"
    if "without TLS is refused" in message:
        return "28000"
    return "57P03" if "shutting down" in message else ""


class MysqlClient(Client):
    """PyMySQL; ``number`` is what KILL calls the connection by."""

    def __init__(self, connection: "pymysql.Connection[Any]") -> None:
        self.connection = connection
        self.number = int(vars(connection)["server_thread_id"][0])

    def ask(self, sql: str) -> list[Row]:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            raise _refused(error) from error

    def close(self) -> None:
        if self.connection.open:
            with contextlib.suppress(pymysql.MySQLError):
                self.connection.close()


def _refused(error: pymysql.MySQLError) -> Refusal:
    return Refusal(str(error.args[0]), str(error.args[-1]))


class MysqlDoor(Door):
    """MySQL wire."""

    name, label = "mysqlWire", "MysqlWire"
    codes: ClassVar[dict[str, str]] = {
        "AUTHENTICATION_FAILED": "1045",
        "ACCESS_DENIED": "1227",
        "SYNTAX": "1064",
        "TABLE_NOT_FOUND": "1146",
        "STATEMENT_TOO_LARGE": "1153",
        "QUEUE_FULL": "1226",
        "CAPACITY_TIMEOUT": "1205",
        "NO_CAPACITY": "1226",
        "UNAVAILABLE": "1105",
        "ENGINE_CONNECTION_LOST": "1105",
        "CANCELLED": "1317",
        "TIMED_OUT": "3024",
        "SHUTTING_DOWN": "1053",
    }

    def connect(
        self, port: int, user: str = "ann", password: str = "", ca: Path | None = None
    ) -> MysqlClient:
        options: dict[str, Any] = {"ssl_disabled": True}
        if ca is not None:
            options = {"ssl": {"ca": str(ca), "check_hostname": True}}
        try:
            connection = pymysql.connect(
                host=HOST,
                port=port,
                user=user,
                password=password.encode(),  # it would take a str for Latin-1
                autocommit=None,
                connect_timeout=int(TIMEOUT),
                read_timeout=TIMEOUT,
                **options,
            )
        except pymysql.MySQLError as error:
            raise _refused(error) from error
        return MysqlClient(connection)


class FlightClient(Client):
    """ADBC's Flight SQL driver."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, sql: str) -> list[Row]:
        with flight_refusals(), self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def close(self) -> None:
        self.connection.close()


@contextlib.contextmanager
def flight_refusals() -> Iterator[None]:
    """ADBC's errors as Refusals; the gRPC status is in their text."""
    from adbc_driver_manager import Error

    try:
        yield
    except Error as error:
        found = re.search(r"\((\w+); [^)]*\)", str(error))
        raise Refusal(found[1] if found else str(error.status_code), str(error)) from error


class FlightDoor(Door):
    """Arrow Flight SQL."""

    name, label = "flightSql", "FlightSql"
    codes: ClassVar[dict[str, str]] = {
        "AUTHENTICATION_FAILED": "Unauthenticated",
        "ACCESS_DENIED": "PermissionDenied",
        "SYNTAX": "InvalidArgument",
        "TABLE_NOT_FOUND": "NotFound",
        "STATEMENT_TOO_LARGE": "InvalidArgument",
        "QUEUE_FULL": "Unavailable",
        "CAPACITY_TIMEOUT": "Unavailable",
        "NO_CAPACITY": "Unknown",
        "UNAVAILABLE": "Unavailable",
        "ENGINE_CONNECTION_LOST": "Unknown",
        "CANCELLED": "Canceled",
        "TIMED_OUT": "DeadlineExceeded",
        "SHUTTING_DOWN": "Unavailable",
    }

    def connect(
        self, port: int, user: str = "ann", password: str = "", ca: Path | None = None
    ) -> FlightClient:
        adbc = pytest.importorskip("adbc_driver_flightsql.dbapi", reason="no ADBC Flight SQL driver")
        options: dict[str, str] = {}
        if password:
            options |= {"username": user, "password": password}
        scheme = "grpc"
        if ca is not None:
            scheme = "grpc+tls"
            options["adbc.flight.sql.client_option.tls_root_certs"] = ca.read_text()
        with flight_refusals():
            connection = adbc.connect(f"{scheme}://{HOST}:{port}", db_kwargs=options, autocommit=True)
        return FlightClient(connection)


DOORS: tuple[Door, ...] = (TrinoDoor(), PostgresDoor(), MysqlDoor(), FlightDoor())
"""All of them, in the order of the configuration reference."""

every_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
