"""Tables and views with the object identifiers that PostgreSQL clients ask for."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from queryflux.engines.port import ColumnRef
from queryflux.metadata.definitions import tables_of
from queryflux.metadata.listing import Listing
from queryflux.metadata.types import ColumnType, parse

FIXED_OIDS = {
    "pg_catalog.pg_type": 1247,
    "pg_catalog.pg_attribute": 1249,
    "pg_catalog.pg_proc": 1255,
    "pg_catalog.pg_class": 1259,
    "pg_catalog.pg_database": 1262,
    "pg_catalog.pg_constraint": 2606,
    "pg_catalog.pg_namespace": 2615,
    "pg_catalog.pg_index": 2610,
    "pg_catalog.pg_description": 2609,
}
"""Tables of the catalog whose oid clients know by heart."""
_FIRST_OID = 16384
_OID_RANGE = 1 << 30
_SYSTEM_VIEW_NAMES = """
pg_tables pg_views pg_matviews pg_indexes pg_settings pg_roles pg_user pg_group pg_rules pg_stat_activity
pg_sequences pg_locks pg_cursors pg_policies pg_shadow
"""
_SYSTEM_VIEWS = frozenset(_SYSTEM_VIEW_NAMES.split())


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view with its oid."""

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[tuple[str, ColumnType, bool], ...]
    system: bool


def stable_oid(name: str, taken: set[int]) -> int:
    """An oid that stays the same while tables come and go around it."""
    oid = _FIRST_OID + zlib.crc32(name.encode()) % _OID_RANGE
    while oid in taken:
        oid += 1
    taken.add(oid)
    return oid


def user_relations(listing: Listing, taken: set[int]) -> Iterator[Relation]:
    """The engine's tables. ``taken`` gathers the oids in use."""
    for table, columns in listing.tables:
        name = f"{table.catalog}.{table.schema}.{table.name}"
        kind = "v" if table.kind == "view" else "r"
        parsed = tuple(_column(column) for column in columns)
        yield Relation(stable_oid(name, taken), table.schema, table.name, kind, parsed, False)


def _column(column: ColumnRef) -> tuple[str, ColumnType, bool]:
    return column.name, parse(column.type_name), column.nullable


def system_relations(taken: set[int]) -> Iterator[Relation]:
    """The catalog's own tables."""
    for number, (full, columns) in enumerate(tables_of("postgres").items()):
        schema, _, name = full.partition(".")
        oid = FIXED_OIDS.get(full, 12000 + number)
        taken.add(oid)
        parsed = tuple((column, parse(kind), True) for column, kind in columns.items())
        kind = "v" if schema == "information_schema" or name in _SYSTEM_VIEWS else "r"
        yield Relation(oid, schema, name, kind, parsed, True)
