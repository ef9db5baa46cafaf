"""One table of types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.metadata.pg_types import format_type, type_named, types_by_name
from queryflux.metadata.types import FAMILIES, ColumnType, parse

CASES = [
    ("BIGINT", "int8", -1, "bigint", "bigint"),
    ("DECIMAL(18,3)", "numeric", (18 << 16 | 3) + 4, "decimal(18,3)", "decimal(18,3)"),
    ("numeric", "numeric", -1, "decimal(65,30)", "decimal(38,10)"),
    ("timestamp(3) with time zone", "timestamptz", -1, "timestamp(6)", "timestamp(3) with time zone"),
    ("TIMESTAMP WITH TIME ZONE", "timestamptz", -1, "timestamp(6)", "timestamp(6) with time zone"),
    ("character varying(20)", "varchar", 24, "varchar(20)", "varchar(20)"),
    ("VARCHAR", "text", -1, "longtext", "varchar"),
    ("double precision", "float8", -1, "double", "double"),
    ("UBIGINT", "numeric", -1, "bigint unsigned", "decimal(20,0)"),
    ("int unsigned", "int8", -1, "int unsigned", "bigint"),
    ("HUGEINT", "numeric", -1, "decimal(38,0)", "decimal(38,0)"),
    ("BOOLEAN", "bool", -1, "tinyint(1)", "boolean"),
    ("INTEGER[]", "_int4", -1, "json", "array(integer)"),
    ("INTEGER[3]", "_int4", -1, "json", "array(integer)"),
    ("array(varchar(5))", "_varchar", -1, "json", "array(varchar(5))"),
    ("STRUCT(a INTEGER, b VARCHAR)", "text", -1, "json", "varchar"),
    ("row(a bigint)", "text", -1, "json", "row(a bigint)"),
    ("ENUM('a', 'b')", "text", -1, "longtext", "varchar"),
    ("char(5)", "bpchar", 9, "char(5)", "char(5)"),
    ("something new", "text", -1, "longtext", "varchar"),
]


@pytest.mark.parametrize(("name", "postgres", "typmod", "mysql", "trino"), CASES)
def test_spellings(name: str, postgres: str, typmod: int, mysql: str, trino: str) -> None:
    kind = parse(name)
    assert (kind.postgres, kind.typmod, kind.mysql, kind.trino) == (postgres, typmod, mysql, trino)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_has_a_type_in_every_catalog(family: str) -> None:
    kind = ColumnType(family, "", element=parse("integer") if family == "array" else None)
    assert kind.postgres in types_by_name()
    assert kind.mysql
    assert kind.trino


@given(st.text(max_size=30))
def test_any_name_is_some_type(name: str) -> None:
    assert parse(name).postgres in types_by_name() or parse(name).postgres.startswith("_")


def test_format_type_and_back() -> None:
    assert format_type(1043, 24) == "character varying(20)"
    assert format_type(1700, (10 << 16 | 2) + 4) == "numeric(10,2)"
    assert format_type(1015) == "character varying[]"
    assert format_type(0) == "-"
    assert format_type(None) is None
    for kind in types_by_name().values():
        if kind.kind == "b":
            found = type_named(format_type(kind.oid) or "")
            assert found is not None
