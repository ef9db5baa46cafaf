"""Binary format: against bytes written out by hand, and against the reader of bound parameters."""

import random
import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.postgres.columns import kind_of
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.rows import RowEncoder
from queryflux.wire.postgres.types import BoundParameters
from tests.rooms.wire_postgres.data_rows import binaries, encode


def numeric(text: str, digits: list[int], weight: int, sign: int, scale: int) -> tuple[Decimal, bytes]:
    return Decimal(text), struct.pack(f"!hhHh{len(digits)}H", len(digits), weight, sign, scale, *digits)


NUMERICS = [
    numeric("0.00", [], 0, 0, 2),
    numeric("1.20", [1, 2000], 0, 0, 2),
    numeric("-12345.67", [1, 2345, 6700], 1, 0x4000, 2),
    numeric("10000.00", [1], 1, 0, 2),
    numeric("0.05", [500], -1, 0, 2),
]


@pytest.mark.parametrize(("value", "expected"), NUMERICS)
def test_numeric_as_the_server_writes_it(value: Decimal, expected: bytes) -> None:
    assert binaries(pa.array([value], pa.decimal128(15, 2))) == [expected]
    assert binaries(pa.array([value], pa.decimal256(76, 2))) == [expected]
    assert binaries(pa.array([None, value], pa.decimal128(15, 2))) == [None, expected]


FIXED: list[tuple[str, pa.Array, list[bytes | None]]] = [
    ("bool", pa.array([True, None, False]), [b"\1", None, b"\0"]),
    ("int8", pa.array([-1], pa.int8()), [b"\xff\xff"]),
    ("uint16", pa.array([65535], pa.uint16()), [b"\0\0\xff\xff"]),
    ("int32", pa.array([-2, None], pa.int32()), [struct.pack("!i", -2), None]),
    ("uint32", pa.array([2**32 - 1], pa.uint32()), [struct.pack("!q", 2**32 - 1)]),
    ("int64", pa.array([-(2**63)]), [struct.pack("!q", -(2**63))]),
    ("float32", pa.array([1.5], pa.float32()), [struct.pack("!f", 1.5)]),
    ("float64", pa.array([1.5, None]), [struct.pack("!d", 1.5), None]),
    ("date", pa.array([date(2000, 1, 2), None]), [struct.pack("!i", 1), None]),
    ("date infinity", pa.array([2**31 - 1, -(2**31) + 1], pa.int32()).cast(pa.date32()),
     [b"\x7f\xff\xff\xff", b"\x80\0\0\0"]),
    ("timestamp", pa.array([datetime(2000, 1, 1, 0, 0, 1)]), [struct.pack("!q", 1_000_000)]),
    ("timestamp infinity", pa.array([2**63 - 1, -(2**63) + 1]).cast(pa.timestamp("us")),
     [b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7]),
    ("time", pa.array([time(0, 0, 1)]), [struct.pack("!q", 1_000_000)]),
    ("interval", pa.array([pa.MonthDayNano([1, 2, 3000])]), [struct.pack("!qii", 3, 2, 1)]),
    ("text", pa.array(["a", None, "é" * 100]), [b"a", None, "é".encode() * 100]),
    ("bytea", pa.array([b"\0", b""]), [b"\0", b""]),
    ("null", pa.nulls(1), [None]),
    ("struct as JSON", pa.array([{"a": 1}]), [b'{"a":1}']),
    ("int array", pa.array([[1, None], [], None], pa.list_(pa.int32())),
     [struct.pack("!iiIiiiii", 1, 1, 23, 2, 1, 4, 1, -1), struct.pack("!iiI", 0, 1, 23), None]),
    ("text array", pa.array([["ab"]]), [struct.pack("!iiIiii", 1, 0, 25, 1, 1, 2) + b"ab"]),
    ("array of long text", pa.array([["x" * 70, None]]),
     [struct.pack("!iiIiii", 1, 1, 25, 2, 1, 70) + b"x" * 70 + b"\xff" * 4]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected"), [case[1:] for case in FIXED], ids=[c[0] for c in FIXED])
def test_binary_format(array: pa.Array, expected: list[bytes | None]) -> None:
    assert binaries(array) == expected
    padded = pa.concat_arrays([array, array])
    assert binaries(padded.slice(len(array))) == expected
    beside = pa.array(["y" * (index * 13 % 90) for index in range(len(array))])
    assert [row[1] for row in encode([beside, array, beside], (1,))] == expected


def read_back(array: pa.Array) -> list[Any]:
    _, oid = kind_of(array.type)
    values = binaries(array)
    return [parameter.value for parameter in BoundParameters(values, (1,), (oid,) * len(values))]


def test_decimals_at_random() -> None:
    chance = random.Random(3)
    for precision, scale in ((18, 0), (18, 2), (18, 5), (38, 0), (38, 10), (38, 37), (76, 20)):
        limit = 10 ** (precision - 1)
        numbers = [
            chance.randint(-limit, limit) // 10 ** chance.randint(0, precision - 1) for _ in range(200)
        ]
        kind = pa.decimal256(precision, scale) if precision > 38 else pa.decimal128(precision, scale)
        values = [Decimal(f"{number}E-{scale}") for number in numbers]
        found = read_back(pa.array(values, kind))
        assert found == values
        assert {value.as_tuple().exponent for value in found} <= {-scale}


def test_values_read_back() -> None:
    moment = datetime(1999, 12, 31, 23, 59, 59, 999999)
    assert read_back(pa.array([moment, None])) == [moment, None]
    assert read_back(pa.array([2**64 - 1, 0], pa.uint64())) == [Decimal(2**64 - 1), 0]
    assert read_back(pa.array([timedelta(days=1)])) == [timedelta(days=1)]
    assert read_back(pa.array([[1.5, None], []])) == [[1.5, None], []]


def test_a_column_without_a_binary_form_is_refused_by_name() -> None:
    schema = pa.schema([("a", pa.int32()), ("deep", pa.list_(pa.list_(pa.int32())))])
    with pytest.raises(PostgresError, match='column "deep"'):
        RowEncoder(schema, (1,), "UTC")
    RowEncoder(schema, (1, 0), "UTC")


def test_formats_that_do_not_fit_the_columns_are_refused() -> None:
    with pytest.raises(ProtocolViolation, match="2 result formats but query has 1 columns"):
        RowEncoder(pa.schema([("a", pa.int32())]), (0, 1), "UTC")


def test_mixed_formats() -> None:
    array = pa.array([1, 2], pa.int32())
    assert encode([array, array], (0, 1)) == [[b"1", b"\0\0\0\1"], [b"2", b"\0\0\0\2"]]
