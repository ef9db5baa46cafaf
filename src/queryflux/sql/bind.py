"""Parameters written into a statement, for engines that take none.

Placeholders are found by the lexer, so that one inside a string, name, comment or dollar quote is left alone;
each is replaced by one literal that cannot be read as anything but its value.
"""

import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter
from queryflux.sql.lexer import tokens, traits_of

_TRINO_TYPES = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "REAL",
    "float8": "DOUBLE",
    "numeric": "DECIMAL(38, 10)",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "bytea": "VARBINARY",
    "date": "DATE",
    "time": "TIME(6)",
    "timestamp": "TIMESTAMP(6)",
    "timestamptz": "TIMESTAMP(6) WITH TIME ZONE",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
}
_PLAIN_TEXT = frozenset({"", "text", "varchar", "bpchar", "unknown", "name", "char"})
_MAX_BIGINT = (1 << 63) - 1
_DAY = timedelta(days=1)


def bind(text: str, dialect: str, parameters: Sequence[Parameter]) -> str:
    """``text`` with its ``?``, ``$n`` or ``:name`` placeholders replaced by literals of ``dialect``. The
    names of ``:name`` count by their first appearance. Raises InvalidRequest: a placeholder without a
    parameter, or a value that the dialect has no literal for."""
    parts: list[str] = []
    names: dict[str, int] = {}
    position = 0
    for kind, start, stop in tokens(text, dialect):
        mark = text[start:stop]
        if kind != "parameter" or (mark == "?" and dialect == "postgres"):
            parts.append(mark)
            continue
        if mark == "?":
            number = position
            position += 1
        elif mark[0] == "$":
            number = int(mark[1:6]) - 1
        elif dialect in ("postgres", "duckdb"):
            parts.append(mark)
            continue
        else:
            number = names.setdefault(mark, len(names))
        if not 0 <= number < len(parameters):
            raise InvalidRequest(
                f"The statement has a placeholder {mark} but {len(parameters)} parameters were bound.",
                hint="Bind one value for each placeholder.",
            )
        parts.append(literal(parameters[number], dialect))
    return "".join(parts)


def literal(parameter: Parameter, dialect: str) -> str:
    """One value as a literal of ``dialect``, typed where the dialect can say so. Raises InvalidRequest."""
    value, type_name = parameter.value, parameter.type_name.lower()
    cast = _TRINO_TYPES.get(type_name) if dialect == "trino" else None
    if value is None:
        return f"CAST(NULL AS {cast})" if cast else "NULL"
    if isinstance(value, str) and cast and type_name not in _PLAIN_TEXT:
        return f"CAST({_string(value, dialect)} AS {cast})"
    return _value(value, dialect)


def _value(value: Any, dialect: str) -> str:
    if value is None:
        return "NULL"
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return str(write(value, dialect))
    raise InvalidRequest(
        f"A parameter of type {type(value).__name__} cannot be written into a statement.",
        hint="Bind a number, string, date, time, timestamp, binary or array.",
    )


def _string(value: str, dialect: str) -> str:
    if "\x00" in value and dialect in ("postgres", "duckdb"):
        raise InvalidRequest("A string parameter holds a NUL character, which the engine does not take.")
    if traits_of(dialect).backslashes:
        value = value.replace("\\", "\\\\")
    return "'" + value.replace("'", "''") + "'"


def _integer(value: int, dialect: str) -> str:
    if dialect == "trino" and abs(value) > _MAX_BIGINT:
        return f"DECIMAL '{value}'"
    return str(value) if value >= 0 else f"({value})"  # "- -1" would begin a comment if written "--1"


def _float(value: float, dialect: str) -> str:
    if math.isfinite(value):
        if dialect == "trino":
            return f"DOUBLE '{value!r}'"
        return f"CAST('{value!r}' AS DOUBLE PRECISION)" if dialect == "postgres" else f"({value!r})"
    if dialect == "trino":
        return "nan()" if math.isnan(value) else "infinity()" if value > 0 else "(-infinity())"
    if dialect in ("postgres", "duckdb"):
        return f"CAST('{value!r}' AS DOUBLE PRECISION)"
    raise InvalidRequest(f"The engine has no number {value!r}.")


def _decimal(value: Decimal, dialect: str) -> str:
    if not value.is_finite():
        if dialect == "postgres":
            return f"CAST('{value}' AS NUMERIC)"
        raise InvalidRequest(f"The engine has no decimal {value}.")
    digits = f"{value:f}"
    if dialect == "trino":
        return f"DECIMAL '{digits}'"
    return f"({digits})" if value.is_signed() else digits


def _bytes(value: bytes, dialect: str) -> str:
    if dialect == "postgres":
        return f"CAST('\\x{value.hex()}' AS BYTEA)"
    if dialect == "duckdb":
        return f"unhex('{value.hex()}')"
    return f"X'{value.hex()}'"


def _timestamp(value: datetime, dialect: str) -> str:
    if value.tzinfo is None:
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    text = value.isoformat(" ")
    if dialect == "trino":
        return f"TIMESTAMP '{text[:-6]} {text[-6:]}'"
    return f"TIMESTAMP '{text}'" if dialect == "mysql" else f"CAST('{text}' AS TIMESTAMPTZ)"


def _interval(value: timedelta, dialect: str) -> str:
    sign = "-" if value < timedelta() else ""
    days, rest = divmod(abs(value), _DAY)
    if dialect == "trino":
        minutes, seconds = divmod(rest.seconds, 60)
        clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{rest.microseconds // 1000:03d}"
        return f"INTERVAL {sign}'{days} {clock}' DAY TO SECOND"
    total = abs(value) // timedelta(microseconds=1)
    if dialect == "mysql":
        return f"INTERVAL {sign}{total} MICROSECOND"
    return f"INTERVAL '{sign}{total} microseconds'"


def _array(value: Sequence[Any], dialect: str) -> str:
    items = ", ".join(_value(item, dialect) for item in value)
    return f"[{items}]" if dialect == "duckdb" else f"ARRAY[{items}]"


# bool before int and datetime before date: each is a kind of the other.
_WRITERS: tuple[tuple[Any, Any], ...] = (
    (bool, lambda value, dialect: "TRUE" if value else "FALSE"),
    (int, _integer),
    (float, _float),
    (Decimal, _decimal),
    (str, _string),
    ((bytes, bytearray, memoryview), lambda value, dialect: _bytes(bytes(value), dialect)),
    (datetime, _timestamp),
    (date, lambda value, dialect: f"DATE '{value.isoformat()}'"),
    (time, lambda value, dialect: f"TIME '{value.isoformat()}'"),
    (timedelta, _interval),
    (UUID, lambda value, dialect: f"UUID '{value}'" if dialect == "trino" else f"CAST('{value}' AS UUID)"),
    ((list, tuple), _array),
)
