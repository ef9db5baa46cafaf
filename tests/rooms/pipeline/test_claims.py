"""One process's claims, over a store that tests hold up: what is owed, and what is not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from queryflux.admission.memory import Ledger
from queryflux.model.errors import StoreUnavailable
from queryflux.model.shared import Kept, SharedQuery
from queryflux.persistence.postgres.pools import NoneFree
from queryflux.pipeline.arrears import BUSY_SECS, LOOK_SECS, RETRY_SECS
from queryflux.pipeline.claims import Claims, OwnClaim, Standing
from tests.kit.claims import MemoryClaims, MemoryClaimStore, shared_query
from tests.kit.clock import ManualClock, settle
from tests.kit.metrics import NoMetrics

WAITS = Standing(executing=False)
RUNS = Standing(executing=True, cluster="duck", backend_id="q_1")


def page(token: int) -> Standing:
    """A result that its engine keeps, so many pages on."""
    return Standing(executing=True, cluster="lake", backend_id="t1", kept=Kept(token, f"http://lake/{token}"))


@dataclass
class Asked:
    """A Subject that stands where it is put."""

    now: Standing
    keeps: bool = False
    wanted: bool = True
    dropped: bool = False

    def shared(self, *, executing: bool) -> SharedQuery:
        return shared_query()

    def standing(self) -> Standing:
        return self.now

    def will_be_kept(self) -> bool:
        return self.keeps

    def is_wanted(self) -> bool:
        return self.wanted

    def idle(self) -> float:
        return 0.0

    def asked_elsewhere(self, idle: float) -> None:
        """Nobody waits for it."""

    async def drop(self) -> None:
        self.dropped = True


class Table:
    """A process, and the rows of all."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rows = MemoryClaims(Ledger(self.clock))
        self.store = MemoryClaimStore(self.rows, "a")
        self.claims = Claims(self.store, self.clock, NoMetrics(), reachable=True)

    async def told(self, query: Asked) -> OwnClaim:
        """Our claim on a query that has a row."""
        claim = self.claims.claim("q_1", query)
        await claim.tell()
        assert self.rows.rows
        return claim

    def go_on(self) -> None:
        """Calls that are stuck are answered."""
        self.store.give_up_calls()
        self.store.stuck = self.store.silent = False


@pytest.fixture
async def table() -> AsyncIterator[Table]:
    made = Table()
    await made.claims.start()
    yield made
    await made.claims.close()


async def test_an_end_that_waits_for_a_write_under_way_owes_nothing(table: Table) -> None:
    query = Asked(page(1))
    claim = await table.told(query)
    query.now = page(2)
    table.store.stuck = True
    await claim.tell()
    await settle()
    ending = asyncio.ensure_future(claim.gone())
    await settle()
    table.go_on()
    await ending
    assert not table.rows.rows
    assert not table.claims.arrears


async def test_a_write_under_way_while_the_database_is_away_may_be_carried_out_later(table: Table) -> None:
    query = Asked(page(1))
    claim = table.claims.claim("q_1", query)
    table.store.stuck = True
    telling = asyncio.ensure_future(claim.tell())
    await settle()
    table.claims.arrears.away = True
    await claim.gone()
    table.go_on()
    await telling
    assert table.rows.rows, "it was carried out after the end"
    await table.claims.refresh()
    assert not table.rows.rows
    assert table.claims.arrears, "others that were given up may come yet"


async def test_a_write_that_is_broken_off_before_the_end_may_be_carried_out_later(table: Table) -> None:
    claim = table.claims.claim("q_1", Asked(page(1)))
    table.store.stuck = True
    telling = asyncio.ensure_future(claim.tell())
    await settle()
    ending = asyncio.ensure_future(claim.gone())
    await settle()
    telling.cancel()
    table.go_on()
    await ending
    assert table.claims.arrears


@pytest.mark.parametrize("known", [True, False], ids=["away", "not answering"])
async def test_one_that_began_without_the_database_is_told_of_when_it_is_back(
    table: Table, known: bool
) -> None:
    """Or its row would say that it waits, and whoever finds it stale would run it again."""
    query = Asked(WAITS)
    claim = await table.told(query)
    table.store.silent = True
    if known:
        await table.clock.advance(LOOK_SECS)
    assert table.claims.arrears.away == known
    query.now = RUNS
    await claim.dispatch()
    table.store.silent = False
    await table.clock.advance(LOOK_SECS + RETRY_SECS)
    assert table.rows.rows["q_1"].row.executing
    assert not query.dropped
    await claim.gone()


async def test_one_that_began_without_the_database_and_has_ended_is_not_told_of(table: Table) -> None:
    query = Asked(WAITS)
    claim = await table.told(query)
    table.store.silent = True
    await table.clock.advance(LOOK_SECS)
    query.now = RUNS
    await claim.dispatch()
    await claim.gone()
    table.store.silent = False
    await table.clock.advance(LOOK_SECS)
    assert not table.rows.rows
    assert not table.claims.arrears


async def test_one_that_began_without_the_database_and_was_taken_over_is_dropped(table: Table) -> None:
    query = Asked(WAITS)
    claim = await table.told(query)
    table.store.silent = True
    await table.clock.advance(LOOK_SECS)
    query.now = RUNS
    await claim.dispatch()
    other = MemoryClaimStore(table.rows, "b")
    found = await other.find("q_1")
    assert found is not None
    assert await other.claim(found, alive=True) is not None
    table.store.silent = False
    await table.clock.advance(LOOK_SECS)
    assert query.dropped


async def test_a_listing_that_fails_says_nothing_of_the_database(table: Table) -> None:
    query = Asked(page(1))
    claim = await table.told(query)
    table.store.silent = True
    with pytest.raises(StoreUnavailable):
        await table.claims.others()
    table.store.silent = False
    assert not table.claims.arrears.away
    assert not table.claims.arrears.unsteady
    query.now = page(3)
    await claim.tell()
    assert table.rows.rows["q_1"].row.kept == query.now.kept
    await claim.gone()


async def test_a_pool_without_a_free_connection_is_not_a_database_that_is_away(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Asked(page(1))
    claim = await table.told(query)

    async def busy(store: MemoryClaimStore) -> None:
        raise NoneFree("no connection was free")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryClaimStore, "_answer", busy)
        query.now = page(3)
        await claim.tell()
        with pytest.raises(StoreUnavailable):
            await table.claims.find("q_2")
        assert (table.claims.arrears.away, table.claims.arrears.unsteady) == (False, False)
        await table.clock.advance(BUSY_SECS + LOOK_SECS)
        assert table.claims.arrears.away, "for so long nobody was answered"
    await table.clock.advance(RETRY_SECS)
    assert table.rows.rows["q_1"].row.kept == query.now.kept
    await claim.gone()
