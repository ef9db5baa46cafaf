"""DuckDB's types in PostgreSQL's spelling, and as Arrow's canonical extension types where it has one.

DuckDB hands UUID and JSON to Arrow as strings; here they become ``arrow.uuid`` and ``arrow.json``, so that a
door can tell its client. (``arrow_lossless_conversion`` would do that too, but makes HUGEINT, which every sum
of integers is, an opaque type.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def extended(schema: pa.Schema, types: list[Any]) -> pa.Schema:
    """The schema with extension types for the columns whose DuckDB type has one."""
    for index, kind in enumerate(types):
        extension = _EXTENSIONS.get(str(kind))
        if extension is not None and pa.types.is_string(schema.field(index).type):
            schema = schema.set(index, schema.field(index).with_type(extension))
    return schema


def extend(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as DuckDB gave it, in the schema of ``extended``. The batch itself when there is nothing to
    do."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else _CONVERSIONS[field.type.extension_name](column)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _json(column: pa.StringArray) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(), column)


_NIBBLES = np.zeros(256, np.uint8)
for _digit, _sign in enumerate("0123456789abcdef"):
    _NIBBLES[ord(_sign)] = _NIBBLES[ord(_sign.upper())] = _digit
_TEXT_LENGTH = 36
_DASHES = (8, 13, 18, 23)
_ZERO = "00000000-0000-0000-0000-000000000000"


def _uuid(column: pa.StringArray) -> pa.Array:
    """UUIDs from their text, which is always 36 characters long."""
    texts = pc.fill_null(column, _ZERO) if column.null_count else column
    _, offsets, data = texts.buffers()
    start = int(np.frombuffer(offsets, np.int32, 1, texts.offset * 4)[0])
    letters = np.frombuffer(data, np.uint8, len(texts) * _TEXT_LENGTH, start).reshape(-1, _TEXT_LENGTH)
    nibbles = _NIBBLES[np.delete(letters, _DASHES, axis=1)]
    values = pa.py_buffer((nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).tobytes())
    validity = None
    if column.null_count:
        bits = np.packbits(pc.is_valid(column).to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    storage = pa.Array.from_buffers(pa.binary(16), len(column), [validity, values])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


_EXTENSIONS = {"UUID": pa.uuid(), "JSON": pa.json_()}
_CONVERSIONS: dict[str, Callable[[pa.Array], pa.Array]] = {"arrow.uuid": _uuid, "arrow.json": _json}
