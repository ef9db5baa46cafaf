"""Dates and times as MySQL spells them, a column at a time, from tables of ready digits.

MySQL manual 11.2: ``YYYY-MM-DD``, ``YYYY-MM-DD hh:mm:ss[.fraction]``, ``[-]hh[h]:mm:ss[.fraction]``.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.mysql import digits
from queryflux.wire.mysql.cells import Bytes2D, Mask

Int64s = npt.NDArray[np.int64]

DAY_MICROS = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


def numbers(array: pa.Array, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    """The integers under a column of dates or times; zero where it is null."""
    storage = array.view(pa.from_numpy_dtype(np.dtype(kind)))
    if storage.null_count:
        storage = storage.fill_null(0)
    values: npt.NDArray[np.generic] = storage.to_numpy()
    return values


def micros_of(array: pa.Array) -> Int64s:
    """Microseconds under a column of timestamps, times of day or durations; nanoseconds are cut off.

    Values beyond what microseconds can hold become the largest one, which stands for infinity."""
    unit = array.type.unit
    narrow = pa.types.is_time32(array.type)
    values = numbers(array, np.int32 if narrow else np.int64).astype(np.int64)
    if unit == "ns":
        return np.where(np.abs(values) == INT64_MAX, values, values // 1000)
    factor = _MICROS[unit]
    if factor == 1:
        return values
    limit = INT64_MAX // factor
    scaled = np.clip(values, -limit, limit) * factor
    return np.where(np.abs(values) > limit, np.sign(values) * INT64_MAX, scaled)


def decimals_of(unit: str) -> int:
    """Digits of fractional seconds that a column of ``unit`` shows."""
    return {"s": 0, "ms": 3}.get(unit, 6)


def date_matrix(days: npt.NDArray[np.generic]) -> Bytes2D | None:
    """Length byte and ten characters for each day; None when a day is outside the table."""
    if not _in_table(days):
        return None
    return digits.matrix(digits.days().take(days.astype(np.int64) - digits.FIRST_DAY))


def _in_table(days: npt.NDArray[Any]) -> bool:
    return not len(days) or bool(days.min() >= digits.FIRST_DAY and days.max() <= digits.LAST_DAY)


def datetime_matrix(micros: Int64s, decimals: int) -> Bytes2D | None:
    """Length byte and characters for each moment; None when a day is outside the table."""
    days = micros // DAY_MICROS
    if not _in_table(days):
        return None
    layout = _layout(True, decimals)
    out = np.empty(len(micros), layout)
    out["length"] = layout.itemsize - 1
    out["day"] = digits.bare_days().take(days - digits.FIRST_DAY)
    out["space"] = ord(" ")
    _write_clock(out, micros - days * DAY_MICROS, decimals)
    return digits.matrix(out)


def time_matrix(micros: Int64s, decimals: int) -> Bytes2D:
    """Length byte and characters for each time of day, 24:00:00 included."""
    layout = _layout(False, decimals)
    out = np.empty(len(micros), layout)
    out["length"] = layout.itemsize - 1
    _write_clock(out, micros, decimals)
    return digits.matrix(out)


@cache
def _layout(day: bool, decimals: int) -> "np.dtype[np.void]":
    fields = [("length", "u1")]
    if day:
        fields += [("day", "V10"), ("space", "u1")]
    fields.append(("clock", "V8"))
    if decimals:
        fields += [("point", "u1"), ("millis", "V3")]
    if decimals > 3:
        fields.append(("micros", "V3"))
    return np.dtype(fields)


def _write_clock(out: npt.NDArray[np.void], micros: Int64s, decimals: int) -> None:
    seconds = micros // 1_000_000
    out["clock"] = digits.seconds().take(seconds)
    if not decimals:
        return
    fraction = micros - seconds * 1_000_000
    millis = fraction // 1000
    out["point"] = ord(".")
    out["millis"] = digits.groups(3).take(millis)
    if decimals > 3:
        out["micros"] = digits.groups(3).take(fraction - millis * 1000)


def dates_text(array: pa.Array) -> pa.Array:
    """Days of any year; the engine's infinities by that name."""
    days = numbers(array, np.int32)
    infinite = np.abs(days.astype(np.int64)) == INT32_MAX
    safe = pa.array(np.where(infinite, 0, days), mask=_invalid(array)).cast(pa.date32())
    return _with_infinities(safe.cast(pa.string()), infinite, days > 0)  # type: ignore[operator]


def datetimes_text(array: pa.Array) -> pa.Array:
    """Moments of any year; the engine's infinities by that name."""
    micros = micros_of(array)
    unit = array.type.unit if array.type.unit in _MICROS else "us"
    infinite = np.abs(micros) == INT64_MAX
    units = np.where(infinite, 0, micros) // _MICROS[unit]
    safe = pa.array(units, mask=_invalid(array)).cast(pa.timestamp(unit))
    return _with_infinities(safe.cast(pa.string()), infinite, micros > 0)


def _invalid(array: pa.Array) -> Mask | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _with_infinities(text: pa.Array, infinite: Mask, positive: Mask) -> pa.Array:
    if not infinite.any():
        return text
    names = pc.if_else(pa.array(positive), pa.scalar("infinity"), pa.scalar("-infinity"))
    return pc.if_else(pc.and_(pa.array(infinite), text.is_valid()), names, text)


def durations_text(array: pa.Array) -> pa.Array:
    """TIME values, which may be negative and longer than a day."""
    micros = micros_of(array)
    size = np.abs(micros)
    hours, rest = np.divmod(size, 3_600_000_000)
    matrix = time_matrix(rest, decimals_of(array.type.unit))[:, 3:]
    text = pa.Array.from_buffers(
        pa.string(),
        len(matrix),
        [
            None,
            pa.py_buffer(np.arange(0, matrix.size + 1, matrix.shape[1], dtype=np.int32)),
            pa.py_buffer(np.ascontiguousarray(matrix).reshape(-1)),
        ],
    )
    sign = pc.if_else(pa.array(micros < 0), pa.scalar("-"), pa.scalar(""))
    padded = pc.utf8_lpad(pa.array(hours).cast(pa.string()), 2, "0")
    joined = pc.binary_join_element_wise(sign, padded, text, "")
    return _where_valid(joined, array)


def intervals_text(array: pa.Array) -> pa.Array:
    """Intervals of months, days and nanoseconds, e.g. ``1 year 2 months 3 days 04:05:06.000000``."""
    storage = np.frombuffer(
        array.buffers()[1],
        np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")]),
        len(array),
        array.offset * 16,
    )
    clock = durations_text(pa.array(storage["nanos"] // 1000).cast(pa.duration("us")))
    empty = pa.scalar("")
    parts = []
    months = storage["months"].astype(np.int64)
    years = np.sign(months) * (np.abs(months) // 12)
    named = (("year", years), ("month", months - 12 * years), ("day", storage["days"].astype(np.int64)))
    for name, amount in named:
        plural = pc.if_else(pa.array(np.abs(amount) == 1), pa.scalar(name), pa.scalar(name + "s"))
        words = pc.binary_join_element_wise(pa.array(amount).cast(pa.string()), plural, " ")
        parts.append(pc.if_else(pa.array(amount != 0), pc.binary_join_element_wise(words, empty, " "), empty))
    return _where_valid(pc.binary_join_element_wise(*parts, clock, ""), array)


def _where_valid(text: pa.Array, array: pa.Array) -> pa.Array:
    if not array.null_count:
        return text
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
