"""The lane of the ordinary statement: what takes it, what makes it step aside, and that nobody can tell."""

import asyncio
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from queryflux.model.endings import EndReason
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    EngineUnavailable,
    InternalError,
    NotConfigured,
)
from queryflux.wire.trino.native import TrinoPage
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_trino.served import (
    Client,
    RelayEngine,
    Served,
    arrive,
    coordinator_page,
    document,
    served,
)
from tests.rooms.frontends_trino.test_requests import basic, static

ONE = coordinator_page(0, last=True, state="FINISHED")
LARGE = coordinator_page(0, last=True, data="[" + ",".join('["0123456789"]' for _ in range(5000)) + "]")
ANOTHER_ORDER = TrinoPage(
    b'{"stats":{"state":"FINISHED"},"infoUri":"http://coordinator/x","id":"q"}', (), None
)
ESCAPED = TrinoPage(
    b'{"id":"q","infoUri":"http:\\/\\/coordinator\\/x","stats":{"state":"FINISHED"}}', (), None
)
FAILED = TrinoPage(
    b'{"id":"q","infoUri":"http://coordinator/x","stats":{"state":"FAILED"},"error":{"errorName":"X"}}',
    (),
    None,
)
HEADERS: dict[str, Any] = {
    "Accept_Encoding": "gzip",
    "X_Trino_Source": "tests",
    "X_Trino_Transaction_Id": "NONE",
}


async def warmed(run: Served, trino: RelayEngine, **headers: str) -> Client:
    """A client whose next statement takes the lane, unless there is something about it."""
    client = await run.client()
    kept, trino.pages = trino.pages, [ONE]
    for _ in range(2):
        assert (await client.post("SELECT 0", **headers))["data"] == [[1]]
    trino.pages = kept
    return client


@dataclass
class Seen:
    """All that can be seen of a statement: responses, record, what is left, what the engine was asked."""

    responses: list[tuple[int, list[tuple[str, str]], bytes]]
    records: list[dict[str, Any]]
    statements: int
    asked: list[tuple[Any, ...]]


Prepare = Callable[[RelayEngine], None]


async def seen(trino: RelayEngine, sql: bytes, prepare: Prepare, *, warm: bool) -> Seen:
    async with served(trino) as run:
        client = await (warmed(run, trino, **HEADERS) if warm else run.client())
        before = len(run.bench.records)
        trino.requests.clear()
        prepare(trino)
        response = await client.ask("POST", "/v1/statement", sql, **HEADERS)
        responses = [response]
        while response.status == 200 and b"nextUri" in response.body:
            response = await client.ask("GET", document(response)["nextUri"], **HEADERS)
            responses.append(response)
        left = run.door.statements
        trino.refusal = trino.failure = None
        trino.pages = [ONE]
        assert (await client.post("SELECT 9"))["data"] == [[1]]
        *records, _ = run.bench.records[before:]
        *asked, _ = trino.requests
        return Seen(
            [(found.status, found.pairs, masked(found.body)) for found in responses],
            [facts(record) for record in records],
            left,
            [(r.sql, r.identity, r.session.extra, r.native, r.tags) for r in asked],
        )


def masked(body: bytes) -> bytes:
    """Unpacked, and without our ids, which differ."""
    body = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    return re.sub(rb"\d{8}_\d{6}_\d{5}d?_test2|/[0-9a-f]{32}/|under [0-9a-z_]+", b"-", body)


def facts(record: Any) -> dict[str, Any]:
    unlike = ("proxy_query_id", "error_message", "created_at", "trace", "queue_duration_ms")
    return {
        name: getattr(record, name)
        for name in record.__struct_fields__
        if name not in unlike and not name.endswith("_ms")
    }


def with_pages(*pages: TrinoPage | Exception) -> Prepare:
    def prepare(trino: RelayEngine) -> None:
        trino.pages = [*pages]

    return prepare


def refusing(error: Exception) -> Prepare:
    def prepare(trino: RelayEngine) -> None:
        trino.refusal = error

    return prepare


def failing(trino: RelayEngine) -> None:
    trino.pages = [FAILED]
    trino.failure = EngineError("no", name="X")


CASES: dict[str, tuple[bytes, Prepare]] = {
    "one page": (b"SELECT 1", with_pages(ONE)),
    "longer": (b"SELECT 1, 2, 3, 'abcdefghijklmnopqrstuvwxyz'", with_pages(ONE)),
    "three pages": (b"SELECT 1", with_pages(*(coordinator_page(n, last=n == 2) for n in range(3)))),
    "headers": (b"SELECT 1", with_pages(TrinoPage(ONE.body, (("X-Trino-Set-Session", "a=b"),), None))),
    "a large page": (b"SELECT 1", with_pages(LARGE)),
    "another order": (b"SELECT 1", with_pages(ANOTHER_ORDER)),
    "escaped": (b"SELECT 1", with_pages(ESCAPED)),
    "a failure": (b"SELECT 1", failing),
    "garbage": (b"SELECT 1", with_pages(TrinoPage(b"<html>", (), None))),
    "lost midway": (b"SELECT 1", with_pages(coordinator_page(0), EngineConnectionLost("gone"))),
    "refused": (b"SELECT 1", refusing(EngineError("no such table", name="TABLE_NOT_FOUND"))),
    "unavailable": (b"SELECT 1", refusing(EngineUnavailable("down"))),
    "a fault of ours": (b"SELECT 1", refusing(InternalError("oops"))),
    "a surprise": (b"SELECT 1", refusing(ZeroDivisionError("oops"))),
    "not UTF-8": (b"SELECT '\xff'", with_pages(ONE)),
    "empty": (b"", with_pages(ONE)),
    "blank": (b" \n", with_pages(ONE)),
    "ours": (b"PREPARE p FROM SELECT 1", with_pages(ONE)),
    "not ours": (b"SET SESSION a = 1", with_pages(ONE)),
    "a write": (b"INSERT INTO t VALUES 1", with_pages(ONE)),
}


@pytest.mark.parametrize("case", CASES)
async def test_nobody_can_tell(case: str) -> None:
    sql, prepare = CASES[case]
    slow = await seen(RelayEngine([ONE]), sql, prepare, warm=False)
    fast = await seen(RelayEngine([ONE], at_once=True), sql, prepare, warm=True)
    assert slow == fast


async def test_ordinary_statements_share_one_conversation() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await run.client()
        for n in range(5):
            await client.post(f"SELECT {n}", **HEADERS)
        assert len(trino.connections) == 2
        assert len({record.proxy_query_id for record in run.bench.records}) == 5
        trino.pages = [coordinator_page(0), coordinator_page(1, last=True)]
        await client.rows("SELECT 5", **HEADERS)
        assert trino.open_connections == 0
        trino.pages = [ONE]
        await client.post("SELECT 6", **HEADERS)
        assert len(trino.connections) == 3
        client.stream.abort()
        await arrive()
        assert trino.open_connections == 0


async def test_another_head_is_looked_at_anew() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        client.user = "bob"
        for _ in range(2):
            await client.post("SELECT 1")
        client.user = "eve"
        await client.post("SELECT 1", X_Trino_Catalog="sales")
        client.user = "ann"
        await client.post("SELECT 1", X_Trino_Client_Tags="t")
        assert [record.username for record in run.bench.records] == ["ann"] * 2 + ["bob"] * 2 + ["eve", "ann"]
        assert [request.identity.user for request in trino.requests[2:]] == ["bob", "bob", "eve", "ann"]
        assert [request.session.catalog for request in trino.requests[4:]] == ["sales", None]
        assert dict(trino.requests[5].tags) == {"t": None}


async def test_credentials_are_proven_again_after_a_while() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino, auth=static) as run:
        right = basic("ann", "ann-secret")
        client = await warmed(run, trino, Authorization=right)
        verified = 0
        authenticator = run.door.handler.credentials._auth()
        verify = authenticator.verify_password

        async def counting(user: str, password: str, *, encrypted: bool) -> Any:
            nonlocal verified
            verified += 1
            return await verify(user, password, encrypted=encrypted)

        authenticator.verify_password = counting  # type: ignore[method-assign]
        await client.post("SELECT 1", Authorization=right)
        assert verified == 0
        await run.advance(61)
        for _ in range(2):
            await client.post("SELECT 1", Authorization=right)
        assert verified == 1
        wrong = basic("ann", "bnn-secret")
        assert (await client.ask("POST", "/v1/statement", b"SELECT 1", Authorization=wrong)).status == 401


async def test_another_authenticator_is_asked_at_once() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        strict = static(run.bench)
        run.door.handler.credentials._auth = lambda: strict
        assert (await client.ask("POST", "/v1/statement", b"SELECT 1")).status == 401


async def test_a_client_that_goes_away_ends_its_query() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        trino.gate = asyncio.Event()
        client.stream.write(client.request("POST", "/v1/statement", b"SELECT 1"))
        await arrive()
        assert trino.running == 1
        client.stream.abort()
        await arrive()
        assert trino.running == 0
        assert trino.cancels == 1
        assert run.bench.records[-1].reason is EndReason.CLIENT_GONE
        assert trino.open_connections == 0


async def test_a_statement_that_waits_for_room_is_queued() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino, member_limit=1) as run:
        first, second = await warmed(run, trino), await warmed(run, trino)
        trino.gate = asyncio.Event()
        running = asyncio.create_task(first.post("SELECT 1"))
        await arrive()
        waiting = asyncio.create_task(second.post("SELECT 2"))
        await run.advance(1.1)
        page = await waiting
        assert page["stats"]["state"] == "QUEUED"
        polled = asyncio.create_task(second.ask("GET", page["nextUri"]))
        await arrive()
        trino.gate.set()
        assert document(await polled)["data"] == [[1]]
        assert (await running)["data"] == [[1]]


async def test_a_drain_refuses_it() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        run.bench.pipeline.begin_drain()
        response = await client.ask("POST", "/v1/statement", b"SELECT 1")
        assert (response.status, response.headers["retry-after"]) == (503, "1")


async def test_a_configuration_that_goes_away_refuses_it() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)

        def not_yet() -> None:
            raise NotConfigured("no configuration is active yet")

        run.bench.pipeline.check_ready = not_yet  # type: ignore[method-assign]
        assert (await client.ask("POST", "/v1/statement", b"SELECT 1")).status == 503


async def test_a_door_that_closes_lets_it_finish_and_says_so() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        trino.gate = asyncio.Event()
        posted = asyncio.create_task(client.ask("POST", "/v1/statement", b"SELECT 1"))
        await arrive()
        closing = asyncio.create_task(run.door.close(5))
        await arrive()
        trino.gate.set()
        response = await posted
        assert document(response)["data"] == [[1]]
        assert not response.keep_alive
        await closing


async def test_a_long_statement_is_not_cut_and_the_connection_may_idle_after_it() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        trino.gate = asyncio.Event()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(3600)
        trino.gate.set()
        assert (await posted)["data"] == [[1]]
        await run.advance(590)
        assert not client.stream.closed
        await run.advance(12)
        assert await client.stream.read() == b""


async def test_statements_in_a_row_and_in_pieces() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        sent = client.request("POST", "/v1/statement", b"SELECT 1")
        client.expect("POST")
        client.stream.write(sent * 3)
        got = b""
        while got.count(b'"warnings"') < 3:
            got += await client.stream.read()
        for piece in (sent[:-3], sent[-3:]):
            client.stream.write(piece)
            await arrive()
        assert json.loads((await client.stream.read()).partition(b"\r\n\r\n")[2])["data"] == [[1]]
        assert (await client.post("SELECT 1"))["data"] == [[1]]
        assert len(run.bench.records) == 2 + 5


async def test_another_kind_of_engine_does_not_take_the_lane() -> None:
    steps = Step()
    duck = ScriptedEngine(script=lambda request: steps)
    async with served(duck) as run:
        client = await run.client()
        for _ in range(3):
            assert (await client.post("SELECT 1"))["data"] == [[1]]
        assert len(duck.connections) == 3
        assert duck.open_connections == 0
        steps.gate = asyncio.Event()
        posted = asyncio.create_task(client.post("SELECT 1"))
        await run.advance(1.1)
        page = await posted
        assert page["stats"]["state"] == "RUNNING"
        steps.gate.set()
        assert document(await client.ask("GET", page["nextUri"]))["data"] == [[1]]


async def test_an_answer_that_does_not_say_it_is_complete_is_read_to_its_end() -> None:
    trino = RelayEngine([ONE], at_once=True)
    trino.completes = False
    async with served(trino) as run:
        client = await warmed(run, trino)
        await client.post("SELECT 1")
        assert [record.reason for record in run.bench.records] == [EndReason.COMPLETED] * 3
        assert len(trino.connections) == 2


async def test_a_client_that_has_closed_its_side_already_ends_its_query() -> None:
    trino = RelayEngine([ONE], at_once=True)
    async with served(trino) as run:
        client = await warmed(run, trino)
        trino.gate = asyncio.Event()
        client.stream.write(client.request("POST", "/v1/statement", b"SELECT 1"))
        assert client.stream._transport is not None
        client.stream._transport.write_eof()
        await arrive()
        assert trino.running == 0
        assert run.bench.records[-1].reason is EndReason.CLIENT_GONE
