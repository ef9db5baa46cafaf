"""The quick way: what goes it, what steps aside, and that a client is told the same either way.

A Flush before a message makes it one of several, and so sends it the general way.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from queryflux.engines.port import AskedFrames, EngineRequest
from queryflux.model.errors import EngineError
from queryflux.results.answer import Done, Frames
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.native import BoundQuery, SimpleQuery
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom, until
from tests.rooms.frontends_postgres.raw_client import (
    FLUSH,
    SYNC,
    TERMINATE,
    bind,
    close,
    describe,
    described,
    execute,
    front,
    parse,
    query,
)
from tests.rooms.frontends_postgres.test_native import (
    DESCRIPTION,
    DONE,
    ROW,
    NativeEngine,
    NativeFrames,
    rows,
)

READY = messages.READY["I"]
NOTICE = front("N", b"VNOTICE\0C00000\0Mlook\0\0")


class WholeFrames(NativeFrames, AskedFrames):
    """An answer that is with the question already."""

    complete = True

    def __init__(self) -> None:
        super().__init__([])
        self.rows = 1

    async def begin(self) -> None:
        raise AssertionError("nothing is left to wait for")


def whole(native: object) -> AskedFrames | None:
    if isinstance(native, SimpleQuery) and native.message is not None:
        native.whole = DESCRIPTION + NOTICE + ROW + DONE + READY
        return WholeFrames()
    if isinstance(native, BoundQuery):
        head = DESCRIPTION if native.describe else b""
        native.whole = messages.BIND_COMPLETE + head + ROW + DONE + READY
        return WholeFrames()
    return None


class WholeEngine(NativeEngine):
    """Answers at once whatever may be asked at once: nothing of a session's first statement."""

    def __init__(self) -> None:
        super().__init__(relayed)
        self.natives: list[SimpleQuery | BoundQuery] = []

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        assert isinstance(native, SimpleQuery | BoundQuery)
        frames = whole(native)
        if frames is not None:
            self.natives.append(native)
            asyncio.get_running_loop().call_soon(answered)
        return frames


def run(statement: str = "s", *values: bytes | None, described: bool = True, **bound: Any) -> bytes:
    """A prepared statement as drivers run it."""
    return bind(*values, statement=statement, **bound) + describe() * described + execute() + SYNC


async def test_a_query_and_its_answer_pass_as_they_are(open_room: OpenRoom) -> None:
    engine = WholeEngine()
    room = await open_room(engine)
    client = await room.client()
    assert await client.ask(query("SELECT 7;")) == ["T n", "D 7", "C SELECT 1", "Z I"]
    assert engine.natives == []
    for _ in range(3):
        assert await client.ask(query("SELECT 7;")) == ["T n", "N 00000", "D 7", "C SELECT 1", "Z I"]
    native = engine.natives[-1]
    assert isinstance(native, SimpleQuery)
    assert (native.text, native.message, native.whole) == ("SELECT 7", query("SELECT 7;"), None)
    assert len(engine.natives) == 3
    assert [(record.sql_text, record.status) for record in room.bench.records] == [
        ("SELECT 7", "Success")
    ] * 4
    assert [record.rows_returned for record in room.bench.records][1:] == [1] * 3


async def test_a_prepared_statement_passes_but_for_its_name(open_room: OpenRoom) -> None:
    engine = WholeEngine()
    room = await open_room(engine)
    client = await room.client()
    await client.ask(query("select 7"))
    assert await client.ask(parse("select $1", "s", (23,)), SYNC) == ["1", "Z I"]
    assert await client.ask(run("s", b"7", None, results=(1,))) == ["2", "T n", "D 7", "C SELECT 1", "Z I"]
    assert await client.ask(run("s", b"7", described=False)) == ["2", "D 7", "C SELECT 1", "Z I"]
    native = engine.natives[0]
    assert isinstance(native, BoundQuery)
    assert (native.sql, native.parameter_oids, native.describe) == ("select $1", (23,), True)
    assert messages.bound(native.rest[: native.bound]) == ((), (b"7", None), (1,))
    assert native.rest[native.bound :] == describe() + execute() + SYNC
    assert [(record.sql_text, record.rows_returned) for record in room.bench.records][1:] == [
        ("select $1", 1)
    ] * 2


ASIDE = [
    (query("select 7") + query("select 7"),),
    (query("select 7; select 8"),),
    (query("with a as (select 7) select * from a"),),
    (parse("select 7") + bind() + describe() + execute() + SYNC,),
    (parse("select 7", "s"), run("s") + run("s")),
    (parse("select 7", "s"), bind(statement="s") + execute() + SYNC),  # its batch has begun with Parse
    (parse("select 7", "s") + SYNC, bind(statement="s", portal="p") + execute("p") + SYNC),
    (parse("select 7", "s") + SYNC, bind(statement="s") + execute() + FLUSH, SYNC),
    (parse("explain select 7", "s") + SYNC, run("s")),
    (query("begin"), query("select 7"), query("select 7"), query("rollback")),
    (query("set statement_timeout = 1000"), query("select 7")),
    (query("select '" + "x" * 20_000 + "'"),),
]


@pytest.mark.parametrize("packets", ASIDE, ids=range(len(ASIDE)))
async def test_what_goes_the_general_way(open_room: OpenRoom, packets: tuple[bytes, ...]) -> None:
    engine = WholeEngine()
    room = await open_room(engine)
    client = await room.client()
    await client.ask(query("select 0"))
    engine.requests.clear()
    for packet in packets:
        client.send(packet)
        expected = packet.count(SYNC) + (packet[:1] == b"Q") * packet.count(b"Q\0")
        for _ in range(expected):
            await client.until("Z")
    assert engine.requests
    assert engine.natives == []
    for request in engine.requests:
        native = request.native
        assert not isinstance(native, BoundQuery)
        assert not isinstance(native, SimpleQuery) or native.message is None


EITHER_WAY: list[tuple[bytes, ...]] = [
    (query("select 1"),),
    (query("select 1;"),),
    (query("insert into t values (1)"),),
    (query("select bad"),),
    (query("select\0 1"),),
    (query("select '\udcff'".encode("utf-8", "surrogateescape").decode("latin-1")),),
    (front("Q", b"select '\xff'\0"),),
    (parse("select $1", "s", (23,)) + SYNC, run("s", b"1"), run("s", b"1", described=False)),
    (parse("select $1", "s", (23,)) + SYNC, run("s", b"1", results=(1,)), run("s", None)),
    (parse("select $1", "s", (23,)) + SYNC, run("s", b"one"), run("s", b"1")),
    (parse("select bad", "s") + SYNC, run("s"), run("s")),
    (parse("insert into t values (1)", "s") + SYNC, run("s"), run("s", described=False)),
    (parse("select 1", "s") + SYNC, run("other"), run("s"), close("S", "s") + SYNC, run("s")),
    (parse("select 1") + SYNC, run(""), query("select 2"), run("")),
    (parse("select 1") + SYNC, query("begin"), run(""), query("select 2"), query("commit"), run("")),
    (query("set statement_timeout = 60000"), query("select 1"), parse("select 1", "s") + SYNC, run("s")),
]


def step(request: EngineRequest) -> Step:
    if "bad" in request.sql:
        return Step(error=EngineError("no such thing", sqlstate="42P01"))
    if request.sql.startswith("insert"):
        return Step(done=Done("INSERT", 1))
    return Step()


def relayed(request: EngineRequest) -> Frames:
    if "bad" in request.sql:
        raise EngineError("no such thing", sqlstate="42P01")
    return rows(request) if not isinstance(request.native, BoundQuery) else bound_rows(request.native)


def bound_rows(native: BoundQuery) -> Frames:
    return NativeFrames([(DESCRIPTION if native.describe else b"") + ROW, DONE])


@pytest.mark.parametrize("kind", ["rows", "frames"])
@pytest.mark.parametrize("packets", EITHER_WAY, ids=range(len(EITHER_WAY)))
async def test_a_client_is_told_the_same_either_way(
    open_room: OpenRoom, packets: tuple[bytes, ...], kind: str
) -> None:
    engine = ScriptedEngine(script=step) if kind == "rows" else NativeEngine(relayed)
    room = await open_room(engine)
    told, recorded = [], []
    for before in (b"", FLUSH):
        client = await room.client()
        for packet in packets:
            client.send(before + packet)
            told.append(await client.until("Z"))
        recorded.append(
            [(record.sql_text, record.status, record.rows_returned) for record in room.bench.records]
        )
    half = len(told) // 2
    assert shorn(told[:half]) == shorn(told[half:])
    assert recorded[1] == recorded[0] * 2


def shorn(told: list[list[tuple[str, bytes]]]) -> list[tuple[str, bytes]]:
    """The messages, without the ids of queries."""
    return [(kind, _ID.sub(b"", body)) for one in told for kind, body in one]


_ID = re.compile(rb"Query id: \S+?\0")


async def test_cancel_and_a_client_that_goes(open_room: OpenRoom) -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(script=lambda _: Step(gate=gate))
    room = await open_room(engine)
    client = await room.client()
    client.send(query("select 1"))
    await until(lambda: engine.running)
    (talk,) = {run.talk for run in room.bench.pipeline.running.values()}
    await talk.cancel()
    assert [kind for kind, _ in await client.until("Z")] == ["E", "Z"]
    client.send(query("select 1"))
    await until(lambda: engine.running)
    client.close()
    await room.idle()
    assert engine.cancels == 2
    assert [record.status for record in room.bench.records] == ["Cancelled", "Cancelled"]


async def test_a_client_that_says_goodbye(open_room: OpenRoom) -> None:
    room = await open_room(WholeEngine())
    client = await room.client()
    for _ in range(2):
        await client.ask(query("select 7"))
    client.send(TERMINATE)
    assert await client.to_the_end() == []
    await room.idle()


async def test_formats_of_rows_from_another_kind_of_engine(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedEngine())
    client = await room.client()
    await client.ask(parse("select 1", "s"), SYNC)
    client.send(run("s", results=(1,)))
    found = dict(await client.until("Z"))
    assert described(found["T"]) == [("x", 23, 1)]
    assert found["D"].endswith(b"\0\0\0\4\0\0\0\1")


@pytest.mark.parametrize("damage", [{"formats": (1, 1, 1)}, {"results": (9,)}])
async def test_a_damaged_bind_is_refused_by_whoever_takes_it_apart(
    open_room: OpenRoom, damage: dict[str, Any]
) -> None:
    room = await open_room(ScriptedEngine())
    client = await room.client()
    await client.ask(parse("select $1", "s", (23,)), SYNC)
    assert (await client.ask(run("s", b"1", **damage)))[-2:] == ["E 08P01", "Z I"]
    assert (await client.ask(run("s", b"1")))[-2:] == ["C SELECT 1", "Z I"]


async def test_what_comes_with_the_rows_is_what_a_client_goes_by(open_room: OpenRoom) -> None:
    """As on the general way."""
    engine = WholeEngine()
    room = await open_room(engine)
    client = await room.client()
    await client.ask(query("select 7"))
    assert await client.ask(parse("select $1", "s", (23,)), SYNC) == ["1", "Z I"]
    for is_described in (True, True, False):
        await client.ask(run("s", b"7", described=is_described))
    assert [native.told for native in engine.natives] == [b"", b"", DESCRIPTION]
    client.close()
    await room.idle()
