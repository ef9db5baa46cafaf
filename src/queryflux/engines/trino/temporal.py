"""Dates, times and intervals from Trino's text, a column at a time.

Arrow parses years 0 to 9999. Columns that hold others (they exist: ``+10000-01-01``, ``-0044-03-15``) go the
slower way through numpy. Text of more than nine fractional digits is cut there: Arrow has no picoseconds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.model.errors import EngineError, EngineErrorKind

Texts = Sequence[str | None]

_MICROSECOND_DIGITS = 6
_LONG_FRACTION = r"(\.\d{9})\d+"
_MONTH_DAY_NANO = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])


def unit(digits: int) -> str:
    """The Arrow unit for a precision: microseconds as far as they suffice, else nanoseconds."""
    return "us" if digits <= _MICROSECOND_DIGITS else "ns"


def dates(values: Texts) -> pa.Array:
    """``2024-02-29`` as date32."""
    return _parsed(pa.array(values, pa.string()), pa.date32(), "D")


def times(values: Texts, digits: int) -> pa.Array:
    """``23:59:59.999`` as time64."""
    texts = pc.binary_join_element_wise("1970-01-01", _cut(pa.array(values, pa.string())), " ")
    return texts.cast(pa.timestamp(unit(digits))).cast(pa.time64(unit(digits)))


def timestamps(values: Texts, digits: int) -> pa.Array:
    """``2024-02-29 23:59:59.999`` as timestamp. Raises EngineError for what nanoseconds cannot hold."""
    return _local(pa.array(values, pa.string()), digits)


def _local(texts: pa.Array, digits: int) -> pa.Array:
    return _parsed(_cut(texts), pa.timestamp(unit(digits)), unit(digits))


def _cut(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, _LONG_FRACTION, r"\1")


def _parsed(texts: pa.Array, target: pa.DataType, numpy_unit: str) -> pa.Array:
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        pass
    if numpy_unit == "ns":
        raise EngineError(
            "a timestamp of this column lies outside the years 1677 to 2262, which is all that nanoseconds "
            "can hold",
            kind=EngineErrorKind.OUT_OF_RANGE,
            sqlstate="22008",
            hint="Cast the column to timestamp(6).",
        )
    plain = [None if text is None else text.removeprefix("+") for text in texts.to_pylist()]
    return pa.array(np.array(plain, f"datetime64[{numpy_unit}]")).cast(target)


def zoned_timestamps(values: Texts, digits: int) -> pa.Array:
    """``2024-02-29 23:59:59.999 Europe/Berlin`` as an instant in UTC; the zone is not kept. The hour that a
    zone has twice is the first of the two: the text does not say which is meant."""
    texts = pa.array(values, pa.string())
    split = pc.split_pattern(texts, " ", max_splits=1, reverse=True)
    local = _local(pc.list_element(split, 0), digits)
    zones = pc.list_element(split, 1)
    names = pc.unique(zones).to_pylist()
    target = pa.timestamp(unit(digits), "UTC")
    instants = pa.nulls(len(texts), target)
    for name in names:
        if name is None:
            continue
        there = _instants(local, name).cast(target)
        instants = there if len(names) == 1 else pc.if_else(pc.equal(zones, name), there, instants)
    return instants


def _instants(local: pa.Array, zone: str) -> pa.Array:
    if zone in {"UTC", "Z", "GMT"}:
        return pc.assume_timezone(local, "UTC")
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")


def year_month_intervals(values: Texts) -> pa.Array:
    """``-1-2`` (years and months) as month_day_nano_interval."""
    parts = _integers(values, r"^(?P<sign>-?)(?P<years>\d+)-(?P<months>\d+)$", ("years", "months"))
    intervals = np.zeros(len(values), _MONTH_DAY_NANO)
    intervals["months"] = parts["sign"] * (parts["years"] * 12 + parts["months"])
    return pa.Array.from_buffers(
        pa.month_day_nano_interval(),
        len(values),
        [_validity(parts["valid"]), pa.py_buffer(intervals.tobytes())],
    )


def day_second_intervals(values: Texts) -> pa.Array:
    """``-2 03:04:05.678`` as duration in milliseconds."""
    pattern = r"^(?P<sign>-?)(?P<d>\d+) (?P<h>\d+):(?P<m>\d+):(?P<s>\d+)\.(?P<f>\d+)$"
    parts = _integers(values, pattern, ("d", "h", "m", "s", "f"))
    seconds = ((parts["d"] * 24 + parts["h"]) * 60 + parts["m"]) * 60 + parts["s"]
    milliseconds = parts["sign"] * (seconds * 1000 + parts["f"])
    return pa.array(milliseconds, pa.int64(), mask=~parts["valid"]).cast(pa.duration("ms"))


def _integers(values: Texts, pattern: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Named groups as integers, ``sign`` as 1 or -1, ``valid`` where there is a value; 0 elsewhere."""
    texts = pa.array(values, pa.string())
    fields = pc.extract_regex(texts, pattern)
    if fields.null_count != texts.null_count:
        raise ValueError("an interval of another form")
    found: dict[str, Any] = {
        name: pc.fill_null(pc.struct_field(fields, name), "0").cast(pa.int64()).to_numpy() for name in names
    }
    negative = pc.fill_null(pc.equal(pc.struct_field(fields, "sign"), "-"), False)
    found["sign"] = np.where(negative.to_numpy(zero_copy_only=False), -1, 1)
    found["valid"] = pc.is_valid(fields).to_numpy(zero_copy_only=False)
    return found


def _validity(valid: Any) -> pa.Buffer | None:
    if valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())


Parse = Callable[[Texts], pa.Array]
