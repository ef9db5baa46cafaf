"""The server's side: client messages cut out of bytes, fed whole, byte by byte and with trailing bytes."""

import struct
from collections.abc import Callable

import pytest

from queryflux.model.errors import ProtocolViolation
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Front
from queryflux.wire.postgres.errors import PostgresError
from queryflux.wire.postgres.messages import Bind, Column, Decoder, Parse
from queryflux.wire.postgres.relayed import described_oids, shift_positions, with_formats


def front(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + struct.pack("!I", len(body) + 4) + body


BIND = (
    b"p\0s\0" + struct.pack("!HHH", 2, 0, 1) + struct.pack("!H", 2) + struct.pack("!i", 1) + b"7"
    + struct.pack("!i", -1) + struct.pack("!HH", 1, 1)
)  # fmt: skip

SAMPLES: list[tuple[int, bytes, Callable[[bytes], object], object]] = [
    (Front.QUERY, b"select 1\0", messages.query, "select 1"),
    (Front.PARSE, b"s\0select $1\0" + struct.pack("!HI", 1, 23), messages.parse,
     Parse("s", "select $1", (23,))),
    (Front.BIND, BIND, messages.bind, Bind("p", "s", (0, 1), (b"7", None), (1,))),
    (Front.DESCRIBE, b"Sname\0", messages.target, ("S", "name")),
    (Front.CLOSE, b"P\0", messages.target, ("P", "")),
    (Front.EXECUTE, b"p\0" + struct.pack("!I", 5), messages.execute, ("p", 5)),
    (Front.EXECUTE, b"\0" + struct.pack("!i", -1), messages.execute, ("", 0)),
    (Front.PASSWORD, b"secret\0", messages.password, "secret"),
    (Front.PASSWORD, b"SCRAM-SHA-256\0" + struct.pack("!i", 3) + b"n,,", messages.sasl_initial,
     ("SCRAM-SHA-256", b"n,,")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "read", "expected"), SAMPLES)
def test_a_message_whole_byte_by_byte_and_with_trailing_bytes(
    kind: int, body: bytes, read: Callable[[bytes], object], expected: object
) -> None:
    data = front(kind, body)
    whole = Decoder(1000)
    whole.feed(data)
    assert whole.next() == (kind, body)
    assert whole.next() is None
    slow = Decoder(1000)
    for index in range(len(data)):
        assert slow.next() is None
        slow.feed(data[index : index + 1])
    assert slow.peek() == kind
    assert slow.next() == (kind, body)
    trailing = Decoder(1000)
    trailing.feed(data + data + data[:3])
    assert [trailing.next(), trailing.next(), trailing.next()] == [(kind, body), (kind, body), None]
    trailing.feed(data[3:])
    assert trailing.next() == (kind, body)
    assert read(body) == expected


@pytest.mark.parametrize(("kind", "body", "read", "expected"), SAMPLES)
def test_a_body_cut_short_or_too_long_is_a_violation(
    kind: int, body: bytes, read: Callable[[bytes], object], expected: object
) -> None:
    for size in range(len(body)):
        with pytest.raises(ProtocolViolation):
            read(body[:size])
    with pytest.raises(ProtocolViolation):
        read(body + b"x")


@pytest.mark.parametrize("length", [0, 1, 3, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_a_violation(length: int) -> None:
    decoder = Decoder(1000)
    decoder.feed(b"Q" + struct.pack("!I", length))
    with pytest.raises(ProtocolViolation, match="invalid message length"):
        decoder.next()


def test_a_short_message_is_never_long() -> None:
    decoder = Decoder(10**9)
    decoder.feed(b"S" + struct.pack("!I", 100_000))
    with pytest.raises(ProtocolViolation, match="'S'"):
        decoder.next()


def test_an_unknown_type_is_a_violation() -> None:
    decoder = Decoder(1000)
    decoder.feed(b"\x16\x03\x01")
    with pytest.raises(ProtocolViolation, match="message type 22"):
        decoder.next()


@pytest.mark.parametrize("chunk", [7, 1000, 10**6])
def test_a_statement_over_the_limit_is_dropped_as_it_comes_and_the_next_one_is_read(chunk: int) -> None:
    decoder = Decoder(100)
    data = front(Front.QUERY, b"x" * 50_000 + b"\0") + front(Front.QUERY, b"select 1\0")
    found = []
    for at in range(0, len(data), chunk):
        decoder.feed(data[at : at + chunk])
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == [(Front.QUERY, None), (Front.QUERY, b"select 1\0")]


def test_a_bind_may_be_longer_than_a_statement() -> None:
    decoder = Decoder(100)
    decoder.feed(front(Front.BIND, b"x" * 50_000))
    assert decoder.next() == (Front.BIND, b"x" * 50_000)


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(PostgresError, match="0xe9 0x20") as caught:
        messages.query(b"caf\xe9 \0")
    assert caught.value.sqlstate == "22021"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\0\0" + struct.pack("!HHHHH", 2, 0, 0, 0, 0), "2 parameter formats but 0"),
        (b"\0\0" + struct.pack("!HHHH", 1, 7, 0, 0), "unsupported format code: 7"),
    ],
)
def test_formats_that_make_no_sense(body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolViolation, match=reason):
        messages.bind(body)


def test_row_description_and_its_formats() -> None:
    columns = [Column("a", 23, 4), Column("é", 25)]
    plain = messages.row_description(columns, (0, 0))
    assert plain[:1] == b"T"
    assert int.from_bytes(plain[1:5]) == len(plain) - 1
    assert with_formats(plain, (1,)) == messages.row_description(columns, (1, 1))
    assert with_formats(plain, (0, 1)) == messages.row_description(columns, (0, 1))
    assert with_formats(plain, ()) == plain


def test_parameter_description_reads_back() -> None:
    assert described_oids(messages.parameter_description((23, 0, 25))) == (23, 0, 25)
    assert described_oids(messages.parameter_description(())) == ()


def test_formats_expand_by_the_rule_of_bind() -> None:
    assert messages.expand((), 2) == (0, 0)
    assert messages.expand((1,), 2) == (1, 1)
    assert messages.expand((0, 1), 2) == (0, 1)
    with pytest.raises(ProtocolViolation):
        messages.expand((0, 1, 1), 2)


def test_a_string_of_ours_never_ends_early() -> None:
    assert messages.command_complete("SE\0T") == b"C\0\0\0\x08SET\0"


def test_the_position_of_an_error_moves_and_nothing_else() -> None:
    done = messages.command_complete("P7")
    error = messages.message(ord("E"), b"SERROR\0P7\0MP8\0\0")
    moved = messages.message(ord("E"), b"SERROR\0P17\0MP8\0\0")
    assert shift_positions(done + error + done, 10) == done + moved + done
