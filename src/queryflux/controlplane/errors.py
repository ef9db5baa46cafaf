"""How a failure looks to an operator: one problem document (RFC 9457) with a stable ``code``."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.responses import JSONResponse

from queryflux.config.problems import ConfigProblems, Problem
from queryflux.model.errors import (
    AccessDenied,
    AuthenticationFailed,
    ConfigError,
    InvalidRequest,
    NoCapacity,
    QueryFluxError,
    QueryNotFound,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"


class Refused(QueryFluxError):
    """A request of an operator that is not done. ``status`` is the answer's, ``headers`` are sent with it."""

    status: ClassVar[HTTPStatus] = HTTPStatus.BAD_REQUEST
    code = "INVALID_REQUEST"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)
        self.headers = dict(headers or {})


class NotThere(Refused):
    """Nothing has that name, or the path leads nowhere."""

    status = HTTPStatus.NOT_FOUND
    code = "NOT_FOUND"


class NameTaken(Refused):
    """Something else has the new name already."""

    status = HTTPStatus.CONFLICT
    code = "NAME_TAKEN"


class InUse(Refused):
    """What was to be deleted is still referred to."""

    status = HTTPStatus.CONFLICT
    code = "IN_USE"


class NotServed(Refused):
    """It is stored, and this version can make nothing of it: it is not this version's to change."""

    status = HTTPStatus.CONFLICT
    code = "NOT_SERVED"


class StoredUnsound(Refused):
    """What is stored already is not sound, and this request neither made it so nor mends it."""

    status = HTTPStatus.CONFLICT
    code = "STORED_CONFIG"


class Changed(Refused):
    """Somebody else has changed the configuration meanwhile."""

    status = HTTPStatus.CONFLICT
    code = "CONFIG_CHANGED"


class TooLarge(Refused):
    """The body is over its limit."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "TOO_LARGE"


class InstanceTaken(Refused):
    """A worker says that it is the process that it calls: what it gives back would be that one's."""

    status = HTTPStatus.CONFLICT
    code = "INSTANCE_ID_TAKEN"


def check_instance(instance: str, own: str) -> None:
    """Raises InstanceTaken when a worker's instance id is ``own``, that of this process."""
    if instance == own:
        raise InstanceTaken(
            f"{instance!r} is the instance id of this control plane itself",
            hint="give the worker an instanceId of its own, or none",
        )


class NotJson(Refused):
    """The body is of another media type."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "NOT_JSON"


class TooSlow(Refused):
    """The body did not come in time."""

    status = HTTPStatus.REQUEST_TIMEOUT
    code = "TOO_SLOW"


class NotPlain(Refused):
    """The body is compressed, or of another encoding."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "NOT_PLAIN"


class NoSuchMethod(Refused):
    """The path is there, and cannot be used this way."""

    status = HTTPStatus.METHOD_NOT_ALLOWED
    code = "METHOD_NOT_ALLOWED"


class DefaultPassword(Refused):
    """The default password opens the door only to this machine."""

    status = HTTPStatus.FORBIDDEN
    code = "DEFAULT_PASSWORD"


class TooManyAttempts(Refused):
    """This peer has been wrong too often."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "TOO_MANY_ATTEMPTS"


STATUSES: tuple[tuple[type[QueryFluxError], HTTPStatus], ...] = (
    (AuthenticationFailed, HTTPStatus.UNAUTHORIZED),
    (AccessDenied, HTTPStatus.FORBIDDEN),
    (QueryNotFound, HTTPStatus.NOT_FOUND),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (InvalidRequest, HTTPStatus.BAD_REQUEST),
    (NoCapacity, HTTPStatus.SERVICE_UNAVAILABLE),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""For errors of other rooms; the first that fits, else 500."""


def status_of(error: QueryFluxError) -> HTTPStatus:
    """The status of the answer."""
    if isinstance(error, Refused):
        return error.status
    found = (status for kind, status in STATUSES if isinstance(error, kind))
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def problem_response(error: QueryFluxError) -> JSONResponse:
    """The answer for ``error``."""
    status = status_of(error)
    headers = error.headers if isinstance(error, Refused) else {}
    return JSONResponse(problem_document(error), status, headers=headers, media_type=MEDIA_TYPE)


def problem_document(error: QueryFluxError) -> dict[str, Any]:
    """``title`` and ``status`` for machines that know only RFC 9457; ``code`` and ``problems`` for others."""
    status = status_of(error)
    problems: Sequence[Problem] = ()
    detail = error.message
    if isinstance(error, ConfigProblems):
        problems = error.problems
        count = len(problems)
        detail = f"the configuration would have {count} problem{'s' * (count != 1)}; nothing was changed"
    elif isinstance(error, Refused):
        problems = error.problems
    document: dict[str, Any] = {
        "title": status.phrase,
        "status": status.value,
        "code": error.code,
        "detail": detail,
        "problems": [{"path": it.path, "message": it.message, "hint": it.hint} for it in problems],
    }
    if error.hint:
        document["hint"] = error.hint
    return document
