"""Whatever a client sends, the rooms that look at SQL give an answer or an error of ours."""

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queryflux.metadata.recognise import recognise
from queryflux.model.errors import QueryFluxError
from queryflux.sql.classify import classify
from queryflux.sql.lexer import tokens
from queryflux.sql.split import split
from queryflux.sql.transpile import transpile

DIALECTS = st.sampled_from(["postgres", "mysql", "trino", "duckdb", ""])
WORDS = """
select from where with as ( ) , . * 'a' "b" `c` 1 1.5 $1 ? :x :: cast interval date '1' day limit
offset order by group having union all case when then else end insert into values update set delete
explain analyze show tables create table pg_class information_schema . columns any array [ ] || / %
- = <> like in exists not null true and or over partition rollup extract year substring for join on
lateral unnest generate_series e'\\n' ; -- /* */ @x @@y $$
"""
SQLISH = st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join)


@given(st.text(max_size=80) | SQLISH, DIALECTS)
@settings(deadline=None)
def test_texts_are_looked_at_without_fail(text: str, dialect: str) -> None:
    assert "".join(text[a:b] for _, a, b in tokens(text, dialect)) == text
    classify(text, dialect)
    split(text, dialect)
    recognise(text, dialect)


@given(
    SQLISH | st.text(max_size=40),
    DIALECTS.filter(bool),
    st.sampled_from(["duckdb", "trino", "postgres", "mysql"]),
)
@settings(deadline=None)
def test_translation_gives_an_outcome(text: str, source: str, target: str) -> None:
    outcome = transpile(text, source, target, strict=True)
    if outcome.sql is None:
        assert outcome.message
        assert outcome.position is None or 0 <= outcome.position <= len(text)


@given(SQLISH, st.sampled_from(["postgres", "mysql", "trino", ""]))
@settings(deadline=None)
def test_catalog_queries_compile_or_are_refused(text: str, dialect: str) -> None:
    from queryflux.metadata.definitions import tables_of
    from queryflux.sql.lite import Catalog, lite_query

    with contextlib.suppress(QueryFluxError):
        lite_query(text, dialect, Catalog(tables_of(dialect), {}, ("pg_catalog", "information_schema")))


@pytest.mark.parametrize("heavy", ["sqlglot", "pyarrow", "numpy", "duckdb", "sqlite3", "re2"])
def test_what_every_process_loads_is_light(heavy: str) -> None:
    modules = "translate classify split bind kinds lite helper"
    imports = "; ".join(f"import queryflux.sql.{name}" for name in modules.split())
    code = f"{imports}; import queryflux.metadata.recognise; import sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
