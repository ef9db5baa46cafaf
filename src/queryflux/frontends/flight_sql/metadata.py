"""The Get* commands: asked of information_schema through the pipeline, shaped as the specification says."""

import logging
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pyarrow.compute as pc

from queryflux.frontends.flight_sql import sql_info
from queryflux.model.errors import QueryFluxError
from queryflux.wire.flight import messages as m
from queryflux.wire.flight.protobuf import Message

log = logging.getLogger(__name__)

Ask = Callable[[str], Awaitable[pa.Table]]
"""Runs SQL and gives the whole result."""
SchemaOf = Callable[[str], Awaitable[pa.Schema | None]]
"""The columns that a SELECT would give."""


def _fields(**types: pa.DataType) -> pa.Schema:
    """Nullable unless the name ends in an underscore."""
    return pa.schema(
        [
            pa.field(name.removesuffix("_"), kind, nullable=not name.endswith("_"))
            for name, kind in types.items()
        ]
    )


_TEXT = pa.string()
CATALOGS = _fields(catalog_name_=_TEXT)
SCHEMAS = _fields(catalog_name=_TEXT, db_schema_name_=_TEXT)
TABLES = _fields(catalog_name=_TEXT, db_schema_name=_TEXT, table_name_=_TEXT, table_type_=_TEXT)
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES = _fields(table_type_=_TEXT)
PRIMARY_KEYS = _fields(
    catalog_name=_TEXT,
    db_schema_name=_TEXT,
    table_name_=_TEXT,
    column_name_=_TEXT,
    key_name=_TEXT,
    key_sequence_=pa.int32(),
)
FOREIGN_KEYS = _fields(
    pk_catalog_name=_TEXT,
    pk_db_schema_name=_TEXT,
    pk_table_name_=_TEXT,
    pk_column_name_=_TEXT,
    fk_catalog_name=_TEXT,
    fk_db_schema_name=_TEXT,
    fk_table_name_=_TEXT,
    fk_column_name_=_TEXT,
    key_sequence_=pa.int32(),
    fk_key_name=_TEXT,
    pk_key_name=_TEXT,
    update_rule_=pa.uint8(),
    delete_rule_=pa.uint8(),
)

_SCHEMATA_SQL = "SELECT catalog_name, schema_name FROM information_schema.schemata"
_TABLES_SQL = "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables"
_TYPE_NAMES = {"BASE TABLE": "TABLE"}


def schema_of(command: Message) -> pa.Schema | None:
    """The schema of a metadata command's answer; None for any other command."""
    match command:
        case m.CommandGetSqlInfo():
            return sql_info.SCHEMA
        case m.CommandGetCatalogs():
            return CATALOGS
        case m.CommandGetDbSchemas():
            return SCHEMAS
        case m.CommandGetTables():
            return TABLES_WITH_SCHEMA if command.include_schema else TABLES
        case m.CommandGetTableTypes():
            return TABLE_TYPES
        case m.CommandGetPrimaryKeys():
            return PRIMARY_KEYS
        case m.CommandGetExportedKeys() | m.CommandGetImportedKeys() | m.CommandGetCrossReference():
            return FOREIGN_KEYS
        case _:
            return None


async def answer(command: Message, ask: Ask, schema_of_select: SchemaOf) -> pa.Table:
    """The answer of a metadata command that needs the engine. Raises QueryFluxError."""
    match command:
        case m.CommandGetCatalogs():
            rows = await ask(_SCHEMATA_SQL)
            names = pc.unique(rows.column(0).cast(_TEXT)).drop_null().sort()
            return pa.Table.from_arrays([names], schema=CATALOGS)
        case m.CommandGetDbSchemas():
            return await _schemas(command, ask)
        case m.CommandGetTables():
            tables = await _tables(command, ask)
            return await _with_schemas(tables, schema_of_select) if command.include_schema else tables
        case m.CommandGetTableTypes():
            return pa.Table.from_arrays([pa.array(["TABLE", "VIEW"])], schema=TABLE_TYPES)
        case _:
            # Keys: engines are not asked for theirs, and an empty list is what that is.
            schema = schema_of(command)
            assert schema is not None
            return schema.empty_table()


async def _schemas(command: m.CommandGetDbSchemas, ask: Ask) -> pa.Table:
    rows = _typed(await ask(_SCHEMATA_SQL), SCHEMAS)
    rows = _equal(rows, "catalog_name", command.catalog)
    rows = _like(rows, "db_schema_name", command.schema_pattern)
    return _sorted(rows)


async def _tables(command: m.CommandGetTables, ask: Ask) -> pa.Table:
    rows = await ask(_TABLES_SQL)
    kinds = pa.array([_TYPE_NAMES.get(kind, kind) for kind in rows.column(3).to_pylist()], _TEXT)
    rows = _typed(rows.set_column(3, "table_type", kinds), TABLES)
    rows = _equal(rows, "catalog_name", command.catalog)
    rows = _like(rows, "db_schema_name", command.schema_pattern)
    rows = _like(rows, "table_name", command.table_pattern)
    if command.table_types:
        wanted = pa.array(command.table_types, _TEXT)
        rows = rows.filter(pc.is_in(rows.column("table_type"), value_set=wanted))
    return _sorted(rows)


async def _with_schemas(tables: pa.Table, schema_of_select: SchemaOf) -> pa.Table:
    schemas = []
    for row in tables.to_pylist():
        path = [row["catalog_name"], row["db_schema_name"], row["table_name"]]
        name = ".".join('"' + part.replace('"', '""') + '"' for part in path if part)
        try:
            schema = await schema_of_select(f"SELECT * FROM {name}")  # noqa: S608 - quoted above
        except QueryFluxError as error:
            # One broken view does not hide the other tables.
            log.info("the columns of %s cannot be had: %s", name, error.message)
            schema = None
        schemas.append((schema or pa.schema([])).serialize().to_pybytes())
    return tables.append_column(TABLES_WITH_SCHEMA.field("table_schema"), pa.array(schemas, pa.binary()))


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)], schema=schema
    )


def _equal(rows: pa.Table, column: str, value: str | None) -> pa.Table:
    return rows if value is None else rows.filter(pc.equal(rows.column(column), value))


def _like(rows: pa.Table, column: str, pattern: str | None) -> pa.Table:
    return rows if pattern is None else rows.filter(pc.match_like(rows.column(column), pattern))


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in rows.column_names])
