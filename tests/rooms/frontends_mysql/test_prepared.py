"""Prepared statements: prepare, execute, long data, reset, close, and their limits."""

import struct

import pyarrow as pa
import pytest

from queryflux.frontends.mysql import prepared
from queryflux.frontends.mysql.prepared import PreparedStatements
from queryflux.model.errors import EngineError, EngineErrorKind
from queryflux.model.statement import Parameter
from queryflux.results.answer import Done
from queryflux.wire.mysql.commands import LongData
from queryflux.wire.mysql.constants import Capability as ClientCapability
from queryflux.wire.mysql.errors import ServerError
from tests.kit.scripted import Step
from tests.rooms.frontends_mysql.fake import house
from tests.rooms.frontends_mysql.raw import DEFAULT, RawClient, error_number

VAR_STRING, LONG, BLOB = b"\xfd\0", b"\3\0", b"\xfc\0"


def execute(statement: int, types: bytes = b"", data: bytes = b"", nulls: bytes = b"") -> bytes:
    head = b"\x17" + struct.pack("<IBI", statement, 0, 1)
    return head + (nulls + b"\1" + types + data if types else b"")


async def prepare(client: RawClient, text: str) -> tuple[int, int, int]:
    """Prepare; returns the statement's number, its columns and its parameters."""
    first = await client.command(b"\x16" + text.encode())
    assert first[0] == 0, first
    number, columns, parameters = struct.unpack("<IHH", first[1:9])
    for _ in range(columns + parameters):
        assert (await client.receive())[:4] == b"\x03def"
    return number, columns, parameters


async def rest(client: RawClient) -> list[bytes]:
    packets = [await client.receive()]
    while packets[-1][0] not in (0xFE, 0xFF):
        packets.append(await client.receive())
    return packets


async def test_prepare_and_execute() -> None:
    async with house(steps={"q ?": Step(table=pa.table({"n": [1, None], "s": ["a", "b"]}))}) as place:
        async with RawClient(place.port) as client:
            await client.log_in()
            number, columns, parameters = await prepare(client, "q ?")
            assert (columns, parameters) == (0, 1)
            for value in (b"\3abc", b"\2de"):
                assert await client.command(execute(number, VAR_STRING, value, b"\0")) == b"\2"
                packets = await rest(client)
                assert packets[2:4] == [b"\0\0" + struct.pack("<q", 1) + b"\1a", b"\0\4\1b"]
            assert (await client.command(execute(number, VAR_STRING, b"", b"\1")))[0] == 2
            await rest(client)
        parameters_seen = [statement.parameters for statement in place.pipeline.statements]
        assert parameters_seen == [(Parameter("abc"),), (Parameter("de"),), (Parameter(None),)]


async def test_columns_are_told_when_the_engine_can_describe() -> None:
    table = pa.table({"n": [1], "s": ["a"]})
    async with (
        house(steps={"SELECT n, s FROM t": Step(table=table)}) as place,
        RawClient(place.port) as client,
    ):
        await client.log_in(capabilities=DEFAULT & ~ClientCapability.DEPRECATE_EOF)
        first = await client.command(b"\x16SELECT n, s FROM t")
        assert struct.unpack("<IHH", first[1:9]) == (1, 2, 0)
        await client.receive()
        await client.receive()
        assert (await client.receive())[0] == 0xFE
        assert place.pipeline.statements == []


async def test_statements_about_the_connection_can_be_prepared() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        number, columns, _ = await prepare(client, "SELECT @@autocommit, DATABASE(), 'x'")
        assert columns == 3
        assert await client.command(execute(number)) == b"\3"
        assert (await rest(client))[3] == b"\0\x08" + struct.pack("<q", 1) + b"\1x"
        number, _, _ = await prepare(client, "SET @a = 3")
        assert (await client.command(execute(number)))[0] == 0


async def test_a_write_answers_ok() -> None:
    steps = {"INSERT INTO t VALUES (?)": Step(done=Done("INSERT", 1))}
    async with house(steps=steps) as place, RawClient(place.port) as client:
        await client.log_in()
        number, _, _ = await prepare(client, "INSERT INTO t VALUES (?)")
        assert await client.command(execute(number, LONG, b"\5\0\0\0", b"\0")) == b"\0\1\0\2\0\0\0"


async def test_long_data_arrives_in_pieces() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        number, _, _ = await prepare(client, "q ?")
        for piece in (b"ab", b"\xff"):
            client.sequence = 0
            client.send(b"\x18" + struct.pack("<IH", number, 0) + piece)
        assert (await client.command(execute(number, BLOB, b"", b"\0")))[0] == 1
        await rest(client)
        assert place.pipeline.statements[0].parameters == (Parameter(b"ab\xff", "bytea"),)


async def test_long_data_over_the_limit_is_told_by_the_execution_once() -> None:
    async with house(max_statement_bytes=100) as place, RawClient(place.port) as client:
        await client.log_in()
        number, _, _ = await prepare(client, "q ?")
        for _ in range(3):
            client.sequence = 0
            client.send(b"\x18" + struct.pack("<IH", number, 0) + b"x" * 60)
        assert error_number(await client.command(execute(number, BLOB, b"", b"\0"))) == 1153
        assert (await client.command(execute(number, BLOB, b"\1y", b"\0")))[0] == 1
        await rest(client)


async def test_closed_and_unknown_statements() -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        number, _, _ = await prepare(client, "q")
        assert (await client.command(b"\x1a" + struct.pack("<I", number)))[0] == 0
        client.sequence = 0
        client.send(b"\x19" + struct.pack("<I", number))
        assert error_number(await client.command(execute(number))) == 1243
        assert error_number(await client.command(b"\x1a\x09\0\0\0")) == 1243
        number, _, _ = await prepare(client, "q")
        assert (await client.command(b"\x1f"))[0] == 0
        assert error_number(await client.command(execute(number))) == 1243


@pytest.mark.parametrize(
    ("kind", "refused"), [(EngineErrorKind.TABLE_NOT_FOUND, True), (EngineErrorKind.OTHER, False)]
)
async def test_what_a_client_is_told_when_it_prepares(kind: EngineErrorKind, refused: bool) -> None:
    async with house() as place, RawClient(place.port) as client:
        await client.log_in()
        error = EngineError("no", kind=kind)

        async def describe(request: object) -> None:
            raise error

        place.pipeline.conversations[0].connection.describe = describe  # type: ignore[assignment,method-assign]
        answer = await client.command(b"\x16SELECT n FROM t")
        assert (answer[0] == 0xFF) is refused
        assert (await client.command(b"\x0e"))[0] == 0


def test_how_many_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST_STATEMENTS", 2)
    monkeypatch.setattr(prepared, "MOST_TEXT", 10)
    statements = PreparedStatements(100)
    first = statements.prepare("12345", 0)
    with pytest.raises(ServerError) as caught:
        statements.prepare("123456", 0)
    assert caught.value.number == 1461
    statements.prepare("12345", 0)
    with pytest.raises(ServerError):
        statements.prepare("", 0)
    statements.close(first.number)
    assert statements.prepare("x", 0).number == 3
    assert len(statements) == 2
    with pytest.raises(ServerError):
        PreparedStatements(100).prepare("?" * 11, 11)


def test_long_data_for_a_parameter_that_is_not_there() -> None:
    statements = PreparedStatements(100)
    statement = statements.prepare("q ?", 1)
    statements.append(LongData(9, 0, b"x"))
    statements.append(LongData(statement.number, 1, b"x"))
    statements.append(LongData(statement.number, 0, b"x"))
    with pytest.raises(ServerError) as caught:
        statements.execution(execute(statement.number, VAR_STRING, b"\1y", b"\0"))
    assert caught.value.number == 1210
    _, parameters = statements.execution(execute(statement.number, VAR_STRING, b"\1y", b"\0"))
    assert parameters == (Parameter("y"),)
