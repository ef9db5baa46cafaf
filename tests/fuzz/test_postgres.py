"""Any bytes parse or raise an error of ours; nothing else, and nothing is kept that was not sent."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.frontends.postgres.commands import read_command
from queryflux.frontends.postgres.settings import Settings
from queryflux.frontends.tags import MAX_TAGS, parse_tags
from queryflux.model.errors import InvalidRequest
from queryflux.sql.classify import classify
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import ARRAY_OF
from queryflux.wire.postgres.startup import StartupDecoder, options
from queryflux.wire.postgres.types import NAMES, BoundParameters

BODIES: list[Callable[[bytes], object]] = [
    messages.query,
    messages.parse,
    messages.bind,
    messages.target,
    messages.execute,
    messages.password,
    messages.sasl_initial,
]
OIDS = [0, 1, *NAMES, *ARRAY_OF.values()]
LIMIT = 1000


@pytest.mark.parametrize("read", BODIES, ids=lambda read: read.__name__)
@given(body=st.binary(max_size=200))
def test_bodies(read: Callable[[bytes], object], body: bytes) -> None:
    with suppress(InvalidRequest):
        read(body)


MESSAGES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.sampled_from(list(b"QPBDECSHXdcfpF")),
                  st.integers(0, 2**32 - 1), st.binary(max_size=60)).map(
            lambda parts: bytes([parts[0]]) + struct.pack("!I", parts[1]) + parts[2]),
        st.tuples(st.sampled_from(list(b"QPBd")), st.binary(max_size=3000)).map(
            lambda parts: bytes([parts[0]]) + struct.pack("!I", len(parts[1]) + 4) + parts[1]),
    ), max_size=8,
)  # fmt: skip


@given(chunks=MESSAGES, cut=st.integers(1, 64))
def test_the_decoder(chunks: list[bytes], cut: int) -> None:
    data = b"".join(chunks)
    decoder = messages.Decoder(LIMIT, LIMIT)
    given_out = 0
    try:
        for at in range(0, len(data), cut):
            decoder.feed(data[at : at + cut])
            while (found := decoder.next()) is not None:
                given_out += 5 + len(found[1] or b"")
    except InvalidRequest:
        pass
    assert given_out <= len(data) + 5 * len(chunks)


@given(chunks=MESSAGES, cut=st.integers(1, 64))
def test_the_decoder_finds_the_same_however_the_bytes_arrive(chunks: list[bytes], cut: int) -> None:
    data = b"".join(chunks)

    def found(step: int) -> list[object]:
        decoder, seen = messages.Decoder(LIMIT, LIMIT), list[object]()
        try:
            for at in range(0, len(data), step):
                decoder.feed(data[at : at + step])
                while (message := decoder.next()) is not None:
                    seen.append(message)
        except InvalidRequest as error:
            seen.append(str(error))
        return seen

    assert found(cut) == found(len(data) or 1)


@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.tuples(st.sampled_from([0x30000, 0x30002, 80877102, 80877103, 80877104, 0x20000]),
                  st.binary(max_size=300)).map(
            lambda parts: struct.pack("!II", len(parts[1]) + 8, parts[0]) + parts[1]),
    ),
    cut=st.integers(1, 64),
)  # fmt: skip
def test_start_up(data: bytes, cut: int) -> None:
    decoder = StartupDecoder()
    try:
        for at in range(0, len(data), cut):
            decoder.feed(data[at : at + cut])
            while decoder.next() is not None:
                pass
    except InvalidRequest:
        pass


@given(raw=st.binary(max_size=200), oid=st.sampled_from(OIDS), code=st.integers(0, 1))
def test_bound_values(raw: bytes, oid: int, code: int) -> None:
    with suppress(InvalidRequest):
        list(BoundParameters((raw,), (code,), (oid,)))


@given(text=st.text(max_size=200))
def test_options_and_tags(text: str) -> None:
    for name, value in options(text).items():
        assert name
        assert isinstance(value, str)
    assert len(parse_tags(text)) <= MAX_TAGS


WORDS = [
    "SET",
    "SHOW",
    "RESET",
    "DISCARD",
    "DEALLOCATE",
    "LOCAL",
    "SESSION",
    "TIME",
    "ZONE",
    "TO",
    "=",
    "ALL",
]
WORDS += ["ROLE", "CLOSE", "UNLISTEN", "datestyle", "x.y", "'", '"', ";", "--", "/*", ",", "TimeZone"]


@given(words=st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=12))
def test_session_commands(words: list[str]) -> None:
    text = " ".join(words)
    with suppress(InvalidRequest):
        read_command(text, classify(text, "postgres"))


NAMES_OF_SETTINGS = ["TimeZone", "datestyle", "client_encoding", "x.y", "bogus", "jit", "query_tags"]


@given(name=st.sampled_from(NAMES_OF_SETTINGS), value=st.text(max_size=60))
def test_settings(name: str, value: str) -> None:
    settings = Settings("ann", {})
    try:
        settings.set(name, value)
    except InvalidRequest:
        return
    assert settings.get(name) is not None
