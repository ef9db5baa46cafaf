"""Ready-made cells: whole numbers, parts of decimals, dates and times, to be picked by number.

Picking a cell from a table is several times cheaper than spelling it, and the cell brings its length byte
along. Tables are made when first needed and kept; the largest takes about a megabyte.
"""

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.mysql.cells import Bytes2D, binary_array

Int64s = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]

SMALLEST, LARGEST = -10_000, 100_000
"""The whole numbers of ``small_numbers``: from the first up to, not including, the last."""
NULL_ENTRY = LARGEST - SMALLEST
"""The entry of ``small_numbers`` that is a NULL."""
WHOLES = 100_000
"""The whole parts of ``decimal_wholes``: from 0 up to, not including, this."""
MOST_PLACES = 8

FIRST_DAY = -25_567  # 1900-01-01
LAST_DAY = 47_481  # 2099-12-31
DAY_SECONDS = 86_400


def _prefixed(spelled: pa.Array, more: int, *extra: bytes) -> pa.BinaryArray:
    """Each text behind a byte that counts it and ``more`` bytes that will follow; then ``extra`` entries."""
    offsets = np.frombuffer(spelled.buffers()[1], np.int32, len(spelled) + 1)
    data = np.frombuffer(spelled.buffers()[2], np.uint8, int(offsets[-1]))
    lengths = np.diff(offsets)
    out = np.insert(data, offsets[:-1], (lengths + more).astype(np.uint8))
    starts = offsets + np.arange(len(offsets), dtype=np.int32)
    ends = starts[-1] + np.cumsum([len(entry) for entry in extra])
    tail = np.frombuffer(b"".join(extra), np.uint8)
    return binary_array(np.concatenate([starts, ends]).astype(np.int32), np.concatenate([out, tail]))


@cache
def small_numbers() -> pa.BinaryArray:
    """Cells of SMALLEST to LARGEST, and of NULL."""
    return _prefixed(pa.array(np.arange(SMALLEST, LARGEST)).cast(pa.string()), 0, b"\xfb")


@cache
def decimal_wholes(places: int) -> pa.BinaryArray:
    """The beginnings of decimal cells with ``places`` digits after the point: those of 0 to WHOLES, then the
    same with a minus, then NULL."""
    wholes = pa.array(np.arange(WHOLES)).cast(pa.string())
    minus = pc.binary_join_element_wise(pa.scalar("-"), wholes, "")
    return _prefixed(pa.concat_arrays([wholes, minus]), places + 1, b"\xfb")


@cache
def fractions(places: int) -> Records:
    """A point and ``places`` digits, for 0 to 10 to the power of ``places``; places up to 4."""
    numbers = np.arange(10**places)
    columns = [np.full(len(numbers), ord("."))]
    columns += [numbers // 10 ** (places - 1 - place) % 10 + ord("0") for place in range(places)]
    return records(np.stack(columns, axis=1).astype(np.uint8))


@cache
def groups(digits: int) -> Records:
    """``digits`` digits, for 0 to 10 to the power of ``digits``."""
    numbers = np.arange(10**digits)
    columns = [numbers // 10 ** (digits - 1 - place) % 10 + ord("0") for place in range(digits)]
    return records(np.stack(columns, axis=1).astype(np.uint8))


@cache
def days() -> Records:
    """Every day of two centuries: a length byte and ten characters each."""
    table = pa.array(np.arange(FIRST_DAY, LAST_DAY + 1, dtype=np.int32)).cast(pa.date32()).cast(pa.string())
    return records(_with_length(_characters(table, 10), 10))


@cache
def bare_days() -> Records:
    """The same without the length byte."""
    return records(matrix(days())[:, 1:])


@cache
def seconds() -> Records:
    """Every second of a day, eight characters each, and 24:00:00."""
    table = pa.array(np.arange(DAY_SECONDS, dtype=np.int32)).cast(pa.time32("s")).cast(pa.string())
    return records(np.vstack([_characters(table, 8), np.frombuffer(b"24:00:00", np.uint8)]))


def _characters(strings: pa.StringArray, width: int) -> Bytes2D:
    return np.frombuffer(strings.buffers()[2], np.uint8, len(strings) * width).reshape(-1, width)


def _with_length(characters: Bytes2D, length: int) -> Bytes2D:
    return np.hstack([np.full((len(characters), 1), length, np.uint8), characters])


def records(characters: Bytes2D) -> Records:
    """Rows of bytes as values of one width, which numpy copies whole."""
    width = characters.shape[1]
    return np.ascontiguousarray(characters).view(f"V{width}").reshape(-1)


def matrix(values: Records) -> Bytes2D:
    """Values of one width as rows of bytes."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
