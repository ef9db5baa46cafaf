"""Arrow columns in the text protocol: the spelling of every type, and rows of every size."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queryflux.wire.mysql.rows import FEW_ROWS, RowEncoder
from tests.rooms.wire_mysql.reading import packets, text_cells


def spelled(array: pa.Array) -> list[bytes | None]:
    """The cells of one column, sent alone, padded so that the column is encoded as a whole."""
    column = array
    while len(column) <= FEW_ROWS:
        column = pa.concat_arrays([column, array])
    batch = pa.record_batch([column], names=["c"])
    data, following = RowEncoder(batch.schema).encode(batch, 250)
    rows = [text_cells(payload) for payload in packets(bytes(data), 250)]
    assert following == (250 + len(column)) & 0xFF
    assert all(len(row) == 1 for row in rows)
    cells = [row[0] for row in rows]
    assert cells == cells[: len(array)] * (len(column) // len(array))
    return cells[: len(array)]


SPELLINGS: list[tuple[Any, list[Any], list[bytes | None]]] = [
    (pa.bool_(), [True, None, False], [b"1", None, b"0"]),
    (pa.int8(), [-128, 127, None], [b"-128", b"127", None]),
    (pa.uint64(), [2**64 - 1, 0], [b"18446744073709551615", b"0"]),
    (pa.int64(), [-(2**63), None], [b"-9223372036854775808", None]),
    (pa.float64(), [1.5, -0.25, 100.0, None], [b"1.5", b"-0.25", b"100", None]),
    (pa.float64(), [float("nan"), float("inf"), float("-inf")], [b"NaN", b"Infinity", b"-Infinity"]),
    (pa.float32(), [0.1, 3.0], [b"0.1", b"3"]),
    (
        pa.decimal128(38, 10),
        [Decimal("0.0000000001"), Decimal("-0.0000000001"), Decimal("12.5"), None],
        [b"0.0000000001", b"-0.0000000001", b"12.5000000000", None],
    ),
    (pa.decimal128(38, 0), [Decimal(10**37)], [b"1" + b"0" * 37]),
    (pa.decimal64(10, 2), [Decimal("-0.01")], [b"-0.01"]),
    (pa.float16(), [1.5, None], [b"1.5", None]),
    (pa.decimal256(50, 2), [Decimal("0.01"), Decimal(0)], [b"0.01", b"0.00"]),
    (pa.string(), ["", "héllo 🌍", "a\0b", None], [b"", "héllo 🌍".encode(), b"a\0b", None]),
    (pa.large_string(), ["x", None], [b"x", None]),
    (pa.string_view(), ["x", None], [b"x", None]),
    (pa.binary(), [b"\0\xff", b"", None], [b"\0\xff", b"", None]),
    (pa.binary(2), [b"ab", None], [b"ab", None]),
    (pa.date32(), [datetime.date(2024, 2, 29), None], [b"2024-02-29", None]),
    (
        pa.date32(),
        [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None],
        [b"0001-01-01", b"9999-12-31", None],
    ),
    (pa.date64(), [datetime.date(1970, 1, 2)], [b"1970-01-02"]),
    (pa.timestamp("s"), [datetime.datetime(2000, 1, 2, 3, 4, 5)], [b"2000-01-02 03:04:05"]),
    (pa.timestamp("ms"), [datetime.datetime(2000, 1, 2, 3, 4, 5, 6000)], [b"2000-01-02 03:04:05.006"]),
    (
        pa.timestamp("us"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), None],
        [b"1969-12-31 23:59:59.999999", None],
    ),
    (pa.timestamp("us"), [datetime.datetime(1, 1, 1, 0, 0, 0, 1)], [b"0001-01-01 00:00:00.000001"]),
    (pa.timestamp("ns"), [1_000_000_999], [b"1970-01-01 00:00:01.000000"]),
    (
        pa.timestamp("us", "Europe/Paris"),
        [datetime.datetime(2024, 7, 1, 12, 0, tzinfo=datetime.UTC)],
        [b"2024-07-01 12:00:00.000000"],
    ),
    (pa.time64("us"), [datetime.time(12, 34, 56, 789)], [b"12:34:56.000789"]),
    (pa.time32("s"), [datetime.time(0, 0, 1), None], [b"00:00:01", None]),
    (
        pa.duration("us"),
        [datetime.timedelta(hours=-30, microseconds=-5), datetime.timedelta(days=34), None],
        [b"-30:00:00.000005", b"816:00:00.000000", None],
    ),
    (
        pa.month_day_nano_interval(),
        [pa.MonthDayNano([14, 3, 4 * 3600 * 10**9]), pa.MonthDayNano([-1, 0, -(10**9)]), None],
        [b"1 year 2 months 3 days 04:00:00.000000", b"-1 month -00:00:01.000000", None],
    ),
    (pa.null(), [None, None], [None, None]),
    (pa.list_(pa.int32()), [[1, None, 3], [], None], [b"[1,null,3]", b"[]", None]),
    (pa.list_(pa.string()), [['a"b\\', "c\n\x01"]], [b'["a\\"b\\\\","c\\n\\u0001"]']),
    (pa.list_(pa.int8(), 2), [[1, 2], None], [b"[1,2]", None]),
    (pa.large_list(pa.float64()), [[1.5, float("nan")]], [b'[1.5,"NaN"]']),
    (
        pa.struct([("a", pa.int32()), ('b"', pa.list_(pa.bool_()))]),
        [{"a": 1, 'b"': [True]}, {"a": None, 'b"': None}, None],
        [b'{"a":1,"b\\"":[true]}', b'{"a":null,"b\\"":null}', None],
    ),
    (pa.struct([]), [{}, None], [b"{}", None]),
    (
        pa.map_(pa.string(), pa.int32()),
        [[("k", 1), ("l", None)], [], None],
        [b'{"k":1,"l":null}', b"{}", None],
    ),
    (pa.map_(pa.int32(), pa.date32()), [[(1, datetime.date(2024, 1, 1))]], [b'{"1":"2024-01-01"}']),
    (pa.list_(pa.decimal128(10, 2)), [[Decimal("1.50")]], [b"[1.50]"]),
    (pa.list_(pa.binary()), [[b"\x01\xff", None]], [b'["01ff",null]']),
    (pa.list_(pa.timestamp("us")), [[datetime.datetime(2024, 1, 1)]], [b'["2024-01-01 00:00:00.000000"]']),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b"], [b"a", None, b"b"]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), SPELLINGS, ids=lambda item: str(item)[:40])
def test_every_type_has_its_spelling(kind: Any, values: list[Any], expected: list[bytes | None]) -> None:
    assert spelled(pa.array(values, kind)) == expected


def test_extension_types() -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16)))
    assert spelled(uuids) == [b"00010203-0405-0607-0809-0a0b0c0d0e0f", None]
    documents = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None]))
    assert spelled(documents) == [b'{"a":1}', None]


def test_a_union_is_json() -> None:
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])], ["x", "y"]
    )
    assert spelled(union) == [b"1", b'"b"']


def test_infinite_days_and_moments_keep_their_names() -> None:
    days = pa.array([2**31 - 1, -(2**31 - 1), 0, None], pa.int32()).cast(pa.date32())
    assert spelled(days) == [b"infinity", b"-infinity", b"1970-01-01", None]
    moments = pa.array([2**63 - 1, -(2**63 - 1), 0, None], pa.int64()).cast(pa.timestamp("us"))
    assert spelled(moments) == [b"infinity", b"-infinity", b"1970-01-01 00:00:00.000000", None]


def test_the_end_of_the_day() -> None:
    assert spelled(pa.array([86_400_000_000], pa.int64()).cast(pa.time64("us"))) == [b"24:00:00.000000"]


def test_a_slice_of_a_larger_batch() -> None:
    column = pa.array([None if index % 7 == 0 else "x" * (index % 5) for index in range(500)])
    numbers = pa.array([None if index % 3 == 0 else index for index in range(500)], pa.int32())
    batch = pa.record_batch([column, numbers], names=["s", "n"]).slice(101, 300)
    data, _ = RowEncoder(batch.schema).encode(batch, 0)
    rows = [text_cells(payload) for payload in packets(bytes(data), 0)]
    expected = [
        [None if s is None else s.encode(), None if n is None else b"%d" % n]
        for s, n in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    assert rows == expected


@pytest.mark.parametrize("length", [0, 250, 251, 65_535, 65_536, 1 << 24])
def test_values_of_every_length_class(length: int) -> None:
    values = ["y" * length, None, "z"] + ["w"] * FEW_ROWS
    batch = pa.record_batch([pa.array(values)], names=["c"])
    data, following = RowEncoder(batch.schema).encode(batch, 7)
    rows = [text_cells(payload)[0] for payload in packets(bytes(data), 7)]
    assert rows == [None if value is None else value.encode() for value in values]
    assert following == 7 + len(values) + (length >= 1 << 24)


@pytest.mark.parametrize("short", [-9, 0])
def test_a_row_of_exactly_one_full_packet_is_followed_by_an_empty_one(short: int) -> None:
    value = "v" * (0xFFFFFF - 4 + short)
    batch = pa.record_batch([pa.array([value] + ["w"] * FEW_ROWS)], names=["c"])
    data, _ = RowEncoder(batch.schema).encode(batch, 0)
    assert text_cells(next(packets(bytes(data), 0))) == [value.encode()]


def test_slices_are_bounded_in_rows_and_bytes() -> None:
    batch = pa.record_batch([pa.array(["x" * 100_000] * 64)], names=["c"])
    encoder = RowEncoder(batch.schema)
    slices = list(encoder.slices(batch))
    assert sum(piece.num_rows for piece in slices) == 64
    assert max(piece.num_rows for piece in slices) <= 11


SIMPLE = st.one_of(
    st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(pa.float64()), st.floats()),
    st.tuples(st.just(pa.string()), st.text(max_size=300)),
    st.tuples(st.just(pa.binary()), st.binary(max_size=300)),
    st.tuples(st.just(pa.bool_()), st.booleans()),
    st.tuples(st.just(pa.date32()), st.dates()),
    st.tuples(st.just(pa.timestamp("us")), st.datetimes()),
    st.tuples(st.just(pa.timestamp("ms")), st.datetimes().map(lambda d: d.replace(microsecond=0))),
    st.tuples(
        st.just(pa.decimal128(38, 9)),
        st.decimals(-(10**20), 10**20, places=9, allow_nan=False),
    ),
)


@given(SIMPLE)
@example((pa.float64(), 1e10))
@example((pa.float64(), 9999999999.5))
@settings(max_examples=200, deadline=None)
def test_a_few_rows_are_spelled_as_many_are(sample: tuple[Any, Any]) -> None:
    kind, value = sample
    array = pa.array([value, None], kind)
    batch = pa.record_batch([array], names=["c"])
    data, _ = RowEncoder(batch.schema).encode(batch, 0)
    assert [text_cells(payload)[0] for payload in packets(bytes(data), 0)] == spelled(array)


def test_nothing_comes_of_no_rows() -> None:
    batch = pa.record_batch([pa.array([], pa.int32())], names=["c"])
    assert RowEncoder(batch.schema).encode(batch, 9) == (b"", 9)
