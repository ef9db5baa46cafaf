"""Types that hold others, as text: lists as PostgreSQL arrays (manual, 8.15.6), all others as JSON. Built of
strings with Arrow's kernels, level by level.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.wire.postgres import text
from queryflux.wire.postgres.cells import Cell, Mask, Numbers, nulls_of, strings_of, texts
from queryflux.wire.postgres.columns import Kind, is_list, kind_of
from queryflux.wire.postgres.text import unwrapped


def encode(array: pa.Array, zone: str) -> Cell:
    """The cells of any column."""
    kind, _ = kind_of(array.type)
    if kind is Kind.ARRAY:
        return texts(_arrays(unwrapped(array), zone))
    if kind is Kind.JSON:
        return texts(_json(unwrapped(array), zone))
    return text.encode(array, zone)


def _strings(array: pa.Array, zone: str) -> pa.Array:
    if not len(array):
        return pa.array([], pa.large_string())
    return strings_of(text.encode(array, zone), len(array))


def _large(constant: str) -> pa.Scalar:
    return pa.scalar(constant, pa.large_string())


def _join(*parts: Any) -> pa.Array:
    """Columns and constants, row by row, one after the other; NULL where one of them is."""
    wide = [_large(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*wide, _large(""))


def flat_list(array: pa.Array) -> tuple[Numbers, pa.Array, Mask | None]:
    """Any list array as offsets into its flattened values (NULL lists are empty), those values, and where it
    is NULL."""
    nulls = nulls_of(array)
    sizes = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return offsets, array.flatten(), nulls


def _brackets(array: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """``items`` (of the flattened values) in brackets, list by list."""
    offsets, _, nulls = flat_list(array)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), items)
    return _where(nulls, _join(opening, pc.binary_join(lists, _large(",")), closing))


def _where(nulls: Mask | None, made: pa.Array) -> pa.Array:
    return made if nulls is None else pc.if_else(pa.array(nulls), pa.scalar(None, made.type), made)


_BARE = r"^[^\s{},\"\\]+$"


def _arrays(array: pa.Array, zone: str) -> pa.Array:
    """``{a,NULL,"b c"}``."""
    values = unwrapped(array.flatten())
    if is_list(values.type):
        items = pc.fill_null(_arrays(values, zone), "NULL")
        return _brackets(array, items, "{", "}")
    made = _strings(values, zone)
    escaped = pc.replace_substring_regex(made, r'(["\\])', r"\\\1")
    quoted = _join('"', escaped, '"')
    bare = pc.and_(pc.match_substring_regex(made, _BARE), pc.not_equal(pc.utf8_upper(made), "NULL"))
    items = pc.fill_null(pc.if_else(bare, made, quoted), "NULL")
    return _brackets(array, items, "{", "}")


_AS_THEY_ARE = {Kind.INTEGER, Kind.UNSIGNED_64, Kind.DECIMAL}


def _json(array: pa.Array, zone: str) -> pa.Array:
    """Structs as objects, maps as objects of text keys, lists as arrays."""
    array = unwrapped(array)
    arrow = array.type
    if is_list(arrow):
        return _brackets(array, pc.fill_null(_json(array.flatten(), zone), "null"), "[", "]")
    if pa.types.is_map(arrow):
        return _json_map(array, zone)
    if pa.types.is_struct(arrow):
        return _json_struct(array, zone)
    if pa.types.is_union(arrow):
        return pa.array([json.dumps(value, default=str) for value in array.to_pylist()], pa.large_string())
    kind, _ = kind_of(arrow)
    if kind is Kind.BOOL:
        return pc.if_else(array, _large("true"), _large("false"))
    made = _strings(array, zone)
    if kind in _AS_THEY_ARE:
        return made
    if kind is Kind.FLOAT:
        finite = pc.is_finite(array.cast(pa.float64()))
        return pc.if_else(finite, made, _quoted(made))
    return _quoted(made)


_CONTROLS = [(chr(code), f"\\u{code:04x}") for code in range(32) if chr(code) not in "\n\r\t\b\f"]
_ESCAPES = [
    ("\\", "\\\\"),
    ('"', '\\"'),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\b", "\\b"),
    ("\f", "\\f"),
]


def _quoted(array: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(array, r'[\x00-\x1f"\\]')).as_py():
        for raw, escape in _ESCAPES + _CONTROLS:
            array = pc.replace_substring(array, raw, escape)
    return _join('"', array, '"')


def _json_struct(array: pa.Array, zone: str) -> pa.Array:
    parts: list[Any] = []
    fields = array.flatten()
    for index, child in enumerate(fields):
        name = json.dumps(array.type.field(index).name, ensure_ascii=False)
        parts += [f"{',' if index else ''}{name}:", pc.fill_null(_json(child, zone), "null")]
    made = _join("{", *parts, "}") if parts else pa.array(["{}"] * len(array), pa.large_string())
    return _where(nulls_of(array), made)


def _json_map(array: pa.Array, zone: str) -> pa.Array:
    nulls = nulls_of(array)
    starts = _offsets(array)
    low, high = int(starts[0]), int(starts[-1])
    keys = _strings(array.keys[low:high] if len(array.keys) != high - low else array.keys, zone)
    items = array.items[low:high] if len(array.items) != high - low else array.items
    pairs = _join(_quoted(keys), ":", pc.fill_null(_json(items, zone), "null"))
    lists = pa.LargeListArray.from_arrays(pa.array((starts - low).astype(np.int64)), pairs)
    made = _join("{", pc.binary_join(lists, _large(",")), "}")
    return _where(nulls, made)


def _offsets(array: pa.Array) -> Numbers:
    """The offsets of a map array."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
