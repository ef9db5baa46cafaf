"""The one error tree. The type says whose fault it is, ``code`` is stable, ``retryable`` says a retry is
safe.

Each door has one table from ``code`` (and, for EngineError, ``kind``) to its protocol's own error.
"""

from enum import StrEnum
from typing import ClassVar


class EngineErrorKind(StrEnum):
    """What an engine complained about, as far as its own code tells; doors map it to their protocol's
    code."""

    SYNTAX = "syntax"
    TABLE_NOT_FOUND = "tableNotFound"
    COLUMN_NOT_FOUND = "columnNotFound"
    FUNCTION_NOT_FOUND = "functionNotFound"
    SCHEMA_NOT_FOUND = "schemaNotFound"
    ALREADY_EXISTS = "alreadyExists"
    TYPE_MISMATCH = "typeMismatch"
    INVALID_VALUE = "invalidValue"
    OUT_OF_RANGE = "outOfRange"
    DIVISION_BY_ZERO = "divisionByZero"
    CONSTRAINT = "constraint"
    SERIALIZATION = "serialization"
    PERMISSION = "permission"
    READ_ONLY = "readOnly"
    RESOURCES = "resources"
    NOT_SUPPORTED = "notSupported"
    OTHER = "other"


class QueryFluxError(Exception):
    """Root of everything we raise on purpose. ``message`` is fit for a client; internals stay in the log."""

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", position: int | None = None) -> None:
        """``hint`` says what to do; ``position`` is a 0-based character offset in the client's SQL."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position


class InternalError(QueryFluxError):
    """A fault of ours. The client sees a plain sentence and the query id."""


class ConfigError(QueryFluxError):
    """The configuration cannot be used."""

    code = "CONFIG"


class ConfigConflict(QueryFluxError):
    """Somebody else has changed the stored configuration in between; nothing was written."""

    code = "CONFIG_CONFLICT"
    retryable = True


# The client's fault.


class AuthenticationFailed(QueryFluxError):
    """Wrong or missing credentials."""

    code = "AUTHENTICATION_FAILED"


class PlaintextCredentialsRefused(AuthenticationFailed):
    """A password was about to travel in clear."""

    code = "PLAINTEXT_CREDENTIALS_REFUSED"


class AccessDenied(QueryFluxError):
    """A routing rule or an allow-list says no."""

    code = "ACCESS_DENIED"


class InvalidRequest(QueryFluxError):
    """The request cannot be understood or is out of place."""

    code = "INVALID_REQUEST"


class ProtocolViolation(InvalidRequest):
    """Bytes that the client's protocol does not allow here."""

    code = "PROTOCOL_VIOLATION"


class SqlSyntaxError(InvalidRequest):
    """SQL that does not parse; raised by us in strict translation only."""

    code = "SYNTAX_ERROR"


class StatementTooLarge(InvalidRequest):
    """The statement is over ``maxStatementBytes``."""

    code = "STATEMENT_TOO_LARGE"


class NotSupported(InvalidRequest):
    """A feature that this door or this engine does not have."""

    code = "NOT_SUPPORTED"


class TransactionFailed(InvalidRequest):
    """A statement in a transaction that has already failed."""

    code = "IN_FAILED_TRANSACTION"


class QueryNotFound(InvalidRequest):
    """An id that names no query we know (any more)."""

    code = "QUERY_NOT_FOUND"


# Nobody's fault: there is no room, or nothing to run on, just now.


class Unavailable(QueryFluxError):
    """Nothing can run the query now; a retry is safe, since nothing was started."""

    code = "UNAVAILABLE"
    retryable = True


class NotConfigured(Unavailable):
    """No configuration is active yet."""

    code = "NOT_CONFIGURED"


class ShuttingDown(Unavailable):
    """This process is draining."""

    code = "SHUTTING_DOWN"


class QueueFull(Unavailable):
    """``maxQueuedQueries`` are waiting already."""

    code = "QUEUE_FULL"


class CapacityTimeout(Unavailable):
    """The query waited ``capacityWaitTimeoutSecs`` for room."""

    code = "CAPACITY_TIMEOUT"


class NoCapacity(QueryFluxError):
    """``maxRunningQueries`` is 0: nothing runs on this cluster."""

    code = "NO_CAPACITY"


class TooManyConnections(Unavailable):
    """``maxConnections`` of a listener is reached."""

    code = "TOO_MANY_CONNECTIONS"


# The engine's side.


class EngineError(QueryFluxError):
    """The engine refused or failed the query."""

    code = "ENGINE_ERROR"

    def __init__(
        self,
        message: str,
        *,
        kind: EngineErrorKind = EngineErrorKind.OTHER,
        sqlstate: str = "",
        name: str = "",
        number: int | None = None,
        hint: str = "",
        position: int | None = None,
        detail: str = "",
    ) -> None:
        """``sqlstate``, ``name`` and ``number`` are the engine's own codes where it has them."""
        super().__init__(message, hint=hint, position=position)
        self.kind = kind
        self.sqlstate = sqlstate
        self.name = name
        self.number = number
        self.detail = detail


class EngineUnavailable(QueryFluxError):
    """The engine cannot be reached, or went away before it had taken the query."""

    code = "ENGINE_UNAVAILABLE"
    retryable = True


class EngineConnectionLost(QueryFluxError):
    """The engine went away, or answered garbage, after it had taken the query."""

    code = "ENGINE_CONNECTION_LOST"


# Endings that somebody or some limit asked for.


class QueryEnded(QueryFluxError):
    """The query was stopped before it was done."""

    code = "CANCELLED"


class QueryCancelled(QueryEnded):
    """Somebody cancelled it."""


class QueryTimedOut(QueryEnded):
    """It ran longer than ``queryTimeoutSecs``, or than its client allows."""

    code = "TIMED_OUT"


class QueryAbandoned(QueryEnded):
    """Its client stopped asking for results."""

    code = "ABANDONED"


class QueryTakenOver(QueryEnded):
    """Another process answers for it now. No client sees this."""


# What QueryFlux keeps about itself.


class StoreUnavailable(Unavailable):
    """A store cannot be asked just now; whether the call was done is unknown. ``message`` says why: it cannot
    be reached, no connection was free in time, a statement took too long, it is read-only, ..."""

    code = "STORE_UNAVAILABLE"
    busy: ClassVar[bool] = False
    """The call did not get as far as the store, which may well answer others."""


class SchemaRefused(ConfigError):
    """The tables of a database are not such that this version can use them, or bring them up to date."""


class RecordsRefused(InternalError):
    """The history store cannot take a record of a batch, whenever it is sent: its values do not fit. Nothing
    of the batch was stored. No client sees this."""
