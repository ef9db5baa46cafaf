"""Arrow batches to DataRow messages: one buffer for each slice of a batch, in text or binary."""

from collections.abc import Sequence

import pyarrow as pa

from queryflux.wire.postgres import binary, digits, moments, nested
from queryflux.wire.postgres.agreed import as_told, cast_batch
from queryflux.wire.postgres.cells import assemble
from queryflux.wire.postgres.columns import columns
from queryflux.wire.postgres.constants import BINARY_FORMAT
from queryflux.wire.postgres.messages import expand, row_description
from queryflux.wire.postgres.relayed import described_columns

Batch = pa.RecordBatch
Schema = pa.Schema
SLICE_BYTES = 1024 * 1024
MAX_SLICE_ROWS = 16_384


def warm() -> None:
    """Build the tables that the encoders look values up in, some milliseconds' worth."""
    digits.warm()
    moments.warm()


class RowEncoder:
    """Encodes the batches of one result. ``formats`` as in Bind; ``zone`` is where timestamptz is written;
    ``told`` is the RowDescription that the client goes by, if it was told before.

    Raises ProtocolViolation for formats that do not fit the columns, PostgresError (0A000) for a column that
    has no binary form, or when the columns are not those that the client was told of.
    """

    def __init__(self, schema: pa.Schema, formats: Sequence[int], zone: str, told: bytes = b"") -> None:
        self._given = schema
        schema = self._schema = as_told(schema, described_columns(told)) if told else schema
        self.columns = len(schema)
        self._zone = zone
        self._formats = expand(formats, self.columns)
        for field, code in zip(schema, self._formats, strict=True):
            if code == BINARY_FORMAT:
                binary.check(field.type, field.name)
        self.description = row_description(columns(schema), self._formats)

    def rows_per_slice(self, batch: pa.RecordBatch) -> int:
        """Rows of ``batch`` that give about SLICE_BYTES."""
        each: int = batch.nbytes // max(batch.num_rows, 1) + 8 * self.columns + 8
        return max(1, min(MAX_SLICE_ROWS, SLICE_BYTES // each))

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """The DataRow messages of ``batch``. Raises PostgresError 22003: a number that does not fit the type
        that the client was told of."""
        if self._schema is not self._given:
            batch = cast_batch(batch, self._schema)
        cells = [
            binary.encode(array) if code == BINARY_FORMAT else nested.encode(array, self._zone)
            for array, code in zip(batch.columns, self._formats, strict=True)
        ]
        return assemble(cells, batch.num_rows)
