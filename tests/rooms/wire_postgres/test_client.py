"""The client side of the protocol: messages as the manual writes them, walked however they arrive."""

import struct
from collections.abc import Iterator

import pytest

from queryflux.model.errors import InvalidRequest, ProtocolViolation
from queryflux.wire.postgres import client as wire


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


ROW = message(b"D", b"\0\1\0\0\0\x011")
SHAPE = message(b"T", b"\0\1a\0" + struct.pack("!IhIhih", 0, 0, 23, 4, -1, 0))
TAG = message(b"C", b"SELECT 2\0")
READY = message(b"Z", b"I")
ANSWER = SHAPE + ROW + ROW + TAG + READY


def walk(messages: wire.ServerMessages, *, rows: bool) -> Iterator[tuple[str, bytes]]:
    step = messages.next if rows else messages.notable
    while kind := step():
        yield chr(kind), messages.body


# Encoders.


def test_the_start_up_packet() -> None:
    assert wire.startup((("user", "me"), ("database", "db"))) == (
        b"\0\0\0\x1d\0\3\0\0user\0me\0database\0db\0\0"
    )


def test_requests_of_a_connection_of_their_own() -> None:
    assert wire.SSL_REQUEST_MESSAGE == b"\0\0\0\x08\x04\xd2\x16\x2f"
    assert wire.cancel_request(258, b"key!") == b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\1\2key!"


def test_messages_of_the_extended_protocol() -> None:
    assert wire.query(b"X") == b"Q\0\0\0\x06X\0"
    assert wire.parse(b"n", b"X", (23, 25)) == b"P\0\0\0\x12n\0X\0\0\2\0\0\0\x17\0\0\0\x19"
    assert wire.bind(b"p", b"s", (1,), (b"ab", None), (0, 1)) == (
        b"B\0\0\0\x1ep\0s\0\0\1\0\1\0\2\0\0\0\2ab\xff\xff\xff\xff\0\2\0\0\0\1"
    )
    assert wire.bind(b"", b"", (), (), ()) == b"B\0\0\0\x0c\0\0\0\0\0\0\0\0"
    assert wire.describe_statement(b"s") == b"D\0\0\0\x07Ss\0"
    assert wire.describe_portal(b"") == b"D\0\0\0\x06P\0"
    assert wire.execute(b"", 5) == b"E\0\0\0\x09\0\0\0\0\5"
    assert wire.close_statement(b"s") == b"C\0\0\0\x07Ss\0"
    assert wire.copy_fail("no\0") == b"f\0\0\0\x08no \0"


def test_nul_characters_are_refused() -> None:
    for make in (wire.query, lambda sql: wire.parse(b"", sql, ()), wire.terminated):
        with pytest.raises(InvalidRequest):
            make(b"SELECT '\0'")
    with pytest.raises(InvalidRequest):
        wire.bind(b"", b"", (), (None,) * 65536, ())


# The walker.


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1000])
def test_an_answer_is_walked_however_it_arrives(size: int) -> None:
    messages = wire.ServerMessages()
    data = ANSWER + ANSWER
    seen = []
    for start in range(0, len(data), size):
        messages.feed(data[start : start + size])
        seen += [kind for kind, _ in walk(messages, rows=True)]
    assert "".join(seen) == "TDDCZTDDCZ"
    assert messages.empty


def test_a_walk_may_stop_and_go_on() -> None:
    messages = wire.ServerMessages()
    messages.feed(ANSWER)
    assert messages.notable() == ord("T")
    messages.feed(ANSWER)
    assert [kind for kind, _ in walk(messages, rows=False)] == ["C", "Z", "T", "C", "Z"]


@pytest.mark.parametrize("size", range(1, len(ANSWER) + 1))
def test_rows_are_stepped_over_and_can_be_cut_out_whole(size: int) -> None:
    messages = wire.ServerMessages()
    seen, taken = "", b""
    for start in range(0, len(ANSWER), size):
        messages.feed(ANSWER[start : start + size])
        data, begin = messages.data, messages.end
        while kind := messages.notable():
            seen += chr(kind)
        taken += data[begin : messages.whole]
    assert seen == "TCZ"
    assert taken == ANSWER


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\0\0\0\4",
        b"Z\0\0\0\3",
        b"D\0\0\0\3",
        b"D\xff\xff\xff\xff",
        b"T\x7f\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    for rows in (True, False):
        messages = wire.ServerMessages()
        messages.feed(data)
        with pytest.raises(ProtocolViolation):
            list(walk(messages, rows=rows))


def test_a_limit_is_kept_before_anything_is_gathered() -> None:
    messages = wire.ServerMessages(100)
    messages.feed(b"N" + struct.pack("!I", 101))
    with pytest.raises(ProtocolViolation):
        messages.next()


# An answer in one piece.


def test_a_whole_answer() -> None:
    assert wire.whole_answer(ANSWER) == (0, 2)
    ours = message(b"1") + message(b"2")
    assert wire.whole_answer(ours + ANSWER) == (10, 2)
    assert wire.whole_answer(message(b"C", b"BEGIN\0") + READY) == (0, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        READY,
        ANSWER[:-1],
        ANSWER + READY[:3],
        ANSWER + READY,
        SHAPE + ROW + READY,
        ANSWER[:-6] + message(b"N", b"\0") + READY,
        message(b"E", b"\0") + READY,
        SHAPE + message(b"2") + ROW + TAG + READY,
        SHAPE + b"D\0\0\0\3" + TAG + READY,
        SHAPE + b"D\xff\xff\xff\xff" + TAG + READY,
        message(b"G", b"\0\0\0") + READY,
    ],
)
def test_what_is_not_a_plain_whole_answer(data: bytes) -> None:
    assert wire.whole_answer(data) is None


BOUND = message(b"2")
NOTICE = message(b"N", b"VNOTICE\0MC\0\0")


def test_the_rows_of_a_whole_answer() -> None:
    assert wire.whole_rows(ANSWER, 0) == 2
    assert wire.whole_rows(BOUND + ANSWER, 5) == 2
    assert wire.whole_rows(message(b"n") + message(b"C", b"INSERT 0 12\0") + READY, 0) == 12


def test_the_rows_of_a_whole_answer_in_text() -> None:
    assert wire.whole_text_rows(ANSWER) == 2
    assert wire.whole_text_rows(SHAPE + NOTICE + ROW + TAG + READY) == 2
    assert wire.whole_text_rows(message(b"C", b"INSERT 0 12\0") + READY) == 12
    most = message(b"C", b"INSERT 0 18446744073709551615\0") + READY
    assert wire.whole_text_rows(most) == 18446744073709551615


IDLE_TAIL = TAG + READY
SLY = message(b"D", b"\0\1" + struct.pack("!I", len(IDLE_TAIL)) + IDLE_TAIL)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        READY,
        b"I",
        ANSWER[:-1] + b"T",
        ANSWER[:-1] + b"E",
        ANSWER[:-7] + READY,
        ANSWER + READY,
        SHAPE + ROW + READY,
        SHAPE + message(b"C", b"BEGIN\0") + READY,
        SHAPE + TAG + message(b"E", b"\0") + READY,
        message(b"E", b"\0") + READY,
        NOTICE + ANSWER,
        BOUND + ANSWER,
        SHAPE[:-3],
        message(b"T", b"\0\1C\0" + IDLE_TAIL * 2)[:-13],
        message(b"G", b"\0\0\0") + READY,
    ],
)
def test_what_has_no_rows_that_can_be_told(data: bytes) -> None:
    assert wire.whole_text_rows(data) == -1
    assert wire.whole_rows(data, 0) == -1


def test_a_row_that_looks_like_the_end() -> None:
    """Binary values may hold anything; they are stepped over."""
    assert wire.whole_rows(SHAPE + SLY, 0) == -1
    assert wire.whole_rows(SHAPE + SLY + TAG + READY, 0) == 2


# Decoders.


def test_an_error() -> None:
    body = b"SFEHLER\0VERROR\0C42P01\0Mno such table\0Dit is not there\0Hmake it\0P15\0\0"
    error = wire.parse_error(body)
    assert error == wire.ServerError("ERROR", "42P01", "no such table", "it is not there", "make it", 15)
    assert not error.fatal
    assert wire.parse_error(b"VFATAL\0\0").fatal
    assert wire.parse_error(b"P99999999999999\0\0").position == 0
    with pytest.raises(ProtocolViolation):
        wire.parse_error(b"Mno end")


def test_descriptions() -> None:
    assert wire.parse_row_description(SHAPE[5:]) == [wire.Column("a", 23, -1)]
    assert wire.parse_parameter_description(b"\0\2\0\0\0\x17\0\0\0\x19") == (23, 25)
    for body in (b"", b"\0\1", b"\0\1a", b"\0\1a\0", SHAPE[5:] + b"x", SHAPE[5:-1]):
        with pytest.raises(ProtocolViolation):
            wire.parse_row_description(body)
    for body in (b"", b"\0", b"\0\1", b"\0\0\0"):
        with pytest.raises(ProtocolViolation):
            wire.parse_parameter_description(body)


def test_rows() -> None:
    assert wire.parse_data_row(b"\0\3\0\0\0\2ab\xff\xff\xff\xff\0\0\0\0") == [b"ab", None, b""]
    for body in (b"", b"\0\1", b"\0\1\0\0\0\5ab", b"\0\1\0\0\0\1ab"):
        with pytest.raises(ProtocolViolation):
            wire.parse_data_row(body)


@pytest.mark.parametrize(
    ("tag", "words", "rows"),
    [
        (b"INSERT 0 5\0", "INSERT", 5),
        (b"SELECT 0\0", "SELECT", 0),
        (b"CREATE TABLE\0", "CREATE TABLE", None),
        (b"BEGIN\0", "BEGIN", None),
        (b"COPY 3", "COPY", 3),
        (b"FETCH \xd9\xa3\0", "FETCH ٣", None),
    ],
)
def test_tags(tag: bytes, words: str, rows: int | None) -> None:
    assert wire.parse_command_tag(tag) == (words, rows)
