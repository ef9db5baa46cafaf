"""HTTP/1.1 by itself: each sample is fed whole, byte by byte, and with more behind it."""

import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire import http1
from queryflux.wire.http1 import HttpViolation, Request, RequestParser, Response, ResponseParser

POST = (
    b"POST /v1/statement HTTP/1.1\r\nHost: a:8080\r\nX-Trino-USER: me\r\nX-Trino-Session: a=1\r\n"
    b"x-trino-session: b=2\r\nContent-Length: 8\r\n\r\nSELECT 1"
)
CHUNKED = (
    b"POST /v1/statement HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nSEL\r\n5;x=y\r\nECT 1\r\n0\r\nTrailer: x\r\n\r\n"
)
GET = b"GET /v1/info?x=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
OLD = b"GET /v1/info HTTP/1.0\r\nHost: a\r\n\r\n"
UPGRADE = b"GET /v1/info HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"

REQUESTS = {"post": POST, "chunked": CHUNKED, "get": GET, "old": OLD, "upgrade": UPGRADE}


def parse(data: bytes, step: int = 0, limit: int = 1000) -> list[Request]:
    parser = RequestParser(limit)
    for start in range(0, len(data), step or len(data)):
        parser.feed(data[start : start + (step or len(data))])
    return list(parser.requests)


def facts(request: Request) -> tuple[object, ...]:
    return (
        request.method,
        request.target,
        request.headers,
        request.length,
        request.body,
        request.complete,
        request.keep_alive,
        request.expects_continue,
    )


@pytest.mark.parametrize("sample", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_reads_the_same_whole_and_byte_by_byte(sample: bytes) -> None:
    (whole,) = parse(sample)
    (slow,) = parse(sample, 1)
    assert facts(whole) == facts(slow)
    assert whole.complete


@pytest.mark.parametrize("sample", [POST, CHUNKED, UPGRADE])
def test_a_second_request_behind_the_first_is_kept_apart(sample: bytes) -> None:
    first, second = parse(sample + POST)
    assert facts(first) == facts(parse(sample)[0])
    assert facts(second) == facts(parse(POST)[0])


def test_headers_in_any_case_and_repeated() -> None:
    (request,) = parse(POST)
    assert request.headers["x-trino-user"] == "me"
    assert request.headers["x-trino-session"] == "a=1, b=2"
    assert (request.method, request.target, request.body) == ("POST", "/v1/statement", b"SELECT 1")


def test_keep_alive_follows_version_and_header() -> None:
    assert parse(POST)[0].keep_alive
    assert not parse(GET)[0].keep_alive
    assert not parse(OLD)[0].keep_alive


def test_the_head_is_handed_out_before_the_body() -> None:
    parser = RequestParser(100)
    parser.feed(POST[:-8])
    (request,) = parser.requests
    assert (request.complete, request.body) == (False, b"")
    parser.feed(b"SELECT 1")
    assert (request.complete, request.body) == (True, b"SELECT 1")
    assert parser.idle


def test_expect_continue_is_told() -> None:
    parser = RequestParser(100)
    parser.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n")
    assert parser.requests[0].expects_continue
    assert not parser.idle


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, 413),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
        (b"GET /" + b"x" * 70_000, 431),
        (b"\r\n" * 40_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, 431),
        (
            b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx",
            501,
        ),
        (b"HELLO / HTTP/1.1\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("step", [0, 4096])
def test_what_is_not_taken_has_a_status(data: bytes, status: int, step: int) -> None:
    with pytest.raises(HttpViolation) as caught:
        parse(data, step)
    assert caught.value.status == status
    assert isinstance(caught.value, ProtocolViolation)


def test_requests_before_the_violation_stay_and_the_parser_stays_broken() -> None:
    parser = RequestParser(1000)
    with pytest.raises(HttpViolation):
        parser.feed(POST + b"nonsense\r\n\r\n")
    assert [request.complete for request in parser.requests] == [True]
    with pytest.raises(HttpViolation):
        parser.feed(POST)


def test_a_head_over_the_body_limit_is_handed_out_before_its_violation() -> None:
    parser = RequestParser(4)
    with pytest.raises(HttpViolation):
        parser.feed(POST)
    assert parser.requests[0].headers["x-trino-user"] == "me"
    assert not parser.requests[0].complete


OK = b"HTTP/1.1 200 OK\r\nServer: x\r\nX-Trino-Set-Session: a=1\r\nX-Trino-Set-Session: b=2\r\n"
RESPONSES = {
    "length": OK + b"Content-Length: 2\r\n\r\n{}",
    "chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\n{}",
}


def receive(data: bytes, step: int = 0, method: str = "GET") -> Response:
    parser = ResponseParser(1000)
    parser.expect(method)
    found: list[Response] = []
    for start in range(0, len(data), step or len(data)):
        if response := parser.feed(data[start : start + (step or len(data))]):
            found.append(response)
    (response,) = found
    return response


@pytest.mark.parametrize("sample", RESPONSES.values(), ids=RESPONSES.keys())
@pytest.mark.parametrize("step", [0, 1, 7])
def test_a_response_reads_the_same_in_any_pieces(sample: bytes, step: int) -> None:
    response = receive(sample, step)
    assert (response.status, response.body, response.keep_alive) == (200, b"{}", True)
    assert [value for name, value in response.pairs if name == "x-trino-set-session"] == ["a=1", "b=2"]
    assert response.headers["x-trino-set-session"] == "a=1, b=2"


@pytest.mark.parametrize("step", [0, 1])
def test_head_and_204_have_no_body_and_the_connection_goes_on(step: int) -> None:
    parser = ResponseParser(1000)
    for method, data in (
        ("HEAD", OK + b"Content-Length: 2\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", RESPONSES["length"]),
    ):
        parser.expect(method)
        found = [
            parser.feed(data[i : i + (step or len(data))]) for i in range(0, len(data), step or len(data))
        ]
        (response,) = [response for response in found if response]
        assert response.body == (b"{}" if method == "GET" else b"")
        assert response.keep_alive


def test_a_response_that_ends_with_the_connection() -> None:
    parser = ResponseParser(1000)
    parser.expect("GET")
    assert parser.feed(OK + b"\r\n{}") is None
    response = parser.eof()
    assert response is not None
    assert response.body == b"{}"
    assert not response.keep_alive


@pytest.mark.parametrize(
    "data",
    [
        OK,
        OK + b"Content-Length: 3\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_a_response_that_is_cut_short(data: bytes) -> None:
    parser = ResponseParser(1000)
    parser.expect("GET")
    assert parser.feed(data) is None
    with pytest.raises(HttpViolation):
        parser.eof()


def test_the_end_before_a_response_is_no_violation() -> None:
    parser = ResponseParser(1000)
    parser.expect("GET")
    assert parser.eof() is None


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        OK + b"Content-Length: 1001\r\n\r\n",
        OK + b"Content-Length: 99999999999999999999\r\n\r\n",
        RESPONSES["length"] * 2,
    ],
)
def test_answers_that_are_not_taken(data: bytes) -> None:
    parser = ResponseParser(1000)
    parser.expect("GET")
    with pytest.raises(HttpViolation):
        parser.feed(data)
    with pytest.raises(HttpViolation):
        parser.feed(b"x")


def test_bytes_nobody_asked_for() -> None:
    with pytest.raises(HttpViolation):
        ResponseParser(1000).feed(RESPONSES["length"])


def test_what_is_encoded_reads_back() -> None:
    data = http1.encode_request("POST", "/v1/statement", [("Host", "a"), ("X-Trino-User", "me")], b"SELECT 1")
    (request,) = parse(data)
    assert (request.method, request.target, request.body) == ("POST", "/v1/statement", b"SELECT 1")
    assert request.headers == {"host": "a", "x-trino-user": "me"}
    assert request.length == 8
    (request,) = parse(http1.encode_request("GET", "/", [("Host", "a")]))
    assert request.complete

    response = receive(http1.encode_response(404, [("A", "b")], b"no", keep_alive=False))
    assert (response.status, response.body, response.keep_alive) == (404, b"no", False)
    assert receive(http1.encode_response(200, [], b"no", head_only=True), method="HEAD").body == b""
    chunked = http1.encode_chunked_head(200, []) + http1.encode_chunk(b"ab") + http1.encode_chunk(b"")
    assert receive(chunked + http1.LAST_CHUNK).body == b"ab"


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "a\0b"])
def test_a_value_cannot_break_out_of_its_header(value: str) -> None:
    with pytest.raises(ProtocolViolation):
        http1.encode_request("GET", "/", [("A", value)])
    with pytest.raises(ProtocolViolation):
        http1.encode_response(200, [("A", value)])


@pytest.mark.parametrize("target", ["/a b", "/a\r\nB: c", "/\x7f"])
def test_a_target_cannot_break_out_of_its_line(target: str) -> None:
    with pytest.raises(ProtocolViolation):
        http1.encode_request("GET", target, [])


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
    ],
)
def test_who_accepts_gzip(header: str, accepted: bool) -> None:
    assert http1.accepts_gzip(header) is accepted


def test_gzip_both_ways_and_a_bomb() -> None:
    packed = http1.gzip(b"a" * 100_000)
    assert http1.gunzip(packed, 100_000) == b"a" * 100_000
    for broken in (packed[:-4], b"junk", b""):
        with pytest.raises(HttpViolation):
            http1.gunzip(broken, 100_000)
    with pytest.raises(HttpViolation) as caught:
        http1.gunzip(packed, 99_999)
    assert caught.value.status == 413


PLAIN = b"POST /v1/statement HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nX-Trino-User: me\r\n\r\n%b"


def plain(body: bytes) -> bytes:
    return PLAIN % (len(body), body)


def fed(*messages: bytes) -> tuple[RequestParser, dict[str, str]]:
    """A parser that has taken these, and the headers of the first."""
    parser = RequestParser(1000)
    for message in messages:
        parser.feed(message)
    return parser, parser.requests[0].headers


@pytest.mark.parametrize(
    "body", [b"SELECT 1", b"SELECT 2", b"", b"SELECT 'a longer one\r\n\r\n'", b"x" * 1000]
)
def test_a_request_with_the_head_of_the_last_one(body: bytes) -> None:
    parser, headers = fed(plain(b"SELECT 1"))
    for _ in range(2):
        assert parser.again(plain(body), headers) == body
    assert parser.again(plain(b"SELECT 1"), headers) == b"SELECT 1"
    parser.feed(plain(body))
    assert parser.requests[-1].body == body
    assert parser.requests[-1].headers is headers


@pytest.mark.parametrize(
    "data",
    [
        plain(b"SELECT 1") + b"G",
        plain(b"SELECT 1") * 2,
        plain(b"SELECT 1")[:-1],
        plain(b"SELECT 1")[:-8],
        plain(b"")[:-4],
        plain(b"SELECT 1")[:20],
        b"",
        plain(b"SELECT 1").replace(b"me", b"you"),
        plain(b"SELECT 1").replace(b"POST", b"PUT "),
        plain(b"SELECT 1").replace(b": 8", b": +8"),
        plain(b"SELECT 1").replace(b": 8", b": 8 "),
        plain(b"SELECT 1").replace(b"\r\n\r\n", b"\r\nA: b\r\n\r\n"),
        plain(b"x" * 1001),
        GET,
    ],
)
def test_what_is_not_one_whole_request_with_that_head_is_left_alone(data: bytes) -> None:
    parser, headers = fed(plain(b""), plain(b"SELECT 1"))
    assert parser.again(data, headers) is None
    assert parser.idle
    parser.feed(plain(b"SELECT 2"))
    assert [request.body for request in parser.requests] == [b"", b"SELECT 1", b"SELECT 2"]


@pytest.mark.parametrize(
    "before", [plain(b"SELECT 1")[:-3], POST, CHUNKED, plain(b"").replace(b"me", b"you")]
)
def test_after_something_else_there_is_no_again(before: bytes) -> None:
    parser, headers = fed(plain(b"SELECT 1"), before)
    assert parser.again(plain(b"SELECT 1"), headers) is None


def answered(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nA: b\r\n\r\n") -> bytes:
    return head % len(body) + body


def known() -> tuple[ResponseParser, Response]:
    parser = ResponseParser(1000)
    parser.expect("POST")
    response = parser.feed(answered(b"{}"))
    assert response is not None
    return parser, response


@pytest.mark.parametrize("body", [b"{}", b"", b"x" * 1000])
def test_a_response_with_the_head_of_the_last_one(body: bytes) -> None:
    parser, before = known()
    for _ in range(2):
        parser.expect("POST")
        assert parser.again(answered(body), before.pairs) == body
    parser.expect("GET")
    response = parser.feed(answered(b"1"))
    assert response is not None
    assert (response.body, response.pairs) == (b"1", before.pairs)


@pytest.mark.parametrize(
    "data",
    [
        answered(b"{}") + b"x",
        answered(b"{}")[:-1],
        answered(b"")[:-4],
        answered(b"x" * 1001),
        answered(b"{}").replace(b"200", b"503"),
        answered(b"{}").replace(b"A: b", b"A: c"),
        b"",
    ],
)
def test_a_response_that_is_another_is_left_to_feed(data: bytes) -> None:
    parser, before = known()
    parser.expect("POST")
    assert parser.again(data, before.pairs) is None
    response = parser.feed(answered(b"[]"))
    assert response is not None
    assert response.body == b"[]"


def test_a_response_that_nobody_expects_or_whose_body_is_not_sent() -> None:
    parser, before = known()
    assert parser.again(answered(b"{}"), before.pairs) is None
    parser.expect("HEAD")
    assert parser.again(answered(b"{}"), before.pairs) is None
    parser, before = known()
    parser.expect("POST")
    assert parser.again(answered(b"{}"), None) is None
    assert parser.again(answered(b"{}"), list(before.pairs)) is None
    parser.feed(answered(b"{}")[:-1])
    assert parser.again(answered(b"{}"), before.pairs) is None
