"""The quick way hands over: whatever happens between its question and its answer, nothing is lost, nothing is
said twice, and the session goes on as by the general way."""

import asyncio
from collections.abc import Callable

from queryflux.engines.port import AskedFrames
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineConnectionLost, QueryCancelled, QueryFluxError
from queryflux.runtime.bytestream import ByteStream
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.native import BoundQuery, SimpleQuery
from tests.rooms.frontends_postgres.conftest import OpenRoom, Room, until
from tests.rooms.frontends_postgres.raw_client import SYNC, TERMINATE, RawClient, fields, parse, query
from tests.rooms.frontends_postgres.test_native import DESCRIPTION, DONE, ROW, NativeEngine, NativeFrames
from tests.rooms.frontends_postgres.test_quick import READY, relayed, run

ANSWER = ["T n", "D 7", "C SELECT 1", "Z I"]
CANCELLED = ["E 57014", "Z I"]


class Held(NativeFrames, AskedFrames):
    """A question that an engine has got. The test answers it."""

    complete = False

    def __init__(self, native: SimpleQuery | BoundQuery, answered: Callable[[], object]) -> None:
        super().__init__([])
        self.native = native
        self.tell = answered
        self.error: QueryFluxError | None = None
        self.stopped = False

    def whole(self) -> None:
        """It is answered in one piece."""
        head = messages.BIND_COMPLETE if isinstance(self.native, BoundQuery) else b""
        self.native.whole = head + DESCRIPTION + ROW + DONE + READY
        self.rows = 1
        self.complete = True
        self.tell()

    def in_pieces(self) -> None:
        """The first of it has come."""
        self._frames = [DESCRIPTION + ROW, DONE]
        self.tell()

    def fail(self, error: QueryFluxError) -> None:
        """What has come is no answer."""
        self.error = error
        self.tell()

    async def begin(self) -> None:
        if self.stopped:
            raise QueryCancelled("cancelled at the engine")
        if self.error is not None:
            raise self.error


class HeldEngine(NativeEngine):
    """Begins with what it is asked, and answers when the test says so. ``held`` are its questions."""

    def __init__(self) -> None:
        super().__init__(relayed)
        self.held: list[Held] = []
        self.cancels = 0

    def ask(self, native: object, answered: Callable[[], object]) -> AskedFrames | None:
        assert isinstance(native, SimpleQuery | BoundQuery)
        self.held.append(Held(native, answered))
        return self.held[-1]

    async def cancel(self) -> None:
        self.cancels += 1
        for held in self.held:
            if not held.complete and not held.stopped:
                held.stopped = True
                held.tell()


class Scene:
    """A client whose question is with the engine."""

    def __init__(self, room: Room, engine: HeldEngine, client: RawClient) -> None:
        self.room, self.engine, self.client = room, engine, client

    async def send(self, data: bytes) -> Held:
        """Send a question, and wait until the engine has got it."""
        count = len(self.engine.held)
        self.client.send(data)
        await until(lambda: len(self.engine.held) > count)
        return self.engine.held[-1]

    async def said(self) -> list[str]:
        """What the client is told, up to ReadyForQuery."""
        return await self.client.ask()

    async def goes_on(self) -> None:
        """The session still has its quick way."""
        held = await self.send(query("select 7"))
        held.whole()
        assert await self.said() == ANSWER

    @property
    def stream(self) -> ByteStream:
        """The door's end of the connection."""
        (session,) = self.room.door._sessions
        return session._client.stream

    async def send_ahead(self, data: bytes) -> None:
        """Send what is not read before the answer has come, and wait until it is there."""
        before = self.stream.buffered
        self.client.send(data)
        await until(lambda: self.stream.buffered == before + len(data))

    @property
    def endings(self) -> list[EndReason]:
        """Of every query but the first."""
        return [record.reason for record in self.room.bench.records][1:]


async def scene(open_room: OpenRoom, **settings: object) -> Scene:
    engine = HeldEngine()
    room = await open_room(engine, **settings)
    client = await room.client()
    await client.ask(query("select 7"))  # the first of a session has no connection yet, and waits for one
    return Scene(room, engine, client)


async def test_an_answer_in_pieces(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    held.in_pieces()
    assert await it.said() == ANSWER
    await it.client.ask(parse("select 7", "s") + SYNC)
    held = await it.send(run("s"))
    held.in_pieces()
    assert await it.said() == ["2", *ANSWER]
    await it.goes_on()
    assert it.endings == [EndReason.COMPLETED] * 3
    it.room.bench.assert_idle()


async def test_a_connection_that_is_lost(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    held.fail(EngineConnectionLost("reset by peer"))
    assert await it.said() == ["E 08006", "Z I"]
    await it.goes_on()
    assert it.endings == [EndReason.FAILED, EndReason.COMPLETED]
    it.room.bench.assert_idle()


async def test_a_cancel_before_the_answer(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    for statement in (query("select 7"), run("s")):
        await it.client.ask(parse("select 7", "s" if statement == run("s") else "") + SYNC)
        await it.send(statement)
        (talk,) = {one.talk for one in it.room.bench.pipeline.running.values()}
        await talk.cancel()
        assert (await it.said())[-2:] == CANCELLED
    await it.goes_on()
    assert it.engine.cancels == 2
    assert it.endings == [EndReason.CANCELLED] * 2 + [EndReason.COMPLETED]


async def test_an_answer_that_comes_in_the_moment_of_a_cancel_is_not_given(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    (talk,) = {one.talk for one in it.room.bench.pipeline.running.values()}
    cancelling = asyncio.create_task(talk.cancel())
    await asyncio.sleep(0)
    held.whole()
    await cancelling
    assert await it.said() == CANCELLED
    await it.goes_on()
    assert it.endings == [EndReason.CANCELLED, EndReason.COMPLETED]


async def test_the_time_out_of_its_group(open_room: OpenRoom) -> None:
    it = await scene(open_room, query_timeout_secs=5.0)
    await it.send(query("select 7"))
    await it.room.bench.clock.advance(6)
    assert await it.said() == CANCELLED
    await it.goes_on()
    await it.room.bench.clock.advance(6)
    assert it.endings == [EndReason.TIMED_OUT, EndReason.COMPLETED]


async def test_a_client_that_goes(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    await it.send(query("select 7"))
    it.client.close()
    await it.room.idle()
    assert it.engine.cancels >= 1
    assert it.endings == [EndReason.CLIENT_GONE]


async def test_a_client_that_has_gone_when_the_answer_comes(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    it.client.stream.abort()
    held.whole()
    await it.room.idle()
    assert len(it.endings) == 1


async def test_what_comes_before_the_answer_waits_for_it(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    await it.client.ask(parse("select 7", "s") + SYNC)
    held = await it.send(query("select 7"))
    await it.send_ahead(run("s") + query("begin"))
    await it.send_ahead(query("rollback"))
    assert [record.sql_text for record in it.room.bench.records][1:] == []
    held.whole()
    assert await it.said() == ANSWER
    assert await it.said() == ["2", *ANSWER]
    assert await it.said() == ["C BEGIN", "Z T"]
    assert await it.said() == ["C ROLLBACK", "Z I"]
    await it.goes_on()


async def test_one_statement_that_came_before_the_answer_goes_quickly_too(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    await it.send_ahead(query("select 7"))
    held.whole()
    assert await it.said() == ANSWER
    await until(lambda: len(it.engine.held) == 2)
    it.engine.held[-1].whole()
    assert await it.said() == ANSWER


async def test_a_goodbye_before_the_answer(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    await it.send_ahead(TERMINATE)
    held.whole()
    assert await it.said() == ANSWER
    assert await it.client.to_the_end() == []
    await it.room.idle()


async def test_a_drain_lets_it_finish_and_then_parts(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    it.room.door.stop_accepting()
    held.whole()
    assert await it.said() == ANSWER
    ((kind, body),) = await it.client.to_the_end()
    assert (kind, fields(body)["C"]) == ("E", "57P01")
    await it.room.idle()


async def test_a_drain_parts_at_once_with_who_waits_for_nothing(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    await it.goes_on()
    it.room.door.stop_accepting()
    ((kind, body),) = await it.client.to_the_end()
    assert (kind, fields(body)["C"]) == ("E", "57P01")


async def test_a_door_that_closes_ends_it(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    await it.send(query("select 7"))
    await it.room.door.close()
    it.room.bench.assert_idle()
    assert it.engine.cancels >= 1
    assert it.endings == [EndReason.CLIENT_GONE]


async def test_a_client_that_takes_nothing_is_waited_for(open_room: OpenRoom) -> None:
    it = await scene(open_room)
    held = await it.send(query("select 7"))
    it.stream.congested = True
    held.whole()
    assert await it.said() == ANSWER
    await it.send_ahead(query("select 7"))
    assert len(it.engine.held) == 1, "who has not taken an answer is given no other"
    it.stream.resume_writing()
    await until(lambda: len(it.engine.held) == 2)
    it.engine.held[-1].whole()
    assert await it.said() == ANSWER
