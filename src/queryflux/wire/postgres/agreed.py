"""Rows in the types that a client was told of before there were any.

An engine may give other columns by then: its tables have changed, or it could not tell the types without the
values of parameters. What PostgreSQL would convert by itself is converted; the client of anything else has to
prepare anew, as PostgreSQL has it.
"""

from collections.abc import Iterable

import pyarrow as pa

from queryflux.wire.postgres.columns import Kind, kind_of
from queryflux.wire.postgres.constants import Oid
from queryflux.wire.postgres.errors import CHANGED_RESULT, PostgresError

_INTEGERS = (Oid.INT2, Oid.INT4, Oid.INT8)
_ARROW = {
    Oid.INT4: pa.int32(),
    Oid.INT8: pa.int64(),
    Oid.NUMERIC: pa.decimal128(38, 0),
    Oid.FLOAT8: pa.float64(),
}
_IMPLICIT = {
    Oid.INT4: _INTEGERS[:1],
    Oid.INT8: _INTEGERS[:2],
    Oid.NUMERIC: _INTEGERS,
    Oid.FLOAT8: (*_INTEGERS, Oid.NUMERIC, Oid.FLOAT4),
}
"""Casts of numbers that PostgreSQL makes where it has to (pg_cast, castcontext i), by what comes of them."""


def as_told(schema: pa.Schema, told: Iterable[tuple[bytes, int]]) -> pa.Schema:
    """The schema that the batches have to be cast to: ``schema`` itself where they need not be. Raises
    PostgresError 0A000."""
    names = list(told)
    if [name for name, _ in names] != [field.name.encode() for field in schema]:
        raise PostgresError(CHANGED_RESULT, "0A000")
    for index, (_, wanted) in enumerate(names):
        kind, oid = kind_of(schema.field(index).type)
        if oid == wanted or kind is Kind.NULL:
            continue
        if oid not in _IMPLICIT.get(wanted, ()):
            raise PostgresError(CHANGED_RESULT, "0A000")
        schema = schema.set(index, schema.field(index).with_type(_ARROW[wanted]))
    return schema


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in ``schema``. Raises PostgresError 22003."""
    try:
        return batch.cast(schema)
    except pa.ArrowInvalid:
        raise PostgresError("a number is out of the range of the type that was described", "22003") from None
