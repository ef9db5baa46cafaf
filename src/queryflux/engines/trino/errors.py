"""Trino's error documents as our error tree (trino-spi, StandardErrorCode; client protocol, QueryError)."""

import re

import msgspec

from queryflux.engines.sqlstates import SQLSTATES
from queryflux.model.errors import EngineError, EngineErrorKind, QueryCancelled, QueryFluxError

Kind = EngineErrorKind


class Location(msgspec.Struct, rename="camel"):
    """Line and column in the statement, both from 1."""

    line_number: int
    column_number: int


class ErrorDocument(msgspec.Struct, rename="camel"):
    """``error`` of a page, the Java stack aside."""

    message: str = ""
    error_code: int = 0
    error_name: str = ""
    error_type: str = ""
    error_location: Location | None = None


_KINDS: dict[str, EngineErrorKind] = {
    "SYNTAX_ERROR": Kind.SYNTAX,
    "TABLE_NOT_FOUND": Kind.TABLE_NOT_FOUND,
    "COLUMN_NOT_FOUND": Kind.COLUMN_NOT_FOUND,
    "FUNCTION_NOT_FOUND": Kind.FUNCTION_NOT_FOUND,
    "SCHEMA_NOT_FOUND": Kind.SCHEMA_NOT_FOUND,
    "CATALOG_NOT_FOUND": Kind.SCHEMA_NOT_FOUND,
    "MISSING_SCHEMA_NAME": Kind.SCHEMA_NOT_FOUND,
    "MISSING_CATALOG_NAME": Kind.SCHEMA_NOT_FOUND,
    "ALREADY_EXISTS": Kind.ALREADY_EXISTS,
    "TABLE_ALREADY_EXISTS": Kind.ALREADY_EXISTS,
    "COLUMN_ALREADY_EXISTS": Kind.ALREADY_EXISTS,
    "SCHEMA_ALREADY_EXISTS": Kind.ALREADY_EXISTS,
    "TYPE_MISMATCH": Kind.TYPE_MISMATCH,
    "AMBIGUOUS_NAME": Kind.SYNTAX,
    "MISSING_COLUMN_NAME": Kind.SYNTAX,
    "EXPRESSION_NOT_AGGREGATE": Kind.SYNTAX,
    "MISMATCHED_COLUMN_ALIASES": Kind.SYNTAX,
    "INVALID_FUNCTION_ARGUMENT": Kind.INVALID_VALUE,
    "INVALID_CAST_ARGUMENT": Kind.INVALID_VALUE,
    "INVALID_LITERAL": Kind.INVALID_VALUE,
    "INVALID_ARGUMENTS": Kind.INVALID_VALUE,
    "INVALID_PARAMETER_USAGE": Kind.INVALID_VALUE,
    "SUBQUERY_MULTIPLE_ROWS": Kind.INVALID_VALUE,
    "NUMERIC_VALUE_OUT_OF_RANGE": Kind.OUT_OF_RANGE,
    "DIVISION_BY_ZERO": Kind.DIVISION_BY_ZERO,
    "CONSTRAINT_VIOLATION": Kind.CONSTRAINT,
    "TRANSACTION_CONFLICT": Kind.SERIALIZATION,
    "PERMISSION_DENIED": Kind.PERMISSION,
    "READ_ONLY_VIOLATION": Kind.READ_ONLY,
    "NOT_SUPPORTED": Kind.NOT_SUPPORTED,
    "AUTOCOMMIT_WRITE_CONFLICT": Kind.NOT_SUPPORTED,
    "MULTI_CATALOG_WRITE_CONFLICT": Kind.NOT_SUPPORTED,
    "QUERY_TEXT_TOO_LARGE": Kind.RESOURCES,
    "QUERY_REJECTED": Kind.RESOURCES,
    "QUERY_QUEUE_FULL": Kind.RESOURCES,
}
_WHERE = re.compile(r"^line \d+:\d+: ")


def translate(document: ErrorDocument, sql: str) -> QueryFluxError:
    """The error a client gets for what a page of the statement ``sql`` says."""
    message = _WHERE.sub("", document.message) or document.error_name
    if document.error_name == "USER_CANCELED":
        return QueryCancelled(message)
    kind = _KINDS.get(document.error_name, Kind.OTHER)
    if kind is Kind.OTHER and document.error_type == "INSUFFICIENT_RESOURCES":
        kind = Kind.RESOURCES
    return EngineError(
        message,
        kind=kind,
        sqlstate=SQLSTATES[kind],
        name=document.error_name,
        number=document.error_code,
        position=_offset(document.error_location, sql),
    )


def _offset(location: Location | None, sql: str) -> int | None:
    """Where in ``sql`` a line and column are, from 0."""
    if location is None:
        return None
    lines = sql.split("\n")
    if not 1 <= location.line_number <= len(lines):
        return None
    before = sum(len(line) + 1 for line in lines[: location.line_number - 1])
    return min(before + max(location.column_number - 1, 0), len(sql))
