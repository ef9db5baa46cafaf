"""Any bytes from a PostgreSQL server parse or raise ProtocolViolation and its kin; nothing else."""

import struct
from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.model.errors import AuthenticationFailed, ProtocolViolation
from queryflux.model.secret import Secret
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres.scram_client import ScramClient
from queryflux.wire.postgres.startup_client import Startup, StartupState

LIMIT = 64
MORE = settings(max_examples=300, deadline=None)
KINDS = st.sampled_from(list(b"RKSZ1234CDdcEGHIntTNsAW\xff\0"))


def _framed(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + struct.pack("!I", len(body) + 4) + body


STREAM = st.lists(st.one_of(st.binary(max_size=40), st.builds(_framed, KINDS, st.binary(max_size=30))))


@given(STREAM, st.booleans())
@MORE
def test_the_walker(chunks: list[bytes], rows: bool) -> None:
    messages = wire.ServerMessages(LIMIT)
    fed = b""
    for chunk in chunks:
        messages.feed(chunk)
        fed += chunk
        try:
            while messages.next() if rows else messages.notable():
                assert messages.data[messages.start : messages.end] in fed
        except ProtocolViolation:
            return
        assert messages._held_size <= LIMIT + 5 + len(chunk)


@given(STREAM)
@MORE
def test_both_ways_of_walking_agree(chunks: list[bytes]) -> None:
    one, other = wire.ServerMessages(LIMIT), wire.ServerMessages(LIMIT)
    for chunk in chunks:
        one.feed(chunk)
        other.feed(chunk)
        every, notable = [], []
        try:
            while kind := one.next():
                every.append(kind)
        except ProtocolViolation:
            return
        while kind := other.notable():
            notable.append(kind)
        assert notable == [kind for kind in every if kind not in b"Dd"]


@given(st.lists(st.builds(_framed, KINDS, st.binary(max_size=12)), max_size=8).map(b"".join))
@MORE
def test_a_whole_answer_is_what_the_walker_sees(data: bytes) -> None:
    found = wire.whole_answer(data)
    if found is None:
        return
    messages = wire.ServerMessages()
    messages.feed(data)
    kinds = b""
    while kind := messages.next():
        kinds += bytes([kind])
    assert messages.empty
    assert kinds.endswith(b"Z")
    assert b"C" in kinds
    assert set(kinds[:-1]) <= set(b"12TDCn")
    assert not set(kinds.lstrip(b"12")) & set(b"12")


TEXT_MESSAGES = st.sampled_from(
    [
        _framed(ord("T"), b"\0\1C\0" + bytes(18)),
        _framed(ord("D"), b"\0\1\0\0\0\x08SELECT 1"),
        _framed(ord("D"), b"\0\2\0\0\0\1Z\0\0\0\5Ix   "),
        _framed(ord("D"), b"\0\2\0\0\0\1C\0\0\0\x0dSELECT 123456"),
        _framed(ord("C"), b"SELECT 1\0"),
        _framed(ord("C"), b"BEGIN\0"),
        _framed(ord("N"), b"SNOTICE\0MC\0\0"),
        _framed(ord("S"), b"C\0\0"),
        _framed(ord("A"), bytes(4) + b"C\0\0"),
        _framed(ord("E"), b"SERROR\0\0"),
        _framed(ord("Z"), b"I"),
        _framed(ord("Z"), b"T"),
    ]
)


@given(st.lists(TEXT_MESSAGES, max_size=8).map(b"".join), st.integers(0, 12))
@MORE
def test_rows_told_from_the_ends_alone_are_those_of_a_whole_answer(data: bytes, cut: int) -> None:
    data = data[: len(data) - cut]
    rows = wire.whole_text_rows(data)
    walked = wire.whole_rows(data, 0)
    if walked >= 0:
        assert rows == (walked if data[0] in b"TC" else -1)
    if rows < 0:
        return
    messages = wire.ServerMessages()
    messages.feed(data)
    kinds = b""
    while kind := messages.next():
        kinds += bytes([kind])
    assert messages.empty
    assert kinds.endswith(b"CZ")


@given(st.binary(max_size=120))
@MORE
def test_decoders(body: bytes) -> None:
    decoders: list[Callable[[bytes], object]] = [
        wire.parse_error,
        wire.parse_row_description,
        wire.parse_parameter_description,
        wire.parse_data_row,
        wire.parse_command_tag,
    ]
    for decode in decoders:
        with suppress(ProtocolViolation):
            decode(body)


@given(
    st.lists(
        st.tuples(
            KINDS,
            st.one_of(
                st.binary(max_size=60),
                st.integers(0, 13).map(lambda n: struct.pack("!I", n) + b"SCRAM-SHA-256\0\0"),
            ),
        )
    )
)
@MORE
def test_the_start_up(messages: list[tuple[int, bytes]]) -> None:
    startup = Startup("me", Secret("pw"), encrypted=True)
    for kind, body in messages:
        try:
            startup.receive(kind, body)
        except (ProtocolViolation, AuthenticationFailed):
            return
        if startup.state in (StartupState.READY, StartupState.FAILED):
            return


@given(st.one_of(st.binary(max_size=100), st.text("rsiv=,abc+/0123456789", max_size=80).map(str.encode)))
@MORE
def test_scram(message: bytes) -> None:
    client = ScramClient(Secret("pw"), "abc", {})
    with suppress(ProtocolViolation, AuthenticationFailed):
        client.final(message[:60])
    with suppress(ProtocolViolation, AuthenticationFailed):
        client.verify(message)
