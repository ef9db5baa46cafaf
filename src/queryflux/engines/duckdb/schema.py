"""DuckDB's types in PostgreSQL's spelling, and what Arrow does not say of a column's type.

DuckDB hands UUID and JSON to Arrow as strings. Their fields carry the metadata ``queryflux.type`` with the
name of the type, so that a door can tell its client.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa

TYPE_KEY = b"queryflux.type"
_MARKS = {"UUID": b"uuid", "JSON": b"json"}

_NAMES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "UTINYINT": "smallint",
    "INTEGER": "integer",
    "USMALLINT": "integer",
    "BIGINT": "bigint",
    "UINTEGER": "bigint",
    "UBIGINT": "numeric",
    "HUGEINT": "numeric",
    "UHUGEINT": "numeric",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIME WITH TIME ZONE": "time with time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP_S": "timestamp without time zone",
    "TIMESTAMP_MS": "timestamp without time zone",
    "TIMESTAMP_NS": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "INTERVAL": "interval",
    "UUID": "uuid",
    "JSON": "json",
    "UNKNOWN": "",
    '"NULL"': "",
}


def postgres_name(kind: Any) -> str:
    """A DuckDB type in PostgreSQL's spelling; empty when it is open, ``text`` when there is none like it."""
    name = str(kind)
    if name.endswith("[]"):
        return f"{postgres_name(name[:-2])}[]"
    if name.startswith("DECIMAL"):
        return f"numeric{name.removeprefix('DECIMAL')}"
    return _NAMES.get(name, "text")


def typed_nulls(kinds: Iterable[Any]) -> list[Any]:
    """A NULL of each type: binding with them tells the result's types where parameters left them open."""
    return [None if str(kind) == "UNKNOWN" else duckdb.Value(None, kind) for kind in kinds]


def marked(schema: "pa.Schema", types: list[Any]) -> "pa.Schema":
    """The schema with a note on the columns whose type Arrow does not tell."""
    for index, kind in enumerate(types):
        mark = _MARKS.get(str(kind))
        if mark is not None:
            schema = schema.set(index, schema.field(index).with_metadata({TYPE_KEY: mark}))
    return schema
