"""Every error has a status, and no status carries a traceback."""

import traceback

import pytest

from queryflux.frontends.flight_sql import errors
from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError


def every(kind: type[QueryFluxError]) -> list[type[QueryFluxError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in every(child))]


def test_every_code_and_every_kind_has_a_status() -> None:
    ours = {kind.code for kind in every(QueryFluxError) if kind.__module__ == "queryflux.model.errors"}
    assert ours == set(errors.BY_CODE)
    assert set(EngineErrorKind) == set(errors.BY_KIND)


@pytest.mark.parametrize("kind", EngineErrorKind)
def test_the_message_and_the_hint_are_shown(kind: EngineErrorKind) -> None:
    status = errors.to_status(EngineError("no table t", kind=kind, hint="create it"))
    assert str(status) == "no table t\nHint: create it"


@pytest.mark.parametrize("status", [errors.InvalidArgument, errors.NotFound, errors.Unimplemented])
def test_what_pyarrow_would_format_cannot_be_formatted(status: type[Exception]) -> None:
    with pytest.raises(status) as raised:
        raise status("said to the client")
    error = raised.value
    with pytest.raises(AttributeError):
        traceback.format_exception(type(error), error, error.__traceback__)
