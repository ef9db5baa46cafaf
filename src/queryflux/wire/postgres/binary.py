"""Columns in binary format: what each type's send function writes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from queryflux.wire.postgres import moments, nested
from queryflux.wire.postgres import text as text_format
from queryflux.wire.postgres.cells import (
    PREFIX,
    Cell,
    Mask,
    Numbers,
    Slots,
    Spans,
    concatenate,
    nulls_of,
    prefixes,
    records,
    settle,
    slots,
    texts,
    values_of,
)
from queryflux.wire.postgres.columns import Kind, is_list, kind_of
from queryflux.wire.postgres.constants import EPOCH_DAYS, EPOCH_MICROS, Oid
from queryflux.wire.postgres.digits import magnitude
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.types import ELEMENT_OF

_WIDTHS = {Oid.INT2: ">i2", Oid.INT4: ">i4", Oid.INT8: ">i8"}
NUMERIC_NEGATIVE = 0x4000


def check(arrow: pa.DataType, name: str) -> None:
    """Raises PostgresError for a type that has no binary form here."""
    kind, _ = kind_of(arrow)
    if kind is Kind.ARRAY and is_list(text_format.plain_type(arrow).value_type):
        raise PostgresError(
            f'column "{name}" is an array of arrays, which is not sent in binary',
            "0A000",
            hint="ask for it in text format",
        )


def encode(array: pa.Array) -> Cell:
    """The cells of a column."""
    kind, oid = kind_of(array.type)
    plain = text_format.unwrapped(array)
    match kind:
        case Kind.INTEGER:
            return _integers(plain, oid)
        case Kind.ARRAY:
            return _arrays(plain, ELEMENT_OF[oid])
        case Kind.JSON:
            return nested.encode(array, "UTC")
    return _ENCODERS[kind](plain)


def _fixed(values: Numbers, layout: str, nulls: Mask | None) -> Slots:
    made = records(len(values), ("value", layout))
    made["value"] = values
    return slots(made, np.dtype(layout).itemsize, nulls)


def _bools(array: pa.Array) -> Slots:
    return _fixed(text_format.booleans_of(array), "u1", nulls_of(array))


def _integers(array: pa.Array, oid: int) -> Slots:
    sign = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    values = values_of(array, f"<{sign}{array.type.bit_width // 8}")
    return _fixed(values, _WIDTHS[oid], nulls_of(array))


def _floats(array: pa.Array) -> Slots:
    if array.type == pa.float64():
        return _fixed(values_of(array, "<f8"), ">f8", nulls_of(array))
    layout = "<f2" if array.type == pa.float16() else "<f4"
    return _fixed(values_of(array, layout), ">f4", nulls_of(array))


def _dates(array: pa.Array) -> Slots:
    days = values_of(array, "<i4").astype(np.int64)
    shifted = np.clip(days - EPOCH_DAYS, -(2**31), 2**31 - 1)
    shifted = np.where(days >= moments.DATE_INFINITY, 2**31 - 1, shifted)
    shifted = np.where(days <= -moments.DATE_INFINITY, -(2**31), shifted)
    return _fixed(shifted, ">i4", nulls_of(array))


def _times(array: pa.Array) -> Slots:
    return _fixed(moments.to_micros(array), ">i8", nulls_of(array))


def _timestamps(array: pa.Array) -> Slots:
    micros = moments.to_micros(array)
    infinity = moments.TIMESTAMP_INFINITY
    low = -infinity - 1
    with np.errstate(over="ignore"):
        shifted = np.where(micros < low + EPOCH_MICROS, low, micros - EPOCH_MICROS)
    shifted = np.where(micros == infinity, infinity, shifted)
    return _fixed(shifted, ">i8", nulls_of(array))


def _intervals(array: pa.Array) -> Slots:
    months, days, micros = moments.interval_parts(array)
    made = records(len(array), ("micros", ">i8"), ("days", ">i4"), ("months", ">i4"))
    made["micros"], made["days"], made["months"] = micros, days, months
    return slots(made, 16, nulls_of(array))


def _uuids(array: pa.Array) -> Slots:
    return _fixed(values_of(array, "V16"), "V16", nulls_of(array))


def _bytes(array: pa.Array) -> Cell:
    return settle(text_format.binary_of(array))


# Numeric: groups of four digits around the decimal point (numeric.c).


def _unsigned(array: pa.Array) -> Slots:
    values = values_of(array, "<u8")
    nulls = nulls_of(array)
    if nulls is not None:
        values = np.where(nulls, np.uint64(0), values)
    return _numerics(values[:, None], np.zeros(len(values), np.bool_), 0, nulls)


def _decimals(array: pa.Array) -> Slots:
    """A negative scale stands for zeros before the point: its values are multiplied out first."""
    array = text_format.narrow_decimal(array)
    if array.type.scale < 0:
        array = array.cast(pa.decimal256(76, 0))
    nulls, scale = nulls_of(array), array.type.scale
    low = text_format.decimal_words(array, nulls)
    if low is not None:
        if nulls is not None:
            low = np.where(nulls, np.int64(0), low)
        sizes, negative = magnitude(low)
        below = np.zeros(len(low), np.bool_) if negative is None else negative
        return _numerics(sizes[:, None], below, scale, nulls)
    width = array.type.byte_width
    words = values_of(array, f"V{width}").view("<u4").reshape(len(array), width // 4).astype(np.uint64)
    if nulls is not None:
        words[nulls] = 0
    below = words[:, -1] >> np.uint64(31) == 1
    return _numerics(_negated(words, below), below, scale, nulls)


def _negated(limbs: Numbers, negative: Mask) -> Numbers:
    """Two's complement numbers of 32-bit limbs, low ones first, without their sign."""
    made = np.where(negative[:, None], limbs ^ np.uint64(0xFFFF_FFFF), limbs)
    carry = negative.astype(np.uint64)
    for index in range(limbs.shape[1]):
        total = made[:, index] + carry
        made[:, index] = total & np.uint64(0xFFFF_FFFF)
        carry = total >> np.uint64(32)
    return made


def _divide(limbs: Numbers, divisor: int) -> Numbers:
    """Divide in place by a small number; the remainders. One limb may have 64 bits, several have 32."""
    by = np.uint64(divisor)
    rest: Numbers = np.zeros(len(limbs), np.uint64)
    for index in range(limbs.shape[1] - 1, -1, -1):
        total = limbs[:, index] if limbs.shape[1] == 1 else (rest << np.uint64(32)) | limbs[:, index]
        quotient = total // by
        rest = total - quotient * by
        limbs[:, index] = quotient
    return rest


def _groups(limbs: Numbers, scale: int) -> tuple[Numbers, int]:
    """Base-10000 digits, most significant first, and the weight of the first."""
    limbs = limbs.copy()
    found: list[Numbers] = []
    odd = scale % 4
    if odd:
        # The last group is not full: its digits stand for the highest of its four places.
        found.append(_divide(limbs, 10**odd) * np.uint64(10 ** (4 - odd)))
    while limbs.any() or not found:
        found.append(_divide(limbs, 10_000))
    return np.stack(found[::-1], axis=1), len(found) - (scale + 3) // 4 - 1


def _numerics(limbs: Numbers, negative: Mask, scale: int, nulls: Mask | None) -> Slots:
    """Magnitudes times 10**-scale. Zero groups at both ends are left out, as the server does."""
    digits, weight = _groups(limbs, scale)
    rows, count = digits.shape
    there = digits != 0
    first = there.argmax(axis=1)
    some = there[np.arange(rows), first]
    last = count - there[:, ::-1].argmax(axis=1)
    used = np.where(some, last - first, 0)
    made = records(
        rows,
        ("count", ">i2"),
        ("weight", ">i2"),
        ("sign", ">u2"),
        ("scale", ">u2"),
        ("digits", f"V{2 * count}"),
    )
    made["count"] = used
    made["weight"] = np.where(some, weight - first, 0)
    made["sign"] = np.where(negative, NUMERIC_NEGATIVE, 0)
    made["scale"] = scale
    moved = digits.astype(">u2")
    for skip in range(1, count):
        chosen = np.flatnonzero(first == skip)
        if len(chosen):
            moved[chosen, : count - skip] = moved[chosen, skip:]
    made["digits"] = moved.view(f"V{2 * count}").reshape(rows)
    return slots(made, 8 + 2 * used, nulls)


# Arrays of one dimension (array_send).


def _arrays(array: pa.Array, element: int) -> Cell:
    offsets, values, nulls = nested.flat_list(array)
    sizes = np.diff(offsets)
    head = np.dtype([(name, ">i4") for name in ("dimensions", "nulls", "element", "size", "bound")])
    rows = len(array)
    heads = np.zeros(rows, head)
    heads["element"] = element
    heads["dimensions"] = sizes > 0
    heads["size"] = sizes
    heads["bound"] = 1
    heads["nulls"] = bool(values.null_count)
    body, ends = _elements(values)
    starts = ends[offsets[:-1]]
    lengths = ends[offsets[1:]] - starts
    head_sizes = np.where(sizes > 0, 20, 12)
    pieces: list[Cell] = [
        Slots(heads.view(np.uint8).reshape(rows, 20), head_sizes),
        Spans(body, starts, lengths, None),
    ]
    joined = np.frombuffer(concatenate(pieces, rows), np.uint8)
    total = head_sizes + lengths
    begins = np.cumsum(total) - total
    if nulls is not None:
        total = np.where(nulls, 0, total)
    return settle(Spans(joined, begins, total, nulls))


def _elements(values: pa.Array) -> tuple[Numbers, Numbers]:
    """Length-prefixed elements in one buffer, and where each ends, after a zero."""
    rows = len(values)
    if not rows:
        return np.zeros(1, np.uint8), np.zeros(1, np.int64)
    cell = encode(values)
    if isinstance(cell, Slots):
        pieces: list[Cell] = [Slots(_wide(cell.data), cell.sizes)]
        sizes: Any = cell.sizes
    else:
        pieces = [Slots(_wide(prefixes(cell).data), PREFIX), cell]
        sizes = cell.lengths + PREFIX
    ends = np.concatenate([[0], np.cumsum(np.broadcast_to(np.asarray(sizes), (rows,)))]).astype(np.int64)
    return np.frombuffer(concatenate(pieces, rows), np.uint8), ends


def _wide(data: Numbers) -> Numbers:
    """Records of at least the width that a view holds itself."""
    if data.shape[1] >= 12:
        return data
    made = np.zeros((len(data), 12), np.uint8)
    made[:, : data.shape[1]] = data
    return made


_ENCODERS: dict[Kind, Callable[[pa.Array], Cell]] = {
    Kind.BOOL: _bools,
    Kind.UNSIGNED_64: _unsigned,
    Kind.FLOAT: _floats,
    Kind.DECIMAL: _decimals,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.INTERVAL: _intervals,
    Kind.TEXT: texts,
    Kind.BYTES: _bytes,
    Kind.UUID: _uuids,
    Kind.NULL: lambda array: text_format.encode(array, "UTC"),
}
