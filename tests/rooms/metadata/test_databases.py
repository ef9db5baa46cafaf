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
