"""Arrow types as Trino names them (Trino documentation, "Data types"; client protocol, ``typeSignature``)."""

from typing import Any

import pyarrow as pa
from pyarrow import types as is_

UNBOUNDED = 2147483647
"""The length that the protocol writes for a varchar without one."""

_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

Signature = dict[str, Any]

_SIMPLE: tuple[tuple[Any, str], ...] = (
    (is_.is_boolean, "boolean"),
    (is_.is_int8, "tinyint"),
    (is_.is_int16, "smallint"),
    (is_.is_uint8, "smallint"),
    (is_.is_int32, "integer"),
    (is_.is_uint16, "integer"),
    (is_.is_int64, "bigint"),
    (is_.is_uint32, "bigint"),
    (is_.is_float16, "real"),
    (is_.is_float32, "real"),
    (is_.is_float64, "double"),
    (is_.is_date, "date"),
    (is_.is_duration, "interval day to second"),
    (is_.is_null, "unknown"),
    (is_.is_binary, "varbinary"),
    (is_.is_large_binary, "varbinary"),
    (is_.is_fixed_size_binary, "varbinary"),
    (is_.is_binary_view, "varbinary"),
)


def trino_type(arrow: pa.DataType) -> tuple[str, Signature]:
    """The type's display text and its signature. What Trino has no type for (a union, an interval of months
    and days, a decimal of over 38 digits) is a varchar."""
    for test, name in _SIMPLE:
        if test(arrow):
            return name, _signature(name)
    extension = getattr(arrow, "extension_name", "")
    if extension == "arrow.uuid":
        return "uuid", _signature("uuid")
    if extension == "arrow.json":
        return "json", _signature("json")
    if isinstance(arrow, pa.BaseExtensionType):
        return trino_type(arrow.storage_type)
    if is_.is_dictionary(arrow):
        return trino_type(arrow.value_type)
    return _parametric(arrow) or _nested(arrow) or ("varchar", _signature("varchar", _long(UNBOUNDED)))


def column(field: pa.Field) -> dict[str, Any]:
    """One entry of ``columns``."""
    name, signature = trino_type(field.type)
    return {"name": field.name, "type": name, "typeSignature": signature}


def _signature(raw: str, *arguments: dict[str, Any]) -> Signature:
    return {"rawType": raw, "arguments": list(arguments)}


def _long(value: int) -> dict[str, Any]:
    return {"kind": "LONG", "value": value}


def _parametric(arrow: pa.DataType) -> tuple[str, Signature] | None:
    if is_.is_uint64(arrow):
        return "decimal(20,0)", _signature("decimal", _long(20), _long(0))
    if is_.is_decimal(arrow) and arrow.precision <= 38 and arrow.scale >= 0:
        precision, scale = arrow.precision, arrow.scale
        return f"decimal({precision},{scale})", _signature("decimal", _long(precision), _long(scale))
    if is_.is_time(arrow):
        digits = _FRACTION_DIGITS[arrow.unit]
        return f"time({digits})", _signature("time", _long(digits))
    if is_.is_timestamp(arrow):
        digits = _FRACTION_DIGITS[arrow.unit]
        if arrow.tz is None:
            return f"timestamp({digits})", _signature("timestamp", _long(digits))
        return (
            f"timestamp({digits}) with time zone",
            _signature("timestamp with time zone", _long(digits)),
        )
    return None


def is_list_like(arrow: pa.DataType) -> bool:
    """Whether it becomes an array."""
    return bool(
        is_.is_list(arrow)
        or is_.is_large_list(arrow)
        or is_.is_fixed_size_list(arrow)
        or is_.is_list_view(arrow)
        or is_.is_large_list_view(arrow)
    )


def _nested(arrow: pa.DataType) -> tuple[str, Signature] | None:
    if is_list_like(arrow):
        name, inner = trino_type(arrow.value_type)
        return f"array({name})", _signature("array", {"kind": "TYPE", "value": inner})
    if is_.is_map(arrow):
        key, key_signature = trino_type(arrow.key_type)
        item, item_signature = trino_type(arrow.item_type)
        arguments = [{"kind": "TYPE", "value": inner} for inner in (key_signature, item_signature)]
        return f"map({key}, {item})", _signature("map", *arguments)
    if is_.is_struct(arrow):
        fields = [(field.name, *trino_type(field.type)) for field in arrow.fields]
        text = ", ".join(f"{_field_name(name)} {inner}" for name, inner, _ in fields)
        return f"row({text})", _signature("row", *(_named(name, inner) for name, _, inner in fields))
    return None


def _field_name(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
    return name if plain and name == name.lower() else '"' + name.replace('"', '""') + '"'


def _named(name: str, signature: Signature) -> dict[str, Any]:
    return {"kind": "NAMED_TYPE", "value": {"fieldName": {"name": name}, "typeSignature": signature}}
