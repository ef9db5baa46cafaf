"""Arrow columns as cells of the text protocol (MySQL internals manual, "Text Resultset Row")."""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.mysql import digits, moments
from queryflux.wire.mysql.cells import (
    Bytes2D,
    Cells,
    fixed,
    fixed_array,
    null_mask,
    raw,
    value_lengths,
    variable,
)
from queryflux.wire.mysql.json_text import as_duration, decimals_text, floats_text, hex_text, json_column

Encode = Callable[[pa.Array], Cells]
Spell = Callable[[object], bytes]
"""One value as text; raises ValueError where only the whole-column way knows how."""


def text_encoder(kind: pa.DataType) -> Encode:
    """How columns of ``kind`` become cells."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _extension(kind)
    if types.is_dictionary(kind):
        return _through(lambda array: array.dictionary_decode(), text_encoder(kind.value_type))
    if types.is_run_end_encoded(kind):
        return _through(pc.run_end_decode, text_encoder(kind.value_type))
    if types.is_boolean(kind):
        return _booleans
    if types.is_floating(kind):
        return _strings(floats_text)
    if types.is_integer(kind) and not types.is_uint64(kind):
        return _integers
    if types.is_decimal128(kind) and kind.scale >= 0:
        return _decimals
    if types.is_decimal(kind):
        return _strings(decimals_text)
    if types.is_date(kind):
        return _dates
    if types.is_timestamp(kind):
        return _timestamps
    if types.is_time(kind):
        return _times
    if types.is_duration(kind):
        return _strings(moments.durations_text)
    if types.is_interval(kind):
        return _strings(moments.intervals_text)
    if types.is_nested(kind):
        return _strings(json_column)
    return _strings(lambda array: array)


def _through(prepare: Callable[[pa.Array], pa.Array], encode: Encode) -> Encode:
    return lambda array: encode(prepare(array))


def _extension(kind: pa.BaseExtensionType) -> Encode:
    if kind.extension_name == "arrow.uuid":
        return _uuids
    return _through(lambda array: array.storage, text_encoder(kind.storage_type))


def _strings(spell: Callable[[pa.Array], pa.Array]) -> Encode:
    return lambda array: variable(as_binary(spell(array)))


def as_binary(array: pa.Array) -> pa.BinaryArray:
    """Strings, bytes and whole numbers as a binary array with 32-bit offsets."""
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array.cast(pa.string()).view(pa.binary())
    return array.cast(pa.binary())


def _filled(array: pa.Array) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = (array.fill_null(0) if array.null_count else array).to_numpy()
    return values


def _integers(array: pa.Array) -> Cells:
    """Small ones are picked from a table, NULL among them."""
    values = _filled(array)
    nulls = null_mask(array)
    if values.min() < digits.SMALLEST or values.max() >= digits.LARGEST:
        return variable(as_binary(array))
    entries = values.astype(np.int32) - digits.SMALLEST
    if nulls is not None:
        entries[nulls] = digits.NULL_ENTRY
    return _picked(digits.small_numbers(), entries)


def _picked(table: pa.BinaryArray, entries: npt.NDArray[np.int32]) -> Cells:
    cells = table.take(pa.array(entries))
    return Cells([cells], value_lengths(cells))


def _decimals(array: pa.Array) -> Cells:
    """Those that fit 64 bits are spelled as a whole part and a fraction, both small enough for tables."""
    scale: int = array.type.scale
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), array.offset * 16).reshape(-1, 2)
    nulls = null_mask(array)
    values, high = words[:, 0], words[:, 1]
    if nulls is not None:
        values, high = np.where(nulls, 0, values), np.where(nulls, 0, high)
    if not np.array_equal(values >> 63, high) or scale > digits.MOST_PLACES:
        return variable(as_binary(decimals_text(array)))
    if not scale:
        return _integers(pa.array(values, mask=nulls))
    size = np.abs(values)
    whole = size // 10**scale
    if whole.max() >= digits.WHOLES or size.min() < 0:
        return variable(as_binary(decimals_text(array)))
    entries = whole.astype(np.int32)
    entries[values < 0] += digits.WHOLES
    if nulls is not None:
        entries[nulls] = 2 * digits.WHOLES
    head = _picked(digits.decimal_wholes(scale), entries)
    fraction = _fraction(size - whole * 10**scale, scale)
    if nulls is not None:
        fraction_cells = raw(fraction, nulls)
        return Cells([*head.parts, *fraction_cells.parts], head.lengths + fraction_cells.lengths)
    return Cells([*head.parts, fixed_array(fraction)], head.lengths + fraction.shape[1])


def _fraction(values: npt.NDArray[np.int64], places: int) -> Bytes2D:
    """The point and the digits after it."""
    if places <= _GROUP:
        return digits.matrix(digits.fractions(places).take(values))
    high = values // 10 ** (places - _GROUP)
    out = np.empty(len(values), np.dtype([("first", f"V{_GROUP + 1}"), ("rest", f"V{places - _GROUP}")]))
    out["first"] = digits.fractions(_GROUP).take(high)
    out["rest"] = digits.groups(places - _GROUP).take(values - high * 10 ** (places - _GROUP))
    return digits.matrix(out)


def _booleans(array: pa.Array) -> Cells:
    nulls = null_mask(array)
    values = (array.fill_null(False) if nulls is not None else array).to_numpy(zero_copy_only=False)
    matrix = np.ones((len(array), 2), np.uint8)
    matrix[:, 1] = values + np.uint8(ord("0"))
    return fixed(matrix, nulls)


def _dates(array: pa.Array) -> Cells:
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    matrix = moments.date_matrix(moments.numbers(array, np.int32))
    if matrix is None:
        return variable(as_binary(moments.dates_text(array)))
    return fixed(matrix, null_mask(array))


def _timestamps(array: pa.Array) -> Cells:
    """Moments with a time zone are shown in UTC, the session's time zone."""
    matrix = moments.datetime_matrix(moments.micros_of(array), moments.decimals_of(array.type.unit))
    if matrix is None:
        return variable(as_binary(moments.datetimes_text(array)))
    return fixed(matrix, null_mask(array))


def _times(array: pa.Array) -> Cells:
    micros = moments.micros_of(array)
    if len(micros) and (micros.min() < 0 or micros.max() > moments.DAY_MICROS):
        return variable(as_binary(moments.durations_text(as_duration(array))))
    return fixed(moments.time_matrix(micros, moments.decimals_of(array.type.unit)), null_mask(array))


_GROUP = 4
_DASHES = (8, 13, 18, 23)


def _uuids(array: pa.Array) -> Cells:
    storage = array.storage
    spelled = hex_text((storage.fill_null(bytes(16)) if storage.null_count else storage).cast(pa.binary()))
    pairs: Bytes2D = np.frombuffer(spelled.buffers()[2], np.uint8, len(array) * 32).reshape(-1, 32)
    matrix = np.full((len(array), 37), ord("-"), np.uint8)
    matrix[:, 0] = 36
    places = [place + 1 for place in range(36) if place not in _DASHES]
    matrix[:, places] = pairs
    return fixed(matrix, null_mask(array))


def text_speller(kind: pa.DataType) -> Spell | None:
    """The way for a handful of values, when it is simple and gives the same bytes; else None."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return None
    if types.is_boolean(kind) or types.is_integer(kind):
        return _spell_integer
    if types.is_float64(kind):
        return _spell_float
    if types.is_decimal(kind) and kind.scale >= 0:
        return lambda value: format(value, "f").encode() if isinstance(value, Decimal) else b""
    if types.is_string(kind) or types.is_large_string(kind):
        return lambda value: str(value).encode()
    if types.is_binary(kind):
        return lambda value: value if isinstance(value, bytes) else b""
    if types.is_date32(kind):
        return _spell_date
    if types.is_timestamp(kind) and kind.unit != "ns" and kind.tz is None:
        return _moment_speller({"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[kind.unit])
    return None


def _spell_integer(value: object) -> bytes:
    assert isinstance(value, int)
    return b"%d" % value


_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e10
"""Between these Python's and Arrow's spelling of a float are the same but for a closing ``.0``."""


def _spell_float(value: object) -> bytes:
    assert isinstance(value, float)
    if not _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        raise ValueError("not spelled alike")
    return repr(value).removesuffix(".0").encode()


def _spell_date(value: object) -> bytes:
    assert isinstance(value, date)
    return value.isoformat().encode()


def _moment_speller(timespec: str) -> Spell:
    def spell(value: object) -> bytes:
        assert isinstance(value, datetime)
        return value.isoformat(" ", timespec).encode()

    return spell
