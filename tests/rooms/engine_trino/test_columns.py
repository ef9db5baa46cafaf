"""Rows of JSON become Arrow columns: what the contract suite's real coordinator cannot be made to say, and
what none should."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.trino.columns import Columns
from queryflux.engines.trino.types import TrinoType, from_signature, from_text, postgres_name
from queryflux.model.errors import EngineConnectionLost, EngineError, EngineErrorKind


def column(kind: str, *values: Any) -> pa.Array:
    columns = Columns(["c"], [from_text(kind)])
    return columns.batch(json.dumps([[value] for value in values]).encode()).column(0)


def read(kind: str, *values: Any) -> list[Any]:
    found: list[Any] = column(kind, *values).to_pylist()
    return found


def test_floats_of_every_kind() -> None:
    found = read("double", 1, 1.5, "NaN", "Infinity", "-Infinity", None)
    assert found[:2] == [1.0, 1.5]
    assert str(found[2:]) == "[nan, inf, -inf, None]"
    assert read("real", 0.5, "NaN")[0] == 0.5


def test_years_beyond_four_digits() -> None:
    assert column("date", "-0044-03-15", "+10000-01-01", None, "2024-02-29").cast(pa.int32()).to_pylist() == [
        -735525, 2932897, None, 19782,
    ]  # fmt: skip
    found = column("timestamp(3)", "-0001-01-01 00:00:00.000", "+12345-01-01 10:00:00.123", None)
    assert found.type == pa.timestamp("us")
    assert found.cast(pa.int64()).to_pylist()[2] is None
    zoned = column(
        "timestamp(3) with time zone", "+12345-01-01 10:00:00.123 UTC", "2024-01-01 00:00:00.000 UTC"
    )
    assert zoned.null_count == 0


def test_precision_beyond_nanoseconds_is_cut() -> None:
    assert column("timestamp(12)", "2024-01-01 00:00:00.123456789999").cast(pa.int64()).to_pylist() == [
        1704067200123456789
    ]
    assert column("time(12)", "00:00:00.123456789999").cast(pa.int64()).to_pylist() == [123456789]
    assert column("timestamp(9)", None, "2024-01-01 00:00:00.000000001").type == pa.timestamp("ns")
    for kind in ("timestamp(9)", "timestamp(9) with time zone"):
        with pytest.raises(EngineError) as caught:
            read(kind, "9999-12-31 00:00:00.000000000" + (" UTC" if "zone" in kind else ""))
        assert caught.value.kind is EngineErrorKind.OUT_OF_RANGE
        assert "timestamp(6)" in caught.value.hint


def test_times() -> None:
    assert read("time(0)", "10:11:12", None) == [time(10, 11, 12), None]
    assert read("time(6)", "10:11:12.000001") == [time(10, 11, 12, 1)]
    assert read("time(3) with time zone", "10:11:12.000-08:00") == ["10:11:12.000-08:00"]


def test_zones() -> None:
    values = (
        "2024-07-01 12:00:00.000 Europe/Berlin",
        "2024-07-01 12:00:00.000 America/New_York",
        "2024-07-01 12:00:00.000 -08:00",
        None,
        "2024-07-01 12:00:00.000 UTC",
        "2024-10-27 02:30:00.000 Europe/Berlin",
    )
    hours = [10, 16, 20, None, 12]
    found = read("timestamp(3) with time zone", *values)
    assert found[:5] == [None if h is None else datetime(2024, 7, 1, h, tzinfo=UTC) for h in hours]
    assert found[5] == datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    assert read("timestamp(3) with time zone", None, None) == [None, None]


def test_maps_of_every_key() -> None:
    for kind, key, expected in (
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("tinyint", "-1", -1),
        ("boolean", "false", False),
        ("double", "1.5", 1.5),
        ("double", "Infinity", float("inf")),
        ("decimal(3,1)", "10.5", Decimal("10.5")),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("varbinary", "AP8=", b"\x00\xff"),
        ("array(integer)", "[1]", "[1]"),
        ("row(integer, integer)", "[1, 2]", "[1, 2]"),
    ):
        assert read(f"map({kind}, integer)", {key: 1}, None, {}) == [[(expected, 1)], None, []]


def test_nested_nulls() -> None:
    kind = "array(row(a integer, b array(varchar)))"
    assert read(kind, [[1, ["x", None]], None, [None, None]], None, []) == [
        [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}], None, [],
    ]  # fmt: skip
    assert read("row(a map(varchar, row(b date)))", [{"k": ["2024-01-01"]}], None, [None]) == [
        {"a": [("k", {"b": date(2024, 1, 1)})]}, None, {"a": None},
    ]  # fmt: skip
    assert read("row(x integer)", *[]) == []


def test_types_that_we_do_not_know_are_text() -> None:
    assert column("Geometry", "POINT (1 2)", None).to_pylist() == ["POINT (1 2)", None]
    assert read("something(new)", {"a": [1]}, 5, True, "x") == ['{"a":[1]}', "5", "true", "x"]
    assert read("HyperLogLog", "AgwA") == [b"\x02\x0c\x00"]
    assert read("qdigest(bigint)", None) == [None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", "x"), ("integer", 2**40), ("tinyint", 300), ("boolean", 1), ("double", "x"),
        ("varchar", 5),
        ("decimal(3,1)", "x"), ("decimal(2,1)", "99.9"), ("decimal(3,1)", 1.5), ("varbinary", "*"),
        ("varbinary", 5), ("uuid", "x"), ("uuid", "12"), ("json", {"a": 1}), ("date", "yesterday"),
        ("date", 5),
        ("time(3)", "25:00:00"), ("timestamp(3)", "x"), ("timestamp(3) with time zone", "x"),
        ("timestamp(3) with time zone", "2024-01-01 00:00:00 Nowhere/Else"), ("array(integer)", "12"),
        ("array(integer)", 5), ("map(integer, integer)", [1]), ("map(integer, integer)", {"x": 1}),
        ("row(a integer, b integer)", [1]), ("interval day to second", "x"), ("interval year to month", 5),
        ("unknown", 5),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(kind: str, value: Any) -> None:
    with pytest.raises(EngineConnectionLost):
        read(kind, value)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b"[[1, 2]]", b"[[]]", b"[[1], []]", b"[[1]", b"null", b'["ab"]']
)
def test_rows_that_are_none(data: bytes) -> None:
    with pytest.raises(EngineConnectionLost):
        Columns(["c"], [from_text("integer")]).batch(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("varchar", TrinoType("varchar")),
        ("varchar(5)", TrinoType("varchar", (5,))),
        ("decimal(12, 2)", TrinoType("decimal", (12, 2))),
        ("timestamp(3) with time zone", TrinoType("timestamp with time zone", (3,))),
        ("time with time zone", TrinoType("time with time zone")),
        ("timestamp(6) without time zone", TrinoType("timestamp", (6,))),
        ("interval day to second", TrinoType("interval day to second")),
        ("array(bigint)", TrinoType("array", (), (TrinoType("bigint"),))),
        ("map(varchar, array(date))",
         TrinoType("map", (), (TrinoType("varchar"), TrinoType("array", (), (TrinoType("date"),))))),
        ('row(a integer, "b c" decimal(3,1), "d""e" timestamp(3) with time zone)',
         TrinoType("row", (), (TrinoType("integer"), TrinoType("decimal", (3, 1)),
                               TrinoType("timestamp with time zone", (3,))), ("a", "b c", 'd"e'))),
        ("row(integer, interval day to second)",
         TrinoType("row", (), (TrinoType("integer"), TrinoType("interval day to second")),
                   ("field0", "field1"))),
        ("row(", TrinoType("row(")),
        ("", TrinoType("")),
        ("a b c", TrinoType("a b c")),
    ],
)  # fmt: skip
def test_types_from_text(text: str, expected: TrinoType) -> None:
    assert from_text(text) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b"5",
        b'{"rawType":"x","arguments":[5]}',
        b'{"rawType":"x","arguments":[{"kind":"LONG"}]}',
    ],
)
def test_signatures_that_are_none(raw: bytes) -> None:
    with pytest.raises(EngineConnectionLost):
        from_signature(raw, "x")


def test_the_signature_says_what_the_text_says() -> None:
    signature = {
        "rawType": "row",
        "arguments": [
            {"kind": "NAMED_TYPE", "value": {"fieldName": {"name": "a"}, "typeSignature": {
                "rawType": "decimal",
                "arguments": [{"kind": "LONG", "value": 3}, {"kind": "LONG", "value": 1}]}}},
            {"kind": "NAMED_TYPE", "value": {"typeSignature": {
                "rawType": "array",
                "arguments": [{"kind": "TYPE", "value": {"rawType": "HyperLogLog", "arguments": []}}]}}},
        ],
    }  # fmt: skip
    found = from_signature(json.dumps(signature).encode(), "")
    expected = from_text("row(a decimal(3,1), x array(HyperLogLog))")
    assert found.parts == expected.parts
    assert found.names == ("a", "field1")
    assert from_signature(b"", "decimal(3,1)") == TrinoType("decimal", (3, 1))


def test_names_for_postgres_clients() -> None:
    for text, name in (
        ("decimal(12,2)", "numeric(12,2)"),
        ("varchar(5)", "text"),
        ("array(bigint)", "bigint[]"),
        ("timestamp(3) with time zone", "timestamp with time zone"),
        ("unknown", ""),
        ("HyperLogLog", "text"),
    ):
        assert postgres_name(from_text(text)) == name
