"""Text format: every Arrow type against what PostgreSQL writes (expected values taken from a real server)."""

import math
import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.rooms.wire_postgres.data_rows import encode, texts

DAY = pa.date32()
UUID = "0f3c1a52-7b6e-4c3d-9a51-0123456789ab"


def days(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32()).cast(DAY)


def stamps(*values: int | None, tz: str | None = None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", tz=tz))


def intervals(*values: tuple[int, int, int] | None) -> pa.Array:
    return pa.array([None if v is None else pa.MonthDayNano(list(v)) for v in values])


I64 = 2**63 - 1
HOUR = 3_600_000_000_000

CASES: list[tuple[str, pa.Array, list[str | None]]] = [
    ("bool", pa.array([True, False, None]), ["t", "f", None]),
    ("int8", pa.array([-128, 127, None], pa.int8()), ["-128", "127", None]),
    ("uint8", pa.array([0, 255], pa.uint8()), ["0", "255"]),
    ("int16", pa.array([-32768, 32767], pa.int16()), ["-32768", "32767"]),
    ("uint16", pa.array([0, 65535], pa.uint16()), ["0", "65535"]),
    ("int32", pa.array([-(2**31), 2**31 - 1, 0, None]), ["-2147483648", "2147483647", "0", None]),
    ("uint32", pa.array([0, 2**32 - 1], pa.uint32()), ["0", "4294967295"]),
    ("int64", pa.array([-(2**63), I64, -1]), ["-9223372036854775808", "9223372036854775807", "-1"]),
    ("int64 of one to fifteen digits", pa.array([10**k for k in range(15)]), [str(10**k) for k in range(15)]),
    ("uint64", pa.array([0, 2**64 - 1], pa.uint64()), ["0", "18446744073709551615"]),
    ("float32", pa.array([0.1, 1.5, 1e6, 1234567, 1e-5, 3.4e38, None], pa.float32()),
     ["0.1", "1.5", "1e+06", "1.234567e+06", "1e-05", "3.4e+38", None]),
    ("float16", pa.array(np.array([1.5, -2.0], np.float16)), ["1.5", "-2"]),
    ("float64", pa.array([0.1, -0.0, 100.0, 1e14, 1e15, 1.2345678e15, 1e16, 1e-4, 1e-5, 5e-324, None]),
     ["0.1", "-0", "100", "100000000000000", "1e+15", "1.2345678e+15", "1e+16", "0.0001", "1e-05",
      "5e-324", None]),
    ("float64, not finite", pa.array([math.nan, math.inf, -math.inf]), ["NaN", "Infinity", "-Infinity"]),
    ("float64 with few decimals", pa.array([1.25, -1.5, 0.0001, 9999999.9999, 0.0, None]),
     ["1.25", "-1.5", "0.0001", "9999999.9999", "0", None]),
    ("decimal", pa.array([Decimal("1.20"), Decimal("-0.05"), Decimal("0.00"), None], pa.decimal128(15, 2)),
     ["1.20", "-0.05", "0.00", None]),
    ("decimal, wide", pa.array([Decimal("-1e-10"), Decimal("12345678901234567890.5")], pa.decimal128(38, 10)),
     ["-0.0000000001", "12345678901234567890.5000000000"]),
    ("decimal(38,37)", pa.array([Decimal("9." + "9" * 37)], pa.decimal128(38, 37)), ["9." + "9" * 37]),
    ("hugeint", pa.array([Decimal(2**100), Decimal(-7)], pa.decimal128(38, 0)), [str(2**100), "-7"]),
    ("decimal256", pa.array([Decimal("1e60"), None], pa.decimal256(76, 2)), ["1" + "0" * 60 + ".00", None]),
    ("date", days(0, 19_000, None), ["1970-01-01", "2022-01-08", None]),
    ("date, far", days(-719_162, -719_163, 2_932_897, -735_234), ["0001-01-01", "0001-12-31 BC",
     "10000-01-01", "0045-12-31 BC"]),
    ("date, infinite", days(2**31 - 1, -(2**31) + 1, None), ["infinity", "-infinity", None]),
    ("time", pa.array([0, 86_399_999_999, 3_661_500_000, 86_400_000_000, None], pa.int64()).cast(
        pa.time64("us"), safe=False), ["00:00:00", "23:59:59.999999", "01:01:01.5", "24:00:00", None]),
    ("time32", pa.array([1, 2], pa.int32()).cast(pa.time32("s")), ["00:00:01", "00:00:02"]),
    ("timestamp", stamps(0, 1_500_000, 1, None), ["1970-01-01 00:00:00", "1970-01-01 00:00:01.5",
     "1970-01-01 00:00:00.000001", None]),
    ("timestamp before 1970", stamps(-1), ["1969-12-31 23:59:59.999999"]),
    ("timestamp, far", stamps(-62_135_596_800_000_000 - 1, 253_402_300_800_000_000),
     ["0001-12-31 23:59:59.999999 BC", "10000-01-01 00:00:00"]),
    ("timestamp, infinite", stamps(I64, -I64, None), ["infinity", "-infinity", None]),
    ("timestamp s", pa.array([60], pa.int64()).cast(pa.timestamp("s")), ["1970-01-01 00:01:00"]),
    ("timestamp ms", pa.array([1], pa.int64()).cast(pa.timestamp("ms")), ["1970-01-01 00:00:00.001"]),
    ("timestamp ns", pa.array([1_999], pa.int64()).cast(pa.timestamp("ns")), ["1970-01-01 00:00:00.000001"]),
    ("timestamptz", stamps(0, 1_500_000, None, tz="UTC"), ["1970-01-01 00:00:00+00",
     "1970-01-01 00:00:01.5+00", None]),
    ("text", pa.array(["", "a", None, "żółć", "x" * 100, "𝄞"]), ["", "a", None, "żółć", "x" * 100, "𝄞"]),
    ("large text", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("text view", pa.array(["a", None, "x" * 50], pa.string_view()), ["a", None, "x" * 50]),
    ("bytea", pa.array([b"", b"\x00\xff", None, b"abc"]), ["\\x", "\\x00ff", None, "\\x616263"]),
    ("fixed bytea", pa.array([b"ab", None], pa.binary(2)), ["\\x6162", None]),
    ("null", pa.nulls(2), [None, None]),
    ("enum", pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
    ("interval", intervals((14, 3, 4 * HOUR + 306_700_000_000), (-14, 3, -4 * HOUR), (0, 0, 0), None,
                           (1, 0, 0), (0, -1, 1_000_000_000), (0, 0, 100 * HOUR), (0, 0, -1_500_000_000)),
     ["1 year 2 mons 3 days 04:05:06.7", "-1 years -2 mons +3 days -04:00:00", "00:00:00", None, "1 mon",
      "-1 days +00:00:01", "100:00:00", "-00:00:01.5"]),
    ("duration", pa.array([timedelta(seconds=1)]), ["00:00:01"]),
    ("array of text",
     pa.array([["a", "b c", "NULL", "", 'x"y', "z\\w", "a,b", "{}", None, "null "], [], None]),
     ['{a,"b c","NULL","","x\\"y","z\\\\w","a,b","{}",NULL,"null "}', "{}", None]),
    ("array of int", pa.array([[1, None, 3], None, []]), ["{1,NULL,3}", None, "{}"]),
    ("array of arrays", pa.array([[[1, 2], [3, 4]]]), ["{{1,2},{3,4}}"]),
    ("array of timestamps", pa.array([[datetime(2020, 1, 1)]]), ['{"2020-01-01 00:00:00"}']),
    ("array of bool", pa.array([[True, False]]), ["{t,f}"]),
    ("array of bytea", pa.array([[b"\x01"]]), ['{"\\\\x01"}']),
    ("fixed array", pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), ["{1,2}", None]),
    ("struct", pa.array([{"a": 1, "b": 'x"\n'}, None, {"a": None, "b": "é"}]),
     ['{"a":1,"b":"x\\"\\n"}', None, '{"a":null,"b":"é"}']),
    ("struct of everything", pa.array([{"d": date(2020, 1, 1), "f": math.nan, "t": True, "l": [1.5]}]),
     ['{"d":"2020-01-01","f":"NaN","t":true,"l":[1.5]}']),
    ("map", pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int32())),
     ['{"k":1,"l":null}', None, "{}"]),
    ("array of structs", pa.array([[{"a": 1}, None], []]), ['[{"a":1},null]', "[]"]),
    ("uuid", pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes.fromhex(UUID.replace("-", "")), None], pa.binary(16))), [UUID, None]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_text_format(array: pa.Array, expected: list[str | None]) -> None:
    assert texts(array) == expected


@pytest.mark.parametrize(("array", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_slice_in_the_middle_of_an_array(array: pa.Array, expected: list[str | None]) -> None:
    padded = pa.concat_arrays([array, array, array])
    assert texts(padded.slice(len(array), len(array))) == expected
    assert texts(padded.slice(1, 1)) == [(expected * 3)[1]]


@pytest.mark.parametrize(("array", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_beside_other_columns_and_twice(array: pa.Array, expected: list[str | None]) -> None:
    left = pa.array([str(index) * (index % 5) for index in range(len(array))])
    long = pa.array(["y" * (index * 37 % 200) for index in range(len(array))])
    rows = encode([left, array, long, array, left])
    for index, row in enumerate(rows):
        value = expected[index]
        shown = None if value is None else value.encode()
        assert row[1] == row[3] == shown
        assert row[0] == row[4] == str(index).encode() * (index % 5)
        assert row[2] == b"y" * (index * 37 % 200)


def test_numbers_at_random() -> None:
    chance = random.Random(7)
    integers = [
        chance.randint(-(10 ** chance.randint(1, 18)), 10 ** chance.randint(1, 18)) for _ in range(500)
    ]
    for group in (
        integers,
        [n for n in integers if abs(n) < 10**15],
        [n for n in integers if abs(n) < 10**8],
    ):
        assert texts(pa.array(group, pa.int64())) == [str(n) for n in group]
    for scale in range(9):
        values = [Decimal(n % 10 ** (7 + scale)).scaleb(-scale) * (1 if n > 0 else -1) for n in integers]
        shown: list[Any] = texts(pa.array(values, pa.decimal128(18, scale)))
        assert shown == [f"{value:.{scale}f}" if value else f"{0:.{scale}f}" for value in values]


def test_floats_at_random_read_back_as_they_were() -> None:
    chance = random.Random(7)
    for values in (
        [round(chance.uniform(-1000, 1000), chance.randint(0, 4)) for _ in range(500)],
        [chance.uniform(-1, 1) * 10 ** chance.randint(-20, 20) for _ in range(500)],
    ):
        shown = texts(pa.array(values))
        assert [float(text or "") for text in shown] == values
        assert [len(text or "") <= len(repr(value)) + 1 for text, value in zip(shown, values, strict=True)]


def test_timestamps_in_a_zone_with_daylight_saving() -> None:
    array = stamps(1_700_000_000_000_000, 1_690_000_000_500_000, None, tz="UTC")
    assert texts(array, "Europe/Berlin") == ["2023-11-14 23:13:20+01", "2023-07-22 06:26:40.5+02", None]
    assert texts(array, "Asia/Kolkata")[0] == "2023-11-15 03:43:20+05:30"
    assert texts(stamps(-3_000_000_000_000_000, tz="UTC"), "Europe/Amsterdam")[0] is not None
    assert texts(array, "+02:00")[0] == "2023-11-15 00:13:20+02"


def test_many_rows_of_every_length() -> None:
    values = ["x" * (index % 100) for index in range(5_000)]
    values[777] = "long" * 10_000
    assert texts(pa.array(values)) == values
