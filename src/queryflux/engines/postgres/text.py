"""The text of a statement for ADBC: trimmed, its parameters written in, its first word.

COPY takes no parameters, and ADBC's streaming is COPY, so ``$1`` becomes a constant. A string or NULL without
a type is an untyped constant, whose type PostgreSQL infers from its place just as it does a parameter's.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from queryflux.engines.postgres.settings import literal
from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<end>;)
    |(?P<parameter>\$[0-9]+)
    |(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w]*)?\$)
    |(?P<escaped>[eE]'(?:[^'\\]|\\.|'')*'?)
    |'(?:[^']|'')*'?|"(?:[^"]|"")*"?
    |[\w\x80-\U0010ffff][\w$\x80-\U0010ffff]*
    |.""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_TYPE_NAME = re.compile(r"[A-Za-z_][\w ]*(?:\(\s*\d+\s*(?:,\s*-?\d+\s*)?\))?[A-Za-z ]*(?:\[\d*\])*", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+")
MOST_DIGITS = 5
"""Digits of a parameter's number: a message has no room for more of them."""
MAX_INT4 = 2**31 - 1
MAX_INT8 = 2**63 - 1


def _tokens(sql: str) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each token; comments and white space are ``space``."""
    position, size = 0, len(sql)
    while position < size:
        match = _TOKEN.match(sql, position)
        assert match is not None
        kind, end = match.lastgroup or "", match.end()
        if kind == "comment":
            kind, end = "space", _comment_end(sql, end)
        elif kind == "dollar":
            closing = sql.find(match[0], end)
            end = size if closing < 0 else closing + len(match[0])
        yield kind, position, end
        position = end


def _comment_end(sql: str, position: int) -> int:
    """Comments nest (manual, "Comments")."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)


def statement_for(sql: str, parameters: Sequence[Parameter]) -> str:
    """``sql`` without what trails it (semicolons, comments) and with its parameters written in.

    Raises InvalidRequest for a parameter that is missing or cannot be written.
    """
    if "\0" in sql:
        raise InvalidRequest("a statement cannot contain a NUL character")
    parts: list[str] = []
    copied = last = 0
    for kind, start, end in _tokens(sql):
        if kind == "parameter" and parameters:
            name = sql[start + 1 : end].lstrip("0")
            number = int(name or 0) if len(name) <= MOST_DIGITS else 0
            if not 1 <= number <= len(parameters):
                shown = name[: MOST_DIGITS + 1] or "0"
                raise InvalidRequest(f"the statement names parameter ${shown}; {len(parameters)} were given")
            parts += (sql[copied:start], constant(parameters[number - 1]))
            copied = last = end
        elif kind not in ("space", "end"):
            last = end
    parts.append(sql[copied:last])
    return "".join(parts)


def first_word(sql: str) -> str:
    """The first keyword in upper case; ``(`` for a parenthesis, empty for an empty statement."""
    for kind, start, _ in _tokens(sql):
        if kind != "space":
            match = _WORD.match(sql, start)
            return match[0].upper() if match else sql[start]
    return ""


def leading_words(sql: str, count: int) -> list[str]:
    """The first so many keywords in upper case."""
    found: list[str] = []
    for kind, start, end in _tokens(sql):
        if kind == "space":
            continue
        match = _WORD.fullmatch(sql, start, end)
        if match is None or len(found) == count:
            break
        found.append(match[0].upper())
    return found


_MAIN = {"SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE"}


def main_statement(sql: str) -> int:
    """Where the statement behind the list of a WITH begins; 0 when that cannot be told."""
    depth = 0
    for kind, start, end in _tokens(sql):
        if kind or end - start > 1:
            if depth == 0 and sql[start:end].upper() in _MAIN:
                return start
        elif sql[start] == "(":
            depth += 1
        elif sql[start] == ")":
            depth -= 1
    return 0


def constant(parameter: Parameter) -> str:
    """A parameter as an SQL constant in parentheses. Raises InvalidRequest."""
    value, kind = parameter.value, parameter.type_name.strip()
    if kind and not _TYPE_NAME.fullmatch(kind):
        raise InvalidRequest(f"{kind!r} is not the name of a type")
    text, own = _rendered(value)
    if kind and isinstance(value, int) and not isinstance(value, bool):
        text = f"'{value}'"
    kind = kind or own
    return f"({text}::{kind})" if kind else f"({text})"


def _whole(value: int) -> tuple[str, str]:
    """A sign is an operator of its own, which binds less tightly than a cast: so larger ones are quoted."""
    if abs(value) <= MAX_INT4:
        return str(value), ""
    return f"'{value}'", ("int8" if -MAX_INT8 - 1 <= value <= MAX_INT8 else "numeric")


def _rendered(value: Any) -> tuple[str, str]:
    """A constant and the type that its Python type stands for; empty: left to PostgreSQL."""
    match value:
        case None:
            return "NULL", ""
        case bool():
            return ("true" if value else "false"), ""
        case int():
            return _whole(value)
        case float():
            return f"'{value!r}'", "float8"
        case Decimal():
            return f"'{value}'", "numeric"
        case str():
            if "\0" in value:
                raise InvalidRequest("PostgreSQL's text cannot hold a NUL character")
            return literal(value), ""
        case bytes() | bytearray() | memoryview():
            return f"'\\x{bytes(value).hex()}'", "bytea"
        case datetime():
            return f"'{value.isoformat(sep=' ')}'", "timestamptz" if value.tzinfo else "timestamp"
        case date():
            return f"'{value.isoformat()}'", "date"
        case time():
            return f"'{value.isoformat()}'", "timetz" if value.tzinfo else "time"
        case timedelta():
            seconds = value.seconds + value.microseconds / 1_000_000
            return f"'{value.days} days {seconds:.6f} seconds'", "interval"
        case UUID():
            return f"'{value}'", "uuid"
        case list() | tuple():
            if not value:
                return "'{}'", ""
            return f"ARRAY[{', '.join(constant(Parameter(item)) for item in value)}]", ""
        case _:
            raise InvalidRequest(f"PostgreSQL takes no parameter of the Python type {type(value).__name__}")
