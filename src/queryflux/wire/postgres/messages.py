"""The server's side of the messages: bytes of the client to messages, and our messages to bytes.

Sans I/O. PostgreSQL manual, "Message Formats". Lengths are checked before anything is kept.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.postgres.constants import Auth, Back, Front
from queryflux.wire.postgres.errors import PostgresError

_LENGTH = struct.Struct("!I")
_SHORT = struct.Struct("!H")

MAX_BOUND_BYTES = 64 * 1024 * 1024
"""Longest Bind or CopyData message."""
SMALL_MESSAGE = 10_000
"""Longest message of the kinds that carry a name or nothing."""

_LONG = frozenset({Front.QUERY, Front.PARSE, Front.BIND, Front.COPY_DATA, Front.FUNCTION_CALL})
_KNOWN = frozenset(value for name, value in vars(Front).items() if not name.startswith("_"))


class Decoder:
    """Cuts the client's bytes into messages.

    A statement, Bind or CopyData over its limit is given as ``(kind, None)`` and its bytes are dropped, so
    that the client can be told and the connection stays usable. Any other bad length, and any unknown type,
    raises ProtocolViolation: there is no finding the next message.
    """

    __slots__ = ("_at", "_chunks", "_data", "_limits", "_missing", "_skip")

    def __init__(self, max_statement_bytes: int, max_bound_bytes: int = MAX_BOUND_BYTES) -> None:
        statement = max_statement_bytes + SMALL_MESSAGE
        bound = max(statement, max_bound_bytes)
        self._limits = {
            Front.QUERY: statement,
            Front.PARSE: statement,
            Front.BIND: bound,
            Front.COPY_DATA: bound,
            Front.FUNCTION_CALL: SMALL_MESSAGE,
        }
        self._data = b""
        self._at = 0
        self._chunks: list[bytes] = []
        self._missing = 0
        self._skip = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they come."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._missing > 0:
            self._chunks.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._missing = 0
        if self._at < len(self._data):
            data = self._data[self._at :] + data
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        """Nothing is left, not even part of a message."""
        return self._at >= len(self._data) and self._missing <= 0 and not self._skip

    def peek(self) -> int | None:
        """The type of the next message, as soon as its first byte is here."""
        return self._data[self._at] if self._at < len(self._data) else None

    def next(self) -> tuple[int, bytes | None] | None:
        """The next whole message as (type, body), or None until more has been fed."""
        at, data = self._at, self._data
        if at >= len(data) or self._missing > 0:
            return None
        kind = data[at]
        if kind not in _KNOWN:
            raise ProtocolViolation(f"invalid frontend message type {kind}")
        if len(data) - at < 5:
            return None
        (length,) = _LENGTH.unpack_from(data, at + 1)
        end = at + 1 + length
        if length < 4 or length > self._limits.get(kind, SMALL_MESSAGE):
            return self._oversized(kind, length, end)
        if end > len(data):
            self._missing = end - len(data)
            self._chunks.append(data[at:])
            self._data, self._at = b"", 0
            return None
        self._at = end
        return kind, data[at + 5 : end]

    def _oversized(self, kind: int, length: int, end: int) -> tuple[int, None]:
        if length < 4 or length > 0x7FFF_FFFF or kind not in _LONG:
            raise ProtocolViolation(f"invalid message length {length} for message type {chr(kind)!r}")
        self._skip = max(0, end - len(self._data))
        self._at = min(end, len(self._data))
        return kind, None


class Reader:
    """Walks one message body. Everything raises ProtocolViolation where the body ends too early."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def _unpack(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._body, self._at)
        except struct.error:
            raise ProtocolViolation("insufficient data left in message") from None
        self._at += layout.size
        return int(value)

    def short(self) -> int:
        """An unsigned 16-bit integer."""
        return self._unpack(_SHORT)

    def word(self) -> int:
        """An unsigned 32-bit integer."""
        return self._unpack(_LENGTH)

    def words(self, count: int) -> tuple[int, ...]:
        """``count`` unsigned 32-bit integers."""
        if not count:
            return ()
        try:
            values = struct.unpack_from(f"!{count}I", self._body, self._at)
        except struct.error:
            raise ProtocolViolation("insufficient data left in message") from None
        self._at += count * 4
        return values

    def string(self) -> str:
        """A zero-terminated UTF-8 string. Raises PostgresError 22021 for other bytes."""
        end = self._body.find(0, self._at)
        if end < 0:
            raise ProtocolViolation("a string in the message is not terminated")
        raw = self._body[self._at : end]
        self._at = end + 1
        return decode(raw)

    def value(self) -> bytes | None:
        """A length-prefixed value; None for NULL."""
        length = self.word()
        if length == 0xFFFF_FFFF:
            return None
        end = self._at + length
        if end > len(self._body):
            raise ProtocolViolation("insufficient data left in message")
        raw = self._body[self._at : end]
        self._at = end
        return raw

    def finish(self) -> None:
        """The body must be used up."""
        if self._at != len(self._body):
            raise ProtocolViolation("invalid message format: bytes are left at its end")


def decode(raw: bytes) -> str:
    """UTF-8 to text. Raises PostgresError 22021 naming the bytes at fault."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        shown = " ".join(f"0x{byte:02x}" for byte in raw[error.start : error.start + 4])
        raise PostgresError(
            f'invalid byte sequence for encoding "UTF8": {shown}',
            "22021",
            hint="send SQL and parameters as UTF-8 (client_encoding UTF8)",
        ) from None


@dataclass(frozen=True, slots=True)
class Parse:
    """A prepared statement to make; an OID of 0 leaves a parameter's type open."""

    name: str
    sql: str
    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """A portal to make of a prepared statement. Formats as sent: none, one for all, or one for each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


def query(body: bytes) -> str:
    """The text of a Query message."""
    end = body.find(0)
    if end < 0:
        raise ProtocolViolation("a string in the message is not terminated")
    if end != len(body) - 1:
        raise ProtocolViolation("invalid message format: bytes are left at its end")
    return decode(body[:end])


def parse(body: bytes) -> Parse:
    """A Parse message."""
    reader = Reader(body)
    name, sql = reader.string(), reader.string()
    oids = reader.words(reader.short())
    reader.finish()
    return Parse(name, sql, oids)


def bind(body: bytes) -> Bind:
    """A Bind message. Raises ProtocolViolation also for a format that is neither text nor binary, or for
    formats that do not match the values."""
    try:
        return _bind(body)
    except (ValueError, struct.error):
        raise ProtocolViolation("insufficient data left in message") from None


def _bind(body: bytes) -> Bind:
    """Walked without a Reader, since one comes with every execution. Raises ValueError and struct.error where
    the body ends too early."""
    at = body.index(0)
    end = body.index(0, at + 1)
    portal, statement = decode(body[:at]), decode(body[at + 1 : end])
    return Bind(portal, statement, *_bound(body, end + 1))


Bound = tuple[tuple[int, ...], tuple[bytes | None, ...], tuple[int, ...]]


def bound(rest: bytes) -> Bound:
    """What follows the names in Bind: formats, values, formats of the result. Raises as ``bind``."""
    try:
        return _bound(rest, 0)
    except struct.error:
        raise ProtocolViolation("insufficient data left in message") from None


def _bound(body: bytes, at: int) -> Bound:
    formats, at = _codes(body, at)
    (count,) = _SHORT.unpack_from(body, at)
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, at)
        at += 4
        if length == 0xFFFF_FFFF:
            values.append(None)
            continue
        end = at + length
        if end > len(body):
            raise ProtocolViolation("insufficient data left in message")
        values.append(body[at:end])
        at = end
    result_formats, at = _codes(body, at)
    if at != len(body):
        raise ProtocolViolation("invalid message format: bytes are left at its end")
    if len(formats) > 1 and len(formats) != count:
        raise ProtocolViolation(f"bind message has {len(formats)} parameter formats but {count} parameters")
    return formats, tuple(values), result_formats


_FEW_CODES = {b"\0\0": (), b"\0\1\0\0": (0,), b"\0\1\0\1": (1,)}


def _codes(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Format codes, and where they end."""
    (count,) = _SHORT.unpack_from(body, at)
    end = at + 2 + 2 * count
    known = _FEW_CODES.get(body[at:end])
    if known is not None:
        return known, end
    codes = struct.unpack_from(f"!{count}H", body, at + 2)
    for code in codes:
        if code > 1:
            raise ProtocolViolation(f"unsupported format code: {code}")
    return codes, end


def target(body: bytes) -> tuple[str, str]:
    """A Describe or Close message: ``S`` or ``P``, and the name."""
    kind = chr(body[0]) if body else ""
    if body.find(0, 1) != len(body) - 1 or not kind:
        raise ProtocolViolation("invalid message format: not a kind and a name")
    if kind not in "SP":
        raise ProtocolViolation(f"invalid message subtype {kind!r}: only S and P name something")
    return kind, decode(body[1:-1])


def execute(body: bytes) -> tuple[str, int]:
    """An Execute message: portal, and the row limit (0: none)."""
    end = body.find(0)
    if end < 0 or len(body) != end + 5:
        raise ProtocolViolation("invalid message format: not a name and a number of rows")
    (limit,) = _LENGTH.unpack_from(body, end + 1)
    return decode(body[:end]), limit if limit <= 0x7FFF_FFFF else 0


# Ours.


def message(kind: int, body: bytes) -> bytes:
    """One message."""
    return b"%c%b%b" % (kind, _LENGTH.pack(len(body) + 4), body)


def zero(text: str) -> bytes:
    """A string as messages hold it; an embedded zero byte would end it early, so it is left out."""
    return text.replace("\0", "").encode("utf-8", "replace") + b"\0"


PARSE_COMPLETE = message(Back.PARSE_COMPLETE, b"")
BIND_COMPLETE = message(Back.BIND_COMPLETE, b"")
CLOSE_COMPLETE = message(Back.CLOSE_COMPLETE, b"")
NO_DATA = message(Back.NO_DATA, b"")
EMPTY_QUERY = message(Back.EMPTY_QUERY, b"")
PORTAL_SUSPENDED = message(Back.PORTAL_SUSPENDED, b"")
READY = {status: message(Back.READY_FOR_QUERY, status.encode()) for status in "ITE"}
AUTHENTICATION_OK = message(Back.AUTHENTICATION, _LENGTH.pack(Auth.OK))
AUTHENTICATION_CLEARTEXT = message(Back.AUTHENTICATION, _LENGTH.pack(Auth.CLEARTEXT_PASSWORD))


def authentication_sasl(mechanisms: Iterable[str]) -> bytes:
    """The SASL mechanisms on offer, the preferred one first."""
    return message(Back.AUTHENTICATION, _LENGTH.pack(Auth.SASL) + b"".join(map(zero, mechanisms)) + b"\0")


def authentication_sasl_continue(data: bytes) -> bytes:
    """A SASL challenge."""
    return message(Back.AUTHENTICATION, _LENGTH.pack(Auth.SASL_CONTINUE) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    """The outcome of SASL, for the client to check."""
    return message(Back.AUTHENTICATION, _LENGTH.pack(Auth.SASL_FINAL) + data)


def sasl_initial(body: bytes) -> tuple[str, bytes]:
    """The client's choice of a mechanism, and its first message."""
    reader = Reader(body)
    mechanism, data = reader.string(), reader.value()
    reader.finish()
    return mechanism, data or b""


def password(body: bytes) -> str:
    """The password of a PasswordMessage."""
    reader = Reader(body)
    text = reader.string()
    reader.finish()
    return text


def parameter_status(name: str, value: str) -> bytes:
    """A setting that the client is told of."""
    return message(Back.PARAMETER_STATUS, zero(name) + zero(value))


def backend_key_data(process: int, key: bytes) -> bytes:
    """What a CancelRequest must show: four bytes of key in protocol 3.0, up to 256 in 3.2."""
    return message(Back.BACKEND_KEY_DATA, _LENGTH.pack(process) + key)


def negotiate_protocol_version(newest: int, unknown: Sequence[str]) -> bytes:
    """The newest minor version that we speak (as the whole version word), and options we do not know."""
    body = _LENGTH.pack(newest) + _LENGTH.pack(len(unknown)) + b"".join(map(zero, unknown))
    return message(Back.NEGOTIATE_PROTOCOL_VERSION, body)


def command_complete(tag: str) -> bytes:
    """The end of one statement."""
    return message(Back.COMMAND_COMPLETE, zero(tag))


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return message(Back.PARAMETER_DESCRIPTION, struct.pack(f"!H{len(oids)}I", len(oids), *oids))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a RowDescription; ``size`` and ``modifier`` as in pg_type.typlen and pg_attribute."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1


FIELD = struct.Struct("!IHIhiH")
"""What a RowDescription has of a column behind its name."""


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """The columns of a result; ``formats`` has one code for each."""
    parts = [_SHORT.pack(len(columns))]
    for column, code in zip(columns, formats, strict=True):
        parts.append(zero(column.name))
        parts.append(FIELD.pack(0, 0, column.oid, column.size, column.modifier, code))
    return message(Back.ROW_DESCRIPTION, b"".join(parts))


def expand(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """Format codes for ``count`` columns: none means text, one is for all. Raises ProtocolViolation."""
    if len(formats) == count:
        return tuple(formats)
    if len(formats) > 1:
        raise ProtocolViolation(
            f"bind message has {len(formats)} result formats but query has {count} columns"
        )
    return (formats[0] if formats else 0,) * count
