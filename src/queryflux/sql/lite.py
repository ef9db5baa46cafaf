"""Catalog queries of clients, rewritten for the SQLite database that holds the catalog.

What SQLite lacks becomes a call of a function that the caller registers: ``pg_regex``, ``pg_iregex``,
``pg_any``, ``pg_element``, ``pg_json``, ``pg_series``, ``pg_array`` (an aggregate), ``pg_list``,
``pg_oid_of``, ``pg_name_of``, ``session_catalog``, ``session_variable``. Tables are named
``"schema.table"``, in lower case. Arrays are texts as PostgreSQL writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from queryflux.model.errors import EngineError, EngineErrorKind, NotSupported, SqlSyntaxError
from queryflux.sql.lexer import tokens
from queryflux.sql.nesting import is_deeper

MOST_DEPTH = 12
_ARRAY_ELEMENTS = {"oid": "bigint", "regclass": "bigint", "regtype": "bigint", "name": "text"}
"""What stands for element types that the parser does not take before brackets."""
_PREFIXES = frozenset({"pg_catalog", "information_schema"})


@dataclass(frozen=True, slots=True)
class LiteQuery:
    """``sql`` takes its parameters as ``?1``, ``?2``. ``columns`` are names and types (bool, int2, int4,
    int8, oid, float8, text), ``parameter_types`` the same names for parameters (``oid[]`` and so on for
    arrays), ``tables`` the tables it reads."""

    sql: str
    columns: tuple[tuple[str, str], ...]
    parameter_types: tuple[str, ...]
    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class Catalog:
    """What there is to ask: tables by ``schema.table`` (columns and their types), result types of functions,
    and the schemas in which an unqualified table is looked for."""

    tables: Mapping[str, Mapping[str, str]]
    functions: Mapping[str, str]
    search: tuple[str, ...]


def lite_query(text: str, dialect: str, catalog: Catalog) -> LiteQuery:
    """Rewrite one query. Raises SqlSyntaxError, EngineError (no such table) or NotSupported."""
    import sqlglot

    from queryflux.sql.lite_rewrite import rewrite

    if dialect == "postgres":
        text = simplify(text)
    if is_deeper(text, dialect, MOST_DEPTH):
        raise SqlSyntaxError("The catalog query is nested too deeply.")
    try:
        tree = sqlglot.parse_one(text, read=dialect or None)
    except Exception as error:  # the parser meets any text, and fails in ways of its own
        raise SqlSyntaxError("The catalog query cannot be read.") from error
    try:
        return rewrite(tree, dialect, catalog, text)
    except RecursionError as error:
        raise SqlSyntaxError("The catalog query is nested too deeply.") from error


def simplify(text: str) -> str:
    """PostgreSQL text without what only says where a name lives: ``pg_catalog.`` before functions and types,
    ``OPERATOR(pg_catalog.~)``, ``COLLATE pg_catalog.default``; and without comments."""
    parts: list[str] = []
    gap = ""
    for kind, start, stop in tokens(text, "postgres"):
        if kind in ("space", "comment"):
            gap = " "
            continue
        parts.append(gap + text[start:stop])
        gap = " " if kind == "parameter" else ""  # sqlglot takes $1,$2 for the beginning of a dollar quote
    words = [part.strip().lower() for part in parts]
    kept: list[str] = []
    index = 0
    while index < len(words):
        ahead = words[index : index + 6]
        if ahead[0] == "operator" and ahead[1:4] == ["(", "pg_catalog", "."]:
            closing = words.index(")", index) if ")" in words[index:] else len(words) - 1
            kept.append(" " + "".join(words[index + 4 : closing]))
            index = closing + 1
            continue
        if ahead[0] == "collate" and ahead[2:3] == ["."]:
            index += 4
            continue
        if ahead[0] in _PREFIXES and ahead[1:2] == ["."] and _names_no_table(kept, ahead):
            kept.append(" ")
            index += 2
            continue
        simple = _ARRAY_ELEMENTS.get(ahead[0]) if ahead[1:2] == ["["] else None
        kept.append(simple or parts[index])
        index += 1
    return "".join(kept)


def _names_no_table(before: list[str], ahead: list[str]) -> bool:
    last = before[-1].strip().lower() if before else ""
    return ahead[3:4] == ["("] or last == "::" or (last == "as" and ahead[3:4] == [")"])


def no_such_table(name: str) -> EngineError:
    """The error for a table that the catalog does not have."""
    return EngineError(
        f'relation "{name}" does not exist',
        kind=EngineErrorKind.TABLE_NOT_FOUND,
        sqlstate="42P01",
        hint="Catalog queries are answered from the engine's list of tables; they cannot read its data.",
    )


def not_a_query() -> NotSupported:
    """The error for what is no SELECT."""
    return NotSupported("Only SELECT statements can be asked of the catalog.")
