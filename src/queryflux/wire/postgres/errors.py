"""From our error tree to SQLSTATE, and to ErrorResponse (manual, appendix A and "Error and Notice Message
Fields")."""

import struct
from typing import Final

from queryflux.model.errors import (
    EngineError,
    EngineErrorKind,
    InternalError,
    InvalidRequest,
    NoCapacity,
    QueryFluxError,
    Unavailable,
)
from queryflux.wire.postgres.constants import Back


class PostgresError(InvalidRequest):
    """An error of this door's own making that has a SQLSTATE of its own."""

    def __init__(self, message: str, sqlstate: str, *, hint: str = "", position: int | None = None) -> None:
        super().__init__(message, hint=hint, position=position)
        self.sqlstate = sqlstate


BY_CODE: Final[dict[str, str]] = {
    "INTERNAL": "XX000",
    "CONFIG": "F0000",
    "CONFIG_CONFLICT": "F0000",
    "AUTHENTICATION_FAILED": "28P01",
    "PLAINTEXT_CREDENTIALS_REFUSED": "28000",
    "ACCESS_DENIED": "42501",
    "INVALID_REQUEST": "22023",
    "PROTOCOL_VIOLATION": "08P01",
    "SYNTAX_ERROR": "42601",
    "STATEMENT_TOO_LARGE": "54000",
    "NOT_SUPPORTED": "0A000",
    "IN_FAILED_TRANSACTION": "25P02",
    "QUERY_NOT_FOUND": "42704",
    "UNAVAILABLE": "57P03",
    "NOT_CONFIGURED": "57P03",
    "SHUTTING_DOWN": "57P03",
    "QUEUE_FULL": "53300",
    "CAPACITY_TIMEOUT": "53300",
    "NO_CAPACITY": "53000",
    "STORE_UNAVAILABLE": "57P03",
    "TOO_MANY_CONNECTIONS": "53300",
    "ENGINE_ERROR": "XX000",
    "ENGINE_UNAVAILABLE": "08001",
    "ENGINE_CONNECTION_LOST": "08006",
    "CANCELLED": "57014",
    "TIMED_OUT": "57014",
    "ABANDONED": "57014",
}

BY_KIND: Final[dict[EngineErrorKind, str]] = {
    EngineErrorKind.SYNTAX: "42601",
    EngineErrorKind.TABLE_NOT_FOUND: "42P01",
    EngineErrorKind.COLUMN_NOT_FOUND: "42703",
    EngineErrorKind.FUNCTION_NOT_FOUND: "42883",
    EngineErrorKind.SCHEMA_NOT_FOUND: "3F000",
    EngineErrorKind.ALREADY_EXISTS: "42P07",
    EngineErrorKind.TYPE_MISMATCH: "42804",
    EngineErrorKind.INVALID_VALUE: "22P02",
    EngineErrorKind.OUT_OF_RANGE: "22003",
    EngineErrorKind.DIVISION_BY_ZERO: "22012",
    EngineErrorKind.CONSTRAINT: "23000",
    EngineErrorKind.SERIALIZATION: "40001",
    EngineErrorKind.PERMISSION: "42501",
    EngineErrorKind.READ_ONLY: "25006",
    EngineErrorKind.RESOURCES: "53200",
    EngineErrorKind.NOT_SUPPORTED: "0A000",
    EngineErrorKind.OTHER: "XX000",
}

CHANGED_RESULT = "cached plan must not change result type"
_CHANGED_RESULT_ROUTINE = "RevalidateCachedQuery"
"""Where PostgreSQL raises it. Drivers know it by that (asyncpg, pgjdbc), and prepare anew."""
INTERNAL_MESSAGE = "an internal error occurred; the log has the details"


def sqlstate_of(error: QueryFluxError) -> str:
    """The SQLSTATE a client sees: the engine's own where it has one."""
    if isinstance(error, PostgresError):
        return error.sqlstate
    if isinstance(error, EngineError):
        return error.sqlstate if len(error.sqlstate) == 5 else BY_KIND[error.kind]
    return BY_CODE[error.code]


def error_response(
    error: QueryFluxError, *, fatal: bool = False, query_id: str = "", offset: int = 0
) -> bytes:
    """An ErrorResponse. ``query_id`` is shown where a client may want to ask about it; ``offset`` says where
    the statement begins in the text the client sent, in characters."""
    fields = [
        ("S", "FATAL" if fatal else "ERROR"),
        ("V", "FATAL" if fatal else "ERROR"),
        ("C", sqlstate_of(error)),
        ("M", INTERNAL_MESSAGE if type(error) is InternalError else error.message),
    ]
    detail = error.detail if isinstance(error, EngineError) else ""
    if query_id and _wants_id(error):
        detail = f"{detail}\nQuery id: {query_id}".lstrip()
    if detail:
        fields.append(("D", detail))
    if error.hint:
        fields.append(("H", error.hint))
    if error.position is not None:
        fields.append(("P", str(error.position + offset + 1)))
    if error.message == CHANGED_RESULT:
        fields.append(("R", _CHANGED_RESULT_ROUTINE))
    return _fields(Back.ERROR, fields)


def _wants_id(error: QueryFluxError) -> bool:
    """A client's own slip explains itself; what needs an operator carries the id."""
    if isinstance(error, EngineError):
        return error.kind is EngineErrorKind.OTHER
    return isinstance(error, Unavailable | NoCapacity) or not isinstance(error, InvalidRequest)


def notice(severity: str, sqlstate: str, message: str) -> bytes:
    """A NoticeResponse (``WARNING``, ``NOTICE``)."""
    return _fields(Back.NOTICE, [("S", severity), ("V", severity), ("C", sqlstate), ("M", message)])


def _fields(kind: int, fields: list[tuple[str, str]]) -> bytes:
    body = b"".join(
        code.encode() + text.replace("\0", "").encode("utf-8", "replace") + b"\0" for code, text in fields
    )
    return b"%c%b%b\0" % (kind, struct.pack("!I", len(body) + 5), body)
