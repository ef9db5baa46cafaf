"""Any bytes are read or refused by ProtocolViolation and its kin; nothing else, in bounded memory."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.frontends.mysql.expressions import placeholders, substitute
from queryflux.frontends.mysql.local import read_local
from queryflux.model.errors import InvalidRequest, ProtocolViolation, StatementTooLarge
from queryflux.pipeline.face import StatementKind
from queryflux.wire.mysql.commands import command_of, number_of, read_long_data, text_of
from queryflux.wire.mysql.constants import OFFERED
from queryflux.wire.mysql.errors import ServerError
from queryflux.wire.mysql.handshake import read_change_user, read_response
from queryflux.wire.mysql.packets import PacketCodec
from queryflux.wire.mysql.parameters import BoundType, read_execution, statement_of

LIMIT = 64
MORE = settings(max_examples=300, deadline=None)


@given(st.lists(st.binary(max_size=80)))
@MORE
def test_packets(chunks: list[bytes]) -> None:
    codec = PacketCodec(LIMIT)
    for chunk in chunks:
        codec.feed(chunk)
        try:
            while (payload := codec.receive()) is not None:
                assert len(payload) <= LIMIT
                codec.sequence = 0
        except StatementTooLarge:
            codec.sequence = 0
        except ProtocolViolation:
            return
    assert len(codec.take_rest()) <= LIMIT + sum(map(len, chunks[-1:])) + 4


@given(st.lists(st.tuples(st.integers(0, 90), st.binary(min_size=1, max_size=7)), max_size=20))
@MORE
def test_packets_arrive_alike_however_they_are_cut(plan: list[tuple[int, bytes]]) -> None:
    data = b"".join(
        (len(fill) * length).to_bytes(3, "little") + b"\0" + fill * length for length, fill in plan
    )
    assert _outcomes(data, len(data) or 1) == _outcomes(data, 1) == _outcomes(data, 7)


def _outcomes(data: bytes, step: int) -> list[bytes | str]:
    codec = PacketCodec(LIMIT)
    found: list[bytes | str] = []
    for start in range(0, len(data), step):
        codec.feed(data[start : start + step])
        while True:
            codec.sequence = 0
            try:
                payload = codec.receive()
            except InvalidRequest as error:
                found.append(error.code)
                continue
            if payload is None:
                break
            found.append(payload)
    return found


HEAD = st.integers(0, 0xFFFFFFFF).map(lambda bits: (bits | 1 << 9).to_bytes(4, "little") + bytes(28))


@given(
    st.one_of(st.binary(max_size=200), st.builds(bytes.__add__, HEAD, st.binary(max_size=200))), st.booleans()
)
@MORE
def test_handshake_responses(payload: bytes, tls: bool) -> None:
    with suppress(InvalidRequest):
        read_response(payload, tls=tls)


@given(st.binary(max_size=200))
@MORE
def test_commands(payload: bytes) -> None:
    for read in (
        command_of,
        text_of,
        read_long_data,
        statement_of,
        lambda data: number_of(data, "x"),
        lambda data: read_change_user(data, OFFERED),
    ):
        with suppress(InvalidRequest, ServerError):
            read(payload)


TYPES = st.lists(st.builds(BoundType, st.integers(0, 255), st.booleans()), max_size=9)


@given(st.binary(max_size=120), TYPES)
@MORE
def test_executions(data: bytes, types: list[BoundType]) -> None:
    count = len(types)
    head = b"\x17\1\0\0\0\0\1\0\0\0"
    named = b"\1" + b"".join(bytes((kind.number, 0x80 * kind.unsigned)) for kind in types)
    for payload in (head + data, head + bytes((count + 7) // 8) + named + data):
        try:
            found = read_execution(payload, count, tuple(types), {})
        except InvalidRequest:
            continue
        assert len(found.parameters) == count


WORDS = "SELECT SET SHOW KILL USE @@a @b 'x' `y` ( ) , = 1 AS - ; NAMES SESSION VARIABLES LIKE WHERE . LIMIT"
PIECES = st.sampled_from([*WORDS.split(), "/*!", "*/", "--", "'", "DATABASE()"])
KINDS = [StatementKind.QUERY, StatementKind.SET, StatementKind.SHOW, StatementKind.KILL, StatementKind.USE]


@given(st.one_of(st.lists(PIECES, max_size=20).map(" ".join), st.text(max_size=60)), st.sampled_from(KINDS))
@MORE
def test_statements_about_the_connection(text: str, kind: StatementKind) -> None:
    with suppress(ServerError):
        read_local(text, kind)
    placeholders(text)
    assert substitute(text, _itself) is not None


def _itself(expression: Any) -> str:
    return "NULL"
