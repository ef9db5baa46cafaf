"""pg_catalog and information_schema as a PostgreSQL server with these tables would fill them
(PostgreSQL documentation, chapters 37 and 53)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from queryflux.metadata.functions import Function
from queryflux.metadata.listing import Listing
from queryflux.metadata.pg_types import SQL_NAMES, format_type, type_named, types_by_name
from queryflux.metadata.relations import FIXED_OIDS, Relation, stable_oid, system_relations, user_relations
from queryflux.metadata.session import SETTINGS, SessionValues
from queryflux.metadata.types import ColumnType

Row = Mapping[str, Any]

_OWNER = 10
_HEAP, _BTREE = 2, 403
_DATABASE_OID = 5
_PG_CATALOG, _INFORMATION_SCHEMA, _PUBLIC = 11, 13000, 2200
_FIXED_SCHEMAS = {"pg_catalog": _PG_CATALOG, "information_schema": _INFORMATION_SCHEMA, "public": _PUBLIC}
_RANGES = ((3904, 23), (3906, 1700), (3908, 1114), (3910, 1184), (3912, 1082), (3926, 20))
_COLLATIONS = ((100, "default"), (950, "C"), (951, "POSIX"))


class PostgresCatalog:
    """Rows of every catalog table, made when one is asked for."""

    search = ("pg_catalog", "information_schema")

    def __init__(self, listing: Listing, values: SessionValues) -> None:
        self.values = values
        schemas = dict.fromkeys([schema for _, schema in listing.schemas])
        self._namespaces = (
            dict(_FIXED_SCHEMAS)
            if not schemas or "public" in schemas
            else {name: oid for name, oid in _FIXED_SCHEMAS.items() if name != "public"}
        )
        taken = {*self._namespaces.values(), *FIXED_OIDS.values()}
        for schema in schemas:
            if schema not in self._namespaces:
                self._namespaces[schema] = stable_oid(schema, taken)
        self.relations = [*system_relations(taken), *user_relations(listing, taken)]
        self._by_oid = {relation.oid: relation for relation in self.relations}

    # What functions need.

    def functions(self) -> dict[str, tuple[str, Function]]:
        """Functions that look into the catalog."""
        return {
            "pg_table_is_visible": ("bool", self._visible),
            "format_type": ("text", format_type),
            "pg_get_userbyid": (
                "text",
                lambda oid: self.values.user if oid == _OWNER else f"unknown (OID={oid})",
            ),
            "pg_oid_of": ("oid", self._oid_of),
            "pg_name_of": ("text", self._name_of),
            "to_regclass": ("oid", lambda name: self._oid_of(name, "regclass")),
            "to_regtype": ("oid", lambda name: self._oid_of(name, "regtype")),
        }

    def _visible(self, oid: Any) -> int | None:
        relation = self._by_oid.get(oid)
        if relation is None:
            return None
        if relation.schema == "pg_catalog" or not self.values.schema:
            return int(relation.schema != "information_schema")
        return int(relation.schema in (self.values.schema, *self.values.search_path))

    def _oid_of(self, name: Any, kind: str) -> int | str | None:
        if isinstance(name, int) or name is None:
            return name
        text = str(name).strip()
        if text.isdigit():
            return int(text)
        parts = [part.strip('"') for part in text.split(".")]
        if kind == "regtype":
            found = type_named(parts[-1])
            return found.oid if found else None
        if kind == "regnamespace":
            return self._namespaces.get(parts[-1])
        if kind == "regclass":
            return self._class_oid(parts)
        return parts[-1]

    def _class_oid(self, parts: list[str]) -> int | None:
        matching = [r for r in self.relations if r.name == parts[-1]]
        if len(parts) > 1:
            return next((r.oid for r in matching if r.schema == parts[-2]), None)
        return next((r.oid for r in matching if self._visible(r.oid)), None)

    def _name_of(self, oid: Any, kind: str) -> str | None:
        if not isinstance(oid, int):
            return None if oid is None else str(oid)
        if kind == "regclass":
            relation = self._by_oid.get(oid)
            if relation is None:
                return "-" if oid == 0 else str(oid)
            return relation.name if self._visible(oid) else f"{relation.schema}.{relation.name}"
        if kind == "regtype":
            return format_type(oid, None)
        if kind == "regnamespace":
            return next((name for name, number in self._namespaces.items() if number == oid), str(oid))
        return self.values.user if kind == "regrole" and oid == _OWNER else str(oid)

    # Rows.

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table; a column that is not in a row is NULL."""
        maker = _MAKERS.get(table)
        return maker(self) if maker is not None else iter(())

    def _pg_namespace(self) -> Iterator[Row]:
        for name, oid in self._namespaces.items():
            yield {"oid": oid, "nspname": name, "nspowner": _OWNER}

    def _pg_class(self) -> Iterator[Row]:
        for relation in self.relations:
            yield {
                "oid": relation.oid,
                "relname": relation.name,
                "relnamespace": self._namespaces[relation.schema],
                "relowner": _OWNER,
                "relam": _HEAP if relation.kind == "r" else 0,
                "relkind": relation.kind,
                "relnatts": len(relation.columns),
                "reltuples": -1.0,
                "relpersistence": "p",
                "relreplident": "n" if relation.system else "d",
                "relispopulated": 1,
                **_CLASS_ZEROS,
            }

    def _pg_attribute(self) -> Iterator[Row]:
        for relation in self.relations:
            for number, (name, kind, nullable) in enumerate(relation.columns, 1):
                pg = types_by_name()[kind.postgres]
                yield {
                    "attrelid": relation.oid,
                    "attname": name,
                    "atttypid": pg.oid,
                    "attlen": pg.length,
                    "attnum": number,
                    "attndims": int(pg.name.startswith("_")),
                    "atttypmod": kind.typmod,
                    "attbyval": pg.by_value,
                    "attalign": pg.align,
                    "attstorage": pg.storage,
                    "attnotnull": not nullable,
                    "attcollation": pg.collation,
                    **_ATTRIBUTE_DEFAULTS,
                }

    def _pg_type(self) -> Iterator[Row]:
        for kind in types_by_name().values():
            yield {
                "oid": kind.oid,
                "typname": kind.name,
                "typnamespace": _PG_CATALOG,
                "typowner": _OWNER,
                "typlen": kind.length,
                "typbyval": kind.by_value,
                "typtype": kind.kind,
                "typcategory": kind.category,
                "typispreferred": kind.preferred,
                "typelem": kind.element,
                "typarray": kind.array,
                "typinput": "array_in" if kind.category == "A" else f"{kind.name}in",
                "typoutput": "array_out" if kind.category == "A" else f"{kind.name}out",
                "typalign": kind.align,
                "typstorage": kind.storage,
                "typcollation": kind.collation,
                **_TYPE_DEFAULTS,
            }

    def _pg_database(self) -> Iterator[Row]:
        yield {
            "oid": _DATABASE_OID,
            "datname": self.values.database,
            "datdba": _OWNER,
            "encoding": 6,
            "datlocprovider": "c",
            "datistemplate": 0,
            "datallowconn": 1,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datcollate": "C",
            "datctype": "C",
        }

    def _pg_roles(self) -> Iterator[Row]:
        flags = {"rolinherit": 1, "rolcanlogin": 1, "rolsuper": 0, "rolcreaterole": 0, "rolcreatedb": 0}
        more = {"rolreplication": 0, "rolbypassrls": 0, "rolconnlimit": -1, "rolpassword": "********"}
        yield {"oid": _OWNER, "rolname": self.values.user, **flags, **more}

    def _pg_user(self) -> Iterator[Row]:
        flags = {"usecreatedb": 0, "usesuper": 0, "userepl": 0, "usebypassrls": 0}
        yield {"usename": self.values.user, "usesysid": _OWNER, "passwd": "********", **flags}

    def _pg_am(self) -> Iterator[Row]:
        yield {"oid": _HEAP, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}
        yield {"oid": _BTREE, "amname": "btree", "amhandler": "bthandler", "amtype": "i"}

    def _pg_settings(self) -> Iterator[Row]:
        names = dict.fromkeys([*SETTINGS["postgres"], *self.values.extra])
        for name in sorted(names):
            value = self.values.setting(name)
            yield {
                "name": name,
                "setting": value,
                "context": "user",
                "vartype": "string",
                "source": "default",
            }

    def _pg_tables(self) -> Iterator[Row]:
        flags = {"hasindexes": 0, "hasrules": 0, "hastriggers": 0, "rowsecurity": 0}
        for relation in self.relations:
            if relation.kind == "r":
                owner = {"schemaname": relation.schema, "tableowner": self.values.user}
                yield {"tablename": relation.name, **owner, **flags}

    def _pg_views(self) -> Iterator[Row]:
        for relation in self.relations:
            if relation.kind == "v":
                yield {
                    "schemaname": relation.schema,
                    "viewname": relation.name,
                    "viewowner": self.values.user,
                }

    def _pg_collation(self) -> Iterator[Row]:
        for oid, name in _COLLATIONS:
            base = {"collnamespace": _PG_CATALOG, "collowner": _OWNER, "collencoding": -1}
            yield {"oid": oid, "collname": name, "collprovider": "d" if oid == 100 else "c", **base}

    def _pg_range(self) -> Iterator[Row]:
        for oid, element in _RANGES:
            yield {"rngtypid": oid, "rngsubtype": element, "rngcollation": 0, "rngsubopc": 0}

    def _pg_tablespace(self) -> Iterator[Row]:
        yield {"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER}

    def _pg_language(self) -> Iterator[Row]:
        yield {"oid": 14, "lanname": "sql", "lanowner": _OWNER, "lanispl": 0, "lanpltrusted": 1}

    def _schemata(self) -> Iterator[Row]:
        for name in self._namespaces:
            yield {
                "catalog_name": self.values.database,
                "schema_name": name,
                "schema_owner": self.values.user,
            }

    def _catalog_name(self) -> Iterator[Row]:
        yield {"catalog_name": self.values.database}

    def _tables(self) -> Iterator[Row]:
        for relation in self.relations:
            table = relation.kind == "r"
            yield {
                **self._place(relation),
                "table_type": "BASE TABLE" if table else "VIEW",
                "is_insertable_into": "YES" if table else "NO",
                "is_typed": "NO",
            }

    def _views(self) -> Iterator[Row]:
        for relation in self.relations:
            if relation.kind == "v":
                yield {**self._place(relation), "check_option": "NONE", "is_updatable": "NO"}

    def _place(self, relation: Relation) -> dict[str, Any]:
        return {
            "table_catalog": self.values.database,
            "table_schema": relation.schema,
            "table_name": relation.name,
        }

    def _columns(self) -> Iterator[Row]:
        for relation in self.relations:
            place = self._place(relation)
            for number, (name, kind, nullable) in enumerate(relation.columns, 1):
                yield {
                    **place,
                    "column_name": name,
                    "ordinal_position": number,
                    "is_nullable": "YES" if nullable else "NO",
                    "data_type": _information_type(kind),
                    "udt_catalog": self.values.database,
                    "udt_schema": "pg_catalog",
                    "udt_name": kind.postgres,
                    "dtd_identifier": str(number),
                    **information_sizes(kind),
                    "is_self_referencing": "NO",
                    "is_identity": "NO",
                    "identity_cycle": "NO",
                    "is_generated": "NEVER",
                    "is_updatable": "YES",
                }


def information_sizes(kind: ColumnType) -> dict[str, Any]:
    """Lengths and precisions as ISO information schemas give them."""
    row = kind.row
    precision = kind.precision if kind.family == "decimal" else row.digits
    moments = ("time", "timetz", "timestamp", "timestamptz", "interval")
    return {
        "character_maximum_length": kind.length,
        "character_octet_length": kind.length * 4 if kind.length is not None else None,
        "numeric_precision": precision,
        "numeric_precision_radix": row.radix,
        "numeric_scale": kind.scale
        if kind.family == "decimal"
        else 0
        if row.radix == 10 and precision
        else None,
        "datetime_precision": kind.fraction if kind.family in moments else None,
    }


def _information_type(kind: ColumnType) -> str:
    name = kind.postgres
    return "ARRAY" if name.startswith("_") else SQL_NAMES.get(name, name)


_CLASS_ZERO_NAMES = """
reltype reloftype relfilenode reltablespace relpages relallvisible reltoastrelid relhasindex relisshared
relchecks relhasrules relhastriggers relhassubclass relrowsecurity relforcerowsecurity relispartition
relrewrite relfrozenxid relminmxid
"""
_CLASS_ZEROS = dict.fromkeys(_CLASS_ZERO_NAMES.split(), 0)
_ATTRIBUTE_DEFAULTS = {
    "attstattarget": -1,
    "attcacheoff": -1,
    "attcompression": "",
    "atthasdef": 0,
    "atthasmissing": 0,
    "attidentity": "",
    "attgenerated": "",
    "attisdropped": 0,
    "attislocal": 1,
    "attinhcount": 0,
}
_TYPE_DEFAULTS = {
    "typisdefined": 1,
    "typdelim": ",",
    "typrelid": 0,
    "typsubscript": "-",
    "typnotnull": 0,
    "typbasetype": 0,
    "typtypmod": -1,
    "typndims": 0,
}
_MAKERS: dict[str, Callable[[PostgresCatalog], Iterator[Row]]] = {
    "pg_catalog.pg_namespace": PostgresCatalog._pg_namespace,
    "pg_catalog.pg_class": PostgresCatalog._pg_class,
    "pg_catalog.pg_attribute": PostgresCatalog._pg_attribute,
    "pg_catalog.pg_type": PostgresCatalog._pg_type,
    "pg_catalog.pg_database": PostgresCatalog._pg_database,
    "pg_catalog.pg_roles": PostgresCatalog._pg_roles,
    "pg_catalog.pg_user": PostgresCatalog._pg_user,
    "pg_catalog.pg_am": PostgresCatalog._pg_am,
    "pg_catalog.pg_settings": PostgresCatalog._pg_settings,
    "pg_catalog.pg_tables": PostgresCatalog._pg_tables,
    "pg_catalog.pg_views": PostgresCatalog._pg_views,
    "pg_catalog.pg_collation": PostgresCatalog._pg_collation,
    "pg_catalog.pg_range": PostgresCatalog._pg_range,
    "pg_catalog.pg_tablespace": PostgresCatalog._pg_tablespace,
    "pg_catalog.pg_language": PostgresCatalog._pg_language,
    "information_schema.schemata": PostgresCatalog._schemata,
    "information_schema.information_schema_catalog_name": PostgresCatalog._catalog_name,
    "information_schema.tables": PostgresCatalog._tables,
    "information_schema.views": PostgresCatalog._views,
    "information_schema.columns": PostgresCatalog._columns,
}
