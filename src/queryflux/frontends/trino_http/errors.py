"""From our error tree to Trino's standard errors."""

from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError
from queryflux.wire.trino.codes import NUMBERS
from queryflux.wire.trino.documents import error as error_document

BY_CODE = {
    "INTERNAL": "GENERIC_INTERNAL_ERROR",
    "CONFIG": "CONFIGURATION_INVALID",
    "CONFIG_CONFLICT": "CONFIGURATION_INVALID",
    "AUTHENTICATION_FAILED": "PERMISSION_DENIED",
    "PLAINTEXT_CREDENTIALS_REFUSED": "PERMISSION_DENIED",
    "ACCESS_DENIED": "PERMISSION_DENIED",
    "INVALID_REQUEST": "GENERIC_USER_ERROR",
    "PROTOCOL_VIOLATION": "GENERIC_USER_ERROR",
    "SYNTAX_ERROR": "SYNTAX_ERROR",
    "STATEMENT_TOO_LARGE": "QUERY_TEXT_TOO_LARGE",
    "NOT_SUPPORTED": "NOT_SUPPORTED",
    "IN_FAILED_TRANSACTION": "TRANSACTION_ALREADY_ABORTED",
    "QUERY_NOT_FOUND": "NOT_FOUND",
    "UNAVAILABLE": "NO_NODES_AVAILABLE",
    "NOT_CONFIGURED": "SERVER_STARTING_UP",
    "SHUTTING_DOWN": "SERVER_SHUTTING_DOWN",
    "QUEUE_FULL": "QUERY_QUEUE_FULL",
    "CAPACITY_TIMEOUT": "EXCEEDED_TIME_LIMIT",
    "NO_CAPACITY": "QUERY_REJECTED",
    "STORE_UNAVAILABLE": "GENERIC_INTERNAL_ERROR",
    "TOO_MANY_CONNECTIONS": "GENERIC_INSUFFICIENT_RESOURCES",
    "ENGINE_ERROR": "GENERIC_USER_ERROR",
    "ENGINE_UNAVAILABLE": "NO_NODES_AVAILABLE",
    "ENGINE_CONNECTION_LOST": "REMOTE_HOST_GONE",
    "CANCELLED": "USER_CANCELED",
    "TIMED_OUT": "EXCEEDED_TIME_LIMIT",
    "ABANDONED": "ABANDONED_QUERY",
}

BY_KIND = {
    EngineErrorKind.SYNTAX: "SYNTAX_ERROR",
    EngineErrorKind.TABLE_NOT_FOUND: "TABLE_NOT_FOUND",
    EngineErrorKind.COLUMN_NOT_FOUND: "COLUMN_NOT_FOUND",
    EngineErrorKind.FUNCTION_NOT_FOUND: "FUNCTION_NOT_FOUND",
    EngineErrorKind.SCHEMA_NOT_FOUND: "SCHEMA_NOT_FOUND",
    EngineErrorKind.ALREADY_EXISTS: "ALREADY_EXISTS",
    EngineErrorKind.TYPE_MISMATCH: "TYPE_MISMATCH",
    EngineErrorKind.INVALID_VALUE: "INVALID_CAST_ARGUMENT",
    EngineErrorKind.OUT_OF_RANGE: "NUMERIC_VALUE_OUT_OF_RANGE",
    EngineErrorKind.DIVISION_BY_ZERO: "DIVISION_BY_ZERO",
    EngineErrorKind.CONSTRAINT: "CONSTRAINT_VIOLATION",
    EngineErrorKind.SERIALIZATION: "TRANSACTION_CONFLICT",
    EngineErrorKind.PERMISSION: "PERMISSION_DENIED",
    EngineErrorKind.READ_ONLY: "READ_ONLY_VIOLATION",
    EngineErrorKind.RESOURCES: "GENERIC_INSUFFICIENT_RESOURCES",
    EngineErrorKind.NOT_SUPPORTED: "NOT_SUPPORTED",
    EngineErrorKind.OTHER: "GENERIC_USER_ERROR",
}


class TrinoError(QueryFluxError):
    """An error of Trino's own that the tree has no leaf for, by its standard name."""

    code = "INVALID_REQUEST"

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def standard_name(error: QueryFluxError) -> str:
    """The name in Trino's StandardErrorCode that stands for an error."""
    if isinstance(error, TrinoError):
        return error.name
    if isinstance(error, EngineError):
        return error.name if error.name in NUMBERS else BY_KIND[error.kind]
    return BY_CODE[error.code]


def location(text: str, position: int) -> tuple[int, int]:
    """Line and column, from 1, of a character of the statement."""
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


def message_of(error: QueryFluxError) -> str:
    """What the client reads: what is wrong, then what to do."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def document(error: QueryFluxError, text: str = "") -> bytes:
    """The ``error`` of a failed query's page. ``text`` is its statement."""
    where = None
    message = message_of(error)
    if error.position is not None and 0 <= error.position <= len(text):
        where = location(text, error.position)
        if not message.startswith("line "):
            message = f"line {where[0]}:{where[1]}: {message}"
    kind = f"queryflux.{type(error).__name__}"
    return error_document(standard_name(error), message, location=where, kind=kind)
