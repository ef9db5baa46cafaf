"""A text is cut at the semicolons that end a statement, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queryflux.sql.split import split

CASES = [
    ("", "postgres", []),
    (" ; ;; ", "postgres", []),
    ("select 1", "postgres", ["select 1"]),
    (" select 1 ; ", "postgres", ["select 1"]),
    ("select 1; select 2", "postgres", ["select 1", "select 2"]),
    ("select ';'; select ''';'", "postgres", ["select ';'", "select ''';'"]),
    (r"select e'\';'; select 2", "postgres", [r"select e'\';'", "select 2"]),
    (r"select '\'; select 2", "postgres", [r"select '\'", "select 2"]),
    (r"select '\'; select 2", "mysql", [r"select '\'; select 2"]),
    (r"select '\';'; select 2", "mysql", [r"select '\';'", "select 2"]),
    ("select U&'d;', U&\"d;\"; select 2", "postgres", ["select U&'d;', U&\"d;\"", "select 2"]),
    ('select ";"";" ; select 2', "trino", ['select ";"";"', "select 2"]),
    ("select `a;b`; select 2", "mysql", ["select `a;b`", "select 2"]),
    (r'select "a\";b"; select 2', "mysql", [r'select "a\";b"', "select 2"]),
    ("select $$;$$; select $a$;$$;$a$", "postgres", ["select $$;$$", "select $a$;$$;$a$"]),
    ("select a$b$c; select $1; select d$b$", "postgres", ["select a$b$c", "select $1", "select d$b$"]),
    ("select $$;$$; select 2", "mysql", ["select $$", "$$", "select 2"]),
    ("/* ; /* ; */ ; */ select 1; select 2", "postgres", ["/* ; /* ; */ ; */ select 1", "select 2"]),
    ("/* ; /* ; */ select 1; select 2", "mysql", ["/* ; /* ; */ select 1", "select 2"]),
    ("-- ;\nselect 1; -- done", "postgres", ["-- ;\nselect 1"]),
    ("# ;\nselect 1; select 2", "mysql", ["# ;\nselect 1", "select 2"]),
    ("select 1--;\n; select 2", "mysql", ["select 1--", "select 2"]),
    ("select 1 - 2 / 3; select 4", "postgres", ["select 1 - 2 / 3", "select 4"]),
    ("select 'never closed; select 2", "postgres", ["select 'never closed; select 2"]),
    ("select /* never ; closed; ", "postgres", ["select /* never ; closed;"]),
    (
        "create function f() returns int begin atomic select 1; select 2; end; select 3",
        "postgres",
        ["create function f() returns int begin atomic select 1; select 2; end", "select 3"],
    ),
    ("create procedure p() begin select 1; end; ", "mysql", ["create procedure p() begin select 1;\nend"]),
    ("begin; select 1; end", "postgres", ["begin", "select 1", "end"]),
]


@pytest.mark.parametrize(("text", "dialect", "statements"), CASES, ids=lambda v: str(v)[:40])
def test_split(text: str, dialect: str, statements: list[str]) -> None:
    assert split(text, dialect) == statements


PIECES = st.sampled_from(
    [
        "'",
        '"',
        "`",
        ";",
        "$",
        "$$",
        "$a$",
        "/*",
        "*/",
        "--",
        "\n",
        "#",
        "\\",
        "e'",
        "U&'",
        "a",
        " ",
        "1",
        "-",
        "/",
    ]
)


@given(
    st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["postgres", "mysql", "trino", "duckdb", ""])
)
def test_nothing_but_semicolons_and_space_is_lost(text: str, dialect: str) -> None:
    kept = "".join(split(text, dialect))
    without = text.replace(";", "").replace(" ", "").replace("\n", "")
    # What is dropped holds only comments; what is kept appears in order.
    assert all(part.strip() == part for part in split(text, dialect))
    position = 0
    for character in kept.replace(";", "").replace(" ", "").replace("\n", ""):
        position = without.index(character, position) + 1


@pytest.mark.parametrize(
    "piece", ["'", "/*", "$a$", "e'\\", ";", "x;", "a$$", '"', "-- \n;", "/**/;", "''", "$a", "e", "1.e"]
)
@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_time_is_linear_in_the_text(piece: str, dialect: str) -> None:
    """A quadratic scan of 400 kB would not come to an end in minutes."""
    text = piece * (400_000 // len(piece))
    assert sum(map(len, split(text, dialect))) <= len(text)
