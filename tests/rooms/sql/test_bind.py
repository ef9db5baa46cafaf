"""Values written into a statement stay values."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter
from queryflux.sql.bind import bind, literal
from queryflux.sql.lexer import tokens


def values(*items: Any) -> tuple[Parameter, ...]:
    return tuple(Parameter(item) for item in items)


CASES = [
    ("select ?, '?', \"?\" -- ?\n, ?", "trino", values(1, "a'b"), "select 1, '?', \"?\" -- ?\n, 'a''b'"),
    ("select $2, $1, $2", "postgres", values(1, 2), "select 2, 1, 2"),
    ("select $$ $1 $$, a ? b, $1", "postgres", values(5), "select $$ $1 $$, a ? b, 5"),
    ("select :b, :a, :b, x::int, y[1:2]", "trino", values(1, 2), "select 1, 2, 1, x::int, y[1:2]"),
    ("select a -?", "trino", values(-1), "select a -(-1)"),
    ("select '\\'?', ?", "mysql", values("\\'; x"), "select '\\'?', '\\\\''; x'"),
]


@pytest.mark.parametrize(("text", "dialect", "parameters", "bound"), CASES)
def test_bind(text: str, dialect: str, parameters: tuple[Parameter, ...], bound: str) -> None:
    assert bind(text, dialect, parameters) == bound


LITERALS = [
    (None, "int8", "CAST(NULL AS BIGINT)"),
    (None, "", "NULL"),
    (True, "", "TRUE"),
    (2**70, "", f"DECIMAL '{2**70}'"),
    (1.5, "", "DOUBLE '1.5'"),
    (float("-inf"), "", "(-infinity())"),
    (Decimal("1E+3"), "", "DECIMAL '1000'"),
    ("12", "int4", "CAST('12' AS INTEGER)"),
    (b"\x00a", "", "X'0061'"),
    (date(2020, 1, 2), "", "DATE '2020-01-02'"),
    (time(1, 2, 3, 4), "", "TIME '01:02:03.000004'"),
    (datetime(2020, 1, 2, 3, 4, 5), "", "TIMESTAMP '2020-01-02 03:04:05'"),
    (datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "", "TIMESTAMP '2020-01-02 03:04:05 +00:00'"),
    (timedelta(days=-1, seconds=-1), "", "INTERVAL -'1 00:00:01.000' DAY TO SECOND"),
    (UUID(int=1), "", "UUID '00000000-0000-0000-0000-000000000001'"),
    ([1, None, "a"], "", "ARRAY[1, NULL, 'a']"),
]


@pytest.mark.parametrize(("value", "type_name", "text"), LITERALS)
def test_trino_literals(value: Any, type_name: str, text: str) -> None:
    assert literal(Parameter(value, type_name), "trino") == text


@pytest.mark.parametrize(
    ("text", "dialect"), [("select ?, ?", "trino"), ("select $2", "postgres"), ("select $0", "postgres")]
)
def test_a_placeholder_without_a_value_is_refused(text: str, dialect: str) -> None:
    with pytest.raises(InvalidRequest):
        bind(text, dialect, values(1))


def test_values_without_a_literal_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        literal(Parameter(object()), "trino")
    with pytest.raises(InvalidRequest):
        literal(Parameter(Decimal("NaN")), "trino")
    with pytest.raises(InvalidRequest):
        literal(Parameter("a\x00"), "postgres")


@given(st.text(max_size=40), st.sampled_from(["trino", "postgres", "duckdb", "mysql"]))
def test_any_string_survives(value: str, dialect: str) -> None:
    value = value.replace("\x00", "")
    written = literal(Parameter(value), dialect)
    assert [kind for kind, _, _ in tokens(written, dialect)] == ["string"]
    parsed = sqlglot.parse_one(f"select {written}", read=dialect).expressions[0]
    assert isinstance(parsed, exp.Literal)
    if "\\" not in value:
        assert parsed.this == value


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.decimals(allow_nan=False, allow_infinity=False)
        | st.text(max_size=10)
        | st.binary(max_size=10)
        | st.dates()
        | st.times()
        | st.datetimes()
        | st.timedeltas()
        | st.uuids(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    )
)
def test_any_value_is_one_expression(value: Any) -> None:
    tree = sqlglot.parse_one(f"select {literal(Parameter(value), 'trino')}, 'end'", read="trino")
    assert len(tree.expressions) == 2


def test_strings_on_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    nasty = ["'", "''", "\\", "\\'", "'; drop table t; --", "\n", "é🎉", "$1", "?"]
    with duckdb.connect() as connection:
        for value in nasty:
            sql = bind("select $1", "duckdb", values(value))
            assert connection.execute(sql).fetchall() == [(value,)]
