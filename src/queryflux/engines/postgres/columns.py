"""What each PostgreSQL type becomes in Arrow (docs/types.md, "PostgreSQL"). Needs pyarrow: load it late.

ADBC gives most columns as they should be. The rest is made so here, a column at a time: either from what ADBC
gives, or, where that is PostgreSQL's raw binary form, by a cast in the server.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.model.errors import EngineError, EngineErrorKind

Convert = Callable[[pa.Array], pa.Array]

LOOSE = pa.decimal128(38, 18)
"""A numeric without precision and scale."""
_WIDE = pa.decimal256(76, 38)

_ISO_MAX_MICROS = 253_402_300_799_999_999
_ISO_MIN_MICROS = -62_135_596_800_000_000
_ISO_MAX_DAYS = 2_932_896
_ISO_MIN_DAYS = -719_162
# What ADBC makes of infinity: PostgreSQL's largest and smallest integer, moved to the epoch of 1970.
_MINUS_INFINITY_MICROS = -9_222_425_352_054_775_808
_MINUS_INFINITY_DAYS = -2_147_472_691

_TEXT_INSIDE = {"xml", "void", "unknown"}
"""Types whose binary form is their text."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One column of a result: its type, how to get there from what ADBC gives (None: it is there), and the
    type to cast it to in the server first (empty: none)."""

    name: str
    type: pa.DataType
    convert: Convert | None = None
    cast: str = ""


def plan_of(field: pa.Field) -> Plan:
    """The plan for a field of the schema that ADBC announces."""
    metadata = field.metadata or {}
    kind = metadata.get(b"POSTGRESQL:type", b"").decode()
    modifier = int(metadata.get(b"POSTGRESQL:typmod", b"-1"))
    found = _plan(field.type, kind, modifier)
    return Plan(field.name, *found)


def _plan(type_: pa.DataType, kind: str, modifier: int) -> tuple[pa.DataType, Convert | None, str]:
    if kind == "money":
        return pa.decimal128(19, 2), to_decimal(pa.decimal128(19, 2)), "numeric(19,2)"
    if kind == "oid":
        return pa.int64(), None, "int8"
    if isinstance(type_, pa.OpaqueType):
        if type_.type_name == "numeric":
            decimal = decimal_of(modifier)
            return decimal, to_decimal(decimal), ""
        if type_.type_name in _TEXT_INSIDE:
            return pa.string(), lambda array: array.storage.cast(pa.string()), ""
        return pa.string(), None, "text"
    if isinstance(type_, pa.UuidType):
        return pa.string(), uuid_text, ""
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type, lambda array: array.storage, ""
    if pa.types.is_struct(type_):
        return pa.string(), None, "text"
    if pa.types.is_list(type_):
        item_kind = kind.removeprefix("_")
        item, convert, cast = _plan(type_.value_type, item_kind, -1)
        return pa.list_(item), _each(convert), f"{cast}[]" if cast else ""
    if pa.types.is_timestamp(type_):
        return type_, finite_timestamps, ""
    if pa.types.is_date32(type_):
        return type_, finite_dates, ""
    return type_, None, ""


def decimal_of(modifier: int) -> pa.Decimal128Type:
    """The type for a numeric's type modifier: 16 bits of precision, 11 of signed scale, plus 4."""
    if modifier < 4:
        return LOOSE
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return pa.decimal128(precision, scale) if precision <= 38 else LOOSE


def to_decimal(type_: pa.Decimal128Type) -> Convert:
    """Numerals to decimals; digits beyond the scale are rounded half away from zero, as PostgreSQL does."""

    def convert(array: pa.Array) -> pa.Array:
        text = array.storage if isinstance(array, pa.ExtensionArray) else array
        try:
            return text.cast(type_)
        except pa.ArrowInvalid:
            pass
        try:
            short = pc.replace_substring_regex(text, pattern=r"(\.[0-9]{38})[0-9]+$", replacement=r"\1")
            rounded = pc.round(short.cast(_WIDE), type_.scale, "half_towards_infinity")
            return rounded.cast(type_)
        except pa.ArrowInvalid as error:
            raise EngineError(
                f"a numeric of this result does not fit {type_}: {error}",
                kind=EngineErrorKind.OUT_OF_RANGE,
                sqlstate="22003",
                hint="Cast it in the query, to a numeric with precision and scale, or to double precision.",
            ) from None

    return convert


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None

    def convert_list(array: pa.Array) -> pa.Array:
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, convert(array.values), mask=mask)

    return convert_list


_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)
_GROUPS = ((0, 4, 0), (4, 6, 9), (6, 8, 14), (8, 10, 19), (10, 16, 24))


def uuid_text(array: pa.Array) -> pa.Array:
    """The usual form of each, 36 characters."""
    storage = array.storage
    count = len(storage)
    buffers = storage.buffers()
    raw = np.zeros((count, 16), dtype=np.uint8)
    if count and buffers[1] is not None:
        start = storage.offset * 16
        raw = np.frombuffer(buffers[1], dtype=np.uint8)[start : start + count * 16].reshape(count, 16)
    text = np.full((count, 36), ord("-"), dtype=np.uint8)
    for first, last, place in _GROUPS:
        width = 2 * (last - first)
        digits = np.ascontiguousarray(_HEX[raw[:, first:last]]).view(np.uint8).reshape(count, width)
        text[:, place : place + width] = digits
    offsets = np.arange(0, (count + 1) * 36, 36, dtype=np.int32)
    whole = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
    return pc.if_else(storage.is_valid(), whole, None) if storage.null_count else whole


def finite_timestamps(array: pa.Array) -> pa.Array:
    """Infinity becomes the last microsecond of year 9999, minus infinity the first of year 1."""
    return _finite(array, pa.int64(), _MINUS_INFINITY_MICROS, _ISO_MIN_MICROS, _ISO_MAX_MICROS)


def finite_dates(array: pa.Array) -> pa.Array:
    """Infinity becomes 9999-12-31, minus infinity 0001-01-01."""
    return _finite(array, pa.int32(), _MINUS_INFINITY_DAYS, _ISO_MIN_DAYS, _ISO_MAX_DAYS)


def _finite(array: pa.Array, number: pa.DataType, minus: int, lowest: int, highest: int) -> pa.Array:
    numbers = array.view(number)
    smallest = pc.min(numbers).as_py()
    if smallest is None or smallest > minus:
        return array
    # Below minus infinity lies what wrapped around when it was moved to 1970: infinity, years over 294246.
    low, high = pa.scalar(lowest, number), pa.scalar(highest, number)
    numbers = pc.if_else(pc.equal(numbers, pa.scalar(minus, number)), low, numbers)
    numbers = pc.if_else(pc.less(numbers, pa.scalar(minus, number)), high, numbers)
    return numbers.view(array.type)


def converted(batch: pa.RecordBatch, plans: list[Plan], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of ADBC as its plans say."""
    arrays = [
        column if plan.convert is None else plan.convert(column)
        for column, plan in zip(batch.columns, plans, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
