"""Our errors as MySQL's: a number, an SQLSTATE and a message (MySQL Error Message Reference, server errors).

Drivers act on these: 1317 and 3024 are endings, 1205 and 1213 may be tried again, 1045 and 1049 are the
user's to mend, and SQLSTATE class 08 makes a pool drop the connection.
"""

from dataclasses import dataclass
from typing import Final

from queryflux.model.errors import EngineError, EngineErrorKind, QueryFluxError


@dataclass(frozen=True, slots=True)
class MySqlError:
    """What an ERR packet carries."""

    number: int
    sqlstate: str
    message: str


class ServerError(QueryFluxError):
    """An error that MySQL has and our tree has no leaf for; raised by this door only."""

    code = "INVALID_REQUEST"

    def __init__(self, number: int, message: str, *, hint: str = "", sqlstate: str = "") -> None:
        """Without ``sqlstate`` that of ``number``."""
        super().__init__(message, hint=hint)
        self.number = number
        self.sqlstate = sqlstate or _STATES.get(number, "HY000")


TOO_MANY_CONNECTIONS: Final = 1040
ACCESS_DENIED: Final = 1045
NO_DATABASE: Final = 1046
UNKNOWN_COMMAND: Final = 1047
SHUTDOWN: Final = 1053
SYNTAX: Final = 1064
EMPTY_QUERY: Final = 1065
UNKNOWN_THREAD: Final = 1094
NOT_OWNER: Final = 1095
UNKNOWN: Final = 1105
UNKNOWN_CHARACTER_SET: Final = 1115
PACKET_TOO_LARGE: Final = 1153
OUT_OF_ORDER: Final = 1156
NEEDS_PRIVILEGE: Final = 1227
WRONG_VALUE: Final = 1231
NOT_SUPPORTED: Final = 1235
READ_ONLY_VARIABLE: Final = 1238
UNKNOWN_STATEMENT: Final = 1243
BAD_STRING: Final = 1300
INTERRUPTED: Final = 1317
TOO_MANY_STATEMENTS: Final = 1461
MALFORMED: Final = 1835
TIMED_OUT: Final = 3024

_STATES = {
    TOO_MANY_CONNECTIONS: "08004",
    ACCESS_DENIED: "28000",
    NO_DATABASE: "3D000",
    UNKNOWN_COMMAND: "08S01",
    SHUTDOWN: "08S01",
    SYNTAX: "42000",
    EMPTY_QUERY: "42000",
    UNKNOWN_CHARACTER_SET: "42000",
    PACKET_TOO_LARGE: "08S01",
    OUT_OF_ORDER: "08S01",
    NEEDS_PRIVILEGE: "42000",
    WRONG_VALUE: "42000",
    NOT_SUPPORTED: "42000",
    INTERRUPTED: "70100",
    TOO_MANY_STATEMENTS: "42000",
}
"""Every other number goes with HY000."""

_BY_CODE: dict[str, tuple[int, str]] = {
    "INTERNAL": (UNKNOWN, "HY000"),
    "CONFIG": (UNKNOWN, "HY000"),
    "CONFIG_CONFLICT": (UNKNOWN, "HY000"),
    "AUTHENTICATION_FAILED": (ACCESS_DENIED, "28000"),
    "PLAINTEXT_CREDENTIALS_REFUSED": (ACCESS_DENIED, "28000"),
    "ACCESS_DENIED": (NEEDS_PRIVILEGE, "42000"),
    "INVALID_REQUEST": (UNKNOWN, "HY000"),
    "PROTOCOL_VIOLATION": (MALFORMED, "HY000"),
    "SYNTAX_ERROR": (SYNTAX, "42000"),
    "STATEMENT_TOO_LARGE": (PACKET_TOO_LARGE, "08S01"),
    "NOT_SUPPORTED": (NOT_SUPPORTED, "42000"),
    "IN_FAILED_TRANSACTION": (UNKNOWN, "25000"),
    "QUERY_NOT_FOUND": (UNKNOWN_THREAD, "HY000"),
    "UNAVAILABLE": (UNKNOWN, "HY000"),
    "NOT_CONFIGURED": (SHUTDOWN, "08S01"),
    "SHUTTING_DOWN": (SHUTDOWN, "08S01"),
    "QUEUE_FULL": (1226, "42000"),
    "CAPACITY_TIMEOUT": (1205, "HY000"),
    "NO_CAPACITY": (1226, "42000"),
    "STORE_UNAVAILABLE": (UNKNOWN, "HY000"),
    "TOO_MANY_CONNECTIONS": (TOO_MANY_CONNECTIONS, "08004"),
    "ENGINE_ERROR": (UNKNOWN, "HY000"),
    "ENGINE_UNAVAILABLE": (1429, "HY000"),
    "ENGINE_CONNECTION_LOST": (UNKNOWN, "HY000"),
    "CANCELLED": (INTERRUPTED, "70100"),
    "TIMED_OUT": (TIMED_OUT, "HY000"),
    "ABANDONED": (INTERRUPTED, "70100"),
}

_BY_KIND: dict[EngineErrorKind, tuple[int, str]] = {
    EngineErrorKind.SYNTAX: (SYNTAX, "42000"),
    EngineErrorKind.TABLE_NOT_FOUND: (1146, "42S02"),
    EngineErrorKind.COLUMN_NOT_FOUND: (1054, "42S22"),
    EngineErrorKind.FUNCTION_NOT_FOUND: (1305, "42000"),
    EngineErrorKind.SCHEMA_NOT_FOUND: (1049, "42000"),
    EngineErrorKind.ALREADY_EXISTS: (1050, "42S01"),
    EngineErrorKind.TYPE_MISMATCH: (1366, "HY000"),
    EngineErrorKind.INVALID_VALUE: (1292, "22007"),
    EngineErrorKind.OUT_OF_RANGE: (1264, "22003"),
    EngineErrorKind.DIVISION_BY_ZERO: (1365, "22012"),
    EngineErrorKind.CONSTRAINT: (1062, "23000"),
    EngineErrorKind.SERIALIZATION: (1213, "40001"),
    EngineErrorKind.PERMISSION: (1142, "42000"),
    EngineErrorKind.READ_ONLY: (1290, "HY000"),
    EngineErrorKind.RESOURCES: (1041, "HY000"),
    EngineErrorKind.NOT_SUPPORTED: (NOT_SUPPORTED, "42000"),
    EngineErrorKind.OTHER: (UNKNOWN, "HY000"),
}


def to_mysql(error: QueryFluxError) -> MySqlError:
    """The number, state and message (with its hint) that stand for ``error``."""
    if isinstance(error, ServerError):
        return MySqlError(error.number, error.sqlstate, _message(error))
    if isinstance(error, EngineError):
        number, sqlstate = _BY_KIND[error.kind]
    else:
        number, sqlstate = _BY_CODE[error.code]
    return MySqlError(number, sqlstate, _message(error))


def _message(error: QueryFluxError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
