"""Every error of ours has a number and a state."""

import pytest

from queryflux.model import errors
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.wire.mysql.errors import ServerError, to_mysql


def leaves(kind: type[QueryFluxError]) -> list[type[QueryFluxError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


@pytest.mark.parametrize(
    "kind", [kind for kind in leaves(QueryFluxError) if kind.__module__ == errors.__name__]
)
def test_every_leaf_is_mapped(kind: type[QueryFluxError]) -> None:
    mapped = to_mysql(kind("what failed", hint="what to do"))
    assert 1000 <= mapped.number < 5000
    assert len(mapped.sqlstate) == 5
    assert mapped.message == "what failed (what to do)"


@pytest.mark.parametrize("kind", EngineErrorKind)
def test_every_complaint_of_an_engine_is_mapped(kind: EngineErrorKind) -> None:
    mapped = to_mysql(EngineError("no", kind=kind))
    assert mapped.number >= 1000
    assert len(mapped.sqlstate) == 5
    assert (mapped.number == 1105) == (kind is EngineErrorKind.OTHER)


@pytest.mark.parametrize(
    ("error", "number", "sqlstate"),
    [
        (errors.AuthenticationFailed("no"), 1045, "28000"),
        (errors.AccessDenied("no"), 1227, "42000"),
        (errors.QueryCancelled("no"), 1317, "70100"),
        (errors.QueryTimedOut("no"), 3024, "HY000"),
        (errors.CapacityTimeout("no"), 1205, "HY000"),
        (errors.ShuttingDown("no"), 1053, "08S01"),
        (errors.TooManyConnections("no"), 1040, "08004"),
        (errors.StatementTooLarge("no"), 1153, "08S01"),
        (EngineError("no", kind=EngineErrorKind.TABLE_NOT_FOUND), 1146, "42S02"),
        (ServerError(1065, "no"), 1065, "42000"),
        (ServerError(1300, "no"), 1300, "HY000"),
    ],
)
def test_those_that_drivers_act_on(error: QueryFluxError, number: int, sqlstate: str) -> None:
    mapped = to_mysql(error)
    assert (mapped.number, mapped.sqlstate) == (number, sqlstate)
