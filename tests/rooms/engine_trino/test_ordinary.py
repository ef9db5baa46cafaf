"""A relayed statement over a connection whose last answer looked the same: shorter on the way, and the same
in every outcome."""

import asyncio
import gzip
from dataclasses import dataclass

import pytest

from queryflux.engines.port import TransactionStatus
from queryflux.engines.trino.client import Client
from queryflux.model.errors import (
    EngineConnectionLost,
    EngineError,
    InvalidRequest,
    QueryCancelled,
    QueryFluxError,
)
from queryflux.results.answer import EngineStats, Frames
from queryflux.runtime.connections import ANSWER_SECONDS, IDLE_SECONDS
from queryflux.wire.http1 import Request
from queryflux.wire.trino.native import TrinoPage
from tests.kit.clock import ManualClock
from tests.rooms.engine_trino.coordinator import (
    THREE_PAGES,
    Coordinator,
    Reply,
    Script,
    Talk,
    asked_for,
    page,
    pages,
    rows,
    talk,
)

ONE_PAGE = page(None, **rows(7))
WARM = "SELECT 0"
FAILED = page(None, error={"message": "no", "errorCode": 46, "errorName": "TABLE_NOT_FOUND"})


def plainly(request: Request) -> bool:
    return request.method == "POST" and request.body == WARM.encode()


def after_warming(script: Script) -> Script:
    """``WARM`` is answered with one page, as are most statements; the rest by ``script``."""
    return lambda request: Reply(page(None, **rows(0))) if plainly(request) else script(request)


def once(first: Reply, then: Script) -> Script:
    """The first statement is answered with ``first``."""
    left = [first]

    def script(request: Request) -> Reply:
        return left.pop() if left and request.method == "POST" else then(request)

    return after_warming(script)


@dataclass
class Outcome:
    """All that can be seen of a statement."""

    pages: list[TrinoPage]
    stats: EngineStats | None
    error: tuple[type[QueryFluxError], str] | None
    asked: list[tuple[str, str, dict[str, str], bytes]]
    after: list[TrinoPage]
    """What the next statement gives."""


async def outcome(script: Script, *, warm: bool) -> Outcome:
    async with talk(after_warming(script)) as (there, client):
        if warm:
            for _ in range(2):
                await client.pages(WARM)
        there.seen.clear()
        found, error, stats = [], None, None
        try:
            answer = await client.execute("SELECT n", native=True)
            assert isinstance(answer, Frames)
            while (frame := await answer.next()) is not None:
                assert isinstance(frame, TrinoPage)
                found.append(frame)
            stats = answer.stats
            assert answer.complete
            if answer.failure is not None:
                assert isinstance(answer.failure, QueryFluxError)
                error = (type(answer.failure), answer.failure.message)
        except QueryFluxError as caught:
            error = (type(caught), caught.message)
        asked = [(seen.method, seen.target, seen.headers, seen.body) for seen in there.seen]
        port = str(there.port)
        for _, _, headers, _ in asked:
            headers["host"] = headers["host"].replace(port, "port")
        return Outcome(found, stats, error, asked, await client.pages(WARM))


SCRIPTS: dict[str, tuple[Script, type[QueryFluxError] | None]] = {
    "one page": (pages(ONE_PAGE), None),
    "three pages": (pages(*THREE_PAGES), None),
    "in pieces": (lambda _: Reply(ONE_PAGE, piece=11), None),
    "in chunks": (lambda _: Reply(ONE_PAGE, chunked=True), None),
    "closing": (lambda _: Reply(ONE_PAGE, headers=(("Connection", "close"),), close=True), None),
    "a session": (lambda _: Reply(ONE_PAGE, headers=(("X-Trino-Set-Session", "a=b"),)), None),
    "packed": (lambda _: Reply(gzip.compress(ONE_PAGE), headers=(("Content-Encoding", "gzip"),)), None),
    "a failure": (pages(FAILED), EngineError),
    "no page": (lambda _: Reply(b"<html>"), EngineConnectionLost),
    "refused": (lambda _: Reply(b"no", status=400), EngineError),
    "no credentials": (lambda _: Reply(b"no", status=401), EngineError),
    "cut in the head": (lambda _: Reply(ONE_PAGE, cut_at=20), EngineConnectionLost),
    "cut in the body": (lambda _: Reply(ONE_PAGE, cut_at=150), EngineConnectionLost),
    "more than was asked for": (
        lambda _: Reply(raw=Reply(ONE_PAGE).encoded() + b"HTTP/1.1 200 OK\r\n\r\n"),
        EngineConnectionLost,
    ),
}


@pytest.mark.parametrize("case", SCRIPTS)
async def test_it_ends_as_the_first_of_a_connection_does(case: str) -> None:
    script, error = SCRIPTS[case]
    first, later = await outcome(script, warm=False), await outcome(script, warm=True)
    assert first == later
    assert (later.error[0] if later.error else None) is error
    assert later.after[0].body == page(None, **rows(0))


@pytest.mark.parametrize("case", SCRIPTS)
async def test_it_ends_the_same_every_time(case: str) -> None:
    async with talk(SCRIPTS[case][0]) as (_, client):
        ends = []
        for _ in range(3):
            try:
                ends.append(repr(await client.pages()))
            except QueryFluxError as error:
                ends.append(repr(error))
        assert ends == ends[:1] * 3


async def test_what_looks_like_the_last_one_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk(after_warming(pages(ONE_PAGE))) as (_, client):
        await client.pages(WARM)
        monkeypatch.delattr(Client, "receive")  # the general way
        assert [found.body for found in await client.pages()] == [ONE_PAGE]


async def test_it_is_tried_again_while_the_coordinator_is_overloaded() -> None:
    clock = ManualClock()
    async with talk(once(Reply(status=503), pages(ONE_PAGE)), clock) as (there, client):
        await client.pages(WARM)
        waiting = asyncio.create_task(client.pages())
        await asked_for(there, 2)
        while not waiting.done():
            await clock.advance(1)
            await asyncio.sleep(0.001)
        assert [found.body for found in await waiting] == [ONE_PAGE]
        assert len(there.asked("POST")) == 3


async def test_a_connection_that_was_closed_unseen_is_no_failure() -> None:
    async with talk(once(Reply(cut_at=0), pages(ONE_PAGE))) as (there, client):
        await client.pages(WARM)
        assert [found.body for found in await client.pages()] == [ONE_PAGE]
        assert there.connections == 2


async def test_one_connection_serves_all_and_not_for_too_long() -> None:
    clock = ManualClock()
    async with talk(after_warming(pages(ONE_PAGE)), clock) as (there, client):
        for _ in range(3):
            await client.pages(WARM)
            await client.pages()
        assert there.connections == 1
        await clock.advance(IDLE_SECONDS + 1)
        await client.pages()
        assert there.connections == 2


async def held(there: Coordinator, client: Talk) -> "asyncio.Task[list[TrinoPage]]":
    """A statement that the coordinator does not answer, on a connection that has answered before."""
    await client.pages(WARM)
    waiting = asyncio.create_task(client.pages())
    await asked_for(there, 2)
    return waiting


def silent(_: Request) -> Reply:
    return Reply(ONE_PAGE, wait=asyncio.Event())


async def test_without_an_answer_it_is_lost() -> None:
    clock = ManualClock()
    async with talk(after_warming(silent), clock) as (there, client):
        waiting = await held(there, client)
        await clock.advance(ANSWER_SECONDS + 1)
        with pytest.raises(EngineConnectionLost, match="no answer within"):
            await waiting


@pytest.mark.parametrize("how", ["cancel", "close", "engine"])
async def test_a_cancel_before_the_answer(how: str) -> None:
    async with talk(after_warming(silent)) as (there, client):
        waiting = await held(there, client)
        connection = client.connection
        assert not connection.leave()
        await {"cancel": connection.cancel, "close": connection.close, "engine": client.engine.close}[how]()
        with pytest.raises(QueryCancelled):
            await waiting


async def test_a_cancelled_task_takes_its_connection_down() -> None:
    async with talk(after_warming(silent)) as (there, client):
        waiting = await held(there, client)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [found.body for found in await client.pages(WARM)] == [page(None, **rows(0))]
        assert there.connections == 2
        assert len(client.engine.client._all) == 1


async def test_a_cancel_does_not_hit_the_next_user_of_its_connection() -> None:
    gate = asyncio.Event()

    def script(request: Request) -> Reply:
        if request.body == b"SELECT n":
            return Reply(ONE_PAGE, wait=gate)
        return pages(*THREE_PAGES)(request)

    async with talk(after_warming(script)) as (there, client):
        await client.pages(WARM)
        answer = await client.execute("SELECT 3", native=True)
        other = Talk(client.engine)
        waiting = asyncio.create_task(other.pages())
        await asked_for(there, 3)
        assert there.connections == 1
        await client.connection.cancel()
        assert there.asked("DELETE") == ["/v1/statement/executing/q/s/1?x=1"]
        gate.set()
        assert [found.body for found in await waiting] == [ONE_PAGE]
        assert len(there.asked("POST")) == 3
        assert isinstance(answer, Frames)
        await answer.close()


async def test_one_statement_at_a_time() -> None:
    async with talk(after_warming(pages(*THREE_PAGES))) as (_, client):
        await client.pages(WARM)
        answer = await client.execute("SELECT n", native=True)
        with pytest.raises(InvalidRequest, match="still open"):
            await client.execute("SELECT 2", native=True)
        await answer.close()  # type: ignore[union-attr]
        await client.connection.close()
        with pytest.raises(InvalidRequest, match="closed"):
            await client.execute("SELECT 2", native=True)


async def test_a_page_that_was_cancelled_is_not_complete() -> None:
    async with talk(after_warming(pages(*THREE_PAGES))) as (there, client):
        await client.pages(WARM)
        answer = await client.execute("SELECT n", native=True)
        assert isinstance(answer, Frames)
        assert answer.take() is not None
        assert not answer.complete
        assert answer.take() is None
        await client.connection.cancel()
        assert len(there.asked("DELETE")) == 1
        with pytest.raises(QueryCancelled):
            await answer.next()
        assert not answer.complete


async def test_a_connection_is_left_only_with_nothing_open() -> None:
    async with talk(after_warming(pages(*THREE_PAGES))) as (_, client):
        answer = await client.execute("SELECT n", native=True)
        assert isinstance(answer, Frames)
        assert not client.connection.leave()
        await answer.close()
        assert client.connection.leave()
        assert client.connection.leave()


async def test_transactions_do_not_take_the_short_way() -> None:
    def script(request: Request) -> Reply:
        if request.body == b"START TRANSACTION":
            return Reply(page(None), headers=(("X-Trino-Started-Transaction-Id", "t1"),))
        return Reply(ONE_PAGE)

    async with talk(after_warming(script)) as (there, client):
        await client.pages(WARM)
        await client.execute("BEGIN", native=True)
        assert client.connection.transaction is TransactionStatus.OPEN
        assert not client.connection.leave()
        await client.pages()
        assert there.seen[-1].headers["x-trino-transaction-id"] == "t1"
        await client.execute("ROLLBACK", native=True)
        await client.pages()
        assert there.seen[-1].headers["x-trino-transaction-id"] == "NONE"
