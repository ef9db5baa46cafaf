"""Bound values as DuckDB takes them."""

from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from queryflux.model.statement import Parameter

_TYPES = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "json": "JSON",
}
"""Types that a client may name while it sends the value as text."""


def bind_values(parameters: tuple[Parameter, ...]) -> list[Any] | None:
    """Values for ``$1``, ``$2`` and so on, in order; None where there are none."""
    if not parameters:
        return None
    return [_value(parameter) for parameter in parameters]


def _value(parameter: Parameter) -> Any:
    value = parameter.value
    if isinstance(value, str) and (kind := _TYPES.get(parameter.type_name)):
        return duckdb.Value(value, DuckDBPyType(kind))
    if value is None and (kind := _TYPES.get(parameter.type_name)):
        return duckdb.Value(None, DuckDBPyType(kind))
    return value
