"""COM_STMT_EXECUTE with every type, NULL bitmaps, long data, and what is broken."""

import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from queryflux.model.errors import InvalidRequest, ProtocolViolation
from queryflux.model.statement import Parameter
from queryflux.wire.mysql.constants import FieldType
from queryflux.wire.mysql.lenenc import lenenc_bytes
from queryflux.wire.mysql.parameters import BoundType, read_execution, statement_of

UNSIGNED = 0x8000


def execution(types: list[int], data: bytes, nulls: int = 0, *, bound: bool = True) -> bytes:
    """The packet: ``types`` with UNSIGNED where wanted, ``data`` the values one after another."""
    head = b"\x17" + struct.pack("<IBI", 7, 0, 1)
    bitmap = nulls.to_bytes((len(types) + 7) // 8, "little")
    names = b"".join(struct.pack("<H", kind) for kind in types) if bound else b""
    return head + bitmap + bytes((bound,)) + names + data


VALUES: list[tuple[int, bytes, Any, str]] = [
    (FieldType.TINY, b"\xff", -1, "int2"),
    (FieldType.TINY | UNSIGNED, b"\xff", 255, ""),
    (FieldType.SHORT, b"\xfe\xff", -2, "int2"),
    (FieldType.YEAR, b"\xe8\x07", 2024, "int2"),
    (FieldType.LONG, b"\xff\xff\xff\x7f", 2**31 - 1, "int4"),
    (FieldType.INT24, b"\1\0\0\0", 1, "int4"),
    (FieldType.LONGLONG, b"\0" * 7 + b"\x80", -(2**63), "int8"),
    (FieldType.LONGLONG | UNSIGNED, b"\xff" * 8, 2**64 - 1, ""),
    (FieldType.FLOAT, struct.pack("<f", 1.5), 1.5, "float4"),
    (FieldType.DOUBLE, struct.pack("<d", -0.1), -0.1, "float8"),
    (FieldType.NEWDECIMAL, lenenc_bytes(b"-12.50"), Decimal("-12.50"), "numeric"),
    (FieldType.VAR_STRING, lenenc_bytes("hé".encode()), "hé", ""),
    (FieldType.STRING, lenenc_bytes(b"x" * 300), "x" * 300, ""),
    (FieldType.JSON, lenenc_bytes(b"{}"), "{}", ""),
    (FieldType.BLOB, lenenc_bytes(b"\xff\0"), b"\xff\0", "bytea"),
    (FieldType.DATE, b"\x04\xe8\x07\x02\x1d", date(2024, 2, 29), "date"),
    (FieldType.DATETIME, b"\x04\xe8\x07\x02\x1d", datetime(2024, 2, 29), "timestamp"),
    (FieldType.DATETIME, b"\x07\xe8\x07\x02\x1d\1\2\3", datetime(2024, 2, 29, 1, 2, 3), "timestamp"),
    (
        FieldType.TIMESTAMP,
        b"\x0b\xe8\x07\x02\x1d\1\2\3\x40\x42\x0f\0"[:8] + struct.pack("<I", 999_999),
        datetime(2024, 2, 29, 1, 2, 3, 999_999),
        "timestamp",
    ),
    (FieldType.TIME, b"\0", timedelta(), "interval"),
    (FieldType.TIME, b"\x08\1\2\0\0\0\3\4\5", -timedelta(days=2, hours=3, minutes=4, seconds=5), "interval"),
    (FieldType.TIME, b"\x0c\0\0\0\0\0\0\0\1\1\0\0\0", timedelta(seconds=1, microseconds=1), "interval"),
    (FieldType.NULL, b"", None, ""),
]


@pytest.mark.parametrize(("kind", "data", "value", "name"), VALUES, ids=lambda item: str(item)[:30])
def test_every_type(kind: int, data: bytes, value: Any, name: str) -> None:
    payload = execution([kind], data)
    assert statement_of(payload) == 7
    found = read_execution(payload, 1, (), {})
    assert found.parameters == (Parameter(value, name),)
    for end in range(10, len(payload)):
        with pytest.raises((ProtocolViolation, InvalidRequest)):
            read_execution(payload[:end], 1, (), {})


def test_all_of_them_at_once_and_again_with_remembered_types() -> None:
    types = [kind for kind, *_ in VALUES]
    data = b"".join(value for _, value, *_ in VALUES)
    first = read_execution(execution(types, data), len(types), (), {})
    again = read_execution(execution(types, data, bound=False), len(types), first.types, {})
    assert again == first
    assert [parameter.value for parameter in first.parameters] == [value for *_, value, _ in VALUES]


def test_nulls_take_no_bytes() -> None:
    types = [FieldType.LONG] * 10
    nulls = sum(1 << index for index in range(10) if index != 8)
    found = read_execution(execution([*types], b"\5\0\0\0", nulls), 10, (), {})
    assert [parameter.value for parameter in found.parameters] == [None] * 8 + [5, None]


def test_long_data_stands_for_a_value() -> None:
    types = [FieldType.BLOB, FieldType.LONG, FieldType.VAR_STRING]
    ahead = {0: b"\xff" * 10, 2: b"text"}
    found = read_execution(execution([*types], b"\1\0\0\0"), 3, (), ahead)
    assert [parameter.value for parameter in found.parameters] == [b"\xff" * 10, 1, "text"]


def test_no_parameters() -> None:
    assert read_execution(b"\x17\7\0\0\0\0\1\0\0\0", 0, (), {}).parameters == ()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (FieldType.VAR_STRING, lenenc_bytes(b"\xff")),
        (FieldType.NEWDECIMAL, lenenc_bytes(b"abc")),
        (FieldType.NEWDECIMAL, lenenc_bytes(b"NaN")),
        (FieldType.NEWDECIMAL, lenenc_bytes(b"1e999999")),
        (FieldType.DATE, b"\0"),
        (FieldType.DATE, b"\x04\xe8\x07\x0d\x01"),
        (FieldType.DATETIME, b"\x05\xe8\x07\x01\x01\0"),
        (FieldType.TIME, b"\x08\0\xff\xff\xff\xff\0\0\0"),
        (99, b"\0"),
    ],
)
def test_values_that_cannot_be(kind: int, data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_execution(execution([kind], data), 1, (), {})


def test_types_that_were_never_sent() -> None:
    with pytest.raises(ProtocolViolation, match="types"):
        read_execution(execution([FieldType.LONG], b"\1\0\0\0", bound=False), 1, (), {})
    with pytest.raises(ProtocolViolation):
        read_execution(execution([FieldType.LONG], b"", bound=False), 2, (BoundType(3, False),), {})
