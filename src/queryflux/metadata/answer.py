"""Answers to questions about the catalog, from an engine's own list of tables and columns.

A query runs in a thread of its own, so that no catalog is too large for the event loop.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from queryflux.engines.port import Engine
from queryflux.metadata.catalogs import POSTGRES_HOME, EngineCatalog, catalog_of, forget
from queryflux.metadata.listing import Listing
from queryflux.metadata.recognise import MetadataQuery
from queryflux.metadata.session import SessionValues
from queryflux.metadata.show import Shown, is_show, shown, words_of
from queryflux.metadata.store import CatalogStore, arrow_schema, arrow_table
from queryflux.metadata.types import parse
from queryflux.model.errors import EngineError, EngineErrorKind, QueryCancelled
from queryflux.model.identity import VerifiedIdentity
from queryflux.model.protocol import ClientProtocol
from queryflux.model.settings import MYSQL_COLLATION
from queryflux.model.statement import Session
from queryflux.results.answer import Shape
from queryflux.runtime.threads import LaneThread

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
__all__ = ["Asking", "answer", "forget", "shape"]
_SHOWN_NAMES = 10
_CANCELLED = "the catalog query was cancelled"
_FUNCTION_OID = re.compile(
    r"\s*select\s+e?'((?:[^']|'')*)'::(?:pg_catalog\.)?regproc(?:edure)?::(?:pg_catalog\.)?oid\s*;?\s*\Z",
    re.IGNORECASE,
)
_NOT_FOUND = {"mysql": (1146, "42S02"), "postgres": (None, "42P01")}


class Asking:
    """One question on its way. ``cancel`` ends it from any task of the loop."""

    def __init__(
        self, question: MetadataQuery, engine: Engine, session: Session, identity: VerifiedIdentity
    ) -> None:
        self._about = (question, engine, session, identity)
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = asyncio.Event()

    async def answer(self) -> "pa.Table":
        """As the function ``answer``. Raises QueryCancelled once cancelled."""
        return await self._run(answer)

    async def shape(self) -> Shape:
        """As the function ``shape``. Raises QueryCancelled once cancelled."""
        return await self._run(shape)

    def cancel(self) -> None:
        """Stop it, also while it waits for the engine's list of tables. Returns at once."""
        self._cancelled.set()
        if self._task is not None:
            self._task.cancel()

    async def _run(self, how: Callable[..., Coroutine[Any, Any, T]]) -> T:
        if self._cancelled.is_set():
            raise QueryCancelled(_CANCELLED)
        task: asyncio.Task[T] = asyncio.create_task(how(*self._about), name="catalog question")
        self._task = task
        try:
            return await task
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if self._cancelled.is_set() and (waiter is None or not waiter.cancelling()):
                raise QueryCancelled(_CANCELLED) from None
            raise
        finally:
            self._task = None


async def answer(
    question: MetadataQuery, engine: Engine, session: Session, identity: VerifiedIdentity
) -> "pa.Table":
    """The rows that ``question`` asks for. Raises EngineError (no such table, not supported), SqlSyntaxError,
    InvalidRequest, NotSupported, and what the engine's ``tables`` and ``columns`` raise."""

    def run(store: CatalogStore, listing: Listing) -> "pa.Table":
        sql, made = _resolve(question, store, listing)
        return made if made is not None else store.run(sql, [item.value for item in question.parameters])

    return await _with_store(question, engine, session, identity, run)


async def shape(
    question: MetadataQuery, engine: Engine, session: Session, identity: VerifiedIdentity
) -> Shape:
    """Columns and parameter types of ``question``. Raises as ``answer``."""

    def run(store: CatalogStore, listing: Listing) -> Shape:
        sql, made = _resolve(question, store, listing)
        if made is not None:
            return Shape((), made.schema)
        query = store.compile(sql)
        return Shape(query.parameter_types, arrow_schema(query.columns))

    return await _with_store(question, engine, session, identity, run)


async def _with_store(
    question: MetadataQuery,
    engine: Engine,
    session: Session,
    identity: VerifiedIdentity,
    run: Callable[[CatalogStore, Listing], T],
) -> T:
    known = catalog_of(engine)
    listed_at = known.listed_at
    try:
        return await _ask(known, await known.current(engine), question, session, identity, run)
    except EngineError as error:
        if error.kind is not EngineErrorKind.SCHEMA_NOT_FOUND or known.listed_at != listed_at:
            raise
    forget(engine)  # somebody else may have made it a moment ago
    return await _ask(known, await known.current(engine), question, session, identity, run)


async def _ask(
    known: EngineCatalog,
    listing: Listing,
    question: MetadataQuery,
    session: Session,
    identity: VerifiedIdentity,
    run: Callable[[CatalogStore, Listing], T],
) -> T:
    if question.dialect == "mysql" and known.has_catalogs:
        listing = listing.databases
        if session.database is not None:
            wanted = session.database.lower()
            session = replace(session, database=listing.renamed.get(wanted, session.database))
    async with known.turns:
        return await _on_thread(
            known, listing, lambda: _values(question.dialect, session, identity, listing, known.home), run
        )


async def _on_thread(
    known: EngineCatalog,
    listing: Listing,
    values: Callable[[], SessionValues],
    run: Callable[[CatalogStore, Listing], T],
) -> T:
    """``run`` with a store, which belongs to the thread until that has ended."""
    taken: list[CatalogStore] = []
    given_up = threading.Event()

    def work() -> T:
        store = known.take(listing, values())
        taken.append(store)
        if given_up.is_set():
            store.interrupt()
        return run(store, listing)

    thread = LaneThread("catalog")
    done = thread.submit(work)
    thread.close()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        given_up.set()
        for store in taken:
            store.interrupt()
        await asyncio.wait([done])
        done.exception()  # nobody else will look at it
        raise
    finally:
        await thread.join()
        for store in taken:
            known.give_back(store)


def _values(
    dialect: str, session: Session, identity: VerifiedIdentity, listing: Listing, home: str
) -> SessionValues:
    part = listing.within(session.catalog)
    trino = session.protocol is ClientProtocol.TRINO_HTTP
    usual: str | None
    fallback, own = "", {}
    if trino:
        usual = session.database
    elif dialect == "mysql":
        own = _own_databases(part, home)
        usual, fallback = _mysql_schemas(session.database or "", part, home, own)
    else:
        usual = part.default_schema(session.database)
    catalogs = part.catalogs
    database = session.catalog or (catalogs[0] if catalogs else "queryflux")
    path = tuple(name.strip().strip('"') for name in session.extra.get("search_path", "").split(","))
    return SessionValues(
        dialect=dialect,
        user=identity.user,
        database=database,
        schema=usual or "",
        fallback=fallback,
        own=own,
        own_qualifies=home != POSTGRES_HOME,  # there ``SELECT ... FROM shop.orders`` asks for a schema
        catalog=session.catalog.lower() if session.catalog and trino else None,
        search_path=tuple(name for name in path if name and name != "$user") or ((usual,) if usual else ()),
        peer=session.peer,
        extra=session.extra if dialect in ("postgres", "mysql") else {},
    )


def _own_databases(listing: Listing, home: str) -> dict[str, str]:
    """Names of the engine's own databases that no schema has, each with the schema that engines begin in."""
    names = {schema.lower() for _, schema in listing.schemas}
    if home not in names:
        return {}
    return {name: home for name in map(str.lower, listing.catalogs) if name not in names}


def _mysql_schemas(database: str, listing: Listing, home: str, own: Mapping[str, str]) -> tuple[str, str]:
    """The schemas in which a statement of such a client finds plain names: the current one, and the next."""
    names = {schema.lower() for _, schema in listing.schemas}
    if not database:
        schemas = {schema for _, schema in listing.schemas}
        return (schemas.pop() if len(schemas) == 1 else ""), home
    if database.lower() in names:
        return database, home if home == POSTGRES_HOME else ""  # DuckDB looks into one schema
    return own.get(database.lower(), database), home


def _resolve(question: MetadataQuery, store: CatalogStore, listing: Listing) -> tuple[str, "pa.Table | None"]:
    """The SELECT to run, or the answer itself where no SELECT gives it."""
    if question.dialect == "postgres" and (function := _FUNCTION_OID.match(question.text)) is not None:
        raise _no_function(function[1].replace("''", "'"))
    words = words_of(question.text, question.dialect)
    if words[0].upper() in ("SELECT", "WITH", "(") or not is_show(words, question.dialect):
        return question.text, None
    wanted = shown(question.text, question.dialect, store.values)
    if wanted.database and listing.lacks(wanted.database):
        raise _no_database(wanted.database, listing)
    if wanted.table is None:
        return wanted.sql, None
    entry = _find(listing, wanted)
    if entry is None and store.values.fallback:
        # The same for a name with its database: then there is no second place.
        next_one = shown(question.text, question.dialect, replace(store.values, schema=store.values.fallback))
        entry = _find(listing, next_one)
        wanted = next_one if entry is not None else wanted
    if entry is None:
        raise _no_table(question.dialect, wanted)
    if wanted.create:
        return "", _definition(question.dialect, entry)
    return wanted.sql, None


def _find(listing: Listing, wanted: Shown) -> Any:
    assert wanted.table is not None
    catalog, schema, name = (part.lower() for part in wanted.table)
    for table, columns in listing.tables:
        there = (not catalog or table.catalog.lower() == catalog) and (
            not schema or table.schema.lower() == schema
        )
        if there and table.name.lower() == name:
            return table, columns
    return None


def _no_function(name: str) -> EngineError:
    """What psql's ``\\sf`` asks first: no engine's functions are listed."""
    kind = EngineErrorKind.FUNCTION_NOT_FOUND
    return EngineError(f'function "{name}" does not exist', kind=kind, sqlstate="42883")


def _no_database(name: str, listing: Listing) -> EngineError:
    known = list(dict.fromkeys(schema for _, schema in listing.schemas))
    shown_names = ", ".join(known[:_SHOWN_NAMES]) + (", ..." if len(known) > _SHOWN_NAMES else "")
    return EngineError(
        f"Unknown database '{name}'",
        kind=EngineErrorKind.SCHEMA_NOT_FOUND,
        number=1049,
        sqlstate="42000",
        hint=f"there are: {shown_names}" if known else "there are none",
    )


def _no_table(dialect: str, wanted: Shown) -> EngineError:
    assert wanted.table is not None
    name = ".".join(part for part in wanted.table if part)
    number, state = _NOT_FOUND.get(dialect, (None, ""))
    message = f"Table '{name}' doesn't exist" if dialect == "mysql" else f"Table '{name}' does not exist"
    kind = EngineErrorKind.TABLE_NOT_FOUND
    return EngineError(message, kind=kind, number=number, sqlstate=state, name="TABLE_NOT_FOUND")


def _definition(dialect: str, entry: Any) -> "pa.Table":
    """SHOW CREATE TABLE or VIEW: names and types, which is all that is known."""
    table, columns = entry
    view = table.kind == "view"
    what = "View" if view else "Table"
    lines = []
    for column in columns:
        kind = parse(column.type_name)
        null = "" if column.nullable else " NOT NULL"
        if dialect == "mysql":
            lines.append(f"  {_tick(column.name)} {kind.mysql}{null or ' DEFAULT NULL'}")
        else:
            lines.append(f"   {_quoted(column.name)} {kind.trino}{null}")
    body = ",\n".join(lines)
    if dialect == "mysql":
        text = f"CREATE {what.upper()} {_tick(table.name)} (\n{body}\n)"
        names = [(what, "text"), (f"Create {what}", "text")]
        row = [table.name, text]
        if view:
            names += [("character_set_client", "text"), ("collation_connection", "text")]
            row += ["utf8mb4", MYSQL_COLLATION]
        return arrow_table(names, [row])
    full = ".".join(map(_quoted, (table.catalog, table.schema, table.name)))
    return arrow_table([(f"Create {what}", "text")], [[f"CREATE {what.upper()} {full} (\n{body}\n)"]])


def _tick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name == name.lower() and not name[0].isdigit()
    return name if plain else '"' + name.replace('"', '""') + '"'
