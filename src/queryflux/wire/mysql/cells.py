"""Columns of cells: Arrow binary arrays that a row is joined of, with the bytes each row takes of them.

Everything here works on whole columns with numpy and Arrow kernels; nothing loops over values.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes2D = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_NULL = 0xFB


class Cells(NamedTuple):
    """One column of a slice. ``parts`` are binary arrays without nulls, to be joined in order; ``lengths``
    says how many bytes each row has in all of them."""

    parts: list[pa.BinaryArray]
    lengths: npt.NDArray[np.int64]


def null_mask(array: pa.Array) -> Mask | None:
    """True where ``array`` is null; None when nothing is."""
    if not array.null_count:
        return None
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def binary_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """A binary array over two numpy arrays, which are not copied."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers, null_count=0)


def fixed_array(matrix: Bytes2D) -> pa.BinaryArray:
    """A binary array whose values are the rows of ``matrix``."""
    rows, width = matrix.shape
    offsets = (
        np.arange(0, (rows + 1) * width, width, dtype=np.int32) if width else np.zeros(rows + 1, np.int32)
    )
    return binary_array(offsets, np.ascontiguousarray(matrix).reshape(-1))


def fixed(matrix: Bytes2D, nulls: Mask | None) -> Cells:
    """Text cells of one width; the first byte of each row of ``matrix`` is the length of the others."""
    rows, width = matrix.shape
    if nulls is None:
        return Cells([fixed_array(matrix)], np.full(rows, width, np.int64))
    lengths = np.where(nulls, 1, width).astype(np.int64)
    matrix[nulls, 0] = _NULL
    keep = np.ones(matrix.shape, np.bool_)
    keep[nulls, 1:] = False
    return Cells([binary_array(_offsets(lengths), matrix[keep])], lengths)


def raw(matrix: Bytes2D, nulls: Mask | None) -> Cells:
    """Cells of one width of the binary protocol, where a null takes no bytes."""
    rows, width = matrix.shape
    if nulls is None:
        return Cells([fixed_array(matrix)], np.full(rows, width, np.int64))
    lengths = np.where(nulls, 0, width).astype(np.int64)
    return Cells([binary_array(_offsets(lengths), matrix[~nulls].reshape(-1))], lengths)


def variable(values: pa.BinaryArray) -> Cells:
    """Length-encoded strings; a null is the byte 0xFB."""
    nulls = null_mask(values)
    lengths = value_lengths(values)
    if nulls is not None:
        if lengths[nulls].any():
            values = values.fill_null(b"")
            lengths = value_lengths(values)
        buffers = [None, *values.buffers()[1:]]
        values = pa.Array.from_buffers(pa.binary(), len(values), buffers, null_count=0, offset=values.offset)
    prefix, sizes = _prefix(lengths, nulls)
    return Cells([prefix, values], lengths + sizes)


def value_lengths(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """Bytes of each value."""
    offsets = values.buffers()[1]
    if offsets is None or not len(values):
        return np.zeros(len(values), np.int64)
    start = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    return np.diff(start).astype(np.int64)


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _prefix(
    lengths: npt.NDArray[np.int64], nulls: Mask | None
) -> tuple[pa.BinaryArray, npt.NDArray[np.int64] | int]:
    """The length-encoded integers in front of the values, and how many bytes each of them takes."""
    if not len(lengths) or lengths.max() < 251:
        first = lengths.astype(np.uint8)
        if nulls is not None:
            first[nulls] = _NULL
        return binary_array(np.arange(len(lengths) + 1, dtype=np.int32), first), 1
    sizes = np.select([lengths < 251, lengths < 1 << 16, lengths < 1 << 24], [1, 3, 4], 9).astype(np.int64)
    offsets = _offsets(sizes)
    starts = offsets[:-1]
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[starts[sizes == 1]] = lengths[sizes == 1]
    for size, marker in ((3, 0xFC), (4, 0xFD), (9, 0xFE)):
        chosen = sizes == size
        data[starts[chosen]] = marker
        for index in range(size - 1):
            data[starts[chosen] + 1 + index] = (lengths[chosen] >> (8 * index)) & 0xFF
    if nulls is not None:
        data[starts[nulls]] = _NULL
    return binary_array(offsets, data), sizes
