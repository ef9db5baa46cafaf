"""Which PostgreSQL type stands for which Arrow type, for RowDescription and the encoders."""

from enum import Enum, auto

import pyarrow as pa

from queryflux.wire.postgres.constants import ARRAY_OF, Oid
from queryflux.wire.postgres.messages import Column
from queryflux.wire.postgres.types import oid_of


class Kind(Enum):
    """How a column is encoded."""

    BOOL = auto()
    INTEGER = auto()
    UNSIGNED_64 = auto()
    FLOAT = auto()
    DECIMAL = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INTERVAL = auto()
    TEXT = auto()
    BYTES = auto()
    UUID = auto()
    ARRAY = auto()
    JSON = auto()
    NULL = auto()


SIZES = {
    Oid.BOOL: 1,
    Oid.INT2: 2,
    Oid.INT4: 4,
    Oid.INT8: 8,
    Oid.FLOAT4: 4,
    Oid.FLOAT8: 8,
    Oid.DATE: 4,
    Oid.TIME: 8,
    Oid.TIMESTAMP: 8,
    Oid.TIMESTAMPTZ: 8,
    Oid.INTERVAL: 16,
    Oid.UUID: 16,
}
_INTEGERS = {
    pa.int8(): Oid.INT2,
    pa.uint8(): Oid.INT2,
    pa.int16(): Oid.INT2,
    pa.uint16(): Oid.INT4,
    pa.int32(): Oid.INT4,
    pa.uint32(): Oid.INT8,
    pa.int64(): Oid.INT8,
}
_FLOATS = {pa.float16(): Oid.FLOAT4, pa.float32(): Oid.FLOAT4, pa.float64(): Oid.FLOAT8}


def kind_of(arrow: pa.DataType) -> tuple[Kind, int]:
    """The kind and the OID of a type."""
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return _extension(arrow)
    if arrow in _INTEGERS:
        return Kind.INTEGER, _INTEGERS[arrow]
    if arrow in _FLOATS:
        return Kind.FLOAT, _FLOATS[arrow]
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return kind_of(arrow.value_type)
    if types.is_boolean(arrow):
        return Kind.BOOL, Oid.BOOL
    if types.is_uint64(arrow):
        return Kind.UNSIGNED_64, Oid.NUMERIC
    if types.is_decimal(arrow):
        return Kind.DECIMAL, Oid.NUMERIC
    if types.is_date(arrow):
        return Kind.DATE, Oid.DATE
    if types.is_time(arrow):
        return Kind.TIME, Oid.TIME
    if types.is_timestamp(arrow):
        return Kind.TIMESTAMP, Oid.TIMESTAMP if arrow.tz is None else Oid.TIMESTAMPTZ
    if types.is_duration(arrow) or types.is_interval(arrow):
        return Kind.INTERVAL, Oid.INTERVAL
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Kind.TEXT, Oid.TEXT
    if types.is_null(arrow):
        return Kind.NULL, Oid.TEXT
    if is_bytes(arrow):
        return Kind.BYTES, Oid.BYTEA
    if is_list(arrow):
        return _list(arrow)
    return Kind.JSON, Oid.JSON


def is_bytes(arrow: pa.DataType) -> bool:
    """Any of Arrow's binary types."""
    types = pa.types
    return bool(
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_fixed_size_binary(arrow)
        or types.is_binary_view(arrow)
    )


def is_list(arrow: pa.DataType) -> bool:
    """Any of Arrow's list types."""
    types = pa.types
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow)
        or types.is_large_list_view(arrow)
    )


def _list(arrow: pa.DataType) -> tuple[Kind, int]:
    """A list of a simple type is an array, of lists of one too (PostgreSQL's arrays know no depth); any
    other is JSON."""
    element = arrow.value_type
    while is_list(element):
        element = element.value_type
    kind, oid = kind_of(element)
    if kind is Kind.JSON or oid not in ARRAY_OF:
        return Kind.JSON, Oid.JSON
    return Kind.ARRAY, ARRAY_OF[oid]


def _extension(arrow: pa.DataType) -> tuple[Kind, int]:
    name = arrow.extension_name
    if name == "arrow.uuid":
        return Kind.UUID, Oid.UUID
    if name == "arrow.json":
        return Kind.TEXT, Oid.JSON
    kind, oid = kind_of(arrow.storage_type)
    if name == "arrow.opaque" and kind is Kind.TEXT:
        return kind, oid_of(str(arrow.type_name))
    return kind, oid


def column(field: pa.Field) -> Column:
    """What RowDescription says of one field."""
    arrow = field.type
    kind, oid = kind_of(arrow)
    modifier = -1
    if kind is Kind.DECIMAL:
        plain = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
        modifier = ((plain.precision << 16) | (plain.scale & 0x7FF)) + 4
    return Column(field.name, oid, SIZES.get(oid, -1), modifier)


def columns(schema: pa.Schema) -> tuple[Column, ...]:
    """What RowDescription says of a schema."""
    return tuple(column(field) for field in schema)
