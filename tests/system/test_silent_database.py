"""The database stands still: nobody answers, and no connection breaks. What needs none of it goes on; what
was not told meanwhile is told as soon as it answers again."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kit.databases import DATABASES, Database, own_server
from tests.kit.postgres import PostgresServer
from tests.kit.replicas import Answered, Balancer, Replica, endings, path_of, replicas, rows_left

pytest.importorskip("duckdb", reason="DuckDB is not installed")

MANY = "SELECT i, 'some text that fills pages ' || i FROM range(100000) AS r (i)"
ENDLESS = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE x + y = -7"
KEYS: dict[str, Any] = {"clusters": "{duck: {engine: duckDb, threads: 1}}", "limit": None, "stale": 60}

ANSWER_SECS = 8.0
"""What anything may take here, on a busy machine: waiting for the database would be 10 s and more."""
SELDOM: dict[str, Any] = {**KEYS, "stale": 600, "refresh": 120}
"""Claims are refreshed so seldom that only what was missed can be what is told."""
SOON = 20.0
"""Far sooner than that."""


class Silenced:
    """A server that can be made to stand still."""

    def __init__(self, server: PostgresServer) -> None:
        self._first = int((server.data / "postmaster.pid").read_text().split()[0])
        self.standing = False

    def stand(self) -> None:
        """The postmaster, then all that it has started."""
        self._signal(signal.SIGSTOP)
        self.standing = True

    def go_on(self) -> float:
        """They go on; when that was."""
        self._signal(signal.SIGCONT)
        self.standing = False
        return time.monotonic()

    def _signal(self, number: int) -> None:
        os.kill(self._first, number)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self._first:
                    os.kill(int(stat.parent.name), number)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    made = own_server(DATABASES[0])
    try:
        yield made
    finally:
        Silenced(made).go_on()
        made.remove()


@pytest.fixture
def database(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Database]:
    name = f"q{abs(hash(request.node.name))}"
    with server.admin("postgres") as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    made = Database(server, name)
    made.migrate()
    try:
        yield made
    finally:
        Silenced(server).go_on()


@pytest.fixture
def silenced(server: PostgresServer) -> Iterator[Silenced]:
    made = Silenced(server)
    yield made
    made.go_on()


def timed(what: Callable[..., Answered], *arguments: object) -> tuple[Answered, float]:
    """The answer, and how long it took."""
    began = time.monotonic()
    answered = what(*arguments)
    return answered, time.monotonic() - began


def until(what: Callable[[], object], seconds: float) -> float:
    """How long it took to come true."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, "it did not come true"
        time.sleep(0.02)
    return time.monotonic() - began


def start(replica: Replica, sql: str = ENDLESS) -> dict[str, object]:
    """A query that others know of, and that runs."""
    page = replica.ask("POST", "/v1/statement", sql).document
    return Balancer(replica).until(page, lambda page: "/executing/" in page["nextUri"])


def operate(replica: Replica, path: str, method: str = "GET") -> Answered:
    operator = Replica(replica.name, replica.process.port("operator port"), replica.process)
    return operator.ask(method, path, Authorization="Basic YWRtaW46YWRtaW4=")


def has_noticed(replica: Replica) -> None:
    """Return when it has, by itself, that the database is away."""
    replica.process.until(
        lambda: any("other processes are not told" in line for line in list(replica.process.lines))
    )


def warm(*three: Replica) -> None:
    """Connections are open, as they are in a process that has been at work."""
    for replica in three:
        page = start(replica, MANY)
        for other in three:
            page = Balancer(other).follow(page)
        assert replica.ask("DELETE", path_of(page)).status == 204


def test_endings_wait_for_no_database(tmp_path: Path, database: Database, silenced: Silenced) -> None:
    with (
        replicas(tmp_path, database, "a", "b", **KEYS) as (a, b),
        ThreadPoolExecutor(4) as pool,
    ):
        warm(a, b)
        ends, other, reads = start(a), start(a), start(a, MANY)
        until(lambda: len(operate(b, "/admin/queries/running").document["is"]) == 3, SOON)
        operate(a, "/admin/queries/running")
        silenced.stand()

        answered, took = timed(a.ask, "DELETE", path_of(ends))
        assert (answered.status, took < ANSWER_SECS) == (204, True), took
        listing = pool.submit(timed, operate, b, "/admin/queries/running")
        polled, took = timed(b.ask, "GET", path_of(other))
        assert (polled.status, took < ANSWER_SECS) == (503, True), took
        answered, took = listing.result()
        assert answered.status == 200
        assert took < ANSWER_SECS, took
        began, took = timed(a.ask, "POST", "/v1/statement", ENDLESS)
        assert (began.status, took < ANSWER_SECS) == (200, True), took
        began, took = timed(a.ask, "POST", "/v1/statement", ENDLESS)
        assert (began.status, took < ANSWER_SECS) == (200, True), f"it is known to be away by now: {took}"
        answered, took = timed(a.ask, "DELETE", path_of(began.document))
        assert (answered.status, took < ANSWER_SECS) == (204, True), took
        waits = a.ask("POST", "/v1/statement", ENDLESS).document
        page = reads
        while "nextUri" in page:
            answered, took = timed(a.ask, "GET", path_of(page))
            assert (answered.status, took < ANSWER_SECS) == (200, True), took
            page = answered.document
        answered, took = timed(a.ask, "GET", path_of(other))
        assert (answered.status, took < ANSWER_SECS) == (200, True), took
        path = f"/admin/queries/{other['id']}"
        operate(a, path, "DELETE")  # who it is may be asked of the database, for two seconds
        answered, took = timed(operate, a, f"/admin/queries/{waits['id']}", "DELETE")
        assert (answered.status, took < ANSWER_SECS) == (204, True), took


def test_a_drain_waits_for_no_database(tmp_path: Path, database: Database, silenced: Silenced) -> None:
    with replicas(tmp_path, database, "a", "b", **KEYS, drain=3) as (a, b):
        warm(a, b)
        start(b)
        silenced.stand()
        began = time.monotonic()
        a.process.signal(signal.SIGTERM)
        b.process.signal(signal.SIGTERM)
        assert a.process.wait(120) == 0
        alone = time.monotonic() - began
        assert b.process.wait(120) == 0
        busy = time.monotonic() - began
        # Each step gives up for itself, after 8 s together, however busy the machine is. What waited for the
        # database would take 10 s more.
        assert alone < 16, alone
        assert busy < 3 + 16, busy


def test_what_could_not_be_told_is_told_at_once_when_it_answers_again(
    tmp_path: Path, database: Database, silenced: Silenced
) -> None:
    with replicas(tmp_path, database, "a", "b", **SELDOM) as (a, b):
        warm(a, b)
        ended = [start(a, ENDLESS) for _ in range(3)]
        time.sleep(1)
        silenced.stand()
        has_noticed(b)  # which asks for nothing meanwhile
        begun = [a.ask("POST", "/v1/statement", ENDLESS).document for _ in range(2)]
        for page in ended:
            assert a.ask("DELETE", path_of(page)).status == 204
        since = silenced.go_on()
        seen: list[int] = []
        while not seen or seen[-1] != 200:
            seen.append(b.ask("GET", path_of(begun[0])).status)
            assert time.monotonic() - since < SOON
        assert 404 not in seen, seen
        until(lambda: database.rows("SELECT count(*) FROM executing_queries") == [(2,)], SOON)
        until(lambda: len(operate(b, "/admin/queries/running").document["is"]) == 2, SOON)
        unknown = path_of(ended[0])
        until(lambda: b.ask("GET", unknown).status == 404, 30)
        for page in begun:
            assert a.ask("DELETE", path_of(page)).status == 204
        until(lambda: rows_left(database) == 0, SOON)
        until(lambda: len(endings(database)) == 2 + 3 + 2, SOON)


def test_a_database_that_was_restarted(tmp_path: Path, database: Database) -> None:
    with replicas(tmp_path, database, "a", "b", **SELDOM) as (a, b):
        warm(a, b)
        ended = start(a, ENDLESS)
        database.server.stop()
        has_noticed(b)
        begun = a.ask("POST", "/v1/statement", ENDLESS).document
        assert a.ask("DELETE", path_of(ended)).status == 204
        database.server.start()
        since = time.monotonic()
        seen: list[int] = []
        while not seen or seen[-1] != 200:
            seen.append(b.ask("GET", path_of(begun)).status)
            assert time.monotonic() - since < SOON
        assert 404 not in seen, seen
        until(lambda: database.rows("SELECT count(*) FROM executing_queries") == [(1,)], SOON)
        assert a.ask("DELETE", path_of(begun)).status == 204
