"""Rows of JSON as Arrow columns. A page is turned over once (rows to columns), then each column is converted
whole.

What each Trino type becomes is in ``arrow_type``. Map keys arrive as JSON object keys, which are strings
whatever their type; those of array, map or row type stay text.
"""

import base64
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from queryflux.engines.trino import temporal
from queryflux.engines.trino.types import TrinoType
from queryflux.model.errors import EngineConnectionLost

Values = Sequence[Any]
Convert = Callable[[Values], pa.Array]

_decode_rows = msgspec.json.Decoder(list[list[Any]]).decode
_encode = msgspec.json.Encoder().encode

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
}
_FLOATS = {"real": pa.float32(), "double": pa.float64()}
_BINARY = {"varbinary", "hyperloglog", "p4hyperloglog", "setdigest", "qdigest", "tdigest", "khyperloglog"}
_TEXT = {"varchar", "char", "ipaddress", "time with time zone"}
_BOOLEANS = {"true": True, "false": False, None: None}
_ZERO_UUID = "0" * 32


class Columns:
    """The schema of a result, and how its pages become batches."""

    def __init__(self, names: Sequence[str], types: Sequence[TrinoType]) -> None:
        """Raises EngineConnectionLost for a type that cannot be (an array of nothing, decimal(99,0))."""
        try:
            self._converters = [converter(kind) for kind in types]
            fields = [pa.field(name, arrow_type(kind)) for name, kind in zip(names, types, strict=True)]
        except (pa.ArrowException, ValueError, OverflowError, IndexError) as error:
            raise EngineConnectionLost(f"Trino described columns that cannot be: {error}") from error
        self.schema = pa.schema(fields)

    def batch(self, data: bytes | msgspec.Raw) -> pa.RecordBatch:
        """The batch of a page's ``data``. Raises EngineConnectionLost when it is not what its columns say,
        EngineError for a timestamp that Arrow cannot hold."""
        try:
            rows = _decode_rows(data)
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._converters)
            arrays = [convert(column) for convert, column in zip(self._converters, columns, strict=True)]
            return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        except (msgspec.DecodeError, pa.ArrowException, ValueError, TypeError, AttributeError) as error:
            raise EngineConnectionLost(
                f"Trino answered with rows that do not fit their columns: {error}"
            ) from error


def arrow_type(kind: TrinoType) -> pa.DataType:
    """What values of a Trino type are in Arrow."""
    name = kind.name
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _FLOATS:
        return _FLOATS[name]
    if name == "decimal":
        return pa.decimal128(kind.number(0, 38), kind.number(1, 0))
    if name in _TEXT:
        return pa.string()
    if name in _BINARY:
        return pa.binary()
    return _temporal_type(kind) or _nested_type(kind) or _OTHERS.get(name, pa.string())


_OTHERS = {
    "json": pa.json_(),
    "uuid": pa.uuid(),
    "unknown": pa.null(),
    "interval year to month": pa.month_day_nano_interval(),
    "interval day to second": pa.duration("ms"),
}


def _temporal_type(kind: TrinoType) -> pa.DataType | None:
    unit = temporal.unit(kind.number(0, 3))
    if kind.name == "date":
        return pa.date32()
    if kind.name == "time":
        return pa.time64(unit)
    if kind.name == "timestamp":
        return pa.timestamp(unit)
    if kind.name == "timestamp with time zone":
        return pa.timestamp(unit, "UTC")
    return None


def _nested_type(kind: TrinoType) -> pa.DataType | None:
    if kind.name == "array":
        return pa.list_(arrow_type(kind.parts[0]))
    if kind.name == "map":
        return pa.map_(_key_type(kind.parts[0]), arrow_type(kind.parts[1]))
    if kind.name == "row":
        return pa.struct(
            [pa.field(name, arrow_type(part)) for name, part in zip(kind.names, kind.parts, strict=True)]
        )
    return None


def _key_type(kind: TrinoType) -> pa.DataType:
    return pa.string() if kind.parts else arrow_type(kind)


def converter(kind: TrinoType) -> Convert:
    """The function for values of a type as JSON has them."""
    name = kind.name
    if name in _PLAIN:
        return partial(_plain, target=_PLAIN[name])
    if name in _FLOATS:
        return partial(_floats, target=_FLOATS[name])
    if name == "decimal":
        return partial(_decimals, target=arrow_type(kind))
    if name in _TEXT:
        return partial(_plain, target=pa.string())
    if name in _BINARY:
        return _binaries
    digits = kind.number(0, 3)
    others: dict[str, Convert] = {
        "json": _json,
        "uuid": _uuids,
        "unknown": partial(_plain, target=pa.null()),
        "date": temporal.dates,
        "time": partial(temporal.times, digits=digits),
        "timestamp": partial(temporal.timestamps, digits=digits),
        "timestamp with time zone": partial(temporal.zoned_timestamps, digits=digits),
        "interval year to month": temporal.year_month_intervals,
        "interval day to second": temporal.day_second_intervals,
    }
    if name in others:
        return others[name]
    return _nested(kind) or _anything


def _nested(kind: TrinoType) -> Convert | None:
    if kind.name == "array":
        return partial(_arrays, convert=converter(kind.parts[0]))
    if kind.name == "map":
        return partial(_maps, keys=_key_converter(kind.parts[0]), values_of=converter(kind.parts[1]))
    if kind.name == "row":
        return partial(_rows, converters=[converter(part) for part in kind.parts], target=arrow_type(kind))
    return None


def _key_converter(kind: TrinoType) -> Convert:
    """Keys are text; types that are JSON text anyway are converted as ever."""
    if kind.parts:
        return partial(_plain, target=pa.string())
    if kind.name == "boolean":
        return lambda keys: pa.array([_BOOLEANS[key] for key in keys], pa.bool_())
    if kind.name in _PLAIN or kind.name in _FLOATS:
        return partial(_cast, target=arrow_type(kind))
    return converter(kind)


def _plain(values: Values, target: pa.DataType) -> pa.Array:
    return pa.array(values, target)


def _cast(values: Values, target: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(target)


def _floats(values: Values, target: pa.DataType) -> pa.Array:
    """Numbers, and the strings NaN, Infinity and -Infinity."""
    try:
        return pa.array(values, target)
    except pa.ArrowInvalid:
        return pa.array([float(v) if isinstance(v, str) else v for v in values], target)


def _decimals(values: Values, target: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(target)


def _binaries(values: Values) -> pa.Array:
    decode = base64.b64decode
    return pa.array([None if v is None else decode(v, validate=True) for v in values], pa.binary())


def _json(values: Values) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(), pa.array(values, pa.string()))


def _uuids(values: Values) -> pa.Array:
    """All digits of a column are turned into bytes in one go."""
    joined = "".join([value or _ZERO_UUID for value in values]).replace("-", "")
    data = pa.py_buffer(bytes.fromhex(joined))
    storage = pa.Array.from_buffers(pa.binary(16), len(values), [_validity(values), data])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _validity(values: Values) -> pa.Buffer | None:
    if None not in values:
        return None
    return pc.is_valid(pa.array([None if v is None else True for v in values], pa.bool_())).buffers()[1]


def _anything(values: Values) -> pa.Array:
    """Types that we do not know: text as it is, all else as JSON."""
    texts = [v if v is None or isinstance(v, str) else _encode(v).decode() for v in values]
    return pa.array(texts, pa.string())


def _offsets(values: Values) -> pa.Array:
    """Offsets of a list or map array; null where there is no value."""
    offsets: list[int | None] = []
    position = 0
    for value in values:
        offsets.append(None if value is None else position)
        position += 0 if value is None else len(value)
    offsets.append(position)
    return pa.array(offsets, pa.int32())


def _arrays(values: Values, convert: Convert) -> pa.Array:
    elements = convert(list(chain.from_iterable([v for v in values if v is not None])))
    return pa.ListArray.from_arrays(_offsets(values), elements)


def _maps(values: Values, keys: Convert, values_of: Convert) -> pa.Array:
    there = [v for v in values if v is not None]
    return pa.MapArray.from_arrays(
        _offsets(values),
        keys(list(chain.from_iterable(there))),
        values_of(list(chain.from_iterable([v.values() for v in there]))),
    )


def _rows(values: Values, converters: list[Convert], target: pa.StructType) -> pa.Array:
    empty = (None,) * len(converters)
    columns = (
        zip(*[empty if v is None else v for v in values], strict=True) if values else [()] * len(converters)
    )
    children = [convert(column) for convert, column in zip(converters, columns, strict=True)]
    mask = pa.array([v is None for v in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
