"""Cells and rows: how encoded columns become DataRow messages, without a Python step per value.

A column of a slice is either *slots* (every value with its length prefix at the start of a record of equal
width) or *spans* (long values that stay where Arrow has them). Slots are written side by side into a scratch
matrix, each where the value before it ends: a record's padding is overwritten by the next one. Rows are then
views (Arrow's BinaryView) into the scratch and the columns' own buffers, which one cast copies into the
finished buffer: one memcpy per row, and two per long value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queryflux.wire.postgres.errors import PostgresError

Bytes8 = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

PREFIX = 4
HEADER = 7
LONGEST_MESSAGE = 0x3FFF_FFFF
"""PostgreSQL's own limit of a message, in bytes."""
INLINE = 12
"""Bytes that an Arrow view holds itself."""
WIDEST_SLOT = 60
"""Longest value, in bytes, that is copied into a slot; the record is padded to it in every row."""

_VIEW = np.dtype([("size", "<i4"), ("head", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])


@dataclass(slots=True)
class Slots:
    """``data``: one record per row, C-contiguous. ``sizes``: bytes used of each, prefix included; an int when
    they are all the same."""

    data: Bytes8
    sizes: "Numbers | int"


@dataclass(slots=True)
class Spans:
    """Values in ``data`` at ``starts``. Lengths are 0 for NULL."""

    data: Bytes8
    starts: Numbers
    lengths: Numbers
    nulls: Mask | None


Cell = Slots | Spans


def records(rows: int, *fields: tuple[str, str]) -> Numbers:
    """Empty records for slots: a big-endian length, then ``fields``."""
    return np.zeros(rows, np.dtype([("length", ">i4"), *fields]))


def slots(made: Numbers, sizes: "Numbers | int", nulls: Mask | None) -> Slots:
    """Slots of filled records; ``sizes`` are those of the values. Writes the length prefixes."""
    made["length"] = sizes
    if nulls is None:
        used = sizes + PREFIX
    else:
        made["length"][nulls] = -1
        used = np.where(nulls, PREFIX, np.asarray(sizes) + PREFIX)
    return Slots(made.view(np.uint8).reshape(len(made), made.dtype.itemsize), used)


def prefixes(cell: Spans) -> Slots:
    """The length prefixes of spans, alone."""
    made = slots(records(len(cell.lengths)), cell.lengths, cell.nulls)
    return Slots(made.data, PREFIX)


def settle(cell: Cell) -> Cell:
    """Spans of short values as slots."""
    if isinstance(cell, Slots):
        return cell
    lengths = cell.lengths
    longest = int(lengths.max()) if len(lengths) else 0
    if longest > WIDEST_SLOT:
        return cell
    made = records(len(lengths), ("value", f"V{longest}")) if longest else records(len(lengths))
    if longest:
        made["value"] = gather(cell.data, cell.starts, longest)
    same = cell.nulls is None and int(lengths.min()) == longest
    return slots(made, longest if same else lengths, cell.nulls)


def gather(data: Bytes8, starts: Numbers, width: int) -> Numbers:
    """``width`` bytes from each start, whatever they belong to; past the end of ``data`` they are zero."""
    low, high = int(starts.min()), int(starts.max()) + width
    window = np.zeros(high - low, np.uint8)
    part = data[low : min(high, len(data))]
    window[: len(part)] = part
    taken: Numbers = _strided(window, width)[starts - low]
    return taken


def _strided(data: Bytes8, width: int) -> Numbers:
    """Every run of ``width`` bytes of ``data``, as records."""
    return np.ndarray((len(data) - width + 1,), f"V{width}", data.data, strides=(1,))


def assemble(cells: Sequence[Cell], rows: int) -> memoryview:
    """The DataRow messages of ``rows`` rows."""
    cells = [settle(cell) for cell in cells]
    total: Numbers | int = HEADER - 1
    for cell in cells:
        total = total + (cell.sizes if isinstance(cell, Slots) else cell.lengths + PREFIX)
    if np.max(total) > LONGEST_MESSAGE:
        raise PostgresError("a row is too long for the protocol", "54000", hint="select fewer columns")
    header = np.zeros(rows, np.dtype([("kind", "u1"), ("length", ">i4"), ("columns", ">u2")]))
    header["kind"] = ord("D")
    header["length"] = total
    header["columns"] = len(cells)
    segment = [Slots(header.view(np.uint8).reshape(rows, HEADER), HEADER)]
    pieces: list[Slots | Spans] = []
    for cell in cells:
        if isinstance(cell, Slots):
            segment.append(cell)
            continue
        segment.append(prefixes(cell))
        pieces += [_side_by_side(segment, rows), cell]
        segment = []
    if segment:
        pieces.append(_side_by_side(segment, rows))
    if len(pieces) == 1 and isinstance(whole := pieces[0], Slots) and isinstance(whole.sizes, int):
        return memoryview(whole.data[:, : whole.sizes].tobytes())
    return concatenate(pieces, rows)


def _side_by_side(cells: list[Slots], rows: int) -> Slots:
    """One slot for several that follow each other."""
    width = sum(cell.data.shape[1] for cell in cells)
    width = max(width, INLINE)
    pad = max(cell.data.shape[1] for cell in cells)
    scratch = np.zeros(rows * width + pad, np.uint8)
    matrix = scratch[: rows * width].reshape(rows, width)
    at: Numbers | int = 0
    base: Numbers | None = None
    for cell in cells:
        wide = cell.data.shape[1]
        if isinstance(at, int):
            matrix[:, at : at + wide] = cell.data
        else:
            if base is None:
                base = np.arange(0, rows * width, width)
            _strided(scratch, wide)[base + at] = cell.data.view(f"V{wide}").reshape(rows)
        at = at + cell.sizes
    return Slots(matrix, at)


def concatenate(pieces: Sequence[Cell], rows: int) -> memoryview:
    """Row by row, the pieces of each row one after the other."""
    joined = _joined(pieces, rows)
    data, end = joined.buffers()[2], int(np.frombuffer(joined.buffers()[1], np.int64)[-1])
    return memoryview(data)[:end] if data is not None else memoryview(b"")


def _joined(pieces: Sequence[Cell], rows: int) -> pa.Array:
    """The pieces, row by row, as one array of rows * pieces binary values."""
    views = np.empty((rows, len(pieces)), _VIEW)
    buffers: list[pa.Buffer] = []
    for index, piece in enumerate(pieces):
        column = views[:, index]
        if isinstance(piece, Slots):
            _view_slots(column, piece, len(buffers), rows)
        else:
            _view_spans(column, piece, len(buffers))
        buffers.append(pa.py_buffer(np.ascontiguousarray(piece.data)))
    array = pa.Array.from_buffers(
        pa.binary_view(), rows * len(pieces), [None, pa.py_buffer(views.view(np.uint8)), *buffers]
    )
    return array.cast(pa.large_binary())


def strings_of(cell: Cell, rows: int) -> pa.Array:
    """The values of a cell as an array of large strings, for what is built of them."""
    if isinstance(cell, Slots):
        width = max(cell.data.shape[1] - PREFIX, INLINE)
        data = np.zeros((rows, width), np.uint8)
        data[:, : cell.data.shape[1] - PREFIX] = cell.data[:, PREFIX:]
        nulls = cell.data[:, 0] == 0xFF
        cell = Slots(data, cell.sizes - PREFIX)
    else:
        nulls = cell.nulls if cell.nulls is not None else np.zeros(rows, np.bool_)
    joined = _joined([cell], rows)
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.large_string(), rows, [valid, *joined.buffers()[1:]])


def _view_slots(column: Numbers, piece: Slots, buffer: int, rows: int) -> None:
    width = piece.data.shape[1]
    column["size"] = piece.sizes
    words = np.ascontiguousarray(piece.data[:, :INLINE]).view("<u4").reshape(rows, 3)
    column["head"] = words[:, 0]
    offsets = np.arange(0, rows * width, width)
    inline = np.asarray(piece.sizes) <= INLINE
    if inline.all():
        column["buffer"], column["offset"] = words[:, 1].view("<i4"), words[:, 2].view("<i4")
    elif inline.any():
        column["buffer"] = np.where(inline, words[:, 1].view("<i4"), buffer)
        column["offset"] = np.where(inline, words[:, 2].view("<i4"), offsets)
    else:
        column["buffer"], column["offset"] = buffer, offsets


def _view_spans(column: Numbers, piece: Spans, buffer: int) -> None:
    """Also moves the piece to the part of its buffer that is used: an offset has 31 bits."""
    lengths = piece.lengths
    low = int(piece.starts.min())
    piece.data = piece.data[low:]
    piece.starts = piece.starts - low
    column["size"] = lengths
    column["head"] = 0
    column["buffer"] = buffer
    column["offset"] = piece.starts
    short = np.flatnonzero(lengths <= INLINE)
    if len(short):
        words = gather(piece.data, piece.starts[short], INLINE).view("<i4").reshape(len(short), 3)
        column["head"][short] = words[:, 0].view("<u4")
        column["buffer"][short], column["offset"][short] = words[:, 1], words[:, 2]


# Arrow arrays as numpy sees them.


def values_of(array: pa.Array, dtype: str) -> Numbers:
    """The values of a fixed-width array, whatever is under its NULLs."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def nulls_of(array: pa.Array) -> Mask | None:
    """Where an array is NULL; None when it is nowhere."""
    if not array.null_count:
        return None
    buffer = array.buffers()[0]
    if buffer is None:
        return np.ones(len(array), np.bool_)
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8)[first:last], bitorder="little")
    skip = array.offset - 8 * first
    nulls: Mask = bits[skip : skip + len(array)] == 0
    return nulls


def spans_of(array: pa.Array) -> Spans:
    """The values of a (large) string or binary array."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data_buffer = array.buffers()
    rows = len(array)
    dtype = np.int64 if large else np.int32
    offsets = np.frombuffer(offset_buffer, dtype)[array.offset : array.offset + rows + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    nulls = nulls_of(array)
    if nulls is not None:
        lengths[nulls] = 0
    return Spans(data, starts, lengths, nulls)


def texts(array: pa.Array) -> Cell:
    """The cells of an array of strings, as they are."""
    return settle(spans_of(array))
