"""PostgreSQL's own types: the rows of pg_type, and how types are named."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from queryflux.metadata.definitions import postgres_types

SQL_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "char": '"char"',
    "varbit": "bit varying",
}
"""Names of types in SQL where they differ from those in pg_type."""


@dataclass(frozen=True, slots=True)
class PgType:
    """A row of pg_type."""

    oid: int
    name: str
    length: int
    by_value: bool
    kind: str
    category: str
    preferred: bool
    element: int
    array: int
    align: str
    storage: str
    collation: int


@cache
def types_by_name() -> dict[str, PgType]:
    """Every type, arrays included (``_int4``)."""
    types: dict[str, PgType] = {}
    for oid, name, length, by_value, kind, category, preferred, element, array, *rest in postgres_types():
        collation = int(rest[2])
        types[name] = PgType(
            int(oid),
            name,
            int(length),
            by_value == "t",
            kind,
            category,
            preferred == "t",
            int(element),
            int(array),
            rest[0],
            rest[1],
            collation,
        )
        if int(array):
            align = "d" if rest[0] == "d" else "i"
            types[f"_{name}"] = PgType(
                int(array), f"_{name}", -1, False, "b", "A", False, int(oid), 0, align, "x", collation
            )
    return types


@cache
def types_by_oid() -> dict[int, PgType]:
    """The same by oid."""
    return {kind.oid: kind for kind in types_by_name().values()}


def format_type(oid: Any, typmod: Any = None) -> str | None:
    """A type's SQL name with its modifier."""
    if not isinstance(oid, int):
        return None
    kind = types_by_oid().get(oid)
    if kind is None:
        return "-" if oid == 0 else "???"
    if kind.name.startswith("_") and kind.element:
        return f"{format_type(kind.element, typmod)}[]"
    name = SQL_NAMES.get(kind.name, kind.name)
    if not isinstance(typmod, int) or typmod < 4:
        return name
    if kind.name in ("varchar", "bpchar"):
        return f"{name}({typmod - 4})"
    if kind.name == "numeric":
        return f"numeric({(typmod - 4) >> 16},{(typmod - 4) & 0xFFFF})"
    return name


def type_named(name: str) -> PgType | None:
    """A type by either of its names, arrays with ``[]``."""
    by_name = types_by_name()
    lowered = name.lower()
    if lowered.endswith("[]"):
        element = type_named(lowered[:-2])
        return by_name.get(f"_{element.name}") if element else None
    if lowered in by_name:
        return by_name[lowered]
    return next((by_name[short] for short, long in SQL_NAMES.items() if long == lowered), None)
