"""What a client was told of its columns, and what comes."""

import pyarrow as pa
import pytest

from queryflux.model.errors import EngineError
from queryflux.wire.postgres.agreed import as_told, cast_batch
from queryflux.wire.postgres.constants import Oid
from queryflux.wire.postgres.errors import CHANGED_RESULT, PostgresError, error_response, notice
from queryflux.wire.postgres.messages import NO_DATA, Column, row_description
from queryflux.wire.postgres.relayed import described_columns, first_description, same_columns


def told(*columns: tuple[str, int], code: int = 0) -> bytes:
    return row_description([Column(*column) for column in columns], (code,) * len(columns))


def test_the_same_columns_in_another_format_or_of_another_servers_type() -> None:
    assert same_columns(told(("a", 23), ("é", 25)), told(("a", 23), ("é", 25), code=1))
    assert same_columns(told(("a", 16_500)), told(("a", 20_000)))
    assert same_columns(NO_DATA, NO_DATA)
    for other in (told(("b", 23)), told(("a", 20)), told(("a", 23), ("a", 23)), NO_DATA):
        assert not same_columns(told(("a", 23)), other)


def test_the_description_that_comes_first() -> None:
    one = told(("a", 23))
    assert first_description(notice("NOTICE", "00000", "x") + one + NO_DATA) == one
    assert first_description(NO_DATA) == first_description(b"") == b""


@pytest.mark.parametrize(
    ("arrow", "oid", "value"),
    [
        (pa.int32(), Oid.INT8, 7),
        (pa.int64(), Oid.FLOAT8, 7.0),
        (pa.decimal128(22, 2), Oid.FLOAT8, 7.0),
        (pa.int64(), Oid.NUMERIC, 7),
        (pa.null(), Oid.INT4, None),
        (pa.null(), Oid.DATE, None),
        (pa.null(), Oid.INT4_ARRAY, None),
    ],
)
def test_what_is_converted(arrow: pa.DataType, oid: int, value: object) -> None:
    batch = pa.record_batch([pa.array([None if value is None else 7]).cast(arrow)], ["a"])
    schema = as_told(batch.schema, described_columns(told(("a", oid))))
    assert cast_batch(batch, schema).column(0).to_pylist() == [value]


@pytest.mark.parametrize(
    ("arrow", "name", "oid"),
    [
        (pa.float64(), "a", Oid.INT8),
        (pa.int64(), "a", Oid.INT4),
        (pa.int64(), "b", Oid.INT8),
        (pa.string(), "a", Oid.INT8),
        (pa.int64(), "a", Oid.TEXT),
    ],
)
def test_what_is_not(arrow: pa.DataType, name: str, oid: int) -> None:
    with pytest.raises(PostgresError) as raised:
        as_told(pa.schema([pa.field("a", arrow)]), described_columns(told((name, oid))))
    assert (raised.value.sqlstate, raised.value.message) == ("0A000", CHANGED_RESULT)


def test_what_is_the_same_is_left_alone() -> None:
    schema = pa.schema([pa.field("a", pa.int64())])
    assert as_told(schema, described_columns(told(("a", Oid.INT8)))) is schema


def test_drivers_know_the_error_by_its_routine() -> None:
    assert b"\0RRevalidateCachedQuery\0" in error_response(EngineError(CHANGED_RESULT, sqlstate="0A000"))
    assert b"\0RRevalidateCachedQuery\0" not in error_response(EngineError("x", sqlstate="0A000"))
