"""The kind of a statement is told from its first words."""

import pytest

from queryflux.sql.classify import classify
from queryflux.sql.kinds import StatementKind as K

CASES = [
    ("", "postgres", K.EMPTY, (), False),
    (" -- only a comment\n /* and /* nested */ more */ ", "postgres", K.EMPTY, (), False),
    (";", "postgres", K.EMPTY, (), False),
    ("select 1", "postgres", K.QUERY, ("SELECT",), False),
    ("((SELECT 1) UNION SELECT 2)", "trino", K.QUERY, ("SELECT",), False),
    ("/* a /* b */ c */ -- d\n select 1", "postgres", K.QUERY, ("SELECT",), False),
    ("# note\nselect 1", "mysql", K.QUERY, ("SELECT",), False),
    ("/*!40101 SET NAMES utf8 */", "mysql", K.SET, ("SET",), False),
    ("--1 is no comment", "mysql", K.OTHER, ("-",), True),
    ("values (1)", "trino", K.QUERY, ("VALUES",), False),
    ("insert into t values (1)", "postgres", K.WRITE, ("INSERT",), True),
    ("REPLACE INTO t VALUES (1)", "mysql", K.WRITE, ("REPLACE",), True),
    ("create or replace temp view v as select 1", "postgres", K.DDL, ("CREATE", "VIEW"), True),
    ("create table if not exists t (a int)", "postgres", K.DDL, ("CREATE", "TABLE"), True),
    ("CREATE UNIQUE INDEX i ON t (a)", "postgres", K.DDL, ("CREATE", "INDEX"), True),
    ("create materialized view v as select 1", "postgres", K.DDL, ("CREATE", "MATERIALIZED", "VIEW"), True),
    ("drop foreign data wrapper w", "postgres", K.DDL, ("DROP", "FOREIGN", "DATA", "WRAPPER"), True),
    (
        "alter default privileges grant select on tables to x",
        "postgres",
        K.DDL,
        ("ALTER", "DEFAULT", "PRIVILEGES"),
        True,
    ),
    ("truncate t", "postgres", K.DDL, ("TRUNCATE", "TABLE"), True),
    ("with a as (select 1) select * from a", "postgres", K.QUERY, ("SELECT",), False),
    ("with a as (select 1) insert into t select * from a", "postgres", K.WRITE, ("INSERT",), True),
    (
        "with recursive gone as materialized (delete from t returning *) select * from gone",
        "postgres",
        K.WRITE,
        ("SELECT",),
        True,
    ),
    (
        "with a as (select insert('x', 1, 2, 'y')) select (update) from a",
        "mysql",
        K.QUERY,
        ("SELECT",),
        False,
    ),
    ("with a as (select 1) select * into t from a", "postgres", K.DDL, ("SELECT",), True),
    ("select a into b from c", "postgres", K.DDL, ("SELECT",), True),
    ("select 'into', (select 1 as into_x) from c", "postgres", K.QUERY, ("SELECT",), False),
    ("select 1 into @x", "mysql", K.WRITE, ("SELECT",), True),
    ("select a, 'x' into t from c", "postgres", K.DDL, ("SELECT",), True),
    ('select "into", b -- into\n /* into /* into */ */ from c', "postgres", K.QUERY, ("SELECT",), False),
    (r"select e'\' into', 1 from c", "postgres", K.QUERY, ("SELECT",), False),
    (r"select E'\\' into t from c", "postgres", K.DDL, ("SELECT",), True),
    ("select $a$ into $a$, a.into from c; select 1 into t", "postgres", K.QUERY, ("SELECT",), False),
    ("select ((((((a)))))) into t from c", "postgres", K.DDL, ("SELECT",), True),
    ("select ((((((a into t))))))", "postgres", K.QUERY, ("SELECT",), False),
    ("with insert as (select 1), update as (select 2) select 1", "postgres", K.QUERY, ("SELECT",), False),
    ("with a(x) as (values (1), ('(')) table a", "postgres", K.QUERY, ("TABLE",), False),
    ("with a as (/* x */ update t set a = 1 returning a) select 1", "postgres", K.WRITE, ("SELECT",), True),
    ("with a as (select 1) merge into t using a on true", "postgres", K.WRITE, ("MERGE",), True),
    ('copy t (a, "from") to stdout', "postgres", K.COPY, ("COPY",), False),
    ("explain select 1", "postgres", K.EXPLAIN, ("EXPLAIN",), False),
    ("explain delete from t", "postgres", K.EXPLAIN, ("EXPLAIN",), False),
    ("explain analyze delete from t", "postgres", K.EXPLAIN, ("EXPLAIN",), True),
    ("explain (analyze, timing off) delete from t", "postgres", K.EXPLAIN, ("EXPLAIN",), True),
    ("explain (analyze false) delete from t", "postgres", K.EXPLAIN, ("EXPLAIN",), False),
    ("explain (select 1)", "postgres", K.EXPLAIN, ("EXPLAIN",), False),
    ("explain format=json select 1", "mysql", K.EXPLAIN, ("EXPLAIN",), False),
    ("explain t", "mysql", K.DESCRIBE, ("EXPLAIN",), False),
    ("desc t", "mysql", K.DESCRIBE, ("DESC",), False),
    ("describe select 1", "mysql", K.EXPLAIN, ("EXPLAIN",), False),
    ("DESCRIBE INPUT p", "trino", K.DESCRIBE, ("DESCRIBE", "INPUT"), False),
    ("show tables", "mysql", K.SHOW, ("SHOW",), False),
    ("set session x = 1", "trino", K.SET, ("SET", "SESSION"), False),
    ("set x = 1", "postgres", K.SET, ("SET",), False),
    ("reset session x", "trino", K.RESET, ("RESET", "SESSION"), False),
    ("discard all", "postgres", K.RESET, ("DISCARD", "ALL"), False),
    ("use a.b", "trino", K.USE, ("USE",), False),
    ("begin isolation level serializable", "postgres", K.BEGIN, ("BEGIN",), False),
    ("start transaction", "postgres", K.BEGIN, ("START", "TRANSACTION"), False),
    ("end", "postgres", K.COMMIT, ("COMMIT",), False),
    ("commit", "mysql", K.COMMIT, ("COMMIT",), False),
    ("abort", "postgres", K.ROLLBACK, ("ROLLBACK",), False),
    ("rollback work to savepoint s", "postgres", K.SAVEPOINT, ("ROLLBACK",), False),
    ("release s", "postgres", K.SAVEPOINT, ("RELEASE",), False),
    ("prepare transaction 'x'", "postgres", K.OTHER, ("PREPARE", "TRANSACTION"), True),
    ("prepare p from select 1", "trino", K.PREPARE, ("PREPARE",), False),
    ("execute p using 1", "trino", K.EXECUTE, ("EXECUTE",), True),
    ("deallocate all", "postgres", K.DEALLOCATE, ("DEALLOCATE", "ALL"), False),
    ("copy t from stdin", "postgres", K.COPY, ("COPY",), True),
    ("copy (select 1 from t) to stdout", "postgres", K.COPY, ("COPY",), False),
    ("call p()", "mysql", K.CALL, ("CALL",), True),
    ("kill query 5", "mysql", K.KILL, ("KILL",), False),
    ("listen x", "postgres", K.LISTEN, ("LISTEN",), False),
    ("declare c cursor for select 1", "postgres", K.CURSOR, ("DECLARE", "CURSOR"), False),
    ("fetch 10 from c", "postgres", K.CURSOR, ("FETCH",), False),
    ("frobnicate", "postgres", K.OTHER, ("FROBNICATE",), True),
]


@pytest.mark.parametrize(("text", "dialect", "kind", "words", "writes"), CASES, ids=lambda v: str(v)[:30])
def test_kind_words_and_writes(
    text: str, dialect: str, kind: K, words: tuple[str, ...], writes: bool
) -> None:
    found = classify(text, dialect)
    assert (found.kind, found.words, found.writes) == (kind, words, writes)


def test_large_texts_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "with a as (values " + ", ".join(["('into', ((1)))"] * 20_000) + ") insert into t select * from a"
    first = classify(text, "postgres")
    assert (first.kind, first.words) == (K.WRITE, ("INSERT",))
    monkeypatch.setattr("queryflux.sql.classify._classify", None)
    assert classify(text, "postgres") is first


@pytest.mark.parametrize(
    "piece",
    ["(", "(a", "('", "/*", "/* ", "$a$", "$a ", "a into_ ", "'", "e'\\", "into ", ",", "()", "-- \n"],
)
@pytest.mark.parametrize("before", ["", "with a as (select 1", "select 'into', "])
def test_time_is_linear_in_the_text(before: str, piece: str) -> None:
    """A quadratic scan of 400 kB would not come to an end in minutes."""
    assert classify(before + piece * (400_000 // len(piece)), "postgres") is not None


def test_the_same_text_is_classified_once() -> None:
    text = "select 'kept for later'"
    assert classify(text, "postgres") is classify(text, "postgres")
