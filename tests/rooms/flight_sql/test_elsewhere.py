"""Tickets that reach a sibling: redeemed, cancelled, refused, and gone with their process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pyarrow as pa
import pytest

from queryflux.engines.port import EngineRequest
from queryflux.frontends.flight_sql.caller import Client
from queryflux.frontends.flight_sql.errors import ToldElsewhere, to_status
from queryflux.frontends.flight_sql.service import FlightSqlService
from queryflux.frontends.flight_sql.stream import Opened
from queryflux.model.endings import EndReason
from queryflux.model.errors import EngineError, EngineErrorKind, QueryNotFound
from queryflux.runtime.siblings import Siblings
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import encode
from tests.kit.metrics import NoMetrics
from tests.kit.pipelines import Bench, bench, identity
from tests.kit.scripted import ScriptedEngine, Step
from tests.kit.siblings import siblings

ANNE = Client(identity("anne"), {"x-workload": "bi"}, "127.0.0.1:1")
BOB = Client(identity("bob"), {}, "127.0.0.1:2")
NUMBERS = pa.table({"n": list(range(100_000)), "t": ["text"] * 100_000})


@dataclass
class Side:
    """One process."""

    service: FlightSqlService
    bench: Bench
    siblings: Siblings

    async def ticket(self, sql: str = "SELECT 1") -> bytes:
        ticket, _ = await self.service.ticket(ANNE, m.CommandStatementQuery(sql, b""))
        return ticket

    async def open(self, ticket: bytes, client: Client = ANNE) -> Opened:
        opened = Opened()
        await self.service.open(client, ticket, opened)
        return opened

    @property
    def reasons(self) -> list[EndReason]:
        return [record.reason for record in self.bench.history.newest()]


@asynccontextmanager
async def two(script: Callable[[EngineRequest], Step]) -> AsyncIterator[tuple[Side, Side]]:
    """The owner of every ticket, and another one."""
    async with siblings("owner", "other") as made:
        sides = []
        for sibling in made:
            behind = bench(ScriptedEngine(script=script))
            service = FlightSqlService(
                behind.pipeline,
                behind.clock,
                sibling.tag,
                most_results=0,
                refused=NoMetrics().counter("refused"),
                siblings=sibling,
            )
            sides.append(Side(service, behind, sibling))
        owner, other = sides
        yield owner, other
        for side in sides:
            await side.service.close()
        for side in sides:
            side.bench.assert_idle()


async def rows_of(opened: Opened) -> list[object]:
    batches = []
    while (batch := await opened.next()) is not None:
        batches.append(batch)
    rows: list[object] = pa.Table.from_batches(batches, opened.schema).to_pylist()
    return rows


async def test_the_rows_come_from_the_owner_and_the_query_is_its() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=30_000)) as (owner, other):
        opened = await other.open(await owner.ticket())
        assert opened.schema == NUMBERS.schema
        assert await rows_of(opened) == NUMBERS.to_pylist()
        (record,) = owner.bench.history.newest()
        assert (record.username, record.reason) == ("anne", EndReason.COMPLETED)
        assert other.reasons == []


async def test_who_may_not_have_it_here_may_not_have_it_there() -> None:
    async with two(lambda request: Step(NUMBERS)) as (owner, other):
        ticket = await owner.ticket()
        with pytest.raises(ToldElsewhere, match="belongs to another user") as refused:
            await other.open(ticket, BOB)
        assert type(to_status(refused.value)).__name__ == "FlightUnauthorizedError"
        await (await other.open(ticket)).close()
        with pytest.raises(ToldElsewhere, match="unknown, used or older"):
            await other.open(ticket)


async def test_a_second_fetch_of_a_ticket_does_not_hide_the_first_from_the_drain() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=1000)) as (owner, other):
        ticket = await owner.ticket()
        opened = await other.open(ticket)
        with pytest.raises(ToldElsewhere, match="unknown, used or older"):
            await other.open(ticket)
        drained = asyncio.ensure_future(other.service.wait_for_results())
        await asyncio.sleep(0)
        assert not drained.done()
        assert await rows_of(opened) == NUMBERS.to_pylist()
        await opened.close()
        await asyncio.wait_for(drained, 5)


async def test_an_error_keeps_its_status() -> None:
    failure = EngineError("too much", kind=EngineErrorKind.OUT_OF_RANGE, hint="ask for less")
    async with two(lambda request: Step(error=failure)) as (owner, other):
        with pytest.raises(ToldElsewhere, match="too much") as told:
            await other.open(await owner.ticket())
        status = to_status(told.value)
        assert (type(status).__name__, str(status)) == ("InvalidArgument", "too much\nHint: ask for less")


async def test_an_error_after_rows_is_told_after_them() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=60_000, fail_after=1)) as (owner, other):
        opened = await other.open(await owner.ticket())
        assert await opened.next() is not None
        with pytest.raises(ToldElsewhere, match="failed midway"):
            await rows_of(opened)
        assert owner.reasons == [EndReason.FAILED]


async def test_a_cancel_reaches_the_owner_and_so_does_a_client_that_goes() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=1000)) as (owner, other):
        ticket = await owner.ticket()
        opened = await other.open(ticket)
        assert await other.service.cancel(ANNE, info(ticket)) is m.CancelStatus.CANCELLED
        assert owner.reasons == [EndReason.CANCELLED]
        await opened.close()
        waiting = await owner.ticket()
        assert await other.service.cancel(ANNE, info(waiting)) is m.CancelStatus.CANCELLED
        opened = await other.open(await owner.ticket())
        await opened.close()
        async with asyncio.timeout(5):
            while len(owner.reasons) < 2:  # noqa: ASYNC110 - two processes, and no event between them
                await asyncio.sleep(0.01)


async def test_a_ticket_of_a_process_that_has_gone_is_gone_at_once() -> None:
    async with two(lambda request: Step(NUMBERS, rows_per_batch=1000)) as (owner, other):
        ticket, later = await owner.ticket(), await owner.ticket()
        opened = await other.open(ticket)
        await owner.siblings.close()
        with pytest.raises(QueryNotFound, match="the process of this result has gone"):
            await rows_of(opened)
        await opened.close()
        with pytest.raises(QueryNotFound, match="the process of this ticket has gone"):
            await other.open(later)
        with pytest.raises(QueryNotFound, match="the process of this query has gone"):
            await other.service.cancel(ANNE, info(later))


def info(ticket: bytes) -> bytes:
    """A FlightInfo with one endpoint."""
    return encode(m.FlightInfo((encode(m.FlightEndpoint(encode(m.Ticket(ticket)))),)))
