"""The simple query protocol, message by message."""

import asyncio

import pyarrow as pa
import pytest

from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.results.answer import Done
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom, until
from tests.rooms.frontends_postgres.raw_client import fields, front, query

PEOPLE = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["ann", None]})


def scripted(**steps: Step) -> ScriptedEngine:
    """Answers by the statement's last word."""
    return ScriptedEngine(
        script=lambda request: steps.get(request.sql.split()[-1], Step()), dialect="postgres"
    )


async def test_rows(open_room: OpenRoom) -> None:
    room = await open_room(scripted(people=Step(PEOPLE)))
    client = await room.client()
    assert await client.ask(query("select * from people")) == [
        "T id,name", "D 1,ann", "D 2,NULL", "C SELECT 2", "Z I",
    ]  # fmt: skip
    client.close()
    await room.idle()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["I", "Z I"]),
        (" ;; -- nothing\n", ["I", "Z I"]),
        ("select 1;", ["T x", "D 1", "C SELECT 1", "Z I"]),
        ("select 1; select 2", ["T x", "D 1", "C SELECT 1", "T x", "D 1", "C SELECT 1", "Z I"]),
        ("explain select 1", ["T x", "D 1", "C EXPLAIN", "Z I"]),
        ("insert into t values (1) returning x", ["T x", "D 1", "C INSERT 0 1", "Z I"]),
        ("delete from t", ["C DELETE 7", "Z I"]),
        ("create table t", ["C CREATE TABLE", "Z I"]),
        ("select 1; selec oops; select 2", ["T x", "D 1", "C SELECT 1", "E 42601", "Z I"]),
    ],
)
async def test_command_tags(open_room: OpenRoom, text: str, expected: list[str]) -> None:
    def script(sql: str) -> Step:
        if sql.startswith("delete"):
            return Step(done=Done("DELETE", 7))
        if sql.startswith("create"):
            return Step(done=Done("CREATE TABLE"))
        if sql.startswith("selec "):
            return Step(error=EngineError("no", kind=EngineErrorKind.SYNTAX, position=0))
        return Step()

    room = await open_room(ScriptedEngine(script=lambda request: script(request.sql), dialect="postgres"))
    client = await room.client()
    assert await client.ask(query(text)) == expected
    client.close()
    await room.idle()


async def test_an_error_points_into_the_text_that_was_sent(open_room: OpenRoom) -> None:
    failing = Step(error=EngineError("no", kind=EngineErrorKind.SYNTAX, position=2, hint="h"))
    room = await open_room(scripted(oops=failing))
    client = await room.client()
    client.send(query("  select 1;  select oops"))
    found = dict(await client.until("Z"))
    assert fields(found["E"]) == {"S": "ERROR", "V": "ERROR", "C": "42601", "M": "no", "H": "h", "P": "16"}
    client.close()


async def test_several_statements_run_in_one_transaction(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    await client.ask(query("select 1; select 2"))
    assert room.engine.statements == ["BEGIN", "select 1", "select 2", "COMMIT"]
    client.close()


async def test_the_first_error_of_several_rolls_all_back(open_room: OpenRoom) -> None:
    room = await open_room(scripted(oops=Step(error=EngineError("no"))))
    client = await room.client()
    assert await client.ask(query("select 1; select oops; select 3")) == [
        "T x", "D 1", "C SELECT 1", "E XX000", "Z I",
    ]  # fmt: skip
    assert room.engine.statements == ["BEGIN", "select 1", "select oops", "ROLLBACK"]
    assert await client.ask(query("select 1")) == ["T x", "D 1", "C SELECT 1", "Z I"]
    client.close()


async def test_a_transaction_and_what_readyforquery_says_of_it(open_room: OpenRoom) -> None:
    room = await open_room(scripted(oops=Step(error=EngineError("no"))))
    client = await room.client()
    assert await client.ask(query("BEGIN")) == ["C BEGIN", "Z T"]
    assert await client.ask(query("begin")) == ["N 25001", "C BEGIN", "Z T"]
    assert (await client.ask(query("select 1")))[-1] == "Z T"
    assert await client.ask(query("select oops")) == ["E XX000", "Z E"]
    assert await client.ask(query("select 1")) == ["E 25P02", "Z E"]
    assert await client.ask(query("show timezone")) == ["E 25P02", "Z E"]
    assert await client.ask(query("COMMIT")) == ["C ROLLBACK", "Z I"]
    assert await client.ask(query("commit")) == ["N 25P01", "C COMMIT", "Z I"]
    assert await client.ask(query("start transaction")) == ["C START TRANSACTION", "Z T"]
    assert await client.ask(query("rollback")) == ["C ROLLBACK", "Z I"]
    client.close()
    await room.idle()


async def test_a_pipelined_query_waits_and_does_not_disturb_the_one_that_runs(open_room: OpenRoom) -> None:
    gate = asyncio.Event()
    room = await open_room(scripted(slow=Step(gate=gate)))
    client = await room.client()
    client.send(query("select slow"), query("select 2"))
    await until(lambda: room.engine.requests)
    client.send(query("select 3"))
    assert room.engine.statements == ["select slow"]
    gate.set()
    for _ in range(3):
        assert [kind for kind, _ in await client.until("Z")] == ["T", "D", "C", "Z"]
    assert room.engine.cancels == 0
    client.close()


async def test_a_statement_over_the_limit_is_refused_and_the_session_goes_on(open_room: OpenRoom) -> None:
    room = await open_room(max_statement_bytes=1000)
    client = await room.client()
    assert await client.ask(query("select '" + "x" * 100_000 + "'")) == ["E 54000", "Z I"]
    assert await client.ask(query("select 1")) == ["T x", "D 1", "C SELECT 1", "Z I"]
    client.close()


async def test_a_query_that_is_not_utf8(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    assert await client.ask(front("Q", b"select '\xe9'\0")) == ["E 22021", "Z I"]
    assert (await client.ask(query("select 1")))[-1] == "Z I"
    client.close()


async def test_many_batches_and_many_rows(open_room: OpenRoom) -> None:
    table = pa.table({"n": pa.array(range(30_000), pa.int64()), "t": ["x" * 20] * 30_000})
    room = await open_room(scripted(big=Step(table, rows_per_batch=12_000)))
    client = await room.client()
    found = await client.ask(query("select * from big"))
    assert found[1] == f"D 0,{'x' * 20}"
    assert found[30_000] == f"D 29999,{'x' * 20}"
    assert found[30_001:] == ["C SELECT 30000", "Z I"]
    client.close()
    await room.idle()


async def test_a_failure_midway_comes_after_the_rows(open_room: OpenRoom) -> None:
    room = await open_room(scripted(people=Step(PEOPLE, rows_per_batch=1, fail_after=1)))
    client = await room.client()
    assert await client.ask(query("select * from people")) == ["T id,name", "D 1,ann", "E XX000", "Z I"]
    client.close()
    await room.idle()


async def test_function_calls_and_stray_copy_data(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    assert await client.ask(front("F", b"\0" * 10)) == ["E 0A000", "Z I"]
    client.send(front("d", b"row\n"), front("c"), front("f", b"no\0"))
    assert (await client.ask(query("select 1")))[-1] == "Z I"
    client.close()


async def test_the_number_of_a_session_in_any_case(open_room: OpenRoom) -> None:
    room = await open_room()
    client = await room.client()
    for text in ("SELECT PG_BACKEND_PID()", "select pg_catalog.Pg_Backend_Pid() as X;"):
        for _ in range(2):
            name = "x" if "X" in text else "pg_backend_pid"
            assert await client.ask(query(text)) == [f"T {name}", f"D {client.process}", "C SELECT 1", "Z I"]
    assert room.engine.statements == []
    client.close()
    await room.idle()
