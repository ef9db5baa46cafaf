"""Each protocol's clients find an engine's tables where they look for them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from queryflux.engines.port import TableRef
from queryflux.frontends.mysql.variables import SessionVariables
from queryflux.frontends.postgres.settings import Settings
from queryflux.metadata.answer import Asking, forget
from queryflux.metadata.catalogs import MAX_RUNNING, MAX_STORES, catalog_of
from queryflux.metadata.recognise import recognise
from queryflux.model.errors import (
    EngineError,
    EngineErrorKind,
    EngineUnavailable,
    InvalidRequest,
    NotSupported,
    QueryCancelled,
    SqlSyntaxError,
)
from tests.rooms.metadata.places import EVENTS, ORDERS, OTHER, RECENT, Client, TableEngine


def postgres(**session: Any) -> Client:
    return Client("postgres", catalog="demo", **session)


async def test_tables_as_psql_lists_them() -> None:
    rows = await postgres().ask(
        "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", CASE c.relkind WHEN 'r' THEN 'table' "
        "WHEN 'v' THEN 'view' END AS \"Type\", pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\" "
        "FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r','v','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' "
        "AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2"
    )
    assert [(row["Schema"], row["Name"], row["Type"], row["Owner"]) for row in rows] == [
        ("main", "orders", "table", "ann"),
        ("main", "recent", "view", "ann"),
    ]


async def test_columns_of_a_statement_as_psql_describes_them() -> None:
    rows = await postgres().ask(
        'SELECT name AS "Column", pg_catalog.format_type(tp, tpm) AS "Type"\nFROM (VALUES '
        "('x','23'::pg_catalog.oid,-1),('it''s','1043'::pg_catalog.oid,14)) s(name,tp,tpm)"
    )
    assert [tuple(row.values()) for row in rows] == [("x", "integer"), ("it's", "character varying(10)")]


@pytest.mark.parametrize("kind", ["regproc", "regprocedure"])
async def test_a_function_that_psql_would_show(kind: str) -> None:
    with pytest.raises(EngineError, match='function "it\'s" does not exist') as caught:
        await postgres().ask(f"SELECT 'it''s'::pg_catalog.{kind}::pg_catalog.oid")
    assert caught.value.sqlstate == "42883"


async def test_a_view_as_psql_shows_it() -> None:
    client = postgres()
    (oid,) = await client.values("SELECT 'recent'::pg_catalog.regclass::pg_catalog.oid")
    rows = await client.ask(
        "SELECT nspname, relname, relkind, pg_catalog.pg_get_viewdef(c.oid, true), "
        "pg_catalog.array_remove(pg_catalog.array_remove(c.reloptions,'check_option=local'),"
        "'check_option=cascaded') AS reloptions, CASE WHEN 'check_option=local' = ANY (c.reloptions) "
        "THEN 'LOCAL'::text WHEN 'check_option=cascaded' = ANY (c.reloptions) THEN 'CASCADED'::text "
        "ELSE NULL END AS checkoption FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n "
        f"ON c.relnamespace = n.oid WHERE c.oid = {oid}"
    )
    assert [(row["relname"], row["relkind"]) for row in rows] == [("recent", "v")]


async def test_a_table_as_psql_describes_it() -> None:
    client = postgres()
    found = await client.ask(
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c "
        "LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relname OPERATOR(pg_catalog.~) '^(orders)$' COLLATE pg_catalog.default ORDER BY 2, 3"
    )
    assert len(found) == 1
    rows = await client.ask(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), "
        "(SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d "
        "WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum), "
        f"a.attnotnull FROM pg_catalog.pg_attribute a WHERE a.attrelid = '{found[0]['oid']}' "
        "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
    assert [(row["attname"], row["format_type"], row["attnotnull"]) for row in rows] == [
        ("id", "bigint", True),
        ("name", "text", False),
        ("price", "numeric(10,2)", False),
        ("placed", "timestamp with time zone", False),
        ("tags", "text[]", False),
        ("paid", "boolean", False),
    ]


async def test_a_table_keeps_its_oid_when_others_come() -> None:
    engine = TableEngine(ORDERS)
    client = Client("postgres", engine, catalog="demo")
    question = "select 'orders'::regclass::oid from pg_catalog.pg_am"
    before = await client.values(question)
    engine.listed = [EVENTS, ORDERS, RECENT]
    forget(engine)
    assert await client.values(question) == before


async def test_parameters_are_bound_and_typed() -> None:
    client = postgres()
    sql = "select relname from pg_class where relname = $1 or oid = any($2::oid[]) and relnatts > $3"
    assert sorted(await client.values(sql, "orders", [1247], 0)) == ["orders", "pg_type"]
    described = await client.describe(sql)
    assert described.parameter_types == ("text", "int8[]", "int2")
    close = await client.describe("select relname from pg_class where relname in ($1,$2)")
    assert close.parameter_types == ("text", "text")
    arrays = await client.describe("select 1 from pg_type where typname = any($1) and oid = any ($2)")
    assert arrays.parameter_types == ("text[]", "oid[]")
    assert described.schema == pa.schema([("relname", pa.string())])


async def test_types_are_known_without_rows() -> None:
    described = await postgres().describe(
        "select c.oid, c.relhasindex as i, count(*) over () n, c.relnatts + 1, coalesce(c.reltuples, 0) t, "
        "c.relname = 'x' same, (select a.attnum from pg_attribute a limit 1) s, case when true then 1 end, "
        "t.* from pg_class c, (select oid o, typbyval from pg_type) t where false"
    )
    assert described.schema is not None
    assert [str(field.type) for field in described.schema] == (
        ["int64", "bool", "int64", "int32", "double", "bool", "int16", "int32", "int64", "bool"]
    )


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("select current_database()", "demo"),
        ("select current_schema()", "main"),
        ("select current_user", "ann"),
        ("select user", "ann"),
        ("select current_schemas(true)", "{pg_catalog,main}"),
        ("select (current_schemas(false))[1] from pg_am limit 1", "main"),
        ("select current_setting('server_version_num')", "160004"),
        ("select set_config('search_path', 'a', false)", "a"),
        ("select pg_is_in_recovery()", False),
        ("select version()", "PostgreSQL 16.4 (QueryFlux)"),
        ("show transaction isolation level", "read committed"),
        ("select 'pg_class'::regclass::oid from pg_am limit 1", 1259),
        ("select 1259::regclass from pg_am limit 1", "pg_class"),
        ("select typname from pg_type where oid = 'int4[]'::regtype", "_int4"),
        ("select oid::regtype::text from pg_type where typname = 'float8'", "double precision"),
        ("select array(select amname from pg_am order by 1)", "{btree,heap}"),
        ("select n from generate_series(2, 4) as g(n), pg_am limit 1", 2),
        ("select count(*) from pg_am where amname <> all ('{heap,x}')", 1),
        ("select count(*) from information_schema.columns where table_name ilike 'ORD%'", 6),
        ("select nspname from pg_namespace where nspname like 'pg\\_c%'", "pg_catalog"),
        ("select v.b from (values (1, 'x')) as v(a, b), pg_am limit 1", "x"),
        ("select E'a\\nb' from pg_am limit 1", "a\nb"),
    ],
)
async def test_postgres_session_and_oddities(sql: str, value: Any) -> None:
    assert (await postgres().values(sql))[0] == value


async def test_labels_are_those_of_postgres() -> None:
    described = await postgres().describe(
        'select current_database(), 1 AS Big, 2 AS "Big", oid::text from pg_am'
    )
    assert described.schema is not None
    assert described.schema.names == ["current_database", "big", "Big", "oid"]


async def test_labels_are_those_of_trino_and_mysql() -> None:
    trino = await Client("trino", catalog="lake").describe("select current_user, 1 AS Big, version()")
    assert trino.schema is not None
    assert trino.schema.names == ["_col0", "Big", "_col2"]
    mysql = await Client("mysql").describe("select version( ), @@version_comment, user() U limit 1")
    assert mysql.schema is not None
    assert mysql.schema.names == ["version( )", "@@version_comment", "U"]


async def test_a_schema_that_is_named_is_the_visible_one() -> None:
    sql = "select relname from pg_class where relkind = 'r' and pg_table_is_visible(oid) and oid > 16384"
    assert await postgres(database="raw").values(sql) == ["Events"]
    assert await postgres().values("select 1 from pg_class where oid = 'raw.\"Events\"'::regclass") == [1]


async def test_the_database_of_a_client_is_its_catalog_where_there_is_one() -> None:
    engine = TableEngine(ORDERS, OTHER)
    sql = "select table_name from information_schema.tables where table_schema = 'main'"
    assert await Client("postgres", engine, catalog="other").values(sql) == ["elsewhere"]
    assert await Client("postgres", engine, catalog="none").values(sql) == ["orders", "elsewhere"]


async def test_mysql_lists() -> None:
    client = Client("mysql", database="main")
    assert await client.values("SHOW DATABASES") == ["information_schema", "main", "raw"]
    assert await client.values("show schemas like 'ma%'") == ["main"]
    assert await client.values("SHOW TABLES") == ["orders", "recent"]
    assert await client.ask("show full tables from raw") == [
        {"Tables_in_raw": "Events", "Table_type": "BASE TABLE"}
    ]
    assert await client.values("show tables where Tables_in_main = 'recent'") == ["recent"]
    assert await client.values("show tables in main like 'ORD%'") == ["orders"]
    assert (await client.ask("show table status like 'orders'"))[0]["Engine"] == "QueryFlux"


async def test_mysql_describes() -> None:
    client = Client("mysql", database="main")
    rows = await client.ask("DESCRIBE orders")
    assert rows[0] == {"Field": "id", "Type": "bigint", "Null": "NO", "Key": "", "Default": None, "Extra": ""}
    assert [row["Type"] for row in rows[1:]] == [
        "longtext",
        "decimal(10,2)",
        "timestamp(6)",
        "json",
        "tinyint(1)",
    ]
    assert await client.values("desc orders price") == ["price"]
    assert await client.values("explain raw.Events") == ["At"]
    full = await client.ask("show full columns from `orders` from `main` like 'na%'")
    assert full[0]["Collation"] == "utf8mb4_general_ci"
    assert await client.ask("show index from orders") == []
    created = await client.ask("show create table orders")
    assert created[0]["Create Table"].startswith("CREATE TABLE `orders` (\n  `id` bigint NOT NULL,")
    assert "Create View" in (await client.ask("show create table recent"))[0]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("show variables like 'character_set_c%'", ["Variable_name", "Value"]),
        ("show status", ["Variable_name", "Value"]),
        ("show engines", ["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"]),
        ("show grants", ["Grants for ann@127.0.0.1"]),
        ("show triggers", None),
        ("show create database main", ["Database", "Create Database"]),
        ("show plugins", ["Name", "Status", "Type", "Library", "License"]),
    ],
)
async def test_mysql_show_columns(sql: str, columns: list[str] | None) -> None:
    described = await Client("mysql", database="main").describe(sql)
    assert described.schema is not None
    if columns is not None:
        assert described.schema.names == columns


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("show tables like 'O%'", [{"Tables_in_main (O%)": "orders"}]),
        ("show tables where Tables_in_main = 'orders'", [{"Tables_in_main": "orders"}]),
        ("show full tables like 'r%'", [{"Tables_in_main (r%)": "recent", "Table_type": "VIEW"}]),
        ("show databases like 'ma%'", [{"Database (ma%)": "main"}]),
        ("show databases where `Database` = 'raw'", [{"Database": "raw"}]),
        ("select * from (select table_name from information_schema.views) v", [{"TABLE_NAME": "recent"}]),
    ],
)
async def test_names_of_columns_that_are_filtered(sql: str, expected: list[dict[str, str]]) -> None:
    client = Client("mysql", database="main")
    assert await client.ask(sql) == expected
    described = (await client.describe(sql)).schema
    assert described is not None
    assert described.names == list(expected[0])


async def test_databases_that_are_not_there() -> None:
    engine = TableEngine()
    engine.places = [("lake", "main"), ("lake", "empty"), ("lake", "pg_catalog")]
    client = Client("mysql", engine, database="nowhere")
    for sql in ("use `nowhere`", "show tables", "show tables from nowhere"):
        with pytest.raises(EngineError, match="Unknown database 'nowhere'") as caught:
            await client.ask(sql)
        assert caught.value.number == 1049
        assert caught.value.hint == "there are: empty, main, raw"
    for sql in ("use MAIN", "use lake", "use raw", "use information_schema"):
        assert len(await client.ask(sql)) == 1
    assert await client.ask("show tables from empty") == []
    engine.places.append(("lake", "nowhere"))  # and nobody tells
    assert await client.ask("show tables") == []


async def test_where_schemas_are_not_listed_any_database_will_do() -> None:
    client = Client("mysql", database="nowhere")
    assert len(await client.ask("use nowhere")) == 1
    assert await client.ask("show tables") == []


async def test_without_a_database_the_only_one_is_shown() -> None:
    assert await Client("mysql", TableEngine(ORDERS)).ask("show tables") == [{"Tables_in_main": "orders"}]


async def test_schemas_without_tables_are_listed() -> None:
    client = postgres()
    client.engine.places = [("demo", "empty")]
    sql = "select schema_name from information_schema.schemata where schema_name not like '%a%'"
    assert await client.values(sql) == ["empty"]


async def test_mysql_session() -> None:
    client = Client("mysql", database="main", extra={"autocommit": "0", "connection_id": "7"})
    rows = await client.ask(
        "select database(), connection_id() as c, @@autocommit as a, @@session.sql_mode as m"
    )
    assert list(rows[0].values())[:3] == ["main", 7, "0"]
    assert await client.values("select table_name from INFORMATION_SCHEMA.TABLES where TABLE_SCHEMA = 'MAIN'")


async def test_variables_are_those_of_the_mysql_door() -> None:
    variables = SessionVariables(port=3307, max_allowed_packet=1 << 20)
    for name, value in (("autocommit", "0"), ("transaction_isolation", "SERIALIZABLE"), ("mine", "x")):
        variables.set(name, value)
    client = Client("mysql", database="main", extra=variables.extra())
    for asked in (
        "select variable_name, variable_value from performance_schema.session_variables order by 1",
        "show variables where variable_name <> 'nothing'",
    ):
        rows = [tuple(row.values()) for row in await client.ask(asked)]
        assert sorted(rows) == list(variables.listed())


async def test_settings_are_those_of_the_postgres_door() -> None:
    rows = await postgres().ask("select name, setting from pg_settings")
    door = Settings("ann", {})
    for row in rows:
        assert row["setting"] == door.get(row["name"]), row


async def test_mysql_errors() -> None:
    with pytest.raises(EngineError) as none:
        await Client("mysql").ask("show tables")
    assert none.value.number == 1046
    with pytest.raises(EngineError) as missing:
        await Client("mysql", database="main").ask("describe nowhere")
    assert (missing.value.number, missing.value.kind) == (1146, EngineErrorKind.TABLE_NOT_FOUND)


async def test_trino_lists() -> None:
    client = Client("trino", TableEngine(ORDERS, RECENT, EVENTS, OTHER), catalog="lake", database="main")
    assert await client.values("SHOW CATALOGS") == ["lake", "other"]
    assert await client.values("SHOW SCHEMAS") == ["information_schema", "main", "raw"]
    assert await client.values("SHOW SCHEMAS FROM other LIKE 'ma%'") == ["main"]
    assert await client.values("SHOW TABLES") == ["orders", "recent"]
    assert await client.values("SHOW TABLES FROM other.main") == ["elsewhere"]
    assert await client.values("SHOW TABLES LIKE 'rec\\_%' ") == []
    assert await client.ask("SHOW FUNCTIONS") == []
    assert await client.ask("SHOW SESSION") == []
    described = await client.ask("DESCRIBE orders")
    assert described[2] == {"Column": "price", "Type": "decimal(10,2)", "Extra": "", "Comment": ""}
    assert [row["Type"] for row in described] == [
        "bigint",
        "varchar",
        "decimal(10,2)",
        "timestamp(6) with time zone",
        "array(varchar)",
        "boolean",
    ]
    assert await client.values("SHOW COLUMNS FROM lake.raw.events") == ["At"]
    created = (await client.ask("SHOW CREATE TABLE orders"))[0]["Create Table"]
    assert created.startswith("CREATE TABLE lake.main.orders (\n   id bigint NOT NULL,")


async def test_trino_information_schema_is_that_of_a_catalog() -> None:
    client = Client("trino", TableEngine(ORDERS, OTHER), catalog="lake", database="main")
    sql = "select table_name from {}information_schema.tables where table_schema = 'main'"
    assert await client.values(sql.format("")) == ["orders"]
    assert await client.values(sql.format("other.")) == ["elsewhere"]
    assert await Client("trino", TableEngine(ORDERS, OTHER)).values(sql.format("other.")) == ["elsewhere"]


async def test_trino_jdbc_tables() -> None:
    client = Client("trino", catalog="lake")
    rows = await client.ask(
        "SELECT TABLE_CAT, TABLE_SCHEM, TABLE_NAME, COLUMN_NAME, DATA_TYPE, TYPE_NAME, COLUMN_SIZE, "
        "NULLABLE, ORDINAL_POSITION FROM system.jdbc.columns "
        "WHERE TABLE_CAT = 'lake' AND TABLE_NAME LIKE 'ord\\%' ESCAPE '\\' "
        "OR TABLE_NAME LIKE 'ord%' ESCAPE '\\' ORDER BY TABLE_CAT, ORDINAL_POSITION"
    )
    assert list(rows[0].values()) == ["lake", "main", "orders", "id", -5, "bigint", 19, 0, 1]
    assert await client.values("select table_type from system.jdbc.table_types order by 1") == [
        "TABLE",
        "VIEW",
    ]
    types = await client.ask("select type_name, data_type from system.jdbc.types")
    assert {"type_name": "bigint", "data_type": -5} in types
    assert await client.values("select node_version from system.runtime.nodes") == ["476"]
    assert await client.values("select current_catalog") == ["lake"]


async def test_trino_errors() -> None:
    with pytest.raises(EngineError, match="Catalog must be specified"):
        await Client("trino").ask("SHOW SCHEMAS")
    with pytest.raises(EngineError, match="Schema must be specified"):
        await Client("trino", catalog="lake").ask("SHOW TABLES")
    with pytest.raises(EngineError) as missing:
        await Client("trino", catalog="lake", database="main").ask("DESCRIBE nowhere")
    assert missing.value.name == "TABLE_NOT_FOUND"


async def test_clients_of_no_dialect() -> None:
    client = Client("")
    rows = await client.ask("select table_name, table_type from information_schema.tables order by 1")
    assert [list(row.values()) for row in rows] == [
        ["Events", "BASE TABLE"],
        ["orders", "BASE TABLE"],
        ["recent", "VIEW"],
    ]
    assert await client.values(
        "select data_type from information_schema.columns where column_name = 'tags'"
    ) == ["VARCHAR[]"]
    assert await client.values("show tables") == ["orders", "recent"]
    assert (await client.ask("describe orders"))[0]["column_name"] == "id"


async def test_the_engine_is_asked_once_by_all_who_wait_and_not_again_while_fresh() -> None:
    client = postgres()
    sql = "select count(*) from pg_class where relname = 'orders'"
    answers = await asyncio.gather(*(client.values(sql) for _ in range(5)))
    assert answers == [[1]] * 5
    assert client.engine.asked == 1
    forget(client.engine)
    await client.values(sql)
    assert client.engine.asked == 2


async def test_a_failure_to_list_is_told_and_not_kept() -> None:
    client = postgres()
    client.engine.failure = EngineUnavailable("down")
    with pytest.raises(EngineUnavailable):
        await client.values("select 1 from pg_class")
    client.engine.failure = None
    assert await client.values("select count(*) from pg_am") == [2]


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("select * from pg_catalog.pg_nothing", EngineError),
        ("select nothing from pg_class", EngineError),
        ("select cast ? . :x join @x b delete limit from pg_class c", SqlSyntaxError),
        ("select no_such_function(1) from pg_class", EngineError),
        ("select * from orders, pg_class", EngineError),
        ("with x as (delete from t returning *) select * from pg_class", (NotSupported, EngineError)),
        ("show no_such_setting", InvalidRequest),
        ("describe nowhere", EngineError),
    ],
)
async def test_what_cannot_be_answered_is_an_error_of_ours(sql: str, error: Any) -> None:
    with pytest.raises(error):
        await postgres().ask(sql)


async def test_a_query_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queryflux.metadata.store.DEADLINE_SECS", 0.0)
    endless = "with recursive x(n) as (select 1 union all select n + 1 from x) select count(*) from x, pg_am"
    with pytest.raises(EngineError) as raised:
        await postgres().ask(endless)
    assert raised.value.kind is EngineErrorKind.RESOURCES


async def test_an_answer_of_too_much_text_is_refused_and_not_gathered() -> None:
    with pytest.raises(EngineError) as raised:
        await postgres().ask("select hex(zeroblob(1000000)) from pg_attribute, pg_attribute as other")
    assert raised.value.kind is EngineErrorKind.RESOURCES


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 50])
async def test_cancelling_stops_the_query(turns: int) -> None:
    client = postgres()
    await client.ask("select 1 from pg_am")
    endless = "with recursive x(n) as (select 1 union all select n + 1 from x) select count(*) from x, pg_am"
    asking = asyncio.create_task(client.ask(endless))
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await client.values("select count(*) from pg_am") == [2]


ENDLESS = "with recursive x(n) as (select 1 union all select n + 1 from x) select count(*) from x, pg_am"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 (there is no event for what threads do)
            await asyncio.sleep(0)


async def test_a_slow_question_does_not_hold_up_others() -> None:
    client = postgres()
    known = catalog_of(client.engine)
    slow = asyncio.create_task(client.ask(ENDLESS))
    await until(lambda: known.turns._value < MAX_RUNNING)
    assert await client.values("select count(*) from pg_am") == [2]
    assert not slow.done()
    slow.cancel()
    await asyncio.wait([slow])
    assert known.turns._value == MAX_RUNNING


async def test_asking_is_cancelled_from_another_task() -> None:
    client = postgres()
    for when in range(4):
        question = recognise(ENDLESS, "postgres")
        assert question is not None
        asking = Asking(question, client.engine, client.session, client.identity)
        task = asyncio.create_task(asking.answer())
        if when == 3:
            await until(lambda: catalog_of(client.engine).turns._value < MAX_RUNNING)
        for _ in range(when):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(QueryCancelled):
            await task
    assert await client.values("select count(*) from pg_am") == [2]


async def test_the_task_that_asks_may_be_cancelled_too() -> None:
    client = postgres()
    question = recognise(ENDLESS, "postgres")
    assert question is not None
    asking = Asking(question, client.engine, client.session, client.identity)
    task = asyncio.create_task(asking.answer())
    await until(lambda: catalog_of(client.engine).turns._value < MAX_RUNNING)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_list_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(TableEngine):
        async def tables(self) -> list[TableRef]:
            return await asyncio.Future[list[TableRef]]()

    monkeypatch.setattr("queryflux.metadata.catalogs.LISTING_SECS", 0.0)
    engine = Silent()
    with pytest.raises(EngineError, match="did not list its tables"):
        await Client("postgres", engine, catalog="demo").ask("select 1 from pg_am")
    asking = catalog_of(engine).asking
    assert asking is not None
    asking.cancel()
    await asyncio.wait([asking])


async def test_stores_are_kept_and_bounded() -> None:
    engine = TableEngine()
    for number in range(MAX_STORES + 3):
        client = Client("postgres", engine, catalog="demo", extra={"search_path": f"s{number}"})
        assert await client.values("select count(*) from pg_am") == [2]
        assert await client.values("select count(*) from pg_am") == [2]
    known = catalog_of(engine)
    assert len(known.idle) == MAX_STORES
    engine.listed = [EVENTS]
    forget(engine)
    assert await Client("postgres", engine, catalog="demo").values(
        "select relname from pg_class where relkind = 'r' and relnamespace > 20000"
    ) == ["Events"]
    assert len(known.idle) == 1


async def test_settings_are_those_of_the_client_that_asks() -> None:
    engine = TableEngine()
    for value in ("one", "two"):
        client = Client("postgres", engine, catalog="demo", extra={"application_name": value})
        sql = "select setting from pg_settings where name = 'application_name'"
        assert await client.values(sql) == [value]


@pytest.mark.parametrize("dialect", ["postgres", "trino"])
async def test_a_quoted_name_that_is_no_column_is_an_error_and_no_string(dialect: str) -> None:
    with pytest.raises(EngineError):
        await Client(dialect, catalog="lake").ask('select "nothing" from information_schema.columns')


async def test_collations_of_mysql_clients_do_not_matter() -> None:
    rows = await Client("mysql", database="main").ask(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema COLLATE utf8mb4_0900_ai_ci = 'main'"
        " AND table_name = 'orders' COLLATE utf8mb4_bin"
    )
    assert [list(row.values()) for row in rows] == [["orders"]]
