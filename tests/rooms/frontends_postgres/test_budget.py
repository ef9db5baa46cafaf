"""What one client can make the door keep."""

from typing import Any

import pyarrow as pa
import pytest

from queryflux.frontends.postgres import budget as budgets
from queryflux.frontends.postgres.budget import Budget
from queryflux.frontends.postgres.portals import MAX_PORTALS
from queryflux.frontends.postgres.prepared import MAX_STATEMENTS
from queryflux.wire.postgres.errors import PostgresError
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom
from tests.rooms.frontends_postgres.raw_client import SYNC, bind, close, execute, parse, query

SMALL = 100_000


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """Budgets of SMALL bytes, in the order in which sessions got them."""
    made: list[Budget] = []

    def small() -> Budget:
        made.append(Budget(SMALL))
        return made[-1]

    monkeypatch.setattr("queryflux.frontends.postgres.client.Budget", small)
    return made


def text(size: int) -> str:
    return "select 1 /* " + "x" * size + " */"


def test_the_budget_is_that_of_the_mysql_door() -> None:
    held = Budget()
    held.take(budgets.HELD_BYTES)
    with pytest.raises(PostgresError, match="limited to 64 MiB") as caught:
        held.take(1)
    assert caught.value.sqlstate == "53200"


async def test_statements_are_counted_by_their_bytes(open_room: OpenRoom, budget: list[Budget]) -> None:
    client = await (await open_room()).client()
    assert await client.ask(parse(text(60_000), "a"), SYNC) == ["1", "Z I"]
    assert await client.ask(parse(text(60_000), "b"), SYNC) == ["E 53200", "Z I"]
    assert await client.ask(parse(text(90_000)), bind(), execute(), SYNC) == [
        "1", "2", "D 1", "C SELECT 1", "Z I",
    ]  # fmt: skip
    assert await client.ask(close("S", "a"), parse(text(60_000), "b"), SYNC) == ["3", "1", "Z I"]
    assert await client.ask(query("deallocate b")) == ["C DEALLOCATE", "Z I"]
    assert await client.ask(parse(text(60_000), "c"), SYNC) == ["1", "Z I"]
    assert await client.ask(query("discard all")) == ["C DISCARD ALL", "Z I"]
    assert budget[0].held == 0


async def test_portals_count_what_was_bound_to_them_and_their_statement(
    open_room: OpenRoom, budget: list[Budget]
) -> None:
    client = await (await open_room()).client()
    await client.ask(query("begin"))
    value = b"x" * 40_000
    assert await client.ask(parse("select $1"), bind(value, portal="a"), bind(value, portal="b"), SYNC) == [
        "1", "2", "2", "Z T",
    ]  # fmt: skip
    assert await client.ask(bind(value, portal="c"), SYNC) == ["E 53200", "Z T"]
    await client.ask(query("rollback"))
    assert budget[0].held == 0
    await client.ask(query("begin"))
    assert (await client.ask(parse(text(60_000)), bind(portal="a"), bind(portal="b"), SYNC))[2] == "E 53200"
    await client.ask(query("rollback"))
    assert budget[0].held == 0


@pytest.mark.parametrize("rows", [1_000, 100_000])
async def test_rows_of_suspended_portals_are_counted(
    open_room: OpenRoom, budget: list[Budget], rows: int
) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    engine = ScriptedEngine(
        script=lambda request: Step(table, rows_per_batch=100) if "many" in request.sql else Step(),
        dialect="postgres",
    )
    room = await open_room(engine)
    client = await room.client()
    await client.ask(query("begin"))
    await client.ask(parse("select many"), bind(portal="p"), execute("p", 1), SYNC)
    if rows * 8 < SMALL:
        assert (await client.ask(query("select 1")))[-1] == "Z T"
        assert 8 * rows <= budget[0].held <= SMALL
        assert (await client.ask(execute("p"), SYNC))[-2:] == ["C SELECT 999", "Z T"]
    else:
        assert await client.ask(query("select 1")) == ["E 53200", "Z T"]
        assert (await client.ask(query("select 1")))[-1] == "Z T"
    await client.ask(query("rollback"))
    assert budget[0].held == 0
    client.close()
    await room.idle()


async def test_there_are_only_so_many(open_room: OpenRoom) -> None:
    client = await (await open_room()).client()
    many: list[Any] = [parse("select 1", f"s{index}") for index in range(MAX_STATEMENTS)]
    assert set(await client.ask(*many, SYNC)) == {"1", "Z I"}
    assert await client.ask(parse("select 1", "one more"), SYNC) == ["E 53400", "Z I"]
    assert await client.ask(parse("select 1"), SYNC) == ["1", "Z I"]
    many = [bind(portal=f"p{index}") for index in range(MAX_PORTALS)]
    assert set(await client.ask(*many, bind(portal="one more"), SYNC)) == {"2", "E 53400", "Z I"}
