"""Arrow columns as cells of the binary protocol, for prepared statements.

Numbers are little-endian, dates and times packed fields behind a length, everything else is as in the text
protocol; a null is a bit of the row's bitmap and takes no bytes. Source: MySQL internals manual, "Binary
Protocol Value".
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.mysql import moments
from queryflux.wire.mysql.cells import Bytes2D, Cells, null_mask, raw
from queryflux.wire.mysql.json_text import as_duration
from queryflux.wire.mysql.text import Encode, text_encoder

_LAST_YEAR = 9999


def binary_encoder(kind: pa.DataType) -> Encode:
    """How columns of ``kind`` become cells."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return _as_text(kind)
        return _through(lambda array: array.storage, binary_encoder(kind.storage_type))
    if types.is_dictionary(kind):
        return _through(lambda array: array.dictionary_decode(), binary_encoder(kind.value_type))
    if types.is_run_end_encoded(kind):
        return _through(pc.run_end_decode, binary_encoder(kind.value_type))
    if types.is_boolean(kind):
        return _through(lambda array: array.cast(pa.uint8()), _numbers)
    if types.is_float16(kind):
        return _through(lambda array: array.cast(pa.float32()), _numbers)
    if types.is_integer(kind) or types.is_floating(kind):
        return _numbers
    if types.is_date(kind):
        return _through(lambda array: array.cast(pa.date32()), _dates)
    if types.is_timestamp(kind):
        return _timestamps
    if types.is_time(kind):
        return _through(as_duration, _durations)
    if types.is_duration(kind):
        return _durations
    return _as_text(kind)


def _through(prepare: Callable[[pa.Array], pa.Array], encode: Encode) -> Encode:
    return lambda array: encode(prepare(array))


def _as_text(kind: pa.DataType) -> Encode:
    """As in the text protocol, except that a null is nothing."""
    encode = text_encoder(kind)

    def without_nulls(array: pa.Array) -> Cells:
        if not array.null_count:
            return encode(array)
        cells = encode(array)
        joined = pc.binary_join_element_wise(*cells.parts, pa.scalar(b""))
        nulls = pa.array(array.is_null().to_numpy(zero_copy_only=False))
        kept = pc.if_else(nulls, pa.scalar(b""), joined)
        lengths = np.where(nulls.to_numpy(zero_copy_only=False), 0, cells.lengths)
        return Cells([kept], lengths)

    return without_nulls


def _numbers(array: pa.Array) -> Cells:
    nulls = null_mask(array)
    values = (array.fill_null(0) if nulls is not None else array).to_numpy()
    little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
    matrix = little.view(np.uint8).reshape(len(array), -1)
    return raw(matrix, nulls)


def _fields(matrix: Bytes2D, start: int, width: int, values: npt.NDArray[np.int64]) -> None:
    for index in range(width):
        matrix[:, start + index] = (values >> (8 * index)) & 0xFF


def _write_day(matrix: Bytes2D, days: npt.NDArray[np.int64]) -> None:
    """Year, month and day; what MySQL cannot hold becomes its zero date."""
    moment = np.clip(days, -800_000, 3_000_000).astype("datetime64[D]")
    months = moment.astype("datetime64[M]")
    years = months.astype("datetime64[Y]").astype(np.int64) + 1970
    fits = (years >= 0) & (years <= _LAST_YEAR)
    month = months.astype(np.int64) % 12 + 1
    day = (moment - months.astype("datetime64[D]")).astype(np.int64) + 1
    _fields(matrix, 1, 2, np.where(fits, years, 0))
    _fields(matrix, 3, 1, np.where(fits, month, 0))
    _fields(matrix, 4, 1, np.where(fits, day, 0))


def _dates(array: pa.Array) -> Cells:
    matrix = np.empty((len(array), 5), np.uint8)
    matrix[:, 0] = 4
    _write_day(matrix, moments.numbers(array, np.int32).astype(np.int64))
    return raw(matrix, null_mask(array))


def _write_clock(matrix: Bytes2D, start: int, micros: npt.NDArray[np.int64]) -> None:
    seconds, fraction = np.divmod(micros, 1_000_000)
    _fields(matrix, start, 1, seconds // 3600)
    _fields(matrix, start + 1, 1, seconds // 60 % 60)
    _fields(matrix, start + 2, 1, seconds % 60)
    _fields(matrix, start + 3, 4, fraction)


def _timestamps(array: pa.Array) -> Cells:
    days, rest = np.divmod(moments.micros_of(array), moments.DAY_MICROS)
    matrix = np.empty((len(array), 12), np.uint8)
    matrix[:, 0] = 11
    _write_day(matrix, days)
    _write_clock(matrix, 5, rest)
    return raw(matrix, null_mask(array))


def _durations(array: pa.Array) -> Cells:
    micros = moments.micros_of(array)
    days, rest = np.divmod(np.abs(micros), moments.DAY_MICROS)
    matrix = np.empty((len(array), 13), np.uint8)
    matrix[:, 0] = 12
    matrix[:, 1] = micros < 0
    _fields(matrix, 2, 4, days)
    _write_clock(matrix, 6, rest)
    return raw(matrix, null_mask(array))
