"""The client side of PostgreSQL's protocol 3.0, without I/O: encoders, a walker over the server's messages,
and decoders of the few that we look into (manual, "Message Flow" and "Message Formats").

A relay never decodes rows: ``ServerMessages.notable`` steps over them by their lengths alone.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from queryflux.model.errors import InvalidRequest, ProtocolViolation
from queryflux.wire.postgres.constants import (
    CANCEL_REQUEST,
    PROTOCOL_3_0,
    SSL_REQUEST,
    Back,
)

MAX_MESSAGE = (1 << 30) + 1024
"""Longest message taken from a server: PostgreSQL's own limit of a row, and some."""

_uint32 = struct.Struct("!I")
_length_at = _uint32.unpack_from
_header_at = struct.Struct("!BI").unpack_from
_COLUMN = struct.Struct("!IhIhih")

SYNC = b"S\0\0\0\x04"
FLUSH = b"H\0\0\0\x04"
TERMINATE = b"X\0\0\0\x04"
COPY_DONE = b"c\0\0\0\x04"
SSL_REQUEST_MESSAGE = struct.pack("!II", 8, SSL_REQUEST)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + _uint32.pack(len(body) + 4) + body


def terminated(value: bytes) -> bytes:
    """A string of the protocol. Raises InvalidRequest when it holds a NUL character."""
    if b"\0" in value:
        raise InvalidRequest("a statement or a name cannot contain a NUL character")
    return value + b"\0"


def startup(parameters: Iterable[tuple[str, str]]) -> bytes:
    """StartupMessage."""
    pairs = b"".join(terminated(key.encode()) + terminated(value.encode()) for key, value in parameters)
    return struct.pack("!II", len(pairs) + 9, PROTOCOL_3_0) + pairs + b"\0"


def cancel_request(pid: int, key: bytes) -> bytes:
    """CancelRequest, for a connection of its own."""
    return struct.pack("!III", 12 + len(key), CANCEL_REQUEST, pid) + key


def query(sql: bytes) -> bytes:
    """Query. Raises InvalidRequest for a NUL character, as do the others."""
    if b"\0" in sql:
        raise InvalidRequest("a statement or a name cannot contain a NUL character")
    return b"Q%b%b\0" % (_uint32.pack(len(sql) + 5), sql)


def parse(name: bytes, sql: bytes, oids: Sequence[int]) -> bytes:
    """Parse."""
    types = struct.pack(f"!H{len(oids)}I", len(oids), *oids)
    return _message(b"P", terminated(name) + terminated(sql) + types)


_FORMATS: dict[Sequence[int], bytes] = {
    (): b"\0\0",
    (0,): b"\0\1\0\0",
    (1,): b"\0\1\0\1",
}


def _formats(codes: Sequence[int]) -> bytes:
    return _FORMATS.get(codes) or struct.pack(f"!H{len(codes)}h", len(codes), *codes)


def bind(
    portal: bytes,
    statement: bytes,
    formats: Sequence[int],
    values: Sequence[bytes | None],
    result_formats: Sequence[int],
) -> bytes:
    """Bind. Raises InvalidRequest for more than 65535 values."""
    if len(values) > 0xFFFF:
        raise InvalidRequest("a statement takes at most 65535 parameters")
    parts = [b"%b\0%b\0" % (portal, statement), _formats(formats), len(values).to_bytes(2)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            parts.append(len(value).to_bytes(4) + value)
    parts.append(_formats(result_formats))
    return _message(b"B", b"".join(parts))


def describe_statement(name: bytes) -> bytes:
    """Describe of a prepared statement."""
    return _message(b"D", b"S" + name + b"\0")


def describe_portal(name: bytes) -> bytes:
    """Describe of a portal."""
    return _message(b"D", b"P" + name + b"\0")


def execute(portal: bytes, max_rows: int) -> bytes:
    """Execute; 0 rows: all of them."""
    return _message(b"E", portal + b"\0" + _uint32.pack(max_rows))


def close_statement(name: bytes) -> bytes:
    """Close of a prepared statement."""
    return _message(b"C", b"S" + name + b"\0")


def copy_fail(reason: str) -> bytes:
    """CopyFail."""
    return _message(b"f", reason.replace("\0", " ").encode() + b"\0")


def password_message(body: bytes) -> bytes:
    """PasswordMessage and its SASL kin."""
    return _message(b"p", body)


_KNOWN = frozenset(value for name, value in vars(Back).items() if not name.startswith("_"))


class ServerMessages:
    """Walks over the server's messages as their bytes arrive.

    After ``feed``, ``next`` or ``notable`` give the type of one whole message after another and 0 when no
    whole one is left; ``data[start:end]`` is then the message, ``data[start + 5:end]`` its body. The bytes of
    a message that is not whole yet are kept, in pieces, until they are.
    """

    __slots__ = ("_held", "_held_size", "_need", "data", "end", "maximum", "start", "whole")

    def __init__(self, maximum: int = MAX_MESSAGE) -> None:
        self.maximum = maximum
        self.data = b""
        self.start = 0
        self.end = 0
        """Where the message after this one begins."""
        self.whole = 0
        """Where the whole messages seen so far end: rows that were stepped over are before it."""
        self._held: list[bytes] = []
        self._held_size = 0
        self._need = 0

    @property
    def empty(self) -> bool:
        """Nothing is left, not even part of a message."""
        return self.end >= len(self.data) and not self._held

    def feed(self, chunk: bytes) -> None:
        """Take what arrived. Everything whole that was fed before must have been walked."""
        if self.end < len(self.data):
            self._hold(self.end)
        if self._held:
            self._held.append(chunk)
            self._held_size += len(chunk)
            if self._held_size < self._need:
                self.data, self.start, self.end, self.whole = b"", 0, 0, 0
                return
            chunk = b"".join(self._held)
            self._held.clear()
        self.data = chunk
        self.start = self.end = self.whole = 0

    def _hold(self, position: int, need: int = 5) -> None:
        rest = self.data[position:]
        self._held = [rest]
        self._held_size = len(rest)
        self._need = need
        self.end = len(self.data)

    def notable(self) -> int:
        """The type of the next whole message that is neither DataRow nor CopyData.

        Raises ProtocolViolation.
        """
        data, position = self.data, self.end
        size = len(data)
        last = size - 5
        kind: int
        while position <= last:
            kind, length = _header_at(data, position)
            end = position + 1 + length
            if (kind == 68 or kind == 100) and end <= size and length > 3:
                position = end
                continue
            self._check(kind, length)
            self.whole = position
            if end > size:
                self._hold(position, end - position)
                return 0
            self.start = position
            self.end = self.whole = end
            return kind
        self.whole = position
        if position < size:
            self._hold(position)
        else:
            self.end = size
        return 0

    def next(self) -> int:
        """The type of the next whole message. Raises ProtocolViolation."""
        data, position = self.data, self.end
        if position + 5 > len(data):
            self.whole = position
            if position < len(data):
                self._hold(position)
            return 0
        end = position + 1 + _length_at(data, position + 1)[0]
        self._check(data[position], end - position - 1)
        if end > len(data):
            self.whole = position
            self._hold(position, end - position)
            return 0
        self.start = position
        self.end = self.whole = end
        return data[position]

    def _check(self, kind: int, length: int) -> None:
        if kind not in _KNOWN:
            raise ProtocolViolation(f"the server sent a message of the unknown type {kind:#04x}")
        if not 4 <= length <= self.maximum:
            raise ProtocolViolation(f"the server sent a message of the impossible length {length}")

    @property
    def body(self) -> bytes:
        """The body of the message that ``next`` or ``notable`` stopped at."""
        return self.data[self.start + 5 : self.end]


_IDLE = b"Z\0\0\0\5I"
_PARSED = b"1\0\0\0\4"
BOUND = b"2\0\0\0\4"
"""BindComplete."""
LONGEST_TAG = 48
"""Bytes that a CommandComplete with a number of rows, and ReadyForQuery, take at most, and some more."""


def bind_to(statement: bytes, rest: bytes, bound: int) -> bytes:
    """Bind of a prepared statement to the unnamed portal; ``rest`` is what follows the names, of which Bind
    takes ``bound`` bytes, and the messages after it."""
    return b"B%b\0%b\0%b" % (_uint32.pack(bound + len(statement) + 6), statement, rest)


def whole_rows(data: bytes, begin: int) -> int:
    """The number of rows in the tag, when ``data`` from ``begin`` on is all of the answer to one statement
    that went well and left the session idle, and nothing unusual is in it; else -1."""
    if not data.endswith(_IDLE):
        return -1
    last, position = len(data) - 6, begin
    while position < last:
        kind, length = _header_at(data, position)
        position += length + 1
        if kind == 67:
            break
        if kind != 68 and kind != 84 and kind != 110:
            return -1
    else:
        return -1
    if position != last:
        return -1
    word = data[data.rfind(b" ", -LONGEST_TAG) + 1 : -7]
    return int(word) if word.isdigit() else -1


def whole_text_rows(data: bytes) -> int:
    """``whole_rows`` for a Query message of one statement, without stepping over the rows.

    Its values are text and hold no zero byte, so that nothing but CommandComplete and ReadyForQuery looks
    like them at the end, once the row description is known to be whole; what succeeds ends with the two. Of
    what may stand before them nothing concerns us.
    """
    if not data.endswith(_IDLE):
        return -1
    tag = data.rfind(b"C\0\0\0", -LONGEST_TAG)
    if tag < 0 or tag + data[tag + 4] + 7 != len(data):
        return -1
    if tag and (data[0] != 84 or _length_at(data, 1)[0] >= tag):
        return -1
    word = data[data.rfind(b" ", -LONGEST_TAG) + 1 : -7]
    return int(word) if word.isdigit() else -1


def whole_answer(data: bytes) -> tuple[int, int | None] | None:
    """The same for any statement and session: where the client's part begins, and the rows of the tag; that
    part ends six bytes before the end. None: walk it."""
    last = len(data) - 6
    if last < 5 or data[last] != 90 or data[last + 1 : -1] != b"\0\0\0\x05":
        return None
    position = 5 if data.startswith(_PARSED) else 0
    if data.startswith(BOUND, position):
        position += 5
    begin, tag = position, -1
    while position < last:
        kind, length = _header_at(data, position)
        start, position = position, position + length + 1
        if length < 4 or (kind != 67 and kind != 68 and kind != 84 and kind != 110):
            return None
        if kind == 67:
            tag = start
    if tag < 0 or position != last:
        return None
    words = data[data.rfind(b" ", tag, last) + 1 : last - 1]
    return begin, int(words) if words.isdigit() else None


# What we look into.


@dataclass(frozen=True, slots=True)
class ServerError:
    """The fields of an ErrorResponse or NoticeResponse (manual, "Error and Notice Message Fields").

    ``position`` counts characters from 1; 0: none.
    """

    severity: str
    sqlstate: str
    message: str
    detail: str = ""
    hint: str = ""
    position: int = 0

    @property
    def fatal(self) -> bool:
        """The server closes the connection after it."""
        return self.severity in ("FATAL", "PANIC")


def parse_error(body: bytes) -> ServerError:
    """Decode an ErrorResponse or NoticeResponse. Raises ProtocolViolation."""
    if body[-1:] != b"\0":
        raise ProtocolViolation("the server's error message does not end")
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body[:-1].split(b"\0") if part}
    position = fields.get(b"P", "")
    return ServerError(
        severity=fields.get(b"V") or fields.get(b"S", "ERROR"),
        sqlstate=fields.get(b"C", "XX000"),
        message=fields.get(b"M", "the server gave no message"),
        detail=fields.get(b"D", ""),
        hint=fields.get(b"H", ""),
        position=int(position) if position.isascii() and position.isdecimal() and len(position) < 10 else 0,
    )


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a RowDescription."""

    name: str
    type_oid: int
    type_modifier: int


def parse_row_description(body: bytes) -> list[Column]:
    """Decode a RowDescription. Raises ProtocolViolation."""
    columns: list[Column] = []
    try:
        (count,) = struct.unpack_from("!H", body)
        position = 2
        for _ in range(count):
            end = body.index(b"\0", position)
            _, _, oid, _, modifier, _ = _COLUMN.unpack_from(body, end + 1)
            columns.append(Column(body[position:end].decode("utf-8", "replace"), oid, modifier))
            position = end + 1 + _COLUMN.size
    except (struct.error, ValueError):
        raise ProtocolViolation("the server's row description is cut short") from None
    if position != len(body):
        raise ProtocolViolation("the server's row description has bytes to spare")
    return columns


def parse_parameter_description(body: bytes) -> tuple[int, ...]:
    """Type OIDs of a ParameterDescription. Raises ProtocolViolation."""
    if len(body) < 2 or len(body) != 2 + 4 * (count := int.from_bytes(body[:2])):
        raise ProtocolViolation("the server's parameter description has a wrong length")
    return struct.unpack_from(f"!{count}I", body, 2)


def parse_data_row(body: bytes) -> list[bytes | None]:
    """The values of a DataRow. Raises ProtocolViolation."""
    values: list[bytes | None] = []
    try:
        (count,) = struct.unpack_from("!H", body)
        position = 2
        for _ in range(count):
            (length,) = struct.unpack_from("!i", body, position)
            position += 4
            if length < 0:
                values.append(None)
                continue
            values.append(body[position : position + length])
            position += length
    except struct.error:
        raise ProtocolViolation("the server's row is cut short") from None
    if position != len(body):
        raise ProtocolViolation("the server's row has a wrong length")
    return values


def parse_command_tag(tag: bytes) -> tuple[str, int | None]:
    """The words and the number of rows of a CommandComplete: ``INSERT 0 5`` gives INSERT and 5."""
    words = tag.rstrip(b"\0").decode("utf-8", "replace")
    head, _, last = words.rpartition(" ")
    if not (last.isascii() and last.isdecimal() and len(last) < 20):
        return words, None
    return head.removesuffix(" 0") if head.startswith("INSERT") else head, int(last)
