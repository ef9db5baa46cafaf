"""Which statements a read-only cluster takes: an allow-list, since DuckDB's own locks are not enough.

``enable_external_access``, ``allowed_directories`` and ``lock_configuration`` still let COPY TO, EXPORT and
ATTACH write inside the folder, and CREATE in memory. The parser's statement types tell most of it, but not
all: EXPLAIN ANALYZE runs what it explains, and a WITH clause may hold a COPY or an INSERT in a statement that
is a SELECT by type. Both are seen in the tokens. A few table functions run SQL given as a string, or change
the instance, and some ask for files outside; they are refused by name.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import duckdb

from queryflux.engines.duckdb.statements import words
from queryflux.engines.duckdb.tokens import Token, tokens, writing_cte
from queryflux.model.errors import EngineError, EngineErrorKind

ALLOWED_TYPES = {"SELECT", "EXPLAIN", "TRANSACTION", "MULTI"}
_ALLOWED_FIRST = {"SELECT", "WITH", "FROM", "PIVOT", "UNPIVOT", "VALUES", "TABLE"}
_FORBIDDEN_FUNCTION = re.compile(
    r"query|json_execute_serialized_sql|python_\w+|pandas_scan|arrow_scan\w*|\w*external_resource\w*"
    r"|\w*grammar_extension|enable_\w+|disable_\w+|\w*checkpoint|truncate_duckdb_logs|write_log"
    r"|duckdb_secrets|which_secret|duckdb_extensions"
)


def check(sql: str, statement_type: str) -> None:
    """Raises EngineError of kind READ_ONLY for a statement that could write, or EngineError of kind
    PERMISSION for a function that could get around this."""
    if statement_type not in ALLOWED_TYPES:
        raise _refused(words(sql, 1))
    found = tokens(sql)
    if write := writing_cte(found):
        raise _refused([write])
    _check_functions(found)
    if statement_type == "EXPLAIN":
        _check_explained(sql, found)
    elif statement_type == "MULTI":
        _check_first(found)


def _check_functions(found: Sequence[Token]) -> None:
    for token, following in pairwise(found):
        if following.text.startswith("(") and _FORBIDDEN_FUNCTION.fullmatch(token.name):
            raise EngineError(
                f"the function {token.name} is not available here: this data is served read-only",
                kind=EngineErrorKind.PERMISSION,
                sqlstate="42501",
            )


def _check_first(found: Sequence[Token]) -> None:
    first = next((token.name for token in found if not token.text.startswith("(")), "").upper()
    if first not in _ALLOWED_FIRST:
        raise _refused([first])


def _check_explained(sql: str, found: Sequence[Token]) -> None:
    """EXPLAIN [ANALYZE] [(options)] of what would be allowed by itself."""
    rest = list(found[1:])
    if rest and rest[0].name in {"analyze", "verbose"}:
        rest = rest[1:]
    if len(rest) > 1 and rest[0].text.startswith("(") and rest[1].name in {"format", "analyze", "verbose"}:
        closing = next((index for index, token in enumerate(rest) if token.text.startswith(")")), len(rest))
        rest = rest[closing + 1 :]
    inner = sql.encode()[rest[0].offset :].decode() if rest else ""
    try:
        statements = duckdb.extract_statements(inner)
    except (duckdb.Error, ValueError):
        statements = []
    if len(statements) != 1:
        raise _refused(["EXPLAIN"])
    check(inner, statements[0].type.name)


_OF_A_SESSION = frozenset({"PREPARE", "EXECUTE", "DEALLOCATE"})
"""They write nothing, but leave behind what outlives the statement."""


def _refused(leading: list[str]) -> EngineError:
    what = leading[0] if leading else "this statement"
    if what in _OF_A_SESSION:
        return EngineError(
            f"{what} is not supported on a read-only cluster",
            kind=EngineErrorKind.NOT_SUPPORTED,
            hint="SELECT, EXPLAIN, SHOW, DESCRIBE and transactions are taken; drivers may prepare these.",
        )
    return EngineError(
        f"{what} is refused: this data is served read-only",
        kind=EngineErrorKind.READ_ONLY,
        sqlstate="25006",
        hint="SELECT, EXPLAIN, SHOW, DESCRIBE and transactions are taken.",
    )
