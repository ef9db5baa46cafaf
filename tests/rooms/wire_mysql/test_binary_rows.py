"""Arrow columns in the binary protocol."""

import datetime
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from queryflux.wire.mysql.rows import RowEncoder
from tests.rooms.wire_mysql.reading import packets


def rows(batch: pa.RecordBatch) -> list[bytes]:
    """The rows' payloads."""
    data, _ = RowEncoder(batch.schema, binary=True).encode(batch, 3)
    return list(packets(bytes(data), 3))


VALUES: list[tuple[Any, Any, bytes]] = [
    (pa.bool_(), True, b"\1"),
    (pa.int8(), -1, b"\xff"),
    (pa.uint8(), 255, b"\xff"),
    (pa.int16(), -2, b"\xfe\xff"),
    (pa.int32(), 1, b"\1\0\0\0"),
    (pa.uint64(), 2**64 - 1, b"\xff" * 8),
    (pa.float32(), 1.5, struct.pack("<f", 1.5)),
    (pa.float64(), 0.1, struct.pack("<d", 0.1)),
    (pa.decimal128(10, 2), Decimal("-1.50"), b"\x05-1.50"),
    (pa.string(), "hé", b"\x03h\xc3\xa9"),
    (pa.string(), "x" * 300, b"\xfc\x2c\x01" + b"x" * 300),
    (pa.binary(), b"\0", b"\1\0"),
    (pa.date32(), datetime.date(2024, 2, 29), b"\x04\xe8\x07\x02\x1d"),
    (pa.date32(), datetime.date(1969, 12, 31), b"\x04\xb1\x07\x0c\x1f"),
    (
        pa.timestamp("us"),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        b"\x0b\xe8\x07\x02\x1d\1\2\3\4\0\0\0",
    ),
    (pa.timestamp("s"), datetime.datetime(1, 1, 1), b"\x0b\1\0\1\1\0\0\0\0\0\0\0"),
    (pa.time64("us"), datetime.time(1, 2, 3, 4), b"\x0c\0\0\0\0\0\1\2\3\4\0\0\0"),
    (pa.duration("s"), datetime.timedelta(hours=-25), b"\x0c\1\1\0\0\0\1\0\0\0\0\0\0"),
    (pa.list_(pa.int8()), [1], b"\x03[1]"),
    (pa.dictionary(pa.int8(), pa.string()), "a", b"\1a"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), VALUES, ids=lambda item: str(item)[:30])
def test_every_type_and_its_null(kind: Any, value: Any, expected: bytes) -> None:
    batch = pa.record_batch([pa.array([value, None, value], kind)], names=["c"])
    assert rows(batch) == [b"\0\0" + expected, b"\0\4", b"\0\0" + expected]
    whole = pa.record_batch([pa.array([value], kind)], names=["c"])
    assert rows(whole) == [b"\0\0" + expected]


def test_infinity_is_the_zero_date() -> None:
    column = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    assert rows(pa.record_batch([column], names=["c"])) == [b"\0\0\4\0\0\0\0"]


def test_many_columns_have_a_wider_bitmap() -> None:
    columns = [pa.array([None if index % 2 else index], pa.int8()) for index in range(20)]
    batch = pa.record_batch(columns, names=[str(index) for index in range(20)])
    bitmap = sum(1 << (index + 2) for index in range(20) if index % 2)
    assert rows(batch) == [b"\0" + bitmap.to_bytes(3, "little") + bytes(range(0, 20, 2))]


def test_a_column_of_nulls() -> None:
    batch = pa.record_batch([pa.nulls(2), pa.array([1, 2], pa.int8())], names=["n", "c"])
    assert rows(batch) == [b"\0\4\1", b"\0\4\2"]


def test_a_slice() -> None:
    column = pa.array([None if index % 3 == 0 else index for index in range(100)], pa.int16())
    batch = pa.record_batch([column], names=["c"]).slice(31, 40)
    assert rows(batch) == [
        b"\0\4" if index % 3 == 0 else b"\0\0" + index.to_bytes(2, "little") for index in range(31, 71)
    ]
