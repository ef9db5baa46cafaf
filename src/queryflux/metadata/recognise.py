"""Which statements ask about the catalog or the session rather than about data: told from words alone.

Doors answer most of what concerns only the session (SET, SHOW of a setting) before this.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from queryflux.model.statement import Parameter
from queryflux.sql.lexer import tokens
from queryflux.sql.textcache import TextCache

MAX_CHARS = 256 << 10
"""A longer statement is never taken for a question about the catalog."""

_MAY_BE = re.compile(
    r"pg_|information_schema|performance_schema|system[\"`]?\s*\.|\bcurrent_|\bversion\s*\(|\bset_config\b|@@"
    r"|::\s*reg|\bdatabase\s*\(|\bschema\s*\(|\buser\b|_user\b|connection_id|^\W*(?:show|desc|describe|explain|summarize|use)\b",
    re.IGNORECASE,
)
_MARKERS = (
    *("pg_", "schema", "system", "current_", "version", "set_config", "@@", "reg", "database", "use"),
    *("connection_id", "show", "desc", "explain"),
)
"""Without one of these ``_MAY_BE`` cannot match; to look for them takes a microsecond."""
_CATALOG_SCHEMAS = {
    "postgres": frozenset({"pg_catalog", "information_schema"}),
    "mysql": frozenset({"information_schema", "performance_schema"}),
    "trino": frozenset({"information_schema"}),
    "": frozenset({"information_schema"}),
}
_TABLE_FUNCTIONS = frozenset({"pg_get_keywords"})
_OBJECT_TYPES = frozenset({"regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"})
_SYSTEM_PARTS = frozenset({"jdbc", "metadata", "runtime", "information_schema"})
_SESSION_FUNCTIONS = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_role",
        "current_schema",
        "current_schemas",
        "current_setting",
        "current_user",
        "connection_id",
        "database",
        "pg_backend_pid",
        "pg_is_in_recovery",
        "schema",
        "session_user",
        "set_config",
        "system_user",
        "user",
        "version",
        "obj_description",
        "col_description",
        "format_type",
        "pg_get_userbyid",
        "pg_encoding_to_char",
        "pg_table_is_visible",
        "has_table_privilege",
        "has_schema_privilege",
        "has_database_privilege",
        "pg_my_temp_schema",
        "to_regclass",
        "to_regtype",
        "quote_ident",
        "pg_get_functiondef",
        "pg_get_viewdef",
        "pg_size_pretty",
        "pg_database_size",
        "pg_get_constraintdef",
        "pg_get_expr",
    }
)
_BARE = frozenset(
    {"current_user", "session_user", "user", "current_schema", "current_catalog", "current_role"}
)
_PLUMBING = """
select as true false null pg_catalog text int integer varchar oid regclass regtype regproc regprocedure
regnamespace regrole name limit boolean bool bigint all and or not is in case when then else end
upper lower coalesce
"""
_ALLOWED_WORDS = frozenset(_PLUMBING.split())
_SHOW_WORDS = frozenset({"SHOW", "DESC", "DESCRIBE", "USE"})


@dataclass(frozen=True, slots=True)
class MetadataQuery:
    """A question that ``answer`` can answer. ``tag`` is its command tag."""

    text: str
    dialect: str
    parameters: tuple[Parameter, ...] = ()
    tag: str = "SELECT"


_known: TextCache[bool] = TextCache(2 << 20, 64 << 10)


def recognise(text: str, dialect: str, parameters: Sequence[Parameter] = ()) -> MetadataQuery | None:
    """The question that ``text`` asks of the catalog or the session, if it asks nothing else. Never parses;
    cached by text. A statement that names both the catalog and other tables is recognised too: it could not
    run elsewhere."""
    if len(text) > MAX_CHARS:
        return None
    lowered = text.lower()
    for marker in _MARKERS:
        if marker in lowered:
            break
    else:
        return None
    key = (text, dialect)
    known = _known.get(key)
    if known is None:
        known = _MAY_BE.search(text) is not None and _asks(text, dialect)
        _known.put(key, known, text)
    if not known:
        return None
    tag = "SHOW" if text.lstrip()[:4].upper() == "SHOW" else "SELECT"
    return MetadataQuery(text, dialect, tuple(parameters), tag)


def _asks(text: str, dialect: str) -> bool:
    words = [
        (kind, text[start:stop])
        for kind, start, stop in tokens(text, dialect)
        if kind not in ("space", "comment") and text[start:stop] != ";"
    ]
    if not words:
        return False
    first = words[0][1].upper()
    if first in _SHOW_WORDS or (first == "EXPLAIN" and dialect == "mysql"):
        from queryflux.metadata.show import is_show

        return is_show([word for _, word in words], dialect)
    if first not in ("SELECT", "WITH", "("):
        return False
    if _reads_catalog(words, dialect):
        return True
    if dialect == "postgres":
        words = _without_catalog(words)
        if tuple(word.lower() for _, word in words[: len(_DESCRIBES_COLUMNS)]) == _DESCRIBES_COLUMNS:
            return True
    return first == "SELECT" and _asks_session(words)


_DESCRIBED = 'select name as "column" , format_type ( tp , tpm ) as "type" from ( values'
_DESCRIBES_COLUMNS = tuple(_DESCRIBED.split())
"""What psql makes of a described statement's columns (``\\gdesc``): they come as literals."""


def _without_catalog(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without ``pg_catalog.``, which says nothing before functions and types."""
    kept: list[tuple[str, str]] = []
    for word in words:
        if word[1] == "." and kept and kept[-1][1].lower() == "pg_catalog":
            kept.pop()
        else:
            kept.append(word)
    return kept


def _reads_catalog(words: list[tuple[str, str]], dialect: str) -> bool:
    """Whether a catalog table stands where tables are named."""
    schemas = _CATALOG_SCHEMAS.get(dialect, _CATALOG_SCHEMAS[""])
    names = [_name(kind, word) for kind, word in words]
    for index, name in enumerate(names):
        if not name:
            continue
        before = words[index - 1][1].upper() if index else ""
        after = names[index + 1 : index + 5]
        dotted = len(words) > index + 1 and words[index + 1][1] == "."
        if name in schemas and dotted and before in _TABLE_PLACES and _is_table(words, index):
            return True
        if name in _TABLE_FUNCTIONS and dialect == "postgres" and before in ("FROM", "JOIN", "."):
            return True
        if dialect == "trino" and dotted and before in _TABLE_PLACES:
            second = after[1] if len(after) > 1 else ""
            if second == "information_schema" or (name == "system" and second in _SYSTEM_PARTS):
                return True
        plain = dialect == "postgres" and name.startswith("pg_") and not dotted
        if plain and before in ("FROM", "JOIN", ",") and _is_table(words, index):
            return True
    return False


_TABLE_PLACES = frozenset({"FROM", "JOIN", ",", "("})


def _is_table(words: list[tuple[str, str]], index: int) -> bool:
    """Not the name of a function: no parenthesis after the (qualified) name."""
    while index + 2 < len(words) and words[index + 1][1] == ".":
        index += 2
    return index + 1 >= len(words) or words[index + 1][1] != "("


def _name(kind: str, word: str) -> str:
    if kind == "word":
        return word.lower()
    return word[1:-1].lower() if kind == "quoted" else ""


def _asks_session(words: list[tuple[str, str]]) -> bool:
    """Whether every word of a SELECT without FROM is a session function, a literal, an alias or plumbing."""
    asks = False
    for index, (kind, word) in enumerate(words):
        lowered = word.lower()
        before = words[index - 1][1].upper() if index else ""
        if kind == "variable":
            asks = asks or word.startswith("@@")
            if not word.startswith("@@"):
                return False
        elif kind == "quoted" and before not in ("AS", "."):
            return False
        elif kind == "word" and lowered != "from" and index and _ends_expression(words[index - 1]):
            continue  # an alias without AS
        elif kind == "word" and before not in ("AS", "."):
            called = index + 1 < len(words) and words[index + 1][1] == "("
            if lowered in _SESSION_FUNCTIONS and (called or lowered in _BARE):
                asks = True
            elif lowered not in _ALLOWED_WORDS:
                return False
            asks = asks or (before == "::" and lowered in _OBJECT_TYPES)
        elif kind == "word" and before == "." and lowered in _SESSION_FUNCTIONS:
            asks = True
    return asks


def _ends_expression(word: tuple[str, str]) -> bool:
    return word[1] == ")" or word[0] in ("variable", "string", "number")
