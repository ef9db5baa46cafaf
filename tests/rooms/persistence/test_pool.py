"""The pool itself: order, limits, time-outs, what becomes of connections; over ones that do nothing."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from queryflux.model.errors import StoreUnavailable
from queryflux.persistence.postgres.capacity import asking
from queryflux.persistence.postgres.pools import IDLE_SECS, Pool
from queryflux.telemetry.prometheus import PrometheusMetrics
from tests.kit.clock import ManualClock, settle


class Fake:
    """A connection that only knows whether it is there."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gone = False
        self.in_transaction = False
        self.closing = asyncio.Event()
        self.closing.set()

    def is_closed(self) -> bool:
        return self.gone

    def is_in_transaction(self) -> bool:
        return self.in_transaction

    async def close(self, *, timeout: float) -> None:
        await self.closing.wait()
        self.gone = True

    def terminate(self) -> None:
        self.gone = True


class Bench:
    """A pool of two, and what it opened."""

    def __init__(self, size: int = 2, timeout: float = 30) -> None:
        self.clock = ManualClock()
        self.metrics = PrometheusMetrics()
        self.opened: list[Fake] = []
        self.failure: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.pool = Pool("query", size, self.connect, timeout, self.clock, self.metrics)

    async def connect(self, timeout: float) -> Any:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.opened.append(Fake(len(self.opened)))
        return self.opened[-1]

    @property
    def open(self) -> int:
        return sum(not fake.gone for fake in self.opened)

    def gauge(self, what: str) -> float:
        text = self.metrics.render().decode()
        return float(text.split(f'queryflux_store_pool_{what}{{pool="query"}} ')[1].split("\n")[0])

    @asynccontextmanager
    async def held(self, count: int = 2) -> AsyncIterator[list[Any]]:
        """So many connections in use."""
        held = [await self.pool.take() for _ in range(count)]
        yield held
        for connection in held:
            self.pool.give(connection, None, False)


async def use(bench: Bench, log: list[Any]) -> None:
    async with bench.pool.connection() as connection:
        log.append(connection)


async def test_nothing_is_opened_before_it_is_needed_and_one_is_used_again() -> None:
    bench = Bench()
    assert bench.opened == []
    log: list[Any] = []
    for _ in range(3):
        await use(bench, log)
    assert log == bench.opened * 3
    assert len(bench.opened) == 1


async def test_who_waits_is_served_in_order_and_never_more_than_the_size_are_open() -> None:
    bench = Bench()
    order: list[int] = []

    async def waiter(number: int) -> None:
        async with bench.pool.connection():
            order.append(number)
            await asyncio.sleep(0)

    async with bench.held():
        tasks = [asyncio.ensure_future(waiter(number)) for number in range(20)]
        await settle()
        assert bench.gauge("waiting") == 20
        assert bench.gauge("in_use") == 2
    await asyncio.gather(*tasks)
    assert order == list(range(20))
    assert len(bench.opened) == 2
    assert (bench.gauge("waiting"), bench.gauge("in_use"), bench.gauge("connections")) == (0, 0, 2)


async def test_one_who_waits_too_long_is_told_so_and_the_next_is_served() -> None:
    bench = Bench(timeout=5)
    log: list[Any] = []
    async with bench.held():
        early = asyncio.ensure_future(use(bench, log))
        await bench.clock.advance(4)
        late = asyncio.ensure_future(use(bench, log))
        await bench.clock.advance(1)
        with pytest.raises(StoreUnavailable, match=r"no connection .* was free within 5 s") as caught:
            await early
        assert caught.value.hint == "the query pool has 2"
        assert not late.done()
        assert bench.gauge("waiting") == 1
    await late
    assert len(log) == 1


async def test_a_use_that_may_take_so_long_includes_the_wait() -> None:
    bench = Bench(timeout=30)
    async with bench.held():
        asking = asyncio.ensure_future(hurried(bench, 3))
        await bench.clock.advance(2)
        with pytest.raises(StoreUnavailable, match=r"no connection .* was free within 2 s"):
            await asking


async def test_a_statement_that_takes_longer_says_that_the_server_is_silent() -> None:
    bench = Bench()
    async with bench.held(2):
        pass
    assert bench.open == 2
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        await hurried(bench, 0.01)
    assert (bench.open, bench.gauge("connections")) == (0, 0), "the others would not answer either"
    await use(bench, [])
    assert bench.open == 1


async def hurried(bench: Bench, seconds: float) -> None:
    """A statement without an answer."""
    async with bench.pool.connection(within=seconds):
        await asyncio.Event().wait()


async def test_one_who_goes_away_as_it_is_served_passes_the_connection_on() -> None:
    bench = Bench(size=1)
    log: list[Any] = []
    async with bench.held(1):
        first = asyncio.ensure_future(use(bench, log))
        second = asyncio.ensure_future(use(bench, log))
        await settle()
    first.cancel()  # it has been handed the connection, and has not run since
    await second
    assert first.cancelled()
    assert log == bench.opened
    assert bench.gauge("in_use") == 0


async def test_a_place_whose_connection_broke_is_opened_again_by_who_waits() -> None:
    bench = Bench(size=1)
    log: list[Any] = []
    async with bench.held(1) as held:
        waiting = asyncio.ensure_future(use(bench, log))
        await settle()
        held[0].gone = True
    await waiting
    assert log == [bench.opened[1]]
    assert bench.gauge("connections") == 1


async def test_a_failure_to_connect_is_told_to_each_and_leaks_no_place() -> None:
    bench = Bench(size=1)
    bench.failure = ConnectionRefusedError(111, "Connect call failed")
    bench.gate.clear()
    tasks = [asyncio.ensure_future(use(bench, [])) for _ in range(5)]
    await settle()
    bench.gate.set()
    for task in tasks:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await task
    assert bench.gauge("connections") == 0
    bench.failure = None
    await use(bench, [])
    assert bench.gauge("connections") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (asyncpg.TooManyConnectionsError("no"), "takes no more connections"),
        (asyncpg.CannotConnectNowError("no"), "starting or shutting down"),
        (asyncpg.ObjectNotInPrerequisiteStateError("not accepting connections"), "refuses the connection"),
        (asyncpg.InvalidParameterValueError("no such setting"), "refuses the connection"),
    ],
)
async def test_whatever_the_server_says_instead_of_a_connection_there_is_none(
    error: Exception, message: str
) -> None:
    bench = Bench()
    bench.failure = error
    with pytest.raises(StoreUnavailable, match=message) as caught:
        await use(bench, [])
    assert str(error) in caught.value.hint


async def test_a_connection_left_in_the_middle_is_closed_and_its_place_kept_until_then() -> None:
    bench = Bench(size=1)
    entered = asyncio.Event()

    async def leave() -> None:
        async with bench.pool.connection() as connection:
            connection.closing.clear()
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(leave())
    await entered.wait()
    task.cancel()
    log: list[Any] = []
    waiting = asyncio.ensure_future(use(bench, log))
    await settle()
    assert len(bench.opened) == 1, "a second connection while the first still runs its statement"
    bench.opened[0].closing.set()
    await waiting
    assert log == [bench.opened[1]]


async def test_a_connection_given_back_within_a_transaction_is_not_used_again() -> None:
    bench = Bench()
    async with bench.pool.connection() as connection:
        connection.in_transaction = True
    log: list[Any] = []
    await use(bench, log)
    assert log == [bench.opened[1]]


@pytest.mark.parametrize(
    ("error", "kept", "message"),
    [
        (asyncpg.ReadOnlySQLTransactionError("no"), 0, "is read-only"),
        (asyncpg.AdminShutdownError("no"), 0, "starting or shutting down"),
        (asyncpg.ConnectionDoesNotExistError("no"), 0, "broke"),
        (TimeoutError(), 0, "did not answer in time"),
        (asyncpg.DiskFullError("no"), 1, "out of resources"),
        (asyncpg.InvalidCachedStatementError("no"), 1, "have just changed"),
        (asyncpg.QueryCanceledError("no"), 2, "took too long"),
        (asyncpg.DeadlockDetectedError("no"), 2, "conflicting change"),
        (asyncpg.UndefinedTableError("no"), 2, "does not have the tables"),
        (asyncpg.InsufficientPrivilegeError("no"), 2, "does not allow"),
    ],
)
async def test_what_says_that_the_database_is_away_is_one_error(
    error: Exception, kept: int, message: str
) -> None:
    """``kept``: of two connections, those that are used again."""
    bench = Bench()
    async with bench.held():
        pass
    with pytest.raises(StoreUnavailable, match=message) as caught:
        async with bench.pool.connection():
            raise error
    assert caught.value.__cause__ is error
    await settle()
    assert bench.open == kept


async def test_connections_of_a_server_that_fell_silent_are_dropped_at_once() -> None:
    """None of them takes leave, and the places are free."""
    bench = Bench(size=3)
    async with bench.held(3):
        for fake in bench.opened:
            fake.closing.clear()
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        async with bench.pool.connection():
            raise TimeoutError
    assert bench.open == bench.gauge("connections") == 0
    async with bench.held(3):
        assert bench.open == 3
    assert len(bench.opened) == 6


@pytest.mark.parametrize("error", [asyncpg.UniqueViolationError("no"), ValueError("no"), KeyError("no")])
async def test_other_errors_pass_and_the_connection_stays(error: Exception) -> None:
    bench = Bench()
    with pytest.raises(type(error)):
        async with bench.pool.connection():
            raise error
    assert bench.open == 1
    assert bench.gauge("in_use") == 0


async def test_what_nobody_needed_for_a_while_is_closed() -> None:
    bench = Bench()
    async with bench.held():
        pass
    await bench.clock.advance(IDLE_SECS / 2)
    await use(bench, [])
    await bench.clock.advance(IDLE_SECS / 2 + 1)
    assert bench.open == 1, "the other one was used in between"
    await bench.clock.advance(IDLE_SECS / 2)
    assert bench.open == 0, "also when nobody comes at all"
    assert bench.clock.pending == 0
    await use(bench, [])
    assert len(bench.opened) == 3
    await bench.pool.close()
    assert bench.clock.pending == 0


async def test_idle_connections_that_broke_are_not_handed_out() -> None:
    bench = Bench()
    async with bench.held():
        pass
    for fake in bench.opened:
        fake.gone = True
    log: list[Any] = []
    await use(bench, log)
    assert log == [bench.opened[2]]
    assert bench.gauge("connections") == 1


async def test_close_ends_waiting_and_use_and_opens_nothing_more() -> None:
    bench = Bench()
    in_use = await bench.pool.take()
    async with bench.pool.connection():
        pass
    other = await bench.pool.take()
    waiting = asyncio.ensure_future(use(bench, []))
    await settle()
    await bench.pool.close()
    for call in (waiting, asyncio.ensure_future(use(bench, []))):
        with pytest.raises(StoreUnavailable, match="has closed its connections"):
            await call
    for connection in (in_use, other):
        bench.pool.give(connection, None, False)
    assert bench.open == 0
    assert bench.gauge("connections") == 0


async def test_a_connection_that_comes_after_the_pool_was_closed_is_closed() -> None:
    bench = Bench()
    bench.gate.clear()
    opening = asyncio.ensure_future(use(bench, []))
    await settle()
    await bench.pool.close()
    bench.gate.set()
    with pytest.raises(StoreUnavailable):
        await opening
    assert bench.open == 0


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_no_place_is_lost_and_none_is_used_twice(seed: int) -> None:
    """Calls that come, go away, time out and fail, over connections that break and cannot be made."""
    chance = random.Random(seed)
    bench = Bench(size=3, timeout=5)
    in_use: set[int] = set()

    async def call() -> None:
        try:
            async with bench.pool.connection() as connection:
                number = connection.number
                assert number not in in_use
                in_use.add(number)
                assert len(in_use) <= 3
                assert bench.open <= 3
                try:
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    if chance.random() < 0.2:
                        await bench.clock.sleep(chance.choice((1, 9)))
                    if chance.random() < 0.2:
                        bench.opened[number].gone = chance.random() < 0.5
                        raise chance.choice((asyncpg.AdminShutdownError("x"), TimeoutError(), ValueError()))
                finally:
                    in_use.discard(number)
        except (StoreUnavailable, ValueError):
            pass

    tasks: list[asyncio.Task[None]] = []
    for _ in range(120):
        bench.failure = ConnectionRefusedError() if chance.random() < 0.1 else None
        tasks.append(asyncio.ensure_future(call()))
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
        if chance.random() < 0.5:
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            await bench.clock.advance(chance.choice((0.5, 6)))
    bench.failure = None
    while not all(task.done() for task in tasks):
        await bench.clock.advance(1)
    assert [task.exception() for task in tasks if not task.cancelled() and task.exception()] == []
    await settle()
    assert (bench.gauge("in_use"), bench.gauge("waiting")) == (0, 0)
    assert bench.gauge("connections") == bench.open <= 3
    async with bench.held(3):
        assert bench.open == 3
    await bench.pool.close()
    assert bench.open == bench.gauge("connections") == 0


async def test_a_driver_that_reads_the_servers_last_word_has_lost_its_connection() -> None:
    """asyncpg says so when a statement is to be sent while it reads the error with which a server ends."""
    bench = Bench()
    with pytest.raises(StoreUnavailable, match="broke"):
        async with bench.pool.connection():
            raise asyncpg.InternalClientError("cannot switch to state 12; another operation is in progress")
    await settle()
    assert bench.opened[0].gone
    async with bench.pool.connection():
        assert len(bench.opened) == 2


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("confused"),
        asyncpg.InterfaceError("confused"),
        asyncpg.CheckViolationError("a count below zero"),
    ],
)
async def test_whatever_goes_wrong_with_a_lease_it_is_not_decided(error: Exception) -> None:
    """... and the loops that ask, renew, release and sweep go on."""
    bench = Bench()
    with pytest.raises(StoreUnavailable):
        async with asking(bench.pool):
            raise error
