"""What clients and engines may do wrong, through every door: the protocol's own error with a message that
helps, a connection that stays usable where the protocol allows it, and nothing left behind.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from queryflux.engines.port import EngineRequest
from queryflux.model.endings import EndReason
from tests.kit.doors import DOORS, HOST, Door, Refusal, TrinoClient, every_door
from tests.kit.leaks import nothing_left
from tests.kit.raw import (
    MYSQL_SHA2,
    RawConnection,
    http,
    mysql_command,
    mysql_login,
    mysql_packet,
    postgres_errors,
    postgres_message,
    postgres_startup,
    sqlstate,
)
from tests.kit.scripted import Step
from tests.kit.serving import DOORS as ALL_DOORS
from tests.kit.serving import Serving, serving
from tests.kit.watched import CLUSTERS, Watched, watched

pytest.importorskip("duckdb", reason="DuckDB is not installed")

TRINO, POSTGRES, MYSQL, FLIGHT = DOORS
LIMIT = 64 * 1024
DUCK = """
clusters:
  duck: {engine: duckDb}
clusterGroups:
  main: {members: [duck]}
routingFallback: main
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    yaml = ALL_DOORS.replace("queryflux:\n", f"queryflux:\n  maxStatementBytes: {LIMIT}\n") + DUCK
    with serving(yaml) as running:
        for door in DOORS:  # whatever is made once is made
            # A statement that is long is translated by a helper process, which is kept.
            door.ask(running.port(door.name), f"SELECT '{'x' * (LIMIT // 2)}'")
        yield running
        running.assert_idle()


def still_serves(running: Serving, door: Door) -> None:
    assert door.ask(running.port(door.name), "SELECT 42 AS x") == [(42,)]


# Broken beginnings.

POSTGRES_STARTS = {
    "length 0": bytes(8),
    "length 3": b"\0\0\0\3\0\0\0\0",
    "length 7": b"\0\0\0\7\0\3\0\0",
    "length 2^31-1": b"\x7f\xff\xff\xff\0\3\0\0",
    "length 2^32-1": b"\xff\xff\xff\xff\0\3\0\0",
    "protocol 2": b"\0\0\0\x08\0\2\0\0",
    "protocol 9": b"\0\0\0\x08\0\x09\0\0",
    "no end": postgres_startup("ann")[:-1] + b"x",
    "a name without a value": b"\0\0\0\x0d\0\3\0\0user\0",
    "not UTF-8": b"\0\0\0\x11\0\3\0\0user\0\xff\xfe\0\0",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": bytes(range(256)) * 8,
}
MYSQL_STARTS = {
    "empty": mysql_packet(b"", 1),
    "one byte": mysql_packet(b"\1", 1),
    "cut short": mysql_login("ann", b"x" * 32, MYSQL_SHA2)[:40],
    "no end": mysql_packet(mysql_login("ann", b"", MYSQL_SHA2)[4:36] + b"ann", 1),
    "16 MiB announced": b"\xff\xff\xff\1" + b"x" * 1000,
    "1 MiB announced": b"\0\0\x10\1" + b"x" * 1000,
    "out of order": mysql_login("ann", b"", MYSQL_SHA2)[:3] + b"\7" + mysql_login("ann", b"", MYSQL_SHA2)[4:],
    "not UTF-8": mysql_login("ann", b"", MYSQL_SHA2).replace(b"ann", b"\xff\xfe\xfd"),
    "protocol 3.2": mysql_packet(b"\x05\0\0\0\0ann\0", 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "noise": bytes(range(256)) * 8,
}
TRINO_STARTS = {
    "no method": b"\r\n\r\n / \r\n\r\n",
    "HTTP/3": b"GET / HTTP/3.0\r\n\r\n",
    "a header without a colon": b"GET /v1/info HTTP/1.1\r\nHost x\r\n\r\n",
    "two lengths": http("POST", "/v1/statement", b"", "Content-Length: 1", "Content-Length: 2") + b"xx",
    "length -1": http("POST", "/v1/statement", b"", "Content-Length: -1"),
    "length words": http("POST", "/v1/statement", b"", "Content-Length: many"),
    "length and chunks": http("POST", "/v1/statement", b"x", "Transfer-Encoding: chunked"),
    "a bad chunk": http("POST", "/v1/statement", b"", "Transfer-Encoding: chunked") + b"zz\r\nSELECT 1",
    "endless head": b"GET /v1/info HTTP/1.1\r\n" + b"X-A: " + b"a" * (1 << 20),
    "endless line": b"GET /" + b"a" * (1 << 20),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "noise": bytes(range(256)) * 8,
}


@pytest.mark.parametrize("start", POSTGRES_STARTS.values(), ids=POSTGRES_STARTS)
def test_postgres_broken_start_up_packets(served: Serving, start: bytes) -> None:
    for send in (RawConnection.send, RawConnection.trickle):
        if send is RawConnection.trickle and len(start) > 100:
            continue
        with nothing_left(served), RawConnection(served.port("postgresWire")) as raw:
            send(raw, start)
            raw.finish()
            assert set(postgres_errors(raw.rest())) <= {"08P01", "0A000", "22021"}
    still_serves(served, POSTGRES)


@pytest.mark.parametrize("start", MYSQL_STARTS.values(), ids=MYSQL_STARTS)
def test_mysql_broken_start_up_packets(served: Serving, start: bytes) -> None:
    for send in (RawConnection.send, RawConnection.trickle):
        if send is RawConnection.trickle and len(start) > 100:
            continue
        with nothing_left(served), RawConnection(served.port("mysqlWire")) as raw:
            raw.packet()
            send(raw, start)
            raw.finish()
            said = raw.rest()
            assert not said or said[4] == 0xFF
    still_serves(served, MYSQL)


@pytest.mark.parametrize("start", TRINO_STARTS.values(), ids=TRINO_STARTS)
def test_trino_broken_requests(served: Serving, start: bytes) -> None:
    with nothing_left(served), RawConnection(served.port("trinoHttp")) as raw:
        raw.send(start)
        raw.finish()
        said = raw.rest()
        assert not said or said[:10] == b"HTTP/1.1 4", said[:100]
        assert said.count(b"HTTP/1.1 ") <= 1
    still_serves(served, TRINO)


def test_flight_broken_requests(served: Serving) -> None:
    for start in (*TRINO_STARTS.values(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5000):
        with nothing_left(served), RawConnection(served.port("flightSql")) as raw:
            raw.send(start)
            raw.finish()
            raw.rest()
    still_serves(served, FLIGHT)


@every_door
def test_a_client_that_says_nothing_and_leaves(served: Serving, door: Door) -> None:
    with nothing_left(served):
        for _ in range(20):
            RawConnection(served.port(door.name)).reset()
    still_serves(served, door)


def test_start_up_packets_byte_by_byte(served: Serving) -> None:
    with RawConnection(served.port("postgresWire")) as raw:
        raw.trickle(postgres_startup("ann") + postgres_message(b"Q", b"SELECT 1\0"))
        assert [kind for kind, _ in raw.until(b"D")][-1] == b"D"
    with RawConnection(served.port("mysqlWire")) as raw:
        raw.packet()
        raw.trickle(mysql_login("ann", b"", MYSQL_SHA2))
        assert raw.packet()[1][0] == 0
    with RawConnection(served.port("trinoHttp")) as raw:
        raw.trickle(http("POST", "/v1/statement", b"SELECT 1", "X-Trino-User: ann", "Connection: close"))
        assert raw.rest().startswith(b"HTTP/1.1 200")


# Text that is none.


def test_trino_a_body_that_is_not_utf_8(served: Serving) -> None:
    with nothing_left(served), TRINO.connect(served.port("trinoHttp")) as client:
        assert isinstance(client, TrinoClient)
        with pytest.raises(Refusal, match="not UTF-8") as raised:
            client.submit(b"SELECT '\xff'")
        assert raised.value.code == "400"
        assert client.ask("SELECT 1") == [(1,)]


def test_postgres_a_query_that_is_not_utf_8(served: Serving) -> None:
    with nothing_left(served), RawConnection(served.port("postgresWire")) as raw:
        raw.send(postgres_startup("ann"))
        raw.until(b"Z")
        raw.send(postgres_message(b"Q", b"SELECT '\xff'\0"))
        error, *_ = raw.until(b"Z")
        assert error[0] == b"E"
        assert sqlstate(error[1]) == "22021"
        raw.send(postgres_message(b"P", b"\0SELECT '\xff'\0\0\0") + postgres_message(b"S"))
        error, *_ = raw.until(b"Z")
        assert sqlstate(error[1]) == "22021"
        raw.send(postgres_message(b"Q", b"SELECT 1\0"))
        assert b"D" in {kind for kind, _ in raw.until(b"Z")}


def test_mysql_a_query_that_is_not_utf_8(served: Serving) -> None:
    with nothing_left(served), RawConnection(served.port("mysqlWire")) as raw:
        raw.packet()
        raw.send(mysql_login("ann", b"", MYSQL_SHA2))
        raw.packet()
        raw.send(mysql_command(b"\x03SELECT '\xff'"))
        _, error = raw.packet()
        assert (error[0], int.from_bytes(error[1:3], "little")) == (0xFF, 1300)
        raw.send(mysql_command(b"\x0e"))
        assert raw.packet()[1][0] == 0


def test_flight_a_query_that_is_not_utf_8(served: Serving) -> None:
    import pyarrow as pa
    import pyarrow.flight as flight

    from queryflux.wire.flight import messages as m

    good = m.pack(m.CommandStatementQuery("SELECT 'abc'"))
    with nothing_left(served), flight.FlightClient(f"grpc://{HOST}:{served.port('flightSql')}") as client:
        for bad in (good.replace(b"abc", b"\xff\xfe\xfd"), good[:-3], b"", b"\xff" * 100):
            with pytest.raises((pa.ArrowInvalid, NotImplementedError)):
                client.get_flight_info(flight.FlightDescriptor.for_command(bad))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(good))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1


# SQL that is wrong.


@every_door
def test_sql_that_cannot_be_run(served: Serving, door: Door) -> None:
    wrong = {
        "SELEC 1": ("SYNTAX", "SELEC"),
        "SELECT (1": ("SYNTAX", "(?i)syntax|expect"),
        "SELECT * FROM nowhere_at_all": ("TABLE_NOT_FOUND", "nowhere_at_all"),
    }
    with nothing_left(served), door.connect(served.port(door.name)) as client:
        for sql, (code, words) in wrong.items():
            with pytest.raises(Refusal, match=words) as raised:
                client.ask(sql)
            assert raised.value.code == door.codes[code], sql
            assert client.ask("SELECT 42 AS x") == [(42,)]


@pytest.mark.parametrize("door", DOORS[:3], ids=lambda door: door.name)
def test_sql_that_is_wrong_is_remembered(served: Serving, door: Door) -> None:
    with pytest.raises(Refusal):
        door.ask(served.port(door.name), "SELECT * FROM nowhere_to_be_remembered")
    record = served.records[-1]
    assert record.sql_text.endswith("nowhere_to_be_remembered")
    assert (record.reason, record.error_code) == (EndReason.FAILED, "ENGINE_ERROR")


@every_door
def test_an_error_midway(served: Serving, door: Door) -> None:
    """After the first rows: a row that cannot be computed."""
    sql = "SELECT CAST(CASE WHEN range = 999999 THEN 'x' ELSE '1' END AS INTEGER) AS a FROM range(1000000)"

    def ask() -> None:
        with door.connect(served.port(door.name)) as client:
            with pytest.raises(Refusal, match=r"(?i)conver|cast"):
                client.ask(sql)
            assert client.ask("SELECT 42 AS x") == [(42,)]

    ask()  # the threads of encoders and of the engine, which are kept, are there now
    with nothing_left(served):
        ask()


# Statements that are too large.


@every_door
def test_a_statement_over_the_limit(served: Serving, door: Door) -> None:
    with nothing_left(served), door.connect(served.port(door.name)) as client:
        for size in (LIMIT, 40 * LIMIT):
            with pytest.raises(Refusal, match=r"(?i)max_?statement_?bytes") as raised:
                client.ask(f"SELECT '{'x' * size}'")
            assert raised.value.code == door.codes["STATEMENT_TOO_LARGE"]
            assert client.ask("SELECT 42 AS x") == [(42,)]
        small = "y" * (LIMIT // 2)
        assert client.ask(f"SELECT '{small}' AS x") == [(small,)]


# No room.


class Gate:
    """Statements that contain ``held`` wait until it is opened."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.engine: Watched | None = None

    def script(self, request: EngineRequest) -> Step:
        return Step(gate=self.event) if "held" in request.sql else Step()


@contextlib.contextmanager
def busy(group: str) -> Iterator[tuple[Watched, Gate]]:
    """One slot, and a query of a PostgreSQL client in it."""
    gate = Gate()
    yaml = CLUSTERS.replace("[seen]}", f"[seen], maxRunningQueries: 1, {group}}}")
    with watched(yaml, gate.script) as served, POSTGRES.connect(served.port(POSTGRES.name)) as holder:
        thread = threading.Thread(target=holder.ask, args=("SELECT 'held'",))
        thread.start()
        try:
            served.running.wait_for(lambda: served.engine.running == 1)
            yield served, gate
        finally:
            served.running.call(_open, gate)
            thread.join(20)


async def _open(gate: Gate) -> None:
    gate.event.set()


def _refused_while_busy(group: str, door: Door, code: str, reason: EndReason) -> None:
    with busy(group) as (served, gate):
        port = served.port(door.name)
        with nothing_left(served.running), door.connect(port) as client:
            for _ in range(2):
                with pytest.raises(Refusal, match="main") as raised:
                    client.ask("SELECT 1 AS z")
                assert raised.value.code == door.codes[code]
        assert [record.reason for record in served.running.records] == [reason] * 2
        with door.connect(port) as client:
            with pytest.raises(Refusal):
                client.ask("SELECT 1 AS z")
            served.running.call(_open, gate)
            served.running.assert_idle()
            assert client.ask("SELECT 1 AS z") == [(1,)]


@every_door
def test_a_full_queue(door: Door) -> None:
    _refused_while_busy("maxQueuedQueries: 0", door, "QUEUE_FULL", EndReason.QUEUE_FULL)


@every_door
def test_no_room_in_time(door: Door) -> None:
    _refused_while_busy("capacityWaitTimeoutSecs: 0.2", door, "CAPACITY_TIMEOUT", EndReason.CAPACITY_TIMEOUT)


@every_door
def test_no_room_at_all(door: Door) -> None:
    with (
        watched(CLUSTERS.replace("[seen]}", "[seen], maxRunningQueries: 0}")) as served,
        door.connect(served.port(door.name)) as client,
    ):
        with pytest.raises(Refusal, match="maxRunningQueries") as raised:
            client.ask("SELECT 1 AS z")
        assert raised.value.code == door.codes["NO_CAPACITY"]
        assert served.engine.requests == []
        assert [record.reason for record in served.running.records] == [EndReason.NO_CAPACITY]


# Clients that send a byte now and then.


def test_slow_clients_before_they_have_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.frontends.trino_http.connection.ARRIVE_SECONDS", 1.0)
    with serving(DUCK) as running:
        doors = running.standalone.doors
        doors["postgresWire"]._listener.handshake_seconds = 1.0  # type: ignore[attr-defined]
        doors["mysqlWire"].listener.handshake_seconds = 1.0  # type: ignore[attr-defined]
        request = http("POST", "/v1/statement", b"", "X-Trino-User: ann")
        sent: dict[str, tuple[bytes, Callable[[bytes], bool]]] = {
            "postgresWire": (postgres_startup("ann"), lambda said: postgres_errors(said) == ["57014"]),
            "mysqlWire": (
                mysql_login("ann", b"", MYSQL_SHA2),
                lambda said: b"timeout" in said,
            ),
            "trinoHttp": (request, lambda said: said.startswith(b"HTTP/1.1 408")),
        }
        with nothing_left(running):
            for name, (data, right) in sent.items():
                with RawConnection(running.port(name)) as raw:
                    stop = threading.Event()
                    thread = threading.Thread(target=_drip, args=(raw, data, stop))
                    thread.start()
                    try:
                        assert right(raw.rest()), name
                    finally:
                        stop.set()
                        thread.join()


def _drip(raw: RawConnection, data: bytes, stop: threading.Event) -> None:
    for at in range(len(data)):
        raw.send(data[at : at + 1])
        if stop.wait(0.1):
            return


def test_mysql_a_slow_packet_after_the_login(served: Serving) -> None:
    with nothing_left(served), RawConnection(served.port("mysqlWire")) as raw:
        raw.packet()
        raw.send(mysql_login("ann", b"", MYSQL_SHA2))
        raw.packet()
        raw.send(mysql_command(b"\x03SET net_read_timeout = 1"))
        assert raw.packet()[1][0] == 0
        stop = threading.Event()
        thread = threading.Thread(target=_drip, args=(raw, mysql_command(b"\x03" + b"x" * 1000), stop))
        thread.start()
        try:
            assert raw.rest() == b""
        finally:
            stop.set()
            thread.join()


def test_a_slow_body(served: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.frontends.trino_http.connection.ARRIVE_SECONDS", 1.0)
    with nothing_left(served), RawConnection(served.port("trinoHttp")) as raw:
        raw.send(http("POST", "/v1/statement", b"S", "X-Trino-User: ann").replace(b": 1\r", b": 100\r"))
        assert raw.rest().startswith(b"HTTP/1.1 408")
