"""The end of a process: SIGTERM, what goes on, and a second signal."""

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.doors import DOORS, HOST, Door, Refusal, TrinoClient, every_door
from tests.kit.process import Process
from tests.kit.raw import RawConnection, mysql_command, mysql_login, postgres_message, postgres_startup

pytest.importorskip("duckdb", reason="DuckDB is not installed")

TRINO, POSTGRES, MYSQL, FLIGHT = DOORS
PATIENCE = 300
"""Seconds that a query of a few seconds may take where all processors are busy, and may have to end."""
ENDLESS = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE x + y = -7"
SOME_SECONDS = "SELECT count(*) FROM range({n}) AS a(x), range(1000) AS b(y) WHERE x + y = -7"
YAML = """
queryflux:
  frontends:
    trinoHttp: {host: 127.0.0.1, port: 0}
    postgresWire: {host: 127.0.0.1, port: 0}
    mysqlWire: {host: 127.0.0.1, port: 0}
    flightSql: {host: 127.0.0.1, port: 0}
  adminApi: {host: 127.0.0.1, port: 0}
  shutdownDrainTimeoutSecs: DRAIN
  logging: {format: json}
clusters:
  duck: {engine: duckDb, threads: 1}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""


class Draining(Process):
    """One that has so many seconds to drain."""

    def __init__(self, folder: Path, drain_secs: float) -> None:
        super().__init__(folder, YAML.replace("DRAIN", str(drain_secs)), {})

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Status and document of /readyz."""
        url = f"http://{HOST}:{self.port('operator port')}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def running(self) -> int:
        """Running queries, as /metrics tells."""
        return int(self.metrics().get("queryflux_running_queries", 0))

    def queries(self) -> list[dict[str, Any]]:
        """The log lines of queries."""
        lines = (json.loads(line) for line in self.lines if line.startswith("{"))
        return [line for line in lines if "reason" in line]


@pytest.fixture
def process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Draining]:
    made = Draining(tmp_path, getattr(request, "param", PATIENCE))
    try:
        yield made
    finally:
        made.end()


class Asked:
    """A query in a thread of its own."""

    def __init__(self, process: Draining, door: Door, sql: str) -> None:
        self.rows: list[tuple[Any, ...]] | None = None
        self.refusal: Exception | None = None
        self._client = door.connect(process.port(door.name))
        self._thread = threading.Thread(target=self._run, args=(sql,))
        self._thread.start()
        process.until(lambda: process.running() == 1)

    def _run(self, sql: str) -> None:
        try:
            self.rows = self._client.ask(sql)
        except Exception as error:
            self.refusal = error

    def wait(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        with suppress(Exception):  # a driver may stumble over a result that was cut off
            self._client.close()


@every_door
def test_running_queries_finish_and_new_ones_are_refused(process: Draining, door: Door) -> None:
    assert process.ready()[0] == 200
    asked = Asked(process, door, SOME_SECONDS.format(n=700_000))
    with ExitStack() as stack:
        idle = [stack.enter_context(other.connect(process.port(other.name))) for other in DOORS]
        for client in idle:
            client.ask("SELECT 1 AS x")
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        assert process.ready()[1]["code"] == "SHUTTING_DOWN"
        assert process.running() == 1
        for other, client in zip(DOORS, idle, strict=True):
            with pytest.raises(Refusal) as raised:
                client.ask("SELECT 1 AS x")
            assert raised.value.code in {other.codes["SHUTTING_DOWN"], "57P01", "2013", "2006"}, other.name
            with pytest.raises((Refusal, OSError)):
                other.ask(process.port(other.name), "SELECT 1 AS x")
    asked.wait()
    assert (asked.rows, asked.refusal) == ([(0,)], None)
    assert process.wait() == 0
    assert [line["reason"] for line in process.queries() if line.get("rows") == 1][-1] == "completed"


@pytest.mark.parametrize("process", [0.5], indirect=True)
@every_door
def test_what_is_left_after_the_drain_is_ended(process: Draining, door: Door) -> None:
    asked = Asked(process, door, ENDLESS)
    process.signal()
    asked.wait()
    assert asked.refusal is not None
    assert process.wait() == 0
    assert [line["reason"] for line in process.queries()] == ["shutdown"]


@every_door
def test_a_second_signal_ends_everything_at_once(process: Draining, door: Door) -> None:
    asked = Asked(process, door, ENDLESS)
    process.signal()
    process.until(lambda: process.ready()[0] == 503)
    process.signal()
    asked.wait()
    assert isinstance(asked.refusal, Refusal | OSError)
    assert process.wait() == 0
    assert [line["reason"] for line in process.queries()] == ["shutdown"]


def test_without_anything_to_do_it_ends_at_once(process: Draining) -> None:
    """Clients that are connected and do nothing, or say nothing, do not hold it up."""
    clients = [door.connect(process.port(door.name)) for door in DOORS]
    for client in clients:
        client.ask("SELECT 1 AS x")
    silent = [RawConnection(process.port(door.name)) for door in DOORS]
    process.signal()
    assert process.wait(15) == 0
    for raw in silent:
        raw.rest()
        raw.socket.close()
    for client in clients:
        client.close()
    assert not any("Traceback" in line or '"level":"error"' in line for line in process.lines)
    assert any("a second signal (Ctrl-C) ends them" in line for line in process.lines)


@pytest.mark.parametrize("door", [POSTGRES, MYSQL], ids=lambda door: door.name)
def test_a_transaction_may_finish(process: Draining, door: Door) -> None:
    with door.connect(process.port(door.name)) as client:
        client.ask("CREATE TABLE kept (a integer)")
        client.ask("BEGIN")
        client.ask("INSERT INTO kept VALUES (1)")
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        client.ask("INSERT INTO kept VALUES (2)")
        assert client.ask("SELECT count(*) FROM kept") == [(2,)]
        client.ask("COMMIT")
        assert process.wait() == 0
    assert {line["reason"] for line in process.queries()} == {"completed"}


# Results on their way.

WIDE = "SELECT range AS x, repeat('y', 100) AS y FROM range({n})"


def test_postgres_a_slow_reader_gets_its_whole_result(process: Draining) -> None:
    """The engine is done long before the client has read everything."""
    rows = 20_000
    with RawConnection(process.port(POSTGRES.name)) as raw:
        raw.send(postgres_startup("ann"))
        raw.until(b"Z")
        raw.send(postgres_message(b"Q", WIDE.format(n=rows).encode() + b"\0"))
        assert raw.message()[0] == b"T"
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        time.sleep(1)
        kinds = [kind for kind, _ in raw.until(b"Z")]
    assert kinds.count(b"D") == rows
    assert process.wait() == 0


def test_postgres_the_end_of_a_result_that_is_not_read_yet(process: Draining) -> None:
    """The engine is done, and all that is left is on its way."""
    rows = 5_000
    with RawConnection(process.port(POSTGRES.name)) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.send(postgres_startup("ann"))
        raw.until(b"Z")
        raw.send(postgres_message(b"Q", WIDE.format(n=rows).encode() + b"\0"))
        process.until(lambda: process.running() == 0)
        process.signal()
        time.sleep(1)
        kinds = [kind for kind, _ in raw.until(b"Z")]
    assert kinds.count(b"D") == rows
    assert process.wait() == 0


def test_trino_the_last_page_is_fetched_after_the_engine_is_done(process: Draining) -> None:
    with TRINO.connect(process.port(TRINO.name)) as client:
        assert isinstance(client, TrinoClient)
        page = client.submit(SOME_SECONDS.format(n=250_000))
        assert "nextUri" in page
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        process.until(lambda: process.running() == 0, PATIENCE)
        assert client.finish(page) == [(0,)]
    assert process.wait() == 0


def test_mysql_a_slow_reader_gets_its_whole_result(process: Draining) -> None:
    rows = 20_000
    with RawConnection(process.port(MYSQL.name)) as raw:
        raw.packet()
        raw.send(mysql_login("ann", b"", "caching_sha2_password"))
        raw.packet()
        raw.send(mysql_command(b"\x03" + WIDE.format(n=rows).encode()))
        packets = [raw.packet()[1] for _ in range(3)]
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        time.sleep(1)
        while packets[-1][0] != 0xFE:
            packets.append(raw.packet()[1])
    assert len(packets) == 1 + 2 + rows + 1
    assert process.wait() == 0


def test_trino_pages_are_fetched_to_the_last(process: Draining) -> None:
    rows = 50_000
    with TRINO.connect(process.port(TRINO.name)) as client:
        assert isinstance(client, TrinoClient)
        page = client.submit(WIDE.format(n=rows))
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        time.sleep(1)
        assert len(client.finish(page)) == rows
    assert process.wait() == 0


def test_flight_a_slow_reader_gets_its_whole_result(process: Draining) -> None:
    import pyarrow.flight as flight

    from queryflux.wire.flight import messages as m

    rows = 200_000
    with flight.FlightClient(f"grpc://{HOST}:{process.port(FLIGHT.name)}") as client:
        command = m.pack(m.CommandStatementQuery(WIDE.format(n=rows)))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
        reader = client.do_get(info.endpoints[0].ticket)
        count = reader.read_chunk().data.num_rows
        process.signal()
        process.until(lambda: process.ready()[0] == 503)
        time.sleep(1)
        for chunk in reader:
            count += chunk.data.num_rows
    assert count == rows
    assert process.wait() == 0
