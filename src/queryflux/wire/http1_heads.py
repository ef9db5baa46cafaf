"""Heads of HTTP messages whose lines have been seen before.

A client sends the same dozen header lines with every request. Each is checked and taken apart once, against
the grammar of RFC 9112, and looked up from then on. Whatever is out of the ordinary (a line that does not
match, a repeated name, the end of the connection, another framing) gives None: it is left to llhttp.

Most heads of a connection differ in their Content-Length at most: a Memo of the last one knows them whole.
"""

import re
from typing import Generic, TypeVar

Pairs = list[tuple[str, str]]
T = TypeVar("T")

_KEPT = 4096
_KEPT_LINE_BYTES = 256
_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)")
_TARGET = re.compile(rb"/[\x21-\x7e]*+")
_METHODS = {method.encode(): method for method in ("GET", "POST", "HEAD", "DELETE")}
_FRAMING = frozenset({"transfer-encoding", "upgrade", "expect", "trailer", "keep-alive", "proxy-connection"})
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "x-trino-extra-credential"})
_MAX_DIGITS = 15
_LENGTH = b"\r\ncontent-length:"

_lines: dict[bytes, tuple[str, str]] = {}


def _learn(line: bytes) -> tuple[str, str] | None:
    """Name and value of a line that has no say in the framing; a plain length may stand in it."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    name = match[1].decode("latin-1").lower()
    value = match[2].decode("latin-1").rstrip(" \t")
    if name in _FRAMING or (name == "connection" and value.lower() != "keep-alive"):
        return None
    if name == "content-length" and not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
        return None
    if len(line) <= _KEPT_LINE_BYTES and name not in _SECRET:
        if len(_lines) >= _KEPT:
            _lines.clear()
        _lines[line] = (name, value)
    return name, value


def _pairs(lines: list[bytes]) -> Pairs | None:
    known = _lines
    try:
        return [known[line] for line in lines]
    except KeyError:
        pairs: Pairs = []
        for line in lines:
            pair = known.get(line) or _learn(line)
            if pair is None:
                return None
            pairs.append(pair)
        return pairs


class Memo(Generic[T]):
    """A head with its empty line, the digits of its Content-Length cut out, and what was found in it."""

    __slots__ = ("_after", "_before", "_last", "_last_length", "found")

    def __init__(self, head: bytes, found: T) -> None:
        """``head`` has passed ``request_head`` or ``response_head``, and tells a length."""
        start = head.lower().index(_LENGTH) + len(_LENGTH)
        while head[start : start + 1] in (b" ", b"\t"):
            start += 1
        self._before = head[:start]
        stop = head.index(b"\r\n", start)
        self._after = head[stop:]
        self._last, self._last_length = head[:-4], int(head[start:stop])
        self.found = found

    def match(self, data: bytes) -> tuple[int, int] | None:
        """If ``data`` begins with the same head: where that ends, and the length it tells."""
        before = self._before
        if not data.startswith(before):
            return None
        start = len(before)
        stop = data.find(b"\r", start, start + _MAX_DIGITS + 1)
        digits = data[start:stop]
        if stop < 0 or not digits.isdigit() or not data.startswith(self._after, stop):
            return None
        return stop + len(self._after), int(digits)

    def body(self, data: bytes) -> bytes | None:
        """The body, if ``data`` is one whole message with the same head and nothing behind it."""
        head, found, body = data.partition(b"\r\n\r\n")
        if head != self._last or not found:
            known = self.match(data)
            if known is None:
                return None
            self._last, self._last_length = head, known[1]
        return body if len(body) == self._last_length else None


def request_head(head: bytes) -> tuple[str, str, dict[str, str], int | None] | None:
    """Method, target, headers without Content-Length, and that. ``head`` is without the empty line at its
    end."""
    lines = head.split(b"\r\n")
    first = lines.pop(0).split(b" ")
    if len(first) != 3 or first[2] != b"HTTP/1.1":
        return None
    method = _METHODS.get(first[0])
    if method is None or _TARGET.fullmatch(first[1]) is None:
        return None
    pairs = _pairs(lines)
    if pairs is None:
        return None
    headers = dict(pairs)
    if len(headers) != len(pairs):
        return None
    length = headers.pop("content-length", None)
    return method, first[1].decode("latin-1"), headers, None if length is None else int(length)


def response_head(head: bytes) -> tuple[int, Pairs, dict[str, str], int] | None:
    """Status, headers as they came and by name, both without Content-Length, and that, of a response that
    has a body of known length."""
    lines = head.split(b"\r\n")
    first = lines.pop(0)
    status = first[9:12]
    if first[:9] != b"HTTP/1.1 " or first[12:13] not in (b" ", b"") or not status.isdigit():
        return None
    pairs = _pairs(lines)
    if pairs is None or status < b"200" or status in (b"204", b"304"):
        return None
    headers = dict(pairs)
    length = headers.pop("content-length", None)
    if length is None or len(headers) != len(pairs) - 1:
        return None
    return int(status), [pair for pair in pairs if pair[0] != "content-length"], headers, int(length)
