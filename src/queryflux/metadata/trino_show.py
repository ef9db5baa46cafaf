"""Trino's SHOW and DESCRIBE."""

# ruff: noqa: S608  (texts for the catalog in memory; names and values in them are quoted)

from collections.abc import Sequence

from queryflux.metadata.session import SessionValues
from queryflux.metadata.show import Shown, Words, literal
from queryflux.model.errors import EngineError, EngineErrorKind

_KINDS = frozenset(
    {"CATALOGS", "SCHEMAS", "TABLES", "COLUMNS", "CREATE", "FUNCTIONS", "SESSION", "ROLES", "CURRENT"}
)
_NOT_TABLES = frozenset({"INPUT", "OUTPUT"})
_EMPTY = {
    "FUNCTIONS": (
        "Function",
        "Return Type",
        "Argument Types",
        "Function Type",
        "Deterministic",
        "Description",
    ),
    "SESSION": ("Name", "Value", "Default", "Type", "Description"),
}


def knows(upper: Sequence[str]) -> bool:
    """Whether ``select_of`` answers a statement with these first words."""
    if upper[0] == "SHOW":
        return upper[1] in _KINDS and (upper[1] != "CREATE" or upper[2] in ("TABLE", "VIEW", "SCHEMA"))
    return upper[0] in ("DESC", "DESCRIBE") and bool(upper[1]) and upper[1] not in _NOT_TABLES


def select_of(words: Words, values: SessionValues) -> Shown:
    """The SELECT for a statement. Raises InvalidRequest, EngineError (no catalog or schema is set)."""
    if not words.take("SHOW"):
        words.next()
        return _columns(words, values)
    kind = words.next().upper()
    if kind == "CATALOGS":
        return Shown(_filtered('SELECT table_cat AS "Catalog" FROM system.jdbc.catalogs', "Catalog", words))
    if kind == "SCHEMAS":
        return _schemas(words, values)
    if kind == "TABLES":
        return _tables(words, values)
    if kind == "COLUMNS":
        words.take("FROM", "IN")
        return _columns(words, values)
    if kind == "CREATE":
        return _create(words, values)
    if kind in ("ROLES", "CURRENT"):
        return Shown('SELECT role_name AS "Role" FROM information_schema.roles')
    nothing = ", ".join(f'CAST(NULL AS varchar) AS "{name}"' for name in _EMPTY[kind])
    return Shown(f"SELECT {nothing} FROM system.jdbc.attributes")


def _filtered(sql: str, column: str, words: Words) -> str:
    order = f' ORDER BY "{column}"'
    if words.take("LIKE"):
        return f'SELECT * FROM ({sql}) AS shown WHERE "{column}" LIKE {words.rest()}{order}'
    return sql + order


def _catalog(values: SessionValues) -> str:
    if not values.catalog:
        raise EngineError(
            "Catalog must be specified when session catalog is not set",
            kind=EngineErrorKind.SCHEMA_NOT_FOUND,
            name="MISSING_CATALOG_NAME",
        )
    return values.catalog


def _schema(values: SessionValues) -> str:
    if not values.schema:
        raise EngineError(
            "Schema must be specified when session schema is not set",
            kind=EngineErrorKind.SCHEMA_NOT_FOUND,
            name="MISSING_SCHEMA_NAME",
        )
    return values.schema


def _place(path: list[str], values: SessionValues) -> tuple[str, str, str]:
    """Catalog, schema and table of a name in one to three parts, in lower case."""
    name = path[-1]
    schema = path[-2] if len(path) > 1 else _schema(values)
    catalog = path[-3] if len(path) > 2 else _catalog(values)
    return catalog.lower(), schema.lower(), name.lower()


def _schemas(words: Words, values: SessionValues) -> Shown:
    catalog = words.path()[-1] if words.take("FROM", "IN") else _catalog(values)
    where = f"lower(table_catalog) = {literal(catalog.lower())}"
    sql = f'SELECT table_schem AS "Schema" FROM system.jdbc.schemas WHERE {where}'
    return Shown(_filtered(sql, "Schema", words))


def _tables(words: Words, values: SessionValues) -> Shown:
    path = words.path() if words.take("FROM", "IN") else [_schema(values)]
    catalog, schema, _ = _place([*path, ""], values)
    where = f"lower(table_cat) = {literal(catalog)} AND lower(table_schem) = {literal(schema)}"
    return Shown(
        _filtered(f'SELECT table_name AS "Table" FROM system.jdbc.tables WHERE {where}', "Table", words)
    )


def _columns(words: Words, values: SessionValues) -> Shown:
    catalog, schema, name = _place(words.path(), values)
    where = (
        f"lower(table_cat) = {literal(catalog)} AND lower(table_schem) = {literal(schema)} "
        f"AND lower(table_name) = {literal(name)}"
    )
    if words.take("LIKE"):
        where += f" AND column_name LIKE {words.rest()}"
    return Shown(
        'SELECT column_name AS "Column", type_name AS "Type", \'\' AS "Extra", \'\' AS "Comment" '
        f"FROM system.jdbc.columns WHERE {where} ORDER BY ordinal_position",
        (catalog, schema, name),
    )


def _create(words: Words, values: SessionValues) -> Shown:
    what = words.next().upper()
    path = words.path()
    if what == "SCHEMA":
        catalog = path[-2] if len(path) > 1 else _catalog(values)
        return Shown(f'SELECT {literal(f"CREATE SCHEMA {catalog}.{path[-1]}")} AS "Create Schema"')
    return Shown("", _place(path, values), create=True)
