"""Statements that no engine runs: catalog questions end when they are cancelled, and leave no record."""

import asyncio

import pytest

from queryflux.engines.port import TableRef
from queryflux.model.errors import QueryCancelled
from queryflux.results.answer import Batches
from tests.kit.clock import settle
from tests.kit.pipelines import bench, statement
from tests.kit.scripted import ScriptedEngine


class SlowListing(ScriptedEngine):
    """An engine whose list of tables comes when it is let go."""

    def __init__(self) -> None:
        super().__init__(dialect="duckdb")
        self.go = asyncio.Event()

    async def tables(self) -> list[TableRef]:
        await self.go.wait()
        return [TableRef("files", "main", "orders")]


QUESTION = "SELECT relname FROM pg_catalog.pg_class WHERE relkind = 'r' AND relname = 'orders'"


async def test_a_catalog_question_is_answered_without_slot_or_record() -> None:
    engine = SlowListing()
    engine.go.set()
    table = bench(engine, limit=1)
    query = table.talk().submit(statement(QUESTION))
    answer = await query.start()
    assert isinstance(answer, Batches)
    batch = await query.next()
    assert batch is not None
    await query.close()
    assert engine.statements == []
    assert table.records == []
    table.assert_idle()


async def test_cancel_ends_a_catalog_question_that_waits() -> None:
    table = bench(SlowListing())
    query = table.talk().submit(statement(QUESTION))
    starting = asyncio.create_task(query.start())
    await settle()
    await query.cancel()
    with pytest.raises(QueryCancelled):
        await starting


async def test_a_client_that_goes_ends_it_too() -> None:
    table = bench(SlowListing())
    query = table.talk().submit(statement(QUESTION))
    starting = asyncio.create_task(query.start())
    await settle()
    await query.close()
    with pytest.raises(QueryCancelled):
        await starting
