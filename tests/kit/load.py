"""Clients of a fleet: real drivers that ask, all the time, whoever serves, and remember each answer.

Each query has a number of its own, which stands in its text and in its right answer, so that answers and
records are told apart. Three kinds of queries: ``work`` counts itself at the engine while it runs,
``lines`` streams a result of several packets, ``free`` has no limit.
"""

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
import requests
import trino
from trino.exceptions import Error as TrinoError
from trino.exceptions import HttpError, TrinoQueryError

from tests.kit import doors
from tests.kit.doors import (
    HOST,
    Client,
    Door,
    FlightClient,
    FlightDoor,
    MysqlDoor,
    PostgresDoor,
    Refusal,
    Row,
    TrinoDoor,
    flight_refusals,
)

LINES = 1500
RUNNING_KEY = 4711
ENGINE = f"""
CREATE TABLE lines AS SELECT n AS id, 'line ' || n AS line FROM generate_series(1, {LINES}) AS n;
CREATE UNLOGGED TABLE done (number int, seen int, began double precision, ended double precision);
CREATE FUNCTION work(number int, milliseconds int) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  began double precision := extract(epoch FROM clock_timestamp());
  running int;
BEGIN
  PERFORM pg_advisory_xact_lock_shared({RUNNING_KEY}, number);
  SELECT count(*) INTO running FROM pg_locks WHERE locktype = 'advisory' AND classid = {RUNNING_KEY};
  PERFORM nextval('seen_' || running);
  PERFORM pg_sleep(milliseconds / 1000.0);
  INSERT INTO done VALUES (number, running, began, extract(epoch FROM clock_timestamp()));
  RETURN number * 7 || ' worked';
END $$;
""" + "".join(f"CREATE SEQUENCE seen_{count};" for count in range(1, 101))
"""What an engine needs that counts: who runs holds a lock, so each counts all that run when it starts, and
adds it to what was seen; that, unlike ``done``, is not undone when a statement is ended."""


def most_seen(engine: "psycopg.Connection[Any]") -> int:
    """How many ran at a time, at most."""
    sql = "SELECT max(substr(sequencename, 6)::int) FROM pg_sequences WHERE last_value IS NOT NULL"
    row = engine.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


class TrinoDriver(Client):
    """The trino package."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, sql: str) -> list[Row]:
        try:
            cursor = self.connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]
        except TrinoQueryError as error:
            raise Refusal(str(error.error_name), str(error)) from error
        except (TrinoError, HttpError, requests.RequestException) as error:
            raise Refusal(type(error).__name__, str(error)) from error

    def close(self) -> None:
        self.connection.close()


class TrinoDriverDoor(TrinoDoor):
    """The Trino door, asked with the trino package."""

    def connect(self, port: int, user: str = "ann", password: str = "", ca: Any = None) -> Any:
        make: Any = trino.dbapi.connect
        return TrinoDriver(make(host=HOST, port=port, user=user, request_timeout=doors.TIMEOUT))


class FlightDriver(FlightClient):
    """ADBC; rows that have come count, though the server may be gone when the statement is closed."""

    def ask(self, sql: str) -> list[Row]:
        cursor = self.connection.cursor()
        try:
            with flight_refusals():
                cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
        finally:
            with suppress(Exception):
                cursor.close()


class FlightDriverDoor(FlightDoor):
    """The Flight SQL door, asked so."""

    def connect(self, port: int, user: str = "ann", password: str = "", ca: Any = None) -> FlightDriver:
        return FlightDriver(super().connect(port).connection)


DRIVERS: tuple[Door, ...] = (TrinoDriverDoor(), PostgresDoor(), MysqlDoor(), FlightDriverDoor())


class Server(Protocol):
    """Who is asked."""

    @property
    def name(self) -> str:
        """As operators know it."""

    @property
    def instance(self) -> str:
        """This start of it."""

    @property
    def leaving_at(self) -> float | None:
        """When it was told, or made, to end (monotonic)."""

    def port(self, door: str) -> int:
        """Where a door listens."""


@dataclass(frozen=True)
class Outcome:
    """What became of one query. Times are monotonic; ``code`` is empty when it was answered, and ``wrong``
    what was answered if that is not right."""

    number: int
    kind: str
    door: str
    server: Server
    phase: str
    began: float
    ended: float
    code: str = ""
    message: str = ""
    wrong: str = ""

    @property
    def right(self) -> bool:
        """It was answered, and right."""
        return not self.code and not self.wrong

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


def statement(kind: str, number: int, milliseconds: int) -> str:
    """A query."""
    mark = f"'q{number:06}' AS mark"
    return {
        "work": f"SELECT work({number}, {milliseconds}) AS answer, {mark}",
        "lines": f"SELECT id, line, {mark} FROM lines ORDER BY id",
        "free": f"SELECT {number} * 7 AS answer, {mark}",
    }[kind]


def expected(kind: str, number: int) -> Sequence[Row]:
    """Its right answer."""
    mark = f"q{number:06}"
    if kind == "lines":
        return [(id_, f"line {id_}", mark) for id_ in range(1, LINES + 1)]
    return [(f"{number * 7} worked" if kind == "work" else number * 7, mark)]


class Load:
    """Clients, each in a thread of its own, that go from one server to the next."""

    def __init__(self, servers: Callable[[], Sequence[Server]], seed: int) -> None:
        """``servers``: who is there to be asked now."""
        self._servers = servers
        self._seed = seed
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._asking: dict[threading.Thread, tuple[str, float]] = {}
        self.outcomes: list[Outcome] = []
        self.broken: list[BaseException] = []
        """What ended a client that nothing should end."""
        self.phase = ""

    def start(self, kinds: Sequence[str], clients: int) -> None:
        """So many clients of each door, which ask queries of these kinds."""
        for door in DRIVERS:
            for _ in range(clients):
                name = f"{door.name} {len(self._threads)}"
                thread = threading.Thread(target=self._client, args=(door, kinds), name=name)
                self._threads.append(thread)
                thread.start()

    def _client(self, door: Door, kinds: Sequence[str]) -> None:
        dice = random.Random(f"{self._seed} {threading.current_thread().name}")
        try:
            while not self._stop.is_set():
                servers = self._servers()
                if servers:
                    self._visit(door, dice.choice(servers), kinds, dice)
                else:
                    time.sleep(0.01)
        except BaseException as error:
            self.broken.append(error)

    def _visit(self, door: Door, server: Server, kinds: Sequence[str], dice: random.Random) -> None:
        """Connect, ask some queries, part."""
        began = time.monotonic()
        try:
            client = door.connect(server.port(door.name))
        except Refusal as refusal:
            self._note(
                Outcome(
                    0,
                    "connect",
                    door.name,
                    server,
                    self.phase,
                    began,
                    time.monotonic(),
                    refusal.code,
                    refusal.message,
                )
            )
            return
        try:
            for _ in range(dice.randint(3, 12)):
                if (
                    self._stop.is_set()
                    or not self.ask(client, door, server, dice.choice(kinds), dice.randint(40, 250)).right
                ):
                    return
                self._stop.wait(dice.uniform(0.0, 0.1))
        finally:
            with suppress(Exception):  # the other side may have gone
                client.close()

    def ask(self, client: Client, door: Door, server: Server, kind: str, milliseconds: int) -> Outcome:
        """One query, and what became of it."""
        number = next(self._numbers)
        thread = threading.current_thread()
        began = time.monotonic()
        self._asking[thread] = (f"{kind} {number} of {server.name} {server.instance}", began)
        code = message = wrong = ""
        try:
            rows = client.ask(statement(kind, number, milliseconds))
        except Refusal as refusal:
            code, message = refusal.code or "none", refusal.message
        else:
            wrong = "" if rows == expected(kind, number) else repr(rows)[:300]
        ended = time.monotonic()
        del self._asking[thread]
        outcome = Outcome(number, kind, door.name, server, self.phase, began, ended, code, message, wrong)
        self._note(outcome)
        return outcome

    def _note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def answered(self, kind: str, since: float) -> list[Outcome]:
        """Right answers to queries of a kind that ended after a moment."""
        return [one for one in list(self.outcomes) if one.right and one.kind == kind and one.ended > since]

    def part(self, seconds: float) -> None:
        """Ask nothing more, and give every client so long to come to its end."""
        self._stop.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self, seconds: float) -> None:
        """As ``part``, and every query must have been answered then."""
        self.part(seconds)
        assert not self._asking, f"never answered: {list(self._asking.values())}"
        assert not self.broken, self.broken

    def figures(self) -> dict[str, Any]:
        """What there is to say about it in a line."""
        queries = [one for one in self.outcomes if one.kind != "connect"]
        longest: dict[str, float] = {}
        for one in queries:
            longest[one.phase] = max(round(one.seconds, 2), longest.get(one.phase, 0.0))
        codes = Counter(f"{one.phase}: {one.door} {one.code}" for one in self.outcomes if one.code)
        return {
            "queries": len(queries),
            "right": sum(one.right for one in queries),
            "longest": longest,
            "refused": dict(codes),
        }


@contextmanager
def load(servers: Callable[[], Sequence[Server]], seed: int) -> Iterator[Load]:
    """Clients that are gone when the block ends."""
    made = Load(servers, seed)
    try:
        yield made
    finally:
        made.part(10)
