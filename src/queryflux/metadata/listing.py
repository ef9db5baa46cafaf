"""What an engine says it has, in the order that catalogs show it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from queryflux.engines.port import ColumnRef, TableRef

SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog", "pg_toast", "sys", "performance_schema"})
"""Engines' own catalogs: each protocol has its own in their place."""
_USUAL_SCHEMAS = ("public", "main", "default")


@dataclass(frozen=True)
class Listing:
    """Tables and views with their columns, sorted by catalog, schema and name. ``places`` are the catalogs
    and schemas, also those without tables; None where the engine lists none."""

    tables: tuple[tuple[TableRef, tuple[ColumnRef, ...]], ...]
    places: tuple[tuple[str, str], ...] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict, compare=False)
    """In a list of databases: how each is called, by ``catalog.schema`` in lower case."""

    @cached_property
    def databases(self) -> "Listing":
        """The same without catalogs, for clients that know databases only: each schema by its name, or as
        ``catalog.schema`` where several catalogs have one of that name."""
        count = Counter(schema.lower() for _, schema in self.schemas)
        names = {
            (catalog, schema): schema if count[schema.lower()] == 1 else f"{catalog}.{schema}"
            for catalog, schema in self.schemas
        }
        tables = [
            (replace(table, catalog="", schema=names[table.catalog, table.schema]), columns)
            for table, columns in self.tables
        ]
        return Listing(
            tuple(sorted(tables, key=lambda entry: (entry[0].schema, entry[0].name))),
            None if self.places is None else tuple(("", names[place]) for place in self.places),
            {f"{catalog}.{schema}".lower(): name for (catalog, schema), name in names.items()},
        )

    @property
    def catalogs(self) -> list[str]:
        """Names of catalogs, in order."""
        return list(dict.fromkeys(catalog for catalog, _ in self.schemas))

    @property
    def schemas(self) -> list[tuple[str, str]]:
        """Catalogs and schemas, in order."""
        of_tables = {(table.catalog, table.schema) for table, _ in self.tables}
        return sorted(of_tables.union(self.places or ()))

    def lacks(self, database: str) -> bool:
        """Whether there is certainly no catalog or schema of that name, in any case."""
        if self.places is None:
            return False
        names = {name.lower() for place in self.schemas for name in place} | SYSTEM_SCHEMAS | {"mysql"}
        return database.lower() not in names and database.lower() not in self.renamed

    def within(self, catalog: str | None) -> "Listing":
        """The part in one catalog, by any case; all of it when the engine has no such catalog."""
        wanted = (catalog or "").lower()
        part = tuple(entry for entry in self.tables if entry[0].catalog.lower() == wanted)
        places = tuple(place for place in self.places or () if place[0].lower() == wanted)
        return Listing(part, None if self.places is None else places) if part or places else self

    def default_schema(self, wanted: str | None) -> str:
        """The schema that an unqualified name means: the client's, else the only one or a usual one, else
        none (empty)."""
        names = list(dict.fromkeys(schema for _, schema in self.schemas))
        by_lower = {name.lower(): name for name in names}
        for candidate in (wanted, *_USUAL_SCHEMAS):
            if candidate and candidate.lower() in by_lower:
                return by_lower[candidate.lower()]
        return names[0] if len(names) == 1 else (wanted or "")


def listing_of(
    tables: Iterable[TableRef],
    columns: Iterable[ColumnRef],
    schemas: Iterable[tuple[str, str]] | None = None,
) -> Listing:
    """Put tables and columns together. Columns of tables that are not listed are left out."""
    found: dict[tuple[str, str, str], list[ColumnRef]] = {}
    for column in columns:
        table = column.table
        found.setdefault((table.catalog, table.schema, table.name), []).append(column)
    kept = sorted(
        (table for table in tables if table.schema.lower() not in SYSTEM_SCHEMAS),
        key=lambda table: (table.catalog, table.schema, table.name),
    )
    return Listing(
        tuple(
            (table, tuple(sorted(found.get((table.catalog, table.schema, table.name), ()), key=_position)))
            for table in kept
        ),
        None
        if schemas is None
        else tuple(sorted(place for place in schemas if place[1].lower() not in SYSTEM_SCHEMAS)),
    )


def _position(column: ColumnRef) -> int:
    return column.position
