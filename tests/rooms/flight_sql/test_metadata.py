"""The Get* commands over information_schema as an engine answers it."""

import pyarrow as pa
import pytest

from queryflux.frontends.flight_sql import metadata
from queryflux.model.errors import EngineError
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message

SCHEMATA = pa.table({"catalog_name": ["c1", "c1", "c2"], "schema_name": ["b", "a", "a"]})
TABLES = pa.table(
    {
        "table_catalog": ["c1", "c1", "c1"],
        "table_schema": ["b", "a", "a"],
        "table_name": ["t_2", "t1", 'v"1'],
        "table_type": ["BASE TABLE", "BASE TABLE", "VIEW"],
    }
)


async def ask(sql: str) -> pa.Table:
    return SCHEMATA if "information_schema.schemata" in sql else TABLES


async def columns(sql: str) -> pa.Schema:
    if sql == 'SELECT * FROM "c1"."a"."t1"':
        return pa.schema([("id", pa.int32())])
    raise EngineError(f"{sql} is broken")


async def answer(command: Message) -> pa.Table:
    table = await metadata.answer(command, ask, columns)
    assert table.schema == metadata.schema_of(command)
    return table


async def test_catalogs_and_schemas() -> None:
    assert (await answer(m.CommandGetCatalogs())).to_pydict() == {"catalog_name": ["c1", "c2"]}
    every = await answer(m.CommandGetDbSchemas())
    assert every.to_pydict() == {"catalog_name": ["c1", "c1", "c2"], "db_schema_name": ["a", "b", "a"]}
    some = await answer(m.CommandGetDbSchemas(catalog="c1", schema_pattern="_"))
    assert some.to_pydict() == {"catalog_name": ["c1", "c1"], "db_schema_name": ["a", "b"]}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (m.CommandGetTables(), ["t1", 'v"1', "t_2"]),
        (m.CommandGetTables(catalog="c2"), []),
        (m.CommandGetTables(catalog=""), []),
        (m.CommandGetTables(schema_pattern="a"), ["t1", 'v"1']),
        (m.CommandGetTables(table_pattern="t%"), ["t1", "t_2"]),
        (m.CommandGetTables(table_pattern="t1"), ["t1"]),
        (m.CommandGetTables(table_types=("VIEW",)), ['v"1']),
        (m.CommandGetTables(table_types=("TABLE", "VIEW"), table_pattern="%1"), ["t1", 'v"1']),
    ],
)
async def test_tables(command: m.CommandGetTables, names: list[str]) -> None:
    tables = await answer(command)
    assert tables.column("table_name").to_pylist() == names
    assert set(tables.column("table_type").to_pylist()) <= {"TABLE", "VIEW"}


async def test_tables_with_their_columns_and_one_that_is_broken() -> None:
    tables = await answer(m.CommandGetTables(schema_pattern="a", include_schema=True))
    schemas = [pa.ipc.read_schema(pa.py_buffer(raw)) for raw in tables.column("table_schema").to_pylist()]
    assert schemas == [pa.schema([("id", pa.int32())]), pa.schema([])]


@pytest.mark.parametrize(
    "command",
    [
        m.CommandGetPrimaryKeys(),
        m.CommandGetImportedKeys(),
        m.CommandGetExportedKeys(),
        m.CommandGetCrossReference(),
    ],
)
async def test_keys_are_not_known(command: Message) -> None:
    assert (await answer(command)).num_rows == 0


def test_a_statement_is_no_metadata_command() -> None:
    assert metadata.schema_of(m.CommandStatementQuery("SELECT 1")) is None
