"""PostgreSQL's errors as ours (manual, appendix A, "PostgreSQL Error Codes")."""

from queryflux.model.errors import EngineConnectionLost, EngineError, EngineErrorKind
from queryflux.wire.postgres.client import ServerError
from queryflux.wire.postgres.errors import CHANGED_RESULT

_K = EngineErrorKind

QUERY_CANCELED = "57014"
IN_FAILED_TRANSACTION = "25P02"
UNKNOWN_STATEMENT = "26000"

BY_STATE: dict[str, EngineErrorKind] = {
    "42601": _K.SYNTAX,
    "42P01": _K.TABLE_NOT_FOUND,
    "42703": _K.COLUMN_NOT_FOUND,
    "42883": _K.FUNCTION_NOT_FOUND,
    "3F000": _K.SCHEMA_NOT_FOUND,
    "3D000": _K.SCHEMA_NOT_FOUND,
    "42P06": _K.ALREADY_EXISTS,
    "42P07": _K.ALREADY_EXISTS,
    "42710": _K.ALREADY_EXISTS,
    "42701": _K.ALREADY_EXISTS,
    "42723": _K.ALREADY_EXISTS,
    "42804": _K.TYPE_MISMATCH,
    "42846": _K.TYPE_MISMATCH,
    "42P18": _K.TYPE_MISMATCH,
    "42501": _K.PERMISSION,
    "22003": _K.OUT_OF_RANGE,
    "22008": _K.OUT_OF_RANGE,
    "22012": _K.DIVISION_BY_ZERO,
    "25006": _K.READ_ONLY,
    "40001": _K.SERIALIZATION,
    "40P01": _K.SERIALIZATION,
    "54000": _K.RESOURCES,
}
BY_CLASS: dict[str, EngineErrorKind] = {
    "0A": _K.NOT_SUPPORTED,
    "22": _K.INVALID_VALUE,
    "23": _K.CONSTRAINT,
    "28": _K.PERMISSION,
    "40": _K.SERIALIZATION,
    "42": _K.SYNTAX,
    "53": _K.RESOURCES,
}


def kind_of(sqlstate: str) -> EngineErrorKind:
    """What a SQLSTATE complains about."""
    return BY_STATE.get(sqlstate) or BY_CLASS.get(sqlstate[:2], EngineErrorKind.OTHER)


def engine_error(error: ServerError) -> EngineError | EngineConnectionLost:
    """The error to raise or to note. After a FATAL one the connection is gone, and whatever ran on it."""
    if error.fatal:
        return EngineConnectionLost(
            f"PostgreSQL ended the connection: {error.message} (SQLSTATE {error.sqlstate})",
            hint=error.hint or "Run the statement again if it is safe to run twice.",
        )
    return EngineError(
        error.message,
        kind=kind_of(error.sqlstate),
        sqlstate=error.sqlstate,
        hint=error.hint,
        position=error.position - 1 if error.position else None,
        detail=error.detail,
    )


def plan_is_stale(error: ServerError | EngineError) -> bool:
    """The server forgot a prepared statement, or the tables under it changed: prepare it again."""
    return error.sqlstate == UNKNOWN_STATEMENT or (
        error.sqlstate == "0A000" and error.message.startswith(CHANGED_RESULT)
    )
