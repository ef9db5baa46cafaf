"""Tables and columns from PostgreSQL's own catalog, system schemas left out."""

from collections.abc import Sequence

from queryflux.engines.port import ColumnRef, TableRef
from queryflux.engines.postgres.settings import literal

_NOT_OURS = (
    r"n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
    r" AND n.nspname NOT LIKE 'pg\_temp\_%' AND n.nspname NOT LIKE 'pg\_toast\_temp\_%'"
)
_KINDS = "CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END"

TABLES = (
    f"SELECT current_database(), n.nspname, c.relname, {_KINDS}"  # noqa: S608
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    f" WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND {_NOT_OURS} ORDER BY 2, 3"
)

SCHEMAS = f"SELECT current_database(), n.nspname FROM pg_catalog.pg_namespace n WHERE {_NOT_OURS}"  # noqa: S608

RUNNING = (
    "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'active' AND usename = current_user"
    " AND datname = current_database() AND pid <> pg_catalog.pg_backend_pid()"
)
"""Statements of our role that the server works on, wherever they come from."""


def columns_sql(schema: str | None, table: str | None) -> str:
    """The query behind ``columns``."""
    matching = "".join(
        f" AND {column} = {literal(value)}"
        for column, value in (("n.nspname", schema), ("c.relname", table))
        if value is not None
    )
    return (
        f"SELECT current_database(), n.nspname, c.relname, {_KINDS}, a.attname,"  # noqa: S608
        " pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,"
        " row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)"
        " FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'f', 'v', 'm')"
        f" AND {_NOT_OURS}{matching} ORDER BY n.nspname, c.relname, a.attnum"
    )


def _texts(row: Sequence[bytes | None]) -> list[str]:
    return [(value or b"").decode() for value in row]


def table_refs(rows: Sequence[Sequence[bytes | None]]) -> list[TableRef]:
    """Rows of TABLES."""
    return [TableRef(*_texts(row)) for row in rows]


def schema_names(rows: Sequence[Sequence[bytes | None]]) -> list[tuple[str, str]]:
    """Rows of SCHEMAS."""
    return [(catalog, schema) for catalog, schema in map(_texts, rows)]


def column_refs(rows: Sequence[Sequence[bytes | None]]) -> list[ColumnRef]:
    """Rows of ``columns_sql``."""
    found = []
    for row in rows:
        catalog, schema, table, kind, name, type_name, nullable, position = _texts(row)
        found.append(
            ColumnRef(TableRef(catalog, schema, table, kind), name, type_name, nullable == "t", int(position))
        )
    return found
