"""MySQL's information_schema (MySQL 8.0 reference manual, chapter 28). MySQL has no catalogs: what an engine
calls a schema is a database here."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from queryflux.engines.port import TableRef
from queryflux.metadata.functions import Function
from queryflux.metadata.listing import Listing
from queryflux.metadata.postgres import information_sizes
from queryflux.metadata.session import SETTINGS, SessionValues
from queryflux.metadata.types import ColumnType, parse
from queryflux.model.settings import MYSQL_COLLATION

Row = Mapping[str, Any]

_CHARSET, _COLLATION = "utf8mb4", MYSQL_COLLATION
_TEXTS = frozenset({"char", "varchar", "longtext"})


class MysqlCatalog:
    """Rows of every catalog table, made when one is asked for."""

    def __init__(self, listing: Listing, values: SessionValues) -> None:
        self._listing = listing
        self.values = values
        schema = values.schema.lower()
        self.search: tuple[str, ...] = (
            (schema,) if schema in ("information_schema", "performance_schema") else ()
        )

    def functions(self) -> dict[str, tuple[str, Function]]:
        """It has none of its own."""
        return {}

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table; a column that is not in a row is NULL."""
        maker = _MAKERS.get(table)
        return maker(self) if maker is not None else iter(())

    def _schemata(self) -> Iterator[Row]:
        names = {schema for _, schema in self._listing.schemas} | {"information_schema"}
        for name in sorted(names):
            yield {
                "CATALOG_NAME": "def",
                "SCHEMA_NAME": name,
                "DEFAULT_CHARACTER_SET_NAME": _CHARSET,
                "DEFAULT_COLLATION_NAME": _COLLATION,
                "DEFAULT_ENCRYPTION": "NO",
            }

    def _tables(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            view = table.kind == "view"
            yield {
                **_place(table),
                "TABLE_TYPE": "VIEW" if view else "BASE TABLE",
                "ENGINE": None if view else "QueryFlux",
                "VERSION": None if view else 10,
                "ROW_FORMAT": None if view else "Dynamic",
                "TABLE_COLLATION": None if view else _COLLATION,
                "CREATE_OPTIONS": None if view else "",
                "TABLE_COMMENT": "VIEW" if view else "",
            }

    def _columns(self) -> Iterator[Row]:
        for table, columns in self._listing.tables:
            place = _place(table)
            for number, column in enumerate(columns, 1):
                yield {
                    **place,
                    "COLUMN_NAME": column.name,
                    "ORDINAL_POSITION": number,
                    "IS_NULLABLE": "YES" if column.nullable else "NO",
                    "COLUMN_KEY": "",
                    "EXTRA": "",
                    "PRIVILEGES": "select",
                    "COLUMN_COMMENT": "",
                    "GENERATION_EXPRESSION": "",
                    **_typed(parse(column.type_name)),
                }

    def _views(self) -> Iterator[Row]:
        for table, _ in self._listing.tables:
            if table.kind == "view":
                more = {"CHECK_OPTION": "NONE", "IS_UPDATABLE": "NO", "SECURITY_TYPE": "DEFINER"}
                yield {**_place(table), "VIEW_DEFINITION": "", "DEFINER": self.values.current_user, **more}

    def _engines(self) -> Iterator[Row]:
        comment = {"COMMENT": "Tables of the engine behind the proxy", "XA": "NO", "SAVEPOINTS": "NO"}
        yield {"ENGINE": "QueryFlux", "SUPPORT": "DEFAULT", "TRANSACTIONS": "YES", **comment}

    def _character_sets(self) -> Iterator[Row]:
        yield {
            "CHARACTER_SET_NAME": _CHARSET,
            "DEFAULT_COLLATE_NAME": _COLLATION,
            "DESCRIPTION": "UTF-8 Unicode",
            "MAXLEN": 4,
        }
        binary = {"DEFAULT_COLLATE_NAME": "binary", "DESCRIPTION": "Binary pseudo charset"}
        yield {"CHARACTER_SET_NAME": "binary", "MAXLEN": 1, **binary}

    def _collations(self) -> Iterator[Row]:
        for number, name, charset, default in _COLLATIONS:
            yield {
                "COLLATION_NAME": name,
                "CHARACTER_SET_NAME": charset,
                "ID": number,
                "IS_DEFAULT": "Yes" if default else "",
                "IS_COMPILED": "Yes",
                "SORTLEN": 1,
                "PAD_ATTRIBUTE": "NO PAD" if name == "binary" else "PAD SPACE",
            }

    def _applicability(self) -> Iterator[Row]:
        for _, name, charset, _ in _COLLATIONS:
            yield {"COLLATION_NAME": name, "CHARACTER_SET_NAME": charset}

    def _processlist(self) -> Iterator[Row]:
        yield {
            "ID": self.values.connection_id,
            "USER": self.values.user,
            "HOST": self.values.peer,
            "DB": self.values.schema or None,
            "COMMAND": "Query",
            "TIME": 0,
            "STATE": "executing",
        }

    def _privileges(self) -> Iterator[Row]:
        user, _, host = self.values.current_user.rpartition("@")
        yield {
            "GRANTEE": f"'{user}'@'{host}'",
            "TABLE_CATALOG": "def",
            "PRIVILEGE_TYPE": "SELECT",
            "IS_GRANTABLE": "NO",
        }

    def _variables(self) -> Iterator[Row]:
        names = dict.fromkeys([*SETTINGS["mysql"], *self.values.extra])
        for name in sorted(names):
            yield {"VARIABLE_NAME": name, "VARIABLE_VALUE": self.values.setting(name)}


_COLLATIONS = (
    (45, _COLLATION, _CHARSET, True),
    (63, "binary", "binary", True),
)
_MAKERS: dict[str, Callable[[MysqlCatalog], Iterator[Row]]] = {
    "information_schema.schemata": MysqlCatalog._schemata,
    "information_schema.tables": MysqlCatalog._tables,
    "information_schema.columns": MysqlCatalog._columns,
    "information_schema.views": MysqlCatalog._views,
    "information_schema.engines": MysqlCatalog._engines,
    "information_schema.character_sets": MysqlCatalog._character_sets,
    "information_schema.collations": MysqlCatalog._collations,
    "information_schema.collation_character_set_applicability": MysqlCatalog._applicability,
    "information_schema.processlist": MysqlCatalog._processlist,
    "information_schema.user_privileges": MysqlCatalog._privileges,
    "performance_schema.session_variables": MysqlCatalog._variables,
    "performance_schema.global_variables": MysqlCatalog._variables,
}


def _place(table: TableRef) -> dict[str, Any]:
    return {"TABLE_CATALOG": "def", "TABLE_SCHEMA": table.schema, "TABLE_NAME": table.name}


def _typed(kind: ColumnType) -> dict[str, Any]:
    sizes = information_sizes(kind)
    data_type = kind.mysql_data_type
    text = data_type in _TEXTS
    longest = 4294967295 if data_type == "longtext" else kind.length
    integer = kind.row.radix == 10 or kind.family == "bool"
    return {
        "DATA_TYPE": data_type,
        "COLUMN_TYPE": kind.mysql,
        "CHARACTER_MAXIMUM_LENGTH": longest if text else None,
        "CHARACTER_OCTET_LENGTH": longest * 4 if text and longest and longest < 1 << 30 else longest,
        "NUMERIC_PRECISION": sizes["numeric_precision"],
        "NUMERIC_SCALE": sizes["numeric_scale"] if integer else None,
        "DATETIME_PRECISION": sizes["datetime_precision"],
        "CHARACTER_SET_NAME": _CHARSET if text else None,
        "COLLATION_NAME": _COLLATION if text else None,
    }
