"""Questions about the catalog are told from questions about data."""

import pytest

from queryflux.metadata.recognise import recognise

YES = [
    ("select * from pg_catalog.pg_class", "postgres"),
    ("select relname from pg_class c join pg_namespace n on true", "postgres"),
    ('select 1 from "information_schema"."tables"', "postgres"),
    ("with t as (select * from information_schema.tables) select * from t", "postgres"),
    ("select version()", "postgres"),
    ("select pg_catalog.version()", "postgres"),
    ("select current_schema(), current_user as u", "postgres"),
    ("select set_config('a', 'b', false)", "postgres"),
    ("select pg_catalog.set_config('search_path', '', false)", "postgres"),
    ('select current_database() as "d";', "postgres"),
    ("select 'orders'::regclass::oid", "postgres"),
    ("select string_agg(word, ',') from pg_catalog.pg_get_keywords()", "postgres"),
    ("show server_version", "postgres"),
    ("show tables", "postgres"),
    ("describe orders", "postgres"),
    ("SHOW DATABASES", "mysql"),
    ("show full columns from t", "mysql"),
    ("desc t", "mysql"),
    ("explain t", "mysql"),
    ("show session variables like 'a%'", "mysql"),
    ("select table_name from information_schema.tables", "mysql"),
    ("select @@version_comment limit 1", "mysql"),
    ("select database(), user()", "mysql"),
    ("SHOW CATALOGS", "trino"),
    ("show columns from a.b.c", "trino"),
    ("describe t", "trino"),
    ("SELECT table_cat FROM system.jdbc.catalogs", "trino"),
    ("select * from tpch.information_schema.tables", "trino"),
    ("select version()", "trino"),
    ("select * from information_schema.columns", ""),
    ("show tables", ""),
]
NO = [
    ("select 1", "postgres"),
    ("select 'pg_catalog.pg_class'", "postgres"),
    ("select * from t where a = 'information_schema.tables'", "postgres"),
    ("select pg_class from t", "postgres"),
    ("select version(), x from t", "postgres"),
    ("select my_function(current_user)", "postgres"),
    ("select now(), version()", "postgres"),
    ("select * from t where owner = current_user", "postgres"),
    ("insert into t select * from pg_class", "postgres"),
    ("create table t as select * from information_schema.tables", "postgres"),
    ("select pg_sleep(1)", "postgres"),
    ("explain select 1", "mysql"),
    ("explain analyze select 1", "mysql"),
    ("explain format=tree select 1", "mysql"),
    ("select @x", "mysql"),
    ("describe input p", "trino"),
    ("show stats for t", "trino"),
    ("explain select 1", "trino"),
    ("select * from system.pg_table", "trino"),
    ("select user_id from users", "postgres"),
]


@pytest.mark.parametrize(("text", "dialect"), YES)
def test_questions_about_the_catalog(text: str, dialect: str) -> None:
    found = recognise(text, dialect)
    assert found is not None
    assert found.tag == ("SHOW" if text.upper().startswith("SHOW") else "SELECT")


@pytest.mark.parametrize(("text", "dialect"), NO)
def test_questions_about_data(text: str, dialect: str) -> None:
    assert recognise(text, dialect) is None
    assert recognise(text, dialect) is None
