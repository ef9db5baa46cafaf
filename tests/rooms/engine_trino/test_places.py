"""Where the names of MySQL clients lead."""

import asyncio

import pytest

from queryflux.engines.trino.places import (
    FRESH_SECS,
    LISTING_SECS,
    LONGEST_PAUSE_SECS,
    LOOK_AGAIN_SECS,
    Places,
)
from queryflux.metadata.listing import listing_of
from queryflux.model.errors import EngineError, EngineUnavailable
from queryflux.model.protocol import ClientProtocol
from queryflux.model.statement import Session
from queryflux.runtime.tasks import TaskGroup
from tests.kit.clock import ManualClock, settle
from tests.rooms.engine_trino.coordinator import engine_at

SCHEMAS = [("memory", "both"), ("tpch", "tiny"), ("tpch", "both"), ("memory", "default"), ("tpch", "sf1")]


class Listed:
    """A coordinator that has SCHEMAS, and counts how often it was asked."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.schemas = list(SCHEMAS)
        self.asked = 0
        self.failure: Exception | None = None
        self.told = asyncio.Event()
        self.told.set()
        self.places = Places(self.ask, self.clock, TaskGroup("test"))

    async def ask(self) -> list[tuple[str, str]]:
        self.asked += 1
        await self.told.wait()
        if self.failure is not None:
            raise self.failure
        return self.schemas

    async def names(self, database: str | None, sql: str = "SELECT 1") -> tuple[str, str]:
        return await self.places.names(mysql(database), sql)


def mysql(database: str | None = None) -> Session:
    return Session(ClientProtocol.MYSQL_WIRE, database=database)


@pytest.mark.parametrize(
    ("database", "sql", "names"),
    [
        (None, "SELECT 1", ("", "")),
        ("tiny", "SELECT * FROM nation", ("tpch", "tiny")),
        ("TINY", "SELECT * FROM nation", ("tpch", "tiny")),
        ("tpch.tiny", "SELECT * FROM nation", ("tpch", "tiny")),
        ("nope", "SELECT * FROM nation", ("", "")),
        (None, "SELECT * FROM tiny.nation", ("tpch", "")),
        (None, 'SELECT * FROM "default" . "t" AS n', ("memory", "")),
        (None, "INSERT INTO Default.t SELECT 1", ("memory", "")),
        ("tiny", "SELECT * FROM default.t", ("memory", "")),
        ("tiny", "SELECT * FROM sf1.nation JOIN tiny.region ON true", ("tpch", "tiny")),
        ("tiny", "SELECT * FROM both.t", ("tpch", "tiny")),
        ("default", "SELECT * FROM both.t JOIN sf1.nation ON true", ("tpch", "")),
        (None, "SELECT * FROM both.t JOIN tiny.nation ON true", ("tpch", "")),
        ("both", "SELECT * FROM tiny.nation", ("tpch", "")),
        ("both", "SELECT * FROM t", ("", "")),
        ("tpch.both", "SELECT * FROM t", ("tpch", "both")),
        ("tiny", "SELECT * FROM memory.default.t", ("tpch", "tiny")),
        ("tiny", "SELECT default.x FROM nation default", ("tpch", "tiny")),
        ("tiny", "SELECT * FROM unknown.t", ("tpch", "tiny")),
    ],
)
async def test_catalog_and_schema(database: str | None, sql: str, names: tuple[str, str]) -> None:
    assert await Listed().names(database, sql) == names


@pytest.mark.parametrize("database", [None, "both", "nope"])
async def test_a_schema_of_several_catalogs_is_not_guessed(database: str | None) -> None:
    with pytest.raises(EngineError) as caught:
        await Listed().names(database, "SELECT * FROM t JOIN Both.x ON true")
    assert caught.value.number == 1049
    assert caught.value.message == "Unknown database 'both'"
    assert caught.value.hint == (
        "several catalogs have a schema of that name: write `memory.both` or `tpch.both`"
    )


async def test_nor_where_the_catalog_of_the_database_has_none_such() -> None:
    listed = Listed()
    listed.schemas.append(("other", "alone"))
    assert await listed.names("alone", "SELECT * FROM both.t") == ("other", "alone")


async def test_databases_are_those_that_are_listed() -> None:
    databases = listing_of([], [], SCHEMAS).databases
    listed = Listed()
    for catalog, schema in SCHEMAS:
        name = databases.renamed[f"{catalog}.{schema}"]
        assert await listed.names(name) == (catalog, schema)
        assert await listed.names(schema) == (("", "") if databases.lacks(schema) else (catalog, schema))


async def test_other_clients_are_as_they_say() -> None:
    listed = Listed()
    flight = Session(ClientProtocol.FLIGHT_SQL)
    assert await listed.places.names(flight, "SELECT * FROM tiny.nation") == ("", "")
    postgres = Session(ClientProtocol.POSTGRES_WIRE, catalog="tpch", database="tiny")
    assert await listed.places.names(postgres, "SELECT * FROM default.t") == ("tpch", "tiny")
    assert await listed.places.spelled(postgres, 'SELECT * FROM "tpch.tiny".nation') == (
        'SELECT * FROM "tpch.tiny".nation'
    )
    assert listed.asked == 0


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('SELECT * FROM "memory.both"."t"', 'SELECT * FROM "memory"."both"."t"'),
        ('SELECT "tpch.tiny".nation.x', 'SELECT "tpch"."tiny".nation.x'),
        ('SELECT * FROM "memory.tiny".t', 'SELECT * FROM "memory.tiny".t'),
        ('SELECT "tpch.tiny" FROM t', 'SELECT "tpch.tiny" FROM t'),
        ('SELECT \'"tpch.tiny".x\' -- "tpch.tiny".y', 'SELECT \'"tpch.tiny".x\' -- "tpch.tiny".y'),
        ('SELECT /* "tpch.tiny".z */ 1', 'SELECT /* "tpch.tiny".z */ 1'),
    ],
)
async def test_a_name_in_one_word_becomes_two(sql: str, expected: str) -> None:
    assert await Listed().places.spelled(mysql(), sql) == expected


async def test_the_list_is_kept_and_asked_for_when_a_name_is_not_in_it() -> None:
    listed = Listed()
    for _ in range(3):
        assert await listed.names("tiny") == ("tpch", "tiny")
    assert listed.asked == 1
    listed.schemas.append(("memory", "new"))
    assert await listed.names("new") == ("memory", "new")
    assert listed.asked == 2
    for _ in range(3):
        assert await listed.names("nope") == ("", "")
    assert listed.asked == 3
    await listed.clock.advance(LOOK_AGAIN_SECS)
    await listed.names("nope")
    assert listed.asked == 4
    await listed.clock.advance(FRESH_SECS)
    listed.schemas = [("other", "tiny")]
    assert await listed.names("tiny") == ("tpch", "tiny")
    await settle()
    assert await listed.names("tiny") == ("other", "tiny")
    assert listed.asked == 5


async def test_a_schema_that_is_new_in_one_catalog_is_found_though_another_has_it() -> None:
    listed = Listed()
    known, new = 'SELECT * FROM "tpch.tiny".t', 'SELECT * FROM "memory.tiny".t'
    for _ in range(3):
        assert await listed.places.spelled(mysql(), known) == 'SELECT * FROM "tpch"."tiny".t'
    assert listed.asked == 1
    listed.schemas.append(("memory", "tiny"))
    assert await listed.places.spelled(mysql(), new) == 'SELECT * FROM "memory"."tiny".t'
    assert listed.asked == 2


async def test_nobody_waits_for_names_that_are_known() -> None:
    listed = Listed()
    await listed.names("tiny")
    listed.told.clear()
    await listed.clock.advance(FRESH_SECS)
    async with asyncio.timeout(1):
        assert await listed.names("tiny", "SELECT * FROM sf1.nation") == ("tpch", "tiny")
    await settle()
    assert listed.asked == 2
    new = asyncio.create_task(listed.names("new"))
    await settle()
    assert not new.done()
    listed.schemas.append(("memory", "new"))
    listed.told.set()
    assert await new == ("memory", "new")
    assert listed.asked == 2


async def test_a_list_that_takes_long_is_used_and_not_waited_for_again() -> None:
    listed = Listed()
    listed.told.clear()
    first = asyncio.create_task(listed.names("tiny"))
    await listed.clock.advance(LISTING_SECS - 0.1)
    assert not first.done()
    await listed.clock.advance(0.1)
    assert first.done()
    assert await first == ("", "")
    async with asyncio.timeout(1):
        assert await listed.names("tiny") == ("", "")
        listed.told.set()
        await settle()
        assert await listed.names("tiny") == ("tpch", "tiny")
        listed.told.clear()
        await listed.clock.advance(LONGEST_PAUSE_SECS - 0.1)
        assert await listed.names("nope") == ("", "")
        assert listed.asked == 1
        await listed.clock.advance(0.1)
        assert await listed.names("nope") == ("", "")
        await settle()
        assert listed.asked == 2
        listed.told.set()
        await settle()
    await listed.clock.advance(LONGEST_PAUSE_SECS)
    listed.schemas.append(("memory", "nope"))
    await listed.names("nope")
    await settle()
    assert await listed.names("nope") == ("memory", "nope")
    listed.schemas.append(("memory", "new"))
    assert await listed.names("new") == ("memory", "new")


async def test_after_failures_it_is_asked_ever_more_seldom_and_names_are_not_kept() -> None:
    listed = Listed()
    listed.failure = EngineUnavailable("it is down")
    for second in range(600):
        await listed.names(f"nope{second}")
        await listed.clock.advance(1)
    assert listed.asked == 5 + 9
    assert not listed.places._absent
    listed.failure = None
    await listed.clock.advance(LONGEST_PAUSE_SECS)
    for second in range(600):
        await listed.names(f"nope{second}")
    assert len(listed.places._absent) == 1


async def test_a_close_waits_for_no_list() -> None:
    listed = Listed()
    listed.told.clear()
    engine = engine_at(1, listed.clock)
    engine.places = listed.places = Places(listed.ask, listed.clock, engine.tasks)
    waiting = asyncio.create_task(listed.names("tiny"))
    await settle()
    async with asyncio.timeout(2):
        await engine.close()
    assert await waiting == ("", "")


async def test_many_that_wait_ask_once() -> None:
    listed = Listed()
    found = await asyncio.gather(*(listed.names("tiny") for _ in range(5)))
    assert found == [("tpch", "tiny")] * 5
    assert listed.asked == 1


async def test_a_coordinator_that_does_not_tell(caplog: pytest.LogCaptureFixture) -> None:
    listed = Listed()
    listed.failure = EngineUnavailable("it is down")
    for _ in range(3):
        assert await listed.names("tiny") == ("", "")
    assert listed.asked == 1
    assert [record.message for record in caplog.records] == [
        "the schemas of Trino cannot be listed: it is down"
    ]
    listed.failure = None
    await listed.clock.advance(LOOK_AGAIN_SECS)
    assert await listed.names("tiny") == ("tpch", "tiny")
    listed.failure = EngineUnavailable("it is down")
    await listed.clock.advance(FRESH_SECS)
    for _ in range(2):
        assert await listed.names("tiny") == ("tpch", "tiny")
        await settle()
    assert listed.asked == 3


def test_how_long_a_statement_waits_at_most() -> None:
    assert LISTING_SECS <= 5
