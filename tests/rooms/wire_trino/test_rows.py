"""Arrow batches as Trino's JSON: types, texts, and what must be escaped or quoted."""

import base64
import json
import math
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.wire.trino.rows import RowEncoder
from queryflux.wire.trino.types import trino_type


def encode(array: pa.Array) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    rows = json.loads(b"[" + RowEncoder(batch.schema).encode(batch) + b"]")
    return [row[0] for row in rows]


UTC_NOON = datetime(2024, 5, 6, 12, 0, 0, 123456)

SAMPLES: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([1, None, -128], pa.int8()), "tinyint", [1, None, -128]),
    (pa.array([1, None], pa.int16()), "smallint", [1, None]),
    (pa.array([255], pa.uint8()), "smallint", [255]),
    (pa.array([-(2**31)], pa.int32()), "integer", [-(2**31)]),
    (pa.array([65535], pa.uint16()), "integer", [65535]),
    (pa.array([2**63 - 1, None], pa.int64()), "bigint", [2**63 - 1, None]),
    (pa.array([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
    (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)", ["18446744073709551615", None]),
    (pa.array([True, False, None]), "boolean", [True, False, None]),
    (pa.array([0.1, None], pa.float32()), "real", [0.1, None]),
    (
        pa.array([1.0, 1e300, 5e-324, math.nan, math.inf, -math.inf, None]),
        "double",
        [1.0, 1e300, 5e-324, "NaN", "Infinity", "-Infinity", None],
    ),
    (
        pa.array([Decimal("1.10"), None, Decimal("-0.01")], pa.decimal128(5, 2)),
        "decimal(5,2)",
        ["1.10", None, "-0.01"],
    ),
    (
        pa.array([Decimal("1e-37"), Decimal("-9.5"), None], pa.decimal128(38, 37)),
        "decimal(38,37)",
        ["0." + "0" * 36 + "1", "-9.5" + "0" * 36, None],
    ),
    (
        pa.array(["", None, 'a"b\\c\n\t\0', "é😀"]),
        "varchar",
        ["", None, 'a"b\\c\n\t\0', "é😀"],
    ),
    (pa.array(["a", None], pa.large_string()), "varchar", ["a", None]),
    (pa.array(["a", None], pa.string_view()), "varchar", ["a", None]),
    (pa.array(["x", None, "x"]).dictionary_encode(), "varchar", ["x", None, "x"]),
    (
        pa.array([b"", b"a", b"ab", b"abc", None, b"\xff\0"]),
        "varbinary",
        ["", "YQ==", "YWI=", "YWJj", None, "/wA="],
    ),
    (pa.array([b"ab"], pa.binary(2)), "varbinary", ["YWI="]),
    (pa.array([date(1, 1, 1), date(9999, 12, 31), None]), "date", ["0001-01-01", "9999-12-31", None]),
    (pa.array([time(23, 59, 59, 999999), None]), "time(6)", ["23:59:59.999999", None]),
    (pa.array([3661], pa.time32("s")), "time(0)", ["01:01:01"]),
    (
        pa.array([UTC_NOON, datetime(1, 1, 1), None], pa.timestamp("us")),
        "timestamp(6)",
        ["2024-05-06 12:00:00.123456", "0001-01-01 00:00:00.000000", None],
    ),
    (pa.array([0], pa.timestamp("s")), "timestamp(0)", ["1970-01-01 00:00:00"]),
    (pa.array([1], pa.timestamp("ns")), "timestamp(9)", ["1970-01-01 00:00:00.000000001"]),
    (
        pa.array([0, None], pa.timestamp("ms", "Europe/Berlin")),
        "timestamp(3) with time zone",
        ["1970-01-01 00:00:00.000 UTC", None],
    ),
    (
        pa.array(
            [timedelta(days=1, seconds=2, milliseconds=3), timedelta(seconds=-1), None], pa.duration("us")
        ),
        "interval day to second",
        ["1 00:00:02.003", "-0 00:00:01.000", None],
    ),
    (
        pa.array(
            [
                pa.MonthDayNano([14, 2, 3 * 3600 * 10**9]),
                pa.MonthDayNano([0, 1, 0]),
                pa.MonthDayNano([0, 0, 0]),
                pa.MonthDayNano([-1, 0, -1_500_000_000]),
                None,
            ]
        ),
        "varchar",
        ["1 year 2 mons 2 days 03:00:00", "1 day", "00:00:00", "-1 mons -00:00:01.500000", None],
    ),
    (pa.nulls(2), "unknown", [None, None]),
    (pa.array([[1, None], [], None]), "array(bigint)", [[1, None], [], None]),
    (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), "array(integer)", [[1, 2]]),
    (pa.array([["a", None]], pa.large_list(pa.string())), "array(varchar)", [["a", None]]),
    (
        pa.array([[("k", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int64())),
        "map(varchar, bigint)",
        [{"k": 1, '"': None}, {}, None],
    ),
    (
        pa.array([[(1, [True])]], pa.map_(pa.int32(), pa.list_(pa.bool_()))),
        "map(integer, array(boolean))",
        [{"1": [True]}],
    ),
    (
        pa.array([{"a": 1, "B c": "x"}, {"a": None, "B c": None}, None]),
        'row(a bigint, "B c" varchar)',
        [[1, "x"], [None, None], None],
    ),
    (
        pa.array([[{"a": [1.5, None]}, None]]),
        "array(row(a array(double)))",
        [[[[1.5, None]], None]],
    ),
    (
        pa.ExtensionArray.from_storage(
            pa.uuid(),
            pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**128 - 1).bytes], pa.binary(16)),
        ),
        "uuid",
        [str(uuid.UUID(int=1)), None, str(uuid.UUID(int=2**128 - 1))],
    ),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}'])), "json", ['{"a":1}']),
    (pa.array([Decimal(10**50)], pa.decimal256(60, 0)), "varchar", [str(10**50)]),
]


@pytest.mark.parametrize(("array", "name", "values"), SAMPLES, ids=[name for _, name, _ in SAMPLES])
def test_a_column_of_each_type(array: pa.Array, name: str, values: list[Any]) -> None:
    got = encode(array)
    if name == "real":
        got = [None if value is None else round(value, 6) for value in got]
    assert got == values
    assert [type(value) for value in got] == [type(value) for value in values]
    assert trino_type(array.type)[0] == name


@pytest.mark.parametrize(("array", "name", "values"), SAMPLES, ids=[name for _, name, _ in SAMPLES])
def test_a_slice_of_each_type(array: pa.Array, name: str, values: list[Any]) -> None:
    doubled = pa.concat_arrays([array, array])
    assert encode(doubled.slice(1, len(array))) == encode(array)[1:] + encode(array)[:1]
    assert encode(doubled.slice(1, 0)) == []


def test_an_infinite_double_without_others() -> None:
    assert encode(pa.array([math.inf])) == ["Infinity"]


@given(st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8")))))
@settings(deadline=None)
def test_any_text(values: list[str | None]) -> None:
    assert encode(pa.array(values, pa.string())) == values


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20))), st.integers(0, 3))
@settings(deadline=None)
def test_any_bytes(values: list[bytes | None], skip: int) -> None:
    expected = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert encode(pa.array(values, pa.binary()).slice(min(skip, len(values)))) == expected[skip:]


@given(st.lists(st.one_of(st.none(), st.floats(width=64))))
@settings(deadline=None)
def test_any_double(values: list[float | None]) -> None:
    got = [float(value) if value is not None else None for value in encode(pa.array(values, pa.float64()))]
    assert str(got) == str(values)


@given(st.lists(st.one_of(st.none(), st.decimals(min_value=-99, max_value=99, places=20))))
@settings(deadline=None)
def test_any_decimal(values: list[Decimal | None]) -> None:
    got = encode(pa.array(values, pa.decimal128(38, 20)))
    assert [None if value is None else Decimal(value) for value in got] == values
    assert all(value is None or "E" not in value for value in got)


def test_rows_of_several_columns() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": [1, 2], "b": ["x", None], "c": ["y", "z"], "d": [None, 1.5], "e": ["p", "q"]}
    )
    assert RowEncoder(batch.schema).encode(batch) == b'[1,"x","y",null,"p"],[2,null,"z",1.5,"q"]'


def test_rows_without_columns() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert RowEncoder(batch.schema).encode(batch) == b"[],[]"


def test_signatures_as_clients_read_them() -> None:
    schema = pa.schema(
        {
            "v": pa.string(),
            "d": pa.decimal128(10, 2),
            "t": pa.timestamp("ms", "UTC"),
            "r": pa.struct({"a": pa.list_(pa.int32())}),
            "m": pa.map_(pa.string(), pa.float64()),
        }
    )
    columns = json.loads(RowEncoder(schema).columns)
    integer = {"rawType": "integer", "arguments": []}
    varchar = {"rawType": "varchar", "arguments": [{"kind": "LONG", "value": 2147483647}]}
    array = {"rawType": "array", "arguments": [{"kind": "TYPE", "value": integer}]}
    assert [column["typeSignature"] for column in columns] == [
        varchar,
        {"rawType": "decimal", "arguments": [{"kind": "LONG", "value": 10}, {"kind": "LONG", "value": 2}]},
        {"rawType": "timestamp with time zone", "arguments": [{"kind": "LONG", "value": 3}]},
        {
            "rawType": "row",
            "arguments": [
                {"kind": "NAMED_TYPE", "value": {"fieldName": {"name": "a"}, "typeSignature": array}}
            ],
        },
        {
            "rawType": "map",
            "arguments": [
                {"kind": "TYPE", "value": varchar},
                {"kind": "TYPE", "value": {"rawType": "double", "arguments": []}},
            ],
        },
    ]
