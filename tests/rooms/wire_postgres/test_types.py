import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from queryflux.model.statement import Parameter
from queryflux.wire.postgres.constants import ARRAY_OF, Oid
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.types import (
    NAMES,
    BoundParameters,
    array_literal,
    name_of,
    oid_of,
    short_name,
)


@pytest.mark.parametrize(
    ("name", "oid"),
    [
        ("integer", 23), ("int", 23), ("INT4", 23), ("bigint", 20), ("text", 25), ("varchar(10)", 1043),
        ("character varying", 1043), ("numeric(10, 2)", 1700), ("timestamp(3) without time zone", 1114),
        ("timestamp with time zone", 1184), ("timestamptz", 1184), ("double precision", 701),
        ("integer[]", 1007), ("text[]", 1009), ("something odd", 25), ("uuid", 2950), ("time", 1083),
    ],
)  # fmt: skip
def test_oid_of_a_name(name: str, oid: int) -> None:
    assert oid_of(name) == oid


def test_names_and_oids_agree() -> None:
    for oid, name in NAMES.items():
        assert not name or oid_of(name) == oid
        assert name_of(oid) == name
    for element, array in ARRAY_OF.items():
        assert name_of(array) == f"{name_of(element)}[]"
        assert oid_of(name_of(array)) == array
        assert short_name(array) == f"_{short_name(element)}"
    assert short_name(Oid.INT4) == "int4"
    assert short_name(999_999) == ""


def bound(raw: bytes | None, oid: int, code: int) -> Parameter:
    (parameter,) = BoundParameters((raw,), (code,), (oid,))
    return parameter


@pytest.mark.parametrize(
    ("text", "oid", "value"),
    [
        ("7", Oid.INT4, 7), ("t", Oid.BOOL, True), ("off", Oid.BOOL, False),
        ("1.50", Oid.NUMERIC, Decimal("1.50")),
        ("NaN", Oid.NUMERIC, Decimal("NaN")), ("1e3", Oid.FLOAT8, 1000.0),
        ("x", Oid.TEXT, "x"), ("x", 0, "x"),
        ("2020-01-02", Oid.DATE, date(2020, 1, 2)), ("infinity", Oid.DATE, "infinity"),
        ("2020-01-02 +00", Oid.DATE, date(2020, 1, 2)),
        ("2020-01-02 03:04:05-05:30", Oid.DATE, date(2020, 1, 2)),
        ("20200102", Oid.DATE, date(2020, 1, 2)), ("2020-01-02 BC", Oid.DATE, "2020-01-02 BC"),
        ("2020-01-02 03:04:05+02", Oid.TIMESTAMP, datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02 03:04:05.5", Oid.TIMESTAMP, datetime(2020, 1, 2, 3, 4, 5, 500000)),
        ("2020-01-02 03:04:05+02", Oid.TIMESTAMPTZ,
         datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))),
        ("03:04:05", Oid.TIME, time(3, 4, 5)), ("\\x00ff", Oid.BYTEA, b"\0\xff"),
        ("a\\\\b\\001", Oid.BYTEA, b"a\\b\1"), ("{1,NULL,3}", Oid.INT4_ARRAY, [1, None, 3]),
        ('{"a b",c}', Oid.TEXT_ARRAY, ["a b", "c"]),
    ],
)  # fmt: skip
def test_text_values(text: str, oid: int, value: Any) -> None:
    found = bound(text.encode(), oid, 0).value
    assert found == value or (found != found and value != value)
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("raw", "oid", "value"),
    [
        (b"\1", Oid.BOOL, True), (struct.pack("!h", -1), Oid.INT2, -1),
        (struct.pack("!q", 2**40), Oid.INT8, 2**40),
        (struct.pack("!d", 1.5), Oid.FLOAT8, 1.5), (b"x", Oid.VARCHAR, "x"), (b"\0", Oid.BYTEA, b"\0"),
        (struct.pack("!i", -10957), Oid.DATE, date(1970, 1, 1)), (b"\x7f\xff\xff\xff", Oid.DATE, "infinity"),
        (struct.pack("!q", 0), Oid.TIMESTAMP, datetime(2000, 1, 1)),
        (struct.pack("!q", 0), Oid.TIMESTAMPTZ, datetime(2000, 1, 1, tzinfo=UTC)),
        (struct.pack("!q", 1), Oid.TIME, time(0, 0, 0, 1)),
        (struct.pack("!qi", 0, -7200), Oid.TIMETZ, time(0, tzinfo=timezone(timedelta(hours=2)))),
        (struct.pack("!qii", 5, 1, 0), Oid.INTERVAL, timedelta(days=1, microseconds=5)),
        (struct.pack("!qii", 0, 0, 3), Oid.INTERVAL, "3 mons 0 days 0.000000 secs"),
        (b"\1{}", Oid.JSONB, "{}"), (bytes(16), Oid.UUID, UUID(int=0)),
        (struct.pack("!hhHh2H", 2, 0, 0x4000, 2, 1, 2000), Oid.NUMERIC, Decimal("-1.20")),
        (struct.pack("!hhHh", 0, 0, 0xC000, 0), Oid.NUMERIC, Decimal("NaN")),
        (struct.pack("!iiIii", 1, 0, 23, 1, 1) + struct.pack("!ii", 4, 9), Oid.INT4_ARRAY, [9]),
        (struct.pack("!iiI", 0, 0, 23), Oid.INT4_ARRAY, []),
    ],
)  # fmt: skip
def test_binary_values(raw: bytes, oid: int, value: Any) -> None:
    found = bound(raw, oid, 1).value
    assert found == value or (found != found and value != value)
    assert type(found) is type(value)


def test_null_and_the_name_of_its_type() -> None:
    assert bound(None, Oid.INT4, 1) == Parameter(None, "integer")


@pytest.mark.parametrize(
    ("raw", "oid", "code", "state"),
    [
        (b"x", Oid.INT4, 0, "22P02"), (b"maybe", Oid.BOOL, 0, "22P02"), (b"\0", Oid.INT4, 1, "22P03"),
        (b"{1", Oid.INT4_ARRAY, 0, "22P02"), (b"\xff", Oid.TEXT, 0, "22021"), (b"x", 0, 1, "0A000"),
        (b"\2{}", Oid.JSONB, 1, "22P03"), (b"\0" * 12, 600, 1, "0A000"),
        (b"\0\1" * 4, Oid.NUMERIC, 1, "22P03"),
        (struct.pack("!iiIii", 1, 0, 23, 5, 1), Oid.INT4_ARRAY, 1, "22P03"),
    ],
)  # fmt: skip
def test_what_a_type_does_not_allow(raw: bytes, oid: int, code: int, state: str) -> None:
    with pytest.raises(PostgresError) as caught:
        bound(raw, oid, code)
    assert caught.value.sqlstate == state


def test_parameters_are_decoded_only_when_looked_at() -> None:
    parameters = BoundParameters((b"not a number",), (), (Oid.INT4,))
    assert len(parameters) == 1
    assert parameters
    with pytest.raises(PostgresError, match=r"\$1"):
        parameters[0]


def test_one_format_stands_for_all() -> None:
    parameters = BoundParameters((b"\0\0\0\1", b"\0\0\0\2"), (1,), (23, 23))
    assert [parameter.value for parameter in parameters] == [1, 2]
    assert parameters[1:] == (Parameter(2, "integer"),)


@pytest.mark.parametrize("text", ["", "x", "{", "{a", '{"a', "{a,}", "{,a}", "{a}b", "{" * 10, "{a\\"])
def test_what_is_not_an_array(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        array_literal(text, str)


def test_arrays_of_arrays() -> None:
    assert array_literal("{{1,2},{3,4}}", int) == [[1, 2], [3, 4]]
    assert array_literal('[0:1]={ "a\\"b" , null }', str) == ['a"b', None]
