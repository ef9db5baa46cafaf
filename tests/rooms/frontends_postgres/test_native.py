"""An engine that speaks PostgreSQL: its messages are passed on, and what it is handed."""

from collections.abc import Callable
from typing import cast

import pytest

from queryflux.engines.port import (
    AskedFrames,
    ConnectionSpec,
    EngineConnection,
    EngineRequest,
    TransactionStatus,
)
from queryflux.model.errors import EngineError, QueryFluxError
from queryflux.model.protocol import ClientProtocol
from queryflux.results.answer import Answer, EngineStats, Frames, Shape
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Back
from queryflux.wire.postgres.errors import error_response
from queryflux.wire.postgres.messages import Column
from queryflux.wire.postgres.native import DescribeStatement, ExtendedQuery, SimpleQuery
from tests.kit.scripted import ScriptedEngine
from tests.rooms.frontends_postgres.conftest import OpenRoom
from tests.rooms.frontends_postgres.raw_client import (
    SYNC,
    bind,
    describe,
    described,
    execute,
    front,
    parse,
    query,
)

DESCRIPTION = messages.row_description([Column("n", 23, 4)], (0,))
ROW = messages.message(Back.DATA_ROW, b"\0\1\0\0\0\1" + b"7")
DONE = messages.command_complete("SELECT 1")
COPY_IN = messages.message(Back.COPY_IN_RESPONSE, b"\0\0\0")


class NativeFrames(Frames):
    """Frames one after the other; a callable is asked for its frame when it is pulled."""

    protocol = ClientProtocol.POSTGRES_WIRE

    def __init__(self, frames: list[bytes], failure: QueryFluxError | None = None) -> None:
        self.stats = EngineStats()
        self.failure = failure
        self._frames = frames
        self.closed = False

    async def next(self) -> object | None:
        return self._frames.pop(0) if self._frames else None

    async def close(self) -> None:
        self.closed = True


class Uploading(NativeFrames):
    """COPY FROM STDIN: asks for data, keeps it, and answers."""

    def __init__(self, native: SimpleQuery | ExtendedQuery, kept: list[bytes], fail_at: int) -> None:
        super().__init__([COPY_IN])
        self._native = native
        self._kept = kept
        self._fail_at = fail_at
        self._over = False

    async def next(self) -> object | None:
        if self._frames or self._over:
            return await super().next()
        self._over = True
        assert self._native.upload is not None
        while True:
            message = await self._native.upload()
            self._kept.append(message)
            if len(self._kept) == self._fail_at:
                self.failure = EngineError("bad row", sqlstate="22P02")
                return error_response(self.failure)
            if message[:1] == b"c":
                return messages.command_complete("COPY 2")
            if message[:1] == b"f":
                self.failure = EngineError("client gave up", sqlstate="57014")
                return error_response(self.failure)


class NativeEngine(ScriptedEngine):
    """Answers what ``answers`` says for a text."""

    def __init__(self, answers: Callable[[EngineRequest], Frames]) -> None:
        super().__init__(dialect="postgres", native=ClientProtocol.POSTGRES_WIRE)
        self.answers = answers
        self.described: list[DescribeStatement] = []
        self.syncs = 0

    def connect(self, spec: ConnectionSpec) -> EngineConnection:
        return NativeConnection(self)

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        """What it begins without being waited for."""
        return None

    async def cancel(self) -> None:
        """Stop that."""


class NativeConnection(EngineConnection):
    """Never in a transaction."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine

    @property
    def transaction(self) -> TransactionStatus:
        return TransactionStatus.IDLE

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        return self._engine.ask(native, answered)

    async def execute(self, request: EngineRequest) -> Answer:
        self._engine.requests.append(request)
        return self._engine.answers(request)

    async def describe(self, request: EngineRequest) -> Shape:
        assert isinstance(request.native, DescribeStatement)
        self._engine.described.append(request.native)
        return Shape((), None, messages.parameter_description((23,)) + DESCRIPTION)

    async def cancel(self) -> None:
        await self._engine.cancel()

    async def sync(self) -> None:
        self._engine.syncs += 1

    async def close(self) -> None:
        pass


def rows(request: EngineRequest) -> Frames:
    native = request.native
    if isinstance(native, ExtendedQuery):
        head = DESCRIPTION if native.describe else b""
        if native.max_rows:
            return NativeFrames([head + ROW + messages.PORTAL_SUSPENDED, ROW + DONE])
        return NativeFrames([head + ROW, DONE])
    return NativeFrames([DESCRIPTION + ROW + DONE])


def extended(engine: NativeEngine, index: int = -1) -> ExtendedQuery:
    return cast(ExtendedQuery, engine.requests[index].native)


async def test_a_simple_query_is_passed_on(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    assert await client.ask(query("select 7;")) == ["T n", "D 7", "C SELECT 1", "Z I"]
    native = engine.requests[0].native
    assert isinstance(native, SimpleQuery)
    assert native.text == "select 7"


async def test_one_packet_is_one_question_with_its_sync(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    packet = (parse("select $1", "s", (23,)), bind(b"7", statement="s", results=(0,)), describe(), execute())
    assert await client.ask(*packet, SYNC) == ["1", "2", "T n", "D 7", "C SELECT 1", "Z I"]
    native = extended(engine)
    assert (native.sql, native.parameter_oids, native.parameter_values) == ("select $1", (23,), (b"7",))
    assert (native.result_formats, native.describe, native.sync, native.max_rows) == ((0,), True, True, 0)
    assert engine.described == []
    assert engine.syncs == 0


async def test_without_a_sync_in_sight_the_engine_hears_of_it_later(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    client.send(parse("select 1"), bind(), execute())
    assert [(await client.message())[0] for _ in range(4)] == ["1", "2", "D", "C"]
    assert not extended(engine).sync
    assert await client.ask(SYNC) == ["Z I"]
    assert engine.syncs == 1


async def test_describe_alone_asks_the_engine_and_applies_formats(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    assert await client.ask(parse("select $1", "s"), describe("S", "s"), SYNC) == ["1", "t 23", "T n", "Z I"]
    client.send(bind(b"1", statement="s", results=(1,)), describe(), SYNC)
    found = dict(await client.until("Z"))
    assert described(found["T"]) == [("n", 23, 1)]
    assert engine.described == [DescribeStatement("select $1", ())]
    assert engine.requests == []


async def test_a_row_limit_goes_to_the_engine(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    client.send(parse("select 1"), bind(), execute(limit=1))
    assert [(await client.message())[0] for _ in range(4)] == ["1", "2", "D", "s"]
    assert extended(engine).max_rows == 1
    assert await client.ask(execute(limit=5), SYNC) == ["D 7", "C SELECT 1", "Z I"]
    assert extended(engine).max_rows == 5


async def test_a_suspended_portal_in_the_way_is_read_to_its_end(open_room: OpenRoom) -> None:
    engine = NativeEngine(rows)
    room = await open_room(engine)
    client = await room.client()
    client.send(parse("select 1"), bind(portal="p"), execute("p", 1), bind(), execute())
    assert [(await client.message())[0] for _ in range(7)] == ["1", "2", "D", "s", "2", "D", "C"]
    assert await client.ask(execute("p", 1), execute("p", 1), SYNC) == ["D 7", "s", "C SELECT 1", "Z I"]


async def test_an_error_among_the_frames_skips_to_sync(open_room: OpenRoom) -> None:
    failure = EngineError("no", sqlstate="42P01")
    engine = NativeEngine(lambda _: NativeFrames([error_response(failure)], failure))
    room = await open_room(engine)
    client = await room.client()
    one = (parse("select 1"), bind(), execute())
    assert await client.ask(*one, *one, SYNC) == ["1", "2", "E 42P01", "Z I"]
    assert len(engine.requests) == 1
    assert await client.ask(query("select 1; select 2")) == ["E 42P01", "Z I"]
    assert [record.status for record in room.bench.records] == ["Failed", "Failed"]


async def test_a_row_that_ends_like_portalsuspended(open_room: OpenRoom) -> None:
    sly = messages.message(Back.DATA_ROW, b"\0\1\0\0\0\5" + messages.PORTAL_SUSPENDED)
    engine = NativeEngine(lambda _: NativeFrames([sly, DONE]))
    room = await open_room(engine)
    client = await room.client()
    found = await client.ask(parse("select 1"), bind(), execute(limit=3), SYNC)
    assert found[-2:] == ["C SELECT 1", "Z I"]


@pytest.mark.parametrize("way", ["simple", "extended"])
@pytest.mark.parametrize(("fail_at", "ending"), [(0, "C COPY 2"), (1, "E 22P02")])
async def test_copy_from_stdin(open_room: OpenRoom, way: str, fail_at: int, ending: str) -> None:
    kept: list[bytes] = []

    def answer(request: EngineRequest) -> Frames:
        assert isinstance(request.native, SimpleQuery | ExtendedQuery)
        if request.sql.startswith("copy"):
            return Uploading(request.native, kept, fail_at)
        return rows(request)

    engine = NativeEngine(answer)
    room = await open_room(engine)
    client = await room.client()
    if way == "simple":
        client.send(query("copy t from stdin"))
    else:
        client.send(parse("copy t from stdin"), bind(), execute(), SYNC)
        assert [(await client.message())[0] for _ in range(2)] == ["1", "2"]
    assert (await client.message())[0] == "G"
    data = [front("d", b"1\n"), front("d", b"2\n"), front("c")]
    sync = () if way == "simple" else (SYNC,)
    found = await client.ask(*data, *sync)
    if way == "extended" and fail_at:
        # The Sync sent with Execute was in the copy; the one behind CopyDone ends the batch.
        assert found == [ending, "Z I"]
    assert found[-2:] == [ending, "Z I"]
    assert kept == (data[:1] if fail_at else data)
    assert (await client.ask(query("select 1")))[-2:] == ["C SELECT 1", "Z I"]


async def test_a_client_that_gives_a_copy_up(open_room: OpenRoom) -> None:
    kept: list[bytes] = []
    engine = NativeEngine(lambda request: Uploading(cast(SimpleQuery, request.native), kept, 0))
    room = await open_room(engine)
    client = await room.client()
    client.send(query("copy t from stdin"))
    await client.message()
    assert await client.ask(front("f", b"enough\0")) == ["E 57014", "Z I"]
    client.send(query("copy t from stdin"))
    await client.message()
    client.close()
    await room.idle()
    assert kept[0] == front("f", b"enough\0")


async def test_a_message_out_of_place_in_a_copy(open_room: OpenRoom) -> None:
    engine = NativeEngine(lambda request: Uploading(cast(SimpleQuery, request.native), [], 0))
    room = await open_room(engine)
    client = await room.client()
    client.send(query("copy t from stdin"))
    await client.message()
    assert await client.ask(query("select 1")) == ["E 08P01", "Z I"]
    assert len(engine.requests) == 1


async def test_session_commands_go_to_the_server(open_room: OpenRoom) -> None:
    def answer(request: EngineRequest) -> Frames:
        word = request.sql.split()[0].upper()
        return NativeFrames([messages.command_complete(word)]) if word == "SET" else rows(request)

    engine = NativeEngine(answer)
    room = await open_room(engine)
    client = await room.client()
    assert (await client.ask(query("set work_mem = '1MB'")))[-2:] == ["C SET", "Z I"]
    assert await client.ask(query("show work_mem")) == ["T n", "D 7", "C SELECT 1", "Z I"]
    assert engine.statements == ["set work_mem = '1MB'", "show work_mem"]
    assert engine.requests[1].session.extra == {"work_mem": "1MB"}
    await client.ask(query("set client_encoding = 'latin1'"))
    assert len(engine.requests) == 2
