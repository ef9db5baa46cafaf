import inspect

import pytest

from queryflux.model import errors as tree
from queryflux.model.errors import (
    EngineError,
    EngineErrorKind,
    InternalError,
    QueryCancelled,
    QueryFluxError,
    SqlSyntaxError,
)
from queryflux.wire.postgres.errors import BY_CODE, BY_KIND, error_response, sqlstate_of


def fields(response: bytes) -> dict[str, str]:
    assert int.from_bytes(response[1:5]) == len(response) - 1
    return {part[:1].decode(): part[1:].decode() for part in response[5:].split(b"\0") if part}


LEAVES = [kind for _, kind in inspect.getmembers(tree, inspect.isclass) if issubclass(kind, QueryFluxError)]


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: kind.__name__)
def test_every_error_of_the_tree_has_a_sqlstate(kind: type[QueryFluxError]) -> None:
    state = sqlstate_of(kind("m"))
    assert len(state) == 5
    assert state == BY_CODE[kind.code]


@pytest.mark.parametrize("kind", EngineErrorKind)
def test_every_kind_of_engine_error_has_a_sqlstate(kind: EngineErrorKind) -> None:
    assert sqlstate_of(EngineError("m", kind=kind)) == BY_KIND[kind]


def test_the_engines_own_sqlstate_wins() -> None:
    assert sqlstate_of(EngineError("m", kind=EngineErrorKind.SYNTAX, sqlstate="42P02")) == "42P02"


def test_the_whole_response() -> None:
    error = SqlSyntaxError("no", hint="do", position=4)
    assert fields(error_response(error, offset=10)) == {
        "S": "ERROR", "V": "ERROR", "C": "42601", "M": "no", "H": "do", "P": "15",
    }  # fmt: skip


def test_a_fatal_one() -> None:
    assert fields(error_response(QueryCancelled("c"), fatal=True))["S"] == "FATAL"


def test_the_query_id_is_shown_where_an_operator_is_needed() -> None:
    assert fields(error_response(EngineError("x", detail="d"), query_id="q1"))["D"] == "d\nQuery id: q1"
    assert "D" not in fields(error_response(SqlSyntaxError("x"), query_id="q1"))


def test_internals_stay_in_the_log() -> None:
    shown = fields(error_response(InternalError("secret detail"), query_id="q1"))
    assert "secret" not in shown["M"]
    assert shown["D"] == "Query id: q1"


def test_a_zero_byte_in_a_message_does_not_end_it() -> None:
    assert fields(error_response(QueryFluxError("a\0b")))["M"] == "ab"
