"""COM_STMT_EXECUTE: the values a client binds to a prepared statement.

Source: MySQL internals manual, "COM_STMT_EXECUTE" and "Binary Protocol Value".
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter
from queryflux.wire.mysql.constants import FieldType
from queryflux.wire.mysql.lenenc import Cursor

_UNSIGNED = 0x80
_LARGEST_EXPONENT = 100
_INTEGERS = {
    FieldType.TINY: 1,
    FieldType.SHORT: 2,
    FieldType.YEAR: 2,
    FieldType.LONG: 4,
    FieldType.INT24: 4,
    FieldType.LONGLONG: 8,
}
_INTEGER_NAMES = {1: "int2", 2: "int2", 4: "int4", 8: "int8"}
_BYTES = {
    FieldType.TINY_BLOB,
    FieldType.MEDIUM_BLOB,
    FieldType.LONG_BLOB,
    FieldType.BLOB,
    FieldType.BIT,
    FieldType.GEOMETRY,
}
_TEXTS = {
    FieldType.VARCHAR,
    FieldType.VAR_STRING,
    FieldType.STRING,
    FieldType.ENUM,
    FieldType.SET,
    FieldType.JSON,
}
_DECIMALS = {FieldType.DECIMAL, FieldType.NEWDECIMAL}
_MOMENTS = {FieldType.DATE, FieldType.NEWDATE, FieldType.DATETIME, FieldType.TIMESTAMP}


@dataclass(frozen=True, slots=True)
class BoundType:
    """The type of one parameter, as a client names it."""

    number: int
    unsigned: bool


@dataclass(frozen=True, slots=True)
class Execution:
    """What COM_STMT_EXECUTE asks. ``types`` are those to remember for the next one."""

    types: tuple[BoundType, ...]
    parameters: tuple[Parameter, ...]


def statement_of(payload: bytes) -> int:
    """The statement that COM_STMT_EXECUTE names. Raises ProtocolViolation."""
    return Cursor(payload, "execution", 1).fixed(4)


def read_execution(
    payload: bytes, count: int, known: tuple[BoundType, ...], long_data: Mapping[int, bytes]
) -> Execution:
    """COM_STMT_EXECUTE for a statement of ``count`` parameters, whose types were ``known`` from an earlier
    one; ``long_data`` was sent ahead for some of them. Raises ProtocolViolation; InvalidRequest for a value
    that cannot be."""
    cursor = Cursor(payload, "execution", 5)
    cursor.take(5)
    if not count:
        return Execution((), ())
    nulls = cursor.take((count + 7) // 8)
    types = known
    if cursor.fixed(1):
        pairs = cursor.take(2 * count)
        types = tuple(
            BoundType(pairs[2 * index], bool(pairs[2 * index + 1] & _UNSIGNED)) for index in range(count)
        )
    if len(types) != count:
        raise cursor.broken("the types of its parameters were never sent")
    values: list[Parameter] = []
    for index, kind in enumerate(types):
        if index in long_data:
            values.append(_long(kind, long_data[index]))
        elif nulls[index >> 3] & 1 << (index & 7):
            values.append(Parameter(None, _type_name(kind)))
        else:
            values.append(_value(cursor, kind, index))
    return Execution(types, tuple(values))


def _type_name(kind: BoundType) -> str:
    """The type in PostgreSQL spelling; empty where the client said nothing that helps."""
    if kind.number in _INTEGERS:
        return "" if kind.unsigned else _INTEGER_NAMES[_INTEGERS[FieldType(kind.number)]]
    return _NAMES.get(kind.number, "")


_NAMES: dict[int, str] = {
    FieldType.FLOAT: "float4",
    FieldType.DOUBLE: "float8",
    FieldType.TIME: "interval",
    FieldType.DATE: "date",
    FieldType.DATETIME: "timestamp",
    FieldType.TIMESTAMP: "timestamp",
    **dict.fromkeys(_DECIMALS, "numeric"),
    **dict.fromkeys(_BYTES, "bytea"),
}


def _long(kind: BoundType, data: bytes) -> Parameter:
    if kind.number in _BYTES:
        return Parameter(data, "bytea")
    return Parameter(_text(data), "")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            "a text parameter is not UTF-8", hint="connect with utf8mb4; bind bytes as a BLOB"
        ) from None


def _value(cursor: Cursor, kind: BoundType, index: int) -> Parameter:
    name = _type_name(kind)
    width = _INTEGERS.get(FieldType(kind.number)) if kind.number in _KNOWN else None
    if width is not None:
        raw = cursor.take(width)
        return Parameter(int.from_bytes(raw, "little", signed=not kind.unsigned), name)
    if kind.number == FieldType.FLOAT:
        return Parameter(struct.unpack("<f", cursor.take(4))[0], name)
    if kind.number == FieldType.DOUBLE:
        return Parameter(struct.unpack("<d", cursor.take(8))[0], name)
    if kind.number in _MOMENTS:
        return _moment(cursor, kind)
    if kind.number == FieldType.TIME:
        return Parameter(_time(cursor), name)
    if kind.number == FieldType.NULL:
        return Parameter(None)
    return _from_string(cursor, kind, index)


_KNOWN = frozenset(int(member) for member in FieldType)


def _from_string(cursor: Cursor, kind: BoundType, index: int) -> Parameter:
    if kind.number in _TEXTS:
        return Parameter(_text(cursor.lenenc()), "")
    if kind.number in _BYTES:
        return Parameter(cursor.lenenc(), "bytea")
    if kind.number in _DECIMALS:
        spelled = _text(cursor.lenenc())
        return Parameter(_decimal(spelled, index), "numeric")
    raise cursor.broken(f"parameter {index + 1} has the unknown type {kind.number}")


def _decimal(spelled: str, index: int) -> Decimal:
    try:
        number = Decimal(spelled)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise InvalidRequest(f"parameter {index + 1} is not a decimal number")
    return number


def _moment(cursor: Cursor, kind: BoundType) -> Parameter:
    length = cursor.fixed(1)
    fields = Cursor(cursor.take(length), "date")
    if length not in (0, 4, 7, 11):
        raise fields.broken(f"{length} bytes")
    if not length:
        raise InvalidRequest("the zero date 0000-00-00 cannot be bound", hint="bind NULL instead")
    year, month, day = fields.fixed(2), fields.fixed(1), fields.fixed(1)
    hour, minute, second = (fields.fixed(1) for _ in range(3)) if length > 4 else (0, 0, 0)
    micros = fields.fixed(4) if length > 7 else 0
    try:
        if kind.number in (FieldType.DATE, FieldType.NEWDATE):
            return Parameter(date(year, month, day), "date")
        return Parameter(datetime(year, month, day, hour, minute, second, micros), "timestamp")
    except ValueError as error:
        raise InvalidRequest(f"a date that is bound cannot be: {error}") from None


def _time(cursor: Cursor) -> timedelta:
    length = cursor.fixed(1)
    fields = Cursor(cursor.take(length), "time")
    if length not in (0, 8, 12):
        raise fields.broken(f"{length} bytes")
    if not length:
        return timedelta()
    negative, days = fields.fixed(1), fields.fixed(4)
    hours, minutes, seconds = (fields.fixed(1) for _ in range(3))
    micros = fields.fixed(4) if length > 8 else 0
    try:
        size = timedelta(days, seconds, micros, 0, minutes, hours)
    except OverflowError as error:
        raise InvalidRequest(f"a time that is bound cannot be: {error}") from None
    return -size if negative else size
