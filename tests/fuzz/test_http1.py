"""Any bytes parse or raise ProtocolViolation; nothing else, and what is kept stays bounded."""

import contextlib

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
