"""What drivers send in one piece: recognised when it is that to the last byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter
from queryflux.wire.postgres import client as wire
from queryflux.wire.postgres import messages
from queryflux.wire.postgres.constants import Front, Oid
from queryflux.wire.postgres.shapes import execution_alone, query_alone
from queryflux.wire.postgres.types import UnreadParameters
from tests.rooms.frontends_postgres.raw_client import (
    FLUSH,
    SYNC,
    bind,
    describe,
    execute,
    front,
    parse,
    query,
)

BIND = bind(b"7", None, statement="s", formats=(0,), results=(0, 1))


def test_a_query_alone() -> None:
    assert query_alone(query("select 'ä'")) == "select 'ä'"
    assert query_alone(query("")) == ""


@pytest.mark.parametrize(
    "data",
    [
        b"Q",
        query("select 1")[:-1],
        query("select 1") + b"Q",
        query("select 1") * 2,
        front("Q", b"select 1"),
        front("Q", b"select\0 1\0"),
        front("Q", b"select '\xff'\0"),
        query("x" * messages.SMALL_MESSAGE),
        b"Q\xff\xff\xff\xffselect 1\0",
    ],
)
def test_what_is_not_a_query_alone(data: bytes) -> None:
    assert query_alone(data) is None


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("name", ["s", "", "P0_1", "ä"])
def test_an_execution_alone(name: str, described: bool) -> None:
    message = bind(b"7", None, statement=name, formats=(0,), results=(0, 1))
    data = message + describe() * described + execute() + SYNC
    found = execution_alone(data)
    assert found is not None
    assert (found[0], found[3]) == (name, described)
    rest, size = data[found[1] :], found[2]
    assert messages.bound(rest[:size]) == ((0,), (b"7", None), (0, 1))
    again = wire.bind_to(b"other", rest, size)
    decoder = messages.Decoder(1000)
    decoder.feed(again)
    kind, body = decoder.next() or (0, None)
    assert kind == Front.BIND
    assert body is not None
    assert messages.bind(body) == messages.Bind("", "other", (0,), (b"7", None), (0, 1))
    assert again.endswith(describe() * described + execute() + SYNC)


@pytest.mark.parametrize(
    "data",
    [
        b"B",
        BIND,
        BIND + execute(),
        BIND + execute() + FLUSH,
        BIND + execute() + SYNC + SYNC,
        BIND + execute(limit=1) + SYNC,
        BIND + describe() + SYNC,
        BIND + execute("p") + SYNC,
        BIND + describe("S") + execute() + SYNC,
        bind(portal="p", statement="s") + execute() + SYNC,
        bind(statement="s") + BIND + execute() + SYNC,
        (BIND + execute() + SYNC)[:-1],
        b"B\0\0\0\0" + execute() + SYNC,
        b"B\xff\xff\xff\xff" + execute() + SYNC,
        front("B", b"\0s") + execute() + SYNC,
        front("B", b"\0\xff\0" + b"\0" * 6) + execute() + SYNC,
        bind(b"x" * messages.SMALL_MESSAGE, statement="s") + execute() + SYNC,
        bind(b"7" + describe() + execute() + SYNC, statement="s"),
    ],
)
def test_what_is_not_an_execution_alone(data: bytes) -> None:
    assert execution_alone(data) is None


PIECES = st.sampled_from(
    [
        *(BIND, bind(), bind(statement="t"), describe(), execute(), execute(limit=2), SYNC, FLUSH),
        *(parse("select 1"), query("select 1"), query("a;b"), b"\0", b"Q\0\0\0\5", b"B\0\0\0\6\0"),
    ]
)


@given(st.lists(PIECES, min_size=1, max_size=5).map(b"".join), st.integers(0, 3))
def test_what_is_recognised_is_what_the_decoder_finds(data: bytes, cut: int) -> None:
    data = data[: len(data) - cut]
    text = query_alone(data) if data[:1] == b"Q" else None
    found = execution_alone(data) if data[:1] == b"B" else None
    if text is None and found is None:
        return
    decoder = messages.Decoder(1000)
    decoder.feed(data)
    seen = []
    while (message := decoder.next()) is not None:
        seen.append(message)
    assert decoder.empty
    if text is not None:
        assert [(kind, messages.query(body or b"")) for kind, body in seen] == [(Front.QUERY, text)]
        return
    assert found is not None
    kinds = bytes(kind for kind, _ in seen)
    assert kinds == (b"BDES" if found[3] else b"BES")
    try:
        bound = messages.bind(seen[0][1] or b"")
    except InvalidRequest:
        return  # damaged inside: whoever takes it apart says so
    assert (bound.portal, bound.statement) == ("", found[0])
    assert messages.execute(seen[-2][1] or b"") == ("", 0)


def test_parameters_that_nobody_has_read() -> None:
    rest = BIND[8:]
    parameters = UnreadParameters(rest, lambda: (Oid.INT4, Oid.TEXT))
    assert parameters
    assert list(parameters) == [Parameter(7, "integer"), Parameter(None, "text")]
    assert len(parameters) == 2
    assert not UnreadParameters(bind()[7:], tuple)


@pytest.mark.parametrize(
    "rest", [b"", b"\0\0\0\1\0\0\0\5ab", b"\0\2\0\1", b"\0\0\0\0\0\0x", b"\0\1\0\7\0\0\0\0"]
)
def test_parameters_that_are_damaged(rest: bytes) -> None:
    parameters = UnreadParameters(rest, tuple)
    with pytest.raises(InvalidRequest):
        list(parameters)
