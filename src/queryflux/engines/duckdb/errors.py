"""DuckDB's exceptions as our error tree.

Connections are opened with ``errors_as_json``: the text is then the kind, a colon and a JSON document with
the plain message, the position (a byte offset) and a subtype. Errors while a result streams come through
Arrow as OSError with the same text; the parser alone, asked without a connection, answers in prose.
"""

import re

import duckdb
import msgspec

from queryflux.engines.sqlstates import SQLSTATES
from queryflux.model.errors import EngineConnectionLost, EngineError, EngineErrorKind, QueryFluxError

Kind = EngineErrorKind

_KINDS: dict[str, EngineErrorKind] = {
    "Parser": Kind.SYNTAX,
    "Syntax": Kind.SYNTAX,
    "Binder": Kind.SYNTAX,
    "Catalog": Kind.OTHER,
    "Conversion": Kind.INVALID_VALUE,
    "Invalid Input": Kind.INVALID_VALUE,
    "Invalid type": Kind.TYPE_MISMATCH,
    "Mismatch Type": Kind.TYPE_MISMATCH,
    "Out of Range": Kind.OUT_OF_RANGE,
    "Decimal": Kind.OUT_OF_RANGE,
    "Divide by Zero": Kind.DIVISION_BY_ZERO,
    "Constraint": Kind.CONSTRAINT,
    "Serialization": Kind.SERIALIZATION,
    "Permission": Kind.PERMISSION,
    "Out of Memory": Kind.RESOURCES,
    "Not implemented": Kind.NOT_SUPPORTED,
    "Missing Extension": Kind.NOT_SUPPORTED,
}
_INTERNAL_NAMES = re.compile(r'Did you mean "(?:[^"]*\.)?(?:pg_|duckdb_|sqlite_|pragma_)[^"]*"\??')
"""DuckDB likes to guess that somebody meant one of its own catalogs."""
_PATTERNS: tuple[tuple[re.Pattern[str], EngineErrorKind], ...] = (
    (re.compile(r"^Division by zero"), Kind.DIVISION_BY_ZERO),
    (re.compile(r"read-only mode"), Kind.READ_ONLY),
    (re.compile(r"because (schema|catalog|database) .* does not exist"), Kind.SCHEMA_NOT_FOUND),
    (re.compile(r"^Schema with name .* does not exist"), Kind.SCHEMA_NOT_FOUND),
    (re.compile(r"^(Table|View)\b.* does not exist|^Referenced table "), Kind.TABLE_NOT_FOUND),
    (re.compile(r"Function with name .* does not exist|^No function matches"), Kind.FUNCTION_NOT_FOUND),
    (re.compile(r"already exists"), Kind.ALREADY_EXISTS),
    (re.compile(r"^Sequence with name .* does not exist"), Kind.TABLE_NOT_FOUND),
    (re.compile(r"[Cc]olumn .* (not found|does not (exist|have))"), Kind.COLUMN_NOT_FOUND),
    (re.compile(r"^Table .* does not have a column "), Kind.COLUMN_NOT_FOUND),
    (re.compile(r"^(Cannot compare values of type|Cannot mix values)"), Kind.TYPE_MISMATCH),
    (re.compile(r"(write-write )?conflict", re.I), Kind.SERIALIZATION),
)
_CONVERSIONS: tuple[tuple[re.Pattern[str], EngineErrorKind], ...] = (
    (re.compile(r"value is out of range|^Could not cast value .* to DECIMAL"), Kind.OUT_OF_RANGE),
    (re.compile(r"^Could not convert string '[+-]?[0-9]+' to U?INT"), Kind.OUT_OF_RANGE),
    (re.compile(r"^Unimplemented type for cast"), Kind.TYPE_MISMATCH),
)
_PATTERNS_OF = {
    **dict.fromkeys(("Catalog", "Binder", "TransactionContext", "Invalid Input", "Transaction"), _PATTERNS),
    "Conversion": _CONVERSIONS,
}
_STATES: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "Constraint": (
        (re.compile(r"duplicate key|UNIQUE constraint", re.I), "23505"),
        (re.compile(r"NOT NULL constraint"), "23502"),
        (re.compile(r"CHECK constraint"), "23514"),
        (re.compile(r"foreign key", re.I), "23503"),
    ),
    "Conversion": (
        (re.compile(r"^invalid (date|time|timestamp|interval) "), "22007"),
        (re.compile(r"^(date|time|timestamp|interval) field value out of range"), "22008"),
        (re.compile(r"^Unimplemented type for cast"), "42846"),
        (re.compile(r"^Could not convert string '[+-]?[0-9]+' to U?INT|value is out of range"), "22003"),
        (re.compile(r"^Could not convert |^Malformed JSON"), "22P02"),
    ),
    "Binder": (
        (re.compile(r"^Ambiguous reference to column "), "42702"),
        (re.compile(r"must appear in the GROUP BY|^aggregate function calls|contain aggregates"), "42803"),
        (re.compile(r"^Could not choose a best candidate function"), "42725"),
    ),
    "Catalog": (
        (re.compile(r"^Schema with name .* already exists"), "42P06"),
        (re.compile(r"^Column with name .* already exists"), "42701"),
        (re.compile(r"^Type with name .* already exists"), "42710"),
        (re.compile(r"^Type with name .* does not exist"), "42704"),
        (re.compile(r"^Existing object .* is of type"), "42809"),
    ),
    "Parser": ((re.compile(r"^Duplicate CTE name"), "42712"),),
    "Invalid Input": ((re.compile(r"^More than one row returned by a subquery"), "21000"),),
    "Sequence": ((re.compile(r"is not yet defined in this session"), "55000"),),
    "TransactionContext": (
        (re.compile(r"^Current transaction is aborted"), "25P02"),
        (re.compile(r"^cannot start a transaction within"), "25001"),
        (re.compile(r"^Failed to commit: .*duplicate key", re.I), "23505"),
    ),
}
"""Where PostgreSQL's state says more than the kind does (its manual, appendix A), by the kind's name."""
_OUT_OF_MEMORY = "53200"
_HEAD = re.compile(r"^([A-Za-z][\w ]*?) Error: ", re.S)
_CARET = re.compile(r"\n\nLINE (\d+): ([^\n]*)\n( *)\^", re.S)


READABLE = "Only the files of the served folder can be read; they are tables, and SHOW TABLES lists them."
_NO_ACCESS = re.compile(
    r'^Cannot access (?:file|directory) "(.*)" - file system operations are disabled', re.S
)


class _Document(msgspec.Struct):
    exception_type: str = ""
    exception_message: str = ""
    position: str = ""


_decode = msgspec.json.Decoder(_Document).decode


def translate(error: BaseException, sql: str) -> QueryFluxError:
    """The error a client gets for what DuckDB raised while it worked on ``sql``."""
    text = str(error)
    head = _HEAD.match(text)
    kind_name, body = (head[1], text[head.end() :]) if head else ("", text)
    message, position = _parts(body, sql)
    if isinstance(error, duckdb.FatalException | duckdb.InternalException) or kind_name in {
        "FATAL",
        "INTERNAL",
    }:
        return EngineConnectionLost(
            f"DuckDB failed and must be opened again: {message.partition(chr(10))[0]}"
        )
    if kind_name == "Permission" and (denied := _NO_ACCESS.match(message)):
        return _not_in_the_folder(denied, sql)
    first, _, rest = message.partition("\n")
    kind = _kind(kind_name, first)
    return EngineError(
        first,
        kind=kind,
        sqlstate=_sqlstate(kind_name, kind, first),
        name=kind_name,
        hint=_INTERNAL_NAMES.sub("", rest).strip(),
        position=position,
    )


def _not_in_the_folder(denied: re.Match[str], sql: str) -> EngineError:
    """A path is shown to the client only if it came from there."""
    what = f'"{denied[1]}"' if denied[1] in sql else "this"
    return EngineError(
        f"{what} cannot be read: it is no file of the served folder by its whole path",
        kind=Kind.PERMISSION,
        sqlstate=SQLSTATES[Kind.PERMISSION],
        name="Permission",
        hint=READABLE,
    )


def _parts(body: str, sql: str) -> tuple[str, int | None]:
    """The plain message and the character offset in ``sql``."""
    position = None
    if body.startswith("{"):
        try:
            document = _decode(body)
        except msgspec.DecodeError:
            return body, None
        body = document.exception_message
        if document.position.isdigit():
            before = sql.encode()[: int(document.position)]
            position = len(before.decode(errors="ignore"))
    caret = _CARET.search(body)
    if caret is None:
        return body, position
    return body[: caret.start()], _caret_offset(caret, sql) if position is None else position


def _caret_offset(caret: re.Match[str], sql: str) -> int | None:
    """Where the caret of a message in prose points to; None when its line was cut at the front."""
    line, shown = int(caret[1]), caret[2]
    lines = sql.split("\n")
    column = len(caret[3]) - len(f"LINE {line}: ")
    if shown.startswith("...") or line > len(lines) or column < 0:
        return None
    return sum(len(earlier) + 1 for earlier in lines[: line - 1]) + column


def _kind(name: str, message: str) -> EngineErrorKind:
    for pattern, kind in _PATTERNS_OF.get(name, ()):
        if pattern.search(message):
            return kind
    return _KINDS.get(name, Kind.OTHER)


def _sqlstate(name: str, kind: EngineErrorKind, message: str) -> str:
    for pattern, state in _STATES.get(name, ()):
        if pattern.search(message):
            return state
    return _OUT_OF_MEMORY if kind is Kind.RESOURCES else SQLSTATES[kind]
