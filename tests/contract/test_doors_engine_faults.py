"""Engines that are down, go away amid the rows or answer garbage, through every door: the protocol's own
error, a connection that is good for the next statement, and nothing left behind.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from queryflux.model.endings import EndReason
from queryflux.pipeline.generation import Cluster
from queryflux.pipeline.health import Health
from tests.kit.cable import Cable, cable
from tests.kit.doors import HOST, Client, Door, Refusal, Row, every_door
from tests.kit.leaks import nothing_left
from tests.kit.places import NOBODY
from tests.kit.postgres import DATABASE, PASSWORD, shared_server
from tests.kit.serving import Serving, serving

pytest.importorskip("adbc_driver_postgresql", reason="the ADBC PostgreSQL driver is not installed")

MANY = "SELECT n, concat('row ', n) AS t FROM generate_series(1, 300000) AS g(n)"


def postgres_yaml(port: int) -> str:
    return f"""
clusters:
  pg:
    engine: postgres
    endpoint: {HOST}:{port}
    database: {DATABASE}
    auth: {{type: basic, username: scram, password: "{PASSWORD}"}}
clusterGroups:
  main: {{members: [pg]}}
routingFallback: main
"""


def trino_yaml(port: int) -> str:
    return f"""
clusters:
  far: {{engine: trino, endpoint: "http://{HOST}:{port}"}}
clusterGroups:
  main: {{members: [far]}}
routingFallback: main
"""


@contextlib.contextmanager
def postgres_on_a_cable() -> Iterator[tuple[Serving, Cable]]:
    server = shared_server()
    with cable(server.host, server.port) as wire, serving(postgres_yaml(wire.port)) as running:
        yield running, wire


@pytest.fixture(scope="module")
def wired() -> Iterator[tuple[Serving, Cable]]:
    with postgres_on_a_cable() as made:
        yield made


def ask_until_it_works(running: Serving, door: Door) -> None:
    """Right after a fault a member may be marked down until the next probe."""
    running.wait_for(lambda: not running.standalone.generation.clusters["pg"].member.down, 20)
    assert door.ask(running.port(door.name), "SELECT 42 AS x") == [(42,)]


# Down.


@every_door
def test_an_engine_that_is_down(door: Door) -> None:
    with serving(postgres_yaml(NOBODY)) as running:
        member = running.standalone.generation.clusters["pg"].member
        running.wait_for(lambda: bool(member.down))
        with nothing_left(running), door.connect(running.port(door.name)) as client:
            for _ in range(2):
                with pytest.raises(Refusal, match=r"(?s)PostgreSQL at .* cannot be reached") as raised:
                    client.ask("SELECT 42 AS x")
                assert raised.value.code == door.codes["UNAVAILABLE"]
                assert re.search("retry|Check", raised.value.message)
        # Flight SQL's driver has the statement described first, which is no query.
        records = {(record.reason, record.error_code) for record in running.records}
        assert records == (set() if door.name == "flightSql" else {(EndReason.FAILED, "UNAVAILABLE")})


@every_door
def test_an_engine_that_comes_and_goes(door: Door) -> None:
    """One client lives through it."""
    with postgres_on_a_cable() as (running, wire), door.connect(running.port(door.name)) as client:
        member = running.standalone.generation.clusters["pg"].member
        assert client.ask("SELECT 42 AS x") == [(42,)]
        wire.link.refuse = True
        wire.cut()
        with pytest.raises(Refusal):
            client.ask("SELECT 42 AS x")
        running.wait_for(lambda: bool(member.down))
        with pytest.raises(Refusal) as raised:
            client.ask("SELECT 42 AS x")
        assert raised.value.code == door.codes["UNAVAILABLE"]
        wire.link.refuse = False
        running.wait_for(lambda: not member.down, 20)
        assert client.ask("SELECT 42 AS x") == [(42,)]
        running.assert_idle()


# Amid the rows.


@pytest.mark.parametrize("how", ["cut_after", "garble_after"])
@every_door
def test_an_engine_that_breaks_amid_the_rows(wired: tuple[Serving, Cable], door: Door, how: str) -> None:
    running, wire = wired
    ask_until_it_works(running, door)
    with contextlib.suppress(Refusal):
        door.ask(running.port(door.name), MANY)  # threads and helpers that are kept are there now
    wire.cut()
    ask_until_it_works(running, door)
    before = len(running.records)
    with nothing_left(running), door.connect(running.port(door.name)) as client:
        setattr(wire.link, how, 1_000_000)
        try:
            with pytest.raises(Refusal) as raised:
                client.ask(MANY)
        finally:
            setattr(wire.link, how, None)
        assert raised.value.code == door.codes["ENGINE_CONNECTION_LOST"]
        assert "connection to PostgreSQL" in raised.value.message
        running.wait_for(lambda: not running.standalone.generation.clusters["pg"].member.down, 20)
        assert client.ask("SELECT 42 AS x") == [(42,)]
        wire.cut()
    records = [record for record in running.records[before:] if record.sql_text == MANY]
    assert [record.reason for record in records] == [EndReason.FAILED]
    assert records[0].error_code == "ENGINE_CONNECTION_LOST"


@every_door
def test_a_pooled_connection_that_the_server_has_dropped(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing had been started: the statement goes over another connection, and the client sees nothing."""

    async def no_probe(health: Health, cluster: Cluster) -> None:
        """Or the cut might hit a probe, which rightly marks the member down."""

    monkeypatch.setattr(Health, "_probe_once", no_probe)
    with postgres_on_a_cable() as (running, wire), door.connect(running.port(door.name)) as client:
        for _ in range(3):
            assert client.ask("SELECT 42 AS x") == [(42,)]
            wire.cut()
            assert client.ask("SELECT 43 AS x") == [(43,)]


# Garbage instead of Trino.


def _page(body: bytes, status: int = 200, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


GARBAGE: dict[str, bytes] = {
    "no JSON": _page(b"<html>sorry</html>"),
    "cut JSON": _page(b'{"id": "20260101_000000_00001_abcde", "stats": {'),
    "a list": _page(b"[1, 2, 3]"),
    "an empty object": _page(b"{}"),
    "not UTF-8": _page(b'{"id": "\xff\xfe"}'),
    "a foreign next page": _page(
        b'{"id":"20260101_000000_00001_abcde","nextUri":"file:///etc/passwd","stats":{"state":"QUEUED"}}'
    ),
    "columns of no type": _page(
        b'{"id":"20260101_000000_00001_abcde","columns":[{"name":"x","type":"no such("}],'
        b'"data":[[1]],"stats":{"state":"FINISHED"}}'
    ),
    "rows of another shape": _page(
        b'{"id":"20260101_000000_00001_abcde","columns":[{"name":"x","type":"bigint",'
        b'"typeSignature":{"rawType":"bigint","arguments":[]}}],"data":[[1,2,3],"x"],'
        b'"stats":{"state":"FINISHED"}}'
    ),
    "no HTTP": b"\x00\x01\x02 nothing of the kind\r\n\r\n",
    "a status of its own": _page(b"I am a teapot", 418, "text/plain"),
    "nothing": b"",
    "half a response": _page(b"x" * 100)[:80],
}


class _Garbage(BaseHTTPRequestHandler):
    """Good health, and bad answers to statements."""

    protocol_version = "HTTP/1.1"
    answer = b""

    def do_GET(self) -> None:
        body = b'{"nodeVersion":{"version":"476"},"environment":"x","coordinator":true,"starting":false}'
        self.wfile.write(_page(body))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.wfile.write(self.answer)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    do_DELETE: Callable[["_Garbage"], None] = do_GET
    do_HEAD: Callable[["_Garbage"], None] = do_GET


@contextlib.contextmanager
def garbage_server(answer: bytes) -> Iterator[int]:
    handler = type("Handler", (_Garbage,), {"answer": answer})
    with ThreadingHTTPServer((HOST, 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="garbage")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


BROKEN = {
    *("REMOTE_HOST_GONE", "NO_NODES_AVAILABLE", "GENERIC_USER_ERROR"),
    *("08006", "57P03", "XX000"),
    "1105",
    *("Unknown", "Unavailable"),
}


def _answer(client: Client) -> list[Row] | Refusal:
    try:
        return client.ask("SELECT 42 AS x")
    except Refusal as refusal:
        return refusal


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE)
@every_door
def test_an_engine_that_answers_garbage(door: Door, answer: bytes) -> None:
    with garbage_server(answer) as port, serving(trino_yaml(port)) as running:
        with door.connect(running.port(door.name)) as client:
            for _ in range(2):
                told = _answer(client)
                if isinstance(told, Refusal):
                    assert told.code in BROKEN
                    assert "Trino" in told.message
                    assert "passwd" not in told.message
                else:
                    # Pages are relayed to Trino's clients without a look at their rows; and what is of a type
                    # that nobody knows is shown as text.
                    assert told[0] in {(1,), ("1",)} or door.name == "trinoHttp"
        running.assert_idle()
