"""Arrow batches as the data of COPY TO STDOUT (manual, "COPY", File Formats): one CopyData message a row, a
column at a time without a Python step per value."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.postgres import nested
from queryflux.wire.postgres.cells import (
    INLINE,
    LONGEST_MESSAGE,
    Slots,
    concatenate,
    spans_of,
    strings_of,
)
from queryflux.wire.postgres.constants import Back
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.messages import message
from queryflux.wire.postgres.rows import MAX_SLICE_ROWS, SLICE_BYTES

_TEXT = pa.large_string()
_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_HEADER = np.dtype([("kind", "u1"), ("length", ">i4"), ("padding", f"V{INLINE - 5}")])


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """How the values are written. ``quote`` and ``escape`` are those of CSV, and so is ``force_quote``: names
    of columns that are always quoted, ``*`` for all."""

    csv: bool = False
    header: bool = False
    delimiter: str = "\t"
    null: str = "\\N"
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] = ()


class CopyEncoder:
    """Encodes the batches of one result; ``description`` is what comes before the first."""

    def __init__(self, schema: pa.Schema, form: CopyFormat, zone: str) -> None:
        self.columns = len(schema)
        self._form = form
        self._zone = zone
        self._escapes = _ESCAPES | {form.delimiter: "\\" + form.delimiter, "\t": "\\t"}
        special = f"{form.delimiter}{form.quote}\n\r" if form.csv else "".join(self._escapes)
        self._special = "[" + "".join(f"\\x{ord(char):02x}" for char in special) + "]"
        forced = form.force_quote
        self._forced = ["*" in forced or name in forced for name in schema.names]
        formats = struct.pack(f"!bH{self.columns}H", 0, self.columns, *(0,) * self.columns)
        self.description = message(Back.COPY_OUT_RESPONSE, formats)
        if form.header:
            names = [self._write(pa.array([name], _TEXT), forced=False) for name in schema.names]
            self.description += bytes(self._lines(names, 1))

    def rows_per_slice(self, batch: pa.RecordBatch) -> int:
        """Rows of ``batch`` that give about SLICE_BYTES."""
        each: int = batch.nbytes // max(batch.num_rows, 1) + 8 * self.columns + 8
        return max(1, min(MAX_SLICE_ROWS, SLICE_BYTES // each))

    def encode(self, batch: pa.RecordBatch) -> memoryview:
        """The CopyData messages of ``batch``. Raises PostgresError for a row that is too long."""
        rows = batch.num_rows
        cells = [
            self._write(strings_of(nested.encode(array, self._zone), rows), forced=forced)
            for array, forced in zip(batch.columns, self._forced, strict=True)
        ]
        return self._lines(cells, rows)

    def _write(self, values: pa.Array, *, forced: bool) -> pa.Array:
        """A column's values as they stand in a line."""
        written = self._csv(values, forced=forced) if self._form.csv else self._text(values)
        return pc.fill_null(written, pa.scalar(self._form.null, _TEXT)) if values.null_count else written

    def _text(self, values: pa.Array) -> pa.Array:
        if not pc.any(pc.match_substring_regex(values, self._special)).as_py():
            return values
        for char, escape in self._escapes.items():  # the backslash is the first
            values = pc.replace_substring(values, char, escape)
        return values

    def _csv(self, values: pa.Array, *, forced: bool) -> pa.Array:
        """Quoted where it must be: special characters, what looks like NULL or like the end of the data."""
        form = self._form
        quoted = pc.match_substring_regex(values, self._special)
        quoted = pc.or_(quoted, pc.equal(values, pa.scalar(form.null, _TEXT)))
        if self.columns == 1:
            quoted = pc.or_(quoted, pc.equal(values, pa.scalar("\\.", _TEXT)))
        if not forced and not pc.any(quoted).as_py():
            return values
        inner = values
        if form.escape != form.quote:
            inner = pc.replace_substring(inner, form.escape, form.escape * 2)
        inner = pc.replace_substring(inner, form.quote, form.escape + form.quote)
        mark = pa.scalar(form.quote, _TEXT)
        inner = pc.binary_join_element_wise(mark, inner, mark, pa.scalar("", _TEXT))
        return inner if forced else pc.if_else(quoted, inner, values)

    def _lines(self, cells: Sequence[pa.Array], rows: int) -> memoryview:
        none = pa.scalar("", _TEXT)
        lines = pc.binary_join_element_wise(*cells, pa.scalar(self._form.delimiter, _TEXT)) if cells else none
        ended = pc.binary_join_element_wise(lines, pa.scalar("\n", _TEXT), none)
        if not cells:
            ended = pa.repeat(ended, rows)
        spans = spans_of(ended)
        if spans.lengths.max() > LONGEST_MESSAGE:
            raise PostgresError("a row is too long for the protocol", "54000", hint="select fewer columns")
        header = np.zeros(rows, _HEADER)
        header["kind"] = Back.COPY_DATA
        header["length"] = spans.lengths + 4
        return concatenate([Slots(header.view(np.uint8).reshape(rows, INLINE), 5), spans], rows)
