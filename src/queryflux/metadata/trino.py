"""Trino's information_schema, system.jdbc, system.metadata and system.runtime (Trino documentation, "System
connector"; the JDBC driver reads system.jdbc), and the ISO information schema for clients of no dialect."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from queryflux.engines.port import TableRef
from queryflux.metadata.functions import Function
from queryflux.metadata.listing import Listing
from queryflux.metadata.postgres import information_sizes
from queryflux.metadata.session import TRINO_VERSION, SessionValues
from queryflux.metadata.types import FAMILIES, ColumnType, parse

Row = Mapping[str, Any]

_NULLABLE, _NO_NULLS, _SEARCHABLE = 1, 0, 3
_NOT_TYPES = frozenset({"decimal", "numeric", "name", "text", "array", "nested", "other", "bit", "inet"})


class TrinoCatalog:
    """Rows of every catalog table, made when one is asked for."""

    def __init__(self, listing: Listing, values: SessionValues) -> None:
        self._listing = listing
        self.values = values
        schema = values.schema.lower()
        self.search: tuple[str, ...] = (schema,) if schema == "information_schema" else ()
        if (values.catalog or "").lower() == "system":
            self.search = (f"system.{schema}",)

    def functions(self) -> dict[str, tuple[str, Function]]:
        """It has none of its own."""
        return {}

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table; a column that is not in a row is NULL."""
        maker = _MAKERS.get(table)
        return maker(self) if maker is not None else iter(())

    def _schemas(self) -> list[tuple[str, str]]:
        schemas = [*self._listing.schemas]
        return [*schemas, *((catalog, "information_schema") for catalog in self._listing.catalogs)]

    def _schemata(self) -> Iterator[Row]:
        for catalog, schema in self._schemas():
            yield {"catalog_name": catalog, "schema_name": schema, "schema_owner": self.values.user}

    def _tables(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            yield {**_place(table), "table_type": "VIEW" if table.kind == "view" else "BASE TABLE"}

    def _views(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            if table.kind == "view":
                yield _place(table)

    def _columns(self) -> Iterator[Row]:
        trino = self.values.dialect == "trino"
        for table, columns in self._listing.tables:
            place = _place(table)
            for number, column in enumerate(columns, 1):
                kind = parse(column.type_name)
                yield {
                    **place,
                    "column_name": column.name,
                    "ordinal_position": number,
                    "is_nullable": "YES" if column.nullable else "NO",
                    "data_type": kind.trino if trino else column.type_name,
                    **information_sizes(kind),
                }

    def _jdbc_catalogs(self) -> Iterator[Row]:
        for catalog in self._listing.catalogs:
            yield {"table_cat": catalog}

    def _jdbc_schemas(self) -> Iterator[Row]:
        for catalog, schema in self._schemas():
            yield {"table_schem": schema, "table_catalog": catalog}

    def _jdbc_tables(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            yield {**_jdbc_place(table), "table_type": "VIEW" if table.kind == "view" else "TABLE"}

    def _jdbc_columns(self) -> Iterator[Row]:
        for table, columns in self._listing.tables:
            place = _jdbc_place(table)
            for number, column in enumerate(columns, 1):
                kind = parse(column.type_name)
                yield {
                    **place,
                    "column_name": column.name,
                    "data_type": kind.row.jdbc,
                    "type_name": kind.trino,
                    "column_size": _size(kind),
                    "decimal_digits": kind.scale if kind.family == "decimal" else None,
                    "num_prec_radix": kind.row.radix,
                    "nullable": _NULLABLE if column.nullable else _NO_NULLS,
                    "char_octet_length": kind.length,
                    "ordinal_position": number,
                    "is_nullable": "YES" if column.nullable else "NO",
                }

    def _jdbc_table_types(self) -> Iterator[Row]:
        yield {"table_type": "TABLE"}
        yield {"table_type": "VIEW"}

    def _jdbc_types(self) -> Iterator[Row]:
        seen: set[str] = set()
        for name, family in FAMILIES.items():
            spelling = ColumnType(name, "").trino.partition("(")[0]
            if name in _NOT_TYPES or spelling in seen:
                continue
            seen.add(spelling)
            yield {
                "type_name": spelling,
                "data_type": family.jdbc,
                "precision": family.digits,
                "nullable": _NULLABLE,
                "case_sensitive": int(spelling in ("varchar", "char")),
                "searchable": _SEARCHABLE,
                "unsigned_attribute": 0,
                "fixed_prec_scale": 0,
                "auto_increment": 0,
                "minimum_scale": 0,
                "maximum_scale": 0,
                "num_prec_radix": family.radix,
            }

    def _catalogs(self) -> Iterator[Row]:
        for catalog in self._listing.catalogs:
            yield {"catalog_name": catalog, "connector_id": catalog, "connector_name": catalog}

    def _comments(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            yield {"catalog_name": table.catalog, "schema_name": table.schema, "table_name": table.name}

    def _nodes(self) -> Iterator[Row]:
        yield {
            "node_id": "queryflux",
            "http_uri": "",
            "node_version": TRINO_VERSION,
            "coordinator": 1,
            "state": "active",
        }

    def _roles(self) -> Iterator[Row]:
        yield {"role_name": "public"}


_MAKERS: dict[str, Callable[[TrinoCatalog], Iterator[Row]]] = {
    "information_schema.schemata": TrinoCatalog._schemata,
    "information_schema.tables": TrinoCatalog._tables,
    "information_schema.views": TrinoCatalog._views,
    "information_schema.columns": TrinoCatalog._columns,
    "information_schema.roles": TrinoCatalog._roles,
    "information_schema.enabled_roles": TrinoCatalog._roles,
    "system.jdbc.catalogs": TrinoCatalog._jdbc_catalogs,
    "system.jdbc.schemas": TrinoCatalog._jdbc_schemas,
    "system.jdbc.tables": TrinoCatalog._jdbc_tables,
    "system.jdbc.columns": TrinoCatalog._jdbc_columns,
    "system.jdbc.table_types": TrinoCatalog._jdbc_table_types,
    "system.jdbc.types": TrinoCatalog._jdbc_types,
    "system.metadata.catalogs": TrinoCatalog._catalogs,
    "system.metadata.table_comments": TrinoCatalog._comments,
    "system.runtime.nodes": TrinoCatalog._nodes,
}


def _place(table: TableRef) -> dict[str, Any]:
    return {"table_catalog": table.catalog, "table_schema": table.schema, "table_name": table.name}


def _jdbc_place(table: TableRef) -> dict[str, Any]:
    return {"table_cat": table.catalog, "table_schem": table.schema, "table_name": table.name}


def _size(kind: ColumnType) -> int | None:
    if kind.family == "decimal":
        return kind.precision
    return kind.length if kind.length is not None else kind.row.digits
