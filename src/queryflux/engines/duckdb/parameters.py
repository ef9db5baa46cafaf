"""Bound values as DuckDB takes them, and the types of those that it leaves open.

DuckDB's binder tells the type of a parameter that is compared, cast or stored. It leaves open what stands in
arithmetic or goes to a function with several signatures, and with one such parameter the types of the result.
For it the client's word is taken, if it has named a type; else likely types are tried: the statement is bound
with a value of each, without being run.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
from duckdb.sqltypes import DuckDBPyType

from queryflux.engines.duckdb.seam import Bound
from queryflux.engines.duckdb.statements import CACHED_TEXT_LENGTH, CACHED_TEXTS
from queryflux.engines.duckdb.tokens import tokens
from queryflux.model.statement import Parameter

_TYPES = {
    "boolean": "BOOLEAN",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "date": "DATE",
    "time without time zone": "TIME",
    "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "json": "JSON",
}
"""Types that a client may name while it sends the value as text."""

_DECLARED = {
    **_TYPES,
    "smallint": "INTEGER",
    "oid": "BIGINT",
    "real": "DOUBLE",
    "numeric": "DECIMAL(18,3)",
    "time with time zone": "TIMETZ",
    "bytea": "BLOB",
    **dict.fromkeys(("text", "character varying", "character", "name", "jsonb"), "VARCHAR"),
}
"""What values of the types that a client may name come as: the small numbers as Python's."""

OPEN = "UNKNOWN"
"""The type of a parameter that the binder cannot tell."""
MOST_TRIED = 64
"""Parameters of one statement; each of them costs some binds."""
LONGEST_TRIED = 16 * 1024
"""Characters of a statement whose open parameters are tried."""
_SAMPLES: dict[str, Any] = {
    "BOOLEAN": True,
    "INTEGER": 1,
    "BIGINT": 1,
    "DECIMAL(18,3)": Decimal(1),
    "DOUBLE": 1.0,
    "VARCHAR": "",
    "DATE": date(2000, 1, 1),
    "TIMESTAMP": datetime(2000, 1, 1),
    "INTERVAL": timedelta(1),
    "TIME": time(),
    "TIME WITH TIME ZONE": time(tzinfo=UTC),
    "TIMESTAMP WITH TIME ZONE": datetime(2000, 1, 1, tzinfo=UTC),
    "UUID": UUID(int=0),
    "JSON": "null",
    "BLOB": b"",
    "BIGINT[]": [1],
    "VARCHAR[]": [""],
    "DATE[]": [date(2000, 1, 1)],
}
"""A value of each type: the type of extract() from a NULL is another one than from a date."""
_TRIED = ("INTEGER", "TIMESTAMP", "INTERVAL", "VARCHAR", "BIGINT[]", "VARCHAR[]", "DATE[]")
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})

Bind = Callable[[str, list[Any] | None], Bound]


class Guesses:
    """Types that were found by trying, by text and by what the binder said of it; bounded. Used from several
    threads: a lost race tries once more."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, ...], list[Any]] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> list[Any] | None:
        """What was found before."""
        return self._known.get(key)

    def put(self, key: tuple[str, ...], kinds: list[Any]) -> None:
        """Remember it, if the text is not long."""
        if len(key[0]) <= CACHED_TEXT_LENGTH:
            self._known[key] = kinds
            while len(self._known) > CACHED_TEXTS:
                self._known.popitem(last=False)

    def clear(self) -> None:
        """Forget them: tables have changed."""
        self._known.clear()


def settle(
    bind: Bind, sql: str, declared: Sequence[str] = (), guesses: Guesses | None = None, place: str = ""
) -> tuple[list[Any], Bound]:
    """The types of the parameters, in order, and what the statement gives; ``bind`` binds a text, with values
    or without, and ``declared`` are types that the client has named, in PostgreSQL's spelling. A type for
    which nothing is found stays OPEN. ``place`` is where names without a schema are looked up. Raises
    duckdb.Error."""
    kinds, bound = kinds_of(bind, sql, declared, guesses, place)
    own = [str(kind) for _, kind in _by_number(bound)]
    named = [_DECLARED.get(name) for name in declared[: len(kinds)]] + [None] * (len(kinds) - len(declared))
    samples = [DuckDBPyType(name) if name else kind for name, kind in zip(named, kinds, strict=True)]
    if OPEN not in own and (bound.returns != "query_result" or own == list(map(str, samples))):
        return kinds, bound
    try:
        return kinds, bind(sql, [_sample(kind) for kind in samples])
    except duckdb.Error:
        if any(named):
            return settle(bind, sql, (), guesses, place)
        return kinds, bind(sql, [None] * len(kinds))


def kinds_of(
    bind: Bind, sql: str, declared: Sequence[str] = (), guesses: Guesses | None = None, place: str = ""
) -> tuple[list[Any], Bound]:
    """The types of the parameters: the binder's own word, else what the client has named, else what is
    likely. Also what the binder says without values. Raises duckdb.Error."""
    bound = bind(sql, None)
    kinds = [kind for _, kind in _by_number(bound)]
    for index, name in enumerate(declared[: len(kinds)]):
        if str(kinds[index]) == OPEN and name in _DECLARED:
            kinds[index] = DuckDBPyType(_DECLARED[name])
    if any(str(kind) == OPEN for kind in kinds) and len(kinds) <= MOST_TRIED and len(sql) <= LONGEST_TRIED:
        kinds = _guessed(bind, sql, bound, kinds, guesses or Guesses(), place)
    return kinds, bound


def _by_number(bound: Bound) -> list[tuple[str, Any]]:
    return sorted(bound.parameters, key=lambda item: (len(item[0]), item[0]))


def _guessed(bind: Bind, sql: str, bound: Bound, kinds: list[Any], guesses: Guesses, place: str) -> list[Any]:
    """``kinds`` without what is open. What was guessed before holds while the binder says the same of the
    text: its tables are others by then if not."""
    try:
        given = [str(kind) for kind in bind(sql, [None] * len(kinds)).types]
    except duckdb.Error:
        given = []
    key = (sql, place, *given, "", *map(str, kinds))
    likely = guesses.get(key)
    if likely is None:
        pieces = _pieces(sql)
        likely = [
            _likely(bind, _alone(pieces, number), kind) if str(kind) == OPEN else kind
            for (number, _), kind in zip(_by_number(bound), kinds, strict=True)
        ]
        guesses.put(key, likely)
    return likely


def _pieces(sql: str) -> list[tuple[str, str]]:
    """The text in pieces, without comments: what stands there, and the number of the parameter after it."""
    pieces: list[tuple[str, str]] = []
    parts: list[str] = []
    for token in tokens(sql):
        digits = re.match("[0-9]+", token.text) if parts and parts[-1] == "$" else None
        if digits is None:
            parts.append(token.text)
            continue
        pieces.append(("".join(parts[:-1]), digits[0]))
        parts = [token.text[digits.end() :]]
    pieces.append(("".join(parts), ""))
    return pieces


def _alone(pieces: list[tuple[str, str]], number: str) -> str:
    """The text with NULL for every other parameter: one that is open hides the types of them all."""
    parts = []
    for text, other in pieces:
        parts.append(text)
        if other:
            parts.append("$1" if other == number else " NULL ")
    return "".join(parts)


def _likely(bind: Bind, sql: str, kind: Any) -> Any:
    """The type of the only parameter of a text: the binder's own word, else the likeliest; text where that is
    as good as any. ``kind`` if the text is not understood so."""
    try:
        ((_, found),) = bind(sql, None).parameters
    except (duckdb.Error, ValueError):
        return kind
    if str(found) != OPEN:
        return found

    def types(name: str) -> list[str] | None:
        try:
            return [str(kind) for kind in bind(sql, [_sample(DuckDBPyType(name))]).types]
        except duckdb.Error:
            return None

    if types("DATE") is not None and types("VARCHAR") is not None:
        return DuckDBPyType("VARCHAR")
    integer, decimal = types("BIGINT"), types("DECIMAL(18,3)")
    if integer is not None:
        return DuckDBPyType(_number(integer, decimal))
    name = next((name for name in _TRIED if types(name) is not None), "")
    return DuckDBPyType(name) if name else kind


def _number(integer: list[str], decimal: list[str] | None) -> str:
    """PostgreSQL gives it the type of what it is combined with. That is seen where the result's types follow
    it; elsewhere it is one that takes every number."""
    if decimal is None:
        return "BIGINT"
    following = [kind for kind, other in zip(integer, decimal, strict=True) if kind != other]
    if following:
        return "BIGINT" if following[0] in _INTEGERS else "DECIMAL(18,3)"
    return "DOUBLE" if "DOUBLE" in integer else "DECIMAL(18,3)"


def _sample(kind: Any) -> Any:
    return None if str(kind) == OPEN else duckdb.Value(_SAMPLES.get(str(kind)), kind)


_ZONED = re.compile(r"([0-9]{4,}-[0-9]{2}-[0-9]{2}) ?([+-][0-9]{2}(?::?[0-9]{2}){0,2})")
"""A date with a zone, which is how JDBC's driver sends one."""


def bind_values(parameters: tuple[Parameter, ...], kinds: Callable[[], list[Any]]) -> list[Any] | None:
    """Values for ``$1``, ``$2`` and so on, in order; None where there are none. ``kinds`` asks the binder for
    their types, where a text may have to be read differently for them."""
    if not parameters:
        return None
    values = [_value(parameter) for parameter in parameters]
    if any(isinstance(value, str) and _ZONED.fullmatch(value) for value in values):
        found = kinds()
        if len(found) == len(values):
            return [_day(value, str(kind)) for value, kind in zip(values, found, strict=True)]
    return values


def _day(value: Any, kind: str) -> Any:
    """A date with a zone as PostgreSQL reads it, and DuckDB does not; as it is where it is no date."""
    found = _ZONED.fullmatch(value) if isinstance(value, str) else None
    if found is None or not kind.startswith(("DATE", "TIMESTAMP")):
        return value
    return f"{found[1]} 00:00:00{found[2]}" if kind == "TIMESTAMP WITH TIME ZONE" else found[1]


def _value(parameter: Parameter) -> Any:
    value = parameter.value
    if isinstance(value, str) and (kind := _TYPES.get(parameter.type_name)):
        return duckdb.Value(value, DuckDBPyType(kind))
    if value is None and (kind := _TYPES.get(parameter.type_name)):
        return duckdb.Value(None, DuckDBPyType(kind))
    return value
