"""Arrow parameters become values with PostgreSQL's type names."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from queryflux.frontends.flight_sql.parameters import rows_of, schema_of
from queryflux.model.errors import InvalidRequest, NotSupported
from queryflux.model.statement import Parameter

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)


@pytest.mark.parametrize(
    ("values", "expected", "name"),
    [
        (pa.array([True, None]), [True, None], "bool"),
        (pa.array([1, -1], pa.int8()), [1, -1], "int2"),
        (pa.array([65535], pa.uint16()), [65535], "int4"),
        (pa.array([1], pa.int32()), [1], "int4"),
        (pa.array([1]), [1], "int8"),
        (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1], "numeric"),
        (pa.array([1.5], pa.float32()), [1.5], "float4"),
        (pa.array([1.5]), [1.5], "float8"),
        (pa.array([Decimal("1.50")]), [Decimal("1.50")], "numeric"),
        (pa.array(["ä", None]), ["ä", None], ""),
        (pa.array(["x"], pa.large_string()), ["x"], ""),
        (pa.array([None]), [None], ""),
        (pa.array([b"\0\xff"]), [b"\0\xff"], "bytea"),
        (pa.array([dt.date(1, 1, 1)]), [dt.date(1, 1, 1)], "date"),
        (pa.array([dt.time(1, 2, 3)]), [dt.time(1, 2, 3)], "time"),
        (pa.array([NOON]), [NOON], "timestamp"),
        (pa.array([NOON]).cast(pa.timestamp("ns")), [NOON], "timestamp"),
        (pa.array([1], pa.timestamp("ns")), [dt.datetime(1970, 1, 1)], "timestamp"),
        (pa.array([NOON], pa.timestamp("us", "UTC")), [NOON.replace(tzinfo=dt.UTC)], "timestamptz"),
        (pa.array([dt.timedelta(days=1)]), [dt.timedelta(days=1)], "interval"),
        (pa.array([[1, 2], None]), [[1, 2], None], "int8[]"),
        (pa.array([["a"]]), [["a"]], ""),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"], ""),
    ],
)
def test_a_column(values: pa.Array, expected: list[Any], name: str) -> None:
    rows = rows_of(pa.record_batch([values], names=["p"]))
    assert [row[0].value for row in rows] == expected
    assert {row[0].type_name for row in rows} == {name}


def test_rows_across_columns() -> None:
    batch = pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"])], names=["0", "1"])
    assert rows_of(batch) == [
        (Parameter(1, "int8"), Parameter("a")),
        (Parameter(2, "int8"), Parameter("b")),
    ]


def test_parameters_that_are_refused() -> None:
    with pytest.raises(NotSupported, match="struct"):
        rows_of(pa.record_batch([pa.array([{"a": 1}])], names=["p"]))
    far = pa.array([2**62], pa.timestamp("s"))
    with pytest.raises(InvalidRequest, match="'p' cannot be read"):
        rows_of(pa.record_batch([far], names=["p"]))


def test_parameter_types_as_a_schema() -> None:
    schema = schema_of(("int8", "TEXT", "some_enum"))
    assert schema.names == ["1", "2", "3"]
    assert schema.types == [pa.int64(), pa.string(), pa.null()]
