"""Tables and columns of every catalog, from ``system.jdbc``. A catalog that fails is left out, and logged:
one metastore that is down must not hide the others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queryflux.engines.port import ColumnRef, TableRef
from queryflux.engines.trino.rows import PlainRows
from queryflux.model.errors import EngineError

log = logging.getLogger(__name__)

AT_ONCE = 4
_HIDDEN = {"system"}
_NULLABLE = 1
_TABLES = (
    "SELECT table_schem, table_name, table_type FROM system.jdbc.tables"
    " WHERE table_cat = {} AND table_schem <> 'information_schema' ORDER BY 1, 2"
)
_COLUMNS = (
    "SELECT table_schem, table_name, column_name, type_name, nullable, ordinal_position"
    " FROM system.jdbc.columns WHERE table_cat = {} AND table_schem <> 'information_schema'"
)

_SCHEMAS = (
    "SELECT table_schem FROM system.jdbc.schemas"
    " WHERE table_catalog = {} AND table_schem <> 'information_schema' ORDER BY 1"
)

Ask = Callable[[str], Awaitable[PlainRows]]


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


async def tables(ask: Ask) -> list[TableRef]:
    """Every table and view. Raises what ``ask`` raises, EngineError of a single catalog aside."""
    return [
        TableRef(catalog, str(schema), str(name), "view" if kind == "VIEW" else "table")
        for catalog, rows in await _each_catalog(ask, _TABLES)
        if rows is not None
        for schema, name, kind in rows.rows
    ]


async def places(ask: Ask) -> tuple[list[tuple[str, str]], bool]:
    """Catalogs and schemas, and whether every catalog could be asked. Raises as ``tables``."""
    answers = await _each_catalog(ask, _SCHEMAS)
    found = [(catalog, str(row[0])) for catalog, rows in answers if rows is not None for row in rows.rows]
    return found, all(rows is not None for _, rows in answers)


async def schemas(ask: Ask) -> list[tuple[str, str]] | None:
    """Catalogs and schemas; None while a catalog does not tell: there may be others."""
    found, complete = await places(ask)
    return found if complete else None


async def columns(ask: Ask, schema: str | None, table: str | None) -> list[ColumnRef]:
    """Columns of the tables that match, by table and position."""
    condition = ""
    if schema is not None:
        condition += f" AND table_schem = {quoted(schema)}"
    if table is not None:
        condition += f" AND table_name = {quoted(table)}"
    sql = _COLUMNS + condition.replace("{", "{{").replace("}", "}}")
    kinds = {(ref.catalog, ref.schema, ref.name): ref for ref in await tables(ask)}
    found = []
    for catalog, rows in await _each_catalog(ask, sql):
        for in_schema, of_table, name, type_name, nullable, position in rows.rows if rows is not None else ():
            ref = kinds.get((catalog, in_schema, of_table)) or TableRef(catalog, in_schema, of_table)
            found.append(ColumnRef(ref, name, type_name, nullable == _NULLABLE, position))
    return sorted(found, key=lambda c: (c.table.catalog, c.table.schema, c.table.name, c.position))


async def _each_catalog(ask: Ask, sql: str) -> list[tuple[str, PlainRows | None]]:
    """The answer of each catalog, None where it failed."""
    named = await ask("SELECT catalog_name FROM system.metadata.catalogs ORDER BY 1")
    catalogs = [str(row[0]) for row in named.rows if row[0] not in _HIDDEN]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(catalog: str) -> PlainRows | None:
        async with room:
            try:
                return await ask(sql.format(quoted(catalog)))
            except EngineError as error:
                log.warning("catalog %s cannot be listed: %s", catalog, error.message)
                return None

    answers = await asyncio.gather(*(one(catalog) for catalog in catalogs))
    return list(zip(catalogs, answers, strict=True))
