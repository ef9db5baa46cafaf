"""HTTP/1.1 (RFC 9110, 9112), both sides, without I/O: feed bytes, take messages, encode messages.

Parsing is llhttp's, in its strict mode, so that a message has one reading only (no Content-Length beside
Transfer-Encoding, no bare line feeds). What this module adds are the limits: a head is refused at
``max_header_bytes`` and a body at ``max_body_bytes``, before either is kept. Plain messages of a connection,
with heads that arrive whole, are read by http1_heads instead; the first that is not hands the connection over
to llhttp for good.
"""

import zlib
from collections import deque
from collections.abc import Iterable

import httptools

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.http1_heads import request_head, response_head

MAX_HEADER_BYTES = 64 * 1024
"""Room for a session and for the prepared statements that Trino clients carry in headers."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

REASONS = {
    200: "OK",
    204: "No Content",
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}

Headers = Iterable[tuple[str, str]]

_COMMON = """
host user-agent accept accept-encoding content-type content-length content-encoding connection date server
authorization transfer-encoding vary x-trino-user x-trino-source x-trino-catalog x-trino-schema
x-trino-session x-trino-time-zone x-trino-language x-trino-client-info x-trino-client-tags
x-trino-client-capabilities x-trino-transaction-id x-trino-prepared-statement x-trino-extra-credential
x-trino-role x-trino-original-user x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-for
"""
_NAMES = {spelling: name for name in _COMMON.split() for spelling in (name.encode(), name.title().encode())}


class HttpViolation(ProtocolViolation):
    """Bytes that are not HTTP/1.1 as we take it. ``status`` is what a server answers before it closes."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Request:
    """One request. Names in ``headers`` are lower case; repeated ones are joined with a comma.

    It is handed out as soon as its head is known: ``body`` counts only once ``complete`` is set.
    """

    __slots__ = ("body", "complete", "expects_continue", "headers", "keep_alive", "method", "target")

    def __init__(self, method: str, target: str, headers: dict[str, str], keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.keep_alive = keep_alive
        self.expects_continue = False
        self.body = b""
        self.complete = False


class Response:
    """One response. ``pairs`` are the headers as they came, names in lower case, repeats kept apart; in
    ``headers`` repeats are joined with a comma."""

    __slots__ = ("body", "headers", "keep_alive", "pairs", "status")

    def __init__(
        self, status: int, pairs: list[tuple[str, str]], headers: dict[str, str], keep_alive: bool
    ) -> None:
        self.status = status
        self.pairs = pairs
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = b""


class _Collector:
    """What both parsers share: the head under its limit, the body under its own."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_head_bytes",
        "_heads",
        "_in_head",
        "_max_body",
        "_max_head",
        "_needed",
        "_pairs",
        "_plain",
        "_unfinished",
        "_violation",
    )

    def __init__(self, max_header_bytes: int, max_body_bytes: int) -> None:
        self._max_head = max_header_bytes
        self._max_body = max_body_bytes
        self._violation: HttpViolation | None = None
        self._pairs: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._heads = 0
        self._unfinished = 0
        self._in_head = True
        self._plain = True
        """llhttp has not been fed yet."""
        self._needed = 0
        """Bytes that a plain message's body lacks."""

    def on_header(self, name: bytes, value: bytes) -> None:
        # Also called for trailers, which count against the same limit and are dropped.
        self._head_bytes = total = self._head_bytes + len(name) + len(value) + 4
        if total > self._max_head:
            self._count_head(0)
        if self._in_head:
            known = _NAMES.get(name) or name.decode("latin-1").lower()
            self._pairs.append((known, value.decode("latin-1").strip(" \t")))

    def on_body(self, part: bytes) -> None:
        self._body_bytes += len(part)
        if self._body_bytes > self._max_body:
            raise self._too_large()
        self._body.append(part)

    def _count_head(self, amount: int) -> None:
        self._head_bytes += amount
        if self._head_bytes > self._max_head:
            raise self._fail(f"the headers are larger than {self._max_head} bytes", 431)

    def _fail(self, message: str, status: int = 400) -> HttpViolation:
        if self._violation is None:
            self._violation = HttpViolation(message, status)
        return self._violation

    def _take_head(self) -> tuple[list[tuple[str, str]], dict[str, str]]:
        pairs, self._pairs = self._pairs, []
        self._heads += 1
        self._unfinished = 0
        self._in_head = False
        headers = dict(pairs)
        if len(headers) != len(pairs):
            headers = _joined(pairs)
        return pairs, headers

    def _take_body(self) -> bytes:
        parts, self._body = self._body, []
        self._body_bytes = 0
        self._head_bytes = 0
        self._in_head = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> HttpViolation:
        return self._fail(f"the body is larger than {self._max_body} bytes", 413)

    def _take_part(self, data: bytes) -> bytes:
        """What belongs to the body of a plain message; gives the rest."""
        part = data[: self._needed]
        self._needed -= len(part)
        self._body.append(part)
        return data[len(part) :]

    def _run(self, parser: "httptools.HttpRequestParser | httptools.HttpResponseParser", data: bytes) -> None:
        """Feed llhttp; whatever it or a callback of ours complains about becomes one HttpViolation."""
        heads, was_in_head = self._heads, self._in_head
        while True:
            try:
                parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # An offer may be ignored (RFC 9110, 7.8): what follows it is HTTP/1.1 still.
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                raise self._fail(f"not HTTP/1.1: {error}") from None
        if was_in_head and self._in_head and heads == self._heads:
            # llhttp keeps an unfinished line: count what it was fed, not only the headers it gave out.
            self._unfinished += len(data)
            if self._unfinished > self._max_head:
                raise self._fail(f"the headers are larger than {self._max_head} bytes", 431)


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in pairs:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class RequestParser(_Collector):
    """The server's side. Requests appear in ``requests`` in the order they came, each as soon as its head is
    known; only the last one may lack its body. ``feed`` raises HttpViolation, and again when fed afterwards;
    what is in ``requests`` stays there."""

    __slots__ = ("_current", "_parser", "_target", "requests")

    def __init__(self, max_body_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        super().__init__(max_header_bytes, max_body_bytes)
        self.requests: deque[Request] = deque()
        self._target = b""
        self._current: Request | None = None
        self._parser = httptools.HttpRequestParser(self)

    @property
    def idle(self) -> bool:
        """Nothing of a further request has arrived."""
        return self._in_head and self._unfinished == 0 and not self._target

    def feed(self, data: bytes) -> None:
        """Take what arrived. Raises HttpViolation."""
        if self._violation is not None:
            raise self._violation
        while self._plain and data:
            data = self._take_part(data) if self._needed else self._take_plain(data)
            if not self._needed and not self._in_head:
                self.on_message_complete()
        if data:
            self._run(self._parser, data)

    def _take_plain(self, data: bytes) -> bytes:
        """A message that can be read here; gives what follows its head, or all of it for llhttp."""
        end = data.find(b"\r\n\r\n", 0, self._max_head)
        head = request_head(data[:end]) if end > 0 else None
        if head is None:
            self._plain = False
            return data
        method, target, headers, self._needed = head
        self._current = Request(method, target, headers, True)
        self._in_head = False
        self.requests.append(self._current)
        if self._needed > self._max_body:
            raise self._too_large()
        return data[end + 4 :]

    def on_url(self, part: bytes) -> None:
        self._count_head(len(part))
        self._target += part

    def on_headers_complete(self) -> None:
        pairs, headers = self._take_head()
        parser = self._parser
        target, self._target = self._target.decode("latin-1"), b""
        request = Request(parser.get_method().decode(), target, headers, parser.should_keep_alive())
        self._current = request
        self.requests.append(request)
        length = headers.get("content-length")
        if length is not None and int(length) > self._max_body:
            raise self._too_large()
        if len(headers) != len(pairs) and sum(1 for name, _ in pairs if name == "host") > 1:
            raise self._fail("more than one Host header")
        if "upgrade" in headers and (length is not None or "transfer-encoding" in headers):
            raise self._fail("a request with a body cannot change the protocol; leave Upgrade out", 501)
        if "expect" in headers:
            request.expects_continue = headers["expect"].lower() == "100-continue"

    def on_message_complete(self) -> None:
        request, self._current = self._current, None
        assert request is not None
        request.body = self._take_body()
        request.complete = True


class ResponseParser(_Collector):
    """The client's side of one connection, one request at a time.

    ``expect(method)`` before each request, then ``feed`` until it gives the response; ``eof`` when the peer
    closes. Interim 1xx responses are swallowed.
    """

    __slots__ = ("_current", "_delimited", "_done", "_method", "_parser")

    def __init__(self, max_body_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        super().__init__(max_header_bytes, max_body_bytes)
        self._method = ""
        self._current: Response | None = None
        self._done: Response | None = None
        self._delimited = True
        self._parser = httptools.HttpResponseParser(self)

    def expect(self, method: str) -> None:
        """A request of ``method`` goes out: HEAD has no body in its response, whatever the headers say."""
        self._method = method

    def feed(self, data: bytes) -> Response | None:
        """Take what arrived; the response once it is whole. Raises HttpViolation, also for bytes that nobody
        asked for."""
        if self._violation is not None:
            raise self._violation
        if data and not self._method:
            raise self._fail("the server sent something that was not asked for")
        if not data:
            return None
        if self._plain and not self._needed:
            data = self._take_plain(data)
        if self._plain:
            if len(data) > self._needed:
                raise self._fail("the server sent something that was not asked for")
            self._take_part(data)
            if not self._needed:
                self.on_message_complete()
        else:
            self._run(self._parser, data)
        return self._deliver()

    def _take_plain(self, data: bytes) -> bytes:
        """A response that can be read here; gives what follows its head, or all of it for llhttp."""
        end = data.find(b"\r\n\r\n", 0, self._max_head)
        head = response_head(data[:end]) if end > 0 and self._method != "HEAD" else None
        if head is None:
            self._plain = False
            return data
        status, pairs, headers, self._needed = head
        self._current = Response(status, pairs, headers, True)
        self._delimited = True
        self._in_head = False
        if self._needed > self._max_body:
            raise self._too_large()
        return data[end + 4 :]

    def eof(self) -> Response | None:
        """The peer closed: the response if its end was to be told that way, None if nothing had begun.
        Raises HttpViolation when it was cut short."""
        if self._violation is not None:
            raise self._violation
        if self._current is not None and not self._delimited:
            self._current.body = self._take_body()
            self._done, self._current = self._current, None
            return self._deliver()
        if self._current is not None or self._unfinished:
            raise self._fail("the server closed the connection in the middle of a response")
        return None

    def _deliver(self) -> Response | None:
        done, self._done = self._done, None
        if done is not None:
            self._method = ""
        return done

    def on_headers_complete(self) -> None:
        pairs, headers = self._take_head()
        parser = self._parser
        status = parser.get_status_code()
        if self._done is not None or status == 101:
            raise self._fail("the server sent something that was not asked for")
        self._current = Response(status, pairs, headers, parser.should_keep_alive())
        self._delimited = "content-length" in headers or "transfer-encoding" in headers
        length = headers.get("content-length")
        if self._method == "HEAD" and status >= 200:
            self._current.keep_alive = self._current.keep_alive and self._delimited
            self._done, self._current = self._current, None
            # llhttp would wait for the body that Content-Length announces: begin afresh.
            self._parser = httptools.HttpResponseParser(self)
            self._in_head = True
        elif length is not None and int(length) > self._max_body:
            raise self._too_large()

    def on_body(self, part: bytes) -> None:
        if self._current is None:
            raise self._fail("the server sent a body where there is none")
        super().on_body(part)

    def on_message_complete(self) -> None:
        body = self._take_body()
        response, self._current = self._current, None
        if response is not None and response.status >= 200:
            response.body = body
            self._done = response


def _head(first: str, headers: Headers) -> list[str]:
    lines = [first]
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ProtocolViolation(f"the value of header {name} holds a line break or NUL")
        lines.append(f"{name}: {value}\r\n")
    return lines


def encode_request(method: str, target: str, headers: Headers, body: bytes | None = None) -> bytes:
    """A request with its body. ``headers`` must hold Host. Raises ProtocolViolation for values that would
    break out of their header."""
    if any(byte <= " " or byte == "\x7f" for byte in target):
        raise ProtocolViolation("the request target holds a space or a control character")
    lines = _head(f"{method} {target} HTTP/1.1\r\n", headers)
    if body is None:
        lines.append("\r\n")
        return "".join(lines).encode("latin-1", "replace")
    lines.append(f"Content-Length: {len(body)}\r\n\r\n")
    return "".join(lines).encode("latin-1", "replace") + body


def encode_response(
    status: int, headers: Headers, body: bytes = b"", *, keep_alive: bool = True, head_only: bool = False
) -> bytes:
    """A response with its body; ``head_only`` answers HEAD: the length is told, the body is not sent."""
    lines = _head(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n", headers)
    if not keep_alive:
        lines.append("Connection: close\r\n")
    lines.append("\r\n" if status == 204 else f"Content-Length: {len(body)}\r\n\r\n")
    head = "".join(lines).encode("latin-1", "replace")
    return head if head_only else head + body


def encode_chunked_head(status: int, headers: Headers, *, keep_alive: bool = True) -> bytes:
    """The head of a response whose body follows in ``encode_chunk`` and ends with LAST_CHUNK."""
    lines = _head(f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n", headers)
    lines.append(
        "Transfer-Encoding: chunked\r\n\r\n"
        if keep_alive
        else "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return "".join(lines).encode("latin-1", "replace")


def encode_chunk(data: bytes) -> bytes:
    """One chunk; empty data gives nothing, since an empty chunk would be the last one."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() in {"gzip", "x-gzip", "*"}:
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def gzip(body: bytes, level: int = 1) -> bytes:
    """``body`` in gzip form. Releases the GIL: call it in a thread when the body is large."""
    packer = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


def gunzip(body: bytes, max_bytes: int) -> bytes:
    """The bytes of one gzip member. Raises HttpViolation: it is broken, or unpacks to over ``max_bytes``."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        data = unpacker.decompress(body, max_bytes + 1)
        if len(data) > max_bytes:
            raise HttpViolation(f"the body unpacks to more than {max_bytes} bytes", 413)
        if not unpacker.eof:
            raise HttpViolation("the gzip body is cut short")
    except zlib.error as error:
        raise HttpViolation(f"the gzip body is broken: {error}") from None
    return data
