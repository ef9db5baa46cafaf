"""HTTP/1.1 (RFC 9110, 9112), both sides, without I/O: feed bytes, take messages, encode messages.

Parsing is llhttp's, in its strict mode, so that a message has one reading only (no Content-Length beside
Transfer-Encoding, no bare line feeds). What this module adds are the limits: a head is refused at
``max_header_bytes`` and a body at ``max_body_bytes``, before either is kept. Plain messages of a connection,
with heads that arrive whole, are read by http1_heads instead; the first that is not hands the connection over
to llhttp for good.
"""

from collections import deque

import httptools

from queryflux.wire.http1_encode import (
    CONTINUE,
    LAST_CHUNK,
    REASONS,
    Headers,
    HttpViolation,
    accepts_gzip,
    encode_chunk,
    encode_chunked_head,
    encode_request,
    encode_response,
    gunzip,
    gzip,
    unpack,
)
from queryflux.wire.http1_heads import Memo, request_head, response_head
from queryflux.wire.http1_messages import Request, Response

__all__ = [
    "CONTINUE",
    "LAST_CHUNK",
    "MAX_HEADER_BYTES",
    "REASONS",
    "Headers",
    "HttpViolation",
    "Request",
    "RequestParser",
    "Response",
    "ResponseParser",
    "accepts_gzip",
    "encode_chunk",
    "encode_chunked_head",
    "encode_request",
    "encode_response",
    "gunzip",
    "gzip",
    "unpack",
]

MAX_HEADER_BYTES = 64 * 1024
"""Room for a session and for the prepared statements that Trino clients carry in headers."""

_COMMON = """
host user-agent accept accept-encoding content-type content-length content-encoding connection date server
authorization transfer-encoding vary x-trino-user x-trino-source x-trino-catalog x-trino-schema
x-trino-session x-trino-time-zone x-trino-language x-trino-client-info x-trino-client-tags
x-trino-client-capabilities x-trino-transaction-id x-trino-prepared-statement x-trino-extra-credential
x-trino-role x-trino-original-user x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-for
"""
_NAMES = {spelling: name for name in _COMMON.split() for spelling in (name.encode(), name.title().encode())}


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

    def _take_head(self) -> tuple[list[tuple[str, str]], dict[str, str], int | None]:
        pairs, self._pairs = self._pairs, []
        self._heads += 1
        self._unfinished = 0
        self._in_head = False
        headers = dict(pairs)
        if len(headers) != len(pairs):
            headers = _joined(pairs)
        length = headers.pop("content-length", None)
        if length is None:
            return pairs, headers, None
        return [pair for pair in pairs if pair[0] != "content-length"], headers, int(length)

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

    __slots__ = ("_current", "_memo", "_parser", "_target", "requests")

    def __init__(self, max_body_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        super().__init__(max_header_bytes, max_body_bytes)
        self.requests: deque[Request] = deque()
        self._target = b""
        self._memo: Memo[tuple[str, str, dict[str, str]]] | None = None
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

    def again(self, data: bytes, headers: dict[str, str]) -> bytes | None:
        """The body, if ``data`` is one whole request with the head of an earlier one, whose headers are
        ``headers``, and nothing else is under way: it then needs no ``feed``. None: feed it."""
        memo = self._memo
        if memo is None or memo.found[2] is not headers or not (self._plain and self._in_head):
            return None
        body = memo.body(data)
        return body if body is not None and len(body) <= self._max_body else None

    def _take_plain(self, data: bytes) -> bytes:
        """A message that can be read here; gives what follows it, or all of it for llhttp."""
        known = self._memo.match(data) if self._memo is not None else None
        if known is not None:
            assert self._memo is not None
            method, target, headers = self._memo.found
            start, length = known
        else:
            end = data.find(b"\r\n\r\n", 0, self._max_head)
            head = request_head(data[:end]) if end > 0 else None
            if head is None:
                self._plain = False
                return data
            method, target, headers, told = head
            start, length = end + 4, told or 0
            if told is not None:
                self._memo = Memo(data[:start], head[:3])
        request = Request(method, target, headers, length, True)
        self.requests.append(request)
        if length > self._max_body:
            raise self._too_large()
        stop = start + length
        if len(data) >= stop:
            request.body = data[start:stop]
            request.complete = True
            return data[stop:]
        self._current = request
        self._in_head = False
        self._needed = length
        return data[start:]

    def on_url(self, part: bytes) -> None:
        self._count_head(len(part))
        self._target += part

    def on_headers_complete(self) -> None:
        pairs, headers, length = self._take_head()
        parser = self._parser
        target, self._target = self._target.decode("latin-1"), b""
        request = Request(parser.get_method().decode(), target, headers, length, parser.should_keep_alive())
        self._current = request
        self.requests.append(request)
        if length is not None and length > self._max_body:
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

    __slots__ = ("_current", "_delimited", "_done", "_memo", "_method", "_parser")

    def __init__(self, max_body_bytes: int, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        super().__init__(max_header_bytes, max_body_bytes)
        self._method = ""
        self._memo: Memo[tuple[int, list[tuple[str, str]], dict[str, str]]] | None = None
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
        if not self._plain:
            self._run(self._parser, data)
            return self._deliver()
        if len(data) > self._needed:
            raise self._fail("the server sent something that was not asked for")
        if self._needed:
            self._take_part(data)
        if not self._needed and not self._in_head:
            self.on_message_complete()
        return self._deliver()

    def again(self, data: bytes, pairs: list[tuple[str, str]] | None) -> bytes | None:
        """The body, if ``data`` is the whole response that is expected and has the head of an earlier one,
        whose headers are ``pairs``: it then needs no ``feed``. None: feed it."""
        memo = self._memo
        if memo is None or memo.found[1] is not pairs or self._needed or not self._plain:
            return None
        if self._method in ("", "HEAD"):
            return None
        body = memo.body(data)
        if body is None or len(body) > self._max_body:
            return None
        self._method = ""
        return body

    def _take_plain(self, data: bytes) -> bytes:
        """A response that can be read here; gives what follows its head, or all of it for llhttp."""
        known = self._memo.match(data) if self._memo is not None and self._method != "HEAD" else None
        if known is not None:
            assert self._memo is not None
            status, pairs, headers = self._memo.found
            start, length = known
        else:
            end = data.find(b"\r\n\r\n", 0, self._max_head)
            head = response_head(data[:end]) if end > 0 and self._method != "HEAD" else None
            if head is None:
                self._plain = False
                return data
            status, pairs, headers, length = head
            start = end + 4
            self._memo = Memo(data[:start], head[:3])
        response = Response(status, pairs, headers, True)
        if length > self._max_body:
            raise self._too_large()
        if len(data) == start + length:
            response.body = data[start:]
            self._done = response
            return b""
        self._current = response
        self._delimited = True
        self._in_head = False
        self._needed = length
        return data[start:]

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
        pairs, headers, length = self._take_head()
        parser = self._parser
        status = parser.get_status_code()
        if self._done is not None or status == 101:
            raise self._fail("the server sent something that was not asked for")
        self._current = Response(status, pairs, headers, parser.should_keep_alive())
        self._delimited = length is not None or "transfer-encoding" in headers
        if self._method == "HEAD" and status >= 200:
            self._current.keep_alive = self._current.keep_alive and self._delimited
            self._done, self._current = self._current, None
            # llhttp would wait for the body that Content-Length announces: begin afresh.
            self._parser = httptools.HttpResponseParser(self)
            self._in_head = True
        elif length is not None and length > self._max_body:
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
