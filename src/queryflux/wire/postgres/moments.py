"""Dates, times, timestamps and intervals as PostgreSQL writes them in DateStyle ISO and IntervalStyle
postgres.

Days of two centuries and the seconds of a day are looked up in tables; anything else goes through Arrow's
string kernels, which is slower and right for every year.
"""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.postgres.cells import (
    Cell,
    Mask,
    Numbers,
    Slots,
    nulls_of,
    records,
    slots,
    texts,
    values_of,
)

_FIRST_DAY = -25_567
_LAST_DAY = 47_847
"""1900-01-01 and 2100-12-31, in days from 1970."""
_DAY_MICROS = 86_400_000_000
DATE_INFINITY = 0x7FFF_FFFF
TIMESTAMP_INFINITY = 0x7FFF_FFFF_FFFF_FFFF
_BYTE = np.uint64(8)
_POINT = np.uint64(ord("."))


@cache
def _days() -> Numbers:
    """``YYYY-MM-DD`` and a space, for every day of the table."""
    days = pa.array(np.arange(_FIRST_DAY, _LAST_DAY + 1, dtype=np.int32)).cast(pa.date32()).cast(pa.string())
    table = np.full((len(days), 11), ord(" "), np.uint8)
    table[:, :10] = np.frombuffer(days.buffers()[2], np.uint8)[: 10 * len(days)].reshape(-1, 10)
    found: Numbers = table.view("V11").reshape(-1)
    return found


@cache
def _seconds() -> Numbers:
    """``HH:MM:SS`` for every second of a day, and 24:00:00."""
    of_day = np.arange(86_401)
    parts = [of_day // 3600, of_day // 60 % 60, of_day % 60]
    table = np.full((len(of_day), 8), ord(":"), np.uint8)
    for index, part in enumerate(parts):
        table[:, 3 * index] = part // 10 + ord("0")
        table[:, 3 * index + 1] = part % 10 + ord("0")
    found: Numbers = table.view("V8").reshape(-1)
    return found


@cache
def _thousandths() -> tuple[Numbers, Numbers]:
    """Three digits of each number below 1000 as a word, and how many are left without trailing zeros."""
    numbers = np.arange(1000)
    shown = np.stack([numbers // 100, numbers // 10 % 10, numbers % 10], axis=1) + ord("0")
    words = (shown[:, 0] | (shown[:, 1] << 8) | (shown[:, 2] << 16)).astype(np.uint64)
    kept = np.select([numbers == 0, numbers % 100 == 0, numbers % 10 == 0], [0, 1, 2], 3)
    return words, kept


def _fraction(micros: Numbers) -> tuple[Numbers, Numbers]:
    """A point and the microseconds without trailing zeros, as a word (7 bytes at most) and its length."""
    words, kept = _thousandths()
    high = micros // 1000
    low = micros - high * 1000
    sizes = np.where(low > 0, kept[low] + 4, np.where(high > 0, kept[high] + 1, 0))
    word = _POINT | (words[high] << _BYTE) | (words[low] << np.uint64(32))
    mask = (np.uint64(1) << (sizes.astype(np.uint64) * _BYTE)) - np.uint64(1)
    return word & mask, sizes


def _without(values: Numbers, nulls: Mask | None) -> Numbers:
    return values if nulls is None else np.where(nulls, values.dtype.type(0), values)


def dates(array: pa.Array) -> Cell:
    """A date32 array."""
    nulls = nulls_of(array)
    values = _without(values_of(array, "<i4"), nulls)
    if int(values.min()) < _FIRST_DAY or int(values.max()) > _LAST_DAY:
        return texts(date_texts(values.astype(np.int64), nulls))
    made = records(len(values), ("day", "V10"))
    made["day"] = _days()[values - _FIRST_DAY].view(np.dtype([("day", "V10"), ("space", "V1")]))["day"]
    return slots(made, 10, nulls)


def times(array: pa.Array) -> Slots:
    """A time32 or time64 array."""
    nulls = nulls_of(array)
    micros = _without(to_micros(array), nulls)
    of_day = micros // 1_000_000
    rest = micros - of_day * 1_000_000
    if not rest.any():
        made = records(len(micros), ("time", "V8"))
        made["time"] = _seconds()[of_day]
        return slots(made, 8, nulls)
    made = records(len(micros), ("time", "V8"), ("fraction", "<u8"))
    made["time"] = _seconds()[of_day]
    made["fraction"], sizes = _fraction(rest)
    return slots(made, sizes + 8, nulls)


def to_micros(array: pa.Array) -> Numbers:
    """The values of a time, timestamp or duration array in microseconds; finer ones are cut."""
    values = values_of(array, "<i4" if pa.types.is_time32(array.type) else "<i8").astype(np.int64)
    match array.type.unit:
        case "s":
            return values * 1_000_000
        case "ms":
            return values * 1000
        case "ns":
            return values // 1000
    return values


def timestamps(array: pa.Array, zone: str) -> Cell:
    """A timestamp array; with a time zone it is written in ``zone``."""
    nulls = nulls_of(array)
    micros = _without(to_micros(array), nulls)
    day = micros // _DAY_MICROS
    aware = array.type.tz is not None
    if int(day.min()) < _FIRST_DAY + 1 or int(day.max()) > _LAST_DAY - 1:
        return texts(_timestamp_texts(array, micros, nulls, zone))
    suffix: tuple[Numbers | np.uint64, Numbers | int] | None = None
    if aware:
        offsets = zone_offsets(micros, zone)
        if isinstance(offsets, np.ndarray) and (offsets % 60).any():
            return texts(_timestamp_texts(array, micros, nulls, zone))
        suffix = _suffix(offsets)
        micros = micros + offsets * 1_000_000
        day = micros // _DAY_MICROS
    return _timestamp_slots(micros - day * _DAY_MICROS, day, suffix, nulls)


def _timestamp_slots(
    of_day: Numbers, day: Numbers, suffix: "tuple[Any, Any] | None", nulls: Mask | None
) -> Slots:
    second = of_day // 1_000_000
    rest = of_day - second * 1_000_000
    fields = [("day", "V11"), ("time", "V8")]
    size: Numbers | int = 19
    tail: Any = None
    if rest.any():
        tail, sizes = _fraction(rest)
        size = sizes + 19
    more: Any = None
    if suffix is not None:
        word, length = suffix
        if tail is None:
            tail = np.broadcast_to(word, day.shape)
        else:
            used = (np.asarray(size) - 19).astype(np.uint64) * _BYTE
            # A shift by 64 gives 0, which is what a value without a fraction needs.
            tail, more = tail | (word << used), word >> (np.uint64(64) - used)
        size = size + length
    fields += [("tail", "<u8")] * (tail is not None) + [("more", "<u8")] * (more is not None)
    made = records(len(day), *fields)
    made["day"] = _days()[day - _FIRST_DAY]
    made["time"] = _seconds()[second]
    if tail is not None:
        made["tail"] = tail
    if more is not None:
        made["more"] = more
    return slots(made, size, nulls)


def zone_offsets(micros: Numbers, zone: str) -> "Numbers | int":
    """Seconds east of Greenwich at each moment; an int when the zone has but one."""
    if zone in ("UTC", "GMT"):
        return 0
    utc = pa.array(micros).cast(pa.timestamp("us", tz="UTC"))
    local = pc.local_timestamp(utc.cast(pa.timestamp("us", tz=zone)))
    offsets: Numbers = (values_of(local.cast(pa.int64()), "<i8") - micros) // 1_000_000
    return offsets


def _suffix(offsets: "Numbers | int") -> "tuple[Any, Any]":
    """``+HH`` or ``+HH:MM`` for whole minutes, as a word and its length."""
    if isinstance(offsets, int):
        return np.uint64(int.from_bytes(b"+00", "little")), 3
    known, index = np.unique(offsets, return_inverse=True)
    shown = [_offset_text(int(value)) for value in known]
    words = np.array([int.from_bytes(text.encode(), "little") for text in shown], np.uint64)
    sizes = np.array([len(text) for text in shown])
    return words[index], sizes[index]


def _offset_text(seconds: int) -> str:
    sign, rest = ("-", -seconds) if seconds < 0 else ("+", seconds)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    text = f"{sign}{hours:02d}"
    if minutes or left:
        text += f":{minutes:02d}"
    return f"{text}:{left:02d}" if left else text


# Every year.


def _strings(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _numbers(values: Numbers, width: int) -> pa.Array:
    return pc.ascii_lpad(pa.array(values).cast(pa.string()), width, "0")


def _date_parts(days: Numbers) -> tuple[pa.Array, pa.Array]:
    """``YYYY-MM-DD`` and `` BC`` or nothing, of the proleptic Gregorian calendar; days from 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    year = year_of_era + era * 400 + (month <= 2)
    shown = np.where(year > 0, year, 1 - year)
    text = _strings(_numbers(shown, 4), "-", _numbers(month, 2), "-", _numbers(day, 2))
    return text, pc.if_else(pa.array(year > 0), "", " BC")


def _with_nulls(array: pa.Array, nulls: Mask | None) -> pa.Array:
    return array if nulls is None else pc.if_else(pa.array(nulls), pa.scalar(None, pa.string()), array)


def _infinite(array: pa.Array, values: Numbers, infinity: int) -> pa.Array:
    """``infinity`` where the value is the largest, ``-infinity`` where it is one of the two smallest."""
    made = pc.if_else(pa.array(values == infinity), "infinity", array)
    return pc.if_else(pa.array(values <= -infinity), "-infinity", made)


def date_texts(days: Numbers, nulls: Mask | None) -> pa.Array:
    """Dates of any year as strings."""
    text, era = _date_parts(days)
    return _with_nulls(_infinite(_strings(text, era), days, DATE_INFINITY), nulls)


def _timestamp_texts(array: pa.Array, micros: Numbers, nulls: Mask | None, zone: str) -> pa.Array:
    infinite = np.abs(micros) >= TIMESTAMP_INFINITY - 1
    shown = np.where(infinite, np.int64(0), micros)
    suffix: Any = ""
    if array.type.tz is not None:
        offsets = zone_offsets(shown, zone)
        known, index = np.unique(np.broadcast_to(np.asarray(offsets), shown.shape), return_inverse=True)
        suffix = pa.array([_offset_text(int(value)) for value in known]).take(pa.array(index))
        shown = shown + offsets * 1_000_000
    day = shown // _DAY_MICROS
    date, era = _date_parts(day)
    text = _strings(date, " ", clock_texts(shown - day * _DAY_MICROS), suffix, era)
    return _with_nulls(_infinite(text, micros, TIMESTAMP_INFINITY), nulls)


def clock_texts(micros: Numbers) -> pa.Array:
    """``HH:MM:SS.ffffff`` without trailing zeros; hours may have more than two digits."""
    seconds = micros // 1_000_000
    rest = micros - seconds * 1_000_000
    fraction = pc.ascii_rtrim(_strings(".", _numbers(rest, 6)), "0")
    fraction = pc.if_else(pa.array(rest == 0), "", fraction)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return _strings(_numbers(hours, 2), ":", _numbers(minutes, 2), ":", _numbers(seconds % 60, 2), fraction)


# Intervals.


def interval_parts(array: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Months, days and microseconds of an interval or duration array."""
    if pa.types.is_duration(array.type):
        micros = to_micros(array)
        zero = np.zeros(len(micros), np.int64)
        return zero, zero, micros
    parts = values_of(array, "V16").view(np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")]))
    months, days = parts["months"].astype(np.int64), parts["days"].astype(np.int64)
    return months, days, parts["nanos"].astype(np.int64) // 1000


def intervals(array: pa.Array) -> Cell:
    """Intervals in the style ``1 year 2 mons -3 days +04:05:06.7``."""
    nulls = nulls_of(array)
    months, all_days, micros = (_without(part, nulls) for part in interval_parts(array))
    years = np.sign(months) * (np.abs(months) // 12)
    empty = np.ones(len(months), np.bool_)
    before = np.zeros(len(months), np.bool_)
    pieces: list[Any] = []
    for values, unit in ((years, "year"), (months - 12 * years, "mon"), (all_days, "day")):
        there = values != 0
        plus = pc.if_else(pa.array(before & (values > 0)), "+", "")
        gap = pc.if_else(pa.array(empty), "", " ")
        plural = pc.if_else(pa.array(values != 1), "s", "")
        text = _strings(gap, plus, pa.array(values).cast(pa.string()), f" {unit}", plural)
        pieces.append(pc.if_else(pa.array(there), text, ""))
        before = np.where(there, values < 0, before)
        empty &= ~there
    sign = pc.if_else(pa.array(micros < 0), "-", pc.if_else(pa.array(before), "+", ""))
    clock = _strings(pc.if_else(pa.array(empty), "", " "), sign, clock_texts(np.abs(micros)))
    pieces.append(pc.if_else(pa.array(empty | (micros != 0)), clock, ""))
    return texts(_with_nulls(_strings(*pieces), nulls))


def warm() -> None:
    """Build the tables."""
    _days()
    _seconds()
    _thousandths()
