"""Arrow batches as row packets, a slice at a time into one buffer.

Every column becomes cells: binary arrays, and how many bytes each row takes of them. The packet headers are
one more such array, and one join of them all writes the rows in order. A handful of rows is spelled value by
value instead, because the kernels cost more than they save there; both ways give the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.model.errors import NotSupported
from queryflux.wire.mysql.binary import binary_encoder
from queryflux.wire.mysql.cells import Cells, binary_array, fixed_array
from queryflux.wire.mysql.columns import named, shape_of
from queryflux.wire.mysql.constants import MAX_PAYLOAD
from queryflux.wire.mysql.lenenc import NULL, lenenc_bytes
from queryflux.wire.mysql.packets import PacketCodec
from queryflux.wire.mysql.replies import Column
from queryflux.wire.mysql.text import Encode, Spell, text_encoder, text_speller

SLICE_ROWS = 8192
SLICE_BYTES = 1 << 20
"""Aims for one slice; a single row may be larger."""
FEW_ROWS = 32
_FEW_CELLS = 2048
_FEW_BYTES = 256 * 1024
Batch = pa.RecordBatch
"""What doors, which do not know Arrow, call a batch."""

_LARGEST_JOIN = (1 << 31) - 1
_HEADER = 4


@dataclass(slots=True)
class _Plan:
    """How columns of one type are sent. ``warm``: its tables are made."""

    shape: Column
    encode: Encode
    spell: Spell | None
    warm: bool = False


_PLANS: tuple[dict[pa.DataType, _Plan], dict[pa.DataType, _Plan]] = ({}, {})
"""Plans of the text and of the binary protocol, by type: a result has few types that were not seen before."""
_MOST_PLANS = 1024


def _plan(kind: pa.DataType, binary: bool) -> _Plan:
    plans = _PLANS[binary]
    plan = plans.get(kind)
    if plan is None:
        if binary:
            plan = _Plan(shape_of(kind), binary_encoder(kind), None)
        else:
            plan = _Plan(shape_of(kind), text_encoder(kind), text_speller(kind))
        if len(plans) < _MOST_PLANS:
            plans[kind] = plan
    return plan


class RowEncoder:
    """Encodes the batches of one result. ``columns`` are its column definitions."""

    def __init__(self, schema: pa.Schema, *, binary: bool = False) -> None:
        """``binary``: rows of the binary protocol, for a prepared statement."""
        self._binary = binary
        self._plans = [_plan(kind, binary) for kind in schema.types]
        self.columns = [named(plan.shape, field) for plan, field in zip(self._plans, schema, strict=True)]
        spellers = [plan.spell for plan in self._plans if plan.spell is not None]
        self._spellers = spellers if len(spellers) == len(self._plans) else None

    def is_small(self, batch: pa.RecordBatch) -> bool:
        """Whether encoding it takes so little that a thread would cost more."""
        rows: int = batch.num_rows
        cells = rows * len(self._plans)
        if batch.get_total_buffer_size() > _FEW_BYTES:
            return False
        if rows <= FEW_ROWS and self._spellers is not None:
            return cells <= _FEW_CELLS
        return cells <= SLICE_ROWS and all(plan.warm for plan in self._plans)

    def slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Pieces of ``batch`` of a size that is encoded in a few milliseconds."""
        rows = batch.num_rows
        step = SLICE_ROWS
        # Quick, but too much where the batch is itself a slice; nbytes is right, and slow.
        if rows and batch.get_total_buffer_size() > SLICE_BYTES:
            step = min(max(SLICE_BYTES * rows // max(batch.nbytes, 1), 1), SLICE_ROWS)
        if 0 < rows <= step:
            yield batch
            return
        for start in range(0, rows, step):
            yield batch.slice(start, step)

    def encode(self, batch: pa.RecordBatch, sequence: int) -> tuple[bytes | memoryview, int]:
        """The rows as packets, the first with number ``sequence``; and the number of the packet after them.

        Raises NotSupported for a row that the protocol cannot carry (2 GiB).
        """
        if not batch.num_rows:
            return b"", sequence
        if self._spellers is not None and batch.num_rows <= FEW_ROWS:
            try:
                return self._spell(batch, sequence)
            except (ValueError, OverflowError):
                pass  # infinities, odd floats and far dates: the kernels know how
        return self._join(batch, sequence)

    def _spell(self, batch: pa.RecordBatch, sequence: int) -> tuple[bytes, int]:
        assert self._spellers is not None
        columns = []
        for column, spell in zip(batch.columns, self._spellers, strict=True):
            values = column.to_pylist()
            columns.append([NULL if value is None else lenenc_bytes(spell(value)) for value in values])
        codec = PacketCodec(0)
        codec.sequence = sequence
        packed = codec.pack(*map(b"".join, zip(*columns, strict=True)))
        return packed, codec.sequence

    def _join(self, batch: pa.RecordBatch, sequence: int) -> tuple[bytes | memoryview, int]:
        rows = batch.num_rows
        cells = [plan.encode(column) for plan, column in zip(self._plans, batch.columns, strict=True)]
        for plan in self._plans:
            plan.warm = True
        if self._binary:
            cells.insert(0, _bitmap(batch))
        lengths = np.zeros(rows, np.int64)
        for cell in cells:
            lengths += cell.lengths
        if int(lengths.sum()) + rows * _HEADER > _LARGEST_JOIN:
            return self._halves(batch, sequence)
        parts = [part for cell in cells for part in cell.parts]
        if len(lengths) and int(lengths.max()) >= MAX_PAYLOAD:
            return _split_rows(parts, sequence)
        joined = pc.binary_join_element_wise(_headers(lengths, sequence), *parts, pa.scalar(b""))
        return memoryview(joined.buffers()[2]), (sequence + rows) & 0xFF

    def _halves(self, batch: pa.RecordBatch, sequence: int) -> tuple[bytes, int]:
        if batch.num_rows == 1:
            raise NotSupported("a row of 2 GiB or more cannot be sent")
        middle = batch.num_rows // 2
        first, sequence = self._join(batch.slice(0, middle), sequence)
        second, sequence = self._join(batch.slice(middle), sequence)
        return b"".join((first, second)), sequence


def _headers(lengths: "np.ndarray[tuple[int], np.dtype[np.int64]]", sequence: int) -> pa.BinaryArray:
    """Packet headers: three bytes of length, one of sequence."""
    numbers = (np.arange(sequence, sequence + len(lengths), dtype=np.int64) & 0xFF) << 24
    words = (lengths | numbers).astype("<u4")
    offsets = np.arange(0, (len(lengths) + 1) * _HEADER, _HEADER, dtype=np.int32)
    return binary_array(offsets, words.view(np.uint8))


def _split_rows(parts: list[pa.BinaryArray], sequence: int) -> tuple[bytes, int]:
    """Rows of which one takes several packets: few, since a slice is small unless its rows are large."""
    codec = PacketCodec(0)
    codec.sequence = sequence
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b""))
    packed = codec.pack(*(row.as_buffer().to_pybytes() for row in joined))
    return packed, codec.sequence


def _bitmap(batch: pa.RecordBatch) -> Cells:
    """The byte 0 and the bitmap of nulls, whose first two bits are not used."""
    rows, columns = batch.num_rows, batch.num_columns
    bits = np.zeros((rows, columns + 2), np.bool_)
    for index, column in enumerate(batch.columns, 2):
        if column.null_count:
            bits[:, index] = column.is_null().to_numpy(zero_copy_only=False)
    packed = np.packbits(bits, axis=1, bitorder="little")
    matrix = np.hstack([np.zeros((rows, 1), np.uint8), packed])
    return Cells([fixed_array(matrix)], np.full(rows, matrix.shape[1], np.int64))
