"""COPY TO STDOUT, read and answered, and what else only PostgreSQL has."""

import asyncio
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.frontends.postgres.copy import CopyOut, read_copy_out
from queryflux.model.errors import EngineError, InvalidRequest
from tests.kit.scripted import ScriptedEngine, Step
from tests.rooms.frontends_postgres.conftest import OpenRoom
from tests.rooms.frontends_postgres.raw_client import SYNC, bind, describe, execute, fields, parse, query

TEXT: dict[str, Any] = {
    "csv": False, "header": False, "delimiter": "\t", "null": "\\N", "quote": '"', "escape": '"',
    "force_quote": (),
}  # fmt: skip
ALL = "SELECT *\nFROM t"
CSV: dict[str, Any] = {**TEXT, "csv": True, "delimiter": ",", "null": ""}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("copy t to stdout", CopyOut(ALL, None, TEXT)),
        ('COPY "S".t ( a, "b)" ) TO STDOUT;', CopyOut('SELECT a, "b)"\nFROM "S".t', None, TEXT)),
        ("copy (select ')' -- )\n) to stdout", CopyOut("select ')' -- )", 6, TEXT)),
        ("copy ( select $q$)$q$, E'\\')', f(1)) to stdout csv",
         CopyOut("select $q$)$q$, E'\\')', f(1)", 7, CSV)),
        ("/* x */ copy t to stdout with csv header", CopyOut(ALL, None, CSV | {"header": True})),
        (
            "copy t to stdout (format 'CSV', header off, delimiter E'\\t', null 'x', quote '''', escape "
            "'\\', "
            "force_quote (a, \"B\"), encoding 'UTF-8')",
            CopyOut(ALL, None, CSV | {
                "delimiter": "\t", "null": "x", "quote": "'", "escape": "\\", "force_quote": ("a", "B"),
            }),
        ),
        (
            "copy t to stdout with delimiter as '|' null as '' csv quote as '!' force quote a, b",
            CopyOut(ALL, None, CSV | {
                "delimiter": "|", "quote": "!", "escape": "!", "force_quote": ("a", "b"),
            }),
        ),
        ("copy t from stdin", None),
        ("copy t to '/tmp/x'", None),
    ],
)  # fmt: skip
def test_reading(text: str, found: CopyOut | None) -> None:
    assert read_copy_out(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "copy",
        "copy (select 1 to stdout",
        "copy (select 'x) to stdout",
        "copy binary t to stdout",
        "copy t to stdout (format binary)",
        "copy t to stdout (format parquet)",
        "copy t to stdout (freeze)",
        "copy t to stdout (encoding 'latin1')",
        "copy t to stdout (quote '!')",
        "copy t to stdout (delimiter 'ab')",
        "copy t to stdout (delimiter 'a')",
        "copy t to stdout (format csv, delimiter '\"')",
        "copy t to stdout (format csv, null ',')",
        "copy t to stdout (header match)",
        "copy t to stdout (format csv",
        "copy t to stdout force",
        "copy (select '" + "x" * 100_000 + "') to stdout",
    ],
)
def test_what_is_wrong_with_it(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_copy_out(text)


@given(st.text("copy()to stdout wih'\"$-/*\\E,;.1", max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"copy {text}", f"copy t to stdout {text}"):
        with suppress(InvalidRequest):
            read_copy_out(whole)


def engine() -> ScriptedEngine:
    table = pa.table({"n": pa.array(range(30_000), pa.int32()), "t": ["x,"] * 30_000})

    def step(sql: str) -> Step:
        if "oops" in sql:
            return Step(error=EngineError("no", position=7))
        if "midway" in sql:
            return Step(table, rows_per_batch=100, fail_after=1)
        return Step(table, rows_per_batch=12_000)

    return ScriptedEngine(script=lambda request: step(request.sql), dialect="postgres")


async def test_copy_to_stdout(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    client.send(query("copy (select * from t) to stdout (format csv, header)"))
    found = await client.until("Z")
    assert [kind for kind, _ in found] == ["H", *"d" * 30_001, "c", "C", "Z"]
    assert found[1][1] == b"n,t\n"
    assert found[-4][1] == b'29999,"x,"\n'
    assert found[-2][1] == b"COPY 30000\0"
    assert room.engine.statements == ["select * from t"]
    client.close()
    await room.idle()


async def test_a_copy_that_fails(open_room: OpenRoom) -> None:
    room = await open_room(engine())
    client = await room.client()
    client.send(query("copy (select oops) to stdout"))
    assert fields(dict(await client.until("Z"))["E"])["P"] == "14"
    client.send(query("copy oops to stdout"))
    assert "P" not in fields(dict(await client.until("Z"))["E"])
    client.send(query("copy midway to stdout"))
    assert [kind for kind, _ in await client.until("Z")] == ["H", *"d" * 100, "E", "Z"]
    assert await client.ask(query("copy (delete from t) to stdout")) == ["E 0A000", "Z I"]
    assert await client.ask(query("copy (select 1) to stdout (format binary)")) == ["E 0A000", "Z I"]
    assert await client.ask(parse("copy t to stdout"), bind(), execute(), SYNC) == [
        "1",
        "2",
        "E 0A000",
        "Z I",
    ]
    assert (await client.ask(query("select 1; copy t to stdout; select 2")))[-2:] == ["C SELECT 30000", "Z I"]
    client.close()
    await room.idle()


@pytest.mark.parametrize(
    "statement",
    [
        "declare c cursor for select 1",
        "fetch 1 from c",
        "move c",
        "close c",
        "listen x",
        "notify x",
        "lock table t",
        "copy t from stdin",
    ],
)
async def test_what_only_postgres_has_is_refused_with_a_sentence(open_room: OpenRoom, statement: str) -> None:
    room = await open_room(engine())
    client = await room.client()
    client.send(query(statement))
    found = fields(dict(await client.until("Z"))["E"])
    assert found["C"] == "0A000"
    assert "supported on this cluster" in found["M"]
    assert found["H"]
    assert await client.ask(parse(statement), bind(), describe(), execute(), SYNC) == [
        "1",
        "2",
        "E 0A000",
        "Z I",
    ]
    assert await client.ask(parse(statement), describe("S"), SYNC) == ["1", "E 0A000", "Z I"]
    assert room.engine.requests == []
    client.close()


async def test_a_timeout_counts_from_the_statement_that_sets_it(open_room: OpenRoom) -> None:
    engine = ScriptedEngine(script=lambda _: Step(gate=asyncio.Event()), dialect="postgres")
    room = await open_room(engine)
    client = await room.client()
    client.send(query("set statement_timeout = '10ms'; select 1"))
    found = fields(dict(await client.until("Z"))["E"])
    assert (found["C"], found["M"]) == ("57014", "canceling statement due to statement timeout")
    client.send(query("copy (select 1) to stdout"))
    assert fields(dict(await client.until("Z"))["E"])["C"] == "57014"
