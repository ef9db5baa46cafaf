"""The MySQL column that an Arrow field becomes.

| Arrow | MySQL |
|---|---|
| bool | TINYINT(1) |
| int8 to int64, uint8 to uint64 | TINYINT to BIGINT, UNSIGNED |
| float16, float32, float64 | FLOAT, DOUBLE |
| decimal | DECIMAL(p, s) |
| date, timestamp, time, duration | DATE, DATETIME(0, 3 or 6), TIME(0, 3 or 6) |
| strings, uuid, interval | VARCHAR, utf8mb4 |
| binary | BLOB, binary |
| lists, structs, maps, JSON | JSON text |
| null | NULL |
"""

import pyarrow as pa

from queryflux.wire.mysql.constants import BINARY, UTF8MB4, FieldFlag, FieldType
from queryflux.wire.mysql.moments import decimals_of
from queryflux.wire.mysql.replies import Column

_INTEGERS = {
    "int8": (FieldType.TINY, 4),
    "int16": (FieldType.SHORT, 6),
    "int32": (FieldType.LONG, 11),
    "int64": (FieldType.LONGLONG, 20),
    "uint8": (FieldType.TINY, 3),
    "uint16": (FieldType.SHORT, 5),
    "uint32": (FieldType.LONG, 10),
    "uint64": (FieldType.LONGLONG, 20),
}
_NOT_FIXED = 31
"""``decimals`` of a floating-point column."""
_BLOB_LENGTH = 0xFFFFFFFF
_UUID_LENGTH = 36 * 4


def column_of(field: pa.Field) -> Column:
    """The column definition of an Arrow field."""
    return named(shape_of(field.type), field)


def shape_of(kind: pa.DataType) -> Column:
    """The column definition of a type, without a name."""
    return _of_type("", kind)


def named(shape: Column, field: pa.Field) -> Column:
    """``shape`` with the name of ``field``."""
    flags = shape.flags if field.nullable else shape.flags | FieldFlag.NOT_NULL
    return Column(field.name, shape.type, shape.collation, shape.length, flags, shape.decimals)


def _of_type(name: str, kind: pa.DataType) -> Column:
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _of_type(name, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _of_extension(name, kind)
    if types.is_boolean(kind):
        return Column(name, FieldType.TINY, BINARY, 1)
    if types.is_integer(kind):
        number, length = _INTEGERS[str(kind)]
        unsigned = FieldFlag.UNSIGNED if types.is_unsigned_integer(kind) else 0
        return Column(name, number, BINARY, length, unsigned)
    if types.is_float64(kind):
        return Column(name, FieldType.DOUBLE, BINARY, 22, 0, _NOT_FIXED)
    if types.is_floating(kind):
        return Column(name, FieldType.FLOAT, BINARY, 12, 0, _NOT_FIXED)
    if types.is_decimal(kind):
        scale = max(kind.scale, 0)
        return Column(name, FieldType.NEWDECIMAL, BINARY, kind.precision + 2, 0, scale)
    return _of_moment(name, kind) or _of_bytes(name, kind)


def _of_moment(name: str, kind: pa.DataType) -> Column | None:
    types = pa.types
    if types.is_date(kind):
        return Column(name, FieldType.DATE, BINARY, 10, FieldFlag.BINARY)
    if types.is_timestamp(kind):
        decimals = decimals_of(kind.unit)
        length = 19 + (decimals + 1 if decimals else 0)
        return Column(name, FieldType.DATETIME, BINARY, length, FieldFlag.BINARY, decimals)
    if types.is_time(kind) or types.is_duration(kind):
        decimals = decimals_of(kind.unit)
        length = 10 + (decimals + 1 if decimals else 0)
        return Column(name, FieldType.TIME, BINARY, length, FieldFlag.BINARY, decimals)
    return None


def _of_bytes(name: str, kind: pa.DataType) -> Column:
    types = pa.types
    if types.is_null(kind):
        return Column(name, FieldType.NULL, BINARY, 0, FieldFlag.BINARY)
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        flags = FieldFlag.BINARY | FieldFlag.BLOB
        return Column(name, FieldType.BLOB, BINARY, _BLOB_LENGTH, flags)
    if types.is_nested(kind):
        return _json(name)
    return Column(name)


def _json(name: str) -> Column:
    return Column(name, FieldType.JSON, UTF8MB4, _BLOB_LENGTH, FieldFlag.BLOB | FieldFlag.BINARY)


def _of_extension(name: str, kind: pa.BaseExtensionType) -> Column:
    if kind.extension_name == "arrow.uuid":
        return Column(name, FieldType.STRING, UTF8MB4, _UUID_LENGTH)
    if kind.extension_name == "arrow.json":
        return _json(name)
    return _of_type(name, kind.storage_type)
