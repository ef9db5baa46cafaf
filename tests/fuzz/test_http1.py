"""Any bytes parse or raise ProtocolViolation; nothing else, and what is kept stays bounded."""

import contextlib
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.http1 import RequestParser, ResponseParser, gunzip, gzip

PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"GET / HTTP/1.1\r\n",
            b"POST /v1/statement HTTP/1.1\r\n",
            b"HEAD * HTTP/1.0\r\n",
            b"CONNECT a:1 HTTP/1.1\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n",
            b"HTTP/1.1 204 No Content\r\n",
            b"HTTP/1.1 101 Switching\r\n",
            b"Content-Length: 3\r\n",
            b"Content-Length: 18446744073709551616\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Expect: 100-continue\r\n",
            b"Connection: upgrade\r\n",
            b"Upgrade: h2c\r\n",
            b"Host: a\r\n",
            b"X: \xff\r\n",
            b"\r\n",
            b"abc",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"fffffffffffffffff\r\n",
        ]
    ),
)


@given(st.lists(PIECES, max_size=30), st.integers(1, 64))
@settings(max_examples=300, deadline=None)
def test_requests(pieces: list[bytes], limit: int) -> None:
    parser = RequestParser(limit, max_header_bytes=200)
    try:
        for piece in pieces:
            parser.feed(piece)
    except ProtocolViolation:
        pass
    for request in parser.requests:
        assert len(request.body) <= limit
        assert sum(len(name) + len(value) for name, value in request.headers.items()) <= 200


@given(st.lists(PIECES, max_size=30), st.integers(1, 64), st.sampled_from(["GET", "HEAD"]))
@settings(max_examples=300, deadline=None)
def test_responses(pieces: list[bytes], limit: int, method: str) -> None:
    parser = ResponseParser(limit, max_header_bytes=200)
    try:
        for piece in pieces:
            parser.expect(method)
            response = parser.feed(piece)
            assert response is None or len(response.body) <= limit
        parser.eof()
    except ProtocolViolation:
        pass


@given(st.binary(max_size=200), st.integers(0, 100))
@settings(deadline=None)
def test_gzip(data: bytes, limit: int) -> None:
    for body in (data, gzip(data)):
        with contextlib.suppress(ProtocolViolation):
            assert len(gunzip(body, limit)) <= limit


# Plain heads are read without llhttp: the two must agree on everything.

LINES = st.one_of(
    st.sampled_from(
        [
            b"Host: a",
            b"host:a",
            b"Content-Length: 3",
            b"content-length:0",
            b"Content-Length: 03",
            b"Content-Length: +3",
            b"Content-Length: 3 ",
            b"Content-Length:",
            b"Connection: close",
            b"connection: Keep-Alive",
            b"Connection: upgrade",
            b"Upgrade: h2c",
            b"Transfer-Encoding: chunked",
            b"Expect: 100-continue",
            b"X-Trino-User: \tann \t",
            b"X: \xff\xe9",
            b"X : y",
            b": y",
            b"X",
            b" folded",
            b"X: a\nY: b",
            b"X: a\rb",
            b"X: \0",
            b"X: \x7f",
            b"",
        ]
    ),
    st.builds(lambda name, value: name + b": " + value, st.binary(max_size=4), st.binary(max_size=8)),
)
STARTS = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"POST /v1/statement?x=%20 HTTP/1.1",
        b"DELETE /a HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET / HTTP/1.0",
        b"GET / HTTP/2.0",
        b"GET /\xe9 HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"get / HTTP/1.1",
        b"",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 404 Not\x01Found",
        b"HTTP/1.1  200 OK",
    ]
)
HEADS = st.builds(
    lambda start, lines, body: b"\r\n".join([start, *lines]) + b"\r\n\r\n" + body,
    STARTS,
    st.lists(LINES, max_size=5),
    st.sampled_from([b"", b"abc", b"abcd", b"3\r\nabc\r\n0\r\n\r\n"]),
)


def read_requests(data: bytes, cuts: list[int], plain: bool) -> tuple[list[object], bool]:
    parser = RequestParser(1000)
    parser._plain = plain
    failed = False
    try:
        for piece in pieces_of(data, cuts):
            parser.feed(piece)
    except ProtocolViolation:
        failed = True
    found: list[object] = [
        (
            r.method,
            r.target,
            r.headers,
            r.length or 0,
            r.keep_alive,
            r.complete,
            r.body if r.complete else None,
        )
        for r in parser.requests
    ]
    return found, failed


def read_response(data: bytes, cuts: list[int], plain: bool, method: str) -> tuple[object, bool]:
    parser = ResponseParser(1000)
    parser._plain = plain
    parser.expect(method)
    try:
        for piece in pieces_of(data, cuts):
            if (response := parser.feed(piece)) is not None:
                return (response.status, response.pairs, response.keep_alive, response.body), False
    except ProtocolViolation:
        return None, True
    return None, False


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(places) if stop > start]


@given(st.lists(HEADS, min_size=1, max_size=3), st.lists(st.integers(0, 300), max_size=2))
@settings(max_examples=1000, deadline=None)
def test_plain_requests_are_read_as_llhttp_reads_them(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join([*messages, *messages])  # the second time from memory
    assert read_requests(data, cuts, True) == read_requests(data, cuts, False)


@given(HEADS, st.lists(st.integers(0, 100), max_size=2), st.sampled_from(["GET", "HEAD", "POST"]))
@settings(max_examples=1000, deadline=None)
def test_plain_responses_are_read_as_llhttp_reads_them(data: bytes, cuts: list[int], method: str) -> None:
    assert read_response(data, cuts, True, method) == read_response(data, cuts, False, method)
