"""Tables and columns, as DuckDB's own catalog functions list them."""

from collections.abc import Callable
from typing import Any

from queryflux.engines.port import ColumnRef, TableRef

Ask = Callable[[str, list[Any]], list[tuple[Any, ...]]]

_TABLES = """
SELECT database_name, schema_name, table_name AS name, 'table' AS kind FROM duckdb_tables() WHERE NOT internal
UNION ALL
SELECT database_name, schema_name, view_name, 'view' FROM duckdb_views() WHERE NOT internal
ORDER BY 1, 2, 3
"""
_SCHEMAS = "SELECT database_name, schema_name FROM duckdb_schemas() ORDER BY 1, 2"
_COLUMNS = """
SELECT database_name, schema_name, table_name, column_name, data_type, is_nullable, column_index
FROM duckdb_columns()
WHERE NOT internal AND ($1 IS NULL OR schema_name = $1) AND ($2 IS NULL OR table_name = $2)
ORDER BY 1, 2, 3, column_index
"""
_HIDDEN = {"system", "temp"}


def tables(ask: Ask, of_folder: bool) -> list[TableRef]:
    """Every table and view; in a folder the views are its tables."""
    return [
        TableRef(catalog, schema, name, "table" if of_folder else kind)
        for catalog, schema, name, kind in ask(_TABLES, [])
        if catalog not in _HIDDEN
    ]


def schemas(ask: Ask) -> list[tuple[str, str]]:
    """Databases and their schemas, also those without tables."""
    return [(catalog, schema) for catalog, schema in ask(_SCHEMAS, []) if catalog not in _HIDDEN]


def columns(ask: Ask, of_folder: bool, schema: str | None, table: str | None) -> list[ColumnRef]:
    """Columns of the tables that match, by table and position."""
    refs = {(ref.catalog, ref.schema, ref.name): ref for ref in tables(ask, of_folder)}
    found = []
    for catalog, in_schema, of_table, name, type_name, nullable, position in ask(_COLUMNS, [schema, table]):
        ref = refs.get((catalog, in_schema, of_table))
        if ref is not None:
            found.append(ColumnRef(ref, name, type_name, bool(nullable), position))
    return found
