"""Bound parameters: rows of Arrow columns become Parameter values, and parameter types become a schema."""

import pyarrow as pa
import pyarrow.types as t

from queryflux.model.errors import InvalidRequest, NotSupported
from queryflux.model.statement import Parameter

# A text parameter names no type: an engine may then read it as the date or number it is compared with.
_NAMES: tuple[tuple[object, str], ...] = (
    (t.is_boolean, "bool"),
    (t.is_int8, "int2"),
    (t.is_int16, "int2"),
    (t.is_uint8, "int2"),
    (t.is_int32, "int4"),
    (t.is_uint16, "int4"),
    (t.is_int64, "int8"),
    (t.is_uint32, "int8"),
    (t.is_uint64, "numeric"),
    (t.is_float16, "float4"),
    (t.is_float32, "float4"),
    (t.is_float64, "float8"),
    (t.is_decimal, "numeric"),
    (t.is_date, "date"),
    (t.is_time, "time"),
    (t.is_duration, "interval"),
)

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "int2": pa.int16(),
    "smallint": pa.int16(),
    "int4": pa.int32(),
    "integer": pa.int32(),
    "int8": pa.int64(),
    "bigint": pa.int64(),
    "float4": pa.float32(),
    "real": pa.float32(),
    "float8": pa.float64(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "character varying": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}


def type_name(kind: pa.DataType) -> str:
    """PostgreSQL's name of an Arrow type; empty where the engine shall decide. Raises NotSupported."""
    if t.is_dictionary(kind):
        return type_name(kind.value_type)
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind) or t.is_null(kind):
        return ""
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind):
        return "bytea"
    if t.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if t.is_list(kind) or t.is_large_list(kind):
        item = type_name(kind.value_type)
        return f"{item}[]" if item else ""
    for matches, name in _NAMES:
        if matches(kind):  # type: ignore[operator]
            return name
    raise NotSupported(f"a parameter of Arrow type {kind} is not supported")


def rows_of(batch: pa.RecordBatch) -> list[tuple[Parameter, ...]]:
    """The parameters of each row of a batch. Raises InvalidRequest, NotSupported."""
    columns = [_column(batch.schema.field(i).name, batch.column(i)) for i in range(batch.num_columns)]
    return list(zip(*columns, strict=True)) if columns else [() for _ in range(batch.num_rows)]


def _column(name: str, values: pa.Array) -> list[Parameter]:
    named = type_name(values.type)
    try:
        return [Parameter(value, named) for value in _micros(values).to_pylist()]
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise InvalidRequest(f"parameter {name!r} cannot be read: {error}") from None


def _micros(values: pa.Array) -> pa.Array:
    """Nanoseconds as microseconds, since that is what Python's own times hold."""
    kind = values.type
    if t.is_timestamp(kind) and kind.unit == "ns":
        return values.cast(pa.timestamp("us", kind.tz), safe=False)
    if t.is_time64(kind) and kind.unit == "ns":
        return values.cast(pa.time64("us"), safe=False)
    if t.is_duration(kind) and kind.unit == "ns":
        return values.cast(pa.duration("us"), safe=False)
    return values


def schema_of(type_names: tuple[str, ...]) -> pa.Schema:
    """Parameter types as a schema; one that we have no Arrow type for is shown as null."""
    return pa.schema([(str(n), _TYPES.get(name.lower(), pa.null())) for n, name in enumerate(type_names, 1)])
