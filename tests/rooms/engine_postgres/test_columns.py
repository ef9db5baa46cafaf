"""From ADBC's columns to ours."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from queryflux.engines.postgres.columns import (
    LOOSE,
    decimal_of,
    finite_dates,
    finite_timestamps,
    plan_of,
    to_decimal,
    uuid_text,
)
from queryflux.model.errors import EngineError


def modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (12, 2, pa.decimal128(12, 2)),
        (38, 37, pa.decimal128(38, 37)),
        (5, 0, pa.decimal128(5, 0)),
        (5, -2, pa.decimal128(7, 0)),
        (3, 5, pa.decimal128(5, 5)),
        (39, 2, LOOSE),
        (1000, 1000, LOOSE),
        (1000, -1000, LOOSE),
    ],
)
def test_type_modifiers(precision: int, scale: int, expected: pa.DataType) -> None:
    assert decimal_of(modifier(precision, scale)) == expected


def test_no_type_modifier() -> None:
    assert decimal_of(-1) == LOOSE


def test_decimals_are_exact_and_rounded_as_the_server_does() -> None:
    convert = to_decimal(LOOSE)
    given = ["1.5", None, "-0.0000000000000000005", "99999999999999999999.999999999999999999"]
    assert convert(pa.array(given)).to_pylist() == [
        Decimal("1.5"),
        None,
        Decimal("-0.000000000000000001"),
        Decimal("99999999999999999999.999999999999999999"),
    ]
    assert convert(pa.array(["0." + "3" * 100])).to_pylist() == [Decimal("0." + "3" * 18)]
    for text in ("nan", "infinity", "100000000000000000000", "1" * 90):
        with pytest.raises(EngineError) as caught:
            convert(pa.array([text]))
        assert caught.value.sqlstate == "22003"


def test_uuids() -> None:
    values = [UUID(int=n * 0x1234567890ABCDEF1234567890ABCDE) for n in range(5)]
    array = pa.array([value.bytes for value in values], pa.uuid())
    assert uuid_text(array).to_pylist() == [str(value) for value in values]
    assert uuid_text(array.slice(2, 2)).to_pylist() == [str(value) for value in values[2:4]]
    some = pa.array([None, values[1].bytes, None], pa.uuid())
    assert uuid_text(some).to_pylist() == [None, str(values[1]), None]
    assert uuid_text(some.slice(0, 0)).to_pylist() == []
    assert uuid_text(pa.array([None], pa.uuid())).to_pylist() == [None]


def test_infinities() -> None:
    micros = pa.array([-9222425352054775809, -9222425352054775808, None, 0, -62135596800000001], pa.int64())
    clean = finite_timestamps(micros.view(pa.timestamp("us")))
    assert clean.type == pa.timestamp("us")
    assert clean.view(pa.int64()).to_pylist() == [
        253402300799999999,
        -62135596800000000,
        None,
        0,
        -62135596800000001,
    ]
    zoned = finite_timestamps(micros.view(pa.timestamp("us", "UTC")))
    assert zoned.type == pa.timestamp("us", "UTC")
    days = pa.array([-2147472692, -2147472691, None, 1], pa.int32())
    assert finite_dates(days.view(pa.date32())).view(pa.int32()).to_pylist() == [2932896, -719162, None, 1]
    plain = pa.array([1, 2], pa.int64()).view(pa.timestamp("us"))
    assert finite_timestamps(plain) is plain
    assert len(finite_timestamps(plain.slice(0, 0))) == 0


def test_lists_keep_their_nulls() -> None:
    field = pa.field("a", pa.list_(pa.uuid()), metadata={"POSTGRESQL:type": "_uuid"})
    plan = plan_of(field)
    assert plan.type == pa.list_(pa.string())
    value = UUID(int=7)
    texts = [[str(value)], None, [], [None, str(value)]]
    lists = [None if row is None else [text and UUID(text).bytes for text in row] for row in texts]
    array = pa.array(lists, pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid()))
    assert plan.convert is not None
    assert plan.convert(array).to_pylist() == texts


def test_types_that_are_cast_in_the_server() -> None:
    def cast(type_: pa.DataType, name: str) -> str:
        return plan_of(pa.field("a", type_, metadata={"POSTGRESQL:type": name})).cast

    opaque = pa.opaque(pa.binary(), "inet", "PostgreSQL")
    assert cast(opaque, "inet") == "text"
    assert cast(pa.list_(opaque), "_inet") == "text[]"
    assert cast(pa.int64(), "money") == "numeric(19,2)"
    assert cast(pa.int32(), "oid") == "int8"
    assert cast(pa.list_(pa.int32()), "_oid") == "int8[]"
    assert cast(pa.struct([("x", pa.int32())]), "record") == "text"
    assert cast(pa.opaque(pa.binary(), "xml", "PostgreSQL"), "xml") == ""
    assert cast(pa.int64(), "int8") == ""
