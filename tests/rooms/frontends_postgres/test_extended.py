"""The extended query protocol, message by message."""

import struct

import pyarrow as pa
import pytest

from queryflux.engines.port import EngineRequest
from queryflux.model.errors import EngineError
from queryflux.results.answer import Done
from queryflux.wire.postgres.errors import PostgresError
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom
from tests.rooms.frontends_postgres.raw_client import (
    FLUSH,
    SYNC,
    bind,
    close,
    describe,
    described,
    execute,
    front,
    parse,
    query,
    values,
)

FIVE = pa.table({"n": pa.array(range(5), pa.int32())})


def engine() -> ScriptedEngine:
    def script(sql: str) -> Step:
        word = sql.split()[-1]
        if word == "oops":
            return Step(error=EngineError("no"))
        if word == "five":
            return Step(FIVE, rows_per_batch=2)
        if sql.startswith("delete"):
            return Step(done=Done("DELETE", 3))
        return Step()

    return ScriptedEngine(script=lambda request: script(request.sql), dialect="postgres")


async def test_parse_bind_describe_execute_sync_in_one_packet(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(parse("select 1"), bind(), describe(), execute(), SYNC) == [
        "1", "2", "T x", "D 1", "C SELECT 1", "Z I",
    ]  # fmt: skip
    assert room.engine.statements == ["select 1"]
    client.close()
    await room.idle()


async def test_each_message_alone_gives_the_same(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    for data, expected in (
        (parse("select 1", "s"), "1"),
        (bind(statement="s", portal="p"), "2"),
        (describe("S", "s"), "t"),
    ):
        client.send(data, FLUSH)
        assert (await client.message())[0] == expected
    assert (await client.message())[0] == "T"
    client.send(describe("P", "p"), FLUSH)
    assert (await client.message())[0] == "T"
    client.send(execute("p"), FLUSH)
    assert [(await client.message())[0] for _ in range(2)] == ["D", "C"]
    assert await client.ask(SYNC) == ["Z I"]
    client.close()


async def test_binary_results_and_their_description(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    client.send(parse("select 1"), bind(results=(1,)), describe(), execute(), SYNC)
    found = dict(await client.until("Z"))
    assert described(found["T"]) == [("x", 23, 1)]
    assert values(found["D"]) == [struct.pack("!i", 1)]
    client.close()


async def test_parameters_reach_the_engine_as_values(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    client.send(parse("select $1, $2", oids=(23, 25)), bind(struct.pack("!i", 7), None, formats=(1,)))
    assert (await client.ask(execute(), SYNC))[-1] == "Z I"
    (request,) = room.engine.requests
    assert [(p.value, p.type_name) for p in request.parameters] == [(7, "integer"), (None, "text")]
    assert await client.ask(bind(b"x", b"y", formats=(0,)), execute(), SYNC) == [
        "2",
        "D 1",
        "C SELECT 1",
        "Z I",
    ]
    with pytest.raises(PostgresError, match=r"parameter \$1 of type integer"):
        list(room.engine.requests[1].parameters)


async def test_types_that_a_client_names_reach_the_engine_with_describe(open_room: OpenRoom) -> None:
    asked: list[list[tuple[object, str]]] = []

    def script(request: EngineRequest) -> Step:
        asked.append([(parameter.value, parameter.type_name) for parameter in request.parameters])
        return Step()

    room = await open_room(ScriptedEngine(script=script, dialect="postgres"))
    client = await room.client()
    await client.ask(parse("select $1, $2", "s", (23, 0)), describe("S", "s"), SYNC)
    assert asked == [[(None, "integer"), (None, "")]]
    client.close()


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("select 1", 2),
        ("with x as (select 1) select * from x", 2),
        ("explain select 1", 2),
        ("insert into t values (1) returning x", 3),
        ("merge into t using u on true when matched then delete returning x", 3),
        ("call p()", 3),
    ],
)
async def test_only_what_writes_is_looked_at_again(open_room: OpenRoom, sql: str, asked: int) -> None:
    """Once described, and before it runs."""
    seen: list[str] = []

    def script(request: EngineRequest) -> Step:
        seen.append(request.sql)
        return Step()

    room = await open_room(ScriptedEngine(script=script, dialect="postgres"))
    client = await room.client()
    await client.ask(parse(sql, "s"), describe("S", "s"), SYNC)
    assert (await client.ask(bind(statement="s"), execute(), SYNC))[:2] == ["2", "D 1"]
    assert len(seen) == asked
    client.close()


async def test_a_row_limit_suspends_and_goes_on_in_a_transaction(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(query("begin"))
    assert await client.ask(parse("select five"), bind(portal="p"), execute("p", 2), SYNC) == [
        "1", "2", "D 0", "D 1", "s", "Z T",
    ]  # fmt: skip
    assert await client.ask(execute("p", 2), SYNC) == ["D 2", "D 3", "s", "Z T"]
    assert await client.ask(execute("p", 2), SYNC) == ["D 4", "C SELECT 1", "Z T"]
    assert await client.ask(execute("p"), SYNC) == ["C SELECT 0", "Z T"]
    assert await client.ask(query("commit"), SYNC) == ["C COMMIT", "Z I"]
    assert await client.ask() == ["Z I"]
    assert await client.ask(execute("p"), SYNC) == ["E 34000", "Z I"]
    assert room.engine.statements.count("select five") == 1
    client.close()
    await room.idle()


async def test_a_suspended_portal_does_not_outlive_its_implicit_transaction(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert (await client.ask(parse("select five"), bind(), execute(limit=1), SYNC))[-2:] == ["s", "Z I"]
    assert await client.ask(execute(), SYNC) == ["E 34000", "Z I"]
    room.bench.assert_idle()
    assert [record.status for record in room.bench.records] == ["Success"]
    client.close()


async def test_another_statement_beside_a_suspended_portal(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(query("begin"))
    await client.ask(parse("select five"), bind(portal="p"), execute("p", 1), SYNC)
    assert await client.ask(parse("select 1"), bind(), execute(), SYNC) == [
        "1", "2", "D 1", "C SELECT 1", "Z T",
    ]  # fmt: skip
    assert (await client.ask(query("select 1")))[-1] == "Z T"
    assert await client.ask(execute("p", 2), SYNC) == ["D 1", "D 2", "s", "Z T"]
    assert await client.ask(close("P", "p"), SYNC) == ["3", "Z T"]
    await client.ask(query("rollback"))
    client.close()
    await room.idle()


async def test_after_an_error_everything_is_skipped_to_sync(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(
        parse("select oops"), bind(), execute(), parse("select 1"), bind(), execute(), query("select 2"), SYNC
    ) == ["1", "2", "E XX000", "Z I"]
    assert room.engine.statements == ["BEGIN", "select oops", "ROLLBACK"]
    assert (await client.ask(query("select 1")))[-1] == "Z I"
    client.close()
    await room.idle()


async def test_pipelined_statements_before_one_sync_are_one_transaction(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    one = (parse("select 1"), bind(), execute())
    assert (await client.ask(*one, *one, SYNC)).count("C SELECT 1") == 2
    assert room.engine.statements == ["BEGIN", "select 1", "select 1", "COMMIT"]
    client.close()


async def test_names(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(parse("select 1", "s"), SYNC) == ["1", "Z I"]
    assert await client.ask(parse("select 2", "s"), SYNC) == ["E 42P05", "Z I"]
    assert await client.ask(parse("select 1"), parse("select five"), bind(), execute(limit=1), SYNC) == [
        "1", "1", "2", "D 0", "s", "Z I",
    ]  # fmt: skip
    assert await client.ask(bind(statement="nope"), SYNC) == ["E 26000", "Z I"]
    assert await client.ask(bind(portal="p", statement="s"), bind(portal="p", statement="s"), SYNC) == [
        "2", "E 42P03", "Z I",
    ]  # fmt: skip
    assert await client.ask(describe("S", "nope"), SYNC) == ["E 26000", "Z I"]
    assert await client.ask(close("S", "nope"), close("P", "nope"), close("S", "s"), SYNC) == [
        "3", "3", "3", "Z I",
    ]  # fmt: skip
    assert await client.ask(bind(statement="s"), SYNC) == ["E 26000", "Z I"]
    client.close()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", ["1", "2", "n", "I", "Z I"]),
        ("-- nothing", ["1", "2", "n", "I", "Z I"]),
        ("delete from t", ["1", "2", "n", "C DELETE 3", "Z I"]),
        ("begin", ["1", "2", "n", "C BEGIN", "Z T"]),
        ("set x.y = '1'", ["1", "2", "n", "C SET", "Z I"]),
        ("show timezone", ["1", "2", "T TimeZone", "D UTC", "C SHOW", "Z I"]),
        ("show application_name", ["1", "2", "T application_name", "D ", "C SHOW", "Z I"]),
        ("deallocate all", ["1", "2", "n", "C DEALLOCATE ALL", "Z I"]),
    ],
)
async def test_statements_of_every_kind(open_room: OpenRoom, sql: str, expected: list[str]) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(parse(sql), bind(), describe(), execute(), SYNC) == expected
    client.close()
    await room.idle()


async def test_several_commands_in_a_prepared_statement(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(parse("select 1; select 2"), bind(), SYNC) == ["E 42601", "Z I"]
    assert await client.ask(parse("select 1 ;"), bind(), execute(), SYNC) == [
        "1", "2", "D 1", "C SELECT 1", "Z I",
    ]  # fmt: skip
    client.close()


async def test_a_body_that_is_broken_is_an_error_and_not_the_end(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(front("B", b"\0"), SYNC) == ["E 08P01", "Z I"]
    assert await client.ask(front("D", b"Q\0"), SYNC) == ["E 08P01", "Z I"]
    assert (await client.ask(query("select 1")))[-1] == "Z I"
    client.close()


async def test_deallocate_forgets_prepared_statements_of_the_protocol(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(parse("select 1", "_pg3_0"), SYNC)
    assert await client.ask(query('DEALLOCATE "_pg3_0"')) == ["C DEALLOCATE", "Z I"]
    assert await client.ask(query('DEALLOCATE "_pg3_0"')) == ["E 26000", "Z I"]
    assert await client.ask(bind(statement="_pg3_0"), SYNC) == ["E 26000", "Z I"]
    client.close()


async def test_a_simple_query_drops_the_unnamed_statement(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    await client.ask(parse("select 1"), SYNC)
    await client.ask(query("select 1"))
    assert await client.ask(bind(), SYNC) == ["E 26000", "Z I"]
    client.close()


@pytest.mark.parametrize("sql", ["copy t from stdin", "declare c cursor for select 1", "listen x"])
async def test_what_only_postgresql_can_do_is_refused_elsewhere(open_room: OpenRoom, sql: str) -> None:
    room = await open_room(engine())
    client = await room.client()
    assert await client.ask(query(sql)) == ["E 0A000", "Z I"]
    assert await client.ask(parse(sql), describe("S"), SYNC) == ["1", "E 0A000", "Z I"]
    assert await client.ask(parse(sql), bind(), execute(), SYNC) == ["1", "2", "E 0A000", "Z I"]
    assert await client.ask(query("close all; unlisten *")) == ["C CLOSE CURSOR ALL", "C UNLISTEN", "Z I"]
    assert room.engine.requests == []
