"""SHOW and DESCRIBE as SELECTs from the catalog of the same dialect.

Sources: MySQL 8.0 reference manual, 15.7.7; Trino documentation, "SQL statement syntax".
"""

# ruff: noqa: S608  (texts for the catalog in memory; names and values in them are quoted)

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from queryflux.metadata.session import SessionValues
from queryflux.model.errors import InvalidRequest
from queryflux.sql.lexer import tokens


@dataclass(frozen=True, slots=True)
class Shown:
    """``sql`` reads the catalog. ``table`` is what is described: catalog and schema (may be empty) and name;
    when there is no such table the answer is an error. ``create`` asks for its definition instead.
    ``database`` is one that has to be there."""

    sql: str
    table: tuple[str, str, str] | None = None
    create: bool = False
    database: str = ""


class Words:
    """The tokens of a SHOW statement, consumed from the front."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [word for word in words if word != ";"]

    def __bool__(self) -> bool:
        return bool(self._words)

    def peek(self) -> str:
        """The next word in upper case; empty at the end."""
        return self._words[0].upper() if self._words else ""

    def take(self, *wanted: str) -> bool:
        """Drop the next word if it is one of these."""
        if self.peek() in wanted:
            del self._words[0]
            return True
        return False

    def next(self) -> str:
        """The next word as written. Raises InvalidRequest at the end."""
        if not self._words:
            raise InvalidRequest("The SHOW statement ends too early.")
        return self._words.pop(0)

    def path(self) -> list[str]:
        """A name in parts, without quotes."""
        parts = [unquoted(self.next())]
        while self.take("."):
            parts.append(unquoted(self.next()))
        return parts

    def rest(self) -> str:
        """What is left, as SQL."""
        text = " ".join(self._words)
        self._words.clear()
        return text


def unquoted(word: str) -> str:
    """A name without its quotes."""
    if len(word) > 1 and word[0] in "\"`'" and word[-1] == word[0]:
        return word[1:-1].replace(word[0] * 2, word[0])
    return word


def literal(text: str) -> str:
    """A string literal of any dialect but MySQL's."""
    return "'" + text.replace("'", "''") + "'"


def words_of(text: str, dialect: str) -> list[str]:
    """The significant tokens of a text."""
    return [text[a:b] for kind, a, b in tokens(text, dialect) if kind not in ("space", "comment")]


def is_show(words: Sequence[str], dialect: str) -> bool:
    """Whether ``shown`` knows the statement."""
    from queryflux.metadata import mysql_show, trino_show

    upper = [word.upper() for word in words[:4]] + ["", "", "", ""]
    if dialect == "mysql":
        return mysql_show.knows(upper)
    if dialect == "trino":
        return trino_show.knows(upper)
    return _plain_knows(upper, dialect)


def shown(text: str, dialect: str, values: SessionValues) -> Shown:
    """The SELECT that answers a statement for which ``is_show`` is true. Raises InvalidRequest."""
    from queryflux.metadata import mysql_show, trino_show

    words = Words(words_of(text, dialect))
    makers: dict[str, Callable[[Words, SessionValues], Shown]] = {
        "mysql": mysql_show.select_of,
        "trino": trino_show.select_of,
    }
    return makers.get(dialect, _plain_select)(words, values)


def _plain_knows(upper: Sequence[str], dialect: str) -> bool:
    first, second, third = upper[:3]
    if first in ("DESCRIBE", "DESC"):
        return second not in ("SELECT", "WITH", "VALUES", "INSERT", "FROM", "TABLE", "(")
    if first != "SHOW":
        return False
    lists = second == "TABLES" or (second in ("SCHEMAS", "DATABASES") and not third)
    return lists or dialect == "postgres"


def _plain_select(words: Words, values: SessionValues) -> Shown:
    """PostgreSQL's SHOW of a setting; SHOW TABLES and DESCRIBE for clients of DuckDB's habits."""
    schema = literal(values.schema) if values.schema else "table_schema"
    if not words.take("SHOW"):
        words.next()
        words.take("TABLE")
        return _plain_describe(words.path(), values)
    if words.take("TABLES"):
        if words.take("FROM", "IN"):
            schema = literal(words.path()[-1])
        condition = f"table_schema = {schema} AND table_schema NOT IN ('pg_catalog', 'information_schema')"
        return Shown(f"SELECT table_name AS name FROM information_schema.tables WHERE {condition} ORDER BY 1")
    if words.take("SCHEMAS", "DATABASES"):
        return Shown("SELECT schema_name AS name FROM information_schema.schemata ORDER BY 1")
    if words.take("ALL"):
        return Shown("SELECT name, setting, short_desc AS description FROM pg_catalog.pg_settings ORDER BY 1")
    if words.take("TRANSACTION"):
        return Shown("SELECT current_setting('transaction_isolation') AS transaction_isolation")
    if words.take("TIME"):
        return Shown("SELECT current_setting('timezone') AS \"TimeZone\"")
    name = unquoted(words.next())
    if values.setting(name) is None:
        raise InvalidRequest(f'unrecognized configuration parameter "{name}"')
    return Shown(f'SELECT current_setting({literal(name)}) AS "{name}"')


def _plain_describe(path: list[str], values: SessionValues) -> Shown:
    catalog, schema, name = ["", "", *path][-3:]
    schema = schema or values.schema
    where = f"table_name = {literal(name)}" + (f" AND table_schema = {literal(schema)}" if schema else "")
    return Shown(
        'SELECT column_name, data_type AS column_type, is_nullable AS "null", CAST(NULL AS text) AS "key", '
        'column_default AS "default", CAST(NULL AS text) AS extra '
        f"FROM information_schema.columns WHERE {where} ORDER BY ordinal_position",
        (catalog, schema, name),
    )
