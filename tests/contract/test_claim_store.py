"""What every store of claims holds: one owner, said in the statement itself, and the database's own clock."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from queryflux.admission.claims import STALE_SECS
from queryflux.model.shared import Kept, SharedRow
from queryflux.persistence.postgres.claims import PostgresClaimStore
from tests.kit.claims import KINDS, Fleet, fleet, shared_query
from tests.kit.databases import Database, database

__all__ = ["database"]

KEPT = Kept(1, "/v1/statement/queued/t1/y1/1")


@pytest.fixture(params=KINDS)
async def claims(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    """Several instances on one store."""
    async with fleet(request.param) as made:
        yield made


async def test_a_query_that_waits_is_found_by_everybody(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    query = shared_query()
    assert await b.find("q_1") is None
    assert await a.wait(query)
    assert await a.wait(query), "said again, it is still ours"
    assert not await b.wait(query), "somebody else's"
    assert await b.find("q_1") == SharedRow(query=query, executing=False, owner="a")


async def test_a_query_that_runs_says_where_it_is_and_where_its_pages_are(claims: Fleet) -> None:
    a, b = claims.store("a", "10.0.0.1:8080"), claims.store("b", None)
    query = shared_query()
    assert await a.wait(query)
    later = replace(query, waited_secs=2.5)
    assert await a.run(later, "t1", "trino_7", KEPT, waited=True)
    row = SharedRow(query=later, executing=True, owner="a", address="10.0.0.1:8080", cluster="t1", kept=KEPT)
    assert await b.find("q_1") == row
    assert await b.find("trino_7") == row, "by the engine's own id too"
    further = Kept(2, "/v1/statement/executing/t1/y2/0", KEPT.uri)
    assert await a.move("q_1", further)
    assert await b.find("q_1") == replace(row, kept=further)
    assert not await b.move("q_1", KEPT), "only its owner says where it is"


async def test_that_it_runs_may_be_said_again_when_the_answer_was_lost(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query())
    assert await a.run(shared_query(), "t1", "x", None, waited=True)
    assert await a.run(shared_query(), "t1", "x", KEPT, waited=True)
    found = await b.find("q_1")
    assert found is not None
    assert (found.owner, found.kept) == ("a", KEPT)
    assert await b.claim(found, alive=True) is not None
    assert not await a.run(shared_query(), "t1", "x", KEPT, waited=True), "somebody else's"


async def test_a_query_that_never_waited_needs_no_row_before(claims: Fleet) -> None:
    a = claims.store("a", None)
    assert not await a.run(shared_query(), "t1", "x", KEPT, waited=True), "its row has gone"
    assert await a.run(shared_query(), "t1", "x", None, waited=False)
    found = await a.find("q_1")
    assert found is not None
    assert found.kept is None


async def test_the_end_of_a_query_is_its_owners_to_say(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query("q_1"))
    assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
    assert await b.end(["q_1", "q_2"]) == set()
    assert await a.end(["q_1", "q_2", "q_3"]) == {"q_1", "q_2"}
    assert await a.find("q_1") is None
    assert await a.find("q_2") is None


async def test_a_claim_that_is_refreshed_is_nobody_elses(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query("q_1"))
    assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
    claims.pass_time(STALE_SECS - 1)
    assert set(await a.refresh({"q_1": 0, "q_2": 500, "q_3": 0})) == {"q_1", "q_2"}
    claims.pass_time(STALE_SECS - 1)
    for query_id in ("q_1", "q_2"):
        found = await b.find(query_id)
        assert found is not None
        assert not found.stale
        assert await b.claim(found, alive=False) is None
    claims.pass_time(2)
    for query_id in ("q_1", "q_2"):
        found = await b.find(query_id)
        assert found is not None
        assert found.stale
        claimed = await b.claim(found, alive=False)
        assert claimed == replace(found, owner="b", stale=False)
        assert await b.claim(found, alive=False) is None, "the owner that was named is not its owner any more"
    assert await a.refresh({"q_1": 0, "q_2": 0}) == {}
    assert not await a.run(shared_query("q_1"), "t1", "x", None, waited=True), "ownership comes first"
    assert await a.end(["q_1", "q_2"]) == set()


async def test_the_owner_learns_when_anybody_was_asked(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query("q_1"))
    claims.pass_time(20)
    assert 15 < (await a.refresh({"q_1": 100}))["q_1"] < 25
    await b.find("q_1")
    assert (await a.refresh({"q_1": 100}))["q_1"] < 5
    claims.pass_time(20)
    assert (await a.refresh({"q_1": 1}))["q_1"] < 6, "the client asked its owner a second ago"


async def test_a_lease_goes_with_its_query(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", "b:1")
    for query_id in ("q_1", "q_2", "q_3"):
        claims.take(query_id, "t1", "a")
    assert await a.wait(shared_query("q_1"))
    assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
    claims.pass_time(STALE_SECS + 1)
    for query_id in ("q_1", "q_2"):
        found = await b.find(query_id)
        assert found is not None
        assert claims.lease_of(query_id) == "a"
        assert await b.claim(found, alive=False) is not None
        assert claims.lease_of(query_id) == "b"
    assert claims.lease_of("q_3") == "a"


async def test_a_query_may_be_taken_from_an_owner_that_lives(claims: Fleet) -> None:
    a, b, c = claims.store("a", None), claims.store("b", "b:1"), claims.store("c", None)
    claims.take("q_1", "t1", "a")
    assert await a.run(shared_query(), "t1", "x", KEPT, waited=False)
    found = await b.find("q_1")
    assert found is not None
    assert await b.claim(found, alive=False) is None
    claimed = await b.claim(found, alive=True)
    assert claimed == replace(found, owner="b", address="b:1")
    assert await c.claim(found, alive=True) is None, "somebody else was faster"
    assert claims.lease_of("q_1") == "b"


async def test_what_is_given_up_is_anybodys_at_once(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query("q_1"))
    assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
    assert await b.wait(shared_query("q_3"))
    assert await a.give_up() == {"q_1"}
    found = await b.find("q_1")
    assert found is not None
    assert (found.owner, found.stale) == (None, True)
    assert await a.refresh({"q_1": 0}) == {}
    assert await b.claim(found, alive=False) is not None
    assert not await a.run(shared_query(), "t1", "x", None, waited=True)


async def test_only_what_nobody_answers_for_and_nobody_asks_for_is_swept(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.wait(shared_query("q_1"))
    assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
    claims.pass_time(STALE_SECS + 1)

    async def swept(idle_secs: float) -> list[str]:
        rows = [
            row
            for executing in (False, True)
            for row in await b.stale(executing=executing, idle_secs=idle_secs)
        ]
        return sorted(row.query.id for row in rows)

    assert await swept(STALE_SECS) == ["q_1", "q_2"]
    assert await swept(300) == []
    await b.find("q_2")
    assert await swept(STALE_SECS) == ["q_1"], "its client still asks for the other"
    await a.refresh({"q_1": 1000, "q_2": 1000})
    assert await swept(0) == []


async def test_queries_of_others_are_listed_the_oldest_first(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", "host:1")
    assert await b.run(shared_query("q_1"), "t1", "engine-1", KEPT, waited=False)
    assert await a.wait(shared_query("q_2"))
    assert await b.wait(shared_query("q_3"))
    listed = [(row.query.id, row.owner, row.cluster, backend) for row, backend in await a.others()]
    assert listed == [("q_1", "b", "t1", "engine-1"), ("q_3", "b", "", "")]
    await b.give_up()
    assert [(row.query.id, row.owner) for row, _ in await b.others()] == [("q_2", "a"), ("q_3", None)]


async def test_all_of_a_database_know_one_secret(claims: Fleet) -> None:
    a, b = claims.store("a", None), claims.store("b", None)
    assert await a.relay_key() == await b.relay_key()
    assert len(await a.relay_key()) >= 12


async def test_only_one_of_many_takes_a_query_over(claims: Fleet) -> None:
    assert await claims.store("a", None).wait(shared_query())
    claims.pass_time(STALE_SECS + 1)
    stores = [claims.store(f"b{number}", None) for number in range(6)]
    found = await stores[0].find("q_1")
    assert found is not None
    claimed = await asyncio.gather(*(store.claim(found, alive=False) for store in stores))
    assert sum(row is not None for row in claimed) == 1


# Rows that cannot be read.

UNREAD = {
    "fields": '{"a": 1}',
    "no object": "[1]",
    "an unknown protocol": msgspec.json.encode(shared_query("odd", protocol="carrierPigeon")).decode(),
    "another query": msgspec.json.encode(shared_query("other")).decode(),
}
WAITS = """
INSERT INTO queued_queries (id, data, cluster_group, claimed_by, claimed_at, last_accessed)
VALUES ('odd', %s, 'main', 'dead', now() - %s, now() - %s)
"""
RUNS = """
INSERT INTO executing_queries (id, proxy_query_id, data, cluster_group, owner, claimed_at, last_accessed)
VALUES ('t9', 'odd', %s, 'main', 'dead', now() - %s, now() - %s)
"""


@pytest.mark.parametrize("data", UNREAD.values(), ids=UNREAD)
@pytest.mark.parametrize("executing", [True, False], ids=["running", "waiting"])
async def test_a_row_that_cannot_be_read_hides_no_other_and_goes_when_it_is_stale(
    database: Database, executing: bool, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    hour = timedelta(hours=1)
    insert = RUNS if executing else WAITS
    async with database.pools() as pools:
        a, b = (PostgresClaimStore(pools.query, name, None) for name in ("a", "b"))
        assert await a.wait(shared_query("q_1"))
        assert await a.run(shared_query("q_2"), "t1", "x", KEPT, waited=False)
        database.rows(insert, data, timedelta(0), timedelta(0))
        for _ in range(3):
            assert {row.query.id for row, _ in await b.others()} == {"q_1", "q_2"}
            assert await b.find("odd") is None
            assert await b.stale(executing=executing, idle_secs=1) == []
        assert caplog.text.count("the row of query odd cannot be read") == 1
        assert await count(database, executing) == 2, "somebody may still answer for it"
        for table in ("queued_queries", "executing_queries"):
            sql = f"UPDATE {table} SET claimed_at = claimed_at - %s, last_accessed = last_accessed - %s"
            database.rows(sql, hour, hour)
        (left,) = await b.stale(executing=executing, idle_secs=1)
        assert left.query.id == ("q_2" if executing else "q_1")
        assert await count(database, executing) == 1


async def count(database: Database, executing: bool) -> int:
    table = "executing_queries" if executing else "queued_queries"
    found: int = database.rows(f"SELECT count(*) FROM {table}")[0][0]
    return found
