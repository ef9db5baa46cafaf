"""Columns in text format: what each type's output function writes (manual, chapter 8)."""

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.postgres import digits, moments
from queryflux.wire.postgres.cells import (
    Cell,
    Mask,
    Numbers,
    Slots,
    Spans,
    nulls_of,
    records,
    slots,
    spans_of,
    texts,
    values_of,
)
from queryflux.wire.postgres.columns import Kind, kind_of


def encode(array: pa.Array, zone: str) -> Cell:
    """The cells of a column of a type that holds no other (nested.py has the rest)."""
    plain = unwrapped(array)
    kind, _ = kind_of(array.type)
    if kind is Kind.TIMESTAMP:
        return moments.timestamps(plain, zone)
    return _ENCODERS[kind](plain)


def unwrapped(array: pa.Array) -> pa.Array:
    """The array without extension type, dictionary, run-end encoding or views."""
    if isinstance(array, pa.ExtensionArray):
        return unwrapped(array.storage)
    arrow = array.type
    if pa.types.is_dictionary(arrow):
        return unwrapped(array.dictionary_decode())
    if pa.types.is_run_end_encoded(arrow):
        return unwrapped(pc.run_end_decode(array))
    if pa.types.is_string_view(arrow):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(arrow):
        return array.cast(pa.large_binary())
    if pa.types.is_date64(arrow):
        return array.cast(pa.date32())
    return array


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type that ``unwrapped`` gives, views aside."""
    if isinstance(arrow, pa.BaseExtensionType):
        return plain_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return plain_type(arrow.value_type)
    return arrow


@cache
def _bool_table() -> Numbers:
    return np.frombuffer(b"ft", "V1")


def booleans_of(array: pa.Array) -> Numbers:
    """Bits as bytes of 0 and 1."""
    first, last = array.offset // 8, (array.offset + len(array) + 7) // 8
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8)[first:last], bitorder="little")
    skip = array.offset - 8 * first
    found: Numbers = bits[skip : skip + len(array)]
    return found


def _bools(array: pa.Array) -> Slots:
    made = records(len(array), ("value", "V1"))
    made["value"] = _bool_table()[booleans_of(array)]
    return slots(made, 1, nulls_of(array))


def _integers(array: pa.Array) -> Cell:
    kind = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    values = values_of(array, f"<{kind}{array.type.bit_width // 8}")
    if kind == "i":
        values = values.astype(np.int64)
    return digits.integers(values, nulls_of(array)) or texts(array.cast(pa.string()))


def _floats(array: pa.Array) -> Cell:
    if array.type == pa.float16():
        array = array.cast(pa.float32())
    single = array.type == pa.float32()
    values, nulls = values_of(array, "<f4" if single else "<f8"), nulls_of(array)
    made = digits.floats(values, 6 if single else 15, nulls)
    if made is not None:
        return made
    return texts(_float_texts(array, values, nulls))


def _float_texts(array: pa.Array, values: Numbers, nulls: Mask | None) -> pa.Array:
    """Arrow and PostgreSQL agree on the digits, but not on when to use an exponent."""
    single = values.dtype == np.float32
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
        plain = (size >= 1e-4) & (size < (1e6 if single else 1e10)) | (size == 0)
    odd = ~plain if nulls is None else ~plain & ~nulls
    made = array.cast(pa.string())
    if not odd.any():
        return made
    show: Callable[[Any], str] = _single_text if single else _double_text
    shown = [show(value) for value in (values[odd] if single else values[odd].tolist())]
    return pc.replace_with_mask(made, pa.array(odd), pa.array(shown, pa.string()))


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _double_text(value: float) -> str:
    text = repr(value)
    if 1e15 <= abs(value) < 1e16:
        digits_only = text[:-2].lstrip("-")
        rest = digits_only[1:].rstrip("0")
        sign = "-" if value < 0 else ""
        return f"{sign}{digits_only[0]}{'.' if rest else ''}{rest}e+{len(digits_only) - 1}"
    return _NAMES.get(text, text.removesuffix(".0"))


def _single_text(value: np.float32) -> str:
    if not np.isfinite(value):
        return _NAMES[repr(float(value))]
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)


def decimal_words(array: pa.Array, nulls: Mask | None) -> Numbers | None:
    """The unscaled values when all fit into 64 bits."""
    width = array.type.byte_width
    words = values_of(array, f"V{width}").view("<i8").reshape(len(array), width // 8)
    low = words[:, 0]
    sign = low >> 63
    fits = (words[:, 1:] == sign[:, None]).all(axis=1)
    if nulls is not None:
        fits |= nulls
    return low if fits.all() else None


def narrow_decimal(array: pa.Array) -> pa.Array:
    """Arrow's 32 and 64-bit decimals as 128-bit ones."""
    if array.type.byte_width >= 16:
        return array
    return array.cast(pa.decimal128(array.type.precision, array.type.scale))


def _decimals(array: pa.Array) -> Cell:
    array = narrow_decimal(array)
    nulls = nulls_of(array)
    low = decimal_words(array, nulls)
    made = None if low is None else digits.decimals(low, array.type.scale, nulls)
    return made if made is not None else texts(_decimal_texts(array))


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Arrow writes an exponent where there are many zeros; PostgreSQL never does."""
    made = array.cast(pa.string())
    odd = pc.fill_null(pc.match_substring(made, "E"), False)
    if not pc.any(odd).as_py():
        return made
    shown = [format(Decimal(text), "f") for text in made.filter(odd).to_pylist()]
    return pc.replace_with_mask(made, odd, pa.array(shown, pa.string()))


@cache
def _hex_table() -> Numbers:
    return np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), "<u2")


def binary_of(array: pa.Array) -> Spans:
    """The values of any binary array."""
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return spans_of(array)


def _bytes(array: pa.Array) -> Cell:
    """``\\x`` and two digits a byte."""
    spans = binary_of(array)
    sizes = spans.lengths * 2 + 2
    if spans.nulls is not None:
        sizes[spans.nulls] = 0
    ends = np.cumsum(sizes)
    starts = ends - sizes
    data = np.empty(int(ends[-1]), np.uint8)
    rows = np.flatnonzero(sizes)
    data[starts[rows]], data[starts[rows] + 1] = ord("\\"), ord("x")
    inside = np.ones(len(data), np.bool_)
    inside[starts[rows]] = inside[starts[rows] + 1] = False
    low = int(spans.starts.min())
    high = int((spans.starts + spans.lengths).max())
    if int(spans.lengths.sum()) == high - low:
        used = spans.data[low:high]
    else:  # bytes under NULLs are in between
        keep = np.zeros(len(spans.data) + 1, np.int64)
        np.add.at(keep, spans.starts, 1)
        np.add.at(keep, spans.starts + spans.lengths, -1)
        used = spans.data[np.cumsum(keep[:-1]) > 0]
    data[inside] = _hex_table()[used].view(np.uint8)
    return Spans(data, starts, sizes, spans.nulls)


def _uuids(array: pa.Array) -> Slots:
    rows = len(array)
    raw = values_of(array, "V16").view(np.uint8).reshape(rows, 16)
    shown = _hex_table()[raw].view(np.uint8).reshape(rows, 32)
    made = records(rows, ("value", "V36"))
    target = np.full((rows, 36), ord("-"), np.uint8)
    for start, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        target[:, at : at + end - start] = shown[:, start:end]
    made["value"] = target.view("V36").reshape(rows)
    return slots(made, 36, nulls_of(array))


def _nothing(array: pa.Array) -> Slots:
    return slots(records(len(array)), 0, np.ones(len(array), np.bool_))


_ENCODERS: dict[Kind, Callable[[pa.Array], Cell]] = {
    Kind.BOOL: _bools,
    Kind.INTEGER: _integers,
    Kind.UNSIGNED_64: _integers,
    Kind.FLOAT: _floats,
    Kind.DECIMAL: _decimals,
    Kind.DATE: moments.dates,
    Kind.TIME: moments.times,
    Kind.INTERVAL: moments.intervals,
    Kind.TEXT: texts,
    Kind.BYTES: _bytes,
    Kind.UUID: _uuids,
    Kind.NULL: _nothing,
}
