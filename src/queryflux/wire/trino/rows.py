"""Arrow batches as the ``data`` of Trino's JSON, a batch at a time (client protocol, "QueryResults").

Every column becomes an array of JSON texts with Arrow's own kernels, and one join of all columns with what
stands between them gives the page: no Python runs per value. Formats are those of Trino's own encoders:
decimals as strings, NaN and the infinities as strings, instants in UTC with their zone named, varbinary in
base64, rows as arrays, maps as objects.
"""

import binascii
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_

from queryflux.wire.trino.types import column, is_list_like

_NULL = pa.scalar("null", pa.string())
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), dtype=np.uint8).reshape(256, 2)
_UUID_PLACES = [place for place in range(36) if place not in (8, 13, 18, 23)]

Batch: TypeAlias = "pa.RecordBatch"
Text = tuple[pa.Array, bool]
"""JSON texts (null where the value is), and whether they still lack their quotes."""


class RowEncoder:
    """Encodes the batches of one result."""

    def __init__(self, schema: pa.Schema) -> None:
        self.columns = msgspec.json.encode([column(field) for field in schema])
        """The value of the document's ``columns``."""
        self._writers = [_writer(field.type) for field in schema]
        self._row_bytes = 0.0
        """Of the last rows encoded, a row's text on average."""

    def split(self, batch: Batch, room: int) -> "tuple[Batch, Batch | None]":
        """The rows whose text will fill about ``room`` bytes, at least one, and those that are left."""
        rows = batch.num_rows
        fits = int(room / max(self._row_bytes, batch.nbytes / max(rows, 1), 1)) + 1
        return (batch, None) if rows <= fits else (batch.slice(0, fits), batch.slice(fits))

    def encode(self, batch: Batch) -> bytes:
        """The rows as ``[...],[...]``, without the brackets around all of them; empty for no rows. One call
        should get what fits a page: its text must stay below 2 GiB."""
        rows = batch.num_rows
        if rows == 0:
            return b""
        if not self._writers:
            return b",".join([b"[]"] * rows)
        parts: list[Any] = []
        between = "["
        for writer, array in zip(self._writers, batch.columns, strict=True):
            texts, bare = writer(array)
            if bare and texts.null_count == 0:
                parts += [between + '"', texts]
                between = '",'
            else:
                parts += [between, _finished((texts, bare))]
                between = ","
        end = between[:-1] + "],"
        joined = _joined(*parts, end)
        start, stop = joined.offset, joined.offset + rows
        offsets = np.frombuffer(joined.buffers()[1], dtype=np.int32)
        data = memoryview(joined.buffers()[2])
        text = bytes(data[offsets[start] : offsets[stop] - 1])
        self._row_bytes = len(text) / rows
        return text


def _joined(*parts: Any) -> pa.Array:
    """The concatenation of arrays and strings, row by row; null where one of them is null."""
    values = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*values, "")


def _finished(text: Text) -> pa.Array:
    """JSON values: quoted where they must be, ``null`` for null."""
    texts, bare = text
    if bare:
        texts = _joined('"', texts, '"')
    return pc.fill_null(texts, _NULL) if texts.null_count else texts


def _writer(arrow: pa.DataType) -> Callable[[pa.Array], Text]:
    """How a column of this type becomes text."""
    for test, writer in _WRITERS:
        if test(arrow):
            return writer
    return _anything


def _write(array: pa.Array) -> Text:
    return _writer(array.type)(array)


# Numbers.


def _plain(array: pa.Array) -> Text:
    return pc.cast(array, pa.string()), False


def _quoted(array: pa.Array) -> Text:
    return pc.cast(array, pa.string()), True


def _float(array: pa.Array) -> Text:
    if is_.is_float16(array.type):
        array = pc.cast(array, pa.float32())
    texts = pc.cast(array, pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is False:
        special = pc.if_else(
            pc.is_nan(array), '"NaN"', pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"')
        )
        texts = pc.if_else(finite, texts, special)
    # A whole number keeps its ".0", so that every client reads a float.
    whole = pc.and_(
        pc.equal(pc.find_substring(texts, "."), -1),
        pc.and_(pc.equal(pc.find_substring(texts, "e"), -1), finite),
    )
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, _joined(texts, ".0"), texts)
    return texts, False


def _decimal(array: pa.Array) -> Text:
    if array.type.scale < 0:
        array = pc.cast(array, pa.decimal256(76, 0))
    texts = pc.cast(array, pa.string())
    if pc.any(pc.greater_equal(pc.find_substring(texts, "E"), 0)).as_py():
        texts = _without_exponent(array)
    return texts, True


def _without_exponent(array: pa.Array) -> pa.Array:
    """Arrow writes 0.0000001 as 1E-7; from the unscaled digits it can be written out."""
    kind, scale = array.type, array.type.scale
    unscaled = type_of_digits(kind)
    digits = pc.cast(
        pa.Array.from_buffers(unscaled, len(array), array.buffers(), array.null_count, array.offset),
        pa.string(),
    )
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    return _joined(sign, whole, ".", pc.utf8_slice_codeunits(digits, -scale))


def type_of_digits(kind: pa.DataType) -> pa.DataType:
    """The type of the same width and precision without a fraction."""
    maker = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[kind.bit_width]
    return maker(kind.precision, 0)


# Text and bytes.


def _string(array: pa.Array) -> Text:
    if not is_.is_string(array.type):
        array = pc.cast(array, pa.string())
    return _escaped(array), True


def _escaped(array: pa.Array) -> pa.Array:
    """Quotes, backslashes and control characters as JSON wants them (RFC 8259, 7)."""
    data = array.buffers()[2]
    if data is None or len(array) == 0:
        return array
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    used = np.frombuffer(data, dtype=np.uint8)[offsets[array.offset] : offsets[array.offset + len(array)]]
    special = used[(used < 32) | (used == 34) | (used == 92)]
    if special.size == 0:
        return array
    present = set(np.unique(special).tolist())
    for code in (92, 34, *sorted(present - {92, 34})):
        if code in present:
            array = pc.replace_substring(array, chr(code), _ESCAPES[code])
    return array


_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)} | {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}


def _binary(array: pa.Array) -> Text:
    """Base64 of many values in one call: each is padded to whole groups of three bytes, which code to four
    characters whatever stands beside them; the characters that stand for padding become ``=``."""
    if not is_.is_binary(array.type):
        array = pc.cast(array, pa.binary())
    rows = len(array)
    starts = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + rows + 1]
    data = array.buffers()[2]
    source = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    lengths = np.diff(starts)
    groups = (lengths + 2) // 3
    places = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(groups * 3, out=places[1:])
    padded = np.zeros(int(places[-1]), dtype=np.uint8)
    shift = np.repeat(places[:-1] - starts[:-1], lengths)
    padded[np.arange(starts[0], starts[-1]) + shift] = source[starts[0] : starts[-1]]
    coded = np.frombuffer(binascii.b2a_base64(padded.tobytes(), newline=False), dtype=np.uint8).copy()
    ends = places[1:] // 3 * 4
    missing = groups * 3 - lengths
    coded[ends[missing > 0] - 1] = 61
    coded[ends[missing > 1] - 2] = 61
    offsets = np.zeros(rows + 1, dtype=np.int32)
    offsets[1:] = ends
    return _string_array(offsets, coded, array), True


def _string_array(offsets: Any, data: Any, like: pa.Array) -> pa.Array:
    """Strings from numpy buffers, null where ``like`` is."""
    made = pa.Array.from_buffers(pa.string(), len(like), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(pc.is_valid(like), made, pa.scalar(None, pa.string())) if like.null_count else made


def _uuid(array: pa.Array) -> Text:
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    rows = len(storage)
    source = np.frombuffer(storage.buffers()[1], dtype=np.uint8)[storage.offset * 16 :][: rows * 16]
    text = np.full((rows, 36), ord("-"), dtype=np.uint8)
    text[:, _UUID_PLACES] = _HEX[source.reshape(rows, 16)].reshape(rows, 32)
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return _string_array(offsets, text.reshape(-1), storage), True


# Times.


def _instant(array: pa.Array) -> Text:
    """Arrow keeps UTC; the zone in its type is only a wish for display."""
    local = pc.cast(pc.cast(array, pa.timestamp(array.type.unit, "UTC")), pa.timestamp(array.type.unit))
    return _joined(pc.cast(local, pa.string()), " UTC"), True


def _duration(array: pa.Array) -> Text:
    """``interval day to second``: ``-1 02:03:04.567``."""
    nanos = pc.multiply_checked(pc.cast(array, pa.int64()), _NANOS[array.type.unit])
    sign = pc.if_else(pc.less(nanos, 0), "-", "")
    millis = pc.divide(pc.abs(nanos), 1_000_000)
    days = pc.divide(millis, 86_400_000)
    clock = pc.subtract(millis, pc.multiply(days, 86_400_000))
    time = pc.cast(pc.cast(pc.cast(clock, pa.int32()), pa.time32("ms")), pa.string())
    return _joined(sign, pc.cast(days, pa.string()), " ", time), True


def _interval(array: pa.Array) -> Text:
    """Months, days and time in PostgreSQL's way of writing: ``1 year 2 mons 3 days 04:05:06``."""
    rows = len(array)
    kind = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    values = np.frombuffer(array.buffers()[1], dtype=kind)[array.offset : array.offset + rows]
    months, nanos = values["months"], values["nanos"]
    years = (np.abs(months) // 12) * np.sign(months)
    micros = np.abs(nanos) // 1000
    seconds, fraction = micros // 1_000_000, micros % 1_000_000
    clock = _joined(
        pc.if_else(pa.array(nanos < 0), "-", ""),
        _digits(seconds // 3600, 2),
        ":",
        _digits(seconds // 60 % 60, 2),
        ":",
        _digits(seconds % 60, 2),
        pc.if_else(pa.array(fraction > 0), _joined(".", _digits(fraction, 6)), ""),
    )
    shown = (micros > 0) | ((months == 0) & (values["days"] == 0))
    clock = pc.if_else(pa.array(shown), clock, pa.scalar(None, pa.string()))
    words = [_counted(years, "year"), _counted(months - years * 12, "mon"), _counted(values["days"], "day")]
    texts = pc.binary_join_element_wise(*words, clock, " ", null_handling="skip")
    return pc.if_else(pc.is_valid(array), texts, pa.scalar(None, pa.string())), True


def _digits(numbers: Any, width: int) -> pa.Array:
    return pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")


def _counted(numbers: Any, unit: str) -> pa.Array:
    """``2 days``; null for none."""
    counts = pa.array(numbers, mask=numbers == 0)
    return _joined(pc.cast(counts, pa.string()), pc.if_else(pc.equal(counts, 1), f" {unit}", f" {unit}s"))


# Nested values.


def _list(array: pa.Array) -> Text:
    if not is_.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_type))
    offsets, start, stop = _ranges(array)
    values = _finished(_write(array.values.slice(start, stop - start)))
    return _bracketed("[", _gathered(offsets, values), "]", array), False


def _map(array: pa.Array) -> Text:
    offsets, start, stop = _ranges(array)
    keys, bare = _write(array.keys.slice(start, stop - start))
    if not bare:
        keys = _escaped(keys)
    items = _finished(_write(array.items.slice(start, stop - start)))
    return _bracketed("{", _gathered(offsets, _joined('"', keys, '":', items)), "}", array), False


def _ranges(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets from 0, and where the values begin and end in the child."""
    offsets = array.offsets
    start, stop = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return pc.subtract(offsets, pa.scalar(start, pa.int32())), start, stop


def _gathered(offsets: pa.Array, values: pa.Array) -> pa.Array:
    return pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")


def _bracketed(opening: str, texts: pa.Array, closing: str, like: pa.Array) -> pa.Array:
    texts = _joined(opening, texts, closing)
    return pc.if_else(pc.is_valid(like), texts, pa.scalar(None, pa.string())) if like.null_count else texts


def _struct(array: pa.Array) -> Text:
    parts: list[Any] = []
    for position, child in enumerate(array.flatten()):
        parts += ["," if position else "", _finished(_write(child))]
    if not parts:
        return _bracketed("[", pa.repeat("", len(array)), "]", array), False
    return _bracketed("[", _joined(*parts), "]", array), False


def _dictionary(array: pa.Array) -> Text:
    return _write(array.dictionary_decode())


def _extension(array: pa.Array) -> Text:
    return _write(array.storage)


def _nothing(array: pa.Array) -> Text:
    return pa.nulls(len(array), pa.string()), False


def _anything(array: pa.Array) -> Text:
    """What has no type in Trino (unions): its text. The one loop over values here, for want of a kernel."""
    texts = [None if value is None else str(value) for value in array.to_pylist()]
    return _escaped(pa.array(texts, pa.string())), True


def _is_uuid(arrow: pa.DataType) -> bool:
    return getattr(arrow, "extension_name", "") == "arrow.uuid"


def _is_zoned(arrow: pa.DataType) -> bool:
    return is_.is_timestamp(arrow) and arrow.tz is not None


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Text]], ...] = (
    (_is_uuid, _uuid),
    (lambda arrow: isinstance(arrow, pa.BaseExtensionType), _extension),
    (is_.is_uint64, _quoted),
    (is_.is_integer, _plain),
    (is_.is_boolean, _plain),
    (is_.is_floating, _float),
    (is_.is_decimal, _decimal),
    (is_.is_string, _string),
    (is_.is_large_string, _string),
    (is_.is_string_view, _string),
    (is_.is_binary, _binary),
    (is_.is_large_binary, _binary),
    (is_.is_fixed_size_binary, _binary),
    (is_.is_binary_view, _binary),
    (is_.is_date, _quoted),
    (is_.is_time, _quoted),
    (_is_zoned, _instant),
    (is_.is_timestamp, _quoted),
    (is_.is_duration, _duration),
    (is_.is_interval, _interval),
    (is_.is_dictionary, _dictionary),
    (is_.is_map, _map),
    (is_list_like, _list),
    (is_.is_struct, _struct),
    (is_.is_null, _nothing),
)
