"""Type names and OIDs, and the values that clients bind, in text or binary, as Python values.

Formats: the manual's chapter on data types for text, the ``*_recv`` functions of the server for binary.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any, overload
from uuid import UUID

from queryflux.model.statement import Parameter
from queryflux.wire.postgres.constants import ARRAY_OF, BINARY_FORMAT, Oid
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.messages import bound, decode

NAMES: dict[int, str] = {
    Oid.BOOL: "boolean",
    Oid.BYTEA: "bytea",
    Oid.CHAR: '"char"',
    Oid.NAME: "name",
    Oid.INT8: "bigint",
    Oid.INT2: "smallint",
    Oid.INT4: "integer",
    Oid.TEXT: "text",
    Oid.OID: "oid",
    Oid.JSON: "json",
    Oid.XML: "xml",
    Oid.FLOAT4: "real",
    Oid.FLOAT8: "double precision",
    Oid.UNKNOWN: "",
    Oid.MONEY: "money",
    Oid.INET: "inet",
    Oid.CIDR: "cidr",
    Oid.BPCHAR: "character",
    Oid.VARCHAR: "character varying",
    Oid.DATE: "date",
    Oid.TIME: "time without time zone",
    Oid.TIMESTAMP: "timestamp without time zone",
    Oid.TIMESTAMPTZ: "timestamp with time zone",
    Oid.INTERVAL: "interval",
    Oid.TIMETZ: "time with time zone",
    Oid.BIT: "bit",
    Oid.VARBIT: "bit varying",
    Oid.NUMERIC: "numeric",
    Oid.REGCLASS: "regclass",
    Oid.REGTYPE: "regtype",
    Oid.UUID: "uuid",
    Oid.JSONB: "jsonb",
}
ELEMENT_OF = {array: element for element, array in ARRAY_OF.items()}
_ALIASES = {
    "bool": Oid.BOOL,
    "int2": Oid.INT2,
    "int4": Oid.INT4,
    "int": Oid.INT4,
    "int8": Oid.INT8,
    "float4": Oid.FLOAT4,
    "float8": Oid.FLOAT8,
    "float": Oid.FLOAT8,
    "decimal": Oid.NUMERIC,
    "varchar": Oid.VARCHAR,
    "char": Oid.BPCHAR,
    "bpchar": Oid.BPCHAR,
    "string": Oid.TEXT,
    "time": Oid.TIME,
    "timetz": Oid.TIMETZ,
    "timestamp": Oid.TIMESTAMP,
    "timestamptz": Oid.TIMESTAMPTZ,
}
_BY_NAME = {name: oid for oid, name in NAMES.items() if name} | _ALIASES


def oid_of(type_name: str) -> int:
    """The OID of a type in PostgreSQL's spelling, modifiers aside; ``text`` for one that is not known."""
    name = type_name.strip().lower()
    if name.endswith("[]"):
        return ARRAY_OF.get(oid_of(name[:-2]), Oid.TEXT_ARRAY)
    head, parenthesis, tail = name.partition("(")
    if parenthesis:
        name = f"{head.rstrip()}{tail.partition(')')[2]}"
    return _BY_NAME.get(name, Oid.TEXT)


def name_of(oid: int) -> str:
    """PostgreSQL's spelling of a type; empty for one that is not known."""
    if oid in ELEMENT_OF:
        return f"{NAMES.get(ELEMENT_OF[oid], '')}[]"
    return NAMES.get(oid, "")


def short_name(oid: int) -> str:
    """The name in pg_type (``int4``, ``_int4``); empty for one that is not known."""
    element = ELEMENT_OF.get(oid)
    if element is not None:
        return f"_{short_name(element)}"
    return next((name for name, known in _ALIASES.items() if known == oid), NAMES.get(oid, ""))


class BoundParameters(Sequence[Parameter]):
    """The values of a Bind message, decoded when somebody first looks at one: a relay never does.

    Decoding raises PostgresError (22P02, 22P03, 22021) for a value that its type does not allow.
    """

    __slots__ = ("_decoded", "_formats", "_oids", "_values")

    def __init__(self, values: Sequence[bytes | None], formats: Sequence[int], oids: Sequence[int]) -> None:
        """``formats`` as in Bind: none, one for all, or one for each. ``oids`` may be shorter than
        ``values``."""
        self._values = values
        self._formats = formats
        self._oids = oids
        self._decoded: tuple[Parameter, ...] | None = None

    def _all(self) -> tuple[Parameter, ...]:
        if self._decoded is None:
            self._decoded = tuple(self._one(index) for index in range(len(self._values)))
        return self._decoded

    def _one(self, index: int) -> Parameter:
        formats = self._formats
        code = (formats[index] if len(formats) > 1 else formats[0]) if formats else 0
        oid = self._oids[index] if index < len(self._oids) else 0
        raw = self._values[index]
        name = name_of(oid)
        if raw is None:
            return Parameter(None, name)
        try:
            value = _binary(raw, oid) if code == BINARY_FORMAT else _text(decode(raw), oid)
        except (ValueError, InvalidOperation, struct.error, OverflowError, IndexError):
            shown = name or "unknown"
            state = "22P03" if code == BINARY_FORMAT else "22P02"
            raise PostgresError(f"invalid value for parameter ${index + 1} of type {shown}", state) from None
        return Parameter(value, name)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Parameter: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Parameter, ...]: ...
    def __getitem__(self, index: int | slice) -> Parameter | tuple[Parameter, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._all())


class UnreadParameters(BoundParameters):
    """The same of a Bind that was not taken apart. Raises ProtocolViolation too, where it is damaged."""

    __slots__ = ("_rest", "_types")

    def __init__(self, rest: bytes, types: Callable[[], Sequence[int]]) -> None:
        """``rest``: what follows the names in Bind. ``types`` gives the OIDs."""
        self._rest = rest
        self._types = types
        self._decoded = None

    def __bool__(self) -> bool:
        at = 2 + 2 * int.from_bytes(self._rest[:2])
        return self._rest[at : at + 2] != b"\0\0"

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> tuple[Parameter, ...]:
        if self._decoded is None:
            formats, values, _ = bound(self._rest)
            super().__init__(values, formats, self._types())
        return super()._all()


# Text.


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word and ("true".startswith(word) or "yes".startswith(word) or word in ("on", "1")):
        return True
    if word and ("false".startswith(word) or "no".startswith(word) or word in ("of", "off", "0")):
        return False
    raise ValueError(text)


def _bytea(text: str) -> bytes:
    if text.startswith("\\x"):
        return bytes.fromhex(text[2:])
    parts = text.encode("latin-1").split(b"\\\\")
    return b"\\".join(_octal(part) for part in parts)


def _octal(part: bytes) -> bytes:
    head, *escapes = part.split(b"\\")
    return head + b"".join(bytes([int(piece[:3], 8)]) + piece[3:] for piece in escapes)


def _moment(text: str, kind: Callable[[str], Any]) -> Any:
    """A date or time in ISO form as a value; other spellings stay text, for the engine to read."""
    try:
        return kind(text.strip())
    except ValueError:
        return text


_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T][0-9:.]+)?(?: ?[+-][0-9:]+)?")


def _day(text: str) -> date:
    """A date. The rest of a timestamp, and the zone that JDBC's driver sends along, say nothing here."""
    found = _DAY.fullmatch(text)
    return date.fromisoformat(text if found is None else found[1])


def _zoneless(text: str) -> datetime:
    """A timestamp without a zone: one that is there is not looked at."""
    return datetime.fromisoformat(text).replace(tzinfo=None)


_TEXT: dict[int, Callable[[str], Any]] = {
    Oid.BOOL: _bool,
    Oid.INT2: int,
    Oid.INT4: int,
    Oid.INT8: int,
    Oid.OID: int,
    Oid.FLOAT4: float,
    Oid.FLOAT8: float,
    Oid.NUMERIC: Decimal,
    Oid.BYTEA: _bytea,
    Oid.UUID: UUID,
    Oid.DATE: lambda text: _moment(text, _day),
    Oid.TIME: lambda text: _moment(text, time.fromisoformat),
    Oid.TIMETZ: lambda text: _moment(text, time.fromisoformat),
    Oid.TIMESTAMP: lambda text: _moment(text, _zoneless),
    Oid.TIMESTAMPTZ: lambda text: _moment(text, datetime.fromisoformat),
}


def _text(text: str, oid: int) -> Any:
    element = ELEMENT_OF.get(oid)
    if element is not None:
        return array_literal(text, lambda item: _text(item, element))
    reader = _TEXT.get(oid)
    return text if reader is None else reader(text)


def array_literal(text: str, read: Callable[[str], Any]) -> list[Any]:
    """An array in PostgreSQL's text form (manual, 8.15.6). Raises ValueError. Bounds (``[1:2]={}``) are read
    over."""
    start = text.find("{")
    if start < 0 or (start and not text.startswith("[")):
        raise ValueError(text)
    items, at = _items(text, start + 1, read, 0)
    if text[at:].strip():
        raise ValueError(text)
    return items


MAX_DIMENSIONS = 6


def _items(text: str, at: int, read: Callable[[str], Any], depth: int) -> tuple[list[Any], int]:
    if depth >= MAX_DIMENSIONS:
        raise ValueError("too many dimensions")
    items: list[Any] = []
    while True:
        while text[at].isspace():
            at += 1
        if text[at] == "}" and not items:
            return items, at + 1
        if text[at] == "{":
            item, at = _items(text, at + 1, read, depth + 1)
            items.append(item)
        else:
            word, quoted, at = _item(text, at)
            items.append(None if word.upper() == "NULL" and not quoted else read(word))
        while text[at].isspace():
            at += 1
        if text[at] == "}":
            return items, at + 1
        if text[at] != ",":
            raise ValueError(text)
        at += 1


_ITEM = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>(?:[^"\\,{}]|\\.)+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _item(text: str, at: int) -> tuple[str, bool, int]:
    match = _ITEM.match(text, at)
    if match is None or (match["bare"] is not None and not match["bare"].strip()):
        raise ValueError(text)
    quoted = match["quoted"] is not None
    word = match["quoted"] if quoted else match["bare"].strip()
    return _ESCAPED.sub(r"\1", word), quoted, match.end()


# Binary.

_EPOCH_DATE = date(2000, 1, 1).toordinal()
_EPOCH = datetime(2000, 1, 1)


def _int(layout: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(layout).unpack
    return lambda raw: unpack(raw)[0]


def _numeric(raw: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", raw)
    if sign == 0xC000:
        return Decimal("NaN")
    if sign in (0xD000, 0xF000):
        return Decimal("Infinity" if sign == 0xD000 else "-Infinity")
    if sign not in (0, 0x4000) or len(raw) != 8 + 2 * count:
        raise ValueError("numeric")
    digits = 0
    for group in struct.unpack_from(f"!{count}H", raw, 8):
        digits = digits * 10_000 + group
    # The display scale decides how many zeros follow; groups of four digits may hold more or fewer.
    shift = 4 * (weight - count + 1) + scale
    if shift >= 0:
        digits *= 10**shift
    else:
        digits //= 10**-shift
    return Decimal(f"{'-' if sign else ''}{digits}E{-scale}")


def _days(raw: bytes) -> Any:
    (days,) = struct.unpack("!i", raw)
    if abs(days) == 0x7FFF_FFFF or days == -0x8000_0000:
        return "infinity" if days > 0 else "-infinity"
    return date.fromordinal(_EPOCH_DATE + days)


def _micros(raw: bytes) -> Any:
    (micros,) = struct.unpack("!q", raw)
    if micros in (0x7FFF_FFFF_FFFF_FFFF, -0x8000_0000_0000_0000):
        return "infinity" if micros > 0 else "-infinity"
    return _EPOCH + timedelta(microseconds=micros)


def _micros_utc(raw: bytes) -> Any:
    value = _micros(raw)
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _clock(micros: int) -> time:
    return (datetime.min + timedelta(microseconds=micros)).time()


def _time(raw: bytes) -> time:
    return _clock(struct.unpack("!q", raw)[0])


def _timetz(raw: bytes) -> time:
    micros, west = struct.unpack("!qi", raw)
    return _clock(micros).replace(tzinfo=timezone(timedelta(seconds=-west)))


def _interval(raw: bytes) -> Any:
    micros, days, months = struct.unpack("!qii", raw)
    if not months:
        return timedelta(days=days, microseconds=micros)
    sign, rest = ("-", -micros) if micros < 0 else ("", micros)
    seconds, fraction = divmod(rest, 1_000_000)
    return f"{months} mons {days} days {sign}{seconds}.{fraction:06d} secs"


def _jsonb(raw: bytes) -> str:
    if raw[:1] != b"\1":
        raise ValueError("jsonb")
    return decode(raw[1:])


def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)


_BINARY: dict[int, Callable[[bytes], Any]] = {
    Oid.BOOL: lambda raw: struct.unpack("!?", raw)[0],
    Oid.INT2: _int("!h"),
    Oid.INT4: _int("!i"),
    Oid.INT8: _int("!q"),
    Oid.OID: _int("!I"),
    Oid.FLOAT4: _int("!f"),
    Oid.FLOAT8: _int("!d"),
    Oid.NUMERIC: _numeric,
    Oid.BYTEA: bytes,
    Oid.UUID: _uuid,
    Oid.DATE: _days,
    Oid.TIME: _time,
    Oid.TIMETZ: _timetz,
    Oid.TIMESTAMP: _micros,
    Oid.TIMESTAMPTZ: _micros_utc,
    Oid.INTERVAL: _interval,
    Oid.JSONB: _jsonb,
    **dict.fromkeys(
        (Oid.TEXT, Oid.VARCHAR, Oid.BPCHAR, Oid.NAME, Oid.CHAR, Oid.JSON, Oid.XML, Oid.UNKNOWN), decode
    ),
}


def _binary(raw: bytes, oid: int) -> Any:
    element = ELEMENT_OF.get(oid)
    if element is not None:
        return _binary_array(raw)
    reader = _BINARY.get(oid)
    if reader is None:
        kind = f"type {name_of(oid) or oid}" if oid else "no declared type"
        raise PostgresError(
            f"a binary parameter of {kind} cannot be read",
            "0A000",
            hint="send it as text, or cast the placeholder in the statement: $1::type",
        )
    return reader(raw)


def _binary_array(raw: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack_from("!iiI", raw)
    if not 0 <= dimensions <= MAX_DIMENSIONS:
        raise ValueError("array")
    sizes = [struct.unpack_from("!i", raw, 12 + 8 * index)[0] for index in range(dimensions)]
    at = 12 + 8 * dimensions
    flat: list[Any] = []
    while at < len(raw):
        (length,) = struct.unpack_from("!i", raw, at)
        at += 4
        if length < 0:
            flat.append(None)
            continue
        if at + length > len(raw):
            raise ValueError("array")
        flat.append(_binary(raw[at : at + length], element))
        at += length
    return _nested(flat, sizes)


def _nested(flat: list[Any], sizes: list[int]) -> list[Any]:
    for size in reversed(sizes[1:]):
        if size <= 0 or len(flat) % size:
            raise ValueError("array")
        flat = [flat[at : at + size] for at in range(0, len(flat), size)]
    if len(flat) != (sizes[0] if sizes else 0):
        raise ValueError("array")
    return flat
