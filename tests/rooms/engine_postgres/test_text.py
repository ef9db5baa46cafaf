"""The text of a statement for ADBC."""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.engines.postgres.text import constant, first_word, leading_words, main_statement, statement_for
from queryflux.model.errors import InvalidRequest
from queryflux.model.statement import Parameter

ONE = (Parameter(1),)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1;", "SELECT 1"),
        ("SELECT 1 -- c", "SELECT 1"),
        ("SELECT 1; /* a /* b */ ; */ ;\n", "SELECT 1"),
        ("  ;; ", ""),
        ("-- nothing", ""),
        ("/* open", ""),
        ("SELECT ';' ", "SELECT ';'"),
        ("SELECT $$;$$ ", "SELECT $$;$$"),
        ("SELECT 'open", "SELECT 'open"),
    ],
)
def test_what_trails_is_dropped(sql: str, expected: str) -> None:
    assert statement_for(sql, ()) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT $1", "SELECT (1)"),
        ("SELECT $1+$1;", "SELECT (1)+(1)"),
        ("SELECT '$1', $1", "SELECT '$1', (1)"),
        ("SELECT E'\\'$1', $1", "SELECT E'\\'$1', (1)"),
        ("SELECT 'a''$1', $1", "SELECT 'a''$1', (1)"),
        ('SELECT "$1""$1", $1', 'SELECT "$1""$1", (1)'),
        ("SELECT $$ $1 $$, $1", "SELECT $$ $1 $$, (1)"),
        ("SELECT $a$ $1 $$ $b$ $a$, $1", "SELECT $a$ $1 $$ $b$ $a$, (1)"),
        ("SELECT a$1, $1", "SELECT a$1, (1)"),
        ("SELECT 1 -- $1\n, $1", "SELECT 1 -- $1\n, (1)"),
        ("SELECT /* $1 /* */ $1 */ $1", "SELECT /* $1 /* */ $1 */ (1)"),
        ("SELECT $1::date", "SELECT (1)::date"),
    ],
)
def test_parameters_are_written_where_they_stand(sql: str, expected: str) -> None:
    assert statement_for(sql, ONE) == expected


def test_parameters_that_are_missing() -> None:
    for sql in ("SELECT $2", "SELECT $0", "SELECT $" + "9" * 10_000, "SELECT $99999"):
        with pytest.raises(InvalidRequest):
            statement_for(sql, ONE)
    assert statement_for("SELECT $2", ()) == "SELECT $2"
    assert statement_for("SELECT $" + "0" * 10_000 + "1", ONE) == "SELECT (1)"
    with pytest.raises(InvalidRequest):
        statement_for("SELECT '\0'", ())


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, "", "(NULL)"),
        (None, "date", "(NULL::date)"),
        (True, "", "(true)"),
        (-5, "", "(-5)"),
        (-(2**63), "", "('-9223372036854775808'::int8)"),
        (-(2**31), "", "('-2147483648'::int8)"),
        (2**63, "", "('9223372036854775808'::numeric)"),
        (-5, "smallint", "('-5'::smallint)"),
        (0.1, "", "('0.1'::float8)"),
        (float("nan"), "", "('nan'::float8)"),
        (float("-inf"), "", "('-inf'::float8)"),
        (Decimal("1.50"), "", "('1.50'::numeric)"),
        ("it's", "", "('it''s')"),
        ("back\\'", "", "( E'back\\\\''')"),
        ("x", "character varying(3)", "('x'::character varying(3))"),
        ("{1}", "int[]", "('{1}'::int[])"),
        (b"\x00\xff", "", "('\\x00ff'::bytea)"),
        (dt.date(2024, 2, 29), "", "('2024-02-29'::date)"),
        (dt.time(1, 2, 3, 4), "", "('01:02:03.000004'::time)"),
        (dt.datetime(2024, 1, 2, 3), "", "('2024-01-02 03:00:00'::timestamp)"),
        (dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC), "", "('2024-01-02 03:00:00+00:00'::timestamptz)"),
        (dt.timedelta(days=-1, seconds=1.5), "", "('-1 days 1.500000 seconds'::interval)"),
        (UUID(int=1), "", "('00000000-0000-0000-0000-000000000001'::uuid)"),
        ([1, None], "", "(ARRAY[(1), (NULL)])"),
        ([], "", "('{}')"),
        ([], "int[]", "('{}'::int[])"),
    ],
)
def test_constants(value: Any, kind: str, expected: str) -> None:
    assert constant(Parameter(value, kind)) == expected


def test_what_cannot_be_a_constant() -> None:
    for parameter in (
        Parameter("a\0b"),
        Parameter(object()),
        Parameter(1, "int); DROP TABLE x; --"),
        Parameter(1, "int'"),
    ):
        with pytest.raises(InvalidRequest):
            constant(parameter)


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("select 1", "SELECT"),
        (" /* x */ -- y\n With a", "WITH"),
        ("(SELECT 1)", "("),
        ("", ""),
        ("-- x", ""),
        ("'x'", "'"),
    ],
)
def test_the_first_word(sql: str, word: str) -> None:
    assert first_word(sql) == word


def test_leading_words() -> None:
    assert leading_words("create /* x */ or replace VIEW v1 AS", 3) == ["CREATE", "OR", "REPLACE"]
    assert leading_words("DROP TABLE a.b", 9) == ["DROP", "TABLE", "A"]


@pytest.mark.parametrize(
    ("sql", "main"),
    [
        ("WITH a AS (SELECT 1) SELECT 2", "SELECT 2"),
        ("WITH RECURSIVE a(x) AS NOT MATERIALIZED (TABLE t), b AS (VALUES (1)) TABLE b", "TABLE b"),
        ("with a as (select ')') -- select\ninsert into t select 1", "insert into t select 1"),
        ("WITH a AS (SELECT 1) (SELECT 2)", ""),
    ],
)
def test_the_main_statement_of_a_with(sql: str, main: str) -> None:
    found = main_statement(sql)
    assert sql[found:] == main if main else found == 0


@given(st.text("$1'\"\\-/*;Eea \n", max_size=30))
def test_any_text_is_read(sql: str) -> None:
    assert first_word(sql) == first_word(statement_for(sql, ())) or not statement_for(sql, ())
    statement_for(sql, (Parameter("x"),) * 200) if "$" not in sql else None


@given(st.text(st.characters(exclude_characters="\0"), max_size=20))
def test_a_text_constant_is_one_token(value: str) -> None:
    written = constant(Parameter(value))
    assert statement_for(f"SELECT {written}, $1", ONE) == f"SELECT {written}, (1)"
