"""asyncpg's question about types it does not know, arrays above all, answered from our own table of types.

It asks for rows of pg_type by oid, in one recursive query whose columns must be of type oid and oid[]: no
engine but PostgreSQL has those.
"""

from collections.abc import Iterable

from queryflux.frontends.postgres.commands import Reply
from queryflux.wire.postgres.constants import Oid
from queryflux.wire.postgres.messages import Column
from queryflux.wire.postgres.types import ELEMENT_OF, short_name

_MARK = "typeinfo_tree("

COLUMNS = (
    Column("oid", Oid.OID, 4),
    Column("ns", Oid.NAME, 64),
    Column("name", Oid.NAME, 64),
    Column("kind", Oid.CHAR, 1),
    Column("basetype", Oid.OID, 4),
    Column("elemtype", Oid.OID, 4),
    Column("elemdelim", Oid.CHAR, 1),
    Column("range_subtype", Oid.OID, 4),
    Column("attrtypoids", Oid.OID_ARRAY),
    Column("attrnames", Oid.TEXT_ARRAY),
    Column("depth", Oid.INT4, 4),
    Column("basetype_name", Oid.TEXT),
    Column("elemtype_name", Oid.TEXT),
    Column("range_subtype_name", Oid.TEXT),
)
PARAMETERS = (Oid.OID_ARRAY,)


def asks_for_types(sql: str) -> bool:
    """Whether a statement is that question."""
    return _MARK in sql[:200]


def types_reply(oids: Iterable[int]) -> Reply:
    """What is known of the types asked for."""
    rows = tuple(_row(oid) for oid in oids if short_name(oid))
    return Reply(f"SELECT {len(rows)}", COLUMNS, rows)


def _row(oid: int) -> tuple[str | int | None, ...]:
    element = ELEMENT_OF.get(oid)
    of_element = (element, ",") if element is not None else (None, None)
    name = short_name(element) if element is not None else None
    nothing = (None, None, None)
    return (oid, "pg_catalog", short_name(oid), "b", None, *of_element, *nothing, 0, None, name, None)
