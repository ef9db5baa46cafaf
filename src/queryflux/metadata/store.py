"""One catalog in memory: an SQLite database whose tables are made when a query first reads them.

A store is used by one thread at a time. A query may take ``DEADLINE_SECS`` and return ``MAX_ROWS`` rows of
``MAX_ANSWER_BYTES`` of text.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from queryflux.metadata.definitions import tables_of
from queryflux.metadata.functions import (
    ArrayAggregate,
    Function,
    array_text,
    plain_functions,
    session_functions,
)
from queryflux.metadata.listing import Listing
from queryflux.metadata.mysql import MysqlCatalog
from queryflux.metadata.postgres import PostgresCatalog
from queryflux.metadata.session import SessionValues
from queryflux.metadata.trino import TrinoCatalog
from queryflux.model.errors import EngineError, EngineErrorKind, QueryCancelled
from queryflux.sql.lite import Catalog, LiteQuery, lite_query
from queryflux.sql.textcache import TextCache

if TYPE_CHECKING:
    import pyarrow as pa

DEADLINE_SECS = 5.0
MAX_ROWS = 1_000_000
MAX_VALUE_BYTES = 4 << 20
MAX_ANSWER_BYTES = 128 << 20
SESSION_TABLES = frozenset(
    {
        "information_schema.processlist",
        "performance_schema.global_variables",
        "performance_schema.session_variables",
        "pg_catalog.pg_settings",
    }
)
"""Tables that are about the client's session: made anew for each question."""
_ROWS_AT_ONCE = 16
_OPCODES_BETWEEN_CHECKS = 20_000
_AFFINITIES = {"text": "TEXT", "float8": "REAL"}


class Source(Protocol):
    """Where rows come from."""

    values: SessionValues

    @property
    def search(self) -> tuple[str, ...]:
        """Schemas in which an unqualified table is looked for."""

    def rows(self, table: str) -> Iterator[Mapping[str, Any]]:
        """The rows of a table."""

    def functions(self) -> dict[str, tuple[str, Function]]:
        """Functions that look into the catalog."""


class CatalogStore:
    """The catalog of one engine as one client sees it: ``listing`` is all that the engine has."""

    def __init__(self, listing: Listing, values: SessionValues) -> None:
        self.dialect = values.dialect
        self.listing = listing
        self.key = values.key
        self.values = values
        self.stopped = False
        """``interrupt`` was called."""
        part = listing if values.dialect == "trino" else listing.within(values.database)
        self._source = _source(part, values)
        self._made: set[str] = set()
        self._compiled: TextCache[LiteQuery] = TextCache(1 << 20, 256 << 10)
        self._deadline = 0.0
        functions = {
            **plain_functions(),
            **session_functions(lambda: self.values),
            **self._source.functions(),
        }
        self._catalog = Catalog(
            tables_of(values.dialect),
            {name: kind for name, (kind, _) in functions.items()} | {"pg_array": "text"},
            self._source.search,
        )
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._prepare(functions)

    def _prepare(self, functions: Mapping[str, tuple[str, Function]]) -> None:
        database = self._database
        for name, (_, body) in functions.items():
            database.create_function(name, -1, body)
        database.create_aggregate("pg_array", 1, ArrayAggregate)  # type: ignore[arg-type]
        if self.dialect != "mysql":
            database.execute("PRAGMA case_sensitive_like = 1")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.set_progress_handler(self._over_deadline, _OPCODES_BETWEEN_CHECKS)

    def _over_deadline(self) -> int:
        return int(self.stopped or time.monotonic() > self._deadline)

    def begin(self, values: SessionValues) -> None:
        """A new question, of a client with ``values``."""
        self.values = self._source.values = values

    def compile(self, text: str) -> LiteQuery:
        """A query of the client's dialect. Raises SqlSyntaxError, EngineError, NotSupported."""
        known = self._compiled.get(text)
        if known is None:
            known = lite_query(text, self.dialect, self._catalog)
            self._compiled.put(text, known, text, known.sql)
        return known

    def interrupt(self) -> None:
        """Stop the query that runs or is about to, from any thread. The store is of no use after it."""
        self.stopped = True
        self._database.interrupt()

    def close(self) -> None:
        """Free it."""
        self._database.close()

    def run(self, text: str, parameters: Sequence[Any]) -> "pa.Table":
        """Answer a query. Raises as ``compile``; EngineError for what SQLite refuses or takes too long."""
        query = self.compile(text)
        values = [_bound(value) for value in parameters[: len(query.parameter_types)]]
        values += [None] * (len(query.parameter_types) - len(values))
        try:
            for table in query.tables - self._made:
                self._make(table)
            self._deadline = time.monotonic() + DEADLINE_SECS
            cursor = self._database.execute(query.sql, values)
            rows = _fetched(cursor)
        except sqlite3.Error as error:
            if self.stopped:
                raise QueryCancelled("the catalog query was cancelled") from error
            raise _refused(error) from error
        names = [column[0] for column in cursor.description or ()]
        return arrow_table(_columns(query, names), rows)

    def _make(self, name: str) -> None:
        columns = tables_of(self.dialect)[name]
        collation = " COLLATE NOCASE" if self.dialect == "mysql" else ""
        spelt = ", ".join(
            f'"{column}" {_AFFINITIES.get(kind, "INTEGER")}{collation if kind == "text" else ""}'
            for column, kind in columns.items()
        )
        marks = ", ".join("?" * len(columns))
        self._deadline = float("inf")
        with self._whole_or_not_at_all():
            self._database.execute(f'DROP TABLE IF EXISTS "{name}"')
            self._database.execute(f'CREATE TABLE "{name}" ({spelt})')
            self._database.executemany(
                f'INSERT INTO "{name}" VALUES ({marks})',  # noqa: S608 (names of our own tables)
                (tuple(map(row.get, columns)) for row in self._source.rows(name)),
            )
        if name not in SESSION_TABLES:
            self._made.add(name)

    @contextmanager
    def _whole_or_not_at_all(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _source(listing: Listing, values: SessionValues) -> Source:
    if values.dialect == "postgres":
        return PostgresCatalog(listing, values)
    if values.dialect == "mysql":
        return MysqlCatalog(listing, values)
    return TrinoCatalog(listing, values)


def _fetched(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """All rows. Raises EngineError when they are too many or too large, sqlite3.Error."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while some := cursor.fetchmany(_ROWS_AT_ONCE):
        rows += some
        size += sum(len(value) for row in some for value in row if isinstance(value, str | bytes))
        if len(rows) > MAX_ROWS or size > MAX_ANSWER_BYTES:
            what = "too many rows" if len(rows) > MAX_ROWS else "too much text"
            raise EngineError(f"The catalog query returns {what}.", kind=EngineErrorKind.RESOURCES)
    return rows


def _refused(error: sqlite3.Error) -> EngineError:
    if str(error) == "interrupted":
        return EngineError(
            f"The catalog query took longer than {DEADLINE_SECS:g} s and was stopped.",
            kind=EngineErrorKind.RESOURCES,
            hint="ask for less at a time: name a schema or a table",
        )
    return EngineError(
        f"The catalog query uses something that catalogs are not asked with here: {error}.",
        kind=EngineErrorKind.NOT_SUPPORTED,
        sqlstate="0A000",
    )


def _columns(query: LiteQuery, names: Sequence[str]) -> list[tuple[str, str]]:
    if len(query.columns) == len(names):
        return list(query.columns)
    return [(name, "text") for name in names]


def _bound(value: Any) -> Any:
    """A parameter as SQLite takes it."""
    if isinstance(value, list | tuple):
        return array_text(value)
    if value is None or isinstance(value, int | float | str):
        return value
    return str(value)


def arrow_types() -> dict[str, "pa.DataType"]:
    """Arrow's type of each column type."""
    import pyarrow as pa

    return {
        "bool": pa.bool_(),
        "int2": pa.int16(),
        "int4": pa.int32(),
        "int8": pa.int64(),
        "oid": pa.int64(),
        "float8": pa.float64(),
        "text": pa.string(),
    }


def arrow_schema(columns: Sequence[tuple[str, str]]) -> "pa.Schema":
    """The schema of an answer."""
    import pyarrow as pa

    types = arrow_types()
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns])


def arrow_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> "pa.Table":
    """Rows of Python values as an Arrow table. A column whose values do not fit its type becomes text."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    arrays = []
    for index, field in enumerate(schema):
        values = [_CONVERTERS[columns[index][1]](row[index]) for row in rows]
        arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=schema)


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return value.lower() in ("t", "true", "1", "on", "yes")
    return None if value is None else bool(value)


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _real(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


_CONVERTERS = {
    "bool": _truth,
    "int2": _whole,
    "int4": _whole,
    "int8": _whole,
    "oid": _whole,
    "float8": _real,
    "text": _text,
}
