"""Our error tree as gRPC statuses.

pyarrow has Flight errors for some statuses; the others follow from Python's own exception types, and then
pyarrow puts the whole traceback into the message that goes to the client. An exception that cannot be
formatted shows the name of its class instead, which is what the three classes here are for.
"""

import pyarrow as pa
import pyarrow.flight as flight

from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError


class _WithoutTraceback:
    @property
    def __cause__(self) -> None:
        raise AttributeError("not for clients")


class InvalidArgument(_WithoutTraceback, pa.ArrowInvalid):  # type: ignore[misc]
    """gRPC INVALID_ARGUMENT."""


class NotFound(_WithoutTraceback, pa.ArrowKeyError):  # type: ignore[misc]
    """gRPC NOT_FOUND."""

    def __str__(self) -> str:
        return str(self.args[0])


class Unimplemented(_WithoutTraceback, NotImplementedError):  # type: ignore[misc]
    """gRPC UNIMPLEMENTED."""


Status = type[Exception]

BY_CODE: dict[str, Status] = {
    "INTERNAL": flight.FlightInternalError,
    "CONFIG": flight.FlightInternalError,
    "CONFIG_CONFLICT": flight.FlightInternalError,
    "AUTHENTICATION_FAILED": flight.FlightUnauthenticatedError,
    "PLAINTEXT_CREDENTIALS_REFUSED": flight.FlightUnauthenticatedError,
    "ACCESS_DENIED": flight.FlightUnauthorizedError,
    "INVALID_REQUEST": InvalidArgument,
    "PROTOCOL_VIOLATION": InvalidArgument,
    "SYNTAX_ERROR": InvalidArgument,
    "STATEMENT_TOO_LARGE": InvalidArgument,
    "NOT_SUPPORTED": Unimplemented,
    "IN_FAILED_TRANSACTION": InvalidArgument,
    "QUERY_NOT_FOUND": NotFound,
    "UNAVAILABLE": flight.FlightUnavailableError,
    "NOT_CONFIGURED": flight.FlightUnavailableError,
    "SHUTTING_DOWN": flight.FlightUnavailableError,
    "QUEUE_FULL": flight.FlightUnavailableError,
    "CAPACITY_TIMEOUT": flight.FlightUnavailableError,
    "TOO_MANY_CONNECTIONS": flight.FlightUnavailableError,
    "STORE_UNAVAILABLE": flight.FlightUnavailableError,
    "NO_CAPACITY": flight.FlightServerError,
    "ENGINE_ERROR": flight.FlightServerError,
    "ENGINE_UNAVAILABLE": flight.FlightUnavailableError,
    "ENGINE_CONNECTION_LOST": flight.FlightServerError,
    "CANCELLED": flight.FlightCancelledError,
    "TIMED_OUT": flight.FlightTimedOutError,
    "ABANDONED": flight.FlightCancelledError,
}
"""Every code of model/errors.py; a test holds the two together."""

BY_KIND: dict[EngineErrorKind, Status] = {
    EngineErrorKind.SYNTAX: InvalidArgument,
    EngineErrorKind.TABLE_NOT_FOUND: NotFound,
    EngineErrorKind.COLUMN_NOT_FOUND: InvalidArgument,
    EngineErrorKind.FUNCTION_NOT_FOUND: InvalidArgument,
    EngineErrorKind.SCHEMA_NOT_FOUND: NotFound,
    EngineErrorKind.ALREADY_EXISTS: InvalidArgument,
    EngineErrorKind.TYPE_MISMATCH: InvalidArgument,
    EngineErrorKind.INVALID_VALUE: InvalidArgument,
    EngineErrorKind.OUT_OF_RANGE: InvalidArgument,
    EngineErrorKind.DIVISION_BY_ZERO: InvalidArgument,
    EngineErrorKind.CONSTRAINT: InvalidArgument,
    EngineErrorKind.SERIALIZATION: flight.FlightUnavailableError,
    EngineErrorKind.PERMISSION: flight.FlightUnauthorizedError,
    EngineErrorKind.READ_ONLY: InvalidArgument,
    EngineErrorKind.RESOURCES: flight.FlightServerError,
    EngineErrorKind.NOT_SUPPORTED: Unimplemented,
    EngineErrorKind.OTHER: flight.FlightServerError,
}
"""What an engine complained about; SERIALIZATION is the one that a retry may cure."""


STATUSES: dict[str, Status] = {status.__name__: status for status in {*BY_CODE.values(), *BY_KIND.values()}}
"""Every status by its name."""


class ToldElsewhere(QueryFluxError):
    """An error of another process, which has chosen the status."""

    def __init__(self, message: str, status: Exception) -> None:
        super().__init__(message)
        self.status = status


def text_of(error: QueryFluxError) -> str:
    """What a client is shown of an error."""
    return f"{error.message}\nHint: {error.hint}" if error.hint else error.message


def to_status(error: QueryFluxError) -> Exception:
    """The exception that makes pyarrow send the status and message for ``error``."""
    text = text_of(error)
    if isinstance(error, ToldElsewhere):
        return error.status
    if isinstance(error, EngineError):
        return BY_KIND[error.kind](text)
    return BY_CODE[error.code](text)
