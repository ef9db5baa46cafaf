"""As much of the protocol buffer wire format as Flight SQL's messages need: protobuf.dev, "Encoding".

A message is a frozen dataclass whose FIELDS name the numbers. Fields it does not name are skipped, as the
format demands; groups, which no message of ours ever had, are refused.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, TypeVar

from queryflux.model.errors import ProtocolViolation

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MAX_FIELD_NUMBER = (1 << 29) - 1
_U64 = (1 << 64) - 1


class Kind(Enum):
    """The types of field that occur. An enum travels like an INT."""

    STRING = "string"
    BYTES = "bytes"
    BOOL = "bool"
    INT = "int"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: ``name`` is the attribute that holds it."""

    name: str
    kind: Kind
    repeated: bool = False


@dataclass(frozen=True)
class Message:
    """Base of every message. ``NAME`` is the full protobuf name."""

    NAME: ClassVar[str]
    FIELDS: ClassVar[dict[int, Field]] = {}


M = TypeVar("M", bound=Message)


def decode(kind: type[M], data: bytes) -> M:
    """Read one message. Raises ProtocolViolation for bytes that are none."""
    values: dict[str, Any] = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise ProtocolViolation(f"{kind.NAME}: field number {number} is out of range")
        raw, at = _raw(data, at, wire_type)
        field = kind.FIELDS.get(number)
        if field is None:
            continue
        if field.repeated:
            values.setdefault(field.name, []).extend(_items(kind, field, wire_type, raw))
        else:
            values[field.name] = _value(kind, field, wire_type, raw)
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def encode(message: Message) -> bytes:
    """Write a message; a field that has its default is left out."""
    out = bytearray()
    for number, field in message.FIELDS.items():
        value = getattr(message, field.name)
        if field.repeated:
            for item in value:
                _write(out, number, field.kind, item)
        elif value != getattr(type(message), field.name):
            _write(out, number, field.kind, value)
    return bytes(out)


def _write(out: bytearray, number: int, kind: Kind, value: Any) -> None:
    if kind in (Kind.INT, Kind.BOOL):
        _put(out, number << 3 | VARINT)
        _put(out, int(value) & _U64)
        return
    raw = value.encode() if kind is Kind.STRING else value
    _put(out, number << 3 | LENGTH)
    _put(out, len(raw))
    out += raw


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(at, min(at + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, index + 1
        shift += 7
    raise ProtocolViolation("protobuf: a number that does not end")


def _raw(data: bytes, at: int, wire_type: int) -> tuple[int | bytes, int]:
    if wire_type == VARINT:
        return _varint(data, at)
    if wire_type == LENGTH:
        size, at = _varint(data, at)
    elif wire_type in (FIXED64, FIXED32):
        size = 8 if wire_type == FIXED64 else 4
    else:
        raise ProtocolViolation(f"protobuf: wire type {wire_type} is not supported")
    if size > len(data) - at:
        raise ProtocolViolation("protobuf: a field is longer than its message")
    return data[at : at + size], at + size


def _items(kind: type[Message], field: Field, wire_type: int, raw: int | bytes) -> list[Any]:
    if field.kind in (Kind.INT, Kind.BOOL) and wire_type == LENGTH:
        # Packed: the numbers one after another in a single field.
        assert isinstance(raw, bytes)
        items, at = [], 0
        while at < len(raw):
            item, at = _varint(raw, at)
            items.append(_value(kind, field, VARINT, item))
        return items
    return [_value(kind, field, wire_type, raw)]


def _value(kind: type[Message], field: Field, wire_type: int, raw: int | bytes) -> Any:
    wanted = VARINT if field.kind in (Kind.INT, Kind.BOOL) else LENGTH
    if wire_type != wanted:
        raise ProtocolViolation(f"{kind.NAME}.{field.name}: wire type {wire_type} where {wanted} is due")
    if isinstance(raw, int):
        if field.kind is Kind.BOOL:
            return raw != 0
        return raw - (1 << 64) if raw >> 63 else raw
    if field.kind is Kind.BYTES:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolViolation(f"{kind.NAME}.{field.name} is not UTF-8 at byte {error.start}") from None
