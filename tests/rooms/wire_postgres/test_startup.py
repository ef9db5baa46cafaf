import struct

import pytest

from queryflux.model.errors import NotSupported, ProtocolViolation, QueryFluxError
from queryflux.wire.postgres.constants import (
    CANCEL_REQUEST,
    GSSENC_REQUEST,
    PROTOCOL_3_0,
    PROTOCOL_3_2,
    SSL_REQUEST,
)
from queryflux.wire.postgres.startup import (
    CancelRequest,
    GssRequest,
    SslRequest,
    StartupDecoder,
    StartupMessage,
    StartupPacket,
    options,
)


def packet(code: int, body: bytes = b"") -> bytes:
    return struct.pack("!II", len(body) + 8, code) + body


SAMPLES: list[tuple[bytes, StartupPacket]] = [
    (packet(SSL_REQUEST), SslRequest()),
    (packet(GSSENC_REQUEST), GssRequest()),
    (packet(CANCEL_REQUEST, struct.pack("!I", 7) + b"abcd"), CancelRequest(7, b"abcd")),
    (packet(CANCEL_REQUEST, struct.pack("!I", 7) + b"k" * 256), CancelRequest(7, b"k" * 256)),
    (packet(PROTOCOL_3_0, b"user\0ann\0database\0d\0\0"),
     StartupMessage(PROTOCOL_3_0, {"user": "ann", "database": "d"})),
    (packet(PROTOCOL_3_0, b"user\0\0\0"), StartupMessage(PROTOCOL_3_0, {"user": ""})),
    (packet(PROTOCOL_3_0, b"\0"), StartupMessage(PROTOCOL_3_0, {})),
    (packet(PROTOCOL_3_2, b"user\0ann\0\0"), StartupMessage(PROTOCOL_3_2, {"user": "ann"})),
    (packet(0x0003_270F, b"user\0ann\0\0"), StartupMessage(PROTOCOL_3_2, {"user": "ann"}, True)),
    (packet(0x0003_0001, b"user\0ann\0\0"), StartupMessage(PROTOCOL_3_0, {"user": "ann"}, True)),
    (packet(PROTOCOL_3_0, b"_pq_.x\0y\0user\0ann\0\0"),
     StartupMessage(PROTOCOL_3_0, {"user": "ann"}, True, ("_pq_.x",))),
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), SAMPLES)
def test_a_packet_whole_byte_by_byte_and_with_trailing_bytes(data: bytes, expected: StartupPacket) -> None:
    whole = StartupDecoder()
    whole.feed(data)
    assert whole.next() == expected
    assert whole.rest == b""
    slow = StartupDecoder()
    for index in range(len(data)):
        assert slow.next() is None
        slow.feed(data[index : index + 1])
    assert slow.next() == expected
    trailing = StartupDecoder()
    trailing.feed(data + b"p\0\0")
    assert trailing.next() == expected
    assert trailing.rest == b"p\0\0"


@pytest.mark.parametrize("length", [0, 3, 7, 10_001, 2**31 - 1, 2**32 - 1])
def test_a_length_that_cannot_be(length: int) -> None:
    decoder = StartupDecoder()
    decoder.feed(struct.pack("!I", length))
    with pytest.raises(ProtocolViolation, match="invalid length of startup packet"):
        decoder.next()


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (packet(0x0002_0000, b"\0" * 288), NotSupported, "unsupported frontend protocol 2.0"),
        (packet(SSL_REQUEST, b"x"), NotSupported, "1234.5679"),
        (packet(CANCEL_REQUEST), ProtocolViolation, "cancel request"),
        (packet(PROTOCOL_3_0, b"user\0ann"), ProtocolViolation, "terminator"),
        (packet(PROTOCOL_3_0, b"user\0ann\0"), ProtocolViolation, "terminator"),
        (packet(PROTOCOL_3_0, b"user\0\0"), ProtocolViolation, "terminator"),
        (packet(PROTOCOL_3_0, b"\0x\0\0"), ProtocolViolation, "no name"),
        (packet(PROTOCOL_3_0, b"user\0\xff\0\0"), QueryFluxError, "invalid byte sequence"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", NotSupported, "direct TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", ProtocolViolation, "invalid length"),
    ],
)
def test_what_is_not_a_packet(data: bytes, error: type[QueryFluxError], reason: str) -> None:
    decoder = StartupDecoder()
    decoder.feed(data)
    with pytest.raises(error, match=reason):
        decoder.next()


def test_options() -> None:
    assert options("-c search_path=a,b --statement-timeout=5s -cDateStyle=ISO") == {
        "search_path": "a,b",
        "statement_timeout": "5s",
        "DateStyle": "ISO",
    }
    assert options(r"-c application_name=my\ app\\x") == {"application_name": r"my app\x"}
    assert options("") == {}
