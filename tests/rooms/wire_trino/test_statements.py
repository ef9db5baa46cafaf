"""Trino's session statements, and values put in the place of ``?``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.model.errors import InvalidRequest, SqlSyntaxError
from queryflux.wire.trino.statements import (
    Deallocate,
    DescribePrepared,
    Execute,
    Prepare,
    ResetSession,
    SessionStatement,
    SetSession,
    Use,
    parse,
    placeholders,
    substitute,
)


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SET SESSION a = 'x''y'", SetSession("a", "x'y")),
        ("set /* c */ session hive.Insert = 5 ;", SetSession("hive.insert", "5")),
        ("SET SESSION a = true", SetSession("a", "true")),
        ("SET TIME ZONE 'Europe/Berlin'", SetSession("time_zone_id", "Europe/Berlin", "SET TIME ZONE")),
        ("RESET SESSION a.b", ResetSession("a.b")),
        ("USE s", Use(None, "s")),
        ('use c . "S""t"', Use("c", 'S"t')),
        ("PREPARE p FROM\nSELECT ? -- end\n;", Prepare("p", "SELECT ?")),
        ("DEALLOCATE PREPARE P", Deallocate("p")),
        ("EXECUTE p", Execute("p", None, ())),
        ("EXECUTE immediate 'SELECT ''a'', ?' USING 5", Execute(None, "SELECT 'a', ?", ("5",))),
        ("DESCRIBE INPUT p", DescribePrepared("p", False)),
        ("DESCRIBE OUTPUT p;", DescribePrepared("p", True)),
        ("DESCRIBE t", None),
        ("SELECT 1", None),
        ("SET ROLE x", None),
        ("SET SESSION AUTHORIZATION x", None),
        ("RESET SESSION AUTHORIZATION", None),
        ("", None),
    ],
)
def test_what_a_statement_is(text: str, statement: SessionStatement | None) -> None:
    assert parse(text) == statement


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("USE", 3),
        ("USE a.b.c", 7),
        ("SET SESSION a 5", 14),
        ("PREPARE p FROM", 14),
        ("PREPARE p SELECT 1", 10),
        ("DEALLOCATE p", 11),
        ("EXECUTE IMMEDIATE SELECT", 18),
        ("EXECUTE p 1", 10),
        ("EXECUTE p USING", 15),
    ],
)
def test_a_mistake_has_its_place(text: str, position: int) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("1", "1"),
        ("1.5E0", "1.5E0"),
        ("'it''s, (one'", "'it''s, (one'"),
        ("NULL", "NULL"),
        ("-2", "(-2)"),
        ("DATE '2024-01-01'", "DATE '2024-01-01'"),
        ("X'00'", "X'00'"),
        ("DECIMAL '1.10'", "CAST('1.10' AS DECIMAL(3, 2))"),
        ("DECIMAL '-0.001'", "CAST('-0.001' AS DECIMAL(3, 3))"),
        ("DECIMAL '7'", "CAST('7' AS DECIMAL(1, 0))"),
        ("TIMESTAMP '2024-01-01 00:00:00.123'", "TIMESTAMP '2024-01-01 00:00:00.123'"),
        (
            "TIMESTAMP '2024-01-01 00:00:00.123 Europe/Berlin'",
            "CAST('2024-01-01 00:00:00.123 Europe/Berlin' AS TIMESTAMP(3) WITH TIME ZONE)",
        ),
        ("ARRAY[1, 2]", "(ARRAY[1, 2])"),
        ("1 <= 2 -- why\n", "(1 <= 2)"),
        ("INTERVAL '1' DAY", "(INTERVAL '1' DAY)"),
    ],
)
def test_how_a_value_is_written(argument: str, written: str) -> None:
    assert parse(f"EXECUTE p USING {argument}, 3") == Execute("p", None, (written, "3"))


@pytest.mark.parametrize("arguments", ["1)", "(1", "1;2", "'a", "1,,2", ",", "1, ", "f(", "DECIMAL 'x'"])
def test_values_that_do_not_stand_alone(arguments: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(f"EXECUTE p USING {arguments}")


def test_only_real_placeholders_are_replaced() -> None:
    text = "SELECT ?, '?', \"?\", -? /* ? */ -- ?\n, ?"
    assert substitute(text, ("1", "(-2)", "'x?'")) == "SELECT 1, '?', \"?\", -(-2) /* ? */ -- ?\n, 'x?'"


@pytest.mark.parametrize("arguments", [(), ("1", "2")])
def test_the_number_of_values_must_be_right(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="expected 1 but found"):
        substitute("SELECT ?", arguments)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for prefix in ("", "EXECUTE p USING ", "SET SESSION ", "PREPARE ", "USE "):
        try:
            statement = parse(prefix + text)
        except SqlSyntaxError:
            continue
        if isinstance(statement, Execute):
            for argument in statement.arguments:
                assert substitute("?", (argument,)) == argument


@given(st.text())
def test_placeholders_of_any_text(text: str) -> None:
    places = placeholders(text)
    assert all(text[place] == "?" for place in places)
    assert substitute(text, ("?",) * len(places)) == text
