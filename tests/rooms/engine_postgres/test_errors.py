"""PostgreSQL's errors as ours, and what may be tried again."""

import pytest

from queryflux.engines.postgres.errors import engine_error, kind_of, plan_is_stale
from queryflux.model.errors import EngineConnectionLost, EngineError, EngineErrorKind
from queryflux.wire.postgres.client import ServerError

K = EngineErrorKind


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("42601", K.SYNTAX),
        ("42P01", K.TABLE_NOT_FOUND),
        ("42P02", K.SYNTAX),
        ("22P02", K.INVALID_VALUE),
        ("22003", K.OUT_OF_RANGE),
        ("23505", K.CONSTRAINT),
        ("25006", K.READ_ONLY),
        ("40001", K.SERIALIZATION),
        ("53300", K.RESOURCES),
        ("0A000", K.NOT_SUPPORTED),
        ("P0001", K.OTHER),
        ("", K.OTHER),
    ],
)
def test_kinds(sqlstate: str, kind: EngineErrorKind) -> None:
    assert kind_of(sqlstate) is kind


def test_everything_is_kept() -> None:
    error = engine_error(ServerError("ERROR", "42703", "no column", "detail", "hint", 8))
    assert isinstance(error, EngineError)
    assert (error.message, error.sqlstate, error.detail, error.hint) == (
        "no column",
        "42703",
        "detail",
        "hint",
    )
    assert error.position == 7
    assert engine_error(ServerError("ERROR", "42703", "x")).position is None


def test_a_fatal_error_ends_the_connection() -> None:
    error = engine_error(ServerError("FATAL", "57P01", "terminating connection"))
    assert isinstance(error, EngineConnectionLost)
    assert "57P01" in error.message
    assert not error.retryable


def test_stale_plans() -> None:
    assert plan_is_stale(ServerError("ERROR", "26000", "prepared statement does not exist"))
    assert plan_is_stale(ServerError("ERROR", "0A000", "cached plan must not change result type"))
    assert not plan_is_stale(ServerError("ERROR", "0A000", "not implemented"))
