"""Nested Arrow values as JSON text, a column at a time (RFC 8259)."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.mysql import moments

_MUST_ESCAPE = r'[\x00-\x1f"\\]'
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES = [
    ("\\", "\\\\"),
    ('"', '\\"'),
    *((chr(code), _SHORT.get(chr(code), f"\\u{code:04x}")) for code in range(32)),
]


def json_column(array: pa.Array) -> pa.Array:
    """The values of ``array`` as JSON text: nulls stay null here, and are ``null`` inside lists, structs and
    maps. Binary values are hexadecimal strings; numbers that JSON has not are strings."""
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        return json_column(array.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        return json_column(array.storage)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _list(array)
    if types.is_map(kind):
        return _map(array)
    if types.is_struct(kind):
        return _struct(array)
    if types.is_boolean(kind) or types.is_integer(kind):
        return array.cast(pa.string())
    if types.is_floating(kind):
        return _float(array)
    return _scalar(array)


def _float(array: pa.Array) -> pa.Array:
    text = floats_text(array)
    return pc.if_else(pc.is_finite(array.cast(pa.float64())), text, _quoted(text))


def floats_text(array: pa.Array) -> pa.Array:
    """Shortest digits that read back as the same number; MySQL has no NaN, so the usual names stand."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    text = array.cast(pa.string())
    if not pc.all(pc.is_finite(array)).as_py():
        for spelled, name in (("nan", "NaN"), ("-inf", "-Infinity"), ("inf", "Infinity")):
            text = pc.if_else(pc.equal(text, spelled), name, text)
    return text


def _scalar(array: pa.Array) -> pa.Array:
    kind = array.type
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if types.is_decimal(kind):
        return decimals_text(array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _quoted(array.cast(pa.string()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _quoted(hex_text(array.cast(pa.binary())))
    if types.is_date(kind):
        return _quoted(moments.dates_text(array.cast(pa.date32())))
    if types.is_timestamp(kind):
        return _quoted(moments.datetimes_text(array))
    if types.is_time(kind) or types.is_duration(kind):
        return _quoted(moments.durations_text(as_duration(array)))
    if types.is_interval(kind):
        return _quoted(moments.intervals_text(array))
    return _one_by_one(array)


def as_duration(array: pa.Array) -> pa.Array:
    """A column of times of day as one of durations, which share their spelling."""
    if pa.types.is_duration(array.type):
        return array
    width = pa.int32() if pa.types.is_time32(array.type) else pa.int64()
    return array.view(width).cast(pa.int64()).cast(pa.duration(array.type.unit))


def _one_by_one(array: pa.Array) -> pa.Array:
    """What Arrow has no kernels for (unions): a loop in Python, for such columns alone."""
    values = [None if value is None else json.dumps(value, default=str) for value in array.to_pylist()]
    return pa.array(values, pa.string())


def _quoted(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, _MUST_ESCAPE)).as_py():
        for character, escape in _ESCAPES:
            text = pc.replace_substring(text, character, escape)
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, text, quote, "")


def _inside(array: pa.Array) -> pa.Array:
    """As ``json_column``, with ``null`` for nulls."""
    text = json_column(array)
    return text.fill_null("null") if text.null_count else text


def _joined(array: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """The ``items`` of each list of ``array``, joined by commas."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), items)
    inner = pc.binary_join(lists, ",")
    text = pc.binary_join_element_wise(pa.scalar(opening), inner, pa.scalar(closing), "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _list(array: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    return _joined(array, _inside(array.flatten()), "[", "]")


def _map(array: pa.Array) -> pa.Array:
    entries = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    flat = entries.flatten()
    keys = json_column(flat.field("key"))
    if not pc.all(pc.starts_with(keys, '"')).as_py():
        keys = pc.if_else(pc.starts_with(keys, '"'), keys, _quoted(keys))
    pairs = pc.binary_join_element_wise(keys, _inside(flat.field("value")), ":")
    return _joined(entries, pairs, "{", "}")


def _struct(array: pa.Array) -> pa.Array:
    if not array.type.num_fields:
        text = pa.array(np.full(len(array), "{}"), pa.string())
        return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
    parts: list[pa.Array | pa.Scalar] = []
    for index in range(array.type.num_fields):
        name = json.dumps(array.type.field(index).name, ensure_ascii=False)
        parts.append(pa.scalar(("," if index else "{") + name + ":"))
        parts.append(_inside(pc.struct_field(array, [index])))
    text = pc.binary_join_element_wise(*parts, pa.scalar("}"), "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def hex_text(values: pa.Array) -> pa.Array:
    """Two lower-case hexadecimal digits for every byte."""
    filled = values.fill_null(b"") if values.null_count else values
    start = np.frombuffer(filled.buffers()[1], np.int32, len(filled) + 1, filled.offset * 4)
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)[start[0] : start[-1]]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    pairs = np.empty((len(data), 2), np.uint8)
    pairs[:, 0] = digits[data >> 4]
    pairs[:, 1] = digits[data & 15]
    offsets = ((start - start[0]) * 2).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(pairs.reshape(-1))]
    text = pa.Array.from_buffers(pa.string(), len(values), buffers)
    if not values.null_count:
        return text
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def decimals_text(array: pa.Array) -> pa.Array:
    """Decimals with all their digits after the point and never an exponent."""
    if not (pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type)):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    text = array.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    scale = array.type.scale
    whole = pa.decimal256(76, 0) if pa.types.is_decimal256(array.type) else pa.decimal128(38, 0)
    unscaled = pa.Array.from_buffers(whole, len(array), array.buffers(), offset=array.offset)
    digits = unscaled.cast(pa.string())
    if scale <= 0:
        zeros = pa.scalar("0" * -scale)
        return pc.if_else(pc.equal(digits, "0"), digits, pc.binary_join_element_wise(digits, zeros, ""))
    negative = pc.starts_with(digits, "-")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    sign = pc.if_else(negative, pa.scalar("-"), pa.scalar(""))
    head, tail = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale, None)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, head, ""), tail, ".")
