"""What MySQL clients of an engine with many catalogs see as databases."""

import threading
from typing import Any

import pytest

from queryflux.engines.port import Capability, ColumnRef, TableRef
from queryflux.metadata import catalogs
from queryflux.metadata import listing as listings
from queryflux.metadata.listing import listing_of
from queryflux.model.errors import EngineError
from tests.rooms.metadata.places import EVENTS, ORDERS, OTHER, RECENT, Client, TableEngine


class LakeEngine(TableEngine):
    """Of Trino's kind."""

    capabilities = frozenset({Capability.CATALOGS})


def lake() -> LakeEngine:
    engine = LakeEngine(ORDERS, RECENT, EVENTS, OTHER)
    engine.places = [("lake", "main"), ("lake", "raw"), ("other", "main"), ("other", "empty")]
    return engine


async def shown(sql: str, **session: Any) -> list[Any]:
    return await Client("mysql", lake(), **session).values(sql)


async def test_a_name_that_two_catalogs_have_is_shown_with_its_catalog() -> None:
    assert await shown("SHOW DATABASES") == ["empty", "information_schema", "lake.main", "other.main", "raw"]


@pytest.mark.parametrize(
    ("database", "tables"),
    [
        ("lake.main", ["orders", "recent"]),
        ("other.main", ["elsewhere"]),
        ("raw", ["Events"]),
        ("lake.raw", ["Events"]),
        ("Lake.Raw", ["Events"]),
        ("empty", []),
    ],
)
async def test_tables_of_each(database: str, tables: list[str]) -> None:
    assert await shown("SHOW TABLES", database=database) == tables
    await shown(f"USE `{database}`")


@pytest.mark.parametrize("name", ["main", "lake", "other.raw", "nope"])
async def test_what_is_no_database(name: str) -> None:
    with pytest.raises(EngineError) as caught:
        await shown(f"USE `{name}`")
    assert caught.value.number == 1049


async def test_an_engine_of_another_kind_is_seen_as_before() -> None:
    engine = TableEngine(ORDERS, RECENT, EVENTS)
    names = await Client("mysql", engine).values("SHOW DATABASES")
    assert names == ["information_schema", "main", "raw"]


def test_tables_keep_their_columns() -> None:
    column = ColumnRef(ORDERS, "id", "BIGINT", False, 1)
    databases = listing_of([ORDERS, OTHER], [column], None).databases
    assert databases.places is None
    assert [(table.catalog, table.schema, table.name) for table, _ in databases.tables] == [
        ("", "lake.main", "orders"),
        ("", "other.main", "elsewhere"),
    ]
    assert databases.tables[0][1] == (column,)
    assert listing_of([TableRef("a", "b", "c")], []).databases.renamed == {"a.b": "b"}


@pytest.mark.parametrize(
    ("engine", "steps"), [(lake(), ["listing_of", "Counter"]), (TableEngine(ORDERS), ["listing_of"])]
)
async def test_no_list_is_put_in_order_on_the_loop(
    engine: TableEngine, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, bool]] = []

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def watched(*args: Any) -> Any:
            done.append((name, threading.current_thread() is threading.main_thread()))
            return work(*args)

        monkeypatch.setattr(module, name, watched)

    watch(catalogs, "listing_of")
    watch(listings, "Counter")
    client = Client("mysql", engine)
    for _ in range(2):
        assert "information_schema" in await client.values("SHOW DATABASES")
    assert done == [(step, False) for step in steps]


PUBLIC = TableRef("shop", "public", "orders")
ANOTHER = TableRef("shop", "other", "things")
SHOP_COLUMNS = [ColumnRef(PUBLIC, "id", "INTEGER", False, 1), ColumnRef(ANOTHER, "a", "INTEGER", True, 1)]


class Shop(TableEngine):
    """Of PostgreSQL's kind: its database is called shop, and ``public`` is searched after the client's."""

    dialect = "postgres"

    def __init__(self) -> None:
        super().__init__(PUBLIC, ANOTHER)
        self.places = [("shop", "public"), ("shop", "other")]

    async def columns(self, schema: str | None = None, table: str | None = None) -> list[ColumnRef]:
        return SHOP_COLUMNS


@pytest.mark.parametrize("database", [None, "shop", "SHOP", "public", "other", "nope"])
@pytest.mark.parametrize("sql", ["DESCRIBE orders", "SHOW COLUMNS FROM orders", "SHOW FULL FIELDS IN orders"])
async def test_a_described_table_is_the_one_that_postgres_would_find(database: str | None, sql: str) -> None:
    assert await Client("mysql", Shop(), database=database).values(sql) == ["id"]
    assert await Client("mysql", Shop(), database=database).values("SHOW CREATE TABLE orders") == ["orders"]
    assert await Client("mysql", Shop(), database=database).values("SHOW INDEX FROM orders") == []


@pytest.mark.parametrize(
    ("database", "sql"),
    [
        ("shop", "DESCRIBE things"),
        ("public", "DESCRIBE things"),
        ("nope", "DESCRIBE things"),
        (None, "DESCRIBE things"),
        ("shop", "DESCRIBE shop.orders"),
        ("other", "DESCRIBE other.orders"),
        ("public", "SHOW COLUMNS FROM orders FROM other"),
        ("public", "SHOW INDEX FROM orders FROM other"),
        ("shop", "SHOW COLUMNS FROM shop.orders"),
        ("shop", "SHOW CREATE TABLE shop.orders"),
        ("shop", "SHOW COLUMNS FROM things FROM shop"),
    ],
)
async def test_a_table_that_postgres_would_not_find(database: str | None, sql: str) -> None:
    with pytest.raises(EngineError) as caught:
        await Client("mysql", Shop(), database=database).values(sql)
    assert caught.value.number == 1146


async def test_the_engines_own_database_shows_the_tables_of_plain_names() -> None:
    assert await Client("mysql", Shop(), database="shop").values("SHOW TABLES") == ["orders"]
    assert await Client("mysql", Shop(), database="other").values("SHOW TABLES") == ["things"]
    for database, number in ((None, 1046), ("nope", 1049)):
        with pytest.raises(EngineError) as caught:
            await Client("mysql", Shop(), database=database).values("SHOW TABLES")
        assert caught.value.number == number


@pytest.mark.parametrize(
    ("database", "found"), [("lake", True), ("nope", True), (None, True), ("raw", False)]
)
async def test_duckdb_looks_into_one_schema(database: str | None, found: bool) -> None:
    engine = TableEngine(ORDERS, RECENT, EVENTS)
    asked = Client("mysql", engine, database=database).values("DESCRIBE recent")
    if found:
        assert await asked == ["id"]
    else:
        with pytest.raises(EngineError, match=r"Table 'raw\.recent' doesn't exist"):
            await asked


@pytest.mark.parametrize("database", [None, "shop", "public", "other"])
@pytest.mark.parametrize("written", ["shop", "SHOP", "`shop`"])
async def test_the_engines_own_database_may_be_written_after_from(database: str | None, written: str) -> None:
    client = Client("mysql", Shop(), database=database)
    assert await client.values(f"SHOW FULL TABLES FROM {written}") == ["orders"]
    assert await client.values(f"SHOW TABLES IN {written} LIKE 'or%'") == ["orders"]
    assert await client.values(f"SHOW TABLE STATUS FROM {written}") == ["orders"]
    assert await client.values(f"SHOW FULL COLUMNS FROM orders FROM {written}") == ["id"]
    assert await client.values(f"SHOW INDEX FROM orders FROM {written}") == []
    assert await client.values("SHOW TABLES FROM other") == ["things"]


@pytest.mark.parametrize("database", [None, "lake", "main", "raw"])
@pytest.mark.parametrize(
    ("sql", "first"),
    [
        ("SHOW FULL TABLES FROM lake", "orders"),
        ("SHOW TABLES FROM `Lake`", "orders"),
        ("SHOW TABLES FROM lake WHERE Tables_in_lake = 'recent'", "recent"),
        ("SHOW TABLE STATUS FROM lake", "orders"),
        ("DESCRIBE lake.orders", "id"),
        ("DESC `lake`.`recent`", "id"),
        ("SHOW COLUMNS FROM orders FROM lake", "id"),
        ("SHOW FULL COLUMNS FROM lake.orders", "id"),
        ("SHOW CREATE TABLE lake.orders", "orders"),
        ("DESCRIBE lake.raw.events", "At"),
        ("SHOW TABLES FROM raw", "Events"),
    ],
)
async def test_duckdbs_own_database_may_be_written(database: str | None, sql: str, first: str) -> None:
    engine = TableEngine(ORDERS, RECENT, EVENTS)
    assert (await Client("mysql", engine, database=database).values(sql))[0] == first


@pytest.mark.parametrize("sql", ["DESCRIBE lake.events", "SHOW COLUMNS FROM events FROM lake"])
async def test_duckdbs_own_database_is_one_schema(sql: str) -> None:
    with pytest.raises(EngineError) as caught:
        await Client("mysql", TableEngine(ORDERS, RECENT, EVENTS), database="lake").values(sql)
    assert caught.value.number == 1146


async def test_a_schema_of_the_name_comes_before_the_engines_own_database() -> None:
    engine = TableEngine(ORDERS, EVENTS)
    engine.places = [("lake", "main"), ("lake", "raw"), ("lake", "lake")]
    assert await Client("mysql", engine, database="main").values("SHOW TABLES FROM lake") == []


@pytest.mark.parametrize("database", ["nope", None])
async def test_an_engine_with_many_catalogs_has_no_such_place(database: str | None) -> None:
    with pytest.raises(EngineError):
        await shown("DESCRIBE recent", database=database)
